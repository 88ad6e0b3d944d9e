//! Two heaps: one for the library itself, in ordinary memory, and the program's, in memory that is paged to flash.

use dlmalloc::{Allocator, Dlmalloc};
use std::alloc::{GlobalAlloc, Layout};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Memory mapped from the system.
struct System;

// SAFETY: ranges come from the kernel, whole and unshared, and go back as they came.
unsafe impl Allocator for System {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new anonymous mapping touches nothing that exists.
        let start = unsafe { libc::mmap(null_mut(), size, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
        if start == libc::MAP_FAILED { (null_mut(), 0, 0) } else { (start.cast(), size, 0) }
    }
    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        null_mut()
    }
    fn free_part(&self, _: *mut u8, _: usize, _: usize) -> bool {
        false
    }
    fn free(&self, start: *mut u8, size: usize) -> bool {
        // SAFETY: the allocator gives back what it got, and uses it no more.
        unsafe { libc::munmap(start.cast(), size) == 0 }
    }
    fn can_release_part(&self, _: u32) -> bool {
        false
    }
    fn allocates_zeros(&self) -> bool {
        true
    }
    fn page_size(&self) -> usize {
        4096
    }
}

/// The range of memory that is paged, and how many bytes of it were handed out.
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
static USED: AtomicUsize = AtomicUsize::new(0);

/// The thread that serves faults.
static PAGER: AtomicUsize = AtomicUsize::new(0);

/// From now on the program's heap is in this range, except what the thread `pager` allocates.
pub fn begin(start: usize, bytes: usize, pager: usize) {
    PAGER.store(pager, Ordering::Relaxed);
    END.store(start + bytes, Ordering::Relaxed);
    START.store(start, Ordering::Release);
}

/// Whether an address is in the paged range.
pub fn is_paged(address: usize) -> bool {
    (START.load(Ordering::Acquire)..END.load(Ordering::Relaxed)).contains(&address)
}

/// Bytes of the range that were ever handed out.
pub fn used_bytes() -> usize {
    USED.load(Ordering::Relaxed)
}

/// The paged range, handed out from its start on. The heap keeps what it got and uses it again.
struct Paged;

// SAFETY: every range is handed out once; all lie in the paged memory, which lives as long as the process.
unsafe impl Allocator for Paged {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let (start, end) = (START.load(Ordering::Acquire), END.load(Ordering::Relaxed));
        let taken = USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(size).filter(|used| start != 0 && *used <= end - start)
        });
        taken.map_or((null_mut(), 0, 0), |used| ((start + used) as *mut u8, size, 0))
    }
    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        null_mut()
    }
    fn free_part(&self, _: *mut u8, _: usize, _: usize) -> bool {
        false
    }
    fn free(&self, _: *mut u8, _: usize) -> bool {
        false
    }
    fn can_release_part(&self, _: u32) -> bool {
        false
    }
    fn allocates_zeros(&self) -> bool {
        true
    }
    fn page_size(&self) -> usize {
        4096
    }
}

/// The heap of this library, and of the program before its own begins.
static OWN: Mutex<Dlmalloc<System>> = Mutex::new(Dlmalloc::new_with_allocator(System));
/// The heap of the program.
static PROGRAM: Mutex<Dlmalloc<Paged>> = Mutex::new(Dlmalloc::new_with_allocator(Paged));

fn lock<A>(heap: &Mutex<Dlmalloc<A>>) -> MutexGuard<'_, Dlmalloc<A>> {
    heap.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The heap of the Rust code of this library: the pager's thread must not wait for a page of its own.
pub struct Own;

// SAFETY: dlmalloc keeps the contract, and the lock lets one thread use it at a time.
unsafe impl GlobalAlloc for Own {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: size and alignment are those of a layout.
        unsafe { lock(&OWN).malloc(layout.size(), layout.align()) }
    }
    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: it came from `alloc` with the same layout.
        unsafe { lock(&OWN).free(start, layout.size(), layout.align()) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for `alloc`.
        unsafe { lock(&OWN).calloc(layout.size(), layout.align()) }
    }
    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: it came from `alloc` with this layout.
        unsafe { lock(&OWN).realloc(start, layout.size(), layout.align(), size) }
    }
}

/// Stands before each allocation of the program: its size, and its distance from the start of what the heap handed out.
#[repr(C)]
#[derive(Clone, Copy)]
struct Header {
    size: usize,
    offset: usize,
}

const HEADER: usize = size_of::<Header>();
const ALIGNMENT: usize = 16;

/// `size` bytes at a multiple of `alignment`; null if there is no room.
pub fn allocate(size: usize, alignment: usize, zeroed: bool) -> *mut u8 {
    let alignment = alignment.max(ALIGNMENT);
    let room = if alignment > ALIGNMENT { alignment } else { 0 };
    let Some(total) = size.checked_add(HEADER + room).filter(|total| *total < isize::MAX as usize) else {
        return null_mut();
    };
    // SAFETY: asks for the calling thread.
    let is_pager = || unsafe { libc::pthread_self() } as usize == PAGER.load(Ordering::Relaxed);
    let paged = START.load(Ordering::Acquire) != 0 && !is_pager();
    // SAFETY: any size with an alignment that is a power of two.
    let base = unsafe {
        match (paged, zeroed) {
            (true, false) => lock(&PROGRAM).malloc(total, ALIGNMENT),
            (true, true) => lock(&PROGRAM).calloc(total, ALIGNMENT),
            (false, false) => lock(&OWN).malloc(total, ALIGNMENT),
            (false, true) => lock(&OWN).calloc(total, ALIGNMENT),
        }
    };
    if base.is_null() {
        return base;
    }
    let start = (base as usize + HEADER).next_multiple_of(alignment) as *mut u8;
    // SAFETY: base + HEADER + room covers the alignment, so the header lies within what was allocated.
    unsafe { start.cast::<Header>().sub(1).write(Header { size, offset: start as usize - base as usize }) };
    start
}

fn header(start: *mut u8) -> Header {
    // SAFETY: an allocation of the program has its header before it.
    unsafe { start.cast::<Header>().sub(1).read() }
}

/// Size of an allocation in bytes.
pub fn size(start: *mut u8) -> usize {
    header(start).size
}

/// Frees an allocation.
pub fn release(start: *mut u8) {
    let Header { size, offset } = header(start);
    let base = (start as usize - offset) as *mut u8;
    let total = size + offset;
    // SAFETY: `base` came from the heap that its address belongs to.
    unsafe {
        if is_paged(base as usize) {
            lock(&PROGRAM).free(base, total, ALIGNMENT);
        } else {
            lock(&OWN).free(base, total, ALIGNMENT);
        }
    }
}

/// Moves an allocation to one of another size. Null, and the old one stays, if there is no room.
pub fn resize(start: *mut u8, size: usize) -> *mut u8 {
    let old = header(start);
    if is_paged(start as usize) && old.offset == HEADER {
        let Some(total) = size.checked_add(HEADER).filter(|total| *total < isize::MAX as usize) else {
            return null_mut();
        };
        // SAFETY: the allocation has no room before its header, so the heap handed out that address.
        let base = unsafe { lock(&PROGRAM).realloc(start.sub(HEADER), old.size + HEADER, ALIGNMENT, total) };
        if base.is_null() {
            return base;
        }
        // SAFETY: there is room for a header and `size` bytes.
        unsafe {
            base.cast::<Header>().write(Header { size, offset: HEADER });
            return base.add(HEADER);
        }
    }
    let new = allocate(size, ALIGNMENT, false);
    if !new.is_null() {
        // SAFETY: both allocations have at least the smaller size and do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(start, new, old.size.min(size)) };
        release(start);
    }
    new
}
