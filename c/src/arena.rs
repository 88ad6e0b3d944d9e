//! Where everything is allocated: the memory that the caller hands over. The allocator of the library is that of the disk whose
//! function is running.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use linked_list_allocator::Heap;

/// The head of the memory of a disk.
pub struct Arena {
    heap: Heap,
    start: usize,
    /// Pieces that were ever asked for.
    pub allocations: u32,
    /// The end of the last piece of all that were ever given out, from the start of the memory.
    pub max_bytes: usize,
}

static IS_RUNNING: AtomicBool = AtomicBool::new(false);
static CURRENT: AtomicPtr<Arena> = AtomicPtr::new(ptr::null_mut());

/// A function of the library is running, and allocates from one arena.
pub struct Running;

impl Running {
    /// `None` if another function is running: it was called by one of its own callbacks, by an interrupt or another thread.
    pub fn begin() -> Option<Self> {
        // One that is made and dropped would end the function that is running.
        if IS_RUNNING.swap(true, Ordering::Acquire) { None } else { Some(Self) }
    }

    /// # Safety
    /// `arena` points to an arena, which nobody else refers to until this is dropped.
    pub unsafe fn allocate_from(&self, arena: *mut Arena) {
        CURRENT.store(arena, Ordering::Relaxed);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        CURRENT.store(ptr::null_mut(), Ordering::Relaxed);
        IS_RUNNING.store(false, Ordering::Release);
    }
}

impl Arena {
    /// An arena of `bytes` bytes at `at`, which belong to a memory that begins at `start`.
    ///
    /// # Safety
    /// The bytes are the caller's for as long as the arena is used.
    pub unsafe fn new(start: usize, at: *mut u8, bytes: usize) -> Self {
        let mut heap = Heap::empty();
        // SAFETY: they are the caller's.
        unsafe { heap.init(at, bytes) };
        Self { heap, start, allocations: 0, max_bytes: 0 }
    }

    /// Bytes in use.
    pub fn in_use_bytes(&self) -> usize {
        self.heap.used()
    }
}

struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

// SAFETY: the heap gives out pieces of its memory that do not overlap, of the layout asked for. One function runs at a time.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: whoever set it vouches for it.
        let Some(arena) = (unsafe { CURRENT.load(Ordering::Relaxed).as_mut() }) else { return ptr::null_mut() };
        arena.allocations = arena.allocations.wrapping_add(1);
        let Ok(piece) = arena.heap.allocate_first_fit(layout) else { return ptr::null_mut() };
        arena.max_bytes = arena.max_bytes.max(piece.as_ptr() as usize + layout.size() - arena.start);
        piece.as_ptr()
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        // SAFETY: as above; the caller got the piece from `alloc` with this layout, and so it is not null.
        unsafe {
            if let Some(arena) = CURRENT.load(Ordering::Relaxed).as_mut() {
                arena.heap.deallocate(NonNull::new_unchecked(piece), layout);
            }
        }
    }
}
