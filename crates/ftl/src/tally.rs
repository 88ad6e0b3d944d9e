//! Copies by groups of pages. Who does not ask for them pays nothing: the engine runs with another client.

use crate::map::Map;
use alloc::{vec, vec::Vec};
use margay_flash::{Lpn, Ppn};
use margay_log::Client;

/// What is programmed besides host writes, by groups of logical pages.
#[derive(Debug)]
pub(crate) struct Tally {
    /// The group of each page; pages behind the end are in the first.
    groups: Vec<u16>,
    /// By group.
    pub copies: Vec<u64>,
}

impl Tally {
    pub fn new(groups: Vec<u16>) -> Self {
        let count = groups.iter().max().map_or(1, |max| usize::from(*max) + 1);
        Self { groups, copies: vec![0; count] }
    }

    fn of(&mut self, lpn: Lpn) -> &mut u64 {
        let group = self.groups.get(lpn.index()).copied().unwrap_or(0);
        &mut self.copies[usize::from(group)]
    }
}

/// The map, and whose page is relocated is counted.
pub(crate) struct Tallied<'a> {
    pub map: &'a mut Map,
    pub tally: &'a mut Tally,
}

impl Tallied<'_> {
    /// What was counted last as a copy was a host write.
    pub fn written(&mut self, lpn: Lpn) {
        *self.tally.of(lpn) -= 1;
    }
}

impl Client<Lpn> for Tallied<'_> {
    fn relocated(&mut self, owner: Lpn, to: Ppn) {
        *self.tally.of(owner) += 1;
        self.map.relocated(owner, to);
    }

    fn locate(&self, owner: Lpn) -> Option<Ppn> {
        self.map.locate(owner)
    }

    fn pending(&mut self, seq: u64, page: &mut [u8]) -> Option<Lpn> {
        self.map.pending(seq, page)
    }

    fn pending_written(&mut self, owner: Lpn) {
        self.map.pending_written(owner);
    }

    fn retired_list(&self) -> Option<Lpn> {
        self.map.retired_list()
    }
}
