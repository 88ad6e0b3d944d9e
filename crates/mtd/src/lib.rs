//! Raw flash as Linux shows it: an MTD by its character device (`/dev/mtd0`).
//!
//! Safe calls for what a flash translation needs: the shape, reading with what the ECC did, programming a page together with
//! the free bytes of its spare area, erasing, bad blocks. Nothing here knows what is kept on the chip. The names are those
//! of the kernel's header: what is erased at once is an erase block.

mod ioctl;
mod sysfs;

use ioctl::{AUTO_OOB, EccLayout, EccStats, EraseInfo64, InfoUser, OobBuf64, ReadReq, WriteReq, call};
use std::cell::Cell;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use sysfs::Sysfs;

/// Major number of the character devices.
const MAJOR: u32 = 90;
/// What the kernel calls a page that was corrected, and one that could not be.
const CORRECTED: i32 = libc::EUCLEAN;
const UNCORRECTABLE: i32 = libc::EBADMSG;

/// What kind of flash an MTD is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Memory that shows itself as flash.
    Ram,
    /// Flash whose bytes can be programmed one by one.
    Nor,
    /// NAND with one bit in a cell.
    Nand,
    /// NAND with several bits in a cell.
    MlcNand,
    /// Any other, by the number of the kernel's header.
    Other(u8),
}

/// The shape of an MTD, as the kernel says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// What it is.
    pub kind: Kind,
    /// It can be programmed.
    pub is_writable: bool,
    /// Each bit can be programmed by itself, from 1 to 0.
    pub is_bit_writable: bool,
    /// Its length in bytes.
    pub size_bytes: u64,
    /// What is erased at once, in bytes.
    pub erase_bytes: u32,
    /// What is programmed at once, in bytes.
    pub write_bytes: u32,
    /// The spare area of a page, in bytes, with what the ECC takes.
    pub oob_bytes: u32,
    /// What of it is free for use, in bytes.
    pub free_oob_bytes: u32,
    /// So many corrected bits in a step of the ECC are reason to write a page again.
    pub bitflip_threshold: u32,
    /// How many different sizes of erase blocks there are beside the one.
    pub erase_regions: u32,
}

/// What the driver has counted since it was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bits that the ECC corrected.
    pub corrected_bits: u32,
    /// Reads that it could not correct.
    pub uncorrectable: u32,
    /// Erase blocks that are marked bad.
    pub bad: u32,
    /// Erase blocks that the driver keeps for its table of bad ones.
    pub reserved: u32,
}

/// Why a file is not opened as an MTD.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system refused.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Another process uses it.
    #[error("another process uses it")]
    InUse,
    /// It is a device of another kind.
    #[error("it is a device, but not the character device of raw flash (/dev/mtd0, and not /dev/mtdblock0)")]
    NotMtd,
    /// Only reading is possible.
    #[error("it is the device for reading only: use /dev/mtd{number}")]
    ReadOnlyNode {
        /// Number of the MTD.
        number: u32,
    },
    /// A driver of the kernel uses it.
    #[error(
        "the kernel uses it, as {user}: two programs that write to one chip destroy each other's data; {way_out} first"
    )]
    KernelUses {
        /// What uses it.
        user: String,
        /// How to end that.
        way_out: String,
    },
}

/// Why nothing was read.
#[derive(Debug)]
pub enum ReadError {
    /// More bits were wrong than the ECC corrects.
    Uncorrectable,
    /// The system refused.
    Io(io::Error),
}

/// How reading was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// By `MEMREAD`, of Linux 6.1 and later.
    Request,
    /// By read(2), with what the driver counts, and `MEMREADOOB64`.
    File,
}

/// An MTD that is open, and locked against other processes that ask for its lock.
#[derive(Debug)]
pub struct Mtd {
    file: File,
    /// The device by which others write to the same chip, locked too.
    _beside: Option<File>,
    info: Info,
    /// The free parts of a spare area, as offset and length.
    free: Vec<(usize, usize)>,
    reading: Cell<Reading>,
}

/// Whether this is a device rather than a file: what a device is, is found out by [`Mtd::open`].
pub fn is_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.file_type().is_char_device() || is_mtd_disk(path, &metadata))
}

/// A disk that the kernel shows on an MTD.
fn is_mtd_disk(path: &Path, metadata: &std::fs::Metadata) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    metadata.file_type().is_block_device() && name.starts_with("mtd")
}

fn lock(file: &File, is_shared: bool) -> Result<(), OpenError> {
    match if is_shared { file.try_lock_shared() } else { file.try_lock() } {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

/// Locks the device by which the chip of a device for reading only is written: a lock is one of a file, and each chip has two.
/// None if there is no such file beside it.
fn lock_beside(path: &Path, number: u32) -> Result<Option<File>, OpenError> {
    let beside = path.canonicalize()?.with_file_name(format!("mtd{number}"));
    let is_it = |metadata: std::fs::Metadata| {
        let (major, minor) = (libc::major(metadata.rdev()), libc::minor(metadata.rdev()));
        metadata.file_type().is_char_device() && (major, minor) == (MAJOR, 2 * number)
    };
    if !beside.metadata().is_ok_and(is_it) {
        return Ok(None);
    }
    let file = File::open(&beside).map_err(|error| {
        let text =
            format!("{}, by which others write to the chip, cannot be opened to lock it: {error}", beside.display());
        io::Error::new(error.kind(), text)
    })?;
    lock(&file, true)?;
    Ok(Some(file))
}

/// Takes the free bytes, which are in `parts`, out of a spare area. False if the parts have not as many.
fn take_free(parts: &[(usize, usize)], raw: &[u8], free: &mut [u8]) -> bool {
    let bytes: Vec<u8> =
        parts.iter().flat_map(|(at, len)| raw.get(*at..*at + *len).unwrap_or_default()).copied().collect();
    let Some(bytes) = bytes.get(..free.len()) else { return false };
    free.copy_from_slice(bytes);
    true
}

impl Mtd {
    /// Opens an MTD by its character device: for itself alone, or with `read_only` beside others who only read.
    ///
    /// # Errors
    /// It is no MTD, or in use by another process, by UBI or by a mount of the kernel.
    pub fn open(path: &Path, read_only: bool) -> Result<Self, OpenError> {
        let metadata = path.metadata()?;
        let (major, minor) = (libc::major(metadata.rdev()), libc::minor(metadata.rdev()));
        if !metadata.file_type().is_char_device() || major != MAJOR {
            return Err(OpenError::NotMtd);
        }
        // Odd numbers are the devices for reading only.
        let number = minor / 2;
        if minor % 2 == 1 && !read_only {
            return Err(OpenError::ReadOnlyNode { number });
        }
        let file = OpenOptions::new().read(true).write(!read_only).open(path)?;
        lock(&file, read_only)?;
        let beside = if minor % 2 == 1 { lock_beside(path, number)? } else { None };
        // What the kernel begins to use after this is refused nowhere; so it is looked for as late as can be.
        if let Some((user, way_out)) = sysfs::user_in_kernel(number) {
            return Err(OpenError::KernelUses { user, way_out });
        }
        let (info, free) = Self::ask(&file, &Sysfs::of(number))?;
        Ok(Self { file, _beside: beside, info, free, reading: Cell::new(Reading::Request) })
    }

    fn ask(file: &File, sysfs: &Sysfs) -> io::Result<(Info, Vec<(usize, usize)>)> {
        const WRITEABLE: u32 = 0x400;
        const BIT_WRITEABLE: u32 = 0x800;
        let (mut user, mut layout) = (InfoUser::default(), EccLayout::default());
        // SAFETY: each request with its struct, which has no pointers.
        let has_layout = unsafe {
            call(file, ioctl::MEMGETINFO, &mut user)?;
            user.oob_bytes > 0 && call(file, ioctl::ECCGETLAYOUT, &mut layout).is_ok()
        };
        let kind = match user.kind {
            1 => Kind::Ram,
            3 => Kind::Nor,
            4 => Kind::Nand,
            8 => Kind::MlcNand,
            other => Kind::Other(other),
        };
        let free: Vec<_> = layout.free.iter().map(|[at, len]| (*at as usize, *len as usize)).collect();
        let free: Vec<_> = free.into_iter().filter(|(_, len)| has_layout && *len > 0).collect();
        let of_layout = if has_layout { layout.free_bytes } else { 0 };
        let info = Info {
            kind,
            is_writable: user.flags & WRITEABLE != 0,
            is_bit_writable: user.flags & BIT_WRITEABLE != 0,
            // The request cuts it to 32 bits.
            size_bytes: sysfs.number("size").filter(|size| *size as u32 == user.size).unwrap_or(user.size.into()),
            erase_bytes: user.erase_bytes,
            write_bytes: user.write_bytes,
            oob_bytes: user.oob_bytes,
            free_oob_bytes: sysfs.number("oobavail").map_or(of_layout, |bytes| bytes as u32).min(user.oob_bytes),
            bitflip_threshold: sysfs.number("bitflip_threshold").map_or(1, |bits| bits as u32).max(1),
            erase_regions: sysfs.number("numeraseregions").map_or(0, |regions| regions as u32),
        };
        Ok((info, free))
    }

    /// Its shape.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Reads by the calls that there are before Linux 6.1, as it does by itself on such a system.
    pub fn read_as_before_linux_6_1(&self) {
        self.reading.set(Reading::File);
    }

    /// Reads from a page on: `data` is whole pages or empty, `oob` the free bytes of their spare areas one behind the other, or
    /// the first of those of one page, or empty. Returns the largest number of bits that the ECC corrected in one of its steps.
    pub fn read(&self, at: u64, data: &mut [u8], oob: &mut [u8]) -> Result<u32, ReadError> {
        if self.reading.get() == Reading::Request {
            match self.read_by_request(at, data, oob) {
                Err(ReadError::Io(error)) if error.raw_os_error() == Some(libc::ENOTTY) => {
                    self.reading.set(Reading::File);
                }
                result => return result,
            }
        }
        self.read_by_file(at, data, oob)
    }

    fn read_by_request(&self, at: u64, data: &mut [u8], oob: &mut [u8]) -> Result<u32, ReadError> {
        let mut request = ReadReq {
            start: at,
            len: data.len() as u64,
            oob_len: oob.len() as u64,
            data: if data.is_empty() { 0 } else { data.as_mut_ptr() as u64 },
            oob: if oob.is_empty() { 0 } else { oob.as_mut_ptr() as u64 },
            mode: AUTO_OOB,
            ..ReadReq::default()
        };
        // SAFETY: both pointers are those of slices of these lengths, or null.
        let result = unsafe { call(&self.file, ioctl::MEMREAD, &mut request) };
        match result.map_err(|error| (error.raw_os_error(), error)) {
            Ok(_) | Err((Some(CORRECTED), _)) => Ok(request.max_bits),
            Err((Some(UNCORRECTABLE), _)) => Err(ReadError::Uncorrectable),
            Err((_, error)) => Err(ReadError::Io(error)),
        }
    }

    /// read(2) returns what is wrong with a page in nothing but the driver's counts.
    fn read_by_file(&self, at: u64, data: &mut [u8], oob: &mut [u8]) -> Result<u32, ReadError> {
        let mut corrected = 0;
        if !data.is_empty() {
            let before = self.stats().unwrap_or_default();
            self.file.read_exact_at(data, at).map_err(ReadError::Io)?;
            let after = self.stats().unwrap_or_default();
            if after.uncorrectable != before.uncorrectable {
                return Err(ReadError::Uncorrectable);
            }
            corrected = after.corrected_bits.wrapping_sub(before.corrected_bits);
        }
        let (write_bytes, free_bytes) = (u64::from(self.info.write_bytes), self.info.free_oob_bytes as usize);
        let mut raw = vec![0xFF; self.info.oob_bytes as usize];
        for (page, part) in (0u64..).zip(oob.chunks_mut(free_bytes.max(1))) {
            let mut request =
                OobBuf64 { start: at + page * write_bytes, length: self.info.oob_bytes, ..OobBuf64::default() };
            request.pointer = raw.as_mut_ptr() as u64;
            // SAFETY: the pointer is that of a buffer of that length.
            unsafe { call(&self.file, ioctl::MEMREADOOB64, &mut request) }.map_err(ReadError::Io)?;
            if !take_free(&self.free, &raw, part) {
                let known: usize = self.free.iter().map(|(_, len)| len).sum();
                let text = format!(
                    "this kernel says of {known} of the {free_bytes} free bytes of a spare area where they are (ECCGETLAYOUT), and not of all; Linux 6.1 and later can read them"
                );
                return Err(ReadError::Io(io::Error::new(io::ErrorKind::Unsupported, text)));
            }
        }
        Ok(corrected)
    }

    /// Reads bytes of flash without pages.
    pub fn read_bytes(&self, at: u64, bytes: &mut [u8]) -> Result<u32, ReadError> {
        self.file.read_exact_at(bytes, at).map(|()| 0).map_err(ReadError::Io)
    }

    /// Programs a page, and of its spare area the first free bytes; both at once.
    pub fn write(&self, at: u64, data: &[u8], oob: &[u8]) -> io::Result<()> {
        let mut request = WriteReq {
            start: at,
            len: data.len() as u64,
            oob_len: oob.len() as u64,
            data: if data.is_empty() { 0 } else { data.as_ptr() as u64 },
            oob: if oob.is_empty() { 0 } else { oob.as_ptr() as u64 },
            mode: AUTO_OOB,
            ..WriteReq::default()
        };
        // SAFETY: both pointers are those of slices of these lengths, or null, and are only read.
        unsafe { call(&self.file, ioctl::MEMWRITE, &mut request) }.map(drop)
    }

    /// Programs bytes of flash without a spare area.
    pub fn write_bytes(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }

    /// Erases the erase block that begins here.
    pub fn erase(&self, at: u64) -> io::Result<()> {
        let mut range = EraseInfo64 { start: at, length: self.info.erase_bytes.into() };
        // SAFETY: the struct has no pointers.
        unsafe { call(&self.file, ioctl::MEMERASE64, &mut range) }.map(drop)
    }

    /// Whether the erase block that begins here is marked bad. Flash that has no such marks has no bad ones.
    pub fn is_bad(&self, at: u64) -> io::Result<bool> {
        let mut at = at as i64;
        // SAFETY: the request reads this number.
        match unsafe { call(&self.file, ioctl::MEMGETBADBLOCK, &mut at) } {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(false),
            result => result.map(|is_bad| is_bad > 0),
        }
    }

    /// Marks the erase block that begins here as bad. The driver may erase it before. [`io::ErrorKind::Unsupported`] where there are no such marks.
    pub fn mark_bad(&self, at: u64) -> io::Result<()> {
        let mut at = at as i64;
        // SAFETY: the request reads this number.
        unsafe { call(&self.file, ioctl::MEMSETBADBLOCK, &mut at) }.map(drop)
    }

    /// What the driver has counted since it was loaded.
    pub fn stats(&self) -> io::Result<Stats> {
        let mut stats = EccStats::default();
        // SAFETY: the struct has no pointers.
        unsafe { call(&self.file, ioctl::ECCGETSTATS, &mut stats) }?;
        let EccStats { corrected, failed, bad, reserved } = stats;
        Ok(Stats { corrected_bits: corrected, uncorrectable: failed, bad, reserved })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_bytes_of_a_spare_area_are_taken_in_order_and_missing_ones_are_noticed() {
        let raw: Vec<u8> = (0..16).collect();
        let mut free = [0; 5];
        assert!(take_free(&[(2, 2), (9, 4)], &raw, &mut free));
        assert_eq!(free, [2, 3, 9, 10, 11]);
        // The kernel lists eight parts, and some drivers none.
        assert!(!take_free(&[(2, 2), (9, 2)], &raw, &mut free));
        assert!(!take_free(&[], &raw, &mut free));
        assert!(!take_free(&[(14, 8)], &raw, &mut free), "a part past the end");
    }
}
