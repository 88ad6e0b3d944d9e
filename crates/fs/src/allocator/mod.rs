//! Allocators: which stream a page of a file goes to. One file each, and one entry in [`allocators`].

mod moda;
mod predictive;

use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use margay_flash::SegmentId;
use margay_policy::{Now, Placement, Segments, SpecError};
pub use moda::Class;
use moda::Moda;
use predictive::Predictive;

/// The page that is written next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A page of object headers.
    Header {
        /// The object that came to it last.
        object: u32,
        /// It is likely to be written again soon: it is being filled, or the object is open.
        open: bool,
    },
    /// A chunk of a file.
    Chunk {
        /// The file.
        object: u32,
        /// Its number in the file.
        chunk: u32,
        /// The file goes on behind it, or ends with it: no byte will be added to it.
        whole: bool,
    },
}

/// What an allocator keeps for every physical page: the object, and whether it is a header page or an incomplete
/// chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageMark(u32);

impl PageMark {
    const HEADER: u32 = 1 << 31;
    const TAIL: u32 = 1 << 30;

    fn of(subject: Subject) -> Self {
        match subject {
            Subject::Header { object, .. } => Self(object | Self::HEADER),
            Subject::Chunk { object, whole: true, .. } => Self(object),
            Subject::Chunk { object, whole: false, .. } => Self(object | Self::TAIL),
        }
    }

    fn is_header(self) -> bool {
        self.0 & Self::HEADER != 0
    }

    fn is_tail(self) -> bool {
        self.0 & Self::TAIL != 0
    }

    fn object(self) -> u32 {
        self.0 & 0xFF_FFFF
    }
}

/// An allocator with its parameters, as it is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum AllocatorSpec {
    Sequential,
    Moda { queues: u8, lifetime: u32 },
    Dac,
    DacStatic,
    Predictive,
}

/// What a person wants to know of an allocator.
#[derive(Clone, Copy, Debug)]
pub struct AllocatorInfo {
    /// The name to write.
    pub name: &'static str,
    /// What it does.
    pub summary: &'static str,
    /// Parameters with defaults and meaning.
    pub parameters: &'static [(&'static str, &'static str)],
    /// Where it comes from.
    pub source: &'static str,
    default: AllocatorSpec,
}

const ALLOCATORS: [AllocatorInfo; 5] = [
    AllocatorInfo {
        name: "sequential",
        summary: "everything goes to one segment after the other, copies too",
        parameters: &[],
        source: "YAFFS",
        default: AllocatorSpec::Sequential,
    },
    AllocatorInfo {
        name: "moda",
        summary: "headers apart; files by the number of their modifications: hot, cold, unclassified",
        parameters: &[
            ("m", "2 (default): queues that a file climbs before it is hot"),
            ("lifetime", "100 (default): creations and modifying sessions until an unmodified file falls a queue"),
        ],
        source: "Baek et al. 2007, sec. 4",
        default: AllocatorSpec::Moda { queues: 2, lifetime: 100 },
    },
    AllocatorInfo {
        name: "dac",
        summary: "four regions: a page rises when it is overwritten and falls when it is copied",
        parameters: &[],
        source: "Chiang, Lee, Chang 1999; Baek et al. 2007, sec. 6.5",
        default: AllocatorSpec::Dac,
    },
    AllocatorInfo {
        name: "dac-static",
        summary: "dac for data, headers apart",
        parameters: &[],
        source: "Baek et al. 2007, sec. 6.5, with MODA's static property",
        default: AllocatorSpec::DacStatic,
    },
    AllocatorInfo {
        name: "predictive",
        summary: "by what will be written again: incomplete chunks, headers of open objects, overwritten data, the rest",
        parameters: &[],
        source: "margay",
        default: AllocatorSpec::Predictive,
    },
];

/// All allocators.
pub fn allocators() -> impl Iterator<Item = &'static AllocatorInfo> {
    ALLOCATORS.iter()
}

impl fmt::Display for AllocatorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sequential => f.write_str("sequential"),
            Self::Moda { queues, lifetime } => write!(f, "moda:m={queues},lifetime={lifetime}"),
            Self::Dac => f.write_str("dac"),
            Self::DacStatic => f.write_str("dac-static"),
            Self::Predictive => f.write_str("predictive"),
        }
    }
}

impl FromStr for AllocatorSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut parts = margay_policy::Parts::split(text)?;
        let info = allocators().find(|info| info.name == parts.name);
        let Some(info) = info else {
            return Err(SpecError::unknown("allocator", parts.name, allocators().map(|info| info.name)));
        };
        let spec = match info.default {
            Self::Moda { queues, lifetime } => Self::Moda {
                queues: parts.number("m", u32::from(queues), 1..=16)? as u8,
                lifetime: parts.number("lifetime", lifetime, 1..=1_000_000_000)?,
            },
            other => other,
        };
        let known: Vec<_> = info.parameters.iter().map(|(name, _)| *name).collect();
        parts.finish(&known)?;
        Ok(spec)
    }
}

#[derive(Clone, Debug)]
enum Rule {
    Sequential,
    Moda(Moda),
    Dac { headers_apart: bool },
    Predictive(Predictive),
}

/// Regions of DAC.
const REGIONS: u8 = 4;

/// Decides where each page of a file system goes. Told of the next page by [`Allocator::next`] and of what happens
/// to files by the rest.
#[derive(Clone, Debug)]
pub struct Allocator {
    spec: AllocatorSpec,
    rule: Rule,
    next: Subject,
}

impl Allocator {
    /// The allocator of that name.
    pub fn new(spec: AllocatorSpec) -> Self {
        let rule = match spec {
            AllocatorSpec::Sequential => Rule::Sequential,
            AllocatorSpec::Moda { queues, lifetime } => Rule::Moda(Moda::new(queues, lifetime)),
            AllocatorSpec::Dac => Rule::Dac { headers_apart: false },
            AllocatorSpec::DacStatic => Rule::Dac { headers_apart: true },
            AllocatorSpec::Predictive => Rule::Predictive(Predictive::default()),
        };
        Self { spec, rule, next: Subject::Chunk { object: 0, chunk: 0, whole: true } }
    }

    /// Its name and parameters.
    pub fn spec(&self) -> AllocatorSpec {
        self.spec
    }

    /// The page that is written next.
    #[inline]
    pub fn next(&mut self, subject: Subject) {
        self.next = subject;
    }

    /// An object was made.
    pub fn created(&mut self, object: u32) {
        match &mut self.rule {
            Rule::Moda(moda) => moda.created(object),
            Rule::Predictive(predictive) => predictive.created(object),
            Rule::Sequential | Rule::Dac { .. } => {}
        }
    }

    /// A session that modified a file has ended.
    pub fn modified(&mut self, object: u32) {
        match &mut self.rule {
            Rule::Moda(moda) => moda.modified(object),
            Rule::Predictive(predictive) => predictive.modified(object),
            Rule::Sequential | Rule::Dac { .. } => {}
        }
    }

    /// What is kept on flash of what it knows of a file: 0 if nothing.
    pub fn remember(&self, object: u32) -> u8 {
        match &self.rule {
            Rule::Moda(moda) => moda.remember(object),
            Rule::Predictive(predictive) => predictive.remember(object),
            Rule::Sequential | Rule::Dac { .. } => 0,
        }
    }

    /// What was kept of a file, at a mount.
    pub fn recall(&mut self, object: u32, heat: u8) {
        match &mut self.rule {
            Rule::Moda(moda) => moda.recall(object, heat),
            Rule::Predictive(predictive) => predictive.recall(object, heat),
            Rule::Sequential | Rule::Dac { .. } => {}
        }
    }

    /// The class of a file, if the allocator is MODA.
    pub fn class(&self, object: u32) -> Option<Class> {
        match &self.rule {
            Rule::Moda(moda) => Some(moda.class(object)),
            _ => None,
        }
    }

    /// What to keep for a page whose owner is known and nothing else.
    pub(crate) fn mark(object: u32, is_header: bool) -> u64 {
        u64::from(if is_header { object | PageMark::HEADER } else { object })
    }
}

impl Placement for Allocator {
    type Info = PageMark;

    fn streams(&self) -> u8 {
        match self.rule {
            Rule::Sequential => 1,
            Rule::Moda(_) => moda::STREAMS,
            Rule::Dac { headers_apart } => REGIONS + u8::from(headers_apart),
            Rule::Predictive(_) => predictive::STREAMS,
        }
    }

    fn opened_at_start(&self) -> u8 {
        0
    }

    fn write(&mut self, segments: &Segments, _: Now, old: Option<(SegmentId, PageMark)>) -> (u8, PageMark) {
        let mark = PageMark::of(self.next);
        let stream = match &mut self.rule {
            Rule::Sequential => 0,
            Rule::Moda(moda) => moda.stream(mark),
            Rule::Dac { headers_apart: true } if mark.is_header() => REGIONS,
            Rule::Dac { .. } => old.map_or(0, |(segment, _)| (region(segments, segment) + 1).min(REGIONS - 1)),
            Rule::Predictive(predictive) => {
                let overwrites = old.is_some_and(|(_, mark)| !mark.is_tail());
                predictive.stream(self.next, overwrites, segments.data_pages)
            }
        };
        (stream, mark)
    }

    fn copy(&self, segments: &Segments, victim: SegmentId, _: Now, mark: PageMark) -> u8 {
        match &self.rule {
            Rule::Sequential => 0,
            Rule::Moda(moda) => moda.stream(mark),
            Rule::Dac { headers_apart: true } if mark.is_header() => REGIONS,
            Rule::Dac { .. } => region(segments, victim).saturating_sub(1),
            Rule::Predictive(predictive) => predictive.copy_stream(mark, segments.stream[victim.index()]),
        }
    }

    fn freeze(&self, mark: PageMark, _: Now) -> (u64, u32) {
        (mark.0.into(), 0)
    }

    fn thaw(&mut self, (mark, _): (u64, u32), _: Now) -> PageMark {
        PageMark(mark as u32)
    }
}

/// DAC's region of a segment; what another allocator left starts anew.
fn region(segments: &Segments, segment: SegmentId) -> u8 {
    let stream = segments.stream[segment.index()];
    if stream < REGIONS { stream } else { 0 }
}
