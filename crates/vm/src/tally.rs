use crate::cost::MergePages;
use alloc::{vec, vec::Vec};

/// State in the cache of a page that flash has a copy of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageClass {
    Uncached = 0,
    CleanLru = 1,
    CleanMru = 2,
    DirtyLru = 3,
    /// A merge drops it at no cost, so it is not counted.
    DirtyMru = 4,
}

const COUNTED: usize = 4;

/// Counts of pages by class: for each block, and for each log block the sum over the blocks that it holds pages of. They
/// are updated with every change, so the cost of merging a log block is known without a look at its pages.
#[derive(Clone, Debug)]
pub struct Tally {
    blocks: Vec<[u32; COUNTED]>,
    /// By block, the log blocks that hold a newest copy of a page of it.
    links: Vec<Vec<u32>>,
    slots: Vec<[u32; COUNTED]>,
    /// By log block, the number of blocks it is linked with.
    linked: Vec<u32>,
}

impl Tally {
    pub(crate) fn new(blocks: u32) -> Self {
        let links = vec![Vec::new(); blocks as usize];
        Self { blocks: vec![[0; COUNTED]; blocks as usize], links, slots: Vec::new(), linked: Vec::new() }
    }

    fn add(&mut self, block: u32, class: PageClass, by: u32) {
        let Some(count) = self.blocks[block as usize].get_mut(class as usize) else { return };
        *count = count.wrapping_add(by);
        for slot in &self.links[block as usize] {
            let count = &mut self.slots[*slot as usize][class as usize];
            *count = count.wrapping_add(by);
        }
    }

    #[inline]
    pub(crate) fn gained(&mut self, block: u32, class: PageClass) {
        self.add(block, class, 1);
    }

    #[inline]
    pub(crate) fn lost(&mut self, block: u32, class: PageClass) {
        self.add(block, class, u32::MAX);
    }

    pub(crate) fn linked(&mut self, slot: u32, block: u32, is: bool) {
        if self.slots.len() <= slot as usize {
            self.slots.resize(slot as usize + 1, [0; COUNTED]);
            self.linked.resize(slot as usize + 1, 0);
        }
        let links = &mut self.links[block as usize];
        let by = if is {
            links.push(slot);
            1
        } else {
            let at = links.iter().position(|other| *other == slot).expect("only what is linked is unlinked");
            links.swap_remove(at);
            u32::MAX
        };
        self.linked[slot as usize] = self.linked[slot as usize].wrapping_add(by);
        for (sum, count) in self.slots[slot as usize].iter_mut().zip(self.blocks[block as usize]) {
            *sum = sum.wrapping_add(count.wrapping_mul(by));
        }
    }

    /// The pages of the blocks that merging a log block would touch. O(1).
    #[inline]
    pub fn pages(&self, slot: u32) -> MergePages {
        let Some([uncached, clean_lru, clean_mru, dirty_lru]) = self.slots.get(slot as usize).copied() else {
            return MergePages::default();
        };
        MergePages { blocks: self.linked[slot as usize], uncached, clean_lru, clean_mru, dirty_lru }
    }
}
