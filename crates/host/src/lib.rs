//! What margay needs of the operating system that is neither flash nor a trace.
//!
//! ```
//! use margay_host::{Existing, NewFile};
//! use std::io::Write;
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("result.csv");
//! let mut file = NewFile::create(&path, Existing::Refuse)?;
//! file.write_all(b"a,b\n")?;
//! assert!(!path.exists());
//! file.commit()?;
//! assert_eq!(std::fs::read(&path)?, b"a,b\n");
//! # Ok::<(), std::io::Error>(())
//! ```

mod new_file;

pub use new_file::{Existing, NewFile};

/// The memory of this machine in bytes, if the system tells it.
pub fn memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}
