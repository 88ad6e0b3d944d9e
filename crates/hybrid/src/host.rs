use crate::MergeKind;
use alloc::collections::VecDeque;
use margay_flash::Lpn;

/// Which log block is being merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// A random one, or one of BAST.
    Random,
    /// The sequential one.
    Sequential,
}

/// What becomes of a page in a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeAction {
    /// There is nothing to move: flash has no copy.
    Leave,
    /// Flash copies its page.
    Copy,
    /// The cache's page is written; it is clean from then on.
    Write,
    /// Flash gives its copy up; the cache's page is the only one from then on.
    Drop,
}

/// What a merge of a log block took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merged {
    /// Which log block.
    pub victim: Victim,
    /// How.
    pub kind: MergeKind,
    /// Pages copied from flash to flash.
    pub copies: u32,
    /// Pages written from the cache.
    pub cache_writes: u32,
    /// Pages dropped.
    pub drops: u32,
    /// Segments erased.
    pub erases: u32,
}

/// Whoever sits above and is asked at merges. Blocks are logical blocks; slots number the log blocks.
pub trait Host {
    /// What becomes of a page. Asked once for each page of a block before anything is moved.
    fn decide(&self, lpn: Lpn, victim: Victim, on_flash: bool) -> MergeAction;

    /// Puts the cache's page into `data` ([`MergeAction::Write`]), unless the device has no payload.
    fn fill(&mut self, lpn: Lpn, data: &mut [u8]);

    /// A page was moved as decided, and the move is done.
    fn moved(&mut self, lpn: Lpn, how: MergeAction);

    /// Flash has, or no longer has, a copy of a page.
    fn on_flash(&mut self, lpn: Lpn, is: bool);

    /// A log block has got its first valid page of a block, or has lost its last.
    fn linked(&mut self, slot: u32, block: u32, is: bool);

    /// The log block to be merged, as an index into the slots in use, oldest first.
    fn victim(&mut self, oldest_first: &VecDeque<u32>) -> usize;

    /// A log block was merged.
    fn merged(&mut self, merged: &Merged);
}

/// No cache: everything is copied, the oldest log block is the victim.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCache;

impl Host for NoCache {
    fn decide(&self, _: Lpn, _: Victim, on_flash: bool) -> MergeAction {
        if on_flash { MergeAction::Copy } else { MergeAction::Leave }
    }
    fn fill(&mut self, _: Lpn, _: &mut [u8]) {}
    fn moved(&mut self, _: Lpn, _: MergeAction) {}
    fn on_flash(&mut self, _: Lpn, _: bool) {}
    fn linked(&mut self, _: u32, _: u32, _: bool) {}
    fn victim(&mut self, _: &VecDeque<u32>) -> usize {
        0
    }
    fn merged(&mut self, _: &Merged) {}
}
