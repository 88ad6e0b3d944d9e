use crate::LabError;
use crate::experiment::Experiment;
use crate::work::WorkMeter;
use margay_flash::Lpn;
use margay_format::Plain;
use margay_ftl::{Ftl, FtlError};
use margay_log::{Counters, Hint, LogError, Uniformity};
use margay_media::NullFlash;
use margay_policy::{Placement, Segments, Selection, Sizing, Visitor, visit};
use margay_workload::{OpKind, PageOp};

/// A disk whose policies are chosen at run time. Called once per batch; inside a batch everything is static.
pub trait Disk: Send {
    /// Writes the initial content: pages `0..pages`, those for which `is_read_only` holds with that hint.
    fn fill(&mut self, pages: u32, is_read_only: &dyn Fn(u32) -> bool) -> Result<(), FtlError>;

    /// Carries out operations in order. On an error, the operations before it are done.
    fn run(&mut self, ops: &[PageOp], work: &mut WorkMeter) -> Result<(), FtlError>;

    /// Counts from zero; wear stays.
    fn reset_counters(&mut self);

    /// What was done.
    fn counters(&self) -> &Counters;

    /// State of the segments.
    fn segments(&self) -> &Segments;

    /// Utilization, invalidity, uniformity now.
    fn uniformity(&self) -> Uniformity;

    /// Pages that can be programmed without an erase.
    fn free_pages(&self) -> u64;

    /// Bytes of memory held for all pages.
    fn memory_bytes(&self) -> u64;

    /// Recomputes every count and compares.
    fn audit(&self) -> Result<(), margay_log::AuditError>;
}

impl<S: Selection + Send, P: Placement<Info: Send> + Send> Disk for Ftl<Plain<NullFlash>, S, P> {
    fn fill(&mut self, pages: u32, is_read_only: &dyn Fn(u32) -> bool) -> Result<(), FtlError> {
        for lpn in 0..pages {
            let hint = if is_read_only(lpn) { Hint::ReadOnly } else { Hint::None };
            Ftl::fill(self, Lpn(lpn), &[], hint)?;
        }
        Ok(())
    }

    fn run(&mut self, ops: &[PageOp], work: &mut WorkMeter) -> Result<(), FtlError> {
        let before = self.log().counters().host_writes;
        let result = run_ops(self, ops, work);
        work.count_writes(self.log().counters().host_writes - before);
        result
    }

    fn reset_counters(&mut self) {
        Ftl::reset_counters(self);
    }

    fn counters(&self) -> &Counters {
        self.log().counters()
    }

    fn segments(&self) -> &Segments {
        self.log().segments()
    }

    fn uniformity(&self) -> Uniformity {
        self.log().uniformity()
    }

    fn free_pages(&self) -> u64 {
        self.log().free_pages()
    }

    fn memory_bytes(&self) -> u64 {
        Ftl::memory_bytes(self)
    }

    fn audit(&self) -> Result<(), margay_log::AuditError> {
        Ftl::audit(self)
    }
}

fn run_ops<S: Selection, P: Placement>(
    disk: &mut Ftl<Plain<NullFlash>, S, P>,
    ops: &[PageOp],
    work: &mut WorkMeter,
) -> Result<(), FtlError> {
    let done = |disk: &Ftl<Plain<NullFlash>, S, P>| {
        let counters = disk.log().counters();
        (counters.copies, counters.metadata_pages, counters.erases)
    };
    let (mut before, mut openings) = (done(disk), disk.log().openings());
    for op in ops {
        match op.kind {
            OpKind::Write => {
                disk.write(Lpn(op.lpn), &[], Hint::None, op.time_us)?;
                if disk.log().openings() != openings {
                    openings = disk.log().openings();
                    let after = done(disk);
                    work.record(after.0 - before.0, after.1 - before.1, after.2 - before.2);
                    before = after;
                }
            }
            OpKind::Trim => disk.trim(Lpn(op.lpn), op.time_us)?,
            OpKind::Read => {
                disk.read(Lpn(op.lpn), &mut [])?;
            }
        }
    }
    Ok(())
}

struct Build<'a>(&'a Experiment, u32);

impl Visitor for Build<'_> {
    type Output = Result<Box<dyn Disk>, LabError>;

    fn visit<S: Selection + Send + 'static, P: Placement<Info: Send> + Send + 'static>(
        self,
        selection: S,
        placement: P,
    ) -> Self::Output {
        let device = Plain::new(NullFlash::new(self.0.device.geometry()?));
        match Ftl::new(device, self.0.config(), selection, placement, self.1, &[]) {
            Ok(disk) => Ok(Box::new(disk)),
            Err(FtlError::Log(LogError::Config(error))) => Err(error.into()),
            Err(error) => panic!("a device that cannot fail has failed: {error}"),
        }
    }
}

/// The disk of an experiment on a null device, empty.
pub fn build_disk(experiment: &Experiment, exported_pages: u32) -> Result<Box<dyn Disk>, LabError> {
    let geometry = experiment.device.geometry()?;
    let config = experiment.config();
    // Fails for impossible layouts before a policy is sized by them.
    config.limit_pages(&geometry, 1)?;
    let sizing = Sizing {
        segments: geometry.segments(),
        data_pages: config.data_pages(&geometry),
        exported_pages,
        seed: experiment.seed,
    };
    visit(experiment.selection, experiment.placement, sizing, Build(experiment, exported_pages))
}
