//! Sweeps on a cluster: the points go to the Python package as lines of JSON, and the rows come back as such.

use crate::failure::Failure;
use margay_lab::sweep::{Journal, Point, Swept, gathered, left};
use margay_lab::{ErrorKind, LabError, ResultRow};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde::Deserialize;
use serde_json::json;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How to get the package.
const INSTALL: &str = "install it with `python3 -m pip install 'margay[dask]'` (from a clone: `python3 -m pip install '.[dask]'`), or name the Python that has it in the environment variable MARGAY_PYTHON";

/// What the package says: a finished point, one that failed, or that all is over.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Said {
    Row { key: String, row: Box<ResultRow> },
    Failed { key: String, kind: String, text: String },
    Over { kind: String, text: String },
}

fn python() -> String {
    std::env::var("MARGAY_PYTHON").unwrap_or_else(|_| "python3".into())
}

/// Whether the package is there, of the version of this command.
fn check(python: &str) -> Result<(), Failure> {
    let script = "import margay, distributed; print(margay.__version__)";
    let output = Command::new(python).args(["-c", script]).stdin(Stdio::null()).output();
    let output = output.map_err(|error| {
        Failure::Usage(format!("--engine dask needs Python 3.11, and {python}: {error}; {INSTALL}"))
    })?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        let last = error.lines().last().unwrap_or("it ended without a word");
        return Err(Failure::Usage(format!(
            "--engine dask needs the Python package margay with Dask, and {python} says: {last}; {INSTALL}"
        )));
    }
    let found = String::from_utf8_lossy(&output.stdout);
    let (found, wanted) = (found.trim(), env!("CARGO_PKG_VERSION"));
    if found != wanted {
        return Err(Failure::Usage(format!(
            "--engine dask: {python} has margay {found}, this command is {wanted}; the two have to be the same, {INSTALL}"
        )));
    }
    Ok(())
}

/// How often it is looked whether the user wants to stop, and how long the package may then take to end by itself.
const LOOK: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(20);

/// A cluster of Dask, by way of the Python package.
#[derive(Debug)]
pub struct Cluster {
    python: String,
    scheduler: Option<String>,
    jobs: Option<usize>,
}

/// Asks the package to stop when the user has asked the command to, until `is_over`. The package and its workers are a group of
/// processes of their own, so that Ctrl-C on a terminal reaches them by this alone: workers that it reached would print where
/// each of them was.
fn stop_with(child: u32, interrupted: &AtomicBool, is_over: &AtomicBool) {
    let Some(child) = i32::try_from(child).ok().map(Pid::from_raw) else { return };
    let mut asked: Option<Instant> = None;
    while !is_over.load(Ordering::Relaxed) {
        match asked {
            None if interrupted.load(Ordering::Relaxed) => {
                let _ = kill(child, Signal::SIGINT);
                asked = Some(Instant::now());
            }
            Some(since) if since.elapsed() > PATIENCE => {
                let _ = killpg(child, Signal::SIGKILL);
                return;
            }
            _ => std::thread::sleep(LOOK),
        }
    }
}

impl Cluster {
    /// The cluster of a scheduler, or with none one of this machine with `jobs` workers.
    ///
    /// # Errors
    /// There is no Python that has the package, or it has another version of it.
    pub fn find(scheduler: Option<String>, jobs: Option<usize>) -> Result<Self, Failure> {
        let python = python();
        check(&python)?;
        Ok(Self { python, scheduler, jobs })
    }

    /// Gives the points to the package; it answers on its standard output.
    fn start(&self, points: &[Point], left: &[usize]) -> Result<Child, Failure> {
        let python = &self.python;
        let mut lines = Vec::new();
        for &at in left {
            let settings = points[at].settings.to_json()?;
            let line = json!({"key": points[at].key, "name": points[at].name(), "settings": settings});
            lines.extend_from_slice(format!("{line}\n").as_bytes());
        }
        let mut command = Command::new(python);
        command.args(["-m", "margay", "run-points"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.env("PYTHONIOENCODING", "utf-8").process_group(0);
        if let Some(scheduler) = &self.scheduler {
            command.args(["--scheduler", scheduler]);
        }
        if let Some(jobs) = self.jobs {
            command.args(["--jobs", &jobs.to_string()]);
        }
        let mut child = command.spawn().map_err(|error| Failure::Run(format!("{python}: {error}")))?;
        let Some(mut input) = child.stdin.take() else {
            return Err(Failure::Run(format!("{python}: no standard input")));
        };
        // It reads all before it writes anything. If it is gone, its exit code says so.
        let _ = input.write_all(&lines);
        Ok(child)
    }

    /// Runs the points that the journal does not hold, and adds each to it when it is finished.
    pub fn run(
        &self,
        points: &[Point],
        journal: &mut Journal,
        interrupted: &AtomicBool,
        ended: &dyn Fn(usize),
    ) -> Result<Swept, Failure> {
        let left = left(points, journal);
        (0..points.len()).filter(|at| journal.rows.contains_key(&points[*at].key)).for_each(ended);
        if left.is_empty() || interrupted.load(Ordering::Relaxed) {
            return Ok(gathered(points, journal, Vec::new(), !left.is_empty())?);
        }
        let python = &self.python;
        let mut child = self.start(points, &left)?;
        let Some(output) = child.stdout.take() else {
            return Err(Failure::Run(format!("{python}: no standard output")));
        };
        let (id, is_over) = (child.id(), AtomicBool::new(false));
        let said = std::thread::scope(|scope| {
            scope.spawn(|| stop_with(id, interrupted, &is_over));
            let said = listen(BufReader::new(output), points, &left, journal, ended);
            if said.is_err() {
                let _ = child.kill();
            }
            let status = child.wait();
            is_over.store(true, Ordering::Relaxed);
            said.map(|said| (said, status))
        });
        let ((failures, over), status) = said?;
        let status = status?;
        let is_stopped = interrupted.load(Ordering::Relaxed);
        let swept = gathered(points, journal, failures, is_stopped)?;
        if let Some((kind, text)) = over.filter(|_| !is_stopped) {
            let kept = points.iter().filter(|point| journal.rows.contains_key(&point.key)).count();
            let text = format!(
                "{text}; {kept} of {} points are finished and kept: run the same command again to go on",
                points.len()
            );
            return Err(LabError::Elsewhere { kind: ErrorKind::of_name(&kind), text }.into());
        }
        if !status.success() && !is_stopped {
            return Err(Failure::Run(format!(
                "{python} -m margay ended with {status}; what it wrote is above; finished points are kept: run the same command again to go on"
            )));
        }
        Ok(swept)
    }
}

/// Points that failed, and kind and text of what ended the run before its end.
type Heard = (Vec<(usize, LabError)>, Option<(String, String)>);

/// Keeps what the package says until it says no more.
fn listen(
    output: impl BufRead,
    points: &[Point],
    left: &[usize],
    journal: &mut Journal,
    ended: &dyn Fn(usize),
) -> Result<Heard, Failure> {
    let places: HashMap<&str, usize> = left.iter().map(|at| (points[*at].key.as_str(), *at)).collect();
    let (mut failures, mut over) = (Vec::new(), None);
    for line in output.lines() {
        let said: Said = match line.map(|line| serde_json::from_str(&line)) {
            Ok(Ok(said)) => said,
            // What is no line of it is for people.
            Ok(Err(_)) => continue,
            Err(_) => break,
        };
        match said {
            Said::Row { key, row } => {
                let Some(at) = places.get(key.as_str()) else { continue };
                journal.add(&key, &row)?;
                ended(*at);
            }
            Said::Failed { key, kind, text } => {
                let Some(at) = places.get(key.as_str()) else { continue };
                failures.push((*at, LabError::Elsewhere { kind: ErrorKind::of_name(&kind), text }));
                ended(*at);
            }
            Said::Over { kind, text } => over = Some((kind, text)),
        }
    }
    Ok((failures, over))
}
