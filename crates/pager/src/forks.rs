//! What forked children see of a memory, and of the store below it.

use crate::PagerError;
use crate::handler::Pages;
use crate::memory::{PagedMemory, event};
use crate::thread::Thread;
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

/// How often what a fork needs is tried out before it is given up: other threads may push it out again.
const ROUNDS: u32 = 64;

impl PagedMemory {
    /// To be called right before fork(2): stops the pager at a moment when its memory and its store can be had by a child, and
    /// all that is touched before the child's pager runs is in the address space. That is what `touch` touches, and what
    /// the start of a thread touches.
    ///
    /// The memory is not inherited by the children of any other fork: they have nothing at its addresses.
    pub fn before_fork(&self, touch: impl Fn()) -> Forking<'_> {
        for round in 0.. {
            let before = self.pages().hold(true);
            touch();
            let rehearsed = Thread::start(|| ()).map(drop);
            let mut pages = self.pages();
            let stays = pages.hold(true) == before;
            if !stays && round < ROUNDS {
                pages.hold(false);
                continue;
            }
            let prepared = rehearsed.and_then(|()| match pages.forks() {
                _ if !stays => Err(PagerError::TooLittleForFork),
                None => Err(PagerError::NotForked),
                Some(forks) => forks.prepare().map_err(|error| PagerError::System { what: "preparing a fork", error }),
            });
            if prepared.is_ok() {
                self.inherit(true);
            }
            return Forking { memory: self, pages, prepared };
        }
        unreachable!("the last round returns")
    }
}

impl Forking<'_> {
    /// To be called after fork(2) in the process that called it.
    pub fn in_parent(mut self) {
        self.pages.hold(false);
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
        let pager = self.memory.begin()?;
        // Only now, because what it takes out of the address space could be what its thread needs to start.
        self.memory.pages().hold(false);
        Ok(pager)
    }
}
