//! Two heaps: one for the library itself, in ordinary memory, and the program's, in memory that is paged to flash.

use dlmalloc::{Allocator, Dlmalloc};
use std::alloc::{GlobalAlloc, Layout};
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Memory mapped from the system, by numbers of calls: the functions page what they map.
struct System;

// SAFETY: ranges come from the kernel, whole and unshared, and go back as they came.
unsafe impl Allocator for System {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new anonymous mapping touches nothing that exists.
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let start = unsafe { libc::syscall(libc::SYS_mmap, null_mut::<u8>(), size, protection, flags, -1, 0) };
        if start == -1 { (null_mut(), 0, 0) } else { (start as *mut u8, size, 0) }
    }
    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        null_mut()
    }
    fn free_part(&self, _: *mut u8, _: usize, _: usize) -> bool {
        false
    }
    fn free(&self, start: *mut u8, size: usize) -> bool {
        // SAFETY: the allocator gives back what it got, and uses it no more.
        unsafe { libc::syscall(libc::SYS_munmap, start, size) == 0 }
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

/// The range of memory that is paged.
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);

/// The thread that serves faults.
static PAGER: AtomicUsize = AtomicUsize::new(0);

/// While this is set, nothing is allocated in the paged range.
static PAUSED: AtomicBool = AtomicBool::new(false);

/// What of the range is handed out: the heap has its start, mappings its end.
static SPACE: Mutex<Space> = Mutex::new(Space { heap_end: 0, mapped_start: 0, free: Vec::new() });

/// From so many bytes on, anonymous mappings of the program are paged.
pub const PAGED_MAPPING_BYTES: usize = 64 << 10;

struct Space {
    heap_end: usize,
    mapped_start: usize,
    /// Parts of what was mapped that are free again, in the order of their addresses.
    free: Vec<Range<usize>>,
}

impl Space {
    fn map(&mut self, bytes: usize) -> Option<usize> {
        if let Some(at) = self.free.iter().position(|part| part.len() >= bytes) {
            let start = self.free[at].start;
            self.free[at].start += bytes;
            if self.free[at].is_empty() {
                self.free.remove(at);
            }
            return Some(start);
        }
        let start = self.mapped_start.checked_sub(bytes).filter(|start| *start >= self.heap_end)?;
        self.mapped_start = start;
        Some(start)
    }

    fn unmap(&mut self, part: Range<usize>) {
        let at = self.free.partition_point(|other| other.start < part.start);
        self.free.insert(at, part);
        if self.free.get(at + 1).is_some_and(|next| next.start <= self.free[at].end) {
            self.free[at].end = self.free[at].end.max(self.free[at + 1].end);
            self.free.remove(at + 1);
        }
        if at > 0 && self.free[at].start <= self.free[at - 1].end {
            self.free[at - 1].end = self.free[at - 1].end.max(self.free[at].end);
            self.free.remove(at);
        }
        if self.free.first().is_some_and(|first| first.start == self.mapped_start) {
            self.mapped_start = self.free.remove(0).end;
        }
    }
}

fn space() -> MutexGuard<'static, Space> {
    SPACE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on the program's heap is in this range, except what the thread `pager` allocates.
pub fn begin(start: usize, bytes: usize, pager: usize) {
    *space() = Space { heap_end: start, mapped_start: start + bytes, free: Vec::new() };
    PAGER.store(pager, Ordering::Relaxed);
    END.store(start + bytes, Ordering::Relaxed);
    START.store(start, Ordering::Release);
}

/// The addresses that are paged; none before the heap begins.
pub fn paged_range() -> Range<usize> {
    let start = START.load(Ordering::Acquire);
    if start == 0 { 0..0 } else { start..END.load(Ordering::Relaxed) }
}

/// Whether the calling thread allocates paged memory.
pub fn is_on() -> bool {
    // SAFETY: asks for the calling thread.
    let is_pager = || unsafe { libc::pthread_self() } as usize == PAGER.load(Ordering::Relaxed);
    START.load(Ordering::Acquire) != 0 && !PAUSED.load(Ordering::Relaxed) && !is_pager()
}

/// Whether an address is in the paged range.
pub fn is_paged(address: usize) -> bool {
    paged_range().contains(&address)
}

/// Bytes of the range that are handed out, or kept for the heap; `None` while another thread changes that.
pub fn used_bytes() -> Option<usize> {
    let space = SPACE.try_lock().ok()?;
    let range = paged_range();
    let free: usize = space.free.iter().map(Range::len).sum();
    Some((space.heap_end - range.start) + (range.end - space.mapped_start) - free)
}

/// Addresses of at least so many bytes of the paged range that are nobody else's and read as zeros.
pub fn map(bytes: usize) -> Option<usize> {
    space().map(bytes.checked_next_multiple_of(margay_pager::PAGE_BYTES)?)
}

/// Takes back whole pages that were mapped, and discarded.
pub fn unmap(part: Range<usize>) {
    space().unmap(part);
}

/// The heaps while the process forks: nobody is in the middle of a change.
pub struct Forking {
    _program: MutexGuard<'static, Dlmalloc<Paged>>,
    _space: MutexGuard<'static, Space>,
    _own: Option<MutexGuard<'static, Dlmalloc<System>>>,
}

impl Forking {
    /// Waits until nobody changes the program's heap, in which nothing is allocated from here on.
    pub fn new() -> Self {
        PAUSED.store(true, Ordering::Relaxed);
        Self { _program: lock(&PROGRAM), _space: space(), _own: None }
    }

    /// Waits until nobody changes the library's heap.
    pub fn stop_own(&mut self) {
        self._own = Some(lock(&OWN));
    }

    /// The library's heap can be used again.
    pub fn go_on_own(&mut self) {
        self._own = None;
    }
}

impl Drop for Forking {
    fn drop(&mut self) {
        PAUSED.store(false, Ordering::Relaxed);
    }
}

/// From now on this thread serves faults: after a fork, that of the parent does not.
pub fn pager_is(pager: usize) {
    PAGER.store(pager, Ordering::Relaxed);
}

/// The start of the paged range, handed out in order. The heap keeps what it got and uses it again.
struct Paged;

// SAFETY: every range is handed out once; all lie in the paged memory, which lives as long as the process.
unsafe impl Allocator for Paged {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let mut space = space();
        let start = space.heap_end;
        match start.checked_add(size).filter(|end| start != 0 && *end <= space.mapped_start) {
            Some(end) => {
                space.heap_end = end;
                (start as *mut u8, size, 0)
            }
            None => (null_mut(), 0, 0),
        }
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

/// Stands before each allocation of the program: its size, its distance from the start of what the heap handed out, and what
/// was handed out in all.
#[repr(C)]
#[derive(Clone, Copy)]
struct Header {
    size: usize,
    offset: u32,
    /// What `offset` and `size` leave of it.
    rest: u32,
}

impl Header {
    const fn plain(size: usize) -> Self {
        Self { size, offset: HEADER as u32, rest: 0 }
    }

    const fn total(self) -> usize {
        self.size + self.offset as usize + self.rest as usize
    }
}

const HEADER: usize = size_of::<Header>();
const ALIGNMENT: usize = 16;

/// `size` bytes at a multiple of `alignment`; null if there is no room.
pub fn allocate(size: usize, alignment: usize, zeroed: bool) -> *mut u8 {
    let alignment = alignment.max(ALIGNMENT);
    let room = if alignment > ALIGNMENT { alignment } else { 0 };
    if alignment > 1 << 31 {
        return null_mut();
    }
    let Some(total) = size.checked_add(HEADER + room).filter(|total| *total < isize::MAX as usize) else {
        return null_mut();
    };
    let paged = is_on();
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
    let offset = start as usize - base as usize;
    let header = Header { size, offset: offset as u32, rest: (HEADER + room - offset) as u32 };
    // SAFETY: base + HEADER + room covers the alignment, so the header lies within what was allocated.
    unsafe { start.cast::<Header>().sub(1).write(header) };
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
    let header = header(start);
    let base = (start as usize - header.offset as usize) as *mut u8;
    let total = header.total();
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
    if is_paged(start as usize) && old.offset == HEADER as u32 && old.rest == 0 {
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
            base.cast::<Header>().write(Header::plain(size));
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
