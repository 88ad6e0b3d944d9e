use core::fmt;

macro_rules! address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The number as an array index.
            #[inline(always)]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

address!(
    /// Logical page number: what a host addresses.
    Lpn
);
address!(
    /// Physical page number: `segment * pages_per_segment + page in segment`.
    Ppn
);
address!(
    /// Number of a segment, from 0.
    SegmentId
);

/// The shape of a flash device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    segments: u32,
    pages_per_segment: u32,
    page_bytes: u32,
    spare_bytes: u32,
    byte_programmable: bool,
    divider: Divider,
}

/// A shape that no device can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeometryError {
    /// Fewer than 2 segments, or fewer than 2 pages in a segment, or pages of 0 bytes.
    TooSmall {
        /// Segments asked for.
        segments: u32,
        /// Pages per segment asked for.
        pages_per_segment: u32,
        /// Bytes per page asked for.
        page_bytes: u32,
    },
    /// More pages than a page number can name.
    TooManyPages {
        /// Pages asked for.
        pages: u64,
        /// The largest number of pages.
        limit: u64,
    },
}

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooSmall { segments, pages_per_segment, page_bytes } => write!(
                f,
                "{segments} segments of {pages_per_segment} pages of {page_bytes} bytes: a device has at least 2 segments of at least 2 pages of at least 1 byte"
            ),
            Self::TooManyPages { pages, limit } => {
                write!(f, "{pages} pages are more than the {limit} that a 32-bit page number can name")
            }
        }
    }
}

impl core::error::Error for GeometryError {}

impl Geometry {
    /// One page number is kept free to mean "no page".
    const MAX_PAGES: u64 = u32::MAX as u64;

    /// A NAND device without a spare area, of `segments` segments of `pages_per_segment` pages of `page_bytes` bytes.
    /// Fails if there are fewer than 2 segments or 2 pages in a segment, or more than 2^32 - 1 pages.
    pub fn new(segments: u32, pages_per_segment: u32, page_bytes: u32) -> Result<Self, GeometryError> {
        if segments < 2 || pages_per_segment < 2 || page_bytes == 0 {
            return Err(GeometryError::TooSmall { segments, pages_per_segment, page_bytes });
        }
        let pages = u64::from(segments) * u64::from(pages_per_segment);
        if pages > Self::MAX_PAGES {
            return Err(GeometryError::TooManyPages { pages, limit: Self::MAX_PAGES });
        }
        let divider = Divider::new(pages_per_segment);
        Ok(Self { segments, pages_per_segment, page_bytes, spare_bytes: 0, byte_programmable: false, divider })
    }

    /// The same device with a spare area of `spare_bytes` usable bytes beside each page (NAND).
    #[must_use]
    pub const fn with_spare(mut self, spare_bytes: u32) -> Self {
        self.spare_bytes = spare_bytes;
        self
    }

    /// The same device with bytes that can be programmed one by one (NOR).
    #[must_use]
    pub const fn byte_programmable(mut self) -> Self {
        self.byte_programmable = true;
        self
    }

    /// Number of segments.
    #[inline(always)]
    pub const fn segments(&self) -> u32 {
        self.segments
    }

    /// Pages in a segment.
    #[inline(always)]
    pub const fn pages_per_segment(&self) -> u32 {
        self.pages_per_segment
    }

    /// Bytes in a page.
    #[inline(always)]
    pub const fn page_bytes(&self) -> u32 {
        self.page_bytes
    }

    /// Usable bytes of the spare area of a page, without those for ECC and bad-block mark. 0 if there is no spare area.
    #[inline(always)]
    pub const fn spare_bytes(&self) -> u32 {
        self.spare_bytes
    }

    /// Whether parts of a page can be programmed one after the other ([`crate::Flash::program_part`]).
    #[inline(always)]
    pub const fn is_byte_programmable(&self) -> bool {
        self.byte_programmable
    }

    /// Pages of the device.
    #[inline(always)]
    pub const fn pages(&self) -> u32 {
        self.segments * self.pages_per_segment
    }

    /// Bytes of the device.
    pub const fn bytes(&self) -> u64 {
        self.pages() as u64 * self.page_bytes as u64
    }

    /// The segment that holds a page.
    #[inline(always)]
    pub const fn segment_of(&self, ppn: Ppn) -> SegmentId {
        SegmentId(self.divider.divide(ppn.0))
    }

    /// The first page of a segment.
    #[inline(always)]
    pub const fn first_page(&self, segment: SegmentId) -> Ppn {
        Ppn(segment.0 * self.pages_per_segment)
    }

    /// The number of a page within its segment, from 0.
    #[inline(always)]
    pub const fn page_in_segment(&self, ppn: Ppn) -> u32 {
        ppn.0 - self.segment_of(ppn).0 * self.pages_per_segment
    }
}

/// Division of any `u32` by a fixed divisor of at least 2 in one multiplication
/// (Lemire, Kaser, Kurz 2019, "Faster remainder by direct computation").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divider(u64);

impl Divider {
    /// Prepares division by `divisor`, which must be at least 2.
    pub const fn new(divisor: u32) -> Self {
        assert!(divisor >= 2);
        Self(u64::MAX / divisor as u64 + 1)
    }

    /// `dividend / divisor`.
    #[inline(always)]
    pub const fn divide(self, dividend: u32) -> u32 {
        ((self.0 as u128 * dividend as u128) >> 64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divider_equals_division_at_the_edges_of_every_quotient() {
        for divisor in [2, 3, 5, 7, 31, 32, 64, 96, 255, 256, 384, 768, 1152, 65_535, u32::MAX] {
            let divider = Divider::new(divisor);
            for quotient in [0u64, 1, 2, 3, 1000, u64::from(u32::MAX / divisor)] {
                for offset in [-1i64, 0, 1] {
                    let dividend = quotient as i64 * i64::from(divisor) + offset;
                    if let Ok(dividend) = u32::try_from(dividend) {
                        assert_eq!(divider.divide(dividend), dividend / divisor, "{dividend} / {divisor}");
                    }
                }
            }
            assert_eq!(divider.divide(u32::MAX), u32::MAX / divisor);
        }
    }

    #[test]
    fn impossible_shapes_are_refused_with_their_numbers() {
        assert!(matches!(Geometry::new(1, 32, 4096), Err(GeometryError::TooSmall { .. })));
        assert!(matches!(Geometry::new(8, 1, 4096), Err(GeometryError::TooSmall { .. })));
        assert!(matches!(Geometry::new(8, 32, 0), Err(GeometryError::TooSmall { .. })));
        let error = Geometry::new(1 << 20, 1 << 13, 4096).unwrap_err();
        assert_eq!(error, GeometryError::TooManyPages { pages: 1 << 33, limit: 0xffff_ffff });
    }

    #[test]
    fn pages_map_to_segments_and_back() {
        let geometry = Geometry::new(10, 31, 512).unwrap();
        for page in 0..geometry.pages() {
            let segment = geometry.segment_of(Ppn(page));
            assert_eq!(geometry.first_page(segment).0 + geometry.page_in_segment(Ppn(page)), page);
        }
        assert_eq!(geometry.bytes(), 10 * 31 * 512);
    }
}
