//! The preloaded library of `shim.c`, its log, and what a power loss of the host leaves of it.

use super::common::has;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes in which a host writes to its disk.
const UNIT: usize = 4096;

/// Builds the library into a folder; `None` if there is no C compiler.
pub fn build(folder: &Path) -> Option<PathBuf> {
    if !has("cc") {
        return None;
    }
    let library = folder.join("shim.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attack/shim.c");
    let output = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([&library, &source])
        .args(["-ldl", "-lpthread"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(library)
}

/// A small generator of pseudo-random numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ z >> 31) % limit
    }
}

/// One record of the log.
enum Record<'a> {
    Write { offset: usize, bytes: &'a [u8] },
    SyncBegins,
    Sync,
    Drop,
}

/// The records of a log, each with the bytes of the log before it.
fn records(log: &[u8]) -> Vec<(usize, Record<'_>)> {
    let mut records = Vec::new();
    let mut at = 0;
    let number = |at: usize| u64::from_ne_bytes(log[at..at + 8].try_into().unwrap()) as usize;
    while at < log.len() {
        let begin = at;
        let record = match log[at] {
            b'W' => {
                let len = if at + 17 <= log.len() { number(at + 9) } else { usize::MAX };
                // The process was killed while it wrote the log.
                if len > log.len() - (at + 17).min(log.len()) {
                    break;
                }
                at += 16 + len;
                Record::Write { offset: number(begin + 1), bytes: &log[begin + 17..][..len] }
            }
            b'B' => Record::SyncBegins,
            b'S' => Record::Sync,
            b'D' => Record::Drop,
            other => panic!("the log has a record {other}"),
        };
        at += 1;
        records.push((begin, record));
    }
    records
}

/// Places in a log at which the power may be lost.
pub fn cuts(log: &[u8]) -> Vec<usize> {
    records(log).into_iter().map(|(at, _)| at).collect()
}

/// What a power loss of the host leaves of a file: everything up to the begin of the last sync that ended before the first `cut` bytes of the
/// log were written, and of each unit that was written since any version that it had.
pub fn after_power_loss(before: &[u8], log: &[u8], cut: usize, seed: u64) -> Vec<u8> {
    let mut durable = before.to_vec();
    let mut now = before.to_vec();
    let mut versions: BTreeMap<usize, Vec<Vec<u8>>> = BTreeMap::new();
    // How many of the versions a sync saves that has begun.
    let mut begun: Vec<(usize, usize)> = Vec::new();
    let end = now.len();
    let range = |unit: usize| -> Range<usize> { unit * UNIT..((unit + 1) * UNIT).min(end) };
    for (_, record) in records(log).into_iter().take_while(|(at, _)| *at < cut) {
        match record {
            Record::Write { offset, bytes } => {
                now[offset..offset + bytes.len()].copy_from_slice(bytes);
                for unit in offset / UNIT..(offset + bytes.len()).div_ceil(UNIT) {
                    versions.entry(unit).or_default().push(now[range(unit)].to_vec());
                }
            }
            Record::SyncBegins => begun = versions.iter().map(|(unit, all)| (*unit, all.len())).collect(),
            Record::Sync => {
                for (unit, count) in std::mem::take(&mut begun) {
                    let saved = versions.entry(unit).or_default().drain(..count).next_back().unwrap();
                    durable[range(unit)].copy_from_slice(&saved);
                }
                versions.retain(|_, all| !all.is_empty());
            }
            // The host's cache goes on showing them, and never writes them.
            Record::Drop => {
                begun.clear();
                versions.clear();
            }
        }
    }
    let mut random = Random::new(seed);
    // Few or many of the units are lost.
    let lost_percent = [10, 50, 90][random.below(3) as usize];
    for (unit, versions) in versions {
        let is_lost = random.below(100) < lost_percent;
        let older = random.below(versions.len() as u64 + 1) as usize;
        match (is_lost, older) {
            (false, _) => durable[range(unit)].copy_from_slice(&versions[versions.len() - 1]),
            (true, 0) => {}
            (true, number) => durable[range(unit)].copy_from_slice(&versions[number - 1]),
        }
    }
    durable
}
