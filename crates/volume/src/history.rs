use crate::disk::store;
use crate::options::formatted;
use crate::{VolumeError, find};
use alloc::vec::Vec;
use margay_flash::Flash;
use margay_format::Superblock;
use margay_fs::{FoundFs, find as find_files, owners};
use margay_ftl::{load, load_paged};

/// What a device that was formatted before has behind it, so that it is not taken for a new one when it is formatted again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Erases of each segment, by number; empty if nothing is known.
    pub erases: Vec<u32>,
    /// Erases that a segment endures, as it was formatted; 0 if that was not said.
    pub endurance_erases: u32,
}

/// Reads what a device with a disk or a file system has behind it. Changes nothing.
///
/// # Errors
/// The device holds neither of them, or it cannot be read.
pub fn history<F: Flash>(device: &mut F) -> Result<History, VolumeError> {
    let of = |superblock: &Superblock, erases| History { erases, endurance_erases: superblock.endurance_erases };
    match find(device) {
        Ok(superblock) => {
            let (mut store, _) = store(device, &superblock)?;
            let erases = match superblock.map_entries {
                0 => load(&mut store, &superblock, true)?.erases(),
                _ => load_paged(&mut store, &superblock, true)?.erases(),
            };
            Ok(of(&superblock, erases))
        }
        Err(VolumeError::NotADisk) => {
            let superblock = find_files(device)?;
            let mut store = formatted(device, &superblock, owners())?;
            Ok(of(&superblock, FoundFs::load(&mut store, &superblock, true)?.erases()))
        }
        Err(error) => Err(error),
    }
}
