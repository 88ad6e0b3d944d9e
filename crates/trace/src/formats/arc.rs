use crate::IoKind;
use crate::format::{Detection, Entry, Example, FormatRow, LineReader, Reader};
use crate::lines::Sample;
use crate::text::{Columns, integer, words};

pub(super) static ROW: FormatRow = FormatRow {
    name: "arc",
    summary: ".lis: start (512 B) sectors ignored request: each a write of the sectors, without times",
    source: "Megiddo and Modha, ARC, FAST 2003",
    detection: Detection::Lines(counts_requests),
    reader: Reader::Lines(|_| Ok(Box::new(Arc))),
    writer: None,
    example: Example { file_name: "P6.lis", bytes: b"110765 64 0 0\n110829 64 0 1\n110765 8 0 2\n", requests: 3 },
};

/// Whether the fourth words count up by one: four numbers alone are a line of much else.
fn counts_requests(sample: &Sample<'_>) -> bool {
    let request = |line: &&[u8]| integer(words(line).nth(3)?);
    sample.lines.iter().zip(sample.lines.iter().skip(1)).all(|(line, next)| {
        request(line).and_then(|number| number.checked_add(1)).is_some_and(|number| request(next) == Some(number))
    })
}

/// The traces say neither what is done nor when. Each access is taken as a write, as of the other traces of caches: what
/// a flash cache that admits everything would do.
#[derive(Debug)]
struct Arc;

impl LineReader for Arc {
    fn line(&mut self, line: &[u8]) -> Result<Entry, String> {
        let mut columns = Columns::<b' '>::exactly(line, 4);
        let (offset_bytes, len_bytes) = (columns.sectors("start")?, columns.sectors("number of sectors")?);
        columns.text("ignored number")?;
        columns.whole("request number")?;
        columns.end()?;
        Ok(Entry::request(0, IoKind::Write, 0, offset_bytes, len_bytes))
    }
}
