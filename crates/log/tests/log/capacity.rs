//! `Config::limit_pages` is what can be written for ever, for every number of streams.

use crate::client::{Places, Random, both_ways};
use margay_flash::{Geometry, Lpn, Ppn, SegmentId};
use margay_format::Plain;
use margay_log::{Config, ConfigError, Content, Hint, Log, LogError, Policies};
use margay_media::{NullFlash, Strict};
use margay_policy::{PlacementSpec, SelectionSpec, Sizing, State};

/// Segments beside those that the streams hold open.
const MORE_SEGMENTS: u32 = 12;

struct Full {
    log: Log<Plain<Strict<NullFlash>>, Lpn>,
    client: Places,
    geometry: Geometry,
    pages: u32,
    step: u64,
}

impl Full {
    fn new(geometry: Geometry, config: Config, placement: PlacementSpec, pages: u32) -> Result<Self, LogError> {
        let data_pages = config.data_pages(&geometry);
        let sizing = Sizing { segments: geometry.segments(), data_pages, exported_pages: pages, seed: 1 };
        let policies = Policies::new(SelectionSpec::known("greedy"), placement, sizing);
        let client = Places { places: vec![None; pages as usize], ..Places::default() };
        let log = Log::new(Plain::new(Strict::new(NullFlash::new(geometry))), config, policies, pages)?;
        Ok(Self { log, client, geometry, pages, step: 0 })
    }

    fn write(&mut self, lpn: u32) -> Result<(), LogError> {
        self.step += 1;
        // Some of the data is read-only at one time and not at another.
        let hint = if (u64::from(lpn) * 7 + self.step / 100).is_multiple_of(5) { Hint::ReadOnly } else { Hint::None };
        // Time runs in leaps, so that ages differ.
        let now_us = self.step * 1000 + self.step / 300 * 5_000_000;
        self.log.write(&mut self.client, Lpn(lpn), Content::Page, &[], hint, now_us).map(drop)
    }

    /// A page of the sealed segment that holds the most valid pages: every invalidation there gains least.
    fn in_the_fullest_segment(&self, which: u32) -> u32 {
        let segments = self.log.segments();
        let sealed = segments.ids().filter(|id| segments.state[id.index()] == State::Sealed);
        let fullest: Option<SegmentId> = sealed.max_by_key(|id| segments.valid[id.index()]);
        let Some(fullest) = fullest else { return which % self.pages };
        let first = self.geometry.first_page(fullest).0;
        let owners = (first..first + self.geometry.pages_per_segment()).filter_map(|page| self.log.owner(Ppn(page)));
        let owners: Vec<_> = owners.collect();
        match owners.len() {
            0 => which % self.pages,
            count => owners[which as usize % count].0,
        }
    }

    /// Writes twenty times as many pages as there are, after each of several patterns.
    fn overwrite(&mut self) -> Result<(), LogError> {
        let mut random = Random(7);
        let pages = self.pages;
        (0..pages).try_for_each(|lpn| self.write(lpn))?;
        for _ in 0..10 * pages {
            self.write(random.below(pages))?;
        }
        let stride = self.geometry.pages_per_segment() + 1;
        let mut at = 0;
        for step in 0..2 * pages {
            at = (at + stride) % pages;
            self.write(at)?;
            self.write(step % pages)?;
            self.write(random.skewed(pages))?;
            self.write(0)?;
            let lpn = self.in_the_fullest_segment(step);
            self.write(lpn)?;
        }
        Ok(())
    }
}

/// Every row with its default parameters, and those whose parameters change the number of streams.
fn placements() -> impl Iterator<Item = PlacementSpec> {
    let more = ["dac:regions=1", "dac:regions=2", "dac:regions=7", "dac:regions=64", "m6:mean=exact"];
    PlacementSpec::all().chain(more.map(PlacementSpec::known))
}

fn shapes(config: Config, streams: u32) -> Vec<(Geometry, Config)> {
    let marks = [(config.low_water, config.high_water), (config.low_water, config.high_water + 2)];
    let layouts = [(4, 0, 0, 0), (9, 1, 1, 2)];
    let mut shapes = Vec::new();
    for (low_water, high_water) in marks {
        for (pages_per_segment, header_pages, summary_pages, reserved_segments) in layouts {
            let segments = MORE_SEGMENTS + streams + reserved_segments;
            let geometry = Geometry::new(segments, pages_per_segment, 16).unwrap();
            let config = Config { low_water, high_water, header_pages, summary_pages, reserved_segments, ..config };
            shapes.push((geometry, config));
        }
    }
    shapes
}

#[test]
fn a_device_at_its_limit_can_be_overwritten_for_ever_and_one_page_more_is_refused() {
    let mut tried = 0;
    for placement in placements() {
        for read_only_stream in [false, true] {
            for way in both_ways() {
                let config = Config { read_only_stream, ..way };
                let streams = u32::from(placement.streams()) + u32::from(read_only_stream);
                for (geometry, config) in shapes(config, streams) {
                    let what = format!("{placement}, {geometry:?}, {config:?}");
                    let limit_pages = config.limit_pages(&geometry, streams).unwrap();
                    let mut full = Full::new(geometry, config, placement, limit_pages).unwrap();
                    full.overwrite().unwrap_or_else(|error| panic!("{what}, write {}: {error}", full.step));
                    let places = &full.client.places;
                    full.log.audit(|owner: Lpn, ppn| places[owner.index()] == Some(ppn)).unwrap();
                    assert!(full.log.counters().erases > 100, "{what}");
                    let exported_pages = limit_pages + 1;
                    let refused = Full::new(geometry, config, placement, exported_pages).err();
                    let expected = ConfigError::TooFull { exported_pages, limit_pages };
                    assert_eq!(refused, Some(LogError::Config(expected)), "{what}");
                    tried += 1;
                }
            }
        }
    }
    assert!(tried >= 96, "{tried}");
}

#[test]
fn a_stream_costs_a_segment_of_the_limit() {
    let geometry = Geometry::new(40, 8, 16).unwrap();
    for config in both_ways() {
        let limit = |streams| config.limit_pages(&geometry, streams).unwrap();
        for streams in 1..30 {
            assert_eq!(limit(streams) - limit(streams + 1), config.data_pages(&geometry));
        }
    }
}

#[test]
fn too_few_segments_for_the_streams_are_refused_with_the_number_needed() {
    let placement = PlacementSpec::known("dac:regions=64");
    let config = Config { read_only_stream: true, ..Config::default() };
    // The reserve up to the high-water mark, a segment for each stream, and one to hold data.
    let needed = 2 + 65 + 1;
    let shape = |segments| Geometry::new(segments, 4, 16).unwrap();
    let refused = Full::new(shape(needed - 1), config, placement, 1).err();
    let expected = ConfigError::TooFewSegments { segments: needed - 1, needed };
    assert_eq!(refused, Some(LogError::Config(expected)));
    let mut full = Full::new(shape(needed), config, placement, 3).unwrap();
    full.overwrite().unwrap();
}
