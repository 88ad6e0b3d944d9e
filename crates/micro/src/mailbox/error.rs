use crate::DiskError;
use margay_flash::FlashError;
use margay_ftl::{FtlError, MountError};
use margay_log::LogError;

/// Why a task did not get what it asked a [`Mailbox`](crate::Mailbox) for: what matters of [`DiskError`], as a value that can be copied
/// from one context to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AsyncDiskError {
    /// The page lies past the end of the disk. Nothing was done.
    #[error("page {lpn} is past the end of the disk ({exported_pages} pages)")]
    PastEnd {
        /// The first page asked for that is not there.
        lpn: u64,
        /// Pages of the disk.
        exported_pages: u32,
    },
    /// The page was written, and cannot be read any more; another write of the whole page mends it.
    #[error("page {lpn} of the disk was written, and cannot be read any more")]
    Unreadable {
        /// The page.
        lpn: u32,
    },
    /// Too many segments have failed: the disk can only be read.
    #[error(
        "the device is worn out: {retired_segments} segments are retired and there is no room left to write; it can be read"
    )]
    WornOut {
        /// Segments retired.
        retired_segments: u32,
    },
    /// There is no room to write, although the device is not worn out: the last writes met too many errors of the device.
    #[error("there is no room to write: the last writes met too many errors of the device")]
    NoRoom,
    /// A later version formatted the disk, and this one can only read it.
    #[error("a later version of margay formatted the disk: this one can only read it")]
    ReadOnly,
    /// Nothing more is written after errors of the device ([`FlashError::Stopped`]) until the disk is mounted again.
    #[error("writing has stopped after errors of the device: mount the disk again")]
    WritingStopped,
    /// The device failed. A write or trim may be done or not, and may be asked for again.
    #[error("the device failed: {0}")]
    Device(LogError),
    /// A part of a page was to be written, and the server has a disk of whole pages ([`SmallDisk`](crate::SmallDisk)). Nothing was done.
    #[error("the disk is served by whole pages of {page_bytes} bytes: write whole pages, or serve a ByteDisk")]
    PartOfPage {
        /// Bytes of a page.
        page_bytes: usize,
    },
    /// Nobody serves the mailbox any more. What had not begun was not done; what had may be done or not.
    #[error("the disk has stopped: nobody serves its mailbox any more")]
    NotServed,
}

/// What was asked of a page that the error is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct About {
    pub lpn: u32,
    /// Whether the page had to be read for it.
    pub is_read: bool,
    pub exported_pages: u32,
}

impl About {
    /// What the task is told of an error of the disk.
    pub fn tell(self, error: &DiskError) -> AsyncDiskError {
        let lpn = self.lpn;
        match *error {
            DiskError::ReadOnly => AsyncDiskError::ReadOnly,
            DiskError::Disk(error) | DiskError::Mount(MountError::Ftl(error)) => match error {
                FtlError::OutOfRange { .. } => self.past_end(),
                FtlError::WornOut { retired_segments } => AsyncDiskError::WornOut { retired_segments },
                FtlError::Log(LogError::NoSpace { .. }) => AsyncDiskError::NoRoom,
                FtlError::Log(LogError::Flash(FlashError::Stopped)) => AsyncDiskError::WritingStopped,
                FtlError::Log(LogError::Flash(error)) if self.is_read && error.is_unreadable() => {
                    AsyncDiskError::Unreadable { lpn }
                }
                FtlError::Log(error) => AsyncDiskError::Device(error),
            },
            DiskError::PastEnd { .. } => self.past_end(),
            // No operation of a disk that is mounted returns these.
            DiskError::NotFormatted(_)
            | DiskError::Superblock(_)
            | DiskError::Layout(_)
            | DiskError::NotADisk
            | DiskError::Size { .. }
            | DiskError::Mount(MountError::Scan(_)) => AsyncDiskError::NotServed,
        }
    }

    fn past_end(self) -> AsyncDiskError {
        AsyncDiskError::PastEnd { lpn: self.lpn.into(), exported_pages: self.exported_pages }
    }
}
