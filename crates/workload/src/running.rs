use crate::pattern::Source;
use crate::permutation::Permutation;
use crate::spec::{Arrival, Pattern, WorkloadSpec};
use crate::zipf::unit;
use crate::{OpKind, PageOp, WorkloadError};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A running workload: an iterator over its operations.
#[derive(Clone, Debug)]
pub struct Workload {
    phases: Vec<Phase>,
    current: usize,
    rounds_left: u32,
    generator: Xoshiro256PlusPlus,
    clock: f64,
    pages: u32,
}

#[derive(Clone, Debug)]
struct Phase {
    spec: WorkloadSpec,
    source: Source,
    /// Pages that may be written: those below this number, or, with `scatter`, those whose index is below it.
    writable: u32,
    scatter: Option<Permutation>,
    left: u64,
}

impl Phase {
    fn new(spec: &WorkloadSpec, pages: u32, seed: u64) -> Result<Self, WorkloadError> {
        let writable = pages - (spec.read_only * f64::from(pages)).round() as u32;
        let needed = if matches!(spec.pattern, Pattern::HotCold { .. } | Pattern::Moving { .. } | Pattern::Log { .. }) {
            2
        } else {
            1
        };
        if writable < needed {
            let value = format!("{writable} of {pages}");
            return Err(WorkloadError::value("writable pages", value, format!("at least {needed}")));
        }
        // Read-only pages are scattered among the others; only a sequential workload has them at the end.
        let scatters = writable < pages && spec.pattern != Pattern::Sequential;
        Ok(Self {
            source: Source::new(&spec.pattern, writable, seed ^ 0xA5A5),
            writable,
            scatter: scatters.then(|| Permutation::new(pages, seed ^ 0x5A5A)),
            left: spec.writes.unwrap_or(u64::MAX),
            spec: spec.clone(),
        })
    }

    fn is_read_only(&self, lpn: u32) -> bool {
        self.writable <= self.scatter.map_or(lpn, |permutation| permutation.index(lpn))
    }
}

impl Workload {
    /// Starts a workload on logical pages `0..pages`. It is an error if a parameter is outside its range or no page may
    /// be written.
    pub fn new(spec: &WorkloadSpec, pages: u32, seed: u64) -> Result<Self, WorkloadError> {
        spec.check()?;
        if pages == 0 {
            return Err(WorkloadError::value("pages", 0, "at least one page"));
        }
        let (rounds_left, phases) = match &spec.pattern {
            Pattern::Phases { repeat, phases } => {
                if phases.iter().any(|phase| matches!(phase.pattern, Pattern::Phases { .. })) {
                    return Err(WorkloadError::value("phase", "phases", "phases that are not made of phases"));
                }
                (*repeat, phases.iter().map(|phase| Phase::new(phase, pages, seed)).collect::<Result<_, _>>()?)
            }
            _ => (1, vec![Phase::new(spec, pages, seed)?]),
        };
        let generator = Xoshiro256PlusPlus::seed_from_u64(seed);
        Ok(Self { phases, current: 0, rounds_left, generator, clock: 0.0, pages })
    }

    /// Appends up to `max` operations to `out`. Returns how many were appended, which is 0 only at the end.
    pub fn next_batch(&mut self, out: &mut Vec<PageOp>, max: usize) -> usize {
        let before = out.len();
        while out.len() - before < max && self.rounds_left > 0 {
            let phase = &mut self.phases[self.current];
            if phase.left > 0 {
                let room = max - (out.len() - before);
                phase.run(&mut self.generator, &mut self.clock, out, room);
            }
            if phase.left == 0 {
                phase.left = phase.spec.writes.unwrap_or(u64::MAX);
                self.current += 1;
                if self.current == self.phases.len() {
                    self.current = 0;
                    self.rounds_left -= 1;
                }
            }
        }
        out.len() - before
    }

    /// Whether a page is never written or trimmed.
    pub fn is_read_only(&self, lpn: u32) -> bool {
        self.phases.iter().all(|phase| phase.is_read_only(lpn))
    }

    /// The number of pages that are never written or trimmed.
    pub fn read_only_pages(&self) -> u32 {
        if self.phases.iter().all(|phase| phase.writable == self.pages) {
            return 0;
        }
        (0..self.pages).filter(|lpn| self.is_read_only(*lpn)).count() as u32
    }
}

impl Phase {
    fn run(&mut self, generator: &mut Xoshiro256PlusPlus, clock: &mut f64, out: &mut Vec<PageOp>, max: usize) {
        let end = out.len() + max;
        out.reserve(max);
        let (spec, scatter, left) = (&self.spec, self.scatter, &mut self.left);
        if spec.reads + spec.trims == 0.0 && scatter.is_none() && spec.arrival == Arrival::Asap {
            let time_us = *clock as u64;
            self.source.draw(self.writable, generator, |_, lpn, stream| {
                out.push(PageOp { time_us, lpn, kind: OpKind::Write, stream });
                *left -= 1;
                *left > 0 && out.len() < end
            });
            return;
        }
        self.source.draw(self.writable, generator, |generator, page, stream| {
            *clock += match spec.arrival {
                Arrival::Asap => 0.0,
                Arrival::Fixed(gap) => gap,
                Arrival::Poisson(gap) => -libm::log(1.0 - unit(generator)) * gap,
            };
            let kind = if spec.reads + spec.trims == 0.0 { OpKind::Write } else { kind(spec, generator) };
            let lpn = scatter.map_or(page, |permutation| permutation.image(page));
            out.push(PageOp { time_us: *clock as u64, lpn, kind, stream });
            *left -= u64::from(kind == OpKind::Write);
            *left > 0 && out.len() < end
        });
    }
}

fn kind(spec: &WorkloadSpec, generator: &mut impl Rng) -> OpKind {
    let draw = unit(generator);
    if draw < spec.reads {
        OpKind::Read
    } else if draw < spec.reads + spec.trims {
        OpKind::Trim
    } else {
        OpKind::Write
    }
}

impl Iterator for Workload {
    type Item = PageOp;

    fn next(&mut self) -> Option<PageOp> {
        let mut one = Vec::with_capacity(1);
        self.next_batch(&mut one, 1);
        one.pop()
    }
}
