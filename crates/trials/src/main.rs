//! `margay-trials [quick|full] [PART]`: the fault campaigns, with their counts; those with PART in their names.
#![allow(clippy::print_stdout, reason = "a program that reports")]

use margay_trials::{
    Chip, FilePolicies, Setup, Tally, bad_segments, bit_errors, disk_troubles, file_bad_segments, file_bit_errors,
    file_host_power_cuts, file_power_cuts, file_troubles, file_wear_out, host_power_cuts, hybrid_bad_segments,
    hybrid_bit_errors, hybrid_host_power_cuts, hybrid_metadata_flips, hybrid_power_cuts, hybrid_troubles,
    hybrid_unreadable_pages, hybrid_wear_out, kills, metadata_flips, power_cuts, wear_out,
};
use std::process::ExitCode;

fn main() -> ExitCode {
    let full = match std::env::args().nth(1).as_deref() {
        None | Some("quick") => false,
        Some("full") => true,
        Some(other) => {
            println!("unknown argument '{other}'; the known ones are quick, full");
            return ExitCode::from(2);
        }
    };
    let mut total = Tally::default();
    let wanted = std::env::args().nth(2).unwrap_or_default();
    for (name, campaign) in campaigns(full).into_iter().filter(|(name, _)| name.contains(&wanted)) {
        let tally = campaign();
        println!("{name:<60} {:>8} trials, {} failures", tally.trials, tally.failures.len());
        tally.failures.iter().take(5).for_each(|failure| println!("  {failure}"));
        total.merge(tally);
    }
    total.kinds.iter().for_each(|(kind, count)| println!("{count:>8} failures: {kind}"));
    total.counts.iter().for_each(|(kind, count)| println!("{kind:<60} {count:>8}"));
    println!("{:<60} {:>8} trials, {} failures", "total", total.trials, total.failures.len());
    ExitCode::from(u8::from(!total.failures.is_empty()))
}

type Campaign = Box<dyn Fn() -> Tally>;

/// Quick: a part of every campaign, in about a minute. Full: every operation, several seeds.
fn campaigns(full: bool) -> Vec<(String, Campaign)> {
    let policies = [
        ("greedy", "m1", "none", false),
        ("lifetime", "lifetime:streams=3", "threshold:spread=3", false),
        ("cost-benefit", "dac", "swap:from=2,rest=1,gap=1", false),
        ("greedy", "m1", "none", true),
        ("cost-benefit", "dac", "threshold:spread=3", true),
    ];
    let mut campaigns: Vec<(String, Campaign)> = Vec::new();
    for chip in Chip::ALL {
        for (selection, placement, leveling, map) in policies {
            for percent in [100, 75] {
                let of_map = if map { ", map on flash" } else { "" };
                let name =
                    |what: &str| format!("{what}, {chip:?}, {selection}+{placement}{of_map}, {percent} % of the limit");
                let mut setup = Setup::new(chip, selection, placement, leveling, percent);
                if map {
                    setup = setup.with_map_on_flash();
                }
                let mut add = |what: &str, campaign: Box<dyn Fn(&Setup) -> Tally>| {
                    let setup = setup.clone();
                    campaigns.push((name(what), Box::new(move || campaign(&setup))));
                };
                let seeds = if full { 3 } else { 1 };
                let (stride, second) = if full { (1, 2) } else { (7, 6) };
                add(
                    "power cuts",
                    Box::new(move |setup| {
                        let mut tally = Tally::default();
                        (0..seeds).for_each(|seed| tally.merge(power_cuts(setup, seed, 60, stride, second)));
                        tally
                    }),
                );
                let (stride, second, losses) = if full { (1, 9, 10) } else { (37, 5, 5) };
                add(
                    "power cuts of a host",
                    Box::new(move |setup| {
                        let mut tally = Tally::default();
                        (0..seeds).for_each(|seed| {
                            tally.merge(host_power_cuts(setup, seed, 60, stride, second, losses));
                        });
                        tally
                    }),
                );
                let (stride, tries) = if full { (1, 8) } else { (23, 2) };
                add("failing calls", Box::new(move |setup| disk_troubles(setup, 1, 60, stride, tries)));
                let stride = if full { 1 } else { 9 };
                // A device that is as full as it can be has no segment to lose.
                if percent < 100 {
                    add("bad segments", Box::new(move |setup| bad_segments(setup, 1, 150, stride)));
                } else {
                    add("bit errors", Box::new(|setup| bit_errors(setup, 1)));
                    let stride = if full { 1 } else { 31 };
                    add("flipped metadata bits", Box::new(move |setup| metadata_flips(setup, 1, stride)));
                    // The last two found a flush that was answered although there was no room for the trims.
                    let seeds: Vec<u64> = if full { (1..=400).collect() } else { (1..=40).chain([137, 369]).collect() };
                    add(
                        "worn out",
                        Box::new(move |setup| {
                            let mut tally = Tally::default();
                            seeds.iter().for_each(|seed| tally.merge(wear_out(setup, *seed)));
                            tally
                        }),
                    );
                }
            }
        }
    }
    for (pages, percent) in [(32, 60), (63, 60), (63, 75)] {
        for (selection, placement) in [("greedy", "m1"), ("lifetime", "lifetime:streams=3"), ("cost-benefit", "dac")] {
            for chip in [Chip::ShortTags, Chip::Summaries] {
                let setup = Setup::new(chip, selection, placement, "threshold:spread=3", 50);
                let setup = setup.with_long_segments(pages, percent);
                let lives = move || {
                    let mut tally = Tally::default();
                    (0..if full { 200 } else { 4 }).for_each(|seed| tally.merge(kills(&setup, seed)));
                    tally
                };
                let name =
                    format!("kills, {chip:?} of {pages} pages, {selection}+{placement}, {percent} % of the limit");
                campaigns.push((name, Box::new(lives)));
            }
        }
    }
    for chip in Chip::ALL {
        for policies in FilePolicies::all() {
            let (stride, second, seeds) = if full { (1, 2, 3) } else { (7, 6, 1) };
            let campaign = move || {
                let mut tally = Tally::default();
                (0..seeds).for_each(|seed| tally.merge(file_power_cuts(chip, policies, seed, 80, stride, second)));
                tally
            };
            let (stride, second, losses) = if full { (1, 9, 10) } else { (37, 5, 5) };
            let host = move || {
                let mut tally = Tally::default();
                (0..seeds).for_each(|seed| {
                    tally.merge(file_host_power_cuts(chip, policies, seed, 80, stride, second, losses));
                });
                tally
            };
            campaigns.push((format!("power cuts of a host under files, {chip:?}, {policies}"), Box::new(host)));
            let (stride, tries) = if full { (1, 8) } else { (41, 2) };
            let calls = move || file_troubles(chip, policies, 1, 80, stride, tries);
            campaigns.push((format!("failing calls under files, {chip:?}, {policies}"), Box::new(calls)));
            let bad = move || file_bad_segments(chip, policies, 1, 150, if full { 1 } else { 9 });
            let bits = move || file_bit_errors(chip, policies, 1);
            let worn = move || {
                let mut tally = Tally::default();
                // The last ones found a file that went with its header to another page and was lost between the two, a name
                // that two files had, a link's new name that no fsync covered, and a checkpoint that nothing outdated.
                let found = [334, 351, 276, 144, 330];
                let seeds: Vec<u64> = if full { (0..400).collect() } else { (0..20).chain(found).collect() };
                seeds.iter().for_each(|seed| tally.merge(file_wear_out(chip, policies, *seed)));
                tally
            };
            campaigns.push((format!("worn out under files, {chip:?}, {policies}"), Box::new(worn)));
            campaigns.push((format!("bit errors under files, {chip:?}, {policies}"), Box::new(bits)));
            campaigns.push((format!("bad segments under files, {chip:?}, {policies}"), Box::new(bad)));
            campaigns.push((format!("power cuts under files, {chip:?}, {policies}"), Box::new(campaign)));
        }
    }
    for chip in Chip::HYBRID {
        for mapping in ["bast", "fast", "fast:sequential=no", "fast:open=yes"] {
            let (stride, second, seeds) = if full { (1, 1, 3) } else { (7, 6, 1) };
            let parsed = mapping.parse().expect("a mapping");
            let cuts = move || {
                let mut tally = Tally::default();
                (0..seeds).for_each(|seed| tally.merge(hybrid_power_cuts(chip, parsed, seed, 60, stride, second)));
                tally
            };
            let mut add =
                |what: &str, campaign: Campaign| campaigns.push((format!("{what}, {chip:?}, {mapping}"), campaign));
            add("power cuts", Box::new(cuts));
            let (stride, second, losses) = if full { (1, 9, 10) } else { (37, 5, 5) };
            let host = move || {
                let mut tally = Tally::default();
                (0..seeds).for_each(|seed| {
                    tally.merge(hybrid_host_power_cuts(chip, parsed, seed, 60, stride, second, losses));
                });
                tally
            };
            add("power cuts of a host", Box::new(host));
            let (stride, tries) = if full { (1, 8) } else { (23, 2) };
            add("failing calls", Box::new(move || hybrid_troubles(chip, parsed, 1, 60, stride, tries)));
            add("bad segments", Box::new(move || hybrid_bad_segments(chip, parsed, 1, 150, if full { 1 } else { 9 })));
            let worn = move || {
                let mut tally = Tally::default();
                (0..if full { 400 } else { 20 }).for_each(|seed| tally.merge(hybrid_wear_out(chip, parsed, seed)));
                tally
            };
            add("worn out", Box::new(worn));
            add("bit errors", Box::new(move || hybrid_bit_errors(chip, parsed, 1)));
            add(
                "unreadable pages",
                Box::new(move || hybrid_unreadable_pages(chip, parsed, 1, if full { 1 } else { 2 })),
            );
            add(
                "flipped metadata bits",
                Box::new(move || hybrid_metadata_flips(chip, parsed, 1, if full { 1 } else { 61 })),
            );
        }
    }
    campaigns
}
