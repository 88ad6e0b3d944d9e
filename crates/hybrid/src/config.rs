use crate::HybridError;
use alloc::string::ToString;
use core::fmt;
use core::str::FromStr;
use margay_flash::Geometry;

/// Who shares log blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// Each log block belongs to one logical block.
    Bast,
    /// Log blocks are shared.
    Fast {
        /// One of them takes sequential writes: it begins at offset 0 of a block and takes the offsets in order.
        sequential: bool,
        /// A write to its block at another offset goes to the random log and leaves it open; else it is merged.
        leave_open: bool,
    },
}

/// Whether a store outlives the process that uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// Everything written and synced survives a power cut.
    Persistent,
    /// The content is worth nothing once the process above has ended: a page's old copy is invalid before the new
    /// one is written, pages may be dropped, and opening begins with an empty store.
    Volatile,
}

/// How a device is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HybridConfig {
    /// Who shares log blocks.
    pub mapping: Mapping,
    /// Whether it outlives the process that uses it.
    pub persistence: Persistence,
    /// Log blocks, the sequential one included.
    pub log_blocks: u32,
    /// Pages exported.
    pub logical_pages: u32,
    /// Pages at the start of each segment that hold its header (NOR).
    pub header_pages: u32,
    /// Segments at the start of the device that hold no data.
    pub reserved_segments: u32,
}

impl HybridConfig {
    /// FAST with a sequential log block, for a swap store on a device without metadata.
    pub const fn swap(logical_pages: u32, log_blocks: u32) -> Self {
        let mapping = Mapping::Fast { sequential: true, leave_open: false };
        Self {
            mapping,
            persistence: Persistence::Volatile,
            log_blocks,
            logical_pages,
            header_pages: 0,
            reserved_segments: 0,
        }
    }

    /// Pages in a block.
    pub const fn pages_per_block(&self, geometry: &Geometry) -> u32 {
        geometry.pages_per_segment() - self.header_pages
    }

    /// Logical blocks.
    pub const fn blocks(&self, geometry: &Geometry) -> u32 {
        self.logical_pages.div_ceil(self.pages_per_block(geometry))
    }

    /// Segments it takes: a data block for each logical block, the log blocks, one to merge into, the reserved, and
    /// for a disk one to recover into.
    pub const fn segments(&self, geometry: &Geometry) -> u64 {
        let extra = if matches!(self.persistence, Persistence::Persistent) { 2 } else { 1 };
        self.blocks(geometry) as u64 + self.log_blocks as u64 + extra + self.reserved_segments as u64
    }

    /// Random log blocks.
    pub const fn random_log_blocks(&self) -> u32 {
        match self.mapping {
            Mapping::Fast { sequential: true, .. } => self.log_blocks - 1,
            _ => self.log_blocks,
        }
    }

    /// The min of log blocks that the mapping can do with.
    pub(crate) const fn min_log_blocks(&self) -> u32 {
        if matches!(self.mapping, Mapping::Fast { sequential: true, .. }) { 2 } else { 1 }
    }

    pub(crate) fn check(&self, geometry: &Geometry) -> Result<(), HybridError> {
        let min_log_blocks = self.min_log_blocks();
        if self.log_blocks < min_log_blocks {
            return Err(HybridError::TooFewLogBlocks { log_blocks: self.log_blocks, min_log_blocks });
        }
        let needed = self.segments(geometry);
        if self.logical_pages == 0 || needed > u64::from(geometry.segments()) {
            return Err(HybridError::TooSmall { needed_segments: needed, segments: geometry.segments() });
        }
        Ok(())
    }
}

/// A mapping, as help and documents show it.
#[derive(Clone, Copy, Debug)]
pub struct MappingInfo {
    /// The name to write.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub summary: &'static str,
    /// Parameters with defaults and meaning.
    pub parameters: &'static [(&'static str, &'static str)],
    /// Where it comes from.
    pub source: &'static str,
    default: Mapping,
}

const MAPPINGS: [MappingInfo; 2] = [
    MappingInfo {
        name: "bast",
        summary: "each log block belongs to one logical block",
        parameters: &[],
        source: "Kim et al. 2002",
        default: Mapping::Bast,
    },
    MappingInfo {
        name: "fast",
        summary: "all logical blocks share the log blocks",
        parameters: &[
            (
                "sequential",
                "yes (default), no: whether one log block takes the writes that begin at the start of a block",
            ),
            (
                "open",
                "no (default), yes: whether a write out of order leaves the sequential log block open, or merges it",
            ),
        ],
        source: "Lee et al. 2007",
        default: Mapping::Fast { sequential: true, leave_open: false },
    },
];

/// All mappings: name, meaning, parameters and source.
pub fn mappings() -> impl ExactSizeIterator<Item = &'static MappingInfo> + Clone {
    MAPPINGS.iter()
}

impl fmt::Display for Mapping {
    /// The text that [`FromStr`] reads, and that the superblock holds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |yes: bool| if yes { "yes" } else { "no" };
        match *self {
            Self::Bast => f.write_str("bast"),
            Self::Fast { sequential, leave_open } => {
                write!(f, "fast:sequential={},open={}", word(sequential), word(leave_open))
            }
        }
    }
}

impl FromStr for Mapping {
    type Err = HybridError;

    fn from_str(text: &str) -> Result<Self, HybridError> {
        let unknown = || HybridError::UnknownMapping { text: text.to_string() };
        let (name, values) = text.split_once(':').unwrap_or((text, ""));
        let mut mapping = mappings().find(|info| info.name == name).ok_or_else(unknown)?.default;
        for pair in values.split(',').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or_else(unknown)?;
            let value = match value {
                "yes" => true,
                "no" => false,
                _ => return Err(unknown()),
            };
            match (&mut mapping, key) {
                (Self::Fast { sequential, .. }, "sequential") => *sequential = value,
                (Self::Fast { leave_open, .. }, "open") => *leave_open = value,
                _ => return Err(unknown()),
            }
        }
        Ok(mapping)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mapping_parses_and_prints_as_something_that_parses_to_the_same() {
        for info in mappings() {
            assert_eq!(info.name.parse(), Ok(info.default));
            assert_eq!(info.default.to_string().parse(), Ok(info.default));
            for (key, what) in info.parameters {
                for value in ["yes", "no"] {
                    assert!(what.contains(value), "{what}");
                    let mapping: Mapping = alloc::format!("{}:{key}={value}", info.name).parse().unwrap();
                    assert_eq!(mapping.to_string().parse(), Ok(mapping));
                }
            }
        }
        for text in ["bast:open=yes", "fast:open=maybe", "fast:close=yes", "fast:open", "dftl", ""] {
            let error = text.parse::<Mapping>().unwrap_err().to_string();
            assert!(mappings().all(|info| error.contains(info.name)) && error.contains("sequential=yes|no"), "{error}");
        }
    }
}
