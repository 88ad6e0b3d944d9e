use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use margay_lab::compare::Observer;
use margay_lab::sweep::{Point, Watcher};
use margay_lab::{LabError, Outcome, Step};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// A flag that is set when the user presses Ctrl-C.
pub fn interrupt_flag() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    // Without a handler, which only a forbidden signal could fail to get, Ctrl-C ends the process at once.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&flag));
    flag
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// A progress bar for one run; hidden if `quiet`.
pub fn bar(quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    bar.set_style(style("{elapsed_precise} {wide_bar} {human_pos}/{human_len} host writes, {per_sec}, {eta} left"));
    bar
}

/// Moves a bar to a step of its run.
pub fn show(bar: &ProgressBar, step: Step) {
    match step.expected {
        Some(expected) => bar.set_length(expected),
        None => bar.set_length(step.writes),
    }
    bar.set_position(step.writes);
}

/// One bar for all runs together, and one for each run that is in progress.
pub struct Bars {
    group: MultiProgress,
    all: ProgressBar,
    runs: Vec<ProgressBar>,
    interrupted: Arc<AtomicBool>,
}

impl Bars {
    pub fn new(names: &[String], quiet: bool) -> Self {
        let group = MultiProgress::new();
        let all = ProgressBar::new(names.len() as u64);
        all.set_style(style("{elapsed_precise} {wide_bar} {pos}/{len} runs, {eta} left"));
        let all = if quiet { ProgressBar::hidden() } else { group.add(all) };
        let runs = names
            .iter()
            .map(|name| {
                let bar = ProgressBar::new(0).with_message(name.clone());
                bar.set_style(style("  {msg:40!} {wide_bar} {human_pos}/{human_len}"));
                if quiet { ProgressBar::hidden() } else { bar }
            })
            .collect();
        Self { group, all, runs, interrupted: interrupt_flag() }
    }

    pub fn finish(&self) {
        self.all.finish_and_clear();
    }
}

impl Observer for Bars {
    fn step(&self, run: usize, step: Step) -> bool {
        let bar = &self.runs[run];
        if bar.position() == 0 && !self.all.is_hidden() {
            self.group.add(bar.clone());
        }
        show(bar, step);
        !self.interrupted.load(Ordering::Relaxed)
    }

    fn ended(&self, run: usize, _: &Result<Outcome, LabError>) {
        self.runs[run].finish_and_clear();
        self.all.inc(1);
    }
}

/// A part of a point: what it adds to the bar while it runs.
const PARTS: u64 = 1000;

/// One bar for all points of a sweep.
pub struct SweepBar {
    bar: ProgressBar,
    /// Parts of each point that are done.
    parts: Vec<AtomicU64>,
    ended: AtomicUsize,
    interrupted: Arc<AtomicBool>,
}

impl SweepBar {
    pub fn new(points: &[Point], quiet: bool) -> Self {
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(points.len() as u64 * PARTS) };
        bar.set_style(style("{elapsed_precise} {wide_bar} {msg}, {eta} left"));
        bar.set_message(format!("0/{} points", points.len()));
        let parts = points.iter().map(|_| AtomicU64::new(0)).collect();
        Self { bar, parts, ended: AtomicUsize::new(0), interrupted: interrupt_flag() }
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// The flag that Ctrl-C sets.
    pub fn interrupted(&self) -> &Arc<AtomicBool> {
        &self.interrupted
    }

    fn set(&self, point: usize, parts: u64) {
        let before = self.parts[point].swap(parts, Ordering::Relaxed);
        self.bar.inc(parts.saturating_sub(before));
    }
}

impl Watcher for SweepBar {
    fn step(&self, point: usize, share: f64) -> bool {
        self.set(point, (share.clamp(0.0, 1.0) * PARTS as f64) as u64);
        !self.interrupted.load(Ordering::Relaxed)
    }

    fn ended(&self, point: usize) {
        let is_kept = self.parts[point].load(Ordering::Relaxed) == 0;
        self.set(point, PARTS);
        if is_kept {
            // What was finished before says nothing of the time that the others take.
            self.bar.reset_eta();
        }
        let ended = self.ended.fetch_add(1, Ordering::Relaxed) + 1;
        self.bar.set_message(format!("{ended}/{} points", self.parts.len()));
    }
}
