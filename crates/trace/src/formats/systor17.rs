use crate::format::{Detection, Entry, Example, FormatRow, LineReader, Reader};
use crate::text::Columns;

pub(super) static ROW: FormatRow = FormatRow {
    name: "systor17",
    summary: "Timestamp (s),Response (s),IOType (R, W or empty),LUN,Offset (bytes),Size (bytes)",
    source: "Lee et al., SYSTOR 2017; SNIA IOTTA 4928",
    detection: Detection::Lines(|_| true),
    reader: Reader::Lines(|_| Ok(Box::new(Systor17))),
    writer: None,
    example: Example {
        file_name: "2016022219-LUN4.csv",
        bytes: b"Timestamp,Response,IOType,LUN,Offset,Size\n\
                 1456135200.013118000,0.000806000,R,4,899056122368,131072\n\
                 1456135200.013213000,,,4,42932745216,4096\n\
                 1456135200.113118000,0.001200000,W,4,8192,4096\n",
        requests: 2,
    },
};

#[derive(Debug)]
struct Systor17;

impl LineReader for Systor17 {
    fn line(&mut self, line: &[u8]) -> Result<Entry, String> {
        if line.starts_with(b"Timestamp") {
            return Ok(Entry::HEADER);
        }
        let mut columns = Columns::<b','>::exactly(line, 6);
        let time_ns = columns.time(1_000_000_000)?;
        columns.text("response time")?;
        let mut behind = columns.clone();
        let kind = if behind.text("type")?.trim_ascii().is_empty() {
            columns = behind;
            None
        } else {
            Some(columns.read_or_write()?)
        };
        let (device, offset_bytes, len_bytes) =
            (columns.small("LUN")?, columns.whole("offset")?, columns.whole("size")?);
        columns.end()?;
        Ok(match kind {
            Some(kind) => Entry::request(time_ns, kind, device, offset_bytes, len_bytes),
            None => Entry::Ignored("request without a response, whose type is not known"),
        })
    }
}
