use crate::LabError;
use crate::experiment::{AddressChoice, Experiment, Limit, Source, TraceSource};
use crate::packed::{PackedOps, Packer, Unpacker};
use crate::tenants::Tenants;
use margay_trace::{IoKind, PageTable, Request};
use margay_workload::{OpKind, PageOp, Workload, WorkloadSpec};
use std::sync::Arc;

/// The facts of a trace that one reading of it gives.
#[derive(Clone, Debug)]
pub(crate) struct TraceFacts {
    pub xxh3: String,
    pub format: String,
    pub bad_lines: u64,
    /// Page writes of one pass.
    pub writes: u64,
    /// The logical pages that are ever written.
    pub written: PageSet,
    /// How many they are, if they were numbered.
    pub numbered: u32,
    pub ops: Arc<PackedOps>,
    pub tenants: Tenants,
}

/// A set of logical pages.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageSet(Vec<u64>);

impl PageSet {
    /// Adds a page; says whether it is new.
    #[inline]
    fn insert(&mut self, lpn: u32) -> bool {
        let word = lpn as usize / 64;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        let is_new = self.0[word] >> (lpn % 64) & 1 == 0;
        self.0[word] |= 1 << (lpn % 64);
        is_new
    }

    fn contains(&self, lpn: u32) -> bool {
        self.0.get(lpn as usize / 64).is_some_and(|word| word >> (lpn % 64) & 1 == 1)
    }
}

/// A prime, so that the pages of shifted devices coincide neither at the start nor at a power of two.
const DEVICE_SHIFT_PAGES: u64 = 1_000_003;

/// Device writes, and passes of a trace, after which a run that does not settle ends.
const MAX_DEVICE_WRITES: u64 = 100;
const MAX_PASSES: u64 = 30;

/// The number of a page that was not numbered.
const NOT_NUMBERED: u32 = 0;

/// Turns requests into page operations on the exported pages.
#[derive(Debug)]
struct Mapper {
    choice: AddressChoice,
    page_bytes: u64,
    exported_pages: u32,
    /// One more than the logical page.
    table: PageTable,
    numbered: u32,
    requests: u64,
    writes: u64,
    written: PageSet,
    tenants: Tenants,
    out: Packer,
}

impl Mapper {
    fn new(choice: AddressChoice, page_bytes: u32, exported_pages: u32) -> Self {
        Self {
            choice,
            page_bytes: page_bytes.into(),
            exported_pages,
            table: PageTable::default(),
            numbered: 0,
            requests: 0,
            writes: 0,
            written: PageSet::default(),
            tenants: Tenants::default(),
            out: Packer::new(),
        }
    }

    /// Appends an operation for every page that the request touches, in whole or in part.
    fn map(&mut self, request: &Request) -> Result<(), LabError> {
        self.requests += 1;
        let kind = match request.kind {
            IoKind::Write => OpKind::Write,
            IoKind::Trim => OpKind::Trim,
            IoKind::Read => OpKind::Read,
            IoKind::Flush => return Ok(()),
        };
        self.tenants.is_at(request.device);
        let end = request.offset_bytes.saturating_add(request.len_bytes);
        let (first, last) = match kind {
            // Only pages that lie wholly in the trimmed range become invalid.
            OpKind::Trim => (request.offset_bytes.div_ceil(self.page_bytes), end / self.page_bytes),
            _ => (request.offset_bytes / self.page_bytes, end.div_ceil(self.page_bytes)),
        };
        let exported = u64::from(self.exported_pages);
        match self.choice {
            // Devices are shifted against each other, so that their first pages do not coincide.
            AddressChoice::Fold if first < last => {
                let shift = u64::from(request.device) * DEVICE_SHIFT_PAGES;
                let mut lpn = (first.wrapping_add(shift) % exported) as u32;
                for page in first..last {
                    if page.wrapping_add(shift) == 0 {
                        lpn = 0;
                    }
                    self.push(request, lpn, kind)?;
                    lpn = if lpn + 1 == self.exported_pages { 0 } else { lpn + 1 };
                }
            }
            AddressChoice::Fold => {}
            AddressChoice::Direct => {
                for page in first..last.min(exported) {
                    self.push(request, page as u32, kind)?;
                }
                if last > exported && first < last {
                    return Err(self.past_the_end(first.max(exported)));
                }
            }
            AddressChoice::Compact => {
                for page in first..last {
                    if let Some(lpn) = self.numbered(request.device, page, kind)? {
                        self.push(request, lpn, kind)?;
                    }
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn push(&mut self, request: &Request, lpn: u32, kind: OpKind) -> Result<(), LabError> {
        if kind == OpKind::Write {
            let is_new = self.written.insert(lpn);
            self.tenants.written(lpn, is_new);
            self.writes += 1;
        }
        self.out.push(PageOp { time_us: request.time_us, lpn, kind, stream: request.stream })
    }

    /// The number of a page in the order of first writes; `None` for a page that is read or trimmed before.
    #[inline]
    fn numbered(&mut self, device: u32, page: u64, kind: OpKind) -> Result<Option<u32>, LabError> {
        if kind != OpKind::Write {
            return Ok(self.table.get(device, page).checked_sub(NOT_NUMBERED + 1));
        }
        let has_room = self.numbered < self.exported_pages;
        let number = match self.table.entry(device, page) {
            Some(number) if *number != NOT_NUMBERED => return Ok(Some(*number - 1)),
            Some(number) if has_room => number,
            _ => return Err(self.is_full(has_room)),
        };
        let lpn = self.numbered;
        self.numbered += 1;
        *number = self.numbered;
        Ok(Some(lpn))
    }

    #[cold]
    fn is_full(&self, has_room: bool) -> LabError {
        let exported = self.exported_pages;
        LabError::Value {
            what: "written pages of the trace",
            value: format!("over {} by request {}", self.numbered, self.requests),
            problem: if has_room {
                "there is no memory for more; choose larger pages, or name a device".into()
            } else {
                format!(
                    "the device exports {exported} pages; choose a larger one, size it from the trace, or fold the addresses"
                )
            },
        }
    }

    #[cold]
    fn past_the_end(&self, page: u64) -> LabError {
        LabError::Value {
            what: "trace address",
            value: format!("{} bytes (request {})", page.saturating_mul(self.page_bytes), self.requests),
            problem: format!(
                "past the end of the device, which exports {} pages of {} bytes; choose a larger device, fold or compact the addresses",
                self.exported_pages, self.page_bytes
            ),
        }
    }
}

/// Reads a trace, the only time that its file is read: for a device with this many exported pages, or, without it, for one
/// that exports every page that is written.
pub(crate) fn read_trace(
    source: &TraceSource,
    page_bytes: u32,
    exported_pages: Option<u32>,
) -> Result<TraceFacts, LabError> {
    let mut reader = match &source.held {
        Some(held) => held.open(&source.options),
        None => margay_trace::open(&source.path, &source.options)?,
    };
    let mut mapper = match exported_pages {
        Some(pages) => Mapper::new(source.addresses, page_bytes, pages),
        None => Mapper::new(AddressChoice::Compact, page_bytes, u32::MAX - 1),
    };
    for request in reader.by_ref() {
        mapper.map(&request?)?;
    }
    mapper.tenants.name(|device| reader.device_name(device));
    Ok(TraceFacts {
        xxh3: match &source.held {
            Some(held) => held.xxh3().into(),
            None => reader.file_hash()?.map_or_else(String::new, |hash| format!("{hash:016x}")),
        },
        format: reader.format().name().into(),
        bad_lines: reader.counts().bad_lines,
        writes: mapper.writes,
        written: mapper.written,
        numbered: mapper.numbered,
        ops: Arc::new(mapper.out.finish()?),
        tenants: mapper.tenants,
    })
}

#[derive(Debug)]
enum Pass {
    Workload { spec: WorkloadSpec, seed: u64, running: Workload },
    Trace(Unpacker),
}

/// The operations of an experiment, pass after pass.
#[derive(Debug)]
pub(crate) struct Ops {
    pass: Pass,
    pages: u32,
    passes_left: u64,
    /// Writes that are left to do; the source starts over until they are done.
    writes_left: Option<u64>,
    offset_us: u64,
    last_us: u64,
    page_writes_of_pass: u64,
    passes_done: u64,
}

impl Ops {
    pub fn new(experiment: &Experiment, pages: u32, trace: Option<&TraceFacts>) -> Result<Self, LabError> {
        let pass = match (&experiment.source, trace) {
            (Source::Workload(spec), _) => {
                let (spec, seed) = (spec.clone(), experiment.seed);
                let running = Workload::new(&spec, pages, seed)?;
                Pass::Workload { spec, seed, running }
            }
            (Source::Trace(_), Some(trace)) => Pass::Trace(Unpacker::new(Arc::clone(&trace.ops))),
            (Source::Trace(source), None) => {
                let trace = read_trace(source, experiment.device.page_bytes, Some(pages))?;
                Pass::Trace(Unpacker::new(trace.ops))
            }
        };
        let (passes_left, writes_left) = match experiment.limit {
            Limit::Once => (1, None),
            Limit::Times(times) => (u64::from(times), None),
            Limit::Writes(writes) => (u64::MAX, Some(writes)),
            Limit::DeviceWrites(_) | Limit::Steady { .. } => {
                (u64::MAX, Self::expected_writes(experiment, pages, trace))
            }
        };
        Ok(Self {
            pass,
            pages,
            passes_left,
            writes_left,
            offset_us: 0,
            last_us: 0,
            page_writes_of_pass: 0,
            passes_done: 0,
        })
    }

    /// Number of host page writes of the experiment, if it is known beforehand.
    pub fn expected_writes(experiment: &Experiment, pages: u32, trace: Option<&TraceFacts>) -> Option<u64> {
        let pass = match &experiment.source {
            Source::Workload(spec) => spec.expected_writes(),
            Source::Trace(_) => trace.map(|trace| trace.writes),
        };
        match experiment.limit {
            Limit::Once => pass,
            Limit::Times(times) => pass.map(|writes| writes.saturating_mul(times.into())),
            Limit::Writes(writes) => Some(writes),
            Limit::DeviceWrites(times) | Limit::Steady { max_device_writes: Some(times) } => {
                Some((times * f64::from(pages)) as u64)
            }
            Limit::Steady { max_device_writes: None } => {
                let passes = trace.map_or(0, |trace| trace.writes.saturating_mul(MAX_PASSES));
                Some(passes.max(MAX_DEVICE_WRITES * u64::from(pages)))
            }
        }
    }

    /// How often the source was run to its end. Operations of the batch that was handed out last belong to the pass after.
    pub fn passes_done(&self) -> u64 {
        self.passes_done
    }

    /// Puts the next operations into `out`. If it stays empty, there are none left.
    pub fn next_batch(&mut self, out: &mut Vec<PageOp>, max: usize) -> Result<(), LabError> {
        out.clear();
        while out.is_empty() && self.passes_left > 0 && self.writes_left != Some(0) {
            self.read(out, max)?;
            if out.is_empty() {
                self.passes_left -= 1;
                self.passes_done += 1;
                if self.page_writes_of_pass == 0 && self.writes_left.is_some() {
                    // A source without operations would be started over for ever.
                    self.passes_left = 0;
                }
                if self.passes_left > 0 {
                    self.start_over()?;
                }
            }
        }
        self.last_us = out.last().map_or(self.last_us, |op| op.time_us);
        let mut writes = 0;
        let keep = out.iter().position(|op| {
            let enough = self.writes_left == Some(writes);
            writes += u64::from(op.kind == OpKind::Write && !enough);
            enough
        });
        out.truncate(keep.unwrap_or(out.len()));
        self.page_writes_of_pass += writes;
        self.writes_left = self.writes_left.map(|left| left - writes);
        Ok(())
    }

    fn read(&mut self, out: &mut Vec<PageOp>, max: usize) -> Result<(), LabError> {
        let from = out.len();
        match &mut self.pass {
            Pass::Workload { running, .. } => {
                running.next_batch(out, max);
            }
            Pass::Trace(ops) => ops.next_batch(out, max)?,
        }
        if self.offset_us > 0 {
            out[from..].iter_mut().for_each(|op| op.time_us = op.time_us.saturating_add(self.offset_us));
        }
        Ok(())
    }

    fn start_over(&mut self) -> Result<(), LabError> {
        self.offset_us = self.last_us;
        self.page_writes_of_pass = 0;
        match &mut self.pass {
            Pass::Workload { spec, seed, running } => {
                *seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
                *running = Workload::new(spec, self.pages, *seed)?;
            }
            Pass::Trace(ops) => ops.start_over(),
        }
        Ok(())
    }

    /// Whether a page is never written.
    pub fn is_read_only(&self, trace: Option<&TraceFacts>, lpn: u32) -> bool {
        match (&self.pass, trace) {
            (Pass::Workload { running, .. }, _) => running.is_read_only(lpn),
            (_, Some(trace)) => !trace.written.contains(lpn),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_media::DeviceSpec;

    #[test]
    fn times_and_numbers_of_writes_of_many_passes_end_at_the_largest() {
        let mut out = Packer::new();
        let last = PageOp { time_us: u64::MAX - 1, lpn: 0, kind: OpKind::Write, stream: None };
        [PageOp { time_us: 0, ..last }, last].into_iter().for_each(|op| out.push(op).unwrap());
        let facts = TraceFacts {
            xxh3: String::new(),
            format: String::new(),
            bad_lines: 0,
            writes: u64::MAX / 2,
            written: PageSet::default(),
            numbered: 0,
            ops: Arc::new(out.finish().unwrap()),
            tenants: Tenants::default(),
        };
        let source =
            TraceSource { path: "x".into(), held: None, options: Default::default(), addresses: AddressChoice::Fold };
        let mut experiment = Experiment::new(DeviceSpec::load("ideal-1gb").unwrap(), Source::Trace(source));
        experiment.limit = Limit::Times(3);
        assert_eq!(Ops::expected_writes(&experiment, 8, Some(&facts)), Some(u64::MAX));
        let (mut ops, mut batch, mut times) = (Ops::new(&experiment, 8, Some(&facts)).unwrap(), Vec::new(), Vec::new());
        while ops.next_batch(&mut batch, 10).is_ok() && !batch.is_empty() {
            times.extend(batch.iter().map(|op| op.time_us));
        }
        assert_eq!(times, [0, u64::MAX - 1, u64::MAX - 1, u64::MAX, u64::MAX, u64::MAX]);
    }
}
