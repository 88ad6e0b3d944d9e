use crate::client::*;
use margay_log::{Config, Counters};
use margay_policy::LevelingSpec;

/// A tenth of the pages is written for ever on a device whose other pages never change. What it cost, and the erase
/// counts.
fn run(config: Config, leveling: &str) -> (Counters, Vec<u32>) {
    let config = Config { leveling: LevelingSpec::known(leveling), ..config };
    let mut disk = Disk::plain(config, 250);
    disk.fill();
    for step in 0..12_000 {
        disk.write(step * 7 % 25);
        if step % 500 == 0 {
            disk.audit();
        }
    }
    disk.check();
    (disk.log.counters().clone(), disk.log.segments().erases.clone())
}

fn spread(erases: &[u32]) -> u32 {
    erases.iter().max().unwrap() - erases.iter().min().unwrap()
}

#[test]
fn without_leveling_segments_of_data_at_rest_are_never_erased() {
    for config in both_ways() {
        let (counters, erases) = run(config, "none");
        assert_eq!((counters.leveling_copies, counters.leveling_erases), (0, 0));
        assert!(erases.contains(&0) && spread(&erases) > 100, "{erases:?}");
    }
}

#[test]
fn relocating_keeps_the_data_and_the_erase_counts_close() {
    for config in both_ways() {
        let (counters, erases) = run(config, "threshold:spread=30");
        assert!(spread(&erases) <= 31, "{erases:?}");
        assert!(counters.erases > 500, "{counters:?}");
    }
    let (counters, _) = run(at_once(), "threshold:spread=30");
    assert!(counters.leveling_erases > 0 && counters.leveling_copies > counters.leveling_erases, "{counters:?}");
}

#[test]
fn swapping_keeps_the_data_and_the_erase_counts_closer() {
    for (config, leveling) in [(at_once(), "swap:from=20,rest=40"), (paced(), "swap:from=20,rest=10")] {
        let (counters, erases) = run(config, leveling);
        assert!(spread(&erases) <= 10, "{erases:?}");
        assert!(counters.erases > 500, "{counters:?}");
    }
    let (counters, _) = run(at_once(), "swap:from=20,rest=40");
    assert!(counters.leveling_copies > 0 && counters.leveling_erases.is_multiple_of(2), "{counters:?}");
}

#[test]
fn leveling_without_rest_keeps_the_data() {
    // Every erase asks for another move, which wears the device and must lose nothing.
    for config in both_ways() {
        for leveling in ["threshold:spread=1", "swap:from=1,rest=1"] {
            let (counters, _) = run(config, leveling);
            assert!(counters.erases > 900, "{leveling}: {counters:?}");
        }
    }
}
