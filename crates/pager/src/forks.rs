//! What forked children see of a memory, and of the store below it.

use crate::PagerError;
use crate::handler::Pages;
use crate::memory::{PagedMemory, event};
use crate::uffd;
use std::io;
use std::sync::MutexGuard;

/// Gives each forked child the store as it was at the fork. All calls are made while the pager waits.
pub trait StoreForks: Send {
    /// Called before a fork.
    ///
    /// # Errors
    ///
    /// If no child can get a store; the child must not use its memory then.
    fn prepare(&mut self) -> io::Result<()>;

    /// Called after a fork in the process that forked, after a [`StoreForks::prepare`] that succeeded. There may be no
    /// child, if the fork failed.
    fn in_parent(&mut self);

    /// Called after a fork in the child, after a [`StoreForks::prepare`] that succeeded.
    fn in_child(&mut self);

    /// Called before the store is used: before it is changed, children that have not been given a store of their own yet
    /// get one, and a new child takes its own.
    ///
    /// # Errors
    ///
    /// If this process has no store: it is a child, and its copy could not be made.
    fn before_use(&mut self, change: bool) -> io::Result<()>;
}

/// Between the two sides of a fork: the pager waits, and the memory must not be touched where it is not mapped.
pub struct Forking<'a> {
    memory: &'a PagedMemory,
    pages: MutexGuard<'a, dyn Pages + 'static>,
    prepared: Result<(), PagerError>,
}

impl std::fmt::Debug for Forking<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forking").field("prepared", &self.prepared).finish_non_exhaustive()
    }
}

/// How often pages that fork needs are brought in until they all stay.
const ROUNDS: u32 = 8;

impl PagedMemory {
    /// To be called right before fork(2): stops the pager at a moment when its memory and its store can be had by a child.
    /// `touch` is called, more than once perhaps, to touch what the fork itself needs in the child; it returns addresses
    /// in the pages that it has touched.
    ///
    /// Memory that is not inherited by the children of any other fork: they have nothing at its addresses.
    pub fn before_fork(&self, mut touch: impl FnMut() -> Vec<usize>) -> Forking<'_> {
        let (start, bytes) = (self.start() as usize, self.bytes());
        let mut rounds = 0;
        loop {
            let touched = touch();
            let mut pages = self.pages();
            let in_memory = touched.iter().filter(|address| (start..start + bytes).contains(address));
            let is_mapped = |address: &usize| pages.is_mapped((address - start) / crate::PAGE_BYTES);
            let are_mapped = in_memory.copied().all(|address| is_mapped(&address));
            rounds += 1;
            if !are_mapped && rounds < ROUNDS {
                continue;
            }
            let prepared = match pages.forks() {
                _ if !are_mapped => Err(PagerError::TooLittleForFork),
                None => Err(PagerError::EarlyUse),
                Some(forks) => forks.prepare().map_err(|error| PagerError::System { what: "preparing a fork", error }),
            };
            if prepared.is_ok() {
                self.inherit(true);
            }
            return Forking { memory: self, pages, prepared };
        }
    }
}

impl Forking<'_> {
    /// To be called after fork(2) in the process that called it.
    pub fn in_parent(mut self) {
        if self.prepared.is_ok() {
            self.memory.inherit(false);
            if let Some(forks) = self.pages.forks() {
                forks.in_parent();
            }
        }
    }

    /// To be called after fork(2) in the child, before it touches the memory. Starts a pager for it, whose memory is as the
    /// parent's was.
    ///
    /// # Errors
    ///
    /// If the child cannot have the memory. It must not touch it then.
    pub fn in_child(mut self) -> Result<libc::pthread_t, PagerError> {
        self.prepared?;
        self.memory.inherit(false);
        if let Some(forks) = self.pages.forks() {
            forks.in_child();
        }
        self.pages.became_child()?;
        uffd::replace(self.memory.stop(), &event(0)?)?;
        drop(self.pages);
        self.memory.begin()
    }
}
