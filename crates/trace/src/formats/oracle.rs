use super::Raw;
use super::hp_srt::read_up_to;
use crate::Kind;
use std::collections::HashMap;
use std::io::{self, BufRead};

/// libCacheSim oracleGeneral: little-endian records of 24 bytes, u32 seconds, u64 object, u32 bytes, i64 next
/// access (not used). Objects get room one after the other in the order of first appearance, and each access
/// is taken as a write of the object: what a flash cache that admits everything would do.
#[derive(Debug, Default)]
pub(crate) struct OracleGeneral {
    objects: HashMap<u64, u64>,
    next_bytes: u64,
}

impl OracleGeneral {
    pub fn next(&mut self, stream: &mut dyn BufRead) -> io::Result<Option<Result<Raw, String>>> {
        let mut record = [0; 24];
        match read_up_to(stream, &mut record)? {
            0 => return Ok(None),
            24 => {}
            n => return Ok(Some(Err(format!("the file ends inside a record, after {n} of 24 bytes")))),
        }
        let u32_at = |at: usize| u32::from_le_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]);
        let object = u64::from(u32_at(4)) | u64::from(u32_at(8)) << 32;
        let len_bytes = u64::from(u32_at(12));
        let next = self.next_bytes;
        let offset_bytes = *self.objects.entry(object).or_insert(next);
        if offset_bytes == next {
            // At most 2^32 bytes for each of at most 2^60 records that fit a file.
            self.next_bytes = next.saturating_add(len_bytes.max(1).next_multiple_of(4096));
        }
        let time_ns = u128::from(u32_at(0)) * 1_000_000_000;
        Ok(Some(Ok(Raw { time_ns, kind: Kind::Write, device: 0, offset_bytes, len_bytes })))
    }
}
