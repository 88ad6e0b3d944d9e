//! Page-mapped translation: a disk on the log
