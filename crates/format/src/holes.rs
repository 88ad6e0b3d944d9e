//! Pages that say what an object does not have (FORMAT.md, "Holes").

use crate::bytes::{PutBytes, Reader};

const MAGIC: &[u8; 4] = b"MGHO";
/// Bytes of a page before its bits.
const START_BYTES: u32 = 24;

/// A page that says of each chunk of a group whether it is a hole: then nothing that was programmed up to `seq` is this
/// chunk's data, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HolePage<'a> {
    /// The program up to which it says so.
    pub seq: u64,
    /// A bit for each chunk of the group, the lowest of each byte first: 1 is a hole.
    pub bits: &'a [u8],
}

impl<'a> HolePage<'a> {
    /// Number of chunks in a group: bits on a page.
    pub const fn chunks(page_bytes: u32) -> u32 {
        (page_bytes - START_BYTES) * 8
    }

    /// Writes the page of a group of an object's chunks.
    ///
    /// # Panics
    /// If there are more or fewer bits than fit the page.
    pub fn encode(&self, object: u32, group: u32, page: &mut [u8]) {
        let mut rest = page;
        rest.put(MAGIC);
        rest.put_u32(object);
        rest.put_u32(group);
        rest.put_u32(0);
        rest.put_uint(self.seq, 8);
        rest.copy_from_slice(self.bits);
    }

    /// Reads the page of a group of an object's chunks; `None` if it is none.
    pub fn decode(object: u32, group: u32, page: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(page);
        let is_it = reader.take(MAGIC.len())? == MAGIC && reader.u32()? == object && reader.u32()? == group;
        reader.u32()?;
        let seq = reader.u64()?;
        is_it.then_some(Self { seq, bits: reader.rest() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_holes_is_read_as_it_was_written_and_for_no_other_object() {
        let mut page = [0; 512];
        let bits = [0b1010_0001; 488];
        assert_eq!(HolePage::chunks(512), 488 * 8);
        HolePage { seq: 1 << 40, bits: &bits }.encode(7, 3, &mut page);
        assert_eq!(HolePage::decode(7, 3, &page), Some(HolePage { seq: 1 << 40, bits: &bits }));
        assert_eq!(HolePage::decode(7, 2, &page), None);
        assert_eq!(HolePage::decode(6, 3, &page), None);
        assert_eq!(HolePage::decode(7, 3, &page[..10]), None);
    }
}
