//! The device that each over-provisioning gives, before anything is run on it.

use super::text::{bytes, percent};
use super::{Advice, Candidate, Search, Verdict};
use crate::LabError;
use crate::experiment::{AddressChoice, Capacity, Experiment, Source};
use crate::run::size_from_trace_of;
use crate::settings::{Settings, from_table};
use crate::sources::Sources;

/// What the device of a step is.
enum Size {
    /// Its segments and exported pages.
    Known(u32, u32),
    /// What is wrong with it is told when it is run.
    Unknown,
    /// It exports so many pages, and the trace writes more.
    TooSmall(u32),
}

impl Search<'_, '_> {
    fn experiment_at(&self, at: usize) -> Option<(Experiment, bool)> {
        let settings = from_table::<Settings>(&self.question.table(&Candidate::plain(), self.steps[at], None)).ok()?;
        Settings { held: self.question.held.clone(), ..settings }.experiment().ok()
    }

    /// The different pages that the trace of an experiment writes, where each has to have a place of its own.
    fn written(experiment: &Experiment, sources: &Sources) -> Result<Option<u32>, LabError> {
        match &experiment.source {
            Source::Trace(source) if source.addresses == AddressChoice::Compact => {
                Ok(Some(sources.read(source, experiment.device.page_bytes, None)?.numbered))
            }
            _ => Ok(None),
        }
    }

    fn size_at(&self, at: usize, sources: &Sources) -> Result<Size, LabError> {
        let Some((mut experiment, is_sized)) = self.experiment_at(at) else { return Ok(Size::Unknown) };
        if is_sized {
            let prepared = size_from_trace_of(&mut experiment, sources)?;
            return Ok(Size::Known(experiment.device.segments, prepared.exported_pages));
        }
        let Ok(exported) = experiment.exported_pages() else { return Ok(Size::Unknown) };
        match Self::written(&experiment, sources)? {
            Some(written) if written > exported => Ok(Size::TooSmall(exported)),
            _ => Ok(Size::Known(experiment.device.segments, exported)),
        }
    }

    /// Leaves one step of those that give the same device, and none that has no room for the trace. If none has, that is the
    /// answer.
    pub(super) fn size(&mut self) -> Result<Option<Advice>, LabError> {
        let sources = Sources::default();
        let mut kept: Vec<(f64, Option<(u32, u32)>)> = Vec::new();
        let mut too_small: Option<(usize, u32)> = None;
        for (at, step) in self.steps.iter().enumerate() {
            match self.size_at(at, &sources)? {
                Size::Known(segments, pages) => {
                    match kept.iter().position(|(_, size)| *size == Some((segments, pages))) {
                        Some(same) => {
                            self.same.retain(|(at, _)| *at != same);
                            self.same.push((same, *step));
                        }
                        None => kept.push((*step, Some((segments, pages)))),
                    }
                }
                Size::Unknown => kept.push((*step, None)),
                Size::TooSmall(exported) => {
                    let most = too_small.get_or_insert((at, exported));
                    if exported > most.1 {
                        *most = (at, exported);
                    }
                    let text = format!("the trace writes more pages than the {exported} that are exported");
                    self.refused.push((Candidate::plain(), *step, text));
                }
            }
        }
        if let (Some((at, exported)), true) = (too_small, kept.is_empty()) {
            return self.too_small(at, exported, &sources).map(Some);
        }
        self.steps = kept.into_iter().map(|(step, _)| step).collect();
        Ok(None)
    }

    /// No, because the device is too small whatever the policies are.
    fn too_small(&self, at: usize, exported: u32, sources: &Sources) -> Result<Advice, LabError> {
        let step = self.steps[at];
        let Some((experiment, _)) = self.experiment_at(at) else {
            return Err(super::wrong("over-provisioning", step, "gives no device"));
        };
        let mut large = Experiment { capacity: Capacity::OverProvisioning(step), ..experiment.clone() };
        let written = size_from_trace_of(&mut large, sources)?.exported_pages;
        let page = f64::from(experiment.device.page_bytes);
        let needed = large.device.geometry()?.bytes();
        let text = format!(
            "No: {} writes {written} different pages ({}), and {} exports {exported} of them ({}) at {} over-provisioning, the smallest that was asked for. {} of flash would hold it: --flash-size {needed}.\n",
            experiment.source.name(),
            bytes(f64::from(written) * page),
            experiment.device.name,
            bytes(f64::from(exported) * page),
            percent(step),
            bytes(needed as f64),
        );
        Ok(Advice {
            verdict: Verdict::No,
            years: self.question.years,
            bytes_per_day: self.question.bytes_per_day.unwrap_or(f64::NAN),
            policies: Candidate::plain(),
            over_provisioning: f64::from(experiment.data_pages()?) / f64::from(exported) - 1.0,
            over_provisioning_asked: step,
            steps: Vec::new(),
            rivals: Vec::new(),
            not_looked_at: vec![
                "policies, and how long the flash would last: the device has no room for the data".into(),
            ],
            runs: 0,
            text,
        })
    }
}
