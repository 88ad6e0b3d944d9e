use crate::format::{Detection, Entry, Example, LineReader, LineWriter, Reader, Row, Writer, WriterForm};
use crate::text::{DeviceNames, fields, read_or_write, time, whole};
use crate::{Kind, Request};
use std::io::{self, Write};

pub(super) static ROW: Row = Row {
    name: "msr",
    summary: "Timestamp (100 ns),Hostname,Disk,Type (Read, Write),Offset (bytes),Size (bytes),ResponseTime",
    source: "Narayanan et al., Write Off-Loading, FAST 2008; SNIA IOTTA, MSR Cambridge",
    detection: Detection::Lines(|_| true),
    reader: Reader::Lines(|_| Ok(Box::new(MsrReader::default()))),
    writer: Some(Writer {
        kinds: &[Kind::Read, Kind::Write],
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
        let [ticks, host, disk, kind, offset, size, _] = fields(line, b',')?;
        // Host and disk together name a device.
        let start = ticks.len() + 1;
        let device = self.0.number(&line[start..start + host.len() + 1 + disk.len()])?;
        let time_ns = time(ticks, 100)?;
        Ok(Entry::request(time_ns, read_or_write(kind)?, device, whole("offset", offset)?, whole("size", size)?))
    }
}

/// Where time starts, in ticks of 100 ns since 1601: any value will do, and this one is close to that of the original
/// traces.
const START_TICKS: u64 = 128_166_372_000_000_000;

struct MsrWriter;

impl LineWriter for MsrWriter {
    fn write(&mut self, request: &Request, out: &mut dyn Write) -> io::Result<()> {
        let Request { time_us, kind, device, offset_bytes, len_bytes } = *request;
        let word = if kind == Kind::Read { "Read" } else { "Write" };
        let ticks = START_TICKS.saturating_add(time_us.saturating_mul(10));
        writeln!(out, "{ticks},margay,{device},{word},{offset_bytes},{len_bytes},0")
    }
}
