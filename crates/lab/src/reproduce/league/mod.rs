//! The league: published figures of placements and selections by other programs, on this engine. FEMU's tutorials (selections and
//! placement handles), and the ordering of placements on SepBIT's synthetic workloads, scaled down (docs/reproduction.md
//! explains it).

mod femu;
mod sepbit;
mod text;

use super::{Reproduction, Watcher, run_cells};
use crate::{LabError, Outcome};

pub use text::PAPER;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Seeds for each cell.
    pub seeds: u32,
    /// Only what has published figures: not the sweeps of garbage share and segment size.
    pub tables_only: bool,
}

/// Mean and standard deviation over the seeds of write amplification in the warm window.
fn wa(outcomes: &[Outcome]) -> (f64, f64) {
    super::mean_and_deviation(&values(outcomes))
}

/// Write amplification in the warm window by seed.
fn values(outcomes: &[Outcome]) -> Vec<f64> {
    outcomes.iter().map(|outcome| outcome.row.wa_warm).collect()
}

/// Runs all cells and says what they say about the published figures.
///
/// # Errors
///
/// If a run fails, or the watcher stops it.
pub fn run(options: &Options, watcher: &dyn Watcher) -> Result<Reproduction, LabError> {
    let (femu, league) = (femu::cells()?, sepbit::League::of_the_registry(options.tables_only)?);
    let cells: Vec<_> = femu.iter().chain(league.cells()).cloned().collect();
    let outcomes = run_cells(&cells, 1..u64::from(options.seeds) + 1, watcher)?;
    let mut result = Reproduction::default();
    let (of_femu, of_league) = outcomes.split_at(femu.len());
    femu::judge(of_femu, &mut result);
    league.judge(of_league, &mut result);
    result.rows = outcomes.into_iter().flatten().map(|outcome| outcome.row).collect();
    Ok(result)
}
