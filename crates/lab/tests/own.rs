//! Policies that a program brings.

use margay_flash::SegmentId;
use margay_lab::compare::Comparison;
use margay_lab::sweep::points_with;
use margay_lab::{
    BatchPlacement, Experiment, HeldTraces, LabError, Limit, OwnPlacement, OwnPolicies, OwnPolicy, OwnSelection,
    PageBatch, PageKind, ResultRow, Settings, Source, Sources, run, run_prepared, settings,
};
use margay_media::DeviceSpec;
use margay_policy::scan::Scan;
use margay_policy::{Now, Segments, Selection, SelectionSpec, Sizing};
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

fn experiment(source: &str) -> Experiment {
    let mut device = DeviceSpec::load("ideal-1gb").unwrap();
    (device.segments, device.pages_per_segment) = (80, 32);
    let mut experiment = Experiment::new(device, Source::Workload(source.parse().unwrap()));
    experiment.limit = Limit::DeviceWrites(4.0);
    experiment
}

/// The row, without what differs between runs of the same thing.
fn row_of(experiment: &Experiment) -> ResultRow {
    let mut row = run(experiment, &mut |_| true).unwrap().row;
    (row.wall_s, row.writes_per_s, row.theory_wa) = (0.0, 0.0, None);
    (row.selection, row.placement) = (String::new(), String::new());
    row
}

/// The DAC of the table, told of `batch` pages at a time.
#[derive(Debug)]
struct BatchedDac {
    batch: usize,
    batches: Arc<Mutex<Vec<PageBatch>>>,
}

impl OwnPolicy for BatchedDac {
    fn name(&self) -> &str {
        "own:dac"
    }

    fn failure(&self) -> Option<Box<dyn Error + Send + Sync>> {
        None
    }
}

#[derive(Debug)]
struct DacOfRun {
    threshold: u64,
    batches: Arc<Mutex<Vec<PageBatch>>>,
}

impl OwnPlacement for BatchedDac {
    fn streams(&self) -> u8 {
        4
    }

    fn batch_pages(&self) -> usize {
        self.batch
    }

    fn build(&self, sizing: Sizing) -> Box<dyn BatchPlacement> {
        let threshold = u64::from(sizing.exported_pages / 2);
        Box::new(DacOfRun { threshold, batches: Arc::clone(&self.batches) })
    }
}

impl BatchPlacement for DacOfRun {
    fn place(&mut self, batch: PageBatch, _: Now) -> Vec<u8> {
        let stream = |page: usize| {
            let (region, is_young) = (batch.stream[page], batch.segment_age[page] < self.threshold);
            match batch.kind[page] {
                new if new == PageKind::New as u8 => 0,
                copy if copy == PageKind::Copy as u8 => region.saturating_sub(u8::from(!is_young)),
                _ => (region + u8::from(is_young)).min(3),
            }
        };
        let streams = (0..batch.len()).map(stream).collect();
        self.batches.lock().unwrap().push(batch);
        streams
    }
}

#[test]
fn a_placement_told_of_one_write_at_a_time_gives_the_run_of_the_built_in_one() {
    for (source, paced) in [("zipf:0.9", 0), ("random,trims=0.2,reads=0.1", 0), ("hot-cold:90/10", 8)] {
        let mut wanted = experiment(source);
        wanted.max_pages_per_write = paced;
        wanted.placement = "dac".parse().unwrap();
        let own = BatchedDac { batch: 1, batches: Arc::default() };
        let mut experiment = wanted.clone();
        experiment.own.placement = Some(Arc::new(own));
        assert_eq!(format!("{:?}", row_of(&experiment)), format!("{:?}", row_of(&wanted)), "{source}");
    }
}

#[test]
fn host_writes_come_in_batches_and_the_pages_of_a_victim_together() {
    let batches = Arc::default();
    let own = BatchedDac { batch: 100, batches: Arc::clone(&batches) };
    let mut experiment = experiment("zipf:0.9,trims=0.1,reads=0.1");
    experiment.own.placement = Some(Arc::new(own));
    let row = row_of(&experiment);
    let batches = batches.lock().unwrap();
    let is_copy = |batch: &&PageBatch| batch.kind.contains(&(PageKind::Copy as u8));
    let copies = batches.iter().filter(is_copy).map(PageBatch::len).sum::<usize>();
    assert_eq!(copies as u64, row.copies);
    let writes: Vec<_> = batches.iter().filter(|batch| !is_copy(batch)).map(PageBatch::len).collect();
    assert_eq!(writes.iter().sum::<usize>() as u64, row.host_writes + u64::from(row.filled_pages));
    assert!(
        writes.iter().filter(|pages| **pages != 100).count() <= 2,
        "the last of the fill and of the run: {writes:?}"
    );
    for batch in batches.iter() {
        let kinds: std::collections::BTreeSet<_> = batch.kind.iter().collect();
        assert!(!kinds.contains(&(PageKind::Copy as u8)) || kinds.len() == 1);
    }
    // Ages are counted to the write that a page is placed for.
    let (mut written, mut writes) = (vec![0; row.exported_pages as usize], 0u64);
    let of_run = batches.iter().skip_while(|batch| !batch.kind.contains(&(PageKind::Update as u8)));
    for batch in of_run.filter(|batch| !is_copy(batch)) {
        let before = written.clone();
        for (page, lba) in batch.lba.iter().enumerate() {
            writes += 1;
            if batch.kind[page] == PageKind::Update as u8 {
                assert_eq!(batch.age[page], writes - before[*lba as usize]);
            } else {
                assert_eq!(batch.age[page], PageBatch::NEVER);
            }
            written[*lba as usize] = writes;
        }
    }
}

/// A selection that fails in the middle of a run.
#[derive(Debug)]
struct Failing {
    after_writes: u64,
    failed: Arc<AtomicBool>,
}

#[derive(Debug)]
struct FailingOfRun(Scan, u64, Arc<AtomicBool>);

impl OwnPolicy for Failing {
    fn name(&self) -> &str {
        "own:failing"
    }

    fn failure(&self) -> Option<Box<dyn Error + Send + Sync>> {
        self.failed.load(Ordering::Relaxed).then(|| "it has had enough".into())
    }
}

impl OwnSelection for Failing {
    fn build(&self, sizing: Sizing) -> Box<dyn Selection> {
        let greedy = Scan::new(sizing, SelectionSpec::known("greedy")).unwrap();
        Box::new(FailingOfRun(greedy, self.after_writes, Arc::clone(&self.failed)))
    }
}

impl Selection for FailingOfRun {
    fn opened(&mut self, _: &Segments, _: SegmentId) {}
    fn sealed(&mut self, _: &Segments, _: SegmentId) {}
    fn invalidated(&mut self, _: &Segments, _: SegmentId, _: u32) {}
    fn taken(&mut self, _: &Segments, _: SegmentId) {}

    fn select(&mut self, segments: &Segments, now: Now) -> Option<SegmentId> {
        if now.writes > self.1 {
            self.2.store(true, Ordering::Relaxed);
            return None;
        }
        self.0.select(segments, now)
    }

    /// Somebody keeps the arrays that were shown.
    fn chosen(&mut self, segments: &mut Segments) {
        let copy = segments.clone();
        drop(std::mem::replace(segments, copy));
    }
}

#[test]
fn a_selection_of_the_programs_own_runs_as_one_of_the_table_until_it_fails() {
    for paced in [0, 8] {
        let mut plain = experiment("zipf:0.9");
        plain.max_pages_per_write = paced;
        let mut experiment = plain.clone();
        let own = |after_writes| Failing { after_writes, failed: Arc::default() };
        experiment.own.selection = Some(Arc::new(own(u64::MAX)));
        assert_eq!(run(&experiment, &mut |_| true).unwrap().row.selection, "own:failing");
        assert_eq!(format!("{:?}", row_of(&experiment)), format!("{:?}", row_of(&plain)));
        experiment.own.selection = Some(Arc::new(own(3000)));
        let error = run(&experiment, &mut |_| true).unwrap_err();
        assert!(matches!(error, LabError::OwnPolicy { .. }), "{error}");
        assert_eq!(error.to_string(), "own:failing: it has had enough");
    }
}

#[test]
fn comparisons_and_sweeps_take_policies_of_the_programs_own_by_their_names() {
    let selection: Arc<dyn OwnSelection> = Arc::new(Failing { after_writes: u64::MAX, failed: Arc::default() });
    let placement: Arc<dyn OwnPlacement> = Arc::new(BatchedDac { batch: 64, batches: Arc::default() });
    let policies = OwnPolicies {
        selections: [("own:failing".into(), selection)].into(),
        placements: [("own:dac".into(), placement)].into(),
    };
    let held = HeldTraces::default().with_policies(policies);
    let text = "source = 'zipf:0.9'\nflash-size = '16M'\npages-per-segment = 64\ndevice-writes = 1.0\n\
                selection = ['greedy', 'own:failing']\nplacement = ['m1', 'own:dac']";
    let table: toml::Table = toml::from_str(text).unwrap();
    let settings = Settings { held: held.clone(), ..settings::from_table(&table).unwrap() };
    let comparison = Comparison::new(&settings, Some(2), false, &Sources::default()).unwrap();
    let rows: Vec<ResultRow> = comparison
        .experiments
        .iter()
        .map(|experiment| run_prepared(experiment, &comparison.prepared, &mut |_| true).unwrap().row)
        .collect();
    let names: Vec<_> = rows.iter().map(|row| (row.selection.as_str(), row.placement.as_str(), row.seed)).collect();
    let wanted = [("greedy", "m1"), ("greedy", "own:dac"), ("own:failing", "m1"), ("own:failing", "own:dac")];
    let wanted: Vec<_> = wanted.iter().flat_map(|(one, other)| [(*one, *other, 1), (*one, *other, 2)]).collect();
    assert_eq!(names, wanted);
    assert_eq!((rows[0].copies, rows[2].copies), (rows[4].copies, rows[6].copies));

    let points = points_with(table, Some(1), &held).unwrap();
    let keys: std::collections::BTreeSet<_> = points.iter().map(|point| &point.key).collect();
    assert_eq!((points.len(), keys.len()), (4, 4));
    for point in &points {
        let (experiment, prepared) = point.settings.prepare(&Sources::default()).unwrap();
        let swept = run_prepared(&experiment, &prepared, &mut |_| true).unwrap().row;
        let is_same = |row: &&ResultRow| (&row.selection, &row.placement) == (&swept.selection, &swept.placement);
        assert_eq!(rows.iter().find(is_same).map(|row| row.copies), Some(swept.copies), "{}", point.name());
    }
    let none = Settings { selection: Some(Vec::new()), ..settings.clone() };
    let error = Comparison::new(&none, None, false, &Sources::default()).unwrap_err().to_string();
    assert!(error.contains("selection policy = []"), "{error}");
    let unknown = Settings { held: HeldTraces::default(), ..settings };
    let error = Comparison::new(&unknown, None, false, &Sources::default()).unwrap_err().to_string();
    assert!(error.contains("unknown selection policy 'own'"), "{error}");
}
