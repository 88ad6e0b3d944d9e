//! Runs of host writes on a device without payload: each step is done for many writes before the next, so that their
//! accesses to memory overlap and the policies are called once for all of them.

use crate::log::Log;
use crate::{Client, LogError, Owner};
use alloc::{vec, vec::Vec};
use margay_flash::{Ppn, SegmentId};
use margay_format::{PageInfo, Store};
use margay_policy::{Placer, Selection, State, Written};

/// The greatest number of writes done together.
const MAX_RUN: usize = 64;

/// Memory for the writes of a run, and whether there are any.
#[derive(Debug)]
pub(crate) struct Run {
    /// The stream of all host writes; `None` if each of them has to be decided on or recorded by itself.
    stream: Option<u8>,
    writes: Vec<Written>,
    /// Sealed segments that lost a page, and how many they had left.
    losses: Vec<(SegmentId, u32)>,
}

impl Run {
    /// `is_simple` says that the device keeps no information on pages, and that cleaning is not spread over the writes.
    pub fn new(placement: &dyn Placer, selection: &dyn Selection, is_simple: bool) -> Self {
        let stream = placement.host_stream().filter(|_| is_simple && !selection.needs_invalidations());
        let len = if stream.is_some() { MAX_RUN } else { 0 };
        Self { stream, writes: vec![Written::default(); len], losses: vec![Default::default(); len] }
    }
}

impl<D: Store, O: Owner> Log<D, O> {
    /// Whether [`Log::write_run`] takes any writes. If not, every write has to be decided on or recorded by itself.
    pub fn takes_runs(&self) -> bool {
        self.run.stream.is_some()
    }

    /// Writes pages of the host without a payload, as [`Log::write`] does one after the other: each item is an owner and
    /// the time of the workload. Takes only as many as have room in the open segment, so that nothing is cleaned; the
    /// next one is for [`Log::write`].
    ///
    /// # Errors
    ///
    /// Those of the device. The page whose program failed is taken from `writes`; what it held before is kept.
    #[inline(always)]
    pub fn write_run<C: Client<O>>(
        &mut self,
        client: &mut C,
        writes: impl Iterator<Item = (O, u64)>,
    ) -> Result<(), LogError> {
        let Some(stream) = self.run.stream else { return Ok(()) };
        let mut writes = writes;
        loop {
            let head = self.heads[usize::from(stream)];
            let (before, first) = (self.now, head.next);
            let mut failed = None;
            let (mut us, mut to) = (before.us, first);
            let slots = &mut self.owners[first as usize..head.end as usize];
            for ((slot, written), (owner, now_us)) in slots.iter_mut().zip(self.run.writes.iter_mut()).zip(&mut writes)
            {
                if let Err(error) = self.device.program(Ppn(to), &[], PageInfo::default()) {
                    failed = Some(error);
                    break;
                }
                us = us.max(now_us);
                *slot = owner;
                written.old = client.replace(owner, Ppn(to)).unwrap_or(Written::NEW);
                written.us = us;
                to += 1;
            }
            let count = to - first;
            self.now.us = us;
            self.now.writes += u64::from(count);
            self.counters.host_writes += u64::from(count);
            self.heads[usize::from(stream)].next = to;
            self.lose_old(count as usize);
            if self.keeps_pages {
                self.placement.write_run(&self.segments, before, &self.run.writes[..count as usize], Ppn(first));
            }
            if let Some(error) = failed {
                // Its page is spent.
                self.valid.clear(Ppn(to));
                self.segments.valid[head.segment.index()] -= 1;
                self.heads[usize::from(stream)].next += 1;
                return Err(error.into());
            }
            if (count as usize) < MAX_RUN {
                return Ok(());
            }
        }
    }

    /// Invalidates the pages that the first `count` writes of the run supersede.
    fn lose_old(&mut self, count: usize) {
        let Self { run, segments, valid: bits, geometry, .. } = self;
        let mut bits = bits.as_mut();
        let valid = segments.valid.as_mut_slice();
        let losses = run.losses.as_mut_slice();
        let states = &segments.state[..valid.len()];
        let (mut new, mut lost) = (0, 0);
        for written in &mut run.writes[..count] {
            if written.old == Written::NEW {
                new += 1;
                continue;
            }
            debug_assert!(bits.is_set(written.old), "page {} is invalidated twice", written.old);
            bits.clear(written.old);
            let segment = geometry.segment_of(written.old);
            written.segment = segment;
            let left = valid[segment.index()] - 1;
            valid[segment.index()] = left;
            if states[segment.index()] == State::Sealed {
                losses[lost] = (segment, left);
                lost += 1;
            }
        }
        segments.total_valid += new;
        self.selection.invalidated_run(&self.segments, &self.run.losses[..lost]);
    }
}
