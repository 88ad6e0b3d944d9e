use crate::IoKind;
use crate::format::{Detection, Entry, Example, FormatRow, LineReader, Reader};
use crate::lines::Sample;
use crate::text::{Columns, words};

pub(super) static ROW: FormatRow = FormatRow {
    name: "disksim",
    summary: "time (ms, with a point) device sector (512 B) sectors flags (bit 0: 0 write, 1 read)",
    source: "DiskSim 4.0 reference manual, ASCII traces",
    detection: Detection::Lines(has_decimal_times),
    reader: Reader::Lines(|_| Ok(Box::new(FiveWords { unit_ns: 1_000_000 }))),
    writer: None,
    example: Example {
        file_name: "validate.trace",
        bytes: b"0.000000 0 110656 8 0\n1.500000 0 110816 48 1\n",
        requests: 2,
    },
};

/// Whether a time of the sample has a decimal point. It tells DiskSim's milliseconds from MQSim's nanoseconds.
pub(super) fn has_decimal_times(sample: &Sample<'_>) -> bool {
    sample.lines.iter().any(|line| words(line).next().is_some_and(|time| time.contains(&b'.')))
}

/// `time device sector sectors type`, in which bit 0 of the type says read. MQSim has the same columns.
#[derive(Debug)]
pub(super) struct FiveWords {
    /// Unit of the time.
    pub unit_ns: u64,
}

impl LineReader for FiveWords {
    fn line(&mut self, line: &[u8]) -> Result<Entry, String> {
        let mut columns = Columns::<b' '>::exactly(line, 5);
        let (time_ns, device) = (columns.time(self.unit_ns)?, columns.small("device")?);
        let (offset_bytes, len_bytes) = (columns.sectors("sector")?, columns.sectors("number of sectors")?);
        let kind = if columns.whole("type")? & 1 == 1 { IoKind::Read } else { IoKind::Write };
        columns.end()?;
        Ok(Entry::request(time_ns, kind, device, offset_bytes, len_bytes))
    }
}
