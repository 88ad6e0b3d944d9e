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
        assert!(counters.leveling_erases > 0 && counters.leveling_copies > counters.leveling_erases, "{counters:?}");
        assert!(counters.leveling_copies <= counters.copies, "{counters:?}");
    }
}

#[test]
fn swapping_keeps_the_data_and_the_erase_counts_closer() {
    for config in both_ways() {
        let (counters, erases) = run(config, "swap:from=20,rest=10,gap=5");
        assert!(spread(&erases) <= 30, "{erases:?}");
        assert!(counters.erases > 500, "{counters:?}");
        // Each is of one segment full of data at rest, which costs one erase.
        assert!((10..100).contains(&counters.leveling_erases), "{counters:?}");
        assert!(counters.leveling_copies > 10 * counters.leveling_erases, "{counters:?}");
    }
}

#[test]
fn leveling_without_rest_keeps_the_data() {
    // Every erase asks for another move, which wears the device and must lose nothing.
    for config in both_ways() {
        for (leveling, erases) in [("threshold:spread=1", 900), ("swap:from=1,rest=1,gap=1", 880)] {
            let (counters, _) = run(config, leveling);
            assert!(counters.erases > erases, "{leveling}: {counters:?}");
        }
    }
}
