//! Attacks from outside on served and mounted images: calls of the host that fail for a moment, a host that loses its
//! power with its cache half written. A preloaded library (`shim.c`) fails and logs the calls; nothing here shares code
//! with the engine.
//!
//! `MARGAY_ATTACK=N` runs N times as many trials, `MARGAY_ATTACK_SEED=N` others.
#![allow(clippy::print_stderr)]

#[path = "../../../serve/tests/served/client.rs"]
#[allow(dead_code, reason = "a test takes what it needs")]
mod client;
#[path = "../common/mod.rs"]
mod common;
mod disk;
mod mounted;
mod shim;

use common::{MARGAY, run};
use disk::{Attack, Knowledge, Server};
use shim::Random;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Kinds of images: with a spare area, byte-programmable, in pairs of pages, with the map on flash in several translation pages.
const KINDS: [&[&str]; 4] = [
    &["--size", "4M", "-p", "m1", "--export", "3M"],
    &["--size", "4M", "--nor", "--export", "3M"],
    &["--size", "4M", "--spare-bytes", "16", "--pair-pages", "--export", "1M"],
    &["--size", "12M", "--export", "9M", "--map-memory", "20K"],
];

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().expect("a number"))
}

/// Seeds of the trials of a test that runs so many in `make test`.
fn seeds(trials: u64) -> impl Iterator<Item = u64> {
    let first = from_environment("MARGAY_ATTACK_SEED", 0) * 100_000;
    first..first + trials * from_environment("MARGAY_ATTACK", 1)
}

struct Bench {
    dir: TempDir,
    shim: PathBuf,
}

impl Bench {
    /// `None` if the tools are missing.
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let shim = shim::build(dir.path())?;
        Some(Self { dir, shim })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A fresh image of a kind.
    fn image(&self, kind: u64) -> PathBuf {
        let image = self.path("flash.img");
        let _ = std::fs::remove_file(&image);
        let options = KINDS[kind as usize % KINDS.len()];
        let name = image.display().to_string();
        run(MARGAY, &[&["format", &name, "--pages-per-segment", "16"], options].concat());
        image
    }

    fn attack(&self, fail: Option<String>) -> Attack {
        let log = self.path("log");
        let _ = std::fs::remove_file(&log);
        Attack { shim: Some(self.shim.clone()), log: Some(log), fail }
    }
}

/// Fills half of the disk's pages, so that there is something to lose, and stops cleanly.
fn fill(image: &Path) -> Knowledge {
    let nothing = Attack::default();
    let server = Server::start(image, &nothing).unwrap();
    let (mut client, pages) = server.connect();
    let mut knowledge = Knowledge::new(pages);
    knowledge.write(&mut client, &nothing, pages, 0, 99);
    drop(client);
    assert!(server.stop());
    knowledge
}

/// Serves an image and compares all of it.
fn check(image: &Path, knowledge: &Knowledge, cut: usize, what: &str) -> Vec<u64> {
    let server = Server::start(image, &Attack::default()).unwrap_or_else(|| panic!("{what}: it is not served"));
    let found = knowledge.check(&mut server.connect().0, cut, what);
    server.kill();
    found
}

/// Serves a copy of an image as a power loss of the host leaves it, and compares; what was found is there for good.
fn check_power_loss(
    bench: &Bench,
    knowledge: &Knowledge,
    before: &[u8],
    log: &[u8],
    cut: usize,
    seed: u64,
    what: &str,
) {
    let copy = bench.path("copy.img");
    std::fs::write(&copy, shim::after_power_loss(before, log, cut, seed)).unwrap();
    let what = format!("{what}, the power of the host lost at byte {cut} of the log, seed {seed}");
    let found = check(&copy, knowledge, cut, &what);
    assert_eq!(found, check(&copy, knowledge, cut, &what), "{what}: a page changed after it was read");
}

#[test]
fn what_was_flushed_survives_a_power_loss_of_the_host_in_any_order() {
    let Some(bench) = Bench::new() else { return };
    for seed in seeds(4) {
        let image = bench.image(seed);
        let mut knowledge = fill(&image);
        let before = std::fs::read(&image).unwrap();
        let attack = bench.attack(None);
        let server = Server::start(&image, &attack).unwrap();
        knowledge.write(&mut server.connect().0, &attack, 400, 0, seed);
        server.kill();
        let log = std::fs::read(attack.log.as_ref().unwrap()).unwrap();
        let cuts = shim::cuts(&log);
        let mut random = Random::new(seed);
        for number in 0..8 {
            let cut = cuts[random.below(cuts.len() as u64) as usize];
            check_power_loss(&bench, &knowledge, &before, &log, cut, seed << 8 | number, &format!("trial {seed}"));
        }
    }
}

#[test]
fn a_write_that_fails_for_a_moment_loses_nothing_that_was_flushed() {
    let Some(bench) = Bench::new() else { return };
    let mut errors = 0;
    for seed in seeds(12) {
        let mut random = Random::new(seed);
        let image = bench.image(seed);
        let mut knowledge = fill(&image);
        let before = std::fs::read(&image).unwrap();
        let burst = [1, 2, 5, 20][random.below(4) as usize];
        let errno = [28, 5][random.below(2) as usize];
        let effect = ["none", "half", "all"][random.below(3) as usize];
        let fail = format!("write {} {burst} {errno} {effect}", random.below(100));
        let what = format!("trial {seed}, {fail}");
        let attack = bench.attack(Some(fail));
        let retries = [0, 3][random.below(2) as usize];
        if let Some(server) = Server::start(&image, &attack) {
            knowledge.write(&mut server.connect().0, &attack, 200, retries, seed);
            if random.below(2) == 0 {
                server.kill();
            } else {
                server.stop();
            }
        }
        let log = std::fs::read(attack.log.as_ref().unwrap()).unwrap();
        errors += knowledge.errors;
        check(&image, &knowledge, usize::MAX, &what);
        check_power_loss(&bench, &knowledge, &before, &log, log.len(), seed, &what);
        goes_on(&image, &mut knowledge, &what);
    }
    assert!(errors > 0, "no write failed in any trial");
}

/// Three times the capacity is written without an error, flushed, and there after kill -9.
fn goes_on(image: &Path, knowledge: &mut Knowledge, what: &str) {
    let nothing = Attack::default();
    let server = Server::start(image, &nothing).unwrap_or_else(|| panic!("{what}: it is not served"));
    let (mut client, pages) = server.connect();
    knowledge.forget_failures();
    knowledge.write(&mut client, &nothing, 3 * pages, 0, 7);
    assert_eq!(knowledge.errors, 0, "{what}: writes fail although no call does");
    server.kill();
    check(image, knowledge, usize::MAX, &format!("{what}, overwritten"));
}

#[test]
fn no_flush_succeeds_after_a_sync_failed_until_the_image_is_served_again() {
    let Some(bench) = Bench::new() else { return };
    for seed in seeds(6) {
        let mut random = Random::new(seed);
        let image = bench.image(seed);
        let mut knowledge = fill(&image);
        let before = std::fs::read(&image).unwrap();
        let burst = [1, u64::MAX / 2][random.below(2) as usize];
        let effect = ["none", "drop"][random.below(2) as usize];
        let fail = format!("sync {} {burst} 5 {effect}", random.below(25));
        let what = format!("trial {seed}, {fail}");
        let attack = bench.attack(Some(fail));
        if let Some(server) = Server::start(&image, &attack) {
            knowledge.write(&mut server.connect().0, &attack, 200, 1, seed);
            // The same for another connection.
            knowledge.flush(&mut server.connect().0, &attack, 1);
            server.kill();
        }
        let log = std::fs::read(attack.log.as_ref().unwrap()).unwrap();
        check_power_loss(&bench, &knowledge, &before, &log, log.len(), seed, &what);
        if effect == "none" {
            check(&image, &knowledge, usize::MAX, &what);
            goes_on(&image, &mut knowledge, &what);
        }
    }
}
