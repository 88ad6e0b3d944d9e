use core::fmt;
use margay_flash::Geometry;
use margay_policy::LevelingSpec;

/// How a log uses its device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Pages at the start of each segment that hold its header and per-page information (NOR).
    pub header_pages: u32,
    /// Pages after the last data page of each segment that hold its summary (NAND without room in the spare area).
    pub summary_pages: u32,
    /// Segments at the start of the device that are never used for data.
    pub reserved_segments: u32,
    /// Segments that the log lends its device for pages of its own ([`margay_format::Store::lend`]).
    pub lent_segments: u32,
    /// The greatest number of pages programmed for one host write, its own page included. Cleaning is then spread over
    /// the writes, and a page is invalidated only when its successor is on flash, as a device that must survive power
    /// cuts needs it. With 0, all cleaning is done when a segment is opened, as in the FMS papers.
    pub max_pages_per_write: u32,
    /// Cleaning starts when fewer segments than this are free. At least 1, and at least 2 if cleaning is spread over
    /// the writes.
    pub low_water: u32,
    /// Cleaning stops when this many segments are free. At least `low_water`.
    pub high_water: u32,
    /// Whether data that the host calls read-only has a stream, and so segments, of its own.
    pub read_only_stream: bool,
    /// Whether pages of the client's own, which [`crate::Log::write_own_in_step`] writes, have a stream of their own. Only on a
    /// device that keeps tags.
    pub own_stream: bool,
    /// Whether the owners of pages are read from their tags when they are needed, and not kept in memory. Only on a device
    /// that keeps tags and with cleaning spread over the writes.
    pub owners_on_flash: bool,
    /// The leveling policy.
    pub leveling: LevelingSpec,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            header_pages: 0,
            summary_pages: 0,
            reserved_segments: 0,
            lent_segments: 0,
            max_pages_per_write: 0,
            low_water: 3,
            high_water: 3,
            read_only_stream: false,
            own_stream: false,
            owners_on_flash: false,
            leveling: LevelingSpec::default(),
        }
    }
}

/// A configuration that cannot work on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// No data page is left in a segment.
    NoDataPages {
        /// Header and summary pages asked for.
        metadata_pages: u32,
        /// Pages of a segment.
        pages_per_segment: u32,
    },
    /// The low-water mark is too low, or above the high-water mark.
    Marks {
        /// The low-water mark.
        low_water: u32,
        /// The high-water mark.
        high_water: u32,
    },
    /// Too few segments for the reserve and an open segment for each stream.
    TooFewSegments {
        /// Segments of the device.
        segments: u32,
        /// Segments needed.
        needed: u32,
    },
    /// With this many valid pages the cleaner would find no invalid one.
    TooFull {
        /// Pages to be exported.
        exported_pages: u32,
        /// The greatest number that can be exported.
        limit_pages: u32,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoDataPages { metadata_pages, pages_per_segment } => write!(
                f,
                "{metadata_pages} header and summary pages leave no data page in a segment of {pages_per_segment} pages"
            ),
            Self::Marks { low_water, high_water } => write!(
                f,
                "low-water mark {low_water} and high-water mark {high_water}: the low one is at least 1 (2 if cleaning is spread over the writes) and at most the high one"
            ),
            Self::TooFewSegments { segments, needed } => write!(
                f,
                "{segments} segments are too few: the reserve, the low-water mark and the streams need {needed}"
            ),
            Self::TooFull { exported_pages, limit_pages } => write!(
                f,
                "{exported_pages} exported pages could never be cleaned on this device: with its reserve, marks and streams the limit is {limit_pages}"
            ),
        }
    }
}

impl core::error::Error for ConfigError {}

impl Config {
    /// Whether cleaning is spread over the writes.
    #[inline(always)]
    pub const fn is_paced(&self) -> bool {
        self.max_pages_per_write > 0
    }

    /// Streams beside those of the placement.
    pub const fn more_streams(&self) -> u8 {
        self.read_only_stream as u8 + self.own_stream as u8
    }

    /// Data pages in a segment.
    pub fn data_pages(&self, geometry: &Geometry) -> u32 {
        geometry.pages_per_segment().saturating_sub(self.header_pages.saturating_add(self.summary_pages))
    }

    /// The greatest number of valid pages with which the cleaner always finds an invalid one. When it starts, up to
    /// `high_water - 1` segments are free and each of the `streams` may have an open segment; one page less than fills
    /// the remaining segments leaves an invalid page in some sealed one.
    pub fn limit_pages(&self, geometry: &Geometry, streams: u32) -> Result<u32, ConfigError> {
        let data_pages = self.data_pages(geometry);
        if data_pages == 0 {
            let metadata_pages = self.header_pages.saturating_add(self.summary_pages);
            return Err(ConfigError::NoDataPages { metadata_pages, pages_per_segment: geometry.pages_per_segment() });
        }
        let min_low_water = if self.is_paced() { 2 } else { 1 };
        if self.low_water < min_low_water || self.low_water > self.high_water {
            return Err(ConfigError::Marks { low_water: self.low_water, high_water: self.high_water });
        }
        let segments = geometry.segments();
        let unused = u64::from(self.reserved_segments) + u64::from(self.lent_segments);
        let held = unused + u64::from(self.high_water) - 1 + u64::from(streams);
        if held + 1 > u64::from(segments) {
            let needed = u32::try_from(held + 1).unwrap_or(u32::MAX);
            return Err(ConfigError::TooFewSegments { segments, needed });
        }
        Ok((segments - held as u32) * data_pages - 1)
    }
}
