//! A disk on raw flash for programs in C. include/margay.h is made of this crate by cbindgen; scripts/c-library.sh builds and
//! tests both.
#![no_std]
#![allow(non_camel_case_types)]
extern crate alloc;

mod arena;
mod flash;

use arena::{Arena, Running};
use core::ffi::{c_char, c_void};
use core::mem::MaybeUninit;
use core::panic::PanicInfo;
use core::{ptr, slice};
use flash::{Chip, geometry_of, margay_chip, margay_geometry};
use margay_flash::FlashError;
use margay_format::SuperblockError;
use margay_ftl::{FtlError, MountError};
use margay_log::LogError;
use margay_micro::{DiskError, SmallDisk, max_pages, memory_bytes};

/// What the functions return. `margay_text` has a sentence for each.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum margay_status {
    /// It was done.
    MARGAY_OK = 0,
    /// A pointer is null, a length is not that of a page, or the chip has a shape that cannot be.
    MARGAY_BAD_ARGUMENT = 1,
    /// The memory is smaller than `margay_memory_bytes` says.
    MARGAY_TOO_LITTLE_MEMORY = 2,
    /// Another function of the library is running.
    MARGAY_BUSY = 3,
    /// There is no disk on the chip.
    MARGAY_NOT_FORMATTED = 4,
    /// The chip holds something of margay that is not a disk.
    MARGAY_NOT_A_DISK = 5,
    /// The chip cannot export so many pages: `margay_max_pages` says how many.
    MARGAY_TOO_MANY_PAGES = 6,
    /// The page is past the end of the disk.
    MARGAY_PAST_END = 7,
    /// The page was written, and cannot be read any more.
    MARGAY_UNREADABLE = 8,
    /// A function of the chip returned an error. What was asked for may be done or not.
    MARGAY_CHIP_ERRED = 9,
    /// Too many segments have failed: the disk can only be read.
    MARGAY_WORN_OUT = 10,
    /// There is no room to write, although the disk is not worn out: the last writes met too many errors of the chip.
    MARGAY_NO_ROOM = 11,
    /// Writing has stopped after errors of the chip: mount again.
    MARGAY_STOPPED = 12,
    /// The disk on the chip has another shape, or a later version of the library formatted it: this one cannot use it, or can
    /// only read it.
    MARGAY_OTHER_FORMAT = 13,
}

use margay_status::*;

/// What a disk is and has done since it was formatted or mounted.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct margay_stats {
    /// Pages of the disk.
    pub exported_pages: u32,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages that were written.
    pub host_writes: u64,
    /// Pages that cleaning copied.
    pub copies: u64,
    /// Pages of the disk's own.
    pub metadata_pages: u64,
    /// Segments that were erased.
    pub erases: u64,
    /// Segments that are used no more.
    pub retired_segments: u32,
    /// Reads of the chip that the mount took.
    pub mount_reads: u32,
    /// Whether the mount found a checkpoint of a clean stop, and so did not look into every segment.
    pub from_checkpoint: bool,
    /// Times that anything was allocated since the disk was formatted or mounted: 0 until it is stopped.
    pub allocations: u32,
    /// Bytes of the memory in use.
    pub memory_in_use_bytes: u64,
    /// Maximum of bytes of the memory that were ever needed, counted from its start.
    pub memory_max_bytes: u64,
}

/// A disk. It lies at the start of the memory that was handed over for it.
pub struct margay_disk {
    arena: Arena,
    disk: MaybeUninit<SmallDisk<Chip>>,
    allocations_at_start: u32,
}

/// What all that is not of the heap takes, its alignment included.
const HEAD_BYTES: u64 = size_of::<margay_disk>() as u64 + 64;

/// A status as the number that C sees.
type Status = i32;

fn status(error: &DiskError) -> margay_status {
    match error {
        DiskError::NotFormatted(SuperblockError::NotMargay | SuperblockError::Damaged) => MARGAY_NOT_FORMATTED,
        DiskError::NotFormatted(_) | DiskError::Superblock(_) | DiskError::ReadOnly => MARGAY_OTHER_FORMAT,
        DiskError::Layout(_) | DiskError::PastEnd { .. } => MARGAY_BAD_ARGUMENT,
        DiskError::NotADisk => MARGAY_NOT_A_DISK,
        DiskError::Size { .. } => MARGAY_TOO_MANY_PAGES,
        DiskError::Mount(MountError::Scan(_)) => MARGAY_OTHER_FORMAT,
        DiskError::Mount(MountError::Ftl(error)) | DiskError::Disk(error) => match error {
            FtlError::OutOfRange { .. } => MARGAY_PAST_END,
            FtlError::WornOut { .. } => MARGAY_WORN_OUT,
            FtlError::Log(LogError::Config(_)) => MARGAY_BAD_ARGUMENT,
            FtlError::Log(LogError::NoSpace { .. }) => MARGAY_NO_ROOM,
            FtlError::Log(LogError::Flash(FlashError::Stopped)) => MARGAY_STOPPED,
            FtlError::Log(LogError::OwnerUnknown { .. } | LogError::MapDamaged { .. }) => MARGAY_UNREADABLE,
            FtlError::Log(LogError::Flash(error)) if error.is_unreadable() => MARGAY_UNREADABLE,
            FtlError::Log(LogError::Flash(FlashError::BufferSize { .. })) => MARGAY_BAD_ARGUMENT,
            FtlError::Log(LogError::Flash(_)) => MARGAY_CHIP_ERRED,
        },
    }
}

/// A sentence that says what a status means, which lasts for ever. Never null.
#[unsafe(no_mangle)]
pub extern "C" fn margay_text(status: i32) -> *const c_char {
    const TEXTS: [&core::ffi::CStr; 14] = [
        c"done",
        c"a pointer is null, a length is not that of a page, or the chip has a shape that cannot be",
        c"the memory is too small: margay_memory_bytes says how much the chip needs",
        c"another function of margay is running: it was called by a callback, an interrupt or another thread",
        c"there is no disk on the chip: format it",
        c"the chip holds a file system or a paging store, not a disk: format it",
        c"the chip cannot export so many pages, or none: margay_max_pages says how many",
        c"the page is past the end of the disk",
        c"the page was written and cannot be read any more",
        c"a function of the chip returned an error: it may succeed the next time",
        c"too many segments have failed: the disk can only be read",
        c"there is no room to write after errors of the chip: stop and mount again",
        c"writing has stopped after errors of the chip: mount again",
        c"the disk on the chip has another shape, or a later version of margay formatted it: this one cannot use or not write it",
    ];
    usize::try_from(status).ok().and_then(|at| TEXTS.get(at)).unwrap_or(&c"no status of margay").as_ptr()
}

/// Bytes of memory that a disk on a chip of this shape needs, however many pages it exports; 0 if no disk can be on it.
/// # Safety
/// `geometry` is null or points to a geometry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn margay_memory_bytes(geometry: *const margay_geometry) -> u64 {
    // SAFETY: the caller vouches for it.
    let Some(geometry) = (unsafe { geometry.as_ref() }).and_then(geometry_of) else { return 0 };
    match max_pages(&geometry) {
        Ok(1..) => HEAD_BYTES + memory_bytes(&geometry),
        _ => 0,
    }
}

/// Maximum of pages that a disk on a chip of this shape can export; 0 if no disk can be on it. The fewer pages a disk exports,
/// the less it copies: four fifths of the pages of the chip are a good choice.
/// # Safety
/// `geometry` is null or points to a geometry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn margay_max_pages(geometry: *const margay_geometry) -> u32 {
    // SAFETY: the caller vouches for it.
    let geometry = (unsafe { geometry.as_ref() }).and_then(geometry_of);
    geometry.and_then(|geometry| max_pages(&geometry).ok()).unwrap_or(0)
}

/// Makes a disk in the memory by `make`, and a pointer to it.
///
/// # Safety
/// As [`margay_format`].
unsafe fn start(
    disk: *mut *mut margay_disk,
    memory: *mut c_void,
    memory_len: usize,
    chip: *const margay_chip,
    make: impl FnOnce(Chip) -> Result<SmallDisk<Chip>, DiskError>,
) -> Status {
    // SAFETY: the caller vouches for it.
    let (Some(disk), Some(chip)) = (unsafe { (disk.as_mut(), chip.as_ref()) }) else {
        return MARGAY_BAD_ARGUMENT as Status;
    };
    *disk = ptr::null_mut();
    // SAFETY: likewise.
    let needed = unsafe { margay_memory_bytes(&chip.geometry) };
    // SAFETY: likewise.
    let Some(chip) = (unsafe { Chip::new(chip) }).filter(|_| needed > 0 && !memory.is_null()) else {
        return MARGAY_BAD_ARGUMENT as Status;
    };
    if (memory_len as u64) < needed {
        return MARGAY_TOO_LITTLE_MEMORY as Status;
    }
    let Some(running) = Running::begin() else { return MARGAY_BUSY as Status };
    let memory = memory.cast::<u8>();
    let at = memory.align_offset(align_of::<margay_disk>());
    let head = at + size_of::<margay_disk>();
    // SAFETY: the memory is the caller's, large enough for the head by the check above, and aligned here.
    let made = unsafe {
        let place = memory.add(at).cast::<margay_disk>();
        let arena = Arena::new(memory as usize, memory.add(head), memory_len - head);
        place.write(margay_disk { arena, disk: MaybeUninit::uninit(), allocations_at_start: 0 });
        running.allocate_from(&raw mut (*place).arena);
        match make(chip) {
            Ok(made) => {
                (*place).disk.write(made);
                (*place).allocations_at_start = (*place).arena.allocations;
                Ok(place)
            }
            Err(error) => Err(status(&error)),
        }
    };
    match made {
        Ok(made) => {
            *disk = made;
            MARGAY_OK as Status
        }
        Err(status) => status as Status,
    }
}

/// Does something with a disk.
///
/// # Safety
/// `disk` is null, or points to a disk that was not stopped.
unsafe fn with(disk: *mut margay_disk, work: impl FnOnce(&mut SmallDisk<Chip>) -> Result<(), margay_status>) -> Status {
    if disk.is_null() {
        return MARGAY_BAD_ARGUMENT as Status;
    }
    let Some(running) = Running::begin() else { return MARGAY_BUSY as Status };
    // SAFETY: it was made by `start`, nobody else refers to it while a function runs, and the arena is no part of the disk.
    let done = unsafe {
        running.allocate_from(&raw mut (*disk).arena);
        work((*disk).disk.assume_init_mut())
    };
    done.err().unwrap_or(MARGAY_OK) as Status
}

/// Formats a chip as a disk of `exported_pages` pages: all that is on it is lost. `*disk` points into the memory, which is the
/// disk's until it is stopped, and null after an error. `uuid`: 16 bytes that tell this disk from others.
/// # Safety
/// The pointers are null or point to what they say; the memory has `memory_len` bytes, of any alignment, and is used by
/// nobody else until the disk is stopped or given up; the functions of the chip can be called until then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn margay_format(
    disk: *mut *mut margay_disk,
    memory: *mut c_void,
    memory_len: usize,
    chip: *const margay_chip,
    exported_pages: u32,
    uuid: *const u8,
) -> i32 {
    if uuid.is_null() {
        return MARGAY_BAD_ARGUMENT as Status;
    }
    let mut bytes = [0; 16];
    // SAFETY: the caller vouches for it.
    unsafe {
        bytes.copy_from_slice(slice::from_raw_parts(uuid, 16));
        start(disk, memory, memory_len, chip, |chip| SmallDisk::format(chip, exported_pages, bytes))
    }
}

/// Mounts a chip that was formatted before, here or on a host: after a clean stop from its checkpoint, after a power cut by
/// looking into every segment. The rest is as with `margay_format`.
/// # Safety
/// As `margay_format`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn margay_mount(
    disk: *mut *mut margay_disk,
    memory: *mut c_void,
    memory_len: usize,
    chip: *const margay_chip,
) -> i32 {
    // SAFETY: the caller vouches for it.
    unsafe { start(disk, memory, memory_len, chip, SmallDisk::mount) }
}

/// Reads a page into `bytes`; `len` is that of a page. `*is_written`, unless it is null, says whether the page was written
/// and not trimmed since; one that was not reads as zeros.
/// # Safety
/// `disk` is null or points to a disk that was not stopped; the other pointers are null or point to what they say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn margay_read(
    disk: *mut margay_disk,
    page: u32,
    bytes: *mut u8,
    len: usize,
    is_written: *mut bool,
) -> i32 {
    let read = |small: &mut SmallDisk<Chip>| {
        if bytes.is_null() || len != small.geometry().page_bytes() as usize {
            return Err(MARGAY_BAD_ARGUMENT);
        }
        // SAFETY: the caller vouches for it.
        let bytes = unsafe { slice::from_raw_parts_mut(bytes, len) };
        let found = small.read(page, bytes).map_err(|error| status(&error))?;
        if !found {
            bytes.fill(0);
        }
        // SAFETY: likewise.
        if let Some(is_written) = unsafe { is_written.as_mut() } {
            *is_written = found;
        }
        Ok(())
    };
    // SAFETY: likewise.
    unsafe { with(disk, read) }
}

/// Writes a page; `len` is that of a page. It survives a power cut as soon as this has returned.
/// # Safety
/// As `margay_read`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn margay_write(disk: *mut margay_disk, page: u32, bytes: *const u8, len: usize) -> i32 {
    let write = |small: &mut SmallDisk<Chip>| {
        if bytes.is_null() || len != small.geometry().page_bytes() as usize {
            return Err(MARGAY_BAD_ARGUMENT);
        }
        // SAFETY: the caller vouches for it.
        let bytes = unsafe { slice::from_raw_parts(bytes, len) };
        small.write(page, bytes).map_err(|error| status(&error))
    };
    // SAFETY: likewise.
    unsafe { with(disk, write) }
}

/// Forgets a page, so that cleaning need not copy it. It survives a power cut from the next flush on.
/// # Safety
/// `disk` is null or points to a disk that was not stopped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn margay_trim(disk: *mut margay_disk, page: u32) -> i32 {
    // SAFETY: the caller vouches for it.
    unsafe { with(disk, |small| small.trim(page).map_err(|error| status(&error))) }
}

/// Returns when all that was written and trimmed survives a power cut.
/// # Safety
/// As `margay_trim`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn margay_flush(disk: *mut margay_disk) -> i32 {
    // SAFETY: the caller vouches for it.
    unsafe { with(disk, |small| small.flush().map_err(|error| status(&error))) }
}

/// Cleans ahead, programming about `budget_pages` pages. `*more`, unless it is null, says whether there is more to do.
/// # Safety
/// As `margay_read`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn margay_idle(disk: *mut margay_disk, budget_pages: u32, more: *mut bool) -> i32 {
    let idle = |small: &mut SmallDisk<Chip>| {
        let has_more = small.idle(budget_pages).map_err(|error| status(&error))?;
        // SAFETY: the caller vouches for it.
        if let Some(more) = unsafe { more.as_mut() } {
            *more = has_more;
        }
        Ok(())
    };
    // SAFETY: likewise.
    unsafe { with(disk, idle) }
}

/// Stops a disk, with a checkpoint if there is room for one, so that the next mount is quick. The memory is the caller's again,
/// after an error, too. A disk that is not stopped may be given up at any time, as by a power cut.
/// # Safety
/// As `margay_trim`; the disk must not be used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn margay_stop(disk: *mut margay_disk) -> i32 {
    // SAFETY: the caller vouches for it.
    unsafe { with(disk, |small| small.end().map(drop).map_err(|error| status(&error))) }
}

/// What a disk is and has done.
/// # Safety
/// As `margay_read`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn margay_get_stats(disk: *mut margay_disk, stats: *mut margay_stats) -> i32 {
    if disk.is_null() || stats.is_null() {
        return MARGAY_BAD_ARGUMENT as Status;
    }
    let mut found = margay_stats::default();
    // SAFETY: the caller vouches for it.
    let done = unsafe {
        with(disk, |small| {
            let (counters, report) = (small.counters(), small.mount_report());
            found.exported_pages = small.exported_pages();
            found.page_bytes = small.geometry().page_bytes();
            found.host_writes = counters.host_writes;
            found.copies = counters.copies;
            found.metadata_pages = counters.metadata_pages;
            found.erases = counters.erases;
            found.retired_segments = small.ftl().retired_segments().len() as u32;
            found.mount_reads = report.reads;
            found.from_checkpoint = report.from_checkpoint;
            Ok(())
        })
    };
    if done == MARGAY_OK as Status {
        // SAFETY: likewise; no function is running any more.
        unsafe {
            let arena = &raw const (*disk).arena;
            found.allocations = (*arena).allocations.wrapping_sub((*disk).allocations_at_start);
            found.memory_in_use_bytes = (HEAD_BYTES as usize + (*arena).in_use_bytes()) as u64;
            found.memory_max_bytes = (*arena).max_bytes as u64;
            *stats = found;
        }
    }
    done
}

unsafe extern "C" {
    fn abort() -> !;
}

/// Nothing unwinds into C: what can only be a mistake of this library ends the program, as a power cut would.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    // SAFETY: it has no conditions.
    unsafe { abort() }
}

/// `core` and `alloc` were compiled to unwind and name it on hosts; nothing here unwinds.
#[cfg(not(target_os = "none"))]
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
