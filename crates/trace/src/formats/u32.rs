use crate::IoKind;
use crate::format::{Detection, Entry, Example, FormatRow, Reader, RecordReader, Stream};
use crate::records::{ends_inside, read_up_to};
use std::io;

pub(super) static ROW: FormatRow = FormatRow {
    name: "u32",
    summary: "records of 4 bytes: page u32 (4096 B), little endian: each a write of the page, without times",
    source: "traces of caches that hold nothing but the numbers of pages",
    // Any bytes are such numbers, so that only the name of a file tells.
    detection: Detection::FileName(".u32"),
    reader: Reader::Records(|stream| Ok(Ok(Box::new(Numbers { stream })))),
    writer: None,
    example: Example { file_name: "pages.u32", bytes: b"\x07\0\0\0\xff\xff\xff\xff\x07\0\0\0", requests: 3 },
};

/// Bytes of the page that a number stands for.
const PAGE_BYTES: u64 = 4096;
const RECORD_BYTES: usize = 4;

/// As other traces of caches these say neither what is done nor when: each access is taken as a write.
struct Numbers {
    stream: Stream,
}

impl RecordReader for Numbers {
    fn next(&mut self) -> io::Result<Option<Result<Entry, String>>> {
        let mut record = [0; RECORD_BYTES];
        Ok(match read_up_to(&mut self.stream, &mut record)? {
            0 => None,
            RECORD_BYTES => {
                let offset_bytes = u64::from(u32::from_le_bytes(record)) * PAGE_BYTES;
                Some(Ok(Entry::request(0, IoKind::Write, 0, offset_bytes, PAGE_BYTES)))
            }
            n => Some(Err(ends_inside(n, RECORD_BYTES))),
        })
    }
}
