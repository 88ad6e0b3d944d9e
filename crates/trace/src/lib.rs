//! Block trace readers and writers
