use crate::LabError;
use crate::experiment::{AddressChoice, Experiment, Limit, Source, TraceSource};
use margay_trace::{Kind, Request, TraceReader, max_footprint_pages};
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
    /// Whether a logical page is ever written.
    pub written: Vec<bool>,
    /// The operations, if they are few enough to be kept.
    pub ops: Option<Arc<Vec<PageOp>>>,
}

/// A trace with at most this many operations (16 bytes each) is kept in memory; a longer one is read from the file at
/// each pass.
const KEPT_OPS: usize = 32 << 20;

/// A prime, so that the pages of shifted devices coincide neither at the start nor at a power of two.
const DEVICE_SHIFT_PAGES: u64 = 1_000_003;

/// Turns requests into page operations on the exported pages.
#[derive(Debug)]
struct Mapper {
    choice: AddressChoice,
    page_bytes: u64,
    exported_pages: u32,
    numbered: std::collections::HashMap<(u32, u64), u32>,
    requests: u64,
}

impl Mapper {
    fn new(choice: AddressChoice, page_bytes: u32, exported_pages: u32) -> Self {
        Self { choice, page_bytes: page_bytes.into(), exported_pages, numbered: Default::default(), requests: 0 }
    }

    /// Appends an operation for every page that the request touches, in whole or in part.
    fn map(&mut self, request: &Request, offset_us: u64, out: &mut Vec<PageOp>) -> Result<(), LabError> {
        self.requests += 1;
        let kind = match request.kind {
            Kind::Write => OpKind::Write,
            Kind::Trim => OpKind::Trim,
            Kind::Read => OpKind::Read,
            Kind::Flush => return Ok(()),
        };
        let end = request.offset_bytes.saturating_add(request.len_bytes);
        let (first, last) = match kind {
            // Only pages that lie wholly in the trimmed range become invalid.
            OpKind::Trim => (request.offset_bytes.div_ceil(self.page_bytes), end / self.page_bytes),
            _ => (request.offset_bytes / self.page_bytes, end.div_ceil(self.page_bytes)),
        };
        for page in first..last {
            if let Some(lpn) = self.lpn(request.device, page, kind)? {
                out.push(PageOp { time_us: request.time_us + offset_us, lpn, kind });
            }
        }
        Ok(())
    }

    fn lpn(&mut self, device: u32, page: u64, kind: OpKind) -> Result<Option<u32>, LabError> {
        let exported = u64::from(self.exported_pages);
        match self.choice {
            // Devices are shifted against each other, so that their first pages do not coincide.
            AddressChoice::Fold => {
                let shift = u64::from(device) * DEVICE_SHIFT_PAGES;
                Ok(Some((page.wrapping_add(shift) % exported) as u32))
            }
            AddressChoice::Direct if page < exported => Ok(Some(page as u32)),
            AddressChoice::Compact => {
                let next = self.numbered.len() as u64;
                if kind != OpKind::Write {
                    return Ok(self.numbered.get(&(device, page)).copied());
                }
                if let Some(lpn) = self.numbered.get(&(device, page)) {
                    return Ok(Some(*lpn));
                }
                if next < exported && self.numbered.try_reserve(1).is_ok() {
                    self.numbered.insert((device, page), next as u32);
                    return Ok(Some(next as u32));
                }
                Err(LabError::Value {
                    what: "written pages of the trace",
                    value: format!("over {next} by request {}", self.requests),
                    problem: if next < exported {
                        "there is no memory for more; choose larger pages, or name a device".into()
                    } else {
                        format!(
                            "the device exports {exported} pages; choose a larger one, size it from the trace, or fold the addresses"
                        )
                    },
                })
            }
            AddressChoice::Direct => Err(LabError::Value {
                what: "trace address",
                value: format!("{} bytes (request {})", page.saturating_mul(self.page_bytes), self.requests),
                problem: format!(
                    "past the end of the device, which exports {exported} pages of {} bytes; choose a larger device, fold or compact the addresses",
                    self.page_bytes
                ),
            }),
        }
    }
}

/// Reads a trace once.
pub(crate) fn read_trace(source: &TraceSource, page_bytes: u32, exported_pages: u32) -> Result<TraceFacts, LabError> {
    let xxh3 = format!("{:016x}", margay_trace::hash_file(&source.path)?);
    let mut reader = margay_trace::open(&source.path, &source.options)?;
    let mut mapper = Mapper::new(source.addresses, page_bytes, exported_pages);
    let mut written = vec![false; exported_pages as usize];
    let (mut kept, mut batch) = (Some(Vec::new()), Vec::new());
    let mut writes = 0;
    for request in reader.by_ref() {
        let request = request?;
        batch.clear();
        mapper.map(&request, 0, &mut batch)?;
        for op in batch.iter().filter(|op| op.kind == OpKind::Write) {
            written[op.lpn as usize] = true;
            writes += 1;
        }
        if let Some(ops) = &mut kept {
            ops.extend_from_slice(&batch);
            if ops.len() > KEPT_OPS {
                kept = None;
            }
        }
    }
    let counts = reader.counts();
    Ok(TraceFacts {
        xxh3,
        format: reader.format().name().into(),
        bad_lines: counts.bad_lines,
        writes,
        written,
        ops: kept.map(Arc::new),
    })
}

/// Number of distinct pages that a trace writes.
pub(crate) fn footprint_pages(source: &TraceSource, page_bytes: u32) -> Result<u32, LabError> {
    let mut mapper = Mapper::new(AddressChoice::Compact, page_bytes, u32::MAX - 1);
    let (mut batch, max_pages) = (Vec::new(), max_footprint_pages());
    for request in margay_trace::open(&source.path, &source.options)? {
        batch.clear();
        mapper.map(&request?, 0, &mut batch)?;
        if mapper.numbered.len() as u64 > max_pages {
            return Err(LabError::Value {
                what: "written pages of the trace",
                value: format!("over {max_pages} by request {}", mapper.requests),
                problem: "there is no memory for more; choose larger pages, or name a device".into(),
            });
        }
    }
    Ok(mapper.numbered.len() as u32)
}

enum Pass {
    Workload { spec: WorkloadSpec, seed: u64, running: Workload },
    Kept { ops: Arc<Vec<PageOp>>, next: usize },
    File { source: TraceSource, reader: Box<TraceReader>, mapper: Mapper },
}

/// The operations of an experiment, pass after pass.
pub(crate) struct Ops {
    pass: Pass,
    pages: u32,
    passes_left: u64,
    /// Writes that are left to do; the source starts over until they are done.
    writes_left: Option<u64>,
    offset_us: u64,
    last_us: u64,
    page_writes_of_pass: u64,
}

impl Ops {
    pub fn new(experiment: &Experiment, pages: u32, trace: Option<&TraceFacts>) -> Result<Self, LabError> {
        let pass = match (&experiment.source, trace) {
            (Source::Workload(spec), _) => {
                let (spec, seed) = (spec.clone(), experiment.seed);
                let running = Workload::new(&spec, pages, seed)?;
                Pass::Workload { spec, seed, running }
            }
            (Source::Trace(_), Some(TraceFacts { ops: Some(ops), .. })) => Pass::Kept { ops: Arc::clone(ops), next: 0 },
            (Source::Trace(source), _) => {
                let reader = Box::new(margay_trace::open(&source.path, &source.options)?);
                let mapper = Mapper::new(source.addresses, experiment.device.page_bytes, pages);
                Pass::File { source: source.clone(), reader, mapper }
            }
        };
        let (passes_left, writes_left) = match experiment.limit {
            Limit::Once => (1, None),
            Limit::Times(times) => (u64::from(times), None),
            Limit::Writes(writes) => (u64::MAX, Some(writes)),
            Limit::DeviceWrites(times) => (u64::MAX, Some((times * f64::from(pages)) as u64)),
        };
        Ok(Self { pass, pages, passes_left, writes_left, offset_us: 0, last_us: 0, page_writes_of_pass: 0 })
    }

    /// Number of host page writes of the experiment, if it is known beforehand.
    pub fn expected_writes(experiment: &Experiment, pages: u32, trace: Option<&TraceFacts>) -> Option<u64> {
        let pass = match &experiment.source {
            Source::Workload(spec) => spec.expected_writes(),
            Source::Trace(_) => trace.map(|trace| trace.writes),
        };
        match experiment.limit {
            Limit::Once => pass,
            Limit::Times(times) => pass.map(|writes| writes * u64::from(times)),
            Limit::Writes(writes) => Some(writes),
            Limit::DeviceWrites(times) => Some((times * f64::from(pages)) as u64),
        }
    }

    /// Puts the next operations into `out`. If it stays empty, there are none left.
    pub fn next_batch(&mut self, out: &mut Vec<PageOp>, max: usize) -> Result<(), LabError> {
        out.clear();
        while out.is_empty() && self.passes_left > 0 && self.writes_left != Some(0) {
            self.read(out, max)?;
            if out.is_empty() {
                self.passes_left -= 1;
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
            Pass::Kept { ops, next } => {
                let end = ops.len().min(*next + max);
                out.extend_from_slice(&ops[*next..end]);
                *next = end;
            }
            Pass::File { reader, mapper, .. } => {
                while out.len() < max {
                    let Some(request) = reader.next() else { break };
                    mapper.map(&request?, 0, out)?;
                }
            }
        }
        if self.offset_us > 0 {
            out[from..].iter_mut().for_each(|op| op.time_us += self.offset_us);
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
            Pass::Kept { next, .. } => *next = 0,
            Pass::File { source, reader, mapper } => {
                **reader = margay_trace::open(&source.path, &source.options)?;
                mapper.requests = 0;
            }
        }
        Ok(())
    }

    /// Whether a page is never written.
    pub fn is_read_only(&self, trace: Option<&TraceFacts>, lpn: u32) -> bool {
        match (&self.pass, trace) {
            (Pass::Workload { running, .. }, _) => running.is_read_only(lpn),
            (_, Some(trace)) => !trace.written[lpn as usize],
            _ => false,
        }
    }
}
