use super::progress::interrupt_flag;
use crate::args::{ForceArg, ReproduceCommand, bytes};
use crate::failure::Failure;
use crate::output::plot::{Chart, Curve, charts};
use crate::output::{records, report, write_file};
use indicatif::ProgressBar;
use margay_host::Existing;
use margay_lab::LabError;
use margay_lab::reproduce::{Figure, Reproduction, Watcher, fms, lda_gc, moda};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where the tables and plots go.
struct Place<'a> {
    folder: &'a Path,
    existing: Existing,
}

impl<'a> Place<'a> {
    /// Refuses a folder with something in it: which files a study writes is known only at its end.
    fn new(folder: &'a Path, force: ForceArg) -> Result<Self, Failure> {
        let existing = force.existing();
        let is_empty = std::fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_none());
        if existing == Existing::Refuse && !is_empty {
            let problem = "there are files in this folder; with --force those with the names of results are replaced";
            return Err(Failure::Usage(format!("{}: {problem}", folder.display())));
        }
        Ok(Self { folder, existing })
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        write_file(&self.folder.join(name), bytes, self.existing)
    }
}

struct Bar(ProgressBar, Arc<AtomicBool>);

impl Watcher for Bar {
    fn done(&self, runs: usize, of: usize) -> bool {
        self.0.set_length(of as u64);
        self.0.set_position(runs as u64);
        !self.1.load(Ordering::Relaxed)
    }
}

const HP_TRACE: &str = "hplajw-1week.srt.zst";

fn find_hp_trace() -> Option<PathBuf> {
    let folders = std::env::var_os("MARGAY_TRACES").map(PathBuf::from).into_iter().chain(["../shared/traces".into()]);
    folders.map(|folder| folder.join(HP_TRACE)).find(|path| path.is_file())
}

/// The trace of page references in the repository.
const OWN_VM_TRACE: &str = "samples/sort.vmt.zst";

/// The shared traces of page references, or else the one in the repository.
fn find_vm_traces() -> Result<Vec<PathBuf>, Failure> {
    let folders = std::env::var_os("MARGAY_TRACES").map(PathBuf::from).into_iter().chain(["../shared/traces".into()]);
    let mut found: Vec<PathBuf> = Vec::new();
    if let Some(folder) = folders.map(|folder| folder.join("vm")).find(|folder| folder.is_dir()) {
        let entries = std::fs::read_dir(&folder).map_err(|error| Failure::Input(error.to_string()))?;
        let paths = entries.flatten().map(|entry| entry.path());
        found.extend(paths.filter(|path| path.to_string_lossy().contains(".vmt")));
        found.sort();
    }
    if found.is_empty() && Path::new(OWN_VM_TRACE).is_file() {
        found.push(OWN_VM_TRACE.into());
    }
    if found.is_empty() {
        let text = "there is no trace of page references in $MARGAY_TRACES/vm, ../shared/traces/vm or samples/; name one with --trace, or record one with `margay trace capture`";
        return Err(Failure::Input(text.into()));
    }
    Ok(found)
}

pub fn run(command: ReproduceCommand) -> Result<(), Failure> {
    match command {
        ReproduceCommand::Fms { seeds, folder, hp_trace, tables_only, force, quiet } => {
            let options = fms::Options { seeds, hp_trace: hp_trace.or_else(find_hp_trace), tables_only };
            show(
                "The Flash Memory Server study",
                &format!("{seeds} seeds"),
                &Place::new(&folder, force)?,
                quiet,
                |bar| fms::run(&options, bar),
            )
        }
        ReproduceCommand::Moda { seeds, folder, tables_only, force, quiet } => {
            let options = moda::Options { seeds, tables_only };
            show("The MODA study", &format!("{seeds} seeds"), &Place::new(&folder, force)?, quiet, |bar| {
                moda::run(&options, bar)
            })
        }
        ReproduceCommand::LdaGc { folder, traces, cache, count_handover, tables_only, force, quiet } => {
            let traces = if traces.is_empty() { find_vm_traces()? } else { traces };
            let frames = match cache {
                Some(cache) => bytes(&cache)? / 2048,
                // The trace in the repository touches 5 MiB in all.
                None if traces == [Path::new(OWN_VM_TRACE)] => 512,
                None => 2048,
            };
            let frames = u32::try_from(frames).ok().filter(|frames| (64..1 << 24).contains(frames));
            let frames = frames.ok_or_else(|| Failure::Usage("--cache: expected 128K to 32G".into()))?;
            let over = format!("{} traces", traces.len());
            let options = lda_gc::Options { traces, tables_only, frames, counts_handover: count_handover };
            show("The LDA-GC study", &over, &Place::new(&folder, force)?, quiet, |bar| lda_gc::run(&options, bar))
        }
    }
}

fn show(
    title: &str,
    over: &str,
    place: &Place<'_>,
    quiet: bool,
    study: impl FnOnce(&Bar) -> Result<Reproduction, LabError>,
) -> Result<(), Failure> {
    let bar = Bar(if quiet { ProgressBar::hidden() } else { ProgressBar::new(0) }, interrupt_flag());
    let result = study(&bar);
    bar.0.finish_and_clear();
    let result = result?;
    crate::output::print_bytes(report::reproduction(title, &result, over).as_bytes())?;
    place.write("comparisons.csv", &records::table(&result.comparisons)?)?;
    if !result.rows.is_empty() {
        place.write("rows.csv", &records::table(&result.rows)?)?;
    }
    if !result.files.is_empty() {
        place.write("files.csv", &records::table(&result.files)?)?;
    }
    if !result.paging.is_empty() {
        place.write("paging.csv", &records::table(&result.paging)?)?;
    }
    for figure in &result.figures {
        write_figure(place, figure)?;
    }
    say!("tables and plots were written to {}", place.folder.display());
    let missed = result.comparisons.iter().filter(|comparison| comparison.holds() == Some(false)).count();
    if missed > 0 {
        return Err(Failure::Run(format!(
            "{missed} measured values are outside their bounds; docs/reproduction.md says which bounds are expected to hold"
        )));
    }
    Ok(())
}

fn write_figure(place: &Place<'_>, figure: &Figure) -> Result<(), Failure> {
    let curves =
        figure.curves.iter().map(|(name, points)| Curve { name: name.clone(), points: points.clone() }).collect();
    let chart = Chart { title: &figure.title, x: &figure.x, y: &figure.y, curves };
    charts(&place.folder.join(format!("{}.svg", figure.name)), place.existing, &[chart])?;
    let mut text = String::from("curve,x,y\n");
    for (name, points) in &figure.curves {
        points.iter().for_each(|(x, y)| text += &format!("\"{name}\",{x},{y}\n"));
    }
    place.write(&format!("{}.csv", figure.name), text.as_bytes())
}
