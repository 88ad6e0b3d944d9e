//! The real traces of the workplace, where they are: every one opens by detection, with the counts that its
//! README states.
#![allow(clippy::print_stdout)]

mod skip;

use margay_trace::{ReadOptions, info, open};
use std::path::{Path, PathBuf};

fn folder() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let folder = std::env::var_os("MARGAY_TRACES").map_or(beside, PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    skip::skip(format_args!("there are no real traces at {} (set MARGAY_TRACES)", folder.display()));
    None
}

#[test]
fn every_shared_trace_is_detected_and_has_the_counts_of_its_readme() {
    let Some(folder) = folder() else { return };
    // The README counts pages of several devices at the same address once.
    const OVERLAP: u64 = 0;
    let table = [
        ("hplajw-1week.srt.zst", "hp-srt", 44_519, 31_479, 54_776, 3_981),
        ("hplajw-1week.csv.zst", "csv", 44_519, 31_479, 54_776, 3_981),
        ("cloudphysics-sample.csv.zst", "cloudphysics", 113_872, 66_898, 656_169, 208_696),
        ("sqlite-wal-ext4.blkparse.zst", "blkparse", 5_008, 5_003, 16_874, 2_170),
        ("disksim-validate-ascii.trace.zst", "disksim", 100_000, 20_366, 44_124, OVERLAP),
        ("disksim-test70000.trace.zst", "disksim", 70_001, 69_988, 70_132, 37_431),
        ("tpcc-small.trace.zst", "mqsim", 6_999, 2_618, 7_995, OVERLAP),
        ("wsrch-small.trace.zst", "mqsim", 24_783, 4, 8, 4),
        ("hadoop-eternity2.csv.zst", "csv", 111_612, 1_823, 7_395, 6_740),
        ("llm-opt7b-cachedrop.trace.zst", "mqsim", 36_873, 5_000, 592_453, 592_453),
    ];
    for (name, format, requests, writes, page_writes, distinct) in table {
        let info = info(open(&folder.join(name), &ReadOptions::default()).unwrap(), 4096).unwrap();
        assert_eq!(info.format, format, "{name}");
        let found = (
            info.counts.requests,
            info.counts.writes,
            info.page_writes,
            if distinct == OVERLAP { OVERLAP } else { info.pages_written },
        );
        println!("{name}: {found:?} {:?}", info.warnings);
        assert_eq!(found, (requests, writes, page_writes, distinct), "{name}");
    }
}

#[test]
fn the_binary_week_equals_its_csv_request_by_request() {
    let Some(folder) = folder() else { return };
    let read = |name: &str| -> Vec<_> {
        open(&folder.join(name), &ReadOptions::default()).unwrap().map(|request| request.unwrap()).collect()
    };
    let (binary, text) = (read("hplajw-1week.srt.zst"), read("hplajw-1week.csv.zst"));
    assert_eq!(binary.len(), text.len());
    for (number, (a, b)) in binary.iter().zip(&text).enumerate() {
        assert_eq!(a, b, "request {number}");
    }
}

#[test]
fn every_shared_trace_of_page_references_has_the_counts_of_its_specification() {
    use margay_trace::vm::{LoadOptions, PageMap, References};
    let Some(folder) = folder() else { return };
    let table = [("acrobat", 10_810_619, 12_458), ("gqview", 40_000_000, 67_069), ("office", 40_000_000, 107_580)];
    for (name, records, pages) in table {
        let options = LoadOptions { page_shift: 11, chunk_pages: 64, map: PageMap::Chunks, only_written: false };
        let references = References::load(&folder.join(format!("vm/{name}.vmt.zst")), &options).unwrap();
        assert_eq!((references.len(), references.distinct_pages()), (records, pages), "{name}");
    }
}
