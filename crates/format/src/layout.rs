use crate::summaries::{LENT_SEGMENTS, summary_pages};
use core::fmt;
use margay_flash::Geometry;

/// Version of the format that this code writes.
pub const VERSION: u8 = 1;

/// Bytes of a tag without ledger and window.
pub const TAG_BYTES: usize = 64;

/// Bytes of a short tag: where spare areas have no room for others.
pub const SHORT_TAG_BYTES: usize = 32;

/// Where the information of a page is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the spare area of the page itself (NAND).
    Spare,
    /// In a table at the start of the segment, entry by entry (NOR).
    Table,
}

impl Place {
    /// The name in documents and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spare => "spare area",
            Self::Table => "segment table",
        }
    }

    const fn tags_text(self) -> &'static str {
        match self {
            Self::Spare => "in the spare area",
            Self::Table => "in the segment table",
        }
    }
}

/// A device that margay cannot be formatted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// Pages are too small or too large.
    PageBytes {
        /// Bytes of a page.
        page_bytes: u32,
    },
    /// There is no room for the information on pages.
    NoPlace {
        /// Usable bytes of the spare area.
        spare_bytes: u32,
    },
    /// There is room for the information on pages only in every second page, which was not allowed.
    NeedsPairs {
        /// Usable bytes of the spare area.
        spare_bytes: u32,
    },
    /// No page of a segment would be left for data.
    NoDataPages {
        /// Pages of a segment.
        pages_per_segment: u32,
        /// Pages that hold information on the others.
        metadata_pages: u32,
    },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PageBytes { page_bytes } => {
                write!(f, "pages of {page_bytes} bytes: the format takes pages of 512 to 65536 bytes")
            }
            Self::NoPlace { spare_bytes } => write!(
                f,
                "no room for the information on pages: it takes a spare area of at least {SHORT_TAG_BYTES} usable bytes a page (there are {spare_bytes}), or a device that can be programmed byte by byte, or segments of 4 pages and more"
            ),
            Self::NeedsPairs { spare_bytes } => write!(
                f,
                "the device has no room for the information on its pages: there are {spare_bytes} usable bytes in the spare area of a page, which takes {SHORT_TAG_BYTES}, and bytes cannot be programmed one by one; and for summaries its segments have too few pages. Formatted with --pair-pages (in the library: StoreOptions::pair_pages) it keeps that in every second page, at half the capacity and two programs for each page"
            ),
            Self::NoDataPages { pages_per_segment, metadata_pages } => write!(
                f,
                "{metadata_pages} pages of information leave no data page in a segment of {pages_per_segment} pages"
            ),
        }
    }
}

impl core::error::Error for LayoutError {}

/// Where everything lies on a device (FORMAT.md, "Layout"). Follows from the geometry and the number of owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Where the information of pages is kept.
    pub place: Place,
    /// Pages at the start of each segment before the first data page.
    pub header_pages: u32,
    /// Pages after the last data page of each segment.
    pub summary_pages: u32,
    /// Segments at the start of the device that hold no data: the anchor.
    pub reserved_segments: u32,
    /// Segments that are lent for journal pages, where tags are in summaries.
    pub lent_segments: u32,
    /// Bytes of an owner in a window, 2 to 8.
    pub owner_bytes: u8,
    /// Entries of a tag's ledger of erased segments.
    pub ledger: u8,
    /// Entries of a tag's window on the pages before.
    pub window: u8,
    /// Whether the checksum of a tag covers the number of its page. Not on devices of earlier versions of margay.
    pub names_place: bool,
    /// Whether tags are short: the spare area has no room for longer ones (FORMAT.md, "Short tags").
    pub has_short_tags: bool,
}

impl Layout {
    /// Offset of the superblock in a segment header, and of the table of tags (NOR).
    pub const HEADER_SUPERBLOCK: u32 = 128;
    /// Offset of the table of tags in a segment header.
    pub const HEADER_TABLE: u32 = 512;

    /// The layout for a device with `owners` different owners of pages.
    pub fn new(geometry: &Geometry, owners: u64) -> Result<Self, LayoutError> {
        let (page_bytes, pages) = (geometry.page_bytes(), geometry.pages_per_segment());
        if !(512..=65_536).contains(&page_bytes) {
            return Err(LayoutError::PageBytes { page_bytes });
        }
        let owner_bytes = (2..8).find(|bytes| owners <= 1 << (8 * bytes)).unwrap_or(8);
        let mut layout = Self {
            place: Place::Spare,
            header_pages: 0,
            summary_pages: 0,
            reserved_segments: 1,
            lent_segments: 0,
            owner_bytes,
            ledger: 0,
            window: 0,
            names_place: true,
            has_short_tags: false,
        };
        if geometry.is_byte_programmable() {
            layout.place = Place::Table;
            layout.reserved_segments = 0;
            let bytes = |header: u32| Self::HEADER_TABLE + (pages - header.min(pages)) * TAG_BYTES as u32;
            layout.header_pages = (1..pages).find(|header| bytes(*header) <= header * page_bytes).unwrap_or(pages);
        } else if geometry.spare_bytes() as usize >= TAG_BYTES {
            (layout.ledger, layout.window) = Self::tail(geometry, owner_bytes);
        } else if has_short_tags(geometry) && owner_bytes <= 6 {
            layout.has_short_tags = true;
        } else if let Some(summary_pages) = summary_pages(geometry).filter(|_| owner_bytes <= 6) {
            layout = Self { has_short_tags: true, summary_pages, lent_segments: LENT_SEGMENTS, ..layout };
        } else {
            return Err(LayoutError::NoPlace { spare_bytes: geometry.spare_bytes() });
        }
        let metadata_pages = layout.header_pages + layout.summary_pages;
        if metadata_pages >= pages {
            return Err(LayoutError::NoDataPages { pages_per_segment: pages, metadata_pages });
        }
        Ok(layout)
    }

    /// Ledger and window entries: a window over the whole segment if it fits, else over half of it, else what
    /// fits; the ledger takes what is left.
    fn tail(geometry: &Geometry, owner_bytes: u8) -> (u8, u8) {
        let (room, entry) = (geometry.spare_bytes() - TAG_BYTES as u32, u32::from(owner_bytes) + 2);
        let fits = (room / entry).min(255);
        let pages = geometry.pages_per_segment();
        let window = [pages - 1, pages.div_ceil(2) - 1].into_iter().find(|wanted| *wanted <= fits).unwrap_or(fits);
        let ledger = ((room - window * entry) / 8).min(4);
        (ledger as u8, window as u8)
    }

    /// Bytes of a whole tag.
    pub const fn tag_bytes(&self) -> usize {
        self.window_at() + self.window as usize * (self.owner_bytes as usize + 2)
    }

    /// Offset of the window in a tag.
    pub(crate) const fn window_at(&self) -> usize {
        if self.has_short_tags { SHORT_TAG_BYTES } else { TAG_BYTES + self.ledger as usize * 8 }
    }

    /// Where and in which form the information of pages is kept, for people.
    pub const fn tags_text(&self) -> &'static str {
        match self.has_short_tags {
            _ if self.has_summaries() => "in a summary of each segment, short",
            true => "in the spare area, short",
            false => self.place.tags_text(),
        }
    }

    /// Whether tags are in summaries.
    pub const fn has_summaries(&self) -> bool {
        self.summary_pages > 0
    }

    /// Pages of the anchor. With summaries they come in pairs.
    pub const fn anchor_pages(&self, geometry: &Geometry) -> u32 {
        geometry.pages_per_segment() / if self.has_summaries() { 2 } else { 1 }
    }

    /// Data pages of a segment.
    pub const fn data_pages(&self, geometry: &Geometry) -> u32 {
        geometry.pages_per_segment() - self.header_pages - self.summary_pages
    }
}

/// Whether a device of this shape has tags in its spare areas, and no room there for others than short ones.
pub const fn has_short_tags(geometry: &Geometry) -> bool {
    let spare_bytes = geometry.spare_bytes() as usize;
    !geometry.is_byte_programmable() && spare_bytes >= SHORT_TAG_BYTES && spare_bytes < TAG_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry_to_format;

    #[test]
    fn the_window_covers_the_segment_in_one_read_with_256_spare_bytes_and_in_two_with_128() {
        let geometry = Geometry::new(192, 32, 4096).unwrap();
        let layout = Layout::new(&geometry.with_spare(256), 5600).unwrap();
        assert_eq!((layout.place, layout.owner_bytes, layout.window, layout.ledger), (Place::Spare, 2, 31, 4));
        let layout = Layout::new(&geometry.with_spare(128), 5600).unwrap();
        assert_eq!((layout.window, layout.ledger, layout.tag_bytes()), (15, 0, 124));
    }

    #[test]
    fn nor_keeps_tags_in_a_header_and_nand_without_room_in_summaries() {
        let geometry = Geometry::new(192, 32, 4096).unwrap();
        let nor = Layout::new(&geometry.byte_programmable(), 5600).unwrap();
        assert_eq!((nor.place, nor.header_pages, nor.reserved_segments), (Place::Table, 1, 0));
        let summaries = Layout::new(&geometry.with_spare(16), 5600).unwrap();
        assert_eq!((summaries.summary_pages, summaries.lent_segments, summaries.tag_bytes()), (1, 4, 32));
        assert_eq!((summaries.data_pages(&geometry), summaries.anchor_pages(&geometry)), (31, 16));
        let short = Geometry::new(192, 8, 512).unwrap().with_spare(16);
        assert_eq!(Layout::new(&short, 5600), Err(LayoutError::NoPlace { spare_bytes: 16 }));
        assert!(Layout::new(&Geometry::new(4, 4, 256).unwrap(), 5).is_err());
    }

    #[test]
    fn pairs_of_pages_are_the_shape_of_a_device_without_room_only_if_they_are_allowed() {
        let short = Geometry::new(192, 8, 512).unwrap().with_spare(16);
        assert_eq!(geometry_to_format(&short, false), Err(LayoutError::NeedsPairs { spare_bytes: 16 }));
        assert_eq!(geometry_to_format(&short, true).map(|shown| shown.pages_per_segment()), Ok(4));
        let bare = Geometry::new(192, 32, 4096).unwrap().with_spare(16);
        assert_eq!(geometry_to_format(&bare, false), Ok(bare));
        assert_eq!(geometry_to_format(&bare, true).map(|shown| shown.pages_per_segment()), Ok(16));
        for enough in [bare.with_spare(64), bare.byte_programmable()] {
            assert_eq!(
                (geometry_to_format(&enough, false), geometry_to_format(&enough, true)),
                (Ok(enough), Ok(enough))
            );
        }
    }
}
