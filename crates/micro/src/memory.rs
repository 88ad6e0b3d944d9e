use margay_flash::Geometry;

/// Memory for what does not depend on the shape.
const FIXED_BYTES: u64 = 2560;

const fn max(a: u64, b: u64) -> u64 {
    if a > b { a } else { b }
}

/// Bytes of heap that a disk on a device of this shape needs from its format or mount to its stop, however many pages it exports
/// and whatever it holds: the maximum of what it takes to look into the segments at a mount, to restore the log from that, and
/// to make the checkpoint of a stop. While it is used it needs less than half as much. Machines of 32 bits need a little
/// less than it says. It holds for an allocator that takes the first hole that is large enough.
///
/// Two things may need more and do without it: room that has to be made without a free segment, when segments fail
/// one after the other, takes a segment's size and is refused without; and more than 32 writes that the chip refuses between
/// two cleanings take 4 bytes each.
///
/// ```
/// use margay_micro::{flash::Geometry, memory_bytes};
/// // 1 MiB of NOR flash, 16 MiB of NAND.
/// assert_eq!(memory_bytes(&Geometry::new(32, 32, 1024)?.byte_programmable()) / 1024, 37);
/// assert_eq!(memory_bytes(&Geometry::new(128, 64, 2048)?.with_spare(64)) / 1024, 221);
/// # Ok::<(), margay_micro::flash::GeometryError>(())
/// ```
pub const fn memory_bytes(geometry: &Geometry) -> u64 {
    let (pages, segments) = (geometry.pages() as u64, geometry.segments() as u64);
    let (page_bytes, spare_bytes) = (geometry.page_bytes() as u64, geometry.spare_bytes() as u64);
    // Lists of the pages of a segment double as they grow.
    let list = (geometry.pages_per_segment() as u64).next_power_of_two();
    let header_bytes = if geometry.is_byte_programmable() { 512 + 64 * list + page_bytes } else { 0 };
    // By owner the page (4 bytes) and its sequence number (8).
    let scan = 12 * pages + pages / 4 + 50 * segments + 170 * list + header_bytes + 2 * page_bytes;
    // By owner the page, by page the owner (4 and 4), and the pages that count with their owners (8).
    let restore = 16 * pages + pages / 4 + 150 * segments + 4 * page_bytes;
    // Up to 6 bytes of the checkpoint by owner. Holes that the mount has left may be too small for it.
    let stop = restore + 6 * pages + pages / 4 + 65 * segments + 14 * list + page_bytes;
    max(scan, stop) + 16 * list + 3 * spare_bytes + FIXED_BYTES
}
