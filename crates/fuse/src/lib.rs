//! The file system mounted by FUSE: a door to [`margay_volume::Files`] beside the NBD server.

mod attributes;
mod directories;
mod fuse;
mod session;
mod sparse;

pub use session::{MountOptions, mount};

use margay_fs::FsError;
use margay_volume::{AnyFlash, Files};
use std::time::{SystemTime, UNIX_EPOCH};

/// A file system on any device.
pub type FileSystem = Files<AnyFlash>;

/// Why a file system could not be mounted, or was not served to the end.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// A file operation failed.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// FUSE cannot be used.
    #[error("{path}: cannot be mounted: {error}. {advice}")]
    Fuse {
        /// The mount point.
        path: String,
        /// What went wrong.
        error: std::io::Error,
        /// What to do.
        advice: &'static str,
    },
    /// The operating system.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// The time.
pub fn now() -> margay_fs::Time {
    time_of(SystemTime::now())
}

fn time_of(time: SystemTime) -> margay_fs::Time {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => margay_fs::Time { secs: since.as_secs() as i64, nanos: since.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            let borrow = i64::from(before.subsec_nanos() > 0);
            let nanos = if borrow == 1 { 1_000_000_000 - before.subsec_nanos() } else { 0 };
            margay_fs::Time { secs: -(before.as_secs() as i64) - borrow, nanos }
        }
    }
}
