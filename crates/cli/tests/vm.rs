//! Page references and the pager as a person uses them.

mod common;
mod paging;

use common::{fails, has, is_paging_allowed, library, skip, works};
use margay_host::Existing;
use margay_trace::vm::{Reference, VmHeader, VmWriter};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const SAMPLE: &str = "samples/sort.vmt.zst";

#[test]
fn a_replay_shows_every_scheme_beside_the_first() {
    let out = works(&["vm", "replay", "-q", SAMPLE, "--cache", "1M"]);
    for part in ["709872 references", "512 frames", "DU-GC", "DA-GC", "LDA-GC5", "BA-GC", "to first"] {
        assert!(out.contains(part), "no '{part}' in {out}");
    }
    let csv = works(&["vm", "replay", "-q", SAMPLE, "--cache", "1M", "-s", "lda-gc5", "--store", "bast", "-f", "csv"]);
    let mut lines = csv.lines();
    let header: Vec<_> = lines.next().unwrap().split(',').collect();
    for name in ["margay_version", "seed", "trace_xxh3", "scheme", "io_us", "dirty_evictions"] {
        assert!(header.contains(&name), "{header:?}");
    }
    assert_eq!(lines.count(), 1);
    for store in ["page", "fast:sequential=no", "fast:open=yes"] {
        let options = ["--lru-region", "50", "--window", "adaptive", "--replacement", "clean-first", "--only-written"];
        let out = works(&[&["vm", "replay", "-q", SAMPLE, "--cache", "1M", "--store", store][..], &options].concat());
        assert!(out.contains("those ever written"), "{out}");
    }
}

#[test]
fn wrong_names_and_values_are_refused_with_what_is_right() {
    fails(&["vm", "replay", SAMPLE, "-s", "lda-gc9"], 2, "lda-gc5");
    fails(&["vm", "replay", SAMPLE, "--store", "slow"], 2, "bast");
    fails(&["vm", "replay", SAMPLE, "--lru-region", "200"], 2, "share in per cent");
    fails(&["vm", "replay", SAMPLE, "--window", "0"], 2, "adaptive:START");
    fails(&["vm", "replay", SAMPLE, "-f", "parquet"], 2, "needs --output");
    fails(&["vm", "replay", SAMPLE, "--cache", "4K"], 2, "16 pages");
    fails(&["vm", "replay", "Cargo.toml"], 3, "VMT1");
    fails(&["vm", "replay", "no-such-file"], 3, "no-such-file");
}

#[test]
fn a_trace_of_page_references_is_described_printed_and_converted() {
    let out = works(&["trace", "info", SAMPLE]);
    assert!(out.contains("709872") && out.contains("2446 of 2048 bytes"), "{out}");
    let json: serde_json::Value = serde_json::from_str(&works(&["trace", "info", "--json", SAMPLE])).unwrap();
    assert_eq!(json["pages"], 2446);
    assert_eq!(works(&["trace", "head", "-n", "3", SAMPLE]).lines().count(), 4);
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("sort.vmt");
    works(&["trace", "convert", SAMPLE, plain.to_str().unwrap()]);
    assert!(works(&["trace", "info", plain.to_str().unwrap()]).contains("709872"));
}

#[test]
fn the_study_runs_on_the_trace_of_the_project() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let out = works(&["reproduce", "lda-gc", "-q", "--trace", SAMPLE, "--cache", "1M", "--folder", path]);
    for part in ["Fig. 5", "Table IV", "LDA-GC5, recommended", "Fig. 12"] {
        assert!(out.contains(part), "no '{part}' in {out}");
    }
    for file in ["comparisons.csv", "paging.csv", "fig11.svg", "fig13.csv"] {
        assert!(folder.path().join(file).is_file(), "{file}");
    }
}

/// Writes a trace of pages and whether they are written.
fn trace(path: &Path, references: impl IntoIterator<Item = (u64, bool)>) {
    let mut writer = VmWriter::create_with(path, VmHeader::DEFAULT, Existing::Replace).unwrap();
    for (page, write) in references {
        writer.write(Reference { page, write }).unwrap();
    }
    writer.finish().unwrap();
}

/// What a replay counted, a row for each scheme.
fn counts(path: &Path, options: &[&str]) -> Vec<serde_json::Value> {
    let args = ["vm", "replay", "-q", path.to_str().unwrap(), "--cache", "128K", "--log-blocks", "8", "-f", "json"];
    let mut rows: Vec<serde_json::Value> = serde_json::from_str(&works(&[&args, options].concat())).unwrap();
    // What the trace and its numbering are called, and what the run took.
    let others =
        ["trace", "trace_xxh3", "only_written", "page_map", "logical_pages", "memory_bytes_per_frame", "seconds"];
    for row in rows.iter_mut() {
        others.iter().for_each(|name| drop(row.as_object_mut().unwrap().remove(*name).unwrap()));
    }
    rows
}

/// Each of these pages once, in ascending order, then the same pages in no order, a third of them written.
fn shuffled(pages: &[u64]) -> Vec<(u64, bool)> {
    let (mut references, mut state) = (pages.iter().map(|page| (*page, false)).collect::<Vec<_>>(), 1u64);
    for _ in 0..40_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let pick = state >> 33;
        // Half of them go to a sixteenth of the pages.
        let span = if pick.is_multiple_of(2) { pages.len() } else { pages.len() / 16 };
        references.push((pages[(pick / 2) as usize % span], state >> 20 & 3 == 0));
    }
    references
}

#[test]
fn a_replay_counts_the_same_whether_or_not_the_numbering_has_holes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("holes.vmt");
    let both = |store: &[&str]| ["chunks", "dense"].map(|pages| counts(&path, &[store, &["--pages", pages]].concat()));
    // Every third page of forty chunks over the page-mapped log.
    let thirds: Vec<u64> = (0..40 * 64).filter(|page: &u64| page.is_multiple_of(3)).collect();
    trace(&path, shuffled(&thirds));
    let [chunks, dense] = both(&["--store", "page", "-s", "du-gc", "-s", "da-gc", "-s", "lda-gc2"]);
    assert_eq!(chunks, dense);
    // The hybrid store keeps the places in a chunk, so the holes are at the end of the last one: chunks of 64, of which the last
    // has twenty pages that are referenced.
    let most: Vec<u64> = (0..6 * 64 + 20).rev().collect();
    trace(&path, most.iter().map(|page| (6 * 64 + 19 - page, false)).chain(shuffled(&most)));
    for store in ["fast", "fast:sequential=no", "bast"] {
        let [chunks, dense] = both(&["--store", store]);
        assert_eq!(chunks, dense, "{store}");
    }
}

#[test]
fn pages_that_are_left_out_count_for_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (path, without) = (folder.path().join("all.vmt"), folder.path().join("written.vmt"));
    let pages: Vec<u64> = (0..20 * 64).collect();
    // Of each chunk a half is only read, and of every fourth chunk all.
    let is_written = |page: u64| page % 64 < 32 && !(page / 64).is_multiple_of(4);
    let every_page = pages.iter().map(|page| (*page, true));
    let all: Vec<_> =
        shuffled(&pages).into_iter().chain(every_page).map(|(page, write)| (page, write && is_written(page))).collect();
    let written: Vec<_> = all.iter().copied().filter(|(page, _)| is_written(*page)).collect();
    trace(&path, all);
    trace(&without, written);
    for options in [&["--store", "fast"][..], &["--store", "page"], &["--store", "fast", "--pages", "dense"]] {
        let left_out = counts(&path, &[options, &["--only-written"]].concat());
        assert_eq!(left_out, counts(&without, options), "{options:?}");
    }
    // 15 chunks with 32 pages each: over the page-mapped log no page that is left out takes room or is copied.
    let device = |path: &Path, options: &[&str]| {
        let args = ["vm", "replay", "-q", path.to_str().unwrap(), "--cache", "128K", "-s", "du-gc", "-f", "json"];
        let json: serde_json::Value = serde_json::from_str(&works(&[&args, options].concat())).unwrap();
        (number(&json, "logical_pages"), number(&json, "referenced_pages"))
    };
    assert_eq!(device(&path, &["--only-written"]), (15 * 64, 15 * 32));
    assert_eq!(device(&path, &["--only-written", "--pages", "dense"]), (15 * 32, 15 * 32));
    assert_eq!(device(&path, &[]), (20 * 64, 20 * 64));
}

#[test]
fn a_page_mapped_store_says_what_it_dropped_and_cleans_where_little_is_to_be_copied() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.vmt");
    trace(&path, shuffled(&(0..20 * 64).collect::<Vec<_>>()));
    let rows = counts(&path, &["--store", "page", "-s", "du-gc", "-s", "da-gc", "-s", "lda-gc2"]);
    let of = |row: usize, name: &str| number(&rows[row], name) as f64;
    assert!(of(0, "drops") == 0.0 && of(0, "duplicates") > 0.0, "{rows:?}");
    assert_eq!(of(1, "drops"), of(1, "duplicates"));
    assert!(of(1, "drops") > 0.0 && of(2, "drops") > 0.0 && of(2, "drops") < of(2, "duplicates"), "{rows:?}");
    assert!(of(1, "migrations") / of(1, "gcs") < of(0, "migrations") / of(0, "gcs"), "{rows:?}");
}

#[test]
fn handing_over_counts_as_input_and_output_where_asked_for() {
    let replay = |options: &[&str]| -> (f64, f64) {
        let args = ["vm", "replay", "-q", SAMPLE, "--cache", "1M", "-s", "lda-gc5", "-f", "json"];
        let json: serde_json::Value = serde_json::from_str(&works(&[&args, options].concat())).unwrap();
        assert_eq!(json["handover_us"].as_f64().unwrap(), 50.0 * number(&json, "cache_writes") as f64);
        (json["io_us"].as_f64().unwrap(), json["handover_us"].as_f64().unwrap())
    };
    let (without, handover) = replay(&[]);
    assert!(handover > 0.0);
    assert_eq!(replay(&["--count-handover"]), (without + handover, handover));
}

fn vm_run(folder: &Path, options: &[&str], program: &[&str]) -> Output {
    library();
    let store = folder.join("swap.img");
    let args = [&["vm", "run", "--store", store.to_str().unwrap()], options, &["--"], program].concat();
    Command::new(env!("CARGO_BIN_EXE_margay")).args(args).current_dir(folder).output().unwrap()
}

fn number(report: &serde_json::Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("no {name} in {report}"))
}

#[test]
fn sort_and_sqlite_get_the_right_result_with_a_heap_that_is_mostly_on_flash() {
    let folder = tempfile::tempdir().unwrap();
    if !is_paging_allowed(folder.path()) {
        return;
    }
    let lines: String = (0..30_000u64).map(|n| format!("{:07} a line of text {n}\n", n * 7919 % 1_000_003)).collect();
    std::fs::write(folder.path().join("lines"), &lines).unwrap();
    let sort = ["sort", "--parallel=1", "-S", "20M", "lines", "-o", "sorted"];
    for scheme in ["du-gc", "lda-gc5"] {
        let options = ["--ram", "1M", "--memory", "64M", "--json", "report.json", "--force", "-s", scheme];
        let output = vm_run(folder.path(), &options, &sort);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let mut expected: Vec<_> = lines.lines().collect();
        expected.sort_unstable();
        let sorted = std::fs::read_to_string(folder.path().join("sorted")).unwrap();
        assert!(sorted.lines().eq(expected), "{scheme}");
        let report = std::fs::read_to_string(folder.path().join("report.json")).unwrap();
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        assert!(number(&report, "dirty_evictions") > 200 && number(&report, "swap_ins") > 200, "{report}");
    }
    let sql = "create table t(a integer primary key, b text); with recursive c(x) as (select 1 union all select x+1 from c where x<20000) insert into t select x, hex(x*7919%40009)||'padding padding' from c; create index i on t(b); select count(*), sum(a), min(b), max(b), sum(length(b)) from t; pragma integrity_check;";
    if !has("sqlite3") {
        return;
    }
    let plain = Command::new("sqlite3").args([":memory:", sql]).output().unwrap();
    let paged = vm_run(folder.path(), &["--ram", "1M", "--memory", "64M"], &["sqlite3", ":memory:", sql]);
    assert!(paged.status.success(), "{}", text(&paged.stderr));
    assert_eq!(text(&paged.stdout), text(&plain.stdout));
    let said = text(&paged.stderr);
    assert!(said.contains("pages evicted dirty") && said.contains("segments erased"), "{said}");
}

#[test]
fn what_goes_wrong_under_a_program_is_said() {
    let folder = tempfile::tempdir().unwrap();
    if !is_paging_allowed(folder.path()) {
        return;
    }
    // The heap is used up: the program is told, as by any malloc.
    let output = vm_run(folder.path(), &["-q"], &["sh", "-c", "exit 7"]);
    assert_eq!(output.status.code(), Some(7));
    let output = vm_run(folder.path(), &["--ram", "8K"], &["true"]);
    assert!(text(&output.stderr).contains("at least 16"), "{}", text(&output.stderr));
    let output = vm_run(folder.path(), &["-s", "ba-gc"], &["true"]);
    assert!(text(&output.stderr).contains("BA-GC"), "{}", text(&output.stderr));
    let output = vm_run(folder.path(), &[], &["no-such-program"]);
    assert_eq!(output.status.code(), Some(2));
    // A store that cannot be made.
    library();
    let args = ["vm", "run", "--store", "/no/such/folder/swap.img", "--", "true"];
    fails(&args, 1, "/no/such/folder/swap.img");
}

#[test]
fn without_the_privilege_it_says_what_to_allow() {
    let sysctl = std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").unwrap_or_default();
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
    if !is_root || sysctl.trim() != "0" {
        skip("it needs root, to give it up, and vm.unprivileged_userfaultfd=0");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    library();
    let store = folder.path().join("swap.img");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--clear-groups", env!("CARGO_BIN_EXE_margay"), "vm", "run", "--store"]);
    let output = command.arg(&store).args(["--", "true"]).output().unwrap();
    let error = text(&output.stderr);
    if error.contains("Permission denied") && !error.contains("userfaultfd") {
        skip("the build folder is closed to other users");
        return;
    }
    assert!(error.contains("vm.unprivileged_userfaultfd=1"), "{error}");
    assert_eq!(output.status.code(), Some(1));
}
