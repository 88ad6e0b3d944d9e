//! What the laboratory tells the placement beside the operations themselves: how long each page written will live, if the
//! placement is an oracle, or to which stream of the host it belongs.

use crate::LabError;
use crate::disk::MeasuredDisk;
use crate::experiment::Experiment;
use crate::ops::{Ops, TraceFacts};
use crate::placed::Placed;
use margay_log::Hint;
use margay_workload::{OpKind, PageOp};

/// The hints of a run's writes.
#[derive(Debug)]
pub(crate) enum Told {
    Nothing,
    /// Each operation names its stream; these are the streams of the pages written before the run.
    Streams(Vec<Option<u8>>),
    Lifetimes(Lifetimes),
    /// The placement is the program's own, and decides on many writes at a time.
    Placed(Box<Placed>),
}

impl Told {
    /// What the placement of an experiment has to be told. For an oracle the operations are gone through once before the run.
    pub fn of(experiment: &Experiment, pages: u32, trace: Option<&TraceFacts>) -> Result<Self, LabError> {
        if experiment.placement.sees_streams() {
            return Ok(Self::Streams(streams_of_pages(&mut Ops::new(experiment, pages, trace)?, pages)?));
        }
        if !experiment.placement.is_oracle() {
            return Ok(Self::Nothing);
        }
        let writes = Ops::expected_writes(experiment, pages, trace);
        Lifetimes::check(experiment, pages, writes, margay_host::memory_bytes())?;
        Ok(Self::Lifetimes(Lifetimes::of(&mut Ops::new(experiment, pages, trace)?, pages, writes)?))
    }

    pub fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }

    /// The hint of a page that is written before the run.
    pub fn of_fill(&self, lpn: u32) -> Hint {
        match self {
            Self::Nothing => Hint::None,
            Self::Streams(of_pages) => of_pages[lpn as usize].map_or(Hint::None, Hint::Stream),
            Self::Lifetimes(lifetimes) => lifetimes.hint(lpn as usize),
            Self::Placed(placed) => placed.of_fill(lpn),
        }
    }

    /// Whether the hint of a write depends on what the disk is like just before it.
    pub fn looks_at_the_disk(&self) -> bool {
        matches!(self, Self::Placed(_))
    }

    /// The hint of the next write of the run, where all writes before it are done.
    pub fn of_next_write(&mut self, op: &PageOp, disk: &MeasuredDisk) -> Hint {
        match self {
            Self::Placed(placed) => placed.of_write(disk),
            told => told.of_write(op),
        }
    }

    /// The hint of the next write of the run, unless it depends on the disk.
    pub fn of_write(&mut self, op: &PageOp) -> Hint {
        match self {
            Self::Nothing | Self::Placed(_) => Hint::None,
            Self::Streams(_) => op.stream.map_or(Hint::None, Hint::Stream),
            Self::Lifetimes(lifetimes) => {
                lifetimes.next += 1;
                lifetimes.hint(lifetimes.next - 1)
            }
        }
    }
}

/// The stream of each page: that of its first operation, or, of a page without one, the stream of the most pages.
fn streams_of_pages(ops: &mut Ops, pages: u32) -> Result<Vec<Option<u8>>, LabError> {
    let mut streams = vec![None; pages as usize];
    let mut counts = [0u32; 256];
    let (mut left, mut batch) = (pages, Vec::new());
    while left > 0 {
        ops.next_batch(&mut batch, crate::run::BATCH)?;
        if batch.is_empty() {
            break;
        }
        for op in &batch {
            if let (Some(stream), place @ None) = (op.stream, &mut streams[op.lpn as usize]) {
                *place = Some(stream);
                counts[usize::from(stream)] += 1;
                left -= 1;
            }
        }
    }
    let usual = (0..=u8::MAX).max_by_key(|stream| counts[usize::from(*stream)]).filter(|_| left < pages);
    streams.iter_mut().for_each(|stream| *stream = stream.or(usual));
    Ok(streams)
}

/// How many host page writes after each write its page is written again or trimmed. Takes 4 bytes for each write of the run
/// and for each page of the disk.
#[derive(Debug)]
pub(crate) struct Lifetimes {
    /// Those of the pages written before the run, by logical page, and behind them those of the writes of the run.
    all: Vec<u32>,
    next: usize,
}

/// No end was seen.
const NEVER: u32 = u32::MAX;
/// The page is not written.
const NOWHERE: u32 = u32::MAX;

impl Lifetimes {
    /// Refuses a run whose lifetimes would take over half of this machine's memory, or cannot be numbered.
    fn check(experiment: &Experiment, pages: u32, writes: Option<u64>, memory: Option<u64>) -> Result<(), LabError> {
        let slots = writes.unwrap_or(0).saturating_add(pages.into());
        let needed = slots.saturating_add(pages.into()).saturating_mul(4);
        let limit = memory.map_or(u64::MAX, |bytes| bytes / 2).min(u64::from(u32::MAX) * 4);
        if needed <= limit {
            return Ok(());
        }
        Err(LabError::Value {
            what: "placement",
            value: experiment.placement.to_string(),
            problem: format!(
                "is an oracle and has to know the life of each of up to {} writes, for which {} MiB of memory are needed (4 bytes each); the limit is {} MiB, half of this machine's memory and 16 GiB at most. Run fewer writes, for example with --device-writes, or choose another placement",
                slots - u64::from(pages),
                needed >> 20,
                limit >> 20
            ),
        })
    }

    /// Goes through all operations. Every page up to `pages` counts as written before the first.
    fn of(ops: &mut Ops, pages: u32, writes: Option<u64>) -> Result<Self, LabError> {
        let mut all = Vec::with_capacity(pages as usize + writes.unwrap_or(0) as usize);
        all.resize(pages as usize, NEVER);
        // Where in `all` the life of each page is that has not ended.
        let mut living: Vec<u32> = (0..pages).collect();
        let mut batch = Vec::new();
        loop {
            ops.next_batch(&mut batch, crate::run::BATCH)?;
            if batch.is_empty() {
                all.shrink_to_fit();
                return Ok(Self { all, next: pages as usize });
            }
            for op in batch.iter().filter(|op| op.kind != OpKind::Read) {
                let here = match op.kind {
                    OpKind::Write => {
                        all.push(NEVER);
                        all.len() as u32 - 1
                    }
                    _ => NOWHERE,
                };
                let before = std::mem::replace(&mut living[op.lpn as usize], here);
                if before != NOWHERE {
                    // Host page writes when it was written, counted with its own, and so far; before the run it is 0.
                    let then = (before + 1).saturating_sub(pages);
                    all[before as usize] = all.len() as u32 - pages - then;
                }
            }
        }
    }

    fn hint(&self, at: usize) -> Hint {
        Hint::Lifetime(self.all.get(at).copied().unwrap_or(NEVER))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Limit, Source};
    use margay_media::DeviceSpec;

    /// The lives of all writes, looked for one by one.
    fn looked_for(ops: &[PageOp], pages: u32) -> Vec<u32> {
        let ends = |from: usize, lpn: u32, writes: u32| {
            let mut writes = writes;
            let start = writes;
            for op in &ops[from..] {
                writes += u32::from(op.kind == OpKind::Write);
                if op.lpn == lpn && op.kind != OpKind::Read {
                    return writes - start;
                }
            }
            NEVER
        };
        let mut all: Vec<u32> = (0..pages).map(|lpn| ends(0, lpn, 0)).collect();
        let mut writes = 0;
        for (at, op) in ops.iter().enumerate().filter(|(_, op)| op.kind == OpKind::Write) {
            writes += 1;
            all.push(ends(at + 1, op.lpn, writes));
        }
        all
    }

    #[test]
    fn lives_end_with_the_next_write_or_trim_of_the_page_over_several_passes() {
        let device = DeviceSpec::load("ideal-1gb").unwrap();
        let source = "zipf:0.9,writes=400,trims=0.2,reads=0.1".parse().unwrap();
        let mut experiment = Experiment::new(device, Source::Workload(source));
        experiment.limit = Limit::Writes(1000);
        let ops = || Ops::new(&experiment, 50, None).unwrap();
        let (mut running, mut batch, mut all) = (ops(), Vec::new(), Vec::new());
        while running.next_batch(&mut batch, 64).is_ok() && !batch.is_empty() {
            all.extend_from_slice(&batch);
        }
        let lives = Lifetimes::of(&mut ops(), 50, Some(1000)).unwrap();
        assert_eq!(lives.all, looked_for(&all, 50));
        assert!(lives.all.len() == 1050 && lives.all.contains(&0) && lives.all.contains(&NEVER));
    }
}
