//! A disk of the tests: a log, the simplest client, and what every page should hold.

use margay_flash::{Flash, FlashError, Geometry, Lpn, Ppn, SegmentId};
use margay_format::{Formatted, Plain, SUPERBLOCK_BYTES, Store};
use margay_log::{Client, Config, Content, Hint, Log, LogError, Policies};
use margay_media::{RamFlash, Strict};
use margay_policy::{PlacementSpec, Segments, SelectionSpec, Sizing, State};
use std::collections::{HashSet, VecDeque};

pub const PAGE_BYTES: u32 = 512;
pub const SEGMENTS: u32 = 20;
pub const PAGES_PER_SEGMENT: u32 = 16;

pub type Ram = Strict<RamFlash>;

/// The client: where every page lives, and which pages of its own it owes.
#[derive(Debug, Default)]
pub struct Places<const GIVES_UP: bool = false> {
    pub places: Vec<Option<Ppn>>,
    pub owed: VecDeque<Lpn>,
    /// Owners of which it has a copy elsewhere.
    pub held_elsewhere: HashSet<u32>,
    /// The segment it wants cleaned, while that is sealed.
    pub wanted: Option<SegmentId>,
}

impl<const GIVES_UP: bool> Client<Lpn> for Places<GIVES_UP> {
    const GIVES_UP: bool = GIVES_UP;

    fn relocated(&mut self, owner: Lpn, to: Ppn) {
        self.places[owner.index()] = Some(to);
    }

    fn locate(&self, owner: Lpn) -> Option<Ppn> {
        self.places[owner.index()]
    }

    fn pending(&mut self, seq: u64, page: &mut [u8]) -> Option<Lpn> {
        let owner = self.owed.pop_front()?;
        page.fill(0);
        page[..8].copy_from_slice(&seq.to_le_bytes());
        Some(owner)
    }

    fn gives_up(&mut self, owner: Lpn) -> bool {
        let gives_up = self.held_elsewhere.contains(&owner.0);
        if gives_up {
            self.places[owner.index()] = None;
        }
        gives_up
    }

    fn victim(&self, segments: &Segments) -> Option<SegmentId> {
        self.wanted.filter(|segment| segments.state[segment.index()] == State::Sealed)
    }
}

/// A log with its client and an oracle.
pub struct Disk<D: Store, const GIVES_UP: bool = false> {
    pub log: Log<D, Lpn>,
    pub client: Places<GIVES_UP>,
    /// What each page holds, if it was written.
    pub versions: Vec<Option<u64>>,
    version: u64,
}

pub fn geometry() -> Geometry {
    Geometry::new(SEGMENTS, PAGES_PER_SEGMENT, PAGE_BYTES).unwrap().with_spare(160)
}

pub fn ram() -> Ram {
    Strict::new(RamFlash::new(geometry()))
}

/// Cleaning when a segment is opened, as in the FMS papers.
pub fn at_once() -> Config {
    Config::default()
}

/// Cleaning spread over the writes.
pub fn paced() -> Config {
    Config { max_pages_per_write: 8, low_water: 2, high_water: 2, ..Config::default() }
}

pub fn both_ways() -> [Config; 2] {
    [at_once(), paced()]
}

pub fn policies_for(config: &Config, pages: u32, selection: &str, placement: &str) -> Policies {
    let sizing = sizing(config, pages);
    Policies::new(SelectionSpec::known(selection), PlacementSpec::known(placement), sizing)
}

pub fn sizing(config: &Config, pages: u32) -> Sizing {
    Sizing { segments: SEGMENTS, data_pages: config.data_pages(&geometry()), exported_pages: pages, seed: 3 }
}

/// A device in margay's format for so many pages, with the configuration that its layout asks for.
pub fn formatted<F: Flash>(device: F, config: Config, pages: u32) -> (Formatted<F>, Config) {
    let device = Formatted::new(device, pages.into(), [0; SUPERBLOCK_BYTES]).unwrap();
    let layout = device.layout();
    let config = Config {
        header_pages: layout.header_pages,
        summary_pages: layout.summary_pages,
        reserved_segments: layout.reserved_segments,
        ..config
    };
    (device, config)
}

impl Disk<Plain<Ram>> {
    /// On memory, with greedy + m1.
    pub fn plain(config: Config, pages: u32) -> Self {
        Self::new(Plain::new(ram()), config, policies_for(&config, pages, "greedy", "m1"), pages)
    }
}

impl<D: Store, const GIVES_UP: bool> Disk<D, GIVES_UP> {
    pub fn new(device: D, config: Config, policies: Policies, pages: u32) -> Self {
        let client = Places { places: vec![None; pages as usize], ..Places::default() };
        let log = Log::new(device, config, policies, pages).unwrap();
        Self { log, client, versions: vec![None; pages as usize], version: 0 }
    }

    pub fn pages(&self) -> u32 {
        self.versions.len() as u32
    }

    pub fn try_write(&mut self, lpn: u32, hint: Hint) -> Result<Ppn, LogError> {
        self.version += 1;
        let version = self.version;
        let result = self.log.write(&mut self.client, Lpn(lpn), Content::Page, &page_of(lpn, version), hint, version);
        match result {
            Ok(_) => self.versions[lpn as usize] = Some(version),
            // The page holds what it held, or what it was to hold; which of them is what it holds from now on.
            Err(_) if self.read(lpn) == Ok(Some(version)) => self.versions[lpn as usize] = Some(version),
            Err(_) => {}
        }
        result
    }

    pub fn write(&mut self, lpn: u32) -> Ppn {
        self.try_write(lpn, Hint::None).unwrap()
    }

    /// Writes every page once.
    pub fn fill(&mut self) {
        for lpn in 0..self.pages() {
            self.write(lpn);
        }
    }

    /// Writes pages that look random; half of them go to a tenth.
    pub fn overwrite(&mut self, count: u32, seed: u64) {
        let mut random = Random(seed);
        for _ in 0..count {
            let lpn = random.skewed(self.pages());
            self.write(lpn);
        }
    }

    pub fn trim(&mut self, lpn: u32) {
        let old = self.client.places[lpn as usize].take().expect("only pages that were written are trimmed");
        self.log.trim(old, self.version);
        self.versions[lpn as usize] = None;
    }

    /// The version of a page.
    pub fn read(&mut self, lpn: u32) -> Result<Option<u64>, LogError> {
        let Some(ppn) = self.client.places[lpn as usize] else { return Ok(None) };
        let mut data = [0; PAGE_BYTES as usize];
        self.log.read(ppn, &mut data)?;
        let word = |at: usize| u64::from_le_bytes(data[at..at + 8].try_into().unwrap());
        assert_eq!(word(0), u64::from(lpn), "the page of another");
        Ok(Some(word(8)))
    }

    /// Every count is right and every page holds what was written last.
    #[track_caller]
    pub fn check(&mut self) {
        self.audit();
        for lpn in 0..self.pages() {
            assert_eq!(self.read(lpn), Ok(self.versions[lpn as usize]), "page {lpn}");
        }
    }

    #[track_caller]
    pub fn audit(&self) {
        let places = &self.client.places;
        self.log.audit(|owner: Lpn, ppn| places[owner.index()] == Some(ppn)).unwrap();
    }
}

pub fn page_of(lpn: u32, version: u64) -> [u8; PAGE_BYTES as usize] {
    let mut page = [0; PAGE_BYTES as usize];
    page[..8].copy_from_slice(&u64::from(lpn).to_le_bytes());
    page[8..16].copy_from_slice(&version.to_le_bytes());
    page
}

pub fn io() -> LogError {
    LogError::Flash(FlashError::Io { code: 5 })
}

/// A sequence that looks random and is not (Knuth's MMIX generator).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(limit)) as u32
    }

    /// Half of the numbers lie in the first tenth.
    pub fn skewed(&mut self, limit: u32) -> u32 {
        let span = if self.below(2) == 0 { limit } else { limit.div_ceil(10) };
        self.below(span)
    }
}
