//! The allocator: a list of free pieces in a static array, and how much of it was ever in use.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};
use linked_list_allocator::Heap;

const HEAP_BYTES: usize = 3 << 20;

#[repr(align(16))]
struct Arena(UnsafeCell<[u8; HEAP_BYTES]>);
struct Allocator(UnsafeCell<Heap>);

// SAFETY: the programs have one thread, and nothing is allocated or freed in an interrupt.
unsafe impl Sync for Arena {}
// SAFETY: likewise.
unsafe impl Sync for Allocator {}

static ARENA: Arena = Arena(UnsafeCell::new([0; HEAP_BYTES]));
#[global_allocator]
static ALLOCATOR: Allocator = Allocator(UnsafeCell::new(Heap::empty()));
static MAX_BYTES: AtomicUsize = AtomicUsize::new(0);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
/// In use when [`start_counting`] was called.
static NOT_COUNTED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Gives the allocator its array. To be called once, before anything is allocated.
pub fn init() {
    // SAFETY: nobody else refers to the array or, during this call, to the heap.
    unsafe { (*ALLOCATOR.0.get()).init(ARENA.0.get().cast(), HEAP_BYTES) };
}

fn in_use_bytes() -> usize {
    // SAFETY: there is one thread.
    unsafe { (*ALLOCATOR.0.get()).used() }
}

/// What is in use now is not counted.
pub fn start_counting() {
    NOT_COUNTED_BYTES.store(in_use_bytes(), Ordering::Relaxed);
    MAX_BYTES.store(in_use_bytes(), Ordering::Relaxed);
}

/// The most bytes that were in use since the last call of this.
pub fn max_bytes() -> usize {
    MAX_BYTES.swap(in_use_bytes(), Ordering::Relaxed).saturating_sub(NOT_COUNTED_BYTES.load(Ordering::Relaxed))
}

/// How many pieces were ever asked for.
pub fn allocations() -> usize {
    ALLOCATIONS.load(Ordering::Relaxed)
}

// SAFETY: the heap gives out pieces of the array that do not overlap, of the layout asked for.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: there is one thread.
        let heap = unsafe { &mut *self.0.get() };
        let piece = heap.allocate_first_fit(layout).map_or(ptr::null_mut(), |piece| piece.as_ptr());
        MAX_BYTES.fetch_max(heap.used(), Ordering::Relaxed);
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        piece
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        // SAFETY: there is one thread, and the caller got the piece from `alloc` with this layout.
        unsafe { (*self.0.get()).deallocate(ptr::NonNull::new_unchecked(piece), layout) }
    }
}
