use crate::IoKind;
use crate::format::{Detection, Entry, Example, FormatRow, LineReader, Reader};
use crate::text::Columns;

pub(super) static ROW: FormatRow = FormatRow {
    name: "tencent",
    summary: "timestamp (s),offset (512 B),size (512 B),type (0 read, 1 write),volume",
    source: "Zhang et al., OSCA, USENIX ATC 2020; SNIA IOTTA",
    detection: Detection::Lines(|_| true),
    reader: Reader::Lines(|_| Ok(Box::new(Tencent))),
    writer: None,
    example: Example {
        file_name: "2018100108",
        bytes: b"1538323200,12910952,128,0,1063\n1538323201,6265,8,1,1063\n",
        requests: 2,
    },
};

#[derive(Debug)]
struct Tencent;

impl LineReader for Tencent {
    fn line(&mut self, line: &[u8]) -> Result<Entry, String> {
        if line.starts_with(b"Timestamp") || line.starts_with(b"timestamp") {
            return Ok(Entry::HEADER);
        }
        let mut columns = Columns::<b','>::exactly(line, 5);
        let time_ns = columns.time(1_000_000_000)?;
        let (offset_bytes, len_bytes) = (columns.sectors("offset")?, columns.sectors("size")?);
        let kind = match columns.text("type")?.trim_ascii() {
            b"0" => IoKind::Read,
            b"1" => IoKind::Write,
            _ => return Err(columns.wrong("the type is neither 0 (read) nor 1 (write)".into())),
        };
        let device = columns.small("volume")?;
        columns.end()?;
        Ok(Entry::request(time_ns, kind, device, offset_bytes, len_bytes))
    }
}
