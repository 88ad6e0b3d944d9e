//! Sweeps: what is finished is never lost and never run again, and what is not whole does not look so.

use std::collections::HashSet;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn margay(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_margay"));
    command.args(args).current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn works(folder: &Path, args: &[&str]) -> String {
    let output = margay(folder, args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn fails(folder: &Path, args: &[&str], code: i32, message: &str) {
    let output = margay(folder, args).output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
    assert!(error.contains(message), "{args:?}: {error}");
}

/// Finished points: lines of the journal after its first.
fn finished(journal: &Path) -> usize {
    std::fs::read(journal).map_or(0, |bytes| bytes.iter().filter(|byte| **byte == b'\n').count().saturating_sub(1))
}

/// Sends a signal when so many points are finished, and waits for the end.
fn stop(mut child: Child, journal: &Path, at: usize, signal: &str) -> Output {
    let started = Instant::now();
    while finished(journal) < at {
        assert!(child.try_wait().unwrap().is_none(), "it ended before {at} points were finished");
        assert!(started.elapsed() < Duration::from_secs(300), "only {} points are finished", finished(journal));
        std::thread::sleep(Duration::from_millis(5));
    }
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    child.wait_with_output().unwrap()
}

const POINTS: usize = 200;
const SWEEP: &[&str] = &[
    "sweep",
    "hot-cold:90/10,writes=30000",
    "--device",
    "intel-series2plus-24mb",
    "--over-provisioning",
    "0.1..0.5:0.1",
    "-s",
    "greedy,cat,fifo,d-choices",
    "-p",
    "m1,m4",
    "--seeds",
    "5",
    "-o",
    "all.csv",
    "-q",
];

#[test]
fn a_sweep_that_is_interrupted_and_killed_ends_whole_and_equal_to_one_that_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let (stopped, whole) = (folder.path().join("stopped"), folder.path().join("whole"));
    [&stopped, &whole].iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
    let (output, journal) = (stopped.join("all.csv"), stopped.join("all.csv.points"));
    let one_at_a_time = [SWEEP, &["-j", "1"]].concat();

    let interrupted = stop(margay(&stopped, &one_at_a_time).spawn().unwrap(), &journal, 20, "-INT");
    let error = text(&interrupted.stderr);
    assert_eq!(interrupted.status.code(), Some(130), "{error}");
    let done = finished(&journal);
    assert!((20..POINTS).contains(&done), "{done}");
    assert!(error.contains(&format!("{done} of {POINTS} points are finished")), "{error}");
    assert!(!output.exists(), "a partial result looks whole");
    let partial = std::fs::read_to_string(stopped.join("all.partial.csv")).unwrap();
    assert_eq!(partial.lines().count(), done + 1);

    let killed = stop(margay(&stopped, &one_at_a_time).spawn().unwrap(), &journal, done + 40, "-KILL");
    assert_eq!(killed.status.code(), None);
    let kept = finished(&journal);
    assert!((done + 40..POINTS).contains(&kept) && !output.exists(), "{kept}");

    // As a power cut might leave it: the last line is not whole.
    let bytes = std::fs::read(&journal).unwrap();
    std::fs::write(&journal, &bytes[..bytes.len() - 100]).unwrap();
    works(&stopped, SWEEP);
    works(&whole, SWEEP);
    let rows = std::fs::read_to_string(&output).unwrap();
    assert_eq!(rows, std::fs::read_to_string(whole.join("all.csv")).unwrap());
    assert_eq!(rows.lines().count(), POINTS + 1);
    assert!(!stopped.join("all.partial.csv").exists());
    // No point was run twice.
    let lines = std::fs::read_to_string(&journal).unwrap();
    let points: HashSet<String> = lines.lines().skip(1).map(|line| line[..40].to_string()).collect();
    assert_eq!((points.len(), finished(&journal)), (POINTS, POINTS));
    // All is done: nothing is run, and the result is the same.
    let size = std::fs::metadata(&journal).unwrap().len();
    works(&stopped, SWEEP);
    assert_eq!(std::fs::metadata(&journal).unwrap().len(), size);
    assert_eq!(std::fs::read_to_string(&output).unwrap(), rows);
}

const SMALL: &[&str] = &[
    "sweep",
    "random,writes=2000",
    "--device",
    "intel-series2plus-24mb",
    "--utilization",
    "0.5,0.6,0.7",
    "--seeds",
    "4",
    "-q",
    "-o",
];

#[test]
fn a_full_disk_is_an_error_that_names_the_file_and_the_sweep_goes_on_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    // A limit on the size of files fails a write as a full disk does.
    let mut command = Command::new("bash");
    let script = "ulimit -f 16; trap '' XFSZ; exec \"$@\"";
    command.args(["-c", script, "bash", env!("CARGO_BIN_EXE_margay")]).args(SMALL).arg("full.csv");
    let output = command.current_dir(folder.path()).output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("full.csv.points: ") && error.contains("finished points are kept"), "{error}");
    assert!(!folder.path().join("full.csv").exists());
    let kept = finished(&folder.path().join("full.csv.points"));
    assert!((1..12).contains(&kept), "{kept}");
    works(folder.path(), &[SMALL, &["full.csv"]].concat());
    works(folder.path(), &[SMALL, &["other.csv"]].concat());
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(read("full.csv"), read("other.csv"));
    // Another sweep does not take the place of its result, nor is a plot replaced.
    let other = ["sweep", "sequential,writes=99", "-q", "-o", "full.csv"];
    fails(folder.path(), &other, 2, "full.csv: exists already; with --force");
    fails(folder.path(), &[SMALL, &["full.csv", "--restart"]].concat(), 2, "full.csv: exists already");
    std::fs::write(folder.path().join("mine.svg"), "mine").unwrap();
    fails(folder.path(), &[SMALL, &["full.csv", "--plot", "mine.svg"]].concat(), 2, "mine.svg: exists already");
    assert_eq!((read("full.csv"), read("mine.svg")), (read("other.csv"), "mine".into()));
    fails(folder.path(), &[SMALL, &["/proc/nowhere/x.csv"]].concat(), 1, "/proc/nowhere");
}

#[test]
fn rows_have_version_seed_parameters_and_hash_and_are_those_of_a_replay() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    works(at, &["generate", "hot-cold:80/20,writes=9000", "t.mgt", "--pages", "1500"]);
    let toml = "source = 't.mgt'\nselection = ['greedy', 'random']\nover_provisioning = '0.1..0.3:0.1'\nseeds = 2\n";
    std::fs::write(at.join("study.toml"), toml).unwrap();
    let shown = works(at, &["sweep", "study.toml", "-q"]);
    assert!(shown.contains("over-provisioning, selection") && shown.contains("study.csv"), "{shown}");
    let mut reader = csv::Reader::from_path(at.join("study.csv")).unwrap();
    let names = reader.headers().unwrap().clone();
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    // Greedy on a trace leaves nothing to chance: one seed.
    assert_eq!(rows.len(), 3 * (1 + 2));
    let field = |row: &csv::StringRecord, name: &str| {
        row[names.iter().position(|other| other == name).unwrap_or_else(|| panic!("{name} is missing"))].to_string()
    };
    let row =
        rows.iter().find(|row| field(row, "set.over-provisioning") == "0.2" && field(row, "seed") == "2").unwrap();
    let args = ["replay", "t.mgt", "-s", "random", "--over-provisioning", "0.2", "--seed", "2", "-q", "-f", "json"];
    let replayed: serde_json::Value = serde_json::from_str(&works(at, &args)).unwrap();
    for name in ["margay_version", "trace_xxh3", "selection", "wa", "wa_warm", "erases", "exported_pages"] {
        let value = &replayed["row"][name];
        let value = value.as_str().map_or_else(|| value.to_string(), String::from);
        assert!(!value.is_empty() && field(row, name) == value, "{name}: {value}, {}", field(row, name));
    }
    assert_eq!(field(row, "group_seeds"), "2");
    assert!(field(row, "group_wa_warm_half95").parse::<f64>().unwrap() > 0.0);
    // More values: what is finished is kept. Another trace under the name: nothing of it is taken for finished.
    let lines = || finished(&at.join("study.csv.points"));
    let before = lines();
    works(at, &["sweep", "study.toml", "-q", "--over-provisioning", "0.1..0.4:0.1"]);
    assert_eq!(lines(), before + 3);
    works(at, &["generate", "hot-cold:80/20,writes=9000", "t.mgt", "--pages", "1500", "--seed", "9", "--force"]);
    works(at, &["sweep", "study.toml", "-q", "-f", "parquet", "-o", "study.csv"]);
    assert_eq!(lines(), before + 3 + 9);
    assert!(std::fs::read(at.join("study.csv")).unwrap().starts_with(b"PAR1"));
}

#[test]
fn what_is_wrong_with_a_sweep_is_said_before_anything_is_run() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fails(at, &["sweep", "random", "--utilization", "0.8,1.5", "-q"], 2, "utilization = 1.5");
    fails(at, &["sweep", "random", "-s", "greedy,gredy", "-q"], 2, "the known ones are greedy");
    fails(at, &["sweep", "random", "--over-provisioning", "0.1..0.3", "-q"], 2, "name the step");
    fails(at, &["sweep", "random", "--over-provisioning", "7..28:3", "-q"], 2, "10 % is written 0.10");
    fails(at, &["sweep", "-q"], 2, "no source");
    std::fs::write(at.join("x.csv"), "mine\n").unwrap();
    fails(at, &["sweep", "random,writes=9", "-q", "-o", "x.csv"], 2, "exists already");
    std::fs::write(at.join("y.csv.points"), "no journal\n").unwrap();
    fails(at, &["sweep", "random,writes=9", "-q", "-o", "y.csv"], 1, "is not a file of finished points");
    assert_eq!(std::fs::read_to_string(at.join("y.csv.points")).unwrap(), "no journal\n");
    let names = std::fs::read_dir(at).unwrap().count();
    assert_eq!(names, 2, "nothing else was written");
}

/// A Python with the package of this version as far as the command can see, which runs no point until it is interrupted.
fn python(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("python");
    let script = format!(
        r#"#!/bin/sh
if [ "$1" = -c ]; then echo {}; exit 0; fi
echo "$@" > args
cat > points
trap 'echo >> interrupted; echo "{{\"over\":{{\"kind\":\"interrupted\",\"text\":\"stopped\"}}}}"; exit 0' INT
touch started
n=0; while [ $n -lt 3000 ]; do sleep 0.1; n=$((n+1)); done
"#,
        env!("CARGO_PKG_VERSION")
    );
    std::fs::write(&path, script).unwrap();
    assert!(Command::new("chmod").arg("+x").arg(&path).status().unwrap().success());
    path
}

#[test]
fn ctrl_c_stops_what_runs_on_a_cluster_though_that_is_no_process_of_the_terminals_group() {
    let folder = tempfile::tempdir().unwrap();
    let dask = ["--engine", "dask", "-j", "3", "--seeds", "1", "-q"];
    let sweep =
        [&["sweep", "random,writes=2000", "--device", "intel-series2plus-24mb", "-o", "a.csv"][..], &dask].concat();
    let python = python(folder.path());
    let mut child = margay(folder.path(), &sweep).env("MARGAY_PYTHON", &python).spawn().unwrap();
    let began = Instant::now();
    while !folder.path().join("started").exists() {
        assert!(child.try_wait().unwrap().is_none() && began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(10));
    }
    // To the command alone.
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert!(began.elapsed() < Duration::from_secs(120), "it waited for the end of the points");
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("run the same command again"), "{}", text(&output.stderr));
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(read("interrupted"), "\n", "it was told once");
    assert_eq!(read("args").trim(), "-m margay run-points --jobs 3");
}
