use crate::bytes::{PutBytes, Reader};
use crate::crc::crc32c;
use crate::layout::{VERSION, has_short_tags};
use crate::summaries::summary_pages;
use crate::translation::max_map_entries;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use margay_flash::Geometry;

const MAGIC: &[u8; 8] = b"MARGAY\x00\x01";
/// Bytes of an encoded superblock.
pub const SUPERBLOCK_BYTES: usize = 384;

/// Features that a reader must know; unknown bits keep the device from being mounted.
pub const KNOWN_INCOMPATIBLE: u32 = HOLE_PAGES | TAGS_NAME_PLACE | MAP_ON_FLASH | SHORT_TAGS | TAGS_IN_SUMMARIES;
/// Feature of a file system that a reader must know: pages of holes (FORMAT.md, "Holes").
pub const HOLE_PAGES: u32 = 1;
/// Feature that a reader must know: the checksum of a tag covers the number of its page.
pub const TAGS_NAME_PLACE: u32 = 2;
/// Feature of a disk that a reader must know: its map is on flash (FORMAT.md, "Translation pages"). It is set by writing a superblock
/// that names entries of a translation page.
pub const MAP_ON_FLASH: u32 = 4;
/// Feature that a reader must know: tags are short (FORMAT.md, "Short tags"). It is set by writing a superblock with a shape that has no
/// room for others.
pub const SHORT_TAGS: u32 = 8;
/// Feature that a reader must know: tags are short, and in summaries (FORMAT.md, "Summaries"). It is set by writing a superblock with a
/// shape that has no room for any tag in spare areas.
pub const TAGS_IN_SUMMARIES: u32 = 16;
/// Feature that may be ignored: the endurance of segments is behind the other fields. It is set by writing a superblock that names one.
pub const HAS_ENDURANCE: u32 = 1;
/// Features that a writer must know; unknown bits allow reading only.
pub const KNOWN_READ_ONLY: u32 = 0;

/// What a device was formatted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ClientKind {
    /// A page-mapped disk.
    Disk = 1,
    /// A file system.
    FileSystem = 2,
    /// A hybrid-mapped store. The field `selection` holds its scheme, `placement` its persistence, the low-water mark
    /// its log blocks.
    Hybrid = 3,
}

/// What a device was formatted with (FORMAT.md, "Superblock").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Shape of the device.
    pub geometry: Geometry,
    /// What the device was formatted as.
    pub client: ClientKind,
    /// Pages exported.
    pub exported_pages: u32,
    /// Drawn at random when the device was formatted.
    pub uuid: [u8; 16],
    /// Seconds since 1970 when it was formatted.
    pub created_s: u64,
    /// Features that any reader may ignore.
    pub compatible: u32,
    /// Features that a writer must know.
    pub read_only_compatible: u32,
    /// Features that a reader must know.
    pub incompatible: u32,
    /// Cleaning starts when fewer segments are free.
    pub low_water: u32,
    /// Cleaning stops when this many segments are free.
    pub high_water: u32,
    /// The maximum number of pages programmed for one host write.
    pub max_pages_per_write: u32,
    /// Selection policy with its parameters.
    pub selection: String,
    /// Placement policy with its parameters.
    pub placement: String,
    /// Leveling policy with its parameters.
    pub leveling: String,
    /// Exported pages that hold read-only data: first page and count.
    pub read_only_ranges: Vec<(u32, u32)>,
    /// Erases that a segment endures, as its maker says; 0 if that is not known.
    pub endurance_erases: u32,
    /// Entries of a translation page of a disk whose map is on flash; 0 if all of its map is in memory.
    pub map_entries: u32,
    /// Bytes of memory for the map of such a disk.
    pub map_memory_bytes: u64,
}

/// Why bytes are not a superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SuperblockError {
    /// They do not start as a superblock does.
    NotMargay,
    /// The checksum is wrong.
    Damaged,
    /// Written by a later version.
    Newer {
        /// Its version of the format.
        version: u8,
    },
    /// It has features that this version does not know.
    UnknownFeatures {
        /// The unknown bits.
        bits: u32,
    },
    /// A field has an impossible value.
    Impossible {
        /// The field.
        field: &'static str,
    },
    /// The device has another shape than the one that was formatted.
    OtherShape {
        /// The shape that the superblock names.
        formatted: Geometry,
        /// That of the device.
        found: Geometry,
    },
    /// Policy texts and ranges do not fit.
    TooLong,
}

impl fmt::Display for SuperblockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotMargay => f.write_str("there is no margay superblock"),
            Self::Damaged => f.write_str("the superblock is damaged: its checksum is wrong"),
            Self::Newer { version } => write!(
                f,
                "formatted by a later version: its format is {version}, this margay knows formats up to {VERSION}"
            ),
            Self::UnknownFeatures { bits } => {
                write!(f, "it uses features that this margay does not know (bits {bits:#x})")
            }
            Self::Impossible { field } => write!(f, "the superblock's {field} cannot be"),
            Self::OtherShape { formatted, found } => write!(
                f,
                "it was formatted as a device of {}, and is one of {} now: it is another chip or partition, or its driver leaves it other spare bytes; open it as it was formatted",
                shape(formatted),
                shape(found)
            ),
            Self::TooLong => write!(f, "policy texts and read-only ranges do not fit into {SUPERBLOCK_BYTES} bytes"),
        }
    }
}

fn shape(geometry: &Geometry) -> String {
    let (segments, pages) = (geometry.segments(), geometry.pages_per_segment());
    format!("{segments} segments of {pages} pages of {} + {} bytes", geometry.page_bytes(), geometry.spare_bytes())
}

impl core::error::Error for SuperblockError {}

impl Superblock {
    /// What a device is formatted with if nothing else is chosen: the features that every device has that is formatted now, the
    /// simplest policies, and neither an identity nor a time. Whoever formats names what differs.
    pub fn new(geometry: Geometry, client: ClientKind, exported_pages: u32) -> Self {
        let of_client = if client == ClientKind::FileSystem { HOLE_PAGES } else { 0 };
        Self {
            geometry,
            client,
            exported_pages,
            uuid: [0; 16],
            created_s: 0,
            compatible: 0,
            read_only_compatible: 0,
            incompatible: TAGS_NAME_PLACE | of_client,
            low_water: 2,
            high_water: 2,
            max_pages_per_write: 8,
            selection: "greedy".into(),
            placement: "m1".into(),
            leveling: "none".into(),
            read_only_ranges: Vec::new(),
            endurance_erases: 0,
            map_entries: 0,
            map_memory_bytes: 0,
        }
    }

    /// Whether the tags of pages are in summaries.
    pub const fn has_summaries(&self) -> bool {
        self.incompatible & TAGS_IN_SUMMARIES != 0
    }

    /// Its bytes; [`SuperblockError::TooLong`] if policy texts and ranges do not fit.
    pub fn encode(&self) -> Result<[u8; SUPERBLOCK_BYTES], SuperblockError> {
        let texts = [&self.selection, &self.placement, &self.leveling];
        let len = 108 + texts.iter().map(|text| text.len() + 1).sum::<usize>() + 1 + self.read_only_ranges.len() * 8;
        let has_endurance = self.endurance_erases > 0;
        let len = if has_endurance { len + 4 } else { len };
        let has_map = self.map_entries > 0;
        let len = if has_map { len + 12 } else { len };
        let shape = match summary_pages(&self.geometry) {
            Some(_) => TAGS_IN_SUMMARIES,
            None if has_short_tags(&self.geometry) => SHORT_TAGS,
            None => 0,
        };
        let map = if has_map { MAP_ON_FLASH } else { 0 };
        let incompatible = self.incompatible & !(MAP_ON_FLASH | SHORT_TAGS | TAGS_IN_SUMMARIES) | map | shape;
        let compatible = self.compatible & !HAS_ENDURANCE | if has_endurance { HAS_ENDURANCE } else { 0 };
        if len > SUPERBLOCK_BYTES || texts.iter().any(|text| text.len() > 255) {
            return Err(SuperblockError::TooLong);
        }
        let mut bytes = [0; SUPERBLOCK_BYTES];
        let mut rest = &mut bytes[..];
        rest.put(MAGIC);
        rest.put_u32(0); // the CRC's place
        rest.put(&[VERSION, self.client as u8, u8::from(self.geometry.is_byte_programmable()), 0]);
        for features in [compatible, self.read_only_compatible, incompatible] {
            rest.put_u32(features);
        }
        rest.put(&self.uuid);
        rest.put_uint(self.created_s, 8);
        let geometry = &self.geometry;
        let shape = [geometry.segments(), geometry.pages_per_segment(), geometry.page_bytes(), geometry.spare_bytes()];
        let marks = [self.exported_pages, self.low_water, self.high_water, self.max_pages_per_write];
        for number in shape.into_iter().chain(marks) {
            rest.put_u32(number);
        }
        for text in texts {
            rest.put(&[text.len() as u8]);
            rest.put(text.as_bytes());
        }
        rest.put(&[self.read_only_ranges.len() as u8]);
        for (first, count) in &self.read_only_ranges {
            rest.put_u32(*first);
            rest.put_u32(*count);
        }
        if has_endurance {
            rest.put_u32(self.endurance_erases);
        }
        if has_map {
            rest.put_u32(self.map_entries);
            rest.put_uint(self.map_memory_bytes, 8);
        }
        let crc = crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        Ok(bytes)
    }

    /// Reads it from the start of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Self, SuperblockError> {
        let bytes = bytes.get(..SUPERBLOCK_BYTES).ok_or(SuperblockError::NotMargay)?;
        let mut reader = Reader::new(bytes);
        if reader.take(MAGIC.len()) != Some(MAGIC) {
            return Err(SuperblockError::NotMargay);
        }
        if reader.u32() != Some(crc32c(reader.rest())) {
            return Err(SuperblockError::Damaged);
        }
        Self::decode_fields(reader).ok_or(SuperblockError::Impossible { field: "length" })?
    }

    /// Reads the fields behind the checksum; `None` if they are longer than a superblock.
    fn decode_fields(mut reader: Reader<'_>) -> Option<Result<Self, SuperblockError>> {
        let impossible = |field| Some(Err(SuperblockError::Impossible { field }));
        let version = reader.u8()?;
        if version > VERSION {
            return Some(Err(SuperblockError::Newer { version }));
        }
        let (client, nor, _) = (reader.u8()?, reader.u8()?, reader.u8()?);
        let client = match client {
            1 => ClientKind::Disk,
            2 => ClientKind::FileSystem,
            3 => ClientKind::Hybrid,
            _ => return impossible("client"),
        };
        let (compatible, read_only_compatible, incompatible) = (reader.u32()?, reader.u32()?, reader.u32()?);
        if incompatible & !KNOWN_INCOMPATIBLE != 0 {
            return Some(Err(SuperblockError::UnknownFeatures { bits: incompatible & !KNOWN_INCOMPATIBLE }));
        }
        let uuid = reader.take(16)?.try_into().ok()?;
        let created_s = reader.u64()?;
        let (segments, pages, page_bytes, spare_bytes) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
        let Ok(geometry) = Geometry::new(segments, pages, page_bytes) else { return impossible("geometry") };
        let geometry = geometry.with_spare(spare_bytes);
        let geometry = if nor == 1 { geometry.byte_programmable() } else { geometry };
        let exported_pages = reader.u32()?;
        let (low_water, high_water, max_pages_per_write) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let mut texts = [const { String::new() }; 3];
        for text in &mut texts {
            let len = reader.u8()?;
            let Ok(read) = core::str::from_utf8(reader.take(len.into())?) else { return impossible("policy text") };
            *text = read.into();
        }
        let [selection, placement, leveling] = texts;
        let ranges = reader.u8()?;
        let ranges: Option<_> = (0..ranges).map(|_| Some((reader.u32()?, reader.u32()?))).collect();
        let read_only_ranges = ranges?;
        let endurance_erases = if compatible & HAS_ENDURANCE != 0 { reader.u32()? } else { 0 };
        let (map_entries, map_memory_bytes) = match incompatible & MAP_ON_FLASH {
            0 => (0, 0),
            _ => (reader.u32()?, reader.u64()?),
        };
        if incompatible & MAP_ON_FLASH != 0 && !(1..=max_map_entries(page_bytes)).contains(&map_entries) {
            return impossible("number of entries of a translation page");
        }
        if exported_pages == 0 || exported_pages > geometry.pages() {
            return impossible("exported capacity");
        }
        Some(Ok(Self {
            geometry,
            client,
            exported_pages,
            uuid,
            created_s,
            compatible,
            read_only_compatible,
            incompatible,
            low_water,
            high_water,
            max_pages_per_write,
            selection,
            placement,
            leveling,
            read_only_ranges,
            endurance_erases,
            map_entries,
            map_memory_bytes,
        }))
    }

    /// Whether the tags on a device with these bytes of a superblock name the places of their pages.
    pub(crate) fn names_place(bytes: &[u8; SUPERBLOCK_BYTES]) -> bool {
        u32::from_le_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]) & TAGS_NAME_PLACE != 0
    }

    /// Whether it has features that allow this version reading only.
    pub fn is_read_only_to_us(&self) -> bool {
        self.read_only_compatible & !KNOWN_READ_ONLY != 0
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn superblock() -> Superblock {
        Superblock {
            geometry: Geometry::new(192, 32, 4096).unwrap().with_spare(256),
            client: ClientKind::Disk,
            exported_pages: 5529,
            uuid: [7; 16],
            created_s: 1_700_000_000,
            compatible: 1,
            read_only_compatible: 0,
            incompatible: 0,
            low_water: 2,
            high_water: 2,
            max_pages_per_write: 16,
            selection: "cat:shape=log,scale=0.00775d".into(),
            placement: "m6:mean=decay,scale=0.67d".into(),
            leveling: "threshold:spread=100".into(),
            read_only_ranges: alloc::vec![(0, 100), (200, 5)],
            endurance_erases: 100_000,
            map_entries: 0,
            map_memory_bytes: 0,
        }
    }

    #[test]
    fn what_is_written_is_read_and_every_flipped_bit_is_noticed() {
        let bytes = superblock().encode().unwrap();
        assert_eq!(Superblock::decode(&bytes), Ok(superblock()));
        for bit in 0..SUPERBLOCK_BYTES * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&damaged).is_err(), "bit {bit}");
        }
        assert_eq!(Superblock::decode(&[0xFF; 4096]), Err(SuperblockError::NotMargay));
        assert_eq!(Superblock::decode(&bytes[..100]), Err(SuperblockError::NotMargay));
    }

    #[test]
    fn an_endurance_takes_no_room_where_it_is_not_known() {
        let known = superblock();
        let unknown = Superblock { endurance_erases: 0, compatible: 0, ..superblock() };
        let bytes = unknown.encode().unwrap();
        assert_eq!(Superblock::decode(&bytes), Ok(unknown));
        let differ = bytes.iter().zip(known.encode().unwrap()).filter(|(one, other)| *one != other).count();
        assert!(differ <= 4 + 1 + 4, "the checksum, the mask and the field: {differ}");
    }

    #[test]
    fn a_map_on_flash_is_read_as_written_and_unknown_to_earlier_versions() {
        let paged =
            Superblock { map_entries: 1020, map_memory_bytes: 1 << 33, incompatible: MAP_ON_FLASH, ..superblock() };
        let bytes = paged.encode().unwrap();
        assert_eq!(Superblock::decode(&bytes), Ok(paged.clone()));
        assert_eq!(bytes[24], 4, "a bit of the third mask, which versions that do not know it refuse");
        let impossible = Superblock { map_entries: 1021, ..paged }.encode().unwrap();
        let field = "number of entries of a translation page";
        assert_eq!(Superblock::decode(&impossible), Err(SuperblockError::Impossible { field }));
    }

    #[test]
    fn later_versions_and_unknown_features_are_refused_by_name() {
        let reseal = |mut bytes: [u8; SUPERBLOCK_BYTES]| {
            let crc = crc32c(&bytes[12..]).to_le_bytes();
            bytes[8..12].copy_from_slice(&crc);
            Superblock::decode(&bytes)
        };
        let mut bytes = superblock().encode().unwrap();
        bytes[12] = VERSION + 1;
        assert_eq!(reseal(bytes), Err(SuperblockError::Newer { version: VERSION + 1 }));
        let mut unknown = superblock();
        unknown.incompatible = 32;
        assert_eq!(Superblock::decode(&unknown.encode().unwrap()), Err(SuperblockError::UnknownFeatures { bits: 32 }));
        unknown.incompatible = 0;
        unknown.read_only_compatible = 1;
        assert!(Superblock::decode(&unknown.encode().unwrap()).unwrap().is_read_only_to_us());
        // Versions that do not know short tags or summaries refuse a device with them.
        let features = |spare_bytes| {
            let geometry = superblock().geometry.with_spare(spare_bytes);
            let written = Superblock { geometry, ..superblock() }.encode().unwrap();
            Superblock::decode(&written).unwrap().incompatible & (SHORT_TAGS | TAGS_IN_SUMMARIES)
        };
        assert_eq!([31, 32, 63, 64].map(features), [TAGS_IN_SUMMARIES, SHORT_TAGS, SHORT_TAGS, 0]);
        let mut long = superblock();
        long.read_only_ranges = alloc::vec![(0, 1); 40];
        assert_eq!(long.encode(), Err(SuperblockError::TooLong));
    }
}
