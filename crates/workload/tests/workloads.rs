//! Generators: shares, skew, determinism, what their texts mean.

use margay_workload::{OpKind, PageOp, Workload, WorkloadSpec, patterns};
use proptest::prelude::*;

fn ops(text: &str, pages: u32, seed: u64) -> Vec<PageOp> {
    let mut workload = Workload::new(&text.parse().unwrap(), pages, seed).unwrap();
    let mut out = Vec::new();
    while workload.next_batch(&mut out, 1000) > 0 {}
    out
}

fn counts(ops: &[PageOp], pages: u32) -> Vec<u32> {
    let mut counts = vec![0; pages as usize];
    ops.iter().filter(|op| op.kind == OpKind::Write).for_each(|op| counts[op.lpn as usize] += 1);
    counts
}

#[test]
fn the_same_seed_gives_the_same_operations_and_another_seed_others() {
    for info in patterns() {
        let text = format!("{},writes=500,poisson=1ms", info.name);
        assert_eq!(ops(&text, 1000, 7), ops(&text, 1000, 7), "{text}");
        if info.name != "sequential" {
            let lpns = |seed| ops(&text, 1000, seed).iter().map(|op| op.lpn).collect::<Vec<_>>();
            assert_ne!(lpns(7), lpns(8), "{text}");
        }
    }
}

#[test]
fn the_first_values_are_what_they_were_on_every_machine() {
    let first = |text: &str| ops(&format!("{text},writes=6"), 1000, 1).iter().map(|op| op.lpn).collect::<Vec<_>>();
    let mut found = String::new();
    for text in ["random", "hot-cold:90/10", "zipf:0.99", "jedec-enterprise", "hot-cold:80/20,layout=strided"] {
        found += &format!("{text} {:?}\n", first(text));
    }
    let times: Vec<_> = ops("random,writes=6,poisson=1s", 1000, 1).iter().map(|op| op.time_us).collect();
    found += &format!("poisson {times:?}\n");
    assert_eq!(found, include_str!("golden.txt"));
}

#[test]
fn hot_and_cold_pages_get_their_shares() {
    let pages = 5245;
    for layout in ["scattered", "contiguous", "strided"] {
        let counts = counts(&ops(&format!("hot-cold:90/10,writes=200000,layout={layout}"), pages, 3), pages);
        let mut sorted = counts.clone();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        // 10 % of 5245, rounded.
        let hot: u32 = sorted[..525].iter().sum();
        assert!((f64::from(hot) / 200_000.0 - 0.9).abs() < 0.005, "{layout}: {hot}");
        let in_first_tenth: u32 = counts[..525].iter().sum();
        assert_eq!(in_first_tenth == hot, layout == "contiguous", "{layout}");
    }
}

#[test]
fn uniform_writes_are_uniform() {
    let counts = counts(&ops("random,writes=1000000", 1000, 5), 1000);
    let chi: f64 = counts.iter().map(|count| (f64::from(*count) - 1000.0).powi(2) / 1000.0).sum();
    // 999 degrees of freedom: mean 999, deviation 45.
    assert!((830.0..1180.0).contains(&chi), "{chi}");
}

#[test]
fn poisson_arrivals_have_their_mean_and_deviation() {
    let ops = ops("sequential,writes=100000,poisson=2ms", 10, 9);
    let gaps: Vec<f64> = ops.windows(2).map(|pair| (pair[1].time_us - pair[0].time_us) as f64).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let deviation = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
    assert!((mean - 2000.0).abs() < 25.0 && (deviation - 2000.0).abs() < 40.0, "{mean} {deviation}");
}

#[test]
fn read_only_pages_are_never_written_and_are_as_many_as_asked() {
    for text in
        ["random", "hot-cold:90/10", "moving:80/5,period=3", "log:40/60", "zipf:1.2", "sequential", "jedec-enterprise"]
    {
        let spec: WorkloadSpec = format!("{text},writes=30000,read-only=0.3,trims=0.1").parse().unwrap();
        let mut workload = Workload::new(&spec, 1000, 4).unwrap();
        assert_eq!(workload.read_only_pages(), 300, "{text}");
        let fixed = workload.clone();
        assert!(workload.all(|op| !fixed.is_read_only(op.lpn)), "{text}");
    }
}

#[test]
fn a_moving_hot_set_is_hot_for_a_while_and_goes_around_the_space() {
    // In 10,000 operations it goes around once, and a page is in it for 1,000.
    for layout in ["contiguous", "scattered"] {
        let ops = ops(&format!("moving:90/10,writes=20000,period=10,layout={layout}"), 1000, 3);
        let mut counts = vec![0; 1000];
        for part in ops.chunks(1000) {
            let mut here = vec![0; 1000];
            part.iter().for_each(|op| here[op.lpn as usize] += 1);
            let hot = here.iter().filter(|count| **count >= 3).count();
            assert!((100..=210).contains(&hot), "{layout}: {hot} pages are hot in 1,000 operations");
            counts.iter_mut().zip(here).for_each(|(count, here)| *count += here);
        }
        assert!(counts.iter().all(|count| (5..=45).contains(count)), "{layout}: 20 for each page of the space");
        assert!(ops.iter().all(|op| op.stream.is_some()));
    }
    let ops = ops("moving:90/10,writes=2000,layout=contiguous", 1000, 3);
    let near = |op: &PageOp, at: u32| (op.lpn + 1000 - at) % 1000 < 100;
    for (at, op) in ops.iter().enumerate().filter(|(_, op)| op.stream == Some(0)) {
        assert!(near(op, at as u32 / 10), "operation {at} to page {}", op.lpn);
    }
}

#[test]
fn a_log_goes_page_after_page_and_the_other_writes_go_to_the_rest() {
    let ops = ops("log:30/60,writes=10000", 1000, 4);
    let (log, rest): (Vec<&PageOp>, Vec<&PageOp>) = ops.iter().partition(|op| op.lpn < 600);
    assert!((2800..3200).contains(&log.len()), "{}", log.len());
    assert!(log.iter().zip((0..600_u32).cycle()).all(|(op, page)| op.lpn == page));
    assert!(rest.iter().any(|op| op.lpn == 999) && rest.iter().any(|op| op.lpn == 600));
}

#[test]
fn shares_of_reads_and_trims_are_kept_and_writes_are_counted_exactly() {
    let ops = ops("random,writes=50000,reads=0.4,trims=0.1", 1000, 2);
    let count = |kind| ops.iter().filter(|op| op.kind == kind).count() as f64;
    assert_eq!(count(OpKind::Write), 50_000.0);
    assert!((count(OpKind::Read) / ops.len() as f64 - 0.4).abs() < 0.01);
    assert!((count(OpKind::Trim) / ops.len() as f64 - 0.1).abs() < 0.01);
}

#[test]
fn mixes_and_phases_come_from_toml() {
    let text = r#"
        repeat = 2
        [[phase]]
        workload = "sequential,writes=10"
        [[phase]]
        options = "writes=1000"
        [phase.mix]
        zones = [{ space = 0.1, access = 9 }, { space = 0.9, access = 1 }]
        sizes = [{ pages = 4, weight = 1 }]
    "#;
    let spec = WorkloadSpec::from_toml(text).unwrap();
    assert_eq!(spec.expected_writes(), Some(2020));
    let ops: Vec<_> = Workload::new(&spec, 1000, 1).unwrap().collect();
    assert_eq!(ops.len(), 2020);
    assert!(ops[..10].iter().map(|op| op.lpn).eq(0..10));
    let in_first_zone = ops[10..1010].iter().filter(|op| op.lpn < 100).count();
    assert!((830..970).contains(&in_first_zone), "{in_first_zone}");
    assert_eq!(ops[10].lpn % 4, 0);
    assert_eq!(ops[11].lpn, ops[10].lpn + 1);
}

#[test]
fn errors_name_the_value_and_what_is_wanted() {
    let message = |text: &str| text.parse::<WorkloadSpec>().unwrap_err().to_string();
    assert!(message("hotcold:90/10").starts_with("unknown workload 'hotcold'; the known ones are sequential, random"));
    assert!(message("hot-cold:90").ends_with("expected x/y: x % of the accesses to y % of the pages, as 90/10"));
    assert!(message("hot-cold:90/100").contains("share of pages = 1"));
    assert!(message("moving:90/10,period=0").ends_with("period = 0: expected a number from 0.001 to 10^9"));
    assert!(message("random,period=3").ends_with("expected the workload `moving`"));
    assert!(message("log:50").ends_with("as 50/50"));
    assert!(message("random,writes=many").contains("writes = many"));
    assert!(message("random,poisson=5").contains("with its unit"));
    assert!(message("random,speed=5").contains("one of writes, poisson"));
    assert!(message("random,layout=strided").contains("with hot-cold, moving or zipf"));
    assert!(message("zipf:-1").contains("a positive number"));
    assert!(message("random,reads=0.6,trims=0.5").contains("reads + trims"));
    let endless =
        WorkloadSpec::from_toml("[[phase]]\nworkload = 'random'\n[[phase]]\nworkload = 'random'").unwrap_err();
    assert!(endless.to_string().contains("phase 1 without writes"), "{endless}");
    assert!(WorkloadSpec::from_toml("nonsense = 1").is_err());
    assert!(Workload::new(&"random".parse().unwrap(), 0, 1).is_err());
    assert!(Workload::new(&"hot-cold,read-only=0.9".parse().unwrap(), 10, 1).is_err());
}

proptest! {
    #[test]
    fn texts_come_back_as_they_were(pattern in 0..5usize, writes in prop::option::of(1u64..1 << 40), reads in 0.0..0.5f64) {
        let mut text = patterns()[pattern].name.to_string();
        if let Some(writes) = writes {
            text += &format!(",writes={writes}");
        }
        text += &format!(",reads={reads},gap=17us");
        let spec: WorkloadSpec = text.parse().unwrap();
        prop_assert_eq!(spec.to_string().parse::<WorkloadSpec>().unwrap(), spec);
    }

    #[test]
    fn no_text_panics(text in "[a-z0-9:/,=.-]{0,40}", toml in "[a-z0-9\\[\\]={}\n\" .]{0,60}") {
        if let Ok(spec) = text.parse::<WorkloadSpec>() {
            let _ = Workload::new(&spec, 100, 1).map(|workload| workload.take(50).count());
        }
        let _ = WorkloadSpec::from_toml(&toml);
    }
}
