//! The pages of the LRU region: taken out of the address space, kept in a buffer.

use crate::uffd::Uffd;
use crate::{PAGE_BYTES, PagerError};
use margay_flash::Lpn;
use margay_vm::Frames;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

const NONE: u32 = u32::MAX;
/// Maximum number of slots that stay in RAM although they hold nothing.
const MAX_SPARE: usize = 64;

/// madvise(2), by number: `margay-preload` takes the place of the function, for the program.
///
/// # Safety
///
/// As the call.
unsafe fn advise(start: *mut u8, bytes: usize, advice: i32) -> i64 {
    // SAFETY: as the caller promises.
    unsafe { libc::syscall(libc::SYS_madvise, start, bytes, advice) }
}

/// mmap(2) of anonymous memory, by number for the same reason. Null if it fails.
///
/// # Safety
///
/// As the call.
unsafe fn map(start: *mut u8, bytes: usize, protection: i32, flags: i32) -> *mut u8 {
    // SAFETY: as the caller promises.
    let mapped = unsafe { libc::syscall(libc::SYS_mmap, start, bytes, protection, flags, -1, 0) };
    if mapped == -1 { std::ptr::null_mut() } else { mapped as *mut u8 }
}

/// Anonymous memory of the process.
pub(crate) struct AnonymousMapping {
    pub start: *mut u8,
    pub bytes: usize,
}

// SAFETY: the memory belongs to whoever holds the value; it is not bound to a thread.
unsafe impl Send for AnonymousMapping {}
// SAFETY: the fields are only read through a shared reference.
unsafe impl Sync for AnonymousMapping {}

impl AnonymousMapping {
    pub fn new(bytes: usize) -> Result<Self, PagerError> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe { map(std::ptr::null_mut(), bytes, protection, flags) };
        if start.is_null() {
            return Err(PagerError::last("reserving address space"));
        }
        // SAFETY: the range was just mapped. The kernel would fill large pages without a fault for each of their pages.
        unsafe { advise(start, bytes, libc::MADV_NOHUGEPAGE) };
        Ok(Self { start, bytes })
    }

    /// Puts new memory in the place of some pages, whatever the program has put there.
    pub fn renew(&self, pages: &std::ops::Range<usize>) -> Result<(), PagerError> {
        let (start, bytes) = (self.page(pages.start), pages.len() * PAGE_BYTES);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: the pages lie in the mapping, and nothing refers to their content.
        if unsafe { map(start, bytes, protection, flags) }.is_null() {
            return Err(PagerError::last("mapping memory anew"));
        }
        // SAFETY: as in `new` and `inherit`.
        unsafe {
            advise(start, bytes, libc::MADV_NOHUGEPAGE);
            advise(start, bytes, libc::MADV_DONTFORK);
        }
        Ok(())
    }

    /// The first page that this process has in RAM or in its swap space, of those that `asked` is true for.
    pub fn present(&self, asked: impl Fn(usize) -> bool) -> Result<Option<usize>, PagerError> {
        let failed = |error| PagerError::System { what: "reading /proc/self/pagemap", error };
        let file = std::fs::File::open("/proc/self/pagemap").map_err(failed)?;
        let mut entries = vec![0; 8 << 10];
        for first in (0..self.bytes / PAGE_BYTES).step_by(1 << 10) {
            let count = (self.bytes / PAGE_BYTES - first).min(1 << 10);
            let at = (self.start as usize / PAGE_BYTES + first) as u64 * 8;
            file.read_exact_at(&mut entries[..8 * count], at).map_err(failed)?;
            // The two highest bits of an entry: in RAM, in the swap space.
            let mut found = entries[..8 * count].chunks_exact(8).enumerate().filter(|(_, entry)| entry[7] & 0xC0 != 0);
            if let Some((at, _)) = found.find(|(at, _)| asked(first + at)) {
                return Ok(Some(first + at));
            }
        }
        Ok(None)
    }

    /// Gives the RAM of some pages back to the system, as [`Self::drop_page`] does.
    pub fn drop_pages(&self, pages: &std::ops::Range<usize>) {
        // SAFETY: the pages lie in the mapping, and nothing refers to their content.
        unsafe { advise(self.page(pages.start), pages.len() * PAGE_BYTES, libc::MADV_DONTNEED) };
    }

    pub fn page(&self, index: usize) -> *mut u8 {
        assert!((index + 1) * PAGE_BYTES <= self.bytes);
        // SAFETY: the page lies in the mapping.
        unsafe { self.start.add(index * PAGE_BYTES) }
    }

    /// Whether forked children have this memory. Without it they have nothing there, not even zeros.
    pub fn inherit(&self, is_inherited: bool) {
        let advice = if is_inherited { libc::MADV_DOFORK } else { libc::MADV_DONTFORK };
        // SAFETY: it is about what a fork does; this process sees no difference.
        unsafe { advise(self.start, self.bytes, advice) };
    }

    /// Gives the RAM of a page back to the system. The page is missing, or reads as zeros, after that.
    fn drop_page(&self, index: usize) {
        // SAFETY: the page lies in the mapping, and nothing refers to its content.
        let result = unsafe { advise(self.page(index), PAGE_BYTES, libc::MADV_DONTNEED) };
        assert_eq!(result, 0, "giving back a page of an own anonymous mapping succeeds");
    }
}

impl Drop for AnonymousMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and whoever used it is gone.
        unsafe { libc::syscall(libc::SYS_munmap, self.start, self.bytes) };
    }
}

/// A buffer for the bytes of the cached pages that are not mapped.
pub(crate) struct Buffer {
    memory: Arc<AnonymousMapping>,
    uffd: Arc<Uffd>,
    slots: AnonymousMapping,
    /// By frame, its slot; [`NONE`] while its page is mapped.
    slot_of: Vec<u32>,
    /// Slots that hold nothing and have RAM.
    spare: Vec<u32>,
    /// Slots that hold nothing and have no RAM.
    unused: Vec<u32>,
    /// Number of pages that were ever taken out of the address space.
    pub taken_out: u64,
}

impl Buffer {
    pub fn new(memory: Arc<AnonymousMapping>, uffd: Arc<Uffd>, frames: u32) -> Result<Self, PagerError> {
        Ok(Self {
            memory,
            uffd,
            slots: AnonymousMapping::new(frames as usize * PAGE_BYTES)?,
            slot_of: vec![NONE; frames as usize],
            spare: Vec::with_capacity(frames as usize),
            unused: (0..frames).rev().collect(),
            taken_out: 0,
        })
    }

    /// The bytes of a frame's page that is not mapped.
    pub fn bytes(&self, frame: u32) -> &[u8] {
        let slot = self.slot_of[frame as usize];
        assert_ne!(slot, NONE, "the page of frame {frame} is in the buffer");
        // SAFETY: the slot is in the mapping, belongs to this frame alone, and is changed only through `&mut self`.
        unsafe { std::slice::from_raw_parts(self.slots.page(slot as usize), PAGE_BYTES) }
    }

    /// Empties the slot of a frame whose page is mapped or evicted.
    pub fn release(&mut self, frame: u32) {
        let slot = std::mem::replace(&mut self.slot_of[frame as usize], NONE);
        if slot == NONE {
            return;
        }
        if self.spare.len() < MAX_SPARE {
            self.spare.push(slot);
        } else {
            self.slots.drop_page(slot as usize);
            self.unused.push(slot);
        }
    }

    /// Maps a page with these bytes, write-protected unless it is writable, and wakes the faulting thread. False if there
    /// is a page already.
    pub fn map(&self, lpn: Lpn, bytes: &[u8], writable: bool) -> Result<bool, PagerError> {
        self.uffd.copy(self.memory.page(lpn.index()), bytes, writable)
    }
}

impl Frames for Buffer {
    fn fell(&mut self, frame: u32, lpn: Lpn, dirty: bool) {
        let page = self.memory.page(lpn.index());
        self.taken_out += 1;
        if dirty {
            // Writes wait from here on until the page is mapped again; reads go on. A clean page is protected already.
            let protected = self.uffd.protect(page, true);
            protected.expect("a mapped page of a registered range can be write-protected");
        }
        let slot = self.spare.pop().or_else(|| self.unused.pop()).expect("there are as many slots as frames");
        self.slot_of[frame as usize] = slot;
        // SAFETY: both are whole pages of own mappings; the source is present, because its frame was in the MRU
        // region, and cannot change, because it is write-protected.
        unsafe { std::ptr::copy_nonoverlapping(page, self.slots.page(slot as usize), PAGE_BYTES) };
        self.memory.drop_page(lpn.index());
    }

    fn copy(&self, frame: u32, data: &mut [u8]) {
        data.copy_from_slice(self.bytes(frame));
    }
}
