//! The list of retired segments: a page of its own of every client of the log (FORMAT.md, "Owners of the disk").

use crate::bytes::{PutBytes, Reader};
use alloc::vec::Vec;
use margay_flash::SegmentId;

const MAGIC: &[u8; 4] = b"BADS";

/// Writes the list of retired segments into a page. Those that do not fit are left out: they fail again when they are
/// used, and are retired again.
pub fn encode_retired(retired: &[SegmentId], page: &mut [u8]) {
    page.fill(0);
    let fits = &retired[..retired.len().min((page.len() - 8) / 4)];
    let mut rest = page;
    rest.put(MAGIC);
    rest.put_u32(fits.len() as u32);
    fits.iter().for_each(|segment| rest.put_u32(segment.0));
}

/// Reads the list of retired segments of a device of `segments` segments; `None` if the page does not hold one.
pub fn decode_retired(page: &[u8], segments: u32) -> Option<Vec<SegmentId>> {
    let mut reader = Reader::new(page);
    if reader.take(4)? != MAGIC {
        return None;
    }
    reader.segments(segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_read_as_written_and_cut_to_the_page() {
        let mut page = [0xFF; 512];
        encode_retired(&[SegmentId(7), SegmentId(2)], &mut page);
        assert_eq!(decode_retired(&page, 8), Some(alloc::vec![SegmentId(7), SegmentId(2)]));
        assert_eq!(decode_retired(&page, 7), None, "a segment past the end");
        let many: Vec<_> = (0..200).map(SegmentId).collect();
        encode_retired(&many, &mut page);
        assert_eq!(decode_retired(&page, 200).as_deref(), Some(&many[..126]));
        assert_eq!(decode_retired(&[0xFF; 512], 200), None);
    }
}
