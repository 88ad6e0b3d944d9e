//! Placement: which stream a written or copied page goes to. One file per policy, one row in `PLACEMENTS`.
//!
//! A policy implements [`Placement`]: pure decisions, with a value of its own type kept for every physical page. The
//! engine holds it as a [`Placer`], which keeps those values and hides their type.

/// What a [`Placement`] whose information is a `u32` does with it at a mount and at a stop: the tag of a page and a
/// checkpoint hold the number as it is. The argument is the kind of the number, one of [`heat`].
macro_rules! number_for_a_page {
    ($kind:expr) => {
        const HEAT_KIND: u8 = $kind;

        fn pack(&self, number: u32) -> u32 {
            number
        }

        fn unpack(&mut self, number: u32, _: Now, _: Now) -> u32 {
            number
        }

        fn encode(&self, number: u32, _: Now) -> (u64, u32) {
            (0, number)
        }

        fn decode(&mut self, (_, number): (u64, u32), _: Now) -> u32 {
            number
        }
    };
}

mod dac;
mod dogi;
mod eti;
mod fadac;
mod fine_grained;
mod fk;
mod hinted;
mod lifetime;
mod midas;
mod mq;
mod multilog;
mod page_based;
mod placer;
mod requests;
mod segment_based;
mod sepbit;
mod sepgc;
mod sequential;
mod sfr;
mod sfs;
mod warcip;

pub use dac::Dac;
pub use fine_grained::{DecayingFineGrained, FineGrained, Heat};
pub use page_based::PageBased;
pub use placer::{Placer, WithPages, word_and_run};
pub use segment_based::SegmentBased;
pub use sequential::{Key, Sequential, Sorted};

use crate::age::{Now, Scale};
use crate::bounds::Bounds;
use crate::segments::{PageSums, Segments};
use crate::spec::{Args, Parameter, PolicyKind, Row, Spec};
use alloc::boxed::Box;
use core::fmt;
use margay_flash::{Ppn, SegmentId};

/// All placement policies.
#[rustfmt::skip] // one row a line
pub(crate) static PLACEMENTS: &[Row<PlacementBuild>] = &[
    sequential::M1,
    sequential::M2,
    sequential::M3,
    segment_based::ROW,
    page_based::ROW,
    fine_grained::ROW,
    dac::ROW,
    sepgc::ROW,
    sepbit::ROW,
    sfs::ROW,
    multilog::ROW,
    eti::ROW,
    fadac::ROW,
    mq::ROW,
    sfr::ROW,
    warcip::ROW,
    midas::ROW,
    dogi::ROW,
    lifetime::ROW,
    hinted::ROW,
    fk::ROW,
    dogi::nodap::ROW,
];

/// Stream of data that is, or may become, hot. Host writes go here.
pub const HOT: u8 = 0;
/// Stream of cold data.
pub const COLD: u8 = 1;

/// 86400 s of the FMS study's clock in writes of its data set (3511 of 5245 pages).
const HEAT_SCALE: Scale = Scale::DeviceWrites(0.67);
const HEAT: Parameter = Parameter::scale("scale", HEAT_SCALE, "age that halves the hot degree");

/// The parameter of placements that work with any number of streams. Six are those that SepBIT's paper compares.
const STREAMS: Parameter = Parameter::number("streams", 6, 2..=64, "number of streams");

/// How a placement policy is built for a device that exports this many pages.
pub type PlacementBuild = fn(&Args, u32) -> Box<dyn Placer>;

/// The table of placement policies.
#[derive(Debug)]
pub enum PlacementKind {}

impl PolicyKind for PlacementKind {
    const WHAT: &'static str = "placement policy";
    const USUAL: &'static [&'static str] = &["m1", "m4", "m5", "m6", "dac", "sepgc", "sepbit", "fadac", "lifetime"];
    type Build = PlacementBuild;

    fn rows() -> impl Iterator<Item = &'static Row<PlacementBuild>> + Clone {
        PLACEMENTS.iter()
    }
}

/// A placement policy with its parameters.
pub type PlacementSpec = Spec<PlacementKind>;

impl<K: PolicyKind<Build = PlacementBuild>> Spec<K> {
    /// Builds the policy for a device that exports `exported_pages` pages.
    pub fn build(&self, exported_pages: u32) -> Box<dyn Placer> {
        (self.row().build)(&self.args(), exported_pages)
    }

    /// Number of streams that the policy uses.
    pub fn streams(&self) -> u8 {
        self.build(1).streams()
    }

    /// Number of streams that the policy uses at most on a disk with so many segments more than its exported pages fill.
    pub fn streams_used(&self, spare_segments: f64) -> u8 {
        self.build(1).streams_used(spare_segments)
    }

    /// Whether the policy goes by the stream that the host names ([`Placement::SEES_STREAMS`]).
    pub fn sees_streams(&self) -> bool {
        self.build(1).sees_streams()
    }

    /// Whether the policy has to know the future ([`Placement::IS_ORACLE`]).
    pub fn is_oracle(&self) -> bool {
        self.build(1).is_oracle()
    }
}

/// What the host says of the data it writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hint {
    /// Nothing.
    #[default]
    None,
    /// The page will hardly ever be written again.
    ReadOnly,
    /// The page belongs to this stream of the host: streams of a multi-stream device, placement handles of FDP.
    Stream(u8),
    /// Host page writes until the page is written again or trimmed; `u32::MAX` if that is never, or later than so many. Only
    /// who has seen the future can say it: the laboratory does, for oracles ([`Placement::IS_ORACLE`]).
    Lifetime(u32),
}

/// What a page holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// A page of a disk.
    #[default]
    Page,
    /// Headers of objects of a file system.
    Headers {
        /// The object whose header came to the page last.
        object: u32,
        /// Whether the page is likely to be written again soon, because it is being filled or the object is open.
        open: bool,
    },
    /// A page of a file.
    Chunk {
        /// The file.
        object: u32,
        /// Its number in the file.
        chunk: u32,
        /// Whether no byte will be added to it, because the file goes on after it or ends with it.
        whole: bool,
    },
}

/// The page written by the host that a placement decides on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// The owner of the page; on a disk the logical page number.
    pub owner: u64,
    /// What it holds.
    pub content: Content,
    /// What the host says of it. Read-only data is separated by the engine itself, if it is configured to.
    pub hint: Hint,
}

impl Subject {
    /// The stream that the host wrote the page to; `None` if it did not name one.
    pub fn stream(&self) -> Option<u8> {
        match self.hint {
            Hint::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    /// Host page writes until the page is written again or trimmed; `None` if that is never (or later than 4,294,967,294
    /// writes), or if nobody knows. Known in the laboratory, to oracles.
    pub fn lifetime(&self) -> Option<u32> {
        match self.hint {
            Hint::Lifetime(writes) if writes != u32::MAX => Some(writes),
            _ => None,
        }
    }
}

/// A page written by the host, one of a run of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Written {
    /// The copy that it supersedes; [`Written::NEW`] if there is none.
    pub old: Ppn,
    /// The segment of that copy.
    pub segment: SegmentId,
    /// Time of the workload, in microseconds.
    pub us: u64,
}

impl Written {
    /// No page.
    pub const NEW: Ppn = Ppn(u32::MAX);
}

/// Kinds of information of a placement that the tag of a page holds on flash (FORMAT.md, "Tag").
pub mod heat {
    /// Nothing.
    pub const NONE: u8 = 0;
    /// Updates since the first write, as a `u32`; of `fadac` all host writes, less the copies before the last one.
    pub const UPDATES: u8 = 1;
    /// Updates, each decayed until the time of the last one, as the bits of an `f32`.
    pub const DECAYED: u8 = 2;
    /// Host page writes when the host wrote the page, modulo 2^32, as a `u32`.
    pub const WRITTEN: u8 = 3;
}

/// Read access to the information that a placement keeps for every physical page.
#[derive(Clone, Copy, Debug)]
pub struct Pages<'a, I> {
    info: &'a [I],
    valid: &'a [u64],
}

impl<'a, I: Copy> Pages<'a, I> {
    /// `info` is indexed by physical page number, `valid` is the bitmap of valid pages.
    pub fn new(info: &'a [I], valid: &'a [u64]) -> Self {
        Self { info, valid }
    }

    /// The information of each valid page of a segment, in the order of page numbers.
    pub fn of(self, segment: SegmentId, segments: &Segments) -> impl Iterator<Item = I> + 'a {
        let per_segment = self.info.len() / segments.valid.len();
        let pages = segment.index() * per_segment..(segment.index() + 1) * per_segment;
        pages.filter(move |page| self.valid[page / 64] >> (page % 64) & 1 != 0).map(move |page| self.info[page])
    }

    /// The information of each valid page, in the order of physical page numbers. Pages of open segments that are not
    /// written yet count as valid and have the default. O(pages of the device).
    pub fn valid(self) -> impl Iterator<Item = I> + 'a {
        let words = self.info.chunks(64).zip(self.valid);
        words.flat_map(|(info, bits)| {
            info.iter().enumerate().filter(move |(page, _)| bits >> page & 1 != 0).map(|(_, info)| *info)
        })
    }
}

/// A placement policy. It decides for each page, so everything here is called in the write path.
pub trait Placement: fmt::Debug + Send + Sized {
    /// The information that it keeps for every physical page. It moves with the data.
    type Info: Copy + Default + fmt::Debug + Send;

    /// Whether a victim's pages are copied in the order of [`Placement::sort_key`] instead of the order in the segment.
    const SORTS: bool = false;

    /// Whether all pages of a victim go to the same stream.
    const ONE_STREAM_PER_VICTIM: bool = false;

    /// The stream that [`Placement::write`] returns, if that is always the same one and the information returned with it
    /// depends on the time and the copy superseded alone. Host writes are then decided on many at a time.
    const HOST_STREAM: Option<u8> = None;

    /// Whether [`Placement::copy`] uses the owner of a page; if not, it is given 0.
    const SEES_OWNERS: bool = false;

    /// Whether the policy has to be told by [`Subject::lifetime`] when each page will be written again. Only the laboratory can
    /// tell, from a pass over the workload before the run; disks and file systems refuse such a policy.
    const IS_ORACLE: bool = false;

    /// Whether the policy goes by the stream that the host names ([`Subject::stream`]).
    const SEES_STREAMS: bool = false;

    /// Number of streams that are used at most on a disk with so many segments more than its exported pages fill.
    fn streams_used(&self, _spare_segments: f64) -> u8 {
        self.streams()
    }

    /// Whether [`Segments::sums`] holds the sums of [`Placement::sums_of`] over the valid pages of each segment.
    const SUMS: bool = false;

    /// The kind of information that [`Placement::pack`] returns; [`heat::NONE`] if nothing has to be kept on flash.
    const HEAT_KIND: u8 = heat::NONE;

    /// The seed of the policy's own random choices. Called once, before anything else, by those who know one; 0 otherwise.
    fn seed(&mut self, _seed: u64) {}

    /// Number of streams.
    fn streams(&self) -> u8;

    /// The number of streams, counted from the first, that have an open segment from the start. The others get one on
    /// first use.
    fn opened_at_start(&self) -> u8 {
        self.streams()
    }

    /// The stream that a host write goes to, and the information to keep for its page. `old` is the copy that it
    /// supersedes: its segment, and its information.
    fn write(
        &mut self,
        segments: &Segments,
        now: Now,
        subject: Subject,
        old: Option<(SegmentId, Self::Info)>,
    ) -> (u8, Self::Info);

    /// A page was trimmed.
    fn trimmed(&mut self, _now: Now, _info: Self::Info) {}

    /// Called before each cleaning with the information of every physical page, for maintenance that is rarely due.
    fn maintain(&mut self, _now: Now, _infos: &mut [Self::Info]) {}

    /// A victim was chosen, and its pages are about to be copied.
    fn begin_cleaning(&mut self, _segments: &Segments, _victim: SegmentId, _now: Now, _pages: Pages<'_, Self::Info>) {}

    /// The stream that a valid page of the victim goes to. `owner` is the owner of the page if
    /// [`Placement::SEES_OWNERS`], else 0.
    fn copy(&self, segments: &Segments, victim: SegmentId, now: Now, info: Self::Info, owner: u64) -> u8;

    /// The information of a page after it was copied. What the tag on flash holds of it does not change.
    fn copied(&self, info: Self::Info) -> Self::Info {
        info
    }

    /// What a page with this information adds to the sums of its segment; see [`Placement::SUMS`].
    fn sums_of(_info: Self::Info) -> PageSums {
        PageSums::default()
    }

    /// The information that the tag on flash holds of a page that the host is writing.
    fn pack(&self, _info: Self::Info) -> u32 {
        0
    }

    /// Recovers the information of a page from its tag, which was written at `written`. Called once per valid page when
    /// a device is mounted at `now`.
    fn unpack(&mut self, _heat: u32, _written: Now, _now: Now) -> Self::Info {
        Self::Info::default()
    }

    /// The information of a page of which only the content is known when a device is mounted.
    fn recognize(&mut self, _content: Content) -> Self::Info {
        Self::Info::default()
    }

    /// The information of a page as a checkpoint holds it at `now`. Not called for a zero-sized `Info`.
    fn encode(&self, _info: Self::Info, _now: Now) -> (u64, u32) {
        (0, 0)
    }

    /// Decodes what [`Placement::encode`] returned. Called once per valid page.
    fn decode(&mut self, _encoded: (u64, u32), _now: Now) -> Self::Info {
        Self::Info::default()
    }

    /// If [`Placement::SORTS`], the key in whose ascending order a victim's pages are copied.
    fn sort_key(&self, _now: Now, _info: Self::Info) -> f64 {
        0.0
    }

    /// An object of a file system was created.
    fn file_created(&mut self, _object: u32) {}

    /// A session that modified a file has ended.
    fn file_modified(&mut self, _object: u32) {}

    /// The policy's state of a file, which is kept in the header of the file on flash; 0 if there is none.
    fn remember_file(&self, _object: u32) -> u8 {
        0
    }

    /// Recovers the state of a file at a mount from what [`Placement::remember_file`] returned.
    fn recall_file(&mut self, _object: u32, _kept: u8) {}

    /// The class that the policy has put a file into, if it classifies files.
    fn class_of_file(&self, _object: u32) -> Option<&'static str> {
        None
    }

    /// How long its streams keep their segments, if the policy decides that, too. The engine copies it into
    /// [`Segments::bounds`] before each choice of a victim if its version has changed.
    fn bounds(&self) -> Option<&Bounds> {
        None
    }
}
