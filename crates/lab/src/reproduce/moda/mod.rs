//! The MODA study: Baek, Choi, Ahn, Lee and Noh 2007, by the reading of shared/specs/moda.md (docs/reproduction.md
//! explains it).

mod figures;
mod model;
mod table;
mod text;

use super::{Reproduction, Watcher, mean_and_deviation};
use crate::LabError;
use crate::files::{FileDevice, FileRow, run_benchmark};
use margay_fs::AllocatorSpec;
use margay_workload::{FileBenchmark, FileMix};
use rayon::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use text::PAPER;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Seeds per cell.
    pub seeds: u32,
    /// Only what has published figures.
    pub tables_only: bool,
}

/// Segments of the paper's partition, as its Table 1 tells (spec sec. 1).
const SEGMENTS: u32 = 3712;

/// Mixes in which the dynamic property pays (spec sec. 8), one operation at a time, and the second one as it comes
/// closest to the paper's: sixteen operations at a time and four films.
const MIXES: [&str; 3] = ["camera+phone", "movie+recorder+postmark", "movie-short+recorder+postmark/16"];

/// All cells, each with several seeds: the rows of each cell.
fn run_all(cells: &[(FileDevice, FileMix)], seeds: u32, watcher: &dyn Watcher) -> Result<Vec<Vec<FileRow>>, LabError> {
    let done = AtomicUsize::new(0);
    let total = cells.len() * seeds as usize;
    let rows: Vec<FileRow> = (0..total)
        .into_par_iter()
        .with_max_len(1)
        .map(|index| {
            let (spec, mix) = &cells[index / seeds as usize];
            let row = run_benchmark(spec, mix, (index % seeds as usize) as u64 + 1)?;
            if !watcher.done(done.fetch_add(1, Ordering::Relaxed) + 1, total) {
                return Err(LabError::Interrupted { writes: row.data_pages });
            }
            Ok(row)
        })
        .collect::<Result<_, _>>()?;
    Ok(rows.chunks(seeds as usize).map(<[_]>::to_vec).collect())
}

fn of(rows: &[FileRow], measure: impl Fn(&FileRow) -> f64) -> (f64, f64) {
    mean_and_deviation(&rows.iter().map(measure).collect::<Vec<_>>())
}

fn allocator(text: &str) -> AllocatorSpec {
    text.parse().expect("an allocator of the study")
}

/// The paper's device, or the whole chip for a mix that does not fit the paper's partition.
fn device(allocator: AllocatorSpec, mix: &FileMix) -> Result<FileDevice, LabError> {
    let mut device = FileDevice::of_the_paper(allocator)?;
    if mix.benchmarks.len() > 1 && mix.benchmarks.contains(&FileBenchmark::Movie) {
        device.device.segments = 4096;
    }
    Ok(device)
}

/// Every benchmark and mix under every allocator, measured.
struct Runs {
    allocators: Vec<AllocatorSpec>,
    mixes: Vec<FileMix>,
    /// By allocator, then by mix.
    rows: Vec<Vec<FileRow>>,
}

impl Runs {
    fn new(seeds: u32, watcher: &dyn Watcher) -> Result<Self, LabError> {
        let halves = ["static", "dynamic"].map(|half| allocator(&format!("moda:property={half}")));
        let allocators: Vec<AllocatorSpec> = AllocatorSpec::made_for_files().chain(halves).collect();
        let mut mixes: Vec<FileMix> = FileBenchmark::ALL.map(FileMix::from).to_vec();
        for text in MIXES {
            mixes.push(text.parse()?);
        }
        let mut cells = Vec::new();
        for spec in &allocators {
            for mix in &mixes {
                cells.push((device(*spec, mix)?, mix.clone()));
            }
        }
        let rows = run_all(&cells, seeds, watcher)?;
        Ok(Self { allocators, mixes, rows })
    }

    /// The rows of a cell, one a seed.
    fn of(&self, allocator: &str, mix: &FileMix) -> &[FileRow] {
        let spec = self::allocator(allocator);
        let at = self.allocators.iter().position(|other| *other == spec).expect("the allocator was run");
        let mix = self.mixes.iter().position(|other| other == mix).expect("the mix was run");
        &self.rows[at * self.mixes.len() + mix]
    }
}

/// Runs the study.
///
/// # Errors
/// A run that the watcher stopped, or a file system without room.
pub fn run(options: &Options, watcher: &dyn Watcher) -> Result<Reproduction, LabError> {
    let mut out = Reproduction::default();
    model::equations(&mut out)?;
    let runs = Runs::new(options.seeds.max(1), watcher)?;
    table::table_1(&runs, &mut out)?;
    table::mixes(&runs, &mut out);
    table::independent_model(&runs, &mut out)?;
    figures::allocators(&runs, &mut out);
    out.files = runs.rows.into_iter().flatten().collect();
    if !options.tables_only {
        model::surfaces(&mut out)?;
        figures::filling(&mut out)?;
        figures::settings(options.seeds.clamp(1, 3), watcher, &mut out)?;
        table::today(options.seeds.clamp(1, 3), watcher, &mut out)?;
    }
    Ok(out)
}
