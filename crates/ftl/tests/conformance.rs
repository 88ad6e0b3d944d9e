//! Every policy of the registry on small devices, against a plain map and against full scans.

use margay_flash::{Geometry, Lpn, Ppn};
use margay_format::Plain;
use margay_ftl::Ftl;
use margay_log::{Config, Counters, Hint, Policies};
use margay_media::{Meter, NullFlash, RamFlash, Strict};
use margay_policy::scan::Scan;
use margay_policy::{LevelingSpec, PlacementSpec, SelectionSpec, Sizing};
use proptest::prelude::*;

const PAGE_BYTES: usize = 64;
/// More pages than a disk of this size keeps for itself.
const OWN_PAGES: u32 = 20;

#[derive(Clone, Debug)]
enum Step {
    Write { lpn: u32, read_only: bool },
    Trim { lpn: u32 },
    Read { lpn: u32 },
    Clean { budget: u32 },
    Pass { us: u64 },
}

fn steps(pages: u32, len: usize) -> impl Strategy<Value = Vec<Step>> {
    // Half of the accesses go to a tenth of the pages.
    let lpn = prop_oneof![0..pages, 0..pages.div_ceil(10)];
    let step = prop_oneof![
        20 => (lpn.clone(), prop::bool::weighted(0.1)).prop_map(|(lpn, read_only)| Step::Write { lpn, read_only }),
        2 => lpn.clone().prop_map(|lpn| Step::Trim { lpn }),
        1 => lpn.prop_map(|lpn| Step::Read { lpn }),
        1 => (0u32..5).prop_map(|budget| Step::Clean { budget }),
        1 => (0u64..5_000_000).prop_map(|us| Step::Pass { us }),
    ];
    prop::collection::vec(step, len)
}

#[derive(Clone, Copy, Debug)]
struct Setup {
    segments: u32,
    pages_per_segment: u32,
    config: Config,
    /// Share of the largest capacity that is exported, in percent.
    percent: u32,
}

/// The number of streams of the placement that has the most, and that of read-only data: every placement is to fit.
fn max_streams() -> u32 {
    all_placements().iter().map(|placement| u32::from(placement.streams())).max().unwrap() + 1
}

fn setups() -> impl Strategy<Value = Setup> {
    let shape = (20u32..60, prop_oneof![Just(4u32), 5u32..9, Just(32u32), Just(70u32)], 0u32..2, 0u32..2, 0u32..2);
    let marks = (1u32..4, 0u32..3, any::<bool>(), 40u32..=100, prop_oneof![Just(0u32), 4u32..40]);
    let leveling = prop_oneof![
        Just(LevelingSpec::default()),
        (1u32..4).prop_map(|spread| LevelingSpec::known(&format!("threshold:spread={spread}"))),
        (1u32..5, 1u32..50)
            .prop_map(|(from, rest)| LevelingSpec::known(&format!("swap:from={from},rest={rest},gap=1"))),
    ];
    (shape, marks, leveling).prop_map(|((segments, pages_per_segment, header, summary, reserved), marks, leveling)| {
        let (low_water, more, read_only_stream, percent, max_pages_per_write) = marks;
        let mut config = Config {
            max_pages_per_write,
            header_pages: header,
            summary_pages: summary,
            reserved_segments: reserved,
            lent_segments: 0,
            low_water,
            high_water: low_water + more,
            read_only_stream,
            own_stream: false,
            owners_on_flash: false,
            leveling,
        };
        let geometry = Geometry::new(segments, pages_per_segment, PAGE_BYTES as u32).unwrap();
        if !config.limit_pages(&geometry, max_streams()).is_ok_and(|limit| limit > 2 * OWN_PAGES) {
            config.max_pages_per_write = 0;
        }
        Setup { segments, pages_per_segment, config, percent }
    })
}

impl Setup {
    fn geometry(&self) -> Geometry {
        Geometry::new(self.segments, self.pages_per_segment, PAGE_BYTES as u32).unwrap()
    }

    fn exported(&self) -> u32 {
        let limit = self.config.limit_pages(&self.geometry(), max_streams()).unwrap();
        // A disk that spreads its cleaning keeps pages of its own.
        (limit - if self.config.is_paced() { OWN_PAGES } else { 0 }) * self.percent / 100
    }

    fn sizing(&self) -> Sizing {
        Sizing {
            segments: self.segments,
            data_pages: self.config.data_pages(&self.geometry()),
            exported_pages: self.exported(),
            seed: 7,
        }
    }

    fn policies(&self, selection: SelectionSpec, placement: PlacementSpec) -> Policies {
        Policies::new(selection, placement, self.sizing())
    }
}

/// Runs the steps against a plain map, on a device that enforces its contract.
fn against_map(setup: Setup, steps: &[Step], policies: Policies) {
    let pages = setup.exported();
    let device = Plain::new(Meter::new(Strict::new(RamFlash::new(setup.geometry()))));
    let mut disk = Ftl::new(device, setup.config, policies, pages, &[]).unwrap();
    let mut map: Vec<Option<u64>> = vec![None; pages as usize];
    let mut version = 0u64;
    for lpn in 0..pages {
        version += 1;
        disk.fill(Lpn(lpn), &page_of(version), Hint::None).unwrap();
        map[lpn as usize] = Some(version);
    }
    disk.reset_counters();
    let metadata_before = disk.log().counters().metadata_pages;
    let programs_before = disk.log().device().device().operations().programs;
    let free_before = disk.log().free_pages();
    let mut now_us = 0;
    for (number, step) in steps.iter().enumerate() {
        match *step {
            Step::Write { lpn, read_only } => {
                version += 1;
                let hint = if read_only { Hint::ReadOnly } else { Hint::None };
                disk.write(Lpn(lpn % pages), &page_of(version), hint, now_us).unwrap();
                map[(lpn % pages) as usize] = Some(version);
            }
            Step::Trim { lpn } => {
                disk.trim(Lpn(lpn % pages), now_us).unwrap();
                map[(lpn % pages) as usize] = None;
            }
            Step::Read { lpn } => assert_eq!(read(&mut disk, lpn % pages), map[(lpn % pages) as usize]),
            Step::Clean { budget } => drop(disk.clean_step(budget).unwrap()),
            Step::Pass { us } => now_us += us,
        }
        if number % 64 == 0 {
            disk.audit().unwrap();
        }
    }
    disk.audit().unwrap();
    for lpn in 0..pages {
        assert_eq!(read(&mut disk, lpn), map[lpn as usize], "page {lpn}");
    }
    let counters = disk.log().counters().clone();
    let operations = disk.log().device().device().operations();
    let (programmed, layout) = (operations.programs - programs_before, setup.config);
    let blank = counters.metadata_pages - metadata_before;
    if setup.config.is_paced() && layout.header_pages + layout.summary_pages == 0 {
        assert_eq!(counters.programs(), programmed, "what was counted was programmed");
    } else if !setup.config.is_paced() {
        assert_eq!(counters.programs() - blank, programmed, "what was counted was programmed");
    }
    if !setup.config.is_paced() && setup.config.leveling == LevelingSpec::default() && disk.clean_step(0).is_ok() {
        // Conservation: every erase yields a segment of pages, every program takes one. A victim that is
        // not erased yet has given nothing.
        let counters = disk.log().counters();
        let data_pages = u64::from(setup.config.data_pages(&setup.geometry()));
        let gained = counters.erases * data_pages + free_before;
        assert_eq!(counters.host_writes + counters.copies + disk.log().free_pages(), gained);
    }
}

fn page_of(version: u64) -> [u8; PAGE_BYTES] {
    let mut page = [0; PAGE_BYTES];
    page[..8].copy_from_slice(&version.to_le_bytes());
    page
}

fn read(disk: &mut Ftl<Plain<Meter<Strict<RamFlash>>>>, lpn: u32) -> Option<u64> {
    let mut data = [0; PAGE_BYTES];
    let found = disk.read(Lpn(lpn), &mut data).unwrap();
    found.map(|_| u64::from_le_bytes(data[..8].try_into().unwrap()))
}

/// What a history has cost, and where it left every page.
type Cost = (Counters, Vec<u32>, Vec<Option<Ppn>>);

/// Runs the steps without payload and says what it cost.
fn cost(setup: Setup, steps: &[Step], policies: Policies) -> Cost {
    let write = |disk: &mut Ftl<_>, writes: &[(Lpn, u64)]| {
        writes.iter().for_each(|(lpn, now_us)| disk.write(*lpn, &[], Hint::None, *now_us).unwrap());
    };
    cost_with(setup, steps, policies, write)
}

/// [`cost`], the writes between other steps done by `write`.
fn cost_with(
    setup: Setup,
    steps: &[Step],
    policies: Policies,
    write: impl Fn(&mut Ftl<Plain<Strict<NullFlash>>>, &[(Lpn, u64)]),
) -> Cost {
    let pages = setup.exported();
    let device = Plain::new(Strict::new(NullFlash::new(setup.geometry())));
    let mut disk = Ftl::new(device, setup.config, policies, pages, &[]).unwrap();
    for lpn in 0..pages {
        disk.fill(Lpn(lpn), &[], Hint::None).unwrap();
    }
    let (mut now_us, mut writes) = (0, Vec::new());
    for step in steps {
        if !matches!(step, Step::Write { read_only: false, .. } | Step::Pass { .. } | Step::Read { .. }) {
            write(&mut disk, &std::mem::take(&mut writes));
        }
        match *step {
            Step::Write { lpn, read_only: true } => disk.write(Lpn(lpn % pages), &[], Hint::ReadOnly, now_us).unwrap(),
            Step::Write { lpn, .. } => writes.push((Lpn(lpn % pages), now_us)),
            Step::Trim { lpn } => disk.trim(Lpn(lpn % pages), now_us).unwrap(),
            Step::Read { .. } => {}
            Step::Clean { budget } => drop(disk.clean_step(budget).unwrap()),
            Step::Pass { us } => now_us += us,
        }
    }
    write(&mut disk, &writes);
    disk.audit().unwrap();
    let places = (0..pages).map(|lpn| disk.place(Lpn(lpn))).collect();
    (disk.log().counters().clone(), disk.log().segments().erases.clone(), places)
}

fn all_selections() -> Vec<SelectionSpec> {
    let more = [
        "greedy:tie=oldest",
        "cost-benefit:age=invalidated",
        "cost-benefit:shape=linear,scale=1s",
        "cost-benefit:age=invalidated,shape=sqrt,scale=1s",
        "cat:shape=linear,scale=10w",
        "cat:shape=sqrt,scale=100ms",
        "d-choices:d=2",
        "windowed-greedy:window=0.1",
    ];
    SelectionSpec::all().chain(more.into_iter().map(SelectionSpec::known)).collect()
}

fn all_placements() -> Vec<PlacementSpec> {
    let more = ["m6:mean=exact", "m6:scale=2s", "dac:regions=2,threshold=30w"];
    PlacementSpec::all().chain(more.into_iter().map(PlacementSpec::known)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn every_pair_of_policies_keeps_every_page(setup in setups(), steps in steps(2000, 1500)) {
        for selection in all_selections() {
            for placement in all_placements() {
                against_map(setup, &steps, setup.policies(selection, placement));
            }
        }
    }

    #[test]
    fn selections_without_a_scan_choose_what_a_full_scan_chooses(setup in setups(), steps in steps(2000, 1500)) {
        for selection in all_selections().into_iter().filter(|selection| selection.row().build.scan.is_some()) {
            for placement in all_placements() {
                let policies = || setup.policies(selection, placement);
                let scan = Box::new(Scan::new(setup.sizing(), selection).unwrap());
                let fast = cost(setup, &steps, policies());
                let scan = cost(setup, &steps, Policies { selection: scan, ..policies() });
                prop_assert_eq!(fast, scan, "{} + {}", selection, placement);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

    #[test]
    fn a_run_of_writes_leaves_what_the_same_writes_leave_one_after_the_other(
        setup in setups(),
        steps in steps(2000, 1500),
    ) {
        for selection in all_selections() {
            for placement in all_placements() {
                let policies = || setup.policies(selection, placement);
                let in_runs = cost_with(setup, &steps, policies(), |disk, writes| {
                    let mut writes = writes.iter().copied();
                    loop {
                        let openings = disk.log().openings();
                        let stopped = disk.write_run(&mut writes).unwrap();
                        assert_eq!(stopped, disk.log().openings() > openings, "it stops when a segment was opened");
                        if !stopped {
                            break;
                        }
                    }
                    assert_eq!(writes.next(), None);
                });
                prop_assert_eq!(in_runs, cost(setup, &steps, policies()), "{} + {}", selection, placement);
            }
        }
    }
}

proptest! {
    #[test]
    fn a_window_of_all_segments_is_greedy(setup in setups(), steps in steps(2000, 1500)) {
        let cost = |selection: &str| {
            cost(setup, &steps, setup.policies(SelectionSpec::known(selection), PlacementSpec::known("m6")))
        };
        prop_assert_eq!(cost("windowed-greedy:window=1"), cost("greedy"));
    }
}

#[test]
fn sorting_a_victim_changes_nothing_when_one_segment_is_cleaned_at_a_time() {
    let setup = Setup { segments: 60, pages_per_segment: 32, config: Config::default(), percent: 90 };
    let steps: Vec<_> =
        (0..20_000u32).map(|i| Step::Write { lpn: i.wrapping_mul(2_654_435_761) >> 7, read_only: false }).collect();
    let cost = |placement: &str| {
        cost(setup, &steps, setup.policies(SelectionSpec::default(), PlacementSpec::known(placement))).0
    };
    assert_eq!(cost("m1"), cost("m2"));
    assert_eq!(cost("m1"), cost("m3"));
    assert!(cost("m1").copies > 10_000);
}

#[test]
fn addresses_past_the_capacity_are_errors_that_say_so() {
    let setup = Setup { segments: 40, pages_per_segment: 32, config: Config::default(), percent: 90 };
    let policies = setup.policies(SelectionSpec::default(), PlacementSpec::default());
    let device = Plain::new(NullFlash::new(setup.geometry()));
    let mut disk = Ftl::new(device, setup.config, policies, 50, &[]).unwrap();
    disk.trim(Lpn(50), 0).unwrap_err();
    disk.read(Lpn(50), &mut []).unwrap_err();
    let error = disk.write(Lpn(50), &[], Hint::None, 0).unwrap_err();
    assert_eq!(error.to_string(), "logical page 50 is past the exported capacity (50 pages)");
}
