use crate::LabError;
use crate::experiment::Experiment;
use crate::future::Told;
use crate::own::OwnPair;
use crate::placed::Placing;
use crate::work::WorkMeter;
use margay_flash::Lpn;
use margay_format::Plain;
use margay_ftl::{Ftl, FtlError};
use margay_log::{Hint, LogError, Policies};
use margay_media::NullFlash;
use margay_policy::Sizing;
use margay_workload::{OpKind, PageOp};

/// A disk on a device without payload.
pub type MeasuredDisk = Ftl<Plain<NullFlash>>;

/// Writes the initial content: pages `0..pages`, each with its hint.
pub(crate) fn fill(disk: &mut MeasuredDisk, pages: u32, hint: &dyn Fn(u32) -> Hint) -> Result<(), FtlError> {
    (0..pages).try_for_each(|lpn| disk.fill(Lpn(lpn), &[], hint(lpn)))
}

/// Carries out operations in order. On an error, the operations before the failed one have been done.
pub(crate) fn run_ops(
    disk: &mut MeasuredDisk,
    ops: &[PageOp],
    told: &mut Told,
    work: &mut WorkMeter,
) -> Result<(), FtlError> {
    let before = disk.log().counters().host_writes;
    let result = run_batch(disk, ops, told, work);
    work.count_writes(disk.log().counters().host_writes - before);
    result
}

fn run_batch(disk: &mut MeasuredDisk, ops: &[PageOp], told: &mut Told, work: &mut WorkMeter) -> Result<(), FtlError> {
    let done = |disk: &MeasuredDisk| {
        let counters = disk.log().counters();
        (counters.copies, counters.metadata_pages, counters.erases)
    };
    let is_paced = disk.log().config().is_paced();
    let is_plain = !disk.counts_copies() && told.is_nothing();
    for same in ops.chunk_by(|a, b| a.kind == b.kind) {
        let mut ops = same.iter().map(|op| (Lpn(op.lpn), op.time_us));
        // What trims caused is no work of the write that follows.
        let mut before = done(disk);
        match same[0].kind {
            // Any write may have caused cleaning, or the account of the segments is looked at between writes.
            OpKind::Write if is_paced || told.looks_at_the_disk() => {
                for op in same {
                    let hint = told.of_next_write(op, disk);
                    disk.write_run_hinted(&mut std::iter::once((Lpn(op.lpn), hint, op.time_us)))?;
                    let after = done(disk);
                    if after != before {
                        work.record(after.0 - before.0, after.1 - before.1, after.2 - before.2);
                        before = after;
                    }
                }
            }
            OpKind::Write => {
                let mut hinted = same.iter().map(|op| (Lpn(op.lpn), told.of_write(op), op.time_us));
                while if is_plain { disk.write_run(&mut ops)? } else { disk.write_run_hinted(&mut hinted)? } {
                    let after = done(disk);
                    work.record(after.0 - before.0, after.1 - before.1, after.2 - before.2);
                    before = after;
                }
            }
            OpKind::Trim => ops.try_for_each(|(lpn, now_us)| disk.trim(lpn, now_us))?,
            OpKind::Read => ops.try_for_each(|(lpn, _)| disk.read(lpn, &mut []).map(drop))?,
        }
    }
    Ok(())
}

/// The disk of an experiment on a null device, empty.
pub fn build_disk(experiment: &Experiment, exported_pages: u32) -> Result<MeasuredDisk, LabError> {
    Ok(build_placing(experiment, exported_pages)?.0)
}

/// The same, and its placement, if that is the program's own.
pub(crate) fn build_placing(
    experiment: &Experiment,
    exported_pages: u32,
) -> Result<(MeasuredDisk, Option<Placing>), LabError> {
    let geometry = experiment.device.geometry()?;
    let config = experiment.config();
    // Impossible layouts must fail before a policy is built for them.
    config.limit_pages(&geometry, 1)?;
    let sizing = Sizing {
        segments: geometry.segments(),
        data_pages: config.data_pages(&geometry),
        exported_pages,
        seed: experiment.seed,
    };
    let OwnPair { selection, placement } = &experiment.own;
    let placing = placement.as_ref().map(|own| Placing::new(&**own, sizing));
    let mut policies = Policies::new(experiment.selection, experiment.placement, sizing);
    if let Some(own) = selection {
        policies.selection = own.build(sizing);
    }
    if let Some(placing) = &placing {
        policies.placement = placing.placer();
    }
    match Ftl::new(Plain::new(NullFlash::new(geometry)), config, policies, exported_pages, &[]) {
        Ok(disk) => Ok((disk, placing)),
        Err(FtlError::Log(LogError::Config(error))) => Err(error.into()),
        Err(error) => panic!("a device that cannot fail has failed: {error}"),
    }
}
