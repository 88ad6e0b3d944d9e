use super::progress::interrupt_flag;
use crate::args::{ForceArg, ReproduceCommand, bytes};
use crate::failure::Failure;
use crate::output::{figure, page, records, study, write_file};
use indicatif::ProgressBar;
use margay_host::Existing;
use margay_lab::LabError;
use margay_lab::reproduce::{Axis, Figure, Paper, Point, Reproduction, Watcher, fms, lda_gc, league, moda};
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

/// The trace of page references that travels with the program: `sort` of some text, 5 MiB of memory in all.
const OWN_VM_TRACE: &[u8] = include_bytes!("../../samples/sort.vmt.zst");

/// Traces of page references, and the folder of those that last as long as the command.
struct VmTraces {
    paths: Vec<PathBuf>,
    own: Option<tempfile::TempDir>,
    /// They are those that docs/reproduction.md tells about.
    is_shared: bool,
}

impl VmTraces {
    /// Those that were named, or else the shared ones, or else the one that travels with the program.
    fn find(named: Vec<PathBuf>) -> Result<Self, Failure> {
        if !named.is_empty() {
            return Ok(Self { paths: named, own: None, is_shared: false });
        }
        let folders =
            std::env::var_os("MARGAY_TRACES").map(PathBuf::from).into_iter().chain(["../shared/traces".into()]);
        let mut paths: Vec<PathBuf> = Vec::new();
        if let Some(folder) = folders.map(|folder| folder.join("vm")).find(|folder| folder.is_dir()) {
            let entries = std::fs::read_dir(&folder).map_err(|error| Failure::Input(error.to_string()))?;
            let found = entries.flatten().map(|entry| entry.path());
            paths.extend(found.filter(|path| path.to_string_lossy().contains(".vmt")));
            paths.sort();
        }
        if !paths.is_empty() {
            return Ok(Self { paths, own: None, is_shared: true });
        }
        let failed = |error: std::io::Error| Failure::write("a temporary file", error);
        let own = tempfile::tempdir().map_err(failed)?;
        let path = own.path().join("sort.vmt.zst");
        std::fs::write(&path, OWN_VM_TRACE).map_err(failed)?;
        Ok(Self { paths: vec![path], own: Some(own), is_shared: false })
    }

    /// What is used, for the reader.
    fn describe(&self) -> String {
        if self.own.is_some() {
            return "traces: sort, a small one that travels with the program, because there is none in $MARGAY_TRACES/vm or ../shared/traces/vm; name others with --trace, or record one with `margay trace capture`".into();
        }
        let names: Vec<_> = self.paths.iter().map(|path| path.display().to_string()).collect();
        format!("traces: {}", names.join(", "))
    }
}

/// A study with all that it needs to run.
enum Study {
    Fms(fms::Options),
    Moda(moda::Options),
    LdaGc(lda_gc::Options, VmTraces),
    League(league::Options),
}

impl Study {
    fn fms(seeds: u32, hp_trace: Option<PathBuf>, hp_passes: u32, tables_only: bool) -> Self {
        Self::Fms(fms::Options { seeds, hp_trace: hp_trace.or_else(find_hp_trace), hp_passes, tables_only })
    }

    fn lda_gc(
        traces: Vec<PathBuf>,
        cache: Option<&str>,
        counts_handover: bool,
        tables_only: bool,
    ) -> Result<Self, Failure> {
        let traces = VmTraces::find(traces)?;
        let frames = match cache {
            Some(cache) => bytes("--cache", cache)? / 2048,
            None if traces.own.is_some() => 512,
            None => 2048,
        };
        let frames = u32::try_from(frames).ok().filter(|frames| (64..1 << 24).contains(frames));
        let frames = frames.ok_or_else(|| Failure::Usage("--cache: expected 128K to 32G".into()))?;
        let options = lda_gc::Options { traces: traces.paths.clone(), tables_only, frames, counts_handover };
        Ok(Self::LdaGc(options, traces))
    }

    fn paper(&self) -> &'static Paper {
        match self {
            Self::Fms(_) => &fms::PAPER,
            Self::Moda(_) => &moda::PAPER,
            Self::LdaGc(..) => &lda_gc::PAPER,
            Self::League(_) => &league::PAPER,
        }
    }

    fn run(&self, bar: &Bar) -> Result<Reproduction, LabError> {
        match self {
            Self::Fms(options) => fms::run(options, bar),
            Self::Moda(options) => moda::run(options, bar),
            Self::LdaGc(options, _) => lda_gc::run(options, bar),
            Self::League(options) => league::run(options, bar),
        }
    }

    /// What the means are over.
    fn over(&self) -> String {
        match self {
            Self::Fms(fms::Options { seeds, .. })
            | Self::Moda(moda::Options { seeds, .. })
            | Self::League(league::Options { seeds, .. }) => format!("{seeds} seeds"),
            Self::LdaGc(options, _) => format!("{} traces", options.traces.len()),
        }
    }

    /// Whether it is the run that docs/reproduction.md and the pages' paragraphs tell about.
    fn is_default(&self) -> bool {
        match self {
            Self::Fms(options) => options.seeds == 8 && options.hp_trace.is_some() && options.hp_passes == 1,
            Self::Moda(options) => options.seeds == 5,
            Self::League(options) => options.seeds == 3,
            Self::LdaGc(options, traces) => options.frames == 2048 && !options.counts_handover && traces.is_shared,
        }
    }

    /// How it was run, a line each: every parameter that the command line can change, with its default.
    fn made(&self) -> Vec<String> {
        let mut made = vec![format!("margay {}, `margay reproduce {}`", env!("CARGO_PKG_VERSION"), self.paper().name)];
        let part = |tables_only| {
            if tables_only { "only what has published figures was run (--tables-only)" } else { "all parts were run" }
        };
        match self {
            Self::Fms(options) => {
                made.push(format!("seeds for each cell: {} (--seeds, 8 by default)", options.seeds));
                made.push(match &options.hp_trace {
                    Some(path) => format!(
                        "the HP trace: {} (--hp-trace), replayed {} times (--hp-passes, 1 by default)",
                        path.display(),
                        options.hp_passes
                    ),
                    None => "the HP trace was not found, and Figs. 14 to 17 were left out: it does not travel with the program (--hp-trace)".into(),
                });
                made.push(part(options.tables_only).into());
            }
            Self::Moda(options) => {
                made.push(format!("seeds for each cell: {} (--seeds, 5 by default)", options.seeds));
                made.push("no trace is needed".into());
                made.push(part(options.tables_only).into());
            }
            Self::League(options) => {
                made.push(format!("seeds for each cell: {} (--seeds, 3 by default)", options.seeds));
                made.push("no trace is needed".into());
                made.push(part(options.tables_only).into());
            }
            Self::LdaGc(options, traces) => {
                made.push(traces.describe());
                made.push(format!(
                    "size of the page cache: {} KiB (--cache; the paper's is 4096 KiB)",
                    u64::from(options.frames) * 2
                ));
                let handover = if options.counts_handover { "counts" } else { "does not count" };
                made.push(format!("handing pages over from the cache {handover} as I/O time (--count-handover)"));
                made.push(part(options.tables_only).into());
            }
        }
        made
    }
}

pub fn run(command: ReproduceCommand) -> Result<(), Failure> {
    let (studies, folder, force, quiet, is_all) = match command {
        ReproduceCommand::All {
            output,
            seeds,
            hp_trace,
            hp_passes,
            traces,
            cache,
            count_handover,
            tables_only,
            force,
            quiet,
        } => {
            let studies = vec![
                Study::fms(seeds.unwrap_or(8), hp_trace, hp_passes, tables_only),
                Study::Moda(moda::Options { seeds: seeds.unwrap_or(5), tables_only }),
                Study::lda_gc(traces, cache.as_deref(), count_handover, tables_only)?,
            ];
            (studies, output, force, quiet, true)
        }
        ReproduceCommand::Fms { seeds, folder, hp_trace, hp_passes, tables_only, force, quiet } => {
            (vec![Study::fms(seeds, hp_trace, hp_passes, tables_only)], folder, force, quiet, false)
        }
        ReproduceCommand::Moda { seeds, folder, tables_only, force, quiet } => {
            (vec![Study::Moda(moda::Options { seeds, tables_only })], folder, force, quiet, false)
        }
        ReproduceCommand::League { seeds, folder, tables_only, force, quiet } => {
            (vec![Study::League(league::Options { seeds, tables_only })], folder, force, quiet, false)
        }
        ReproduceCommand::LdaGc { folder, traces, cache, count_handover, tables_only, force, quiet } => {
            (vec![Study::lda_gc(traces, cache.as_deref(), count_handover, tables_only)?], folder, force, quiet, false)
        }
    };
    let place = Place::new(&folder, force)?;
    let mut results = Vec::new();
    for study in &studies {
        let within = folder.join(study.paper().name);
        let place_of_it = Place { folder: if is_all { &within } else { &folder }, existing: place.existing };
        let result = show(study, &place_of_it, quiet)?;
        let page = page::page(study.paper(), &result, &study.made(), study.is_default());
        place.write(&format!("{}.html", study.paper().name), page.as_bytes())?;
        results.push((study.paper(), result));
    }
    if is_all {
        let all: Vec<_> = results.iter().map(|(paper, result)| (*paper, result)).collect();
        place.write("index.html", page::index(&all).as_bytes())?;
        say!("a page for each paper was written to {}: begin with index.html", folder.display());
    } else {
        say!("a page, tables and plots were written to {}", folder.display());
    }
    let missed: Vec<_> = results
        .iter()
        .filter(|(_, result)| !result.is_nothing_missed())
        .map(|(paper, result)| format!("{}: {}", paper.name, study::missed(result)))
        .collect();
    if missed.is_empty() {
        return Ok(());
    }
    Err(Failure::Run(format!("outside its bound, {}; docs/reproduction.md says what is expected", missed.join(". "))))
}

fn show(study: &Study, place: &Place<'_>, quiet: bool) -> Result<Reproduction, Failure> {
    for line in &study.made()[1..] {
        say!("{line}");
    }
    let bar = Bar(if quiet { ProgressBar::hidden() } else { ProgressBar::new(0) }, interrupt_flag());
    let result = study.run(&bar);
    bar.0.finish_and_clear();
    let result = result?;
    crate::output::print_bytes(study::report(study.paper().title, &result, &study.over()).as_bytes())?;
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
    Ok(result)
}

fn write_figure(place: &Place<'_>, figure: &Figure) -> Result<(), Failure> {
    place.write(&format!("{}.svg", figure.name), figure::svg(figure).as_bytes())?;
    let mut text = String::from("curve,published,x,y,low,high\n");
    for curve in &figure.curves {
        for Point { x, y, low, high } in &curve.points {
            let name = match &figure.axis {
                Axis::Named(names) => format!("\"{}\"", names.get(*x as usize).map_or("", String::as_str)),
                _ => x.to_string(),
            };
            text += &format!("\"{}\",{},{name},{y},{low},{high}\n", curve.name, curve.is_published);
        }
    }
    place.write(&format!("{}.csv", figure.name), text.as_bytes())
}
