use crate::IoKind;
use crate::format::{Detection, Entry, Example, FormatRow, Reader, RecordReader, Stream};
use crate::hash::FastMap;
use crate::records::{ends_inside, le_u32, le_u64, read_up_to};
use crate::text::insert_object;
use std::io;

pub(super) static ROW: FormatRow = FormatRow {
    name: "oracle-general",
    summary: "24-byte records: time u32 (s), object u64, size u32, next access i64: each a write of the object",
    source: "libCacheSim, oracleGeneral traces",
    // The records have no magic, so that only the usual name of such files tells.
    detection: Detection::FileName("oraclegeneral"),
    reader: Reader::Records(|stream| {
        Ok(Ok(Box::new(OracleGeneral { stream, objects: FastMap::default(), end_bytes: 0 })))
    }),
    writer: None,
    example: Example {
        file_name: "example.oracleGeneral.bin",
        bytes: b"\x01\0\0\0\x4d\0\0\0\0\0\0\0\x64\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\
                 \x02\0\0\0\x05\0\0\0\0\0\0\0\x88\x13\0\0\xff\xff\xff\xff\xff\xff\xff\xff",
        requests: 2,
    },
};

/// Little-endian records. Objects are placed one after the other in the order of first appearance, and each access is
/// taken as a write of the object: what a flash cache that admits everything would do.
struct OracleGeneral {
    stream: Stream,
    /// Offset of each object.
    objects: FastMap<u64, u64>,
    /// Where the next object is placed.
    end_bytes: u64,
}

const RECORD_BYTES: usize = 24;

impl RecordReader for OracleGeneral {
    fn next(&mut self) -> io::Result<Option<Result<Entry, String>>> {
        let mut record = [0; RECORD_BYTES];
        match read_up_to(&mut self.stream, &mut record)? {
            0 => return Ok(None),
            RECORD_BYTES => {}
            n => return Ok(Some(Err(ends_inside(n, RECORD_BYTES)))),
        }
        let (object, len_bytes) = (le_u64(&record, 4), u64::from(le_u32(&record, 12)));
        let offset_bytes = match self.objects.get(&object) {
            Some(offset) => *offset,
            None => {
                let offset = self.end_bytes;
                if let Err(problem) = insert_object(&mut self.objects, object, offset) {
                    return Ok(Some(Err(problem)));
                }
                // At most 2^32 bytes for each of at most 2^60 records that fit a file.
                self.end_bytes = offset.saturating_add(len_bytes.max(1).next_multiple_of(4096));
                offset
            }
        };
        let time_ns = u128::from(le_u32(&record, 0)) * 1_000_000_000;
        Ok(Some(Ok(Entry::request(time_ns, IoKind::Write, 0, offset_bytes, len_bytes))))
    }
}
