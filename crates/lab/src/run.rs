use crate::disk::{MeasuredDisk, build_placing, fill, run_ops};
use crate::expected::theory_wa;
use crate::experiment::{AddressChoice, Capacity, Experiment, Source};
use crate::future::Told;
use crate::ops::{Ops, TraceFacts};
use crate::placed::Placed;
use crate::recorder::Recorder;
use crate::result::{Outcome, ResultRow, SCHEMA_VERSION};
use crate::sources::Sources;
use crate::{Forecast, LabError, Wear, WorkMeter};
use margay_log::Hint;
use margay_policy::State;
use std::time::Instant;

/// The progress of a run.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Host page writes done.
    pub writes: u64,
    /// Host page writes to be done, where that is known.
    pub expected: Option<u64>,
}

/// The greatest number of operations of a batch, and about as many are between two reports of progress.
pub(crate) const BATCH: usize = 4096;
/// A source that was read once and can be run many times.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub(crate) trace: Option<TraceFacts>,
    pub(crate) exported_pages: u32,
}

/// Reads an experiment's trace once. Experiments that differ in policies and marks alone share the result.
pub fn prepare(experiment: &Experiment) -> Result<Prepared, LabError> {
    prepare_of(experiment, &Sources::default())
}

/// The same, with traces that were read before.
pub(crate) fn prepare_of(experiment: &Experiment, sources: &Sources) -> Result<Prepared, LabError> {
    experiment.check()?;
    let trace = match &experiment.source {
        Source::Workload(_) => None,
        Source::Trace(source) => {
            let pages = experiment.exported_pages()?;
            Some(sources.read(source, experiment.device.page_bytes, Some(pages))?)
        }
    };
    with_source(experiment, trace)
}

/// An experiment's source, if it can be run.
fn with_source(experiment: &Experiment, trace: Option<TraceFacts>) -> Result<Prepared, LabError> {
    experiment.check()?;
    let exported_pages = experiment.exported_pages()?;
    if trace.is_none() && Ops::expected_writes(experiment, exported_pages, None).is_none() {
        return Err(LabError::Value {
            what: "workload",
            value: experiment.source.name(),
            problem: "has no end: give it writes=N, or say how many writes or device writes to run".into(),
        });
    }
    if trace.as_ref().is_some_and(|trace| trace.writes == 0) {
        return Err(LabError::Value {
            what: "trace",
            value: experiment.source.name(),
            problem: "holds no write, so there is nothing to measure".into(),
        });
    }
    Ok(Prepared { trace, exported_pages })
}

/// Gives the experiment the smallest device of its part that exports every page the trace writes, at the
/// utilization or over-provisioning asked for. Returns the trace as [`prepare`] would then, so that its file is read only
/// once.
///
/// # Errors
/// The source is no trace, the trace cannot be read or writes nothing, or no device of the part can be so large.
pub fn size_from_trace(experiment: &mut Experiment) -> Result<Prepared, LabError> {
    size_from_trace_of(experiment, &Sources::default())
}

/// The same, with traces that were read before.
pub(crate) fn size_from_trace_of(experiment: &mut Experiment, sources: &Sources) -> Result<Prepared, LabError> {
    let Source::Trace(source) = &mut experiment.source else {
        let value = experiment.source.name();
        return Err(LabError::Value { what: "source", value, problem: "only a trace can size the device".into() });
    };
    source.addresses = AddressChoice::Compact;
    let trace = sources.read(source, experiment.device.page_bytes, None)?;
    let pages = trace.numbered.max(1);
    let per_segment = experiment.config().data_pages(&experiment.device.geometry()?).max(1);
    let share = match experiment.capacity {
        Capacity::Utilization(u) => u,
        Capacity::OverProvisioning(op) => 1.0 / (1.0 + op),
        Capacity::Largest(share) => share,
        Capacity::Pages(_) => 1.0,
    };
    let data_pages = f64::from(pages) / share.clamp(0.01, 1.0);
    let held = experiment.reserved_segments;
    let segments = (data_pages / f64::from(per_segment)).ceil().max(2.0) as u32;
    experiment.device.segments = segments.saturating_add(held);
    // With a small footprint the free and the open segments need more room than utilization leaves.
    let config = experiment.config();
    while config.limit_pages(&experiment.device.geometry()?, 8).map_or(true, |limit| limit < pages) {
        experiment.device.segments += 1;
    }
    experiment.capacity = Capacity::Pages(pages);
    with_source(experiment, Some(trace))
}

/// Runs an experiment to its end.
///
/// ```
/// use margay_lab::{Experiment, Limit, Source, run};
/// use margay_media::DeviceSpec;
///
/// let device = DeviceSpec::load("spi-nor-16mb")?;
/// let mut experiment = Experiment::new(device, Source::Workload("hot-cold:90/10".parse()?));
/// experiment.selection = "cat".parse()?;
/// experiment.limit = Limit::DeviceWrites(2.0);
/// let outcome = run(&experiment, &mut |_| true)?;
/// assert!(outcome.row.wa > 1.0 && outcome.row.erases > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// `progress` is called every few thousand operations and stops the run by
/// returning false.
pub fn run(experiment: &Experiment, progress: &mut dyn FnMut(Step) -> bool) -> Result<Outcome, LabError> {
    run_prepared(experiment, &prepare(experiment)?, progress)
}

/// Runs an experiment whose source was prepared.
pub fn run_prepared(
    experiment: &Experiment,
    prepared: &Prepared,
    progress: &mut dyn FnMut(Step) -> bool,
) -> Result<Outcome, LabError> {
    let pages = prepared.exported_pages;
    let trace = prepared.trace.as_ref();
    let (mut disk, placing) = build_placing(experiment, pages)?;
    experiment.own.check()?;
    let mut ops = Ops::new(experiment, pages, trace)?;
    let filled = (experiment.fill * f64::from(pages)).round() as u32;
    let is_read_only = |lpn: u32| ops.is_read_only(trace, lpn);
    let read_only_pages = (0..filled).filter(|lpn| is_read_only(*lpn)).count() as u32;
    let mut told = match &placing {
        Some(placing) => Told::Placed(Box::new(Placed::new(placing, experiment, pages, trace, filled)?)),
        None => Told::of(experiment, pages, trace)?,
    };
    let hint = |lpn: u32| match experiment.separate_read_only && is_read_only(lpn) {
        true => Hint::ReadOnly,
        false => told.of_fill(lpn),
    };
    let result = fill(&mut disk, filled, &hint);
    experiment.own.check()?;
    result.map_err(|error| LabError::Stopped { writes: 0, error })?;
    disk.reset_counters();
    let mut tenants = trace.and_then(|trace| trace.tenants.watch(&mut disk));

    let expected = Ops::expected_writes(experiment, pages, trace);
    let mut recorder = Recorder::new(&disk, experiment, prepared, expected);
    let mut work = WorkMeter::new(experiment.device.timing);
    let mut batch = Vec::with_capacity(2 * BATCH);
    let started = Instant::now();
    let mut last_us = 0;
    // The first batch is reported in any case.
    let mut since_report = BATCH;
    loop {
        ops.next_batch(&mut batch, recorder.max_ops(disk.log().counters().host_writes))?;
        recorder.passes_done(&disk, ops.passes_done());
        if recorder.may_end() {
            break;
        }
        let Some(last) = batch.last() else { break };
        last_us = last.time_us;
        let result = run_ops(&mut disk, &batch, &mut told, &mut work);
        let writes = disk.log().counters().host_writes;
        // What the disk could not do then is the policy's fault.
        experiment.own.check()?;
        result.map_err(|error| LabError::Stopped { writes, error })?;
        if let Some(tenants) = &mut tenants {
            tenants.count(&batch);
        }
        recorder.look(&disk, last_us);
        // Batches are short where marks are close to each other.
        since_report += batch.len();
        if since_report >= BATCH {
            since_report = 0;
            if !progress(Step { writes, expected }) {
                return Err(LabError::Interrupted { writes });
            }
        }
    }
    let wall_s = started.elapsed().as_secs_f64();
    let done = disk.log().counters().host_writes;
    let is_steady = recorder.may_end();
    if let Some(asked) = expected.filter(|asked| done < *asked && !is_steady) {
        return Err(LabError::Short {
            what: if trace.is_some() { "trace" } else { "workload" },
            done,
            asked,
            advice: "ask for fewer writes, or for as many as it holds",
        });
    }
    recorder.last(&disk, last_us);
    let outcome =
        Finish { experiment, prepared, filled, read_only_pages, work, wall_s, duration_s: last_us as f64 / 1e6 };
    let tenants = tenants.map_or_else(Vec::new, |tenants| tenants.rows(&disk));
    Ok(Outcome { tenants, ..outcome.outcome(&disk, recorder) })
}

struct Finish<'a> {
    experiment: &'a Experiment,
    prepared: &'a Prepared,
    filled: u32,
    read_only_pages: u32,
    work: WorkMeter,
    wall_s: f64,
    duration_s: f64,
}

impl Finish<'_> {
    fn outcome(self, disk: &MeasuredDisk, recorder: Recorder) -> Outcome {
        let (experiment, device) = (self.experiment, &self.experiment.device);
        let counters = disk.log().counters();
        let segments = disk.log().segments();
        let state = disk.log().uniformity();
        let data_segments = device.segments - experiment.reserved_segments;
        let data_pages = f64::from(data_segments) * f64::from(segments.data_pages);
        let host_bytes = counters.host_writes as f64 * f64::from(device.page_bytes);
        let timing = device.timing;
        let programs = (counters.host_writes + counters.metadata_pages) as f64;
        let flash_us = programs * timing.program_us
            + counters.copies as f64 * timing.copy_us()
            + counters.erases as f64 * timing.erase_us;
        let energy_j = device.energy.map(|energy| {
            let uj = counters.programs() as f64 * energy.program_uj
                + counters.copies as f64 * energy.read_uj
                + counters.erases as f64 * energy.erase_uj;
            uj / 1e6
        });
        let window = recorder.window();
        let open = segments.state.iter().filter(|state| **state == State::Open).count() as u32;
        let idle = f64::from(open + experiment.low_water - 1) * f64::from(segments.data_pages);
        let effective = (data_pages - idle) / f64::from(self.prepared.exported_pages);
        let victims: u64 = counters.victims.iter().sum();
        let victim_pages: u64 = counters.victims.iter().zip(0u64..).map(|(count, valid)| count * valid).sum();
        let victim_utilization = victim_pages as f64 / (victims.max(1) as f64 * f64::from(segments.data_pages));
        let usable = &segments.erases[experiment.reserved_segments as usize..];
        let trace = self.prepared.trace.as_ref();
        let mut row = ResultRow {
            schema_version: SCHEMA_VERSION,
            margay_version: env!("CARGO_PKG_VERSION").into(),
            seed: experiment.seed,
            source: experiment.source.name(),
            trace_xxh3: trace.map_or_else(String::new, |trace| trace.xxh3.clone()),
            trace_format: trace.map_or_else(String::new, |trace| trace.format.clone()),
            bad_lines: trace.map_or(0, |trace| trace.bad_lines),
            device: device.name.clone(),
            segments: device.segments,
            pages_per_segment: device.pages_per_segment,
            data_pages_per_segment: segments.data_pages,
            page_bytes: device.page_bytes,
            reserved_segments: experiment.reserved_segments,
            exported_pages: self.prepared.exported_pages,
            filled_pages: self.filled,
            read_only_pages: self.read_only_pages,
            over_provisioning: data_pages / f64::from(self.prepared.exported_pages) - 1.0,
            effective_over_provisioning: effective - 1.0,
            low_water: experiment.low_water,
            high_water: experiment.config().high_water,
            max_pages_per_write: experiment.max_pages_per_write,
            separate_read_only: experiment.separate_read_only,
            selection: experiment.selection_name(),
            placement: experiment.placement_name(),
            leveling: experiment.leveling.to_string(),
            host_writes: counters.host_writes,
            host_reads: counters.host_reads,
            trims: counters.trims,
            copies: counters.copies,
            leveling_copies: counters.leveling_copies,
            metadata_pages: counters.metadata_pages,
            erases: counters.erases,
            misplaced_copies: counters.misplaced_copies,
            wa: counters.write_amplification().unwrap_or(f64::NAN),
            wa_warm: window.wa.mean,
            wa_warm_half95: window.wa.half95,
            warm_from: window.from,
            warm_to: window.to,
            theory_wa: theory_wa(experiment, segments.data_pages, effective),
            warm_rule: window.rule.into(),
            settled: window.unsettled.is_none(),
            unsettled: window.unsettled.clone().unwrap_or_default(),
            erases_min: 0,
            erases_p50: 0,
            erases_p99: 0,
            erases_max: 0,
            erases_mean: 0.0,
            erases_deviation: 0.0,
            utilization: state.utilization,
            invalidity: state.invalidity,
            uniformity: state.uniformity,
            victim_utilization,
            flash_s: flash_us / 1e6,
            throughput_bytes_per_s: host_bytes / (flash_us / 1e6),
            energy_j,
            worst_write_us: self.work.worst_us(),
            p99_write_us: self.work.quantile_us(0.99),
            worst_write_pages: self.work.worst_programs(),
            duration_s: self.duration_s,
            forecast: Forecast::new(
                usable,
                device.endurance_erases,
                experiment.worn_share,
                host_bytes,
                self.duration_s,
            ),
            wall_s: self.wall_s,
            writes_per_s: counters.host_writes as f64 / self.wall_s.max(1e-9),
        };
        row.set_wear(Wear::of(&segments.erases));
        let (victims, erases) = (counters.victims.clone(), segments.erases.clone());
        let maps = recorder.maps.finish(disk);
        Outcome { row, series: recorder.series, victims, erases, maps, tenants: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::TraceSource;
    use crate::packed::Packer;
    use margay_media::DeviceSpec;
    use margay_workload::{OpKind, PageOp};
    use std::sync::Arc;

    /// The end of a run of a trace that was said to hold `writes` writes, and holds one of each of these pages.
    fn end(writes: u64, lpns: &[u32]) -> LabError {
        let mut device = DeviceSpec::load("ideal-1gb").unwrap();
        (device.segments, device.pages_per_segment) = (64, 16);
        let source =
            TraceSource { path: "x".into(), held: None, options: Default::default(), addresses: AddressChoice::Fold };
        let mut experiment = Experiment::new(device, Source::Trace(source));
        experiment.capacity = Capacity::Pages(500);
        let mut ops = Packer::new();
        lpns.iter()
            .for_each(|lpn| ops.push(PageOp { time_us: 0, lpn: *lpn, kind: OpKind::Write, stream: None }).unwrap());
        let facts = TraceFacts {
            xxh3: String::new(),
            format: "csv".into(),
            bad_lines: 0,
            writes,
            written: Default::default(),
            numbered: 0,
            ops: Arc::new(ops.finish().unwrap()),
            tenants: Default::default(),
        };
        run_prepared(&experiment, &Prepared { trace: Some(facts), exported_pages: 500 }, &mut |_| true).unwrap_err()
    }

    #[test]
    fn an_error_of_the_engine_says_after_how_many_writes_it_stopped() {
        let error = end(4, &[3, 3, 500, 4]);
        assert!(matches!(error, LabError::Stopped { writes: 2, .. }), "{error:?}");
        assert!(error.to_string().starts_with("stopped after 2 host writes: "), "{error}");
    }

    #[test]
    fn a_trace_that_ends_early_says_how_much_was_done_and_asked() {
        let error = end(9, &[3, 4]);
        assert!(matches!(error, LabError::Short { what: "trace", done: 2, asked: 9, .. }), "{error:?}");
        assert!(error.to_string().contains("the trace ended after 2 host page writes of 9 asked"), "{error}");
    }
}
