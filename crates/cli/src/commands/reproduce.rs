use super::progress::interrupt_flag;
use crate::args::ReproduceCommand;
use crate::failure::Failure;
use crate::output::plot::{Chart, Curve, charts};
use crate::output::{records, report, write_file};
use indicatif::ProgressBar;
use margay_lab::LabError;
use margay_lab::reproduce::{Figure, Reproduction, Watcher, fms, moda};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

pub fn run(command: ReproduceCommand) -> Result<(), Failure> {
    match command {
        ReproduceCommand::Fms { seeds, folder, hp_trace, tables_only, quiet } => {
            let options = fms::Options { seeds, hp_trace: hp_trace.or_else(find_hp_trace), tables_only };
            show("The Flash Memory Server study", seeds, &folder, quiet, |bar| fms::run(&options, bar))
        }
        ReproduceCommand::Moda { seeds, folder, tables_only, quiet } => {
            let options = moda::Options { seeds, tables_only };
            show("The MODA study", seeds, &folder, quiet, |bar| moda::run(&options, bar))
        }
    }
}

fn show(
    title: &str,
    seeds: u32,
    folder: &Path,
    quiet: bool,
    study: impl FnOnce(&Bar) -> Result<Reproduction, LabError>,
) -> Result<(), Failure> {
    let bar = Bar(if quiet { ProgressBar::hidden() } else { ProgressBar::new(0) }, interrupt_flag());
    let result = study(&bar);
    bar.0.finish_and_clear();
    let result = result?;
    crate::output::print_bytes(report::reproduction(title, &result, seeds).as_bytes())?;
    write_file(&folder.join("comparisons.csv"), &records::table(&result.comparisons)?)?;
    if !result.rows.is_empty() {
        write_file(&folder.join("rows.csv"), &records::table(&result.rows)?)?;
    }
    if !result.files.is_empty() {
        write_file(&folder.join("files.csv"), &records::table(&result.files)?)?;
    }
    for figure in &result.figures {
        write_figure(folder, figure)?;
    }
    println!("tables and plots are in {}", folder.display());
    let missed = result.comparisons.iter().filter(|comparison| comparison.holds() == Some(false)).count();
    if missed > 0 {
        return Err(Failure::Run(format!("{missed} figures are outside their bound; see docs/reproduction.md")));
    }
    Ok(())
}

fn write_figure(folder: &Path, figure: &Figure) -> Result<(), Failure> {
    let curves =
        figure.curves.iter().map(|(name, points)| Curve { name: name.clone(), points: points.clone() }).collect();
    let chart = Chart { title: &figure.title, x: &figure.x, y: &figure.y, curves };
    charts(&folder.join(format!("{}.svg", figure.name)), &[chart])?;
    let mut text = String::from("curve,x,y\n");
    for (name, points) in &figure.curves {
        points.iter().for_each(|(x, y)| text += &format!("\"{name}\",{x},{y}\n"));
    }
    write_file(&folder.join(format!("{}.csv", figure.name)), text.as_bytes())
}
