//! Anonymous memory that the program maps itself: in the paged range if it is large enough, and ordinary readable and
//! writable memory. All else goes to the kernel.

use crate::heap::{self, PAGED_MAPPING_BYTES};
use crate::{MEMORY, give_up_in};
use libc::{c_int, c_void, off_t, size_t};
use margay_pager::{PAGE_BYTES, PagerError};
use std::ops::Range;

const READ_WRITE: c_int = libc::PROT_READ | libc::PROT_WRITE;

fn fails_with(code: c_int) -> *mut c_void {
    // SAFETY: the calling thread's own error number.
    unsafe { *libc::__errno_location() = code };
    libc::MAP_FAILED
}

/// The part of a range of addresses that is paged.
fn paged_part(start: *mut c_void, bytes: size_t) -> Option<Range<usize>> {
    let start = start as usize;
    let paged = heap::paged_range();
    let part = start.max(paged.start)..start.saturating_add(bytes).min(paged.end);
    (!part.is_empty()).then_some(part)
}

/// By number, the whole pages that a range of addresses touches.
fn pages(addresses: &Range<usize>) -> Range<usize> {
    let start = heap::paged_range().start;
    (addresses.start - start) / PAGE_BYTES..(addresses.end - start).div_ceil(PAGE_BYTES)
}

fn with_memory(work: impl FnOnce(&margay_pager::PagedMemory) -> Result<(), PagerError>) {
    if let Some(running) = MEMORY.get()
        && let Err(error) = work(&running.memory)
    {
        give_up_in(running, &error.to_string());
    }
}

/// Their content is of no use any more.
fn discard(part: &Range<usize>) {
    with_memory(|memory| memory.discard(pages(part)));
}

/// From now on the kernel's, with their content.
fn leave(part: &Range<usize>) {
    with_memory(|memory| memory.leave(pages(part)));
}

/// mmap(2).
///
/// # Safety
///
/// As the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    start: *mut c_void,
    bytes: size_t,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    let is_fixed = flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0;
    if is_fixed && let Some(part) = paged_part(start, bytes) {
        // What the program puts over its own memory is the kernel's.
        discard(&part);
        leave(&part);
    }
    let ordinary = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let may_be = ordinary | libc::MAP_NORESERVE | libc::MAP_POPULATE;
    let is_ordinary = flags & ordinary == ordinary && flags & !may_be == 0;
    if is_ordinary && start.is_null() && protection == READ_WRITE && bytes >= PAGED_MAPPING_BYTES && heap::is_on() {
        match heap::map(bytes) {
            Some(start) => return start as *mut c_void,
            // Address space is not memory: who reserves much of it need not use it.
            None if flags & libc::MAP_NORESERVE == 0 => return fails_with(libc::ENOMEM),
            None => {}
        }
    }
    // SAFETY: as the caller promises.
    unsafe { libc::syscall(libc::SYS_mmap, start, bytes, protection, flags, file, offset) as *mut c_void }
}

/// mmap64(3).
///
/// # Safety
///
/// As the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    start: *mut c_void,
    bytes: size_t,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: as the caller promises.
    unsafe { mmap(start, bytes, protection, flags, file, offset) }
}

/// munmap(2).
///
/// # Safety
///
/// As the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(start: *mut c_void, bytes: size_t) -> c_int {
    let Some(part) = paged_part(start, bytes) else {
        // SAFETY: as the caller promises.
        return unsafe { libc::syscall(libc::SYS_munmap, start, bytes) as c_int };
    };
    let (first, end) = (start as usize, start as usize + bytes);
    for rest in [first..part.start, part.end..end] {
        if !rest.is_empty() {
            // SAFETY: as the caller promises; nothing of it is paged.
            unsafe { libc::syscall(libc::SYS_munmap, rest.start, rest.len()) };
        }
    }
    let part = part.start..part.end.next_multiple_of(PAGE_BYTES);
    discard(&part);
    heap::unmap(part);
    0
}

/// mremap(2).
///
/// # Safety
///
/// As the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_bytes: size_t,
    new_bytes: size_t,
    flags: c_int,
    fixed: *mut c_void,
) -> *mut c_void {
    if paged_part(old, old_bytes.max(1)).is_none() {
        // SAFETY: as the caller promises.
        return unsafe { libc::syscall(libc::SYS_mremap, old, old_bytes, new_bytes, flags, fixed) as *mut c_void };
    }
    let rounded = |bytes: size_t| bytes.next_multiple_of(PAGE_BYTES);
    let (old_end, new_end) = (rounded(old_bytes), rounded(new_bytes));
    if old_bytes == 0 || new_bytes == 0 {
        return fails_with(libc::EINVAL);
    }
    if flags & !libc::MREMAP_MAYMOVE == 0 && new_end <= old_end {
        if new_end < old_end {
            // SAFETY: the end of a mapping of the program's.
            unsafe { munmap((old as usize + new_end) as *mut c_void, old_end - new_end) };
        }
        return old;
    }
    if flags & libc::MREMAP_MAYMOVE == 0 {
        return fails_with(libc::ENOMEM);
    }
    let ordinary = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let new = if flags & libc::MREMAP_FIXED != 0 {
        // SAFETY: the program says that what is there can go.
        unsafe { mmap(fixed, new_bytes, READ_WRITE, ordinary | libc::MAP_FIXED, -1, 0) }
    } else {
        heap::map(new_bytes).map_or_else(|| fails_with(libc::ENOMEM), |start| start as *mut c_void)
    };
    if new != libc::MAP_FAILED {
        // SAFETY: both mappings have as many bytes, and the old one goes with all that the program knows of it.
        unsafe {
            std::ptr::copy_nonoverlapping(old.cast::<u8>(), new.cast::<u8>(), old_bytes.min(new_bytes));
            if flags & libc::MREMAP_DONTUNMAP == 0 {
                munmap(old, old_bytes);
            } else {
                discard(&(old as usize..old as usize + old_end));
            }
        }
    }
    new
}

/// mprotect(2).
///
/// # Safety
///
/// As the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(start: *mut c_void, bytes: size_t, protection: c_int) -> c_int {
    if protection != READ_WRITE
        && let Some(part) = paged_part(start, bytes)
    {
        // The pager could not read what it is to move.
        leave(&part);
    }
    // SAFETY: as the caller promises.
    unsafe { libc::syscall(libc::SYS_mprotect, start, bytes, protection) as c_int }
}

/// madvise(2).
///
/// # Safety
///
/// As the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(start: *mut c_void, bytes: size_t, advice: c_int) -> c_int {
    if let Some(part) = paged_part(start, bytes) {
        match advice {
            libc::MADV_DONTNEED => {
                discard(&part);
                return 0;
            }
            libc::MADV_DONTFORK | libc::MADV_DOFORK | libc::MADV_WIPEONFORK | libc::MADV_KEEPONFORK => leave(&part),
            // Advice that the pager does not take.
            _ => return 0,
        }
    }
    // SAFETY: as the caller promises.
    unsafe { libc::syscall(libc::SYS_madvise, start, bytes, advice) as c_int }
}

/// mlock(2). What is locked is not to be written anywhere, so it leaves the paged memory.
///
/// # Safety
///
/// As the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock(start: *const c_void, bytes: size_t) -> c_int {
    if let Some(part) = paged_part(start.cast_mut(), bytes) {
        leave(&part);
    }
    // SAFETY: as the caller promises.
    unsafe { libc::syscall(libc::SYS_mlock, start, bytes) as c_int }
}

/// mlock2(2), as [`mlock`].
///
/// # Safety
///
/// As the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock2(start: *const c_void, bytes: size_t, flags: c_int) -> c_int {
    if let Some(part) = paged_part(start.cast_mut(), bytes) {
        leave(&part);
    }
    // SAFETY: as the caller promises.
    unsafe { libc::syscall(libc::SYS_mlock2, start, bytes, flags) as c_int }
}

/// mlockall(2) fails: nothing of a heap on flash could stay there.
#[unsafe(no_mangle)]
pub extern "C" fn mlockall(flags: c_int) -> c_int {
    if heap::is_on() {
        crate::report::say(
            "it locks all of its memory (mlockall), which a heap on flash cannot be: the call fails; run it without `margay vm run` if it must be locked",
        );
        // SAFETY: the calling thread's own error number.
        unsafe { *libc::__errno_location() = libc::EPERM };
        return -1;
    }
    // SAFETY: as the call.
    unsafe { libc::syscall(libc::SYS_mlockall, flags) as c_int }
}
