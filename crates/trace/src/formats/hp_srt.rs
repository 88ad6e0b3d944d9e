use crate::IoKind;
use crate::format::{Detection, Entry, Example, FormatRow, Reader, RecordReader, Stream};
use crate::records::read_up_to;
use std::io;

pub(super) static ROW: FormatRow = FormatRow {
    name: "hp-srt",
    summary: "HP SRT 1.3, binary: text header, then records of 56 bytes",
    source: "HP Labs; layout read off a real week that is also there as CSV",
    detection: Detection::Magic(b"$$TR_IOREC-1.3"),
    reader: Reader::Records(|stream| Ok(Ok(Box::new(HpSrt { stream, has_header: false })))),
    writer: None,
    example: Example {
        file_name: "week.srt",
        bytes: b"$$TR_IOREC-1.3 example\x0c\
                 \0\0\0\x38\0\x04\0\x02\0\0\0\x05\0\0\0\x07\0\0\0\0\0\0\0\0\0\0\x20\0\0\0\0\x10\
                 \0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0",
        requests: 1,
    },
};

/// A longer header is damage.
const MAX_HEADER_BYTES: usize = 1 << 20;
/// A longer record is damage.
const MAX_RECORD_BYTES: usize = 4096;
/// The type of a record that is a request.
const IO_RECORD: u16 = 4;

/// A text header that ends in a form feed, then big-endian records: u32 length, u16 type, u16 version, u32 seconds and
/// u32 microseconds of arrival, u32 start and u32 finish relative to it, u32 bytes, u32 sector (512 B), u32 device
/// (major, unit, partition), u32, u32, u32 flags (bit 0: read), u32, u32.
struct HpSrt {
    stream: Stream,
    has_header: bool,
}

impl RecordReader for HpSrt {
    fn next(&mut self) -> io::Result<Option<Result<Entry, String>>> {
        if !self.has_header {
            if let Err(problem) = self.skip_header()? {
                return Ok(Some(Err(problem)));
            }
            self.has_header = true;
        }
        let mut word = [0; 4];
        match read_up_to(&mut self.stream, &mut word)? {
            0 => return Ok(None),
            4 => {}
            _ => return Ok(Some(Err(ENDS_INSIDE.into()))),
        }
        let len = u32::from_be_bytes(word) as usize;
        if !(12..=MAX_RECORD_BYTES).contains(&len) {
            return Ok(Some(Err(format!("a record of {len} bytes"))));
        }
        let mut record = vec![0; len];
        record[..4].copy_from_slice(&word);
        if read_up_to(&mut self.stream, &mut record[4..])? != len - 4 {
            return Ok(Some(Err(ENDS_INSIDE.into())));
        }
        if u16::from_be_bytes([record[4], record[5]]) != IO_RECORD {
            return Ok(Some(Ok(Entry::Ignored("record of another type"))));
        }
        Ok(Some(parse(&record)))
    }
}

const ENDS_INSIDE: &str = "the file ends inside a record";

impl HpSrt {
    fn skip_header(&mut self) -> io::Result<Result<(), String>> {
        let mut seen = 0;
        loop {
            let buffer = self.stream.fill_buf()?;
            let end = buffer.iter().position(|byte| *byte == 0x0c);
            let used = end.map_or(buffer.len(), |end| end + 1);
            self.stream.consume(used);
            seen += used;
            if end.is_some() {
                return Ok(Ok(()));
            }
            if used == 0 || seen > MAX_HEADER_BYTES {
                return Ok(Err("the text header has no end".into()));
            }
        }
    }
}

fn parse(record: &[u8]) -> Result<Entry, String> {
    if record.len() < 48 {
        return Err(format!("an I/O record of {} bytes", record.len()));
    }
    let word = |at: usize| u32::from_be_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]);
    let (seconds, us) = (word(8), word(12));
    let time_ns = u128::from(seconds) * 1_000_000_000 + u128::from(us) * 1000;
    let kind = if word(44) & 1 == 1 { IoKind::Read } else { IoKind::Write };
    let unit = word(32) >> 8 & 0xff;
    Ok(Entry::request(time_ns, kind, unit, u64::from(word(28)) * 512, u64::from(word(24))))
}
