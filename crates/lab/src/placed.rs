//! A placement that is asked for many pages at a time: host writes as if they waited in a write buffer, and the valid pages of
//! a victim together.

use crate::disk::MeasuredDisk;
use crate::experiment::Experiment;
use crate::ops::{Ops, TraceFacts};
use crate::own::{BatchPlacement, OwnPlacement, PageBatch, PageKind};
use crate::{LabError, run};
use margay_flash::{Lpn, SegmentId};
use margay_format::Store;
use margay_log::Hint;
use margay_policy::placement::{Pages, WithPages};
use margay_policy::{Now, Placement, Placer, Segments, Sizing, Subject};
use margay_workload::{OpKind, PageOp};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The placement of a run, and what it knows of each page. The log asks it for copies, the laboratory for host writes.
#[derive(Clone, Debug)]
pub(crate) struct Placing {
    shared: Arc<Mutex<Shared>>,
    streams: u8,
    opened_at_start: u8,
    batch_pages: usize,
}

#[derive(Debug)]
struct Shared {
    policy: Box<dyn BatchPlacement>,
    /// Host page writes when the host last wrote each logical page.
    written: Vec<u64>,
}

impl Placing {
    pub fn new(own: &dyn OwnPlacement, sizing: Sizing) -> Self {
        let shared = Shared { policy: own.build(sizing), written: vec![0; sizing.exported_pages as usize] };
        let (streams, batch_pages) = (own.streams().max(1), own.batch_pages().max(1));
        let opened_at_start = own.opened_at_start().min(streams);
        Self { shared: Arc::new(Mutex::new(shared)), streams, opened_at_start, batch_pages }
    }

    /// The placement as the log holds it.
    pub fn placer(&self) -> Box<dyn Placer> {
        WithPages::boxed(Copies { placing: self.clone(), decided: vec![0; self.lock().written.len()] })
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stream of each page of a batch.
    fn decide(&self, batch: PageBatch, now: Now) -> Vec<u8> {
        let pages = batch.len();
        if pages == 0 {
            return Vec::new();
        }
        let mut streams = self.lock().policy.place(batch, now);
        streams.resize(pages, 0);
        streams.iter_mut().filter(|stream| **stream >= self.streams).for_each(|stream| *stream = 0);
        streams
    }
}

/// The logical page that a physical page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lba(u32);

impl Default for Lba {
    /// A page of margay's own, or none.
    fn default() -> Self {
        Self(u32::MAX)
    }
}

/// What the log sees: host writes go where the laboratory says, copies where the policy said when the victim was chosen.
#[derive(Debug)]
struct Copies {
    placing: Placing,
    /// By logical page: the stream that its copy goes to, if it lies in the victim.
    decided: Vec<u8>,
}

impl Placement for Copies {
    type Info = Lba;

    fn streams(&self) -> u8 {
        self.placing.streams
    }

    fn opened_at_start(&self) -> u8 {
        self.placing.opened_at_start
    }

    fn write(&mut self, _: &Segments, now: Now, subject: Subject, _: Option<(SegmentId, Lba)>) -> (u8, Lba) {
        let lba = subject.owner as u32;
        if let Some(written) = self.placing.lock().written.get_mut(lba as usize) {
            *written = now.writes;
        }
        (subject.stream().unwrap_or(0), Lba(lba))
    }

    fn begin_cleaning(&mut self, segments: &Segments, victim: SegmentId, now: Now, pages: Pages<'_, Lba>) {
        let mut batch = PageBatch::default();
        let segment = (segments.stream[victim.index()], now.writes - segments.opened_writes[victim.index()]);
        {
            let shared = self.placing.lock();
            for Lba(lba) in pages.of(victim, segments) {
                if let Some(written) = shared.written.get(lba as usize) {
                    batch.push(lba, PageKind::Copy, now.writes - written, segment, now.us);
                }
            }
        }
        let lbas = batch.lba.clone();
        for (lba, stream) in lbas.into_iter().zip(self.placing.decide(batch, now)) {
            self.decided[lba as usize] = stream;
        }
    }

    fn copy(&self, segments: &Segments, victim: SegmentId, _: Now, info: Lba, _: u64) -> u8 {
        let of_own_page = || segments.stream[victim.index()].min(self.placing.streams - 1);
        self.decided.get(info.0 as usize).copied().unwrap_or_else(of_own_page)
    }
}

/// Decides on host writes a batch at a time, by reading ahead in the operations of the run.
#[derive(Debug)]
pub(crate) struct Placed {
    placing: Placing,
    /// The streams of the pages that are written before the run, by logical page.
    fill: Vec<u8>,
    ops: Ops,
    read: Vec<PageOp>,
    /// The streams of the batch, of which `next` are used.
    streams: Vec<u8>,
    next: usize,
}

impl Placed {
    pub fn new(
        placing: &Placing,
        experiment: &Experiment,
        pages: u32,
        trace: Option<&TraceFacts>,
        filled: u32,
    ) -> Result<Self, LabError> {
        let mut fill = Vec::with_capacity(filled as usize);
        while fill.len() < filled as usize {
            let end = filled.min((fill.len() + placing.batch_pages).min(u32::MAX as usize) as u32);
            let mut batch = PageBatch::default();
            (fill.len() as u32..end).for_each(|lba| batch.push_new(lba, 0));
            fill.append(&mut placing.decide(batch, Now::default()));
            experiment.own.check()?;
        }
        let ops = Ops::new(experiment, pages, trace)?;
        Ok(Self { placing: placing.clone(), fill, ops, read: Vec::new(), streams: Vec::new(), next: 0 })
    }

    /// The hint of a page that is written before the run.
    pub fn of_fill(&self, lpn: u32) -> Hint {
        Hint::Stream(self.fill[lpn as usize])
    }

    /// The hint of the next host write.
    pub fn of_write(&mut self, disk: &MeasuredDisk) -> Hint {
        if self.next == self.streams.len() {
            self.decide(disk);
        }
        self.next += 1;
        Hint::Stream(self.streams.get(self.next - 1).copied().unwrap_or(0))
    }

    /// Asks for the streams of the next batch of writes.
    fn decide(&mut self, disk: &MeasuredDisk) {
        let (segments, geometry, now) = (disk.log().segments(), disk.log().device().geometry(), disk.log().now());
        let mut batch = PageBatch::default();
        while batch.len() < self.placing.batch_pages {
            let left = (self.placing.batch_pages - batch.len()).min(run::BATCH);
            // An error ends the run where its own reading comes to it.
            if self.ops.next_batch(&mut self.read, left).is_err() || self.read.is_empty() {
                break;
            }
            let shared = self.placing.lock();
            for op in self.read.iter().filter(|op| op.kind == OpKind::Write) {
                let writes = now.writes + 1 + batch.len() as u64;
                let time_us = op.time_us.max(now.us);
                match disk.place(Lpn(op.lpn)).map(|ppn| geometry.segment_of(ppn).index()) {
                    None => batch.push_new(op.lpn, time_us),
                    Some(segment) => {
                        let of_segment = (segments.stream[segment], writes - segments.opened_writes[segment]);
                        let age = writes - shared.written[op.lpn as usize];
                        batch.push(op.lpn, PageKind::Update, age, of_segment, time_us);
                    }
                }
            }
        }
        self.streams = self.placing.decide(batch, now);
        self.next = 0;
    }
}
