//! Recordings: what a served disk did, done again by the laboratory.

use crate::chip::PAGE;
use crate::client::*;
use crate::server::{Server, offer};
use margay_flash::Geometry;
use margay_host::Existing;
use margay_lab::{Served, replay_served};
use margay_media::ImageFlash;
use margay_policy::spec::PolicyKind;
use margay_policy::{PlacementSpec, SelectionSpec, Spec};
use margay_serve::{Recording, Stopped};
use margay_trace::{Event, Recorded, RecordingReader, RecordingWriter};
use margay_volume::{FormatOptions, OpenOptions, StoreOptions, Volume};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

const PAGES: u32 = 440;

/// A disk on an image, and the recording of what is done with it.
struct Day {
    folder: TempDir,
    /// Without it, nothing that the disk does waits for the host's disk.
    is_synced: bool,
    state: u64,
}

impl Day {
    fn format(options: &FormatOptions, is_synced: bool, geometry: Geometry) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let device = ImageFlash::create(&folder.path().join("flash.img"), geometry).unwrap().without_sync();
        Volume::format(device, options).unwrap().stop().unwrap();
        Self { folder, is_synced, state: 88_172_645_463_325_252 }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % limit
    }

    fn open(&self) -> ImageFlash {
        let device = ImageFlash::open(&self.path("flash.img"), false).unwrap();
        if self.is_synced { device } else { device.without_sync() }
    }

    /// Serves the disk once, to a client that does a bit of everything and rests in between.
    fn serve(&mut self, options: &OpenOptions, writer: RecordingWriter, cleans_idle: bool) -> Stopped {
        let (volume, recording) = Recording::open(self.open(), options, writer).unwrap();
        let mut offer = offer("", volume);
        (offer.record, offer.cleans_idle) = (Some(recording), cleans_idle);
        let server = Server::start(vec![offer]);
        let mut client = server.client();
        for step in 0..800 {
            let lpn = if self.below(10) < 8 { self.below(40) } else { self.below(u64::from(PAGES) - 8) };
            let offset = lpn * PAGE;
            match self.below(40) {
                0 => client.call(FLUSH, 0, 0, 0).unwrap(),
                1 => client.call(TRIM, 0, offset + 100, 3 * PAGE as u32).unwrap(),
                2 => client.call(WRITE_ZEROES, 0, offset + 100, 2 * PAGE as u32).unwrap(),
                3 => client.call(WRITE_ZEROES, NO_HOLE, offset, PAGE as u32).unwrap(),
                4 => drop(client.read(offset, 100).unwrap()),
                5 => client.write(0, offset + 1000, &[7; 5000]).unwrap(),
                6 => client.write(FUA, offset, &[9; 8 * PAGE as usize]).unwrap(),
                _ => client.write(0, offset, &[step as u8; PAGE as usize]).unwrap(),
            }
            if step % 200 == 199 {
                // It cleans in advance meanwhile.
                std::thread::sleep(Duration::from_millis(40));
            }
        }
        drop(client);
        server.stop().stopped.remove(0)
    }

    fn create(&self, name: &str) -> RecordingWriter {
        RecordingWriter::create(&self.path(name), Existing::Refuse).unwrap()
    }

    fn again(&self, name: &str, from: Option<&Path>) -> Result<Served, String> {
        replay_served(&self.path(name), from, &mut |_| true).map_err(|error| error.to_string())
    }

    /// The erases of each segment of the image.
    fn erases(&self) -> Vec<u32> {
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        Volume::open(self.open(), &options).unwrap().status().segments.erases.clone()
    }
}

fn options(selection: SelectionSpec, placement: PlacementSpec) -> FormatOptions {
    let defaults = FormatOptions::default();
    let store = StoreOptions {
        selection,
        uuid: [5; 16],
        leveling: "threshold:spread=4".parse().unwrap(),
        pair_pages: true,
        ..defaults.store
    };
    FormatOptions { store, exported_pages: Some(PAGES), placement, ..defaults }
}

fn nand() -> Geometry {
    Geometry::new(40, 16, PAGE as u32).unwrap().with_spare(256)
}

/// The image and its copy by the laboratory have done the same.
fn check(day: &Day, served: &Served, stopped: &[&Stopped], what: &str) {
    assert_eq!(served.erases, day.erases(), "{what}");
    assert_eq!(served.rows.len(), stopped.len(), "{what}");
    for (row, stopped) in served.rows.iter().zip(stopped) {
        let start = format!("{what}, start {}", row.start);
        assert_eq!(row.is_as_recorded, Some(true), "{start}: {row:?}");
        assert_eq!(row.since_format, stopped.since_format, "{start}");
        let of_row = (row.host_writes, row.copies, row.metadata_pages, row.erases, row.idle_copies, row.idle_erases);
        let Stopped { host_writes, copies, metadata_pages, erases, idle_copies, idle_erases, .. } = **stopped;
        assert_eq!(of_row, (host_writes, copies, metadata_pages, erases, idle_copies, idle_erases), "{start}");
        assert!(row.host_writes > 800 && row.erases > 10, "{start}: {row:?}");
    }
}

/// The policies that are tried with all others. Every pair would be some hundreds of days.
fn in_turn<K: PolicyKind>(spec: &Spec<K>) -> bool {
    ["cat", "m1", "lifetime"].contains(&spec.name())
}

#[test]
fn a_recorded_day_with_a_restart_is_done_again_exactly_by_every_policy() {
    let (mut copies, mut idle_copies, mut idle_erases) = (0, 0, 0);
    for selection in SelectionSpec::all() {
        let tried = |placement: &PlacementSpec| !placement.is_oracle() && (in_turn(&selection) || in_turn(placement));
        for placement in PlacementSpec::all().filter(tried) {
            let mut day = Day::format(&options(selection, placement), true, nand());
            let first = day.serve(&OpenOptions::default(), day.create("day.mgt"), true);
            let writer = RecordingWriter::go_on_with(&day.path("day.mgt")).unwrap();
            let second = day.serve(&OpenOptions::default(), writer, true);
            let what = format!("{selection} + {placement}");
            let served = day.again("day.mgt", None).unwrap_or_else(|error| panic!("{what}: {error}"));
            check(&day, &served, &[&first, &second], &what);
            copies += first.copies + second.copies;
            idle_copies += first.idle_copies + second.idle_copies;
            idle_erases += first.idle_erases + second.idle_erases;
        }
    }
    let idle = format!("{idle_copies} of {copies} copies and {idle_erases} erases in idle time");
    assert!(copies > 10_000 && idle_copies > 0 && idle_erases > 100, "{idle}");
}

#[test]
fn a_day_is_done_again_exactly_on_every_kind_of_flash_and_when_policies_change() {
    let nor = Geometry::new(42, 16, PAGE as u32).unwrap().byte_programmable();
    let pairs = Geometry::new(40, 32, PAGE as u32).unwrap();
    let (selection, placement) = ("cat".parse().unwrap(), "m6".parse().unwrap());
    for (is_synced, geometry) in [(false, nand()), (true, nor), (false, nor), (true, pairs)] {
        let mut day = Day::format(&options(selection, placement), is_synced, geometry);
        let first = day.serve(&OpenOptions::default(), day.create("day.mgt"), true);
        let other = OpenOptions {
            selection: Some("greedy".parse().unwrap()),
            placement: Some("dac".parse().unwrap()),
            max_pages_per_write: Some(8),
            read_only_ranges: vec![(300, 50)],
            ..OpenOptions::default()
        };
        let second = day.serve(&other, RecordingWriter::go_on_with(&day.path("day.mgt")).unwrap(), true);
        let served = day.again("day.mgt", None).unwrap();
        check(&day, &served, &[&first, &second], &format!("{geometry:?}"));
        assert!(served.rows[0].selection.starts_with("cat") && served.rows[1].selection.starts_with("greedy"));
    }
}

#[test]
fn a_recording_that_begins_later_needs_the_image_as_it_was_then() {
    let mut day = Day::format(&options("cat".parse().unwrap(), "m6".parse().unwrap()), true, nand());
    let writer = day.create("first.mgt");
    day.serve(&OpenOptions::default(), writer, true);
    std::fs::copy(day.path("flash.img"), day.path("before.img")).unwrap();
    let writer = day.create("second.mgt");
    let stopped = day.serve(&OpenOptions::default(), writer, true);
    let error = day.again("second.mgt", None).unwrap_err();
    assert!(error.contains("--from") && error.contains("second.mgt"), "{error}");
    let before = std::fs::read(day.path("before.img")).unwrap();
    let served = day.again("second.mgt", Some(&day.path("before.img"))).unwrap();
    check(&day, &served, &[&stopped], "from a copy");
    assert!(std::fs::read(day.path("before.img")).unwrap() == before, "the copy was written to");
    let error = day.again("second.mgt", Some(&day.path("flash.img"))).unwrap_err();
    assert!(error.contains("not as it was"), "{error}");
}

#[test]
fn without_idle_cleaning_nothing_is_done_while_nobody_asks() {
    let mut day = Day::format(&options("cat".parse().unwrap(), "m6".parse().unwrap()), true, nand());
    let writer = day.create("day.mgt");
    let stopped = day.serve(&OpenOptions::default(), writer, false);
    assert_eq!((stopped.idle_copies, stopped.idle_erases), (0, 0));
    let entries = RecordingReader::open(&day.path("day.mgt")).unwrap();
    assert!(!entries.map(Result::unwrap).any(|(_, entry)| matches!(entry, Recorded::Event(Event::Idle { .. }))));
    check(&day, &day.again("day.mgt", None).unwrap(), &[&stopped], "without idle cleaning");
}
