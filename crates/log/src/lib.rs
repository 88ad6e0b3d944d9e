//! The log-structured engine: segments, streams, cleaner
