//! What is written down while an experiment runs: samples over time, and the marks from which the warm window is found.

use crate::disk::MeasuredDisk;
use crate::experiment::{Experiment, Limit};
use crate::result::Sample;
use crate::run::{BATCH, Prepared};
use crate::segment_map::SegmentMaps;
use crate::steady::{Mark, Rule, Size, WarmWindow, window};
use crate::wear::Wear;
use margay_log::Counters;

/// The greatest number of samples kept. When there are more, every second one is dropped.
const SAMPLES: usize = 400;
/// The greatest number of marks kept, likewise.
const MARKS: usize = 4000;
/// Marks while the host writes the exported capacity once.
const MARKS_PER_DEVICE_WRITE: u64 = 100;
/// Writes between two marks of a small device.
const FEWEST_WRITES: u64 = 64;
/// Device writes before it is asked for the first time whether a run has settled, and by how much more each time after.
const FIRST_LOOK: f64 = 4.0;
const NEXT_LOOK: f64 = 1.2;

/// Drops every second entry: `keep` is 1 if the first one stays, 0 if the second does.
pub(crate) fn halve<T>(entries: &mut Vec<T>, keep: usize) {
    let mut index = 0;
    entries.retain(|_| {
        index += 1;
        index % 2 == keep
    });
}

/// Takes the samples and the marks.
pub(crate) struct Recorder {
    pub series: Vec<Sample>,
    pub maps: SegmentMaps,
    every: u64,
    next: u64,
    before: Counters,
    rule: Rule,
    /// With [`Rule::Fixed`] the share that is left out, and the write at which the window starts, if that is known.
    fixed: (f64, Option<u64>),
    fixed_mark: Option<Mark>,
    marks: Vec<Mark>,
    mark_every: u64,
    next_mark: u64,
    /// Writes of a pass of the trace, passes that are done, and passes between two marks.
    pass_writes: u64,
    passes: u64,
    pass_step: u64,
    size: Size,
    /// Host writes at which it is asked next whether the run has settled.
    next_look: Option<f64>,
    is_known: bool,
}

fn mark(disk: &MeasuredDisk) -> Mark {
    let counters = disk.log().counters();
    let programs = counters.host_writes + counters.copies + counters.metadata_pages;
    Mark { writes: counters.host_writes, programs, erases: counters.erases }
}

impl Recorder {
    pub fn new(disk: &MeasuredDisk, experiment: &Experiment, prepared: &Prepared, expected: Option<u64>) -> Self {
        let exported = u64::from(prepared.exported_pages);
        let pass_writes = prepared.trace.as_ref().map_or(u64::MAX, |trace| trace.writes);
        let is_repeated = expected.is_some_and(|writes| writes / 2 >= pass_writes);
        let rule = match experiment.warm_up {
            Some(_) => Rule::Fixed,
            None if is_repeated => Rule::Passes,
            None => Rule::Mser5,
        };
        let until_steady = matches!(experiment.limit, Limit::Steady { .. });
        let length = expected.map(|writes| if until_steady { writes.min(10 * exported) } else { writes });
        let every = length.map_or(1024, |writes| (writes / (SAMPLES as u64 / 2)).max(1));
        let share = experiment.warm_up.unwrap_or(0.0);
        let mark_every = (exported / MARKS_PER_DEVICE_WRITE).max(FEWEST_WRITES);
        let segments = disk.log().segments();
        let used = segments.erases.len() as u64 - u64::from(experiment.reserved_segments);
        Self {
            series: Vec::new(),
            maps: SegmentMaps::new(),
            every,
            next: every,
            before: disk.log().counters().clone(),
            rule,
            fixed: (share, expected.map(|writes| (writes as f64 * share) as u64)),
            fixed_mark: (share == 0.0).then(|| mark(disk)),
            marks: vec![mark(disk)],
            mark_every,
            next_mark: mark_every,
            pass_writes,
            passes: 0,
            pass_step: 1,
            size: Size { data_pages: used * u64::from(segments.data_pages), exported_pages: exported },
            next_look: until_steady.then_some(FIRST_LOOK * exported as f64),
            is_known: false,
        }
    }

    /// How many operations may be done before the next report, so that marks and the warm window are at the right writes.
    pub fn max_ops(&self, writes: u64) -> usize {
        let stops = [self.fixed.1.unwrap_or(0), if self.rule == Rule::Passes { 0 } else { self.next_mark }];
        let next = stops.into_iter().filter(|stop| *stop > writes).map(|stop| stop - writes).min();
        next.map_or(BATCH, |left| BATCH.min(left as usize))
    }

    /// The source was run to its end so often, and everything of these passes was done.
    pub fn passes_done(&mut self, disk: &MeasuredDisk, passes: u64) {
        if passes == self.passes {
            return;
        }
        self.passes = passes;
        if self.rule == Rule::Passes && passes.is_multiple_of(self.pass_step) {
            self.marks.push(mark(disk));
            if self.marks.len() > MARKS {
                // The first mark is the start of the run.
                halve(&mut self.marks, 1);
                self.pass_step *= 2;
            }
            self.look_for_the_end(disk.log().counters().host_writes);
        }
    }

    /// Whether the run may end because it has settled, and was to run until then.
    pub fn may_end(&self) -> bool {
        self.is_known
    }

    fn look_for_the_end(&mut self, writes: u64) {
        if let Some(at) = self.next_look.filter(|at| writes as f64 >= *at) {
            self.is_known = self.window().is_known();
            self.next_look = Some(at.max(writes as f64 / NEXT_LOOK) * NEXT_LOOK);
        }
    }

    /// Looks at the disk after a batch of operations.
    pub fn look(&mut self, disk: &MeasuredDisk, now_us: u64) {
        let writes = disk.log().counters().host_writes;
        if self.fixed_mark.is_none() && self.fixed.1.is_some_and(|from| writes >= from) {
            self.fixed_mark = Some(mark(disk));
        }
        if self.rule != Rule::Passes && writes >= self.next_mark {
            self.marks.push(mark(disk));
            if self.marks.len() > MARKS {
                halve(&mut self.marks, 1);
                self.mark_every *= 2;
            }
            self.next_mark = (writes / self.mark_every + 1) * self.mark_every;
            self.look_for_the_end(writes);
        }
        if writes < self.next {
            return;
        }
        self.sample(disk, now_us);
        if self.series.len() == SAMPLES {
            halve(&mut self.series, 0);
            self.every *= 2;
        }
        self.next = writes + self.every;
    }

    fn sample(&mut self, disk: &MeasuredDisk, now_us: u64) {
        let counters = disk.log().counters();
        let state = disk.log().uniformity();
        self.series.push(Sample {
            host_writes: counters.host_writes,
            time_s: now_us as f64 / 1e6,
            wa: counters.since(&self.before).write_amplification().unwrap_or(f64::NAN),
            erases: counters.erases,
            utilization: state.utilization,
            invalidity: state.invalidity,
            uniformity: state.uniformity,
            erases_deviation: Wear::of(&disk.log().segments().erases).deviation,
        });
        self.before = counters.clone();
        self.maps.look(disk);
    }

    /// Looks at the disk at the end of the run.
    pub fn last(&mut self, disk: &MeasuredDisk, now_us: u64) {
        let writes = disk.log().counters().host_writes;
        if self.series.last().is_none_or(|sample| sample.host_writes < writes) {
            self.sample(disk, now_us);
        }
        if self.rule == Rule::Passes {
            // A pass whose last operation is a write ends with the run, without the source having been asked for more.
            self.passes_done(disk, self.passes.max(writes / self.pass_writes));
        } else if self.marks.last().is_some_and(|last| last.writes < writes) {
            // What is less than half of a step would be an observation of its own of few writes.
            let is_short = self.marks.last().is_some_and(|last| writes - last.writes < self.mark_every / 2);
            if is_short && self.marks.len() > 2 {
                self.marks.pop();
            }
            self.marks.push(mark(disk));
        }
    }

    /// The warm window of the run so far.
    pub fn window(&self) -> WarmWindow {
        if self.rule != Rule::Fixed {
            return window(self.rule, &self.marks, self.size);
        }
        let end = self.marks.last().map_or(0, |mark| mark.writes);
        let from = self.fixed.1.unwrap_or((end as f64 * self.fixed.0) as u64);
        let start = self.fixed_mark.or_else(|| self.marks.iter().rfind(|mark| mark.writes <= from).copied());
        let later = self.marks.iter().filter(|mark| mark.writes > from).copied();
        window(self.rule, &start.into_iter().chain(later).collect::<Vec<_>>(), self.size)
    }
}
