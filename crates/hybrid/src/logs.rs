use alloc::{vec, vec::Vec};
use margay_flash::Lpn;

/// No segment, block or place.
pub(crate) const NONE: u32 = u32::MAX;

/// A log block.
#[derive(Clone, Debug)]
pub(crate) struct LogBlock {
    /// Its segment; [`NONE`] while it is not in use.
    pub segment: u32,
    /// Pages programmed.
    pub next: u32,
    /// Pages it can take; fewer than a block after a failed program or a power cut.
    pub end: u32,
    /// Pages that are the newest copy of theirs.
    pub valid: u32,
    /// The block it belongs to (BAST, sequential); [`NONE`] if it is shared.
    pub block: u32,
    /// By position, whose page it holds.
    pub owners: Vec<u32>,
}

impl LogBlock {
    pub fn idle(pages: u32) -> Self {
        Self { segment: NONE, next: 0, end: 0, valid: 0, block: NONE, owners: vec![NONE; pages as usize] }
    }

    pub fn is_in_use(&self) -> bool {
        self.segment != NONE
    }

    pub fn has_room(&self) -> bool {
        self.next < self.end
    }
}

/// Where in the log blocks the newest copies of pages are: a table for each block that has any.
#[derive(Debug)]
pub(crate) struct Tables {
    pages: u32,
    /// By block, its table.
    table: Vec<u32>,
    /// Places as slot * pages + position, by table and offset.
    places: Vec<u32>,
    /// By table, the places in it.
    used: Vec<u32>,
    unused: Vec<u32>,
}

impl Tables {
    pub fn new(blocks: u32, pages: u32) -> Self {
        let table = vec![NONE; blocks as usize];
        Self { pages, table, places: Vec::new(), used: Vec::new(), unused: Vec::new() }
    }

    /// Slot and position of a page.
    #[inline]
    pub fn get(&self, lpn: Lpn) -> Option<(u32, u32)> {
        let table = self.table[(lpn.0 / self.pages) as usize];
        if table == NONE {
            return None;
        }
        let place = self.places[(table * self.pages + lpn.0 % self.pages) as usize];
        (place != NONE).then(|| (place / self.pages, place % self.pages))
    }

    pub fn set(&mut self, lpn: Lpn, slot: u32, position: u32) {
        let block = (lpn.0 / self.pages) as usize;
        if self.table[block] == NONE {
            self.table[block] = self.unused.pop().unwrap_or_else(|| {
                self.places.resize(self.places.len() + self.pages as usize, NONE);
                self.used.push(0);
                self.used.len() as u32 - 1
            });
        }
        let table = self.table[block];
        let place = &mut self.places[(table * self.pages + lpn.0 % self.pages) as usize];
        debug_assert_eq!(*place, NONE, "a page is forgotten before it is placed anew");
        *place = slot * self.pages + position;
        self.used[table as usize] += 1;
    }

    pub fn remove(&mut self, lpn: Lpn) -> Option<(u32, u32)> {
        let found = self.get(lpn)?;
        let block = (lpn.0 / self.pages) as usize;
        let table = self.table[block];
        self.places[(table * self.pages + lpn.0 % self.pages) as usize] = NONE;
        self.used[table as usize] -= 1;
        if self.used[table as usize] == 0 {
            self.unused.push(table);
            self.table[block] = NONE;
        }
        Some(found)
    }

    /// Whether a log block holds a newest copy of any page of a block.
    pub fn holds(&self, slot: u32, block: u32) -> bool {
        let table = self.table[block as usize];
        table != NONE && {
            let first = (table * self.pages) as usize;
            let range = slot * self.pages..(slot + 1) * self.pages;
            self.places[first..first + self.pages as usize].iter().any(|place| range.contains(place))
        }
    }

    pub fn memory_bytes(&self) -> u64 {
        4 * (self.table.capacity() + self.places.capacity() + self.used.capacity() + self.unused.capacity()) as u64
    }
}
