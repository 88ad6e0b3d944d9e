use crate::format::{Detection, Entry, Example, FormatRow, LineReader, LineWriter, Reader, Writer, WriterForm};
use crate::text::{Columns, DeviceNames};
use crate::{IoKind, Request};
use std::io::{self, Write};

pub(super) static ROW: FormatRow = FormatRow {
    name: "msr",
    summary: "Timestamp (100 ns),Hostname,Disk,Type (Read, Write),Offset (bytes),Size (bytes),ResponseTime",
    source: "Narayanan et al., Write Off-Loading, FAST 2008; SNIA IOTTA, MSR Cambridge",
    detection: Detection::Lines(|_| true),
    reader: Reader::Lines(|_| Ok(Box::new(MsrReader::default()))),
    writer: Some(Writer {
        kinds: &[IoKind::Read, IoKind::Write],
        time_unit_us: 1,
        form: WriterForm::Lines(|| Box::new(MsrWriter)),
    }),
    example: Example {
        file_name: "usr_0.csv",
        bytes: b"128166372003061629,usr,0,Read,7014609920,24576,41286\n\
                 128166372016382155,usr,1,Write,1317441536,8192,1963\n",
        requests: 2,
    },
};

#[derive(Debug, Default)]
struct MsrReader(DeviceNames);

impl LineReader for MsrReader {
    fn line(&mut self, line: &[u8]) -> Result<Entry, String> {
        if line.starts_with(b"Timestamp") {
            return Ok(Entry::HEADER);
        }
        let mut columns = Columns::<b','>::exactly(line, 7);
        let time_ns = columns.time(100)?;
        // Host and disk together name a device.
        let (device, kind) = (columns.two("host and disk")?, columns.read_or_write()?);
        let (offset_bytes, len_bytes) = (columns.whole("offset")?, columns.whole("size")?);
        columns.text("response time")?;
        columns.end()?;
        Ok(Entry::request(time_ns, kind, self.0.number(device)?, offset_bytes, len_bytes))
    }
}

/// Where time starts, in ticks of 100 ns since 1601: any value will do, and this one is close to that of the original
/// traces.
const START_TICKS: u64 = 128_166_372_000_000_000;

struct MsrWriter;

impl LineWriter for MsrWriter {
    fn write(&mut self, request: &Request, out: &mut dyn Write) -> io::Result<()> {
        let Request { time_us, kind, device, offset_bytes, len_bytes } = *request;
        let word = if kind == IoKind::Read { "Read" } else { "Write" };
        let ticks = START_TICKS.saturating_add(time_us.saturating_mul(10));
        writeln!(out, "{ticks},margay,{device},{word},{offset_bytes},{len_bytes},0")
    }
}
