use crate::format::{Detection, Entry, Example, FormatRow, LineReader, LineWriter, Reader, Writer, WriterForm};
use crate::text::{Columns, DeviceNames};
use crate::{IoKind, Request};
use std::collections::BTreeSet;
use std::io::{self, Write};

pub(super) static ROW: FormatRow = FormatRow {
    name: "fio",
    summary: "fio version 2 or 3 iolog: [timestamp (ms)] file action offset length (bytes)",
    source: "fio manual, trace file formats v2 and v3",
    detection: Detection::Lines(|_| true),
    reader: Reader::Lines(|_| Ok(Box::new(FioReader::default()))),
    writer: Some(Writer {
        kinds: &[IoKind::Read, IoKind::Write, IoKind::Trim, IoKind::Flush],
        time_unit_us: 1000,
        form: WriterForm::Lines(|| Box::new(FioWriter::default())),
    }),
    example: Example {
        file_name: "fio.log",
        bytes: b"fio version 3 iolog\n10 /dev/a add\n10 /dev/a open\n12 /dev/a read 4096 512\n\
                 15 /dev/b write 0 512\n16 /dev/b sync 0 0\n",
        requests: 3,
    },
};

/// Version 2 has no timestamps but `wait` in microseconds; version 3 starts each line with milliseconds.
#[derive(Debug, Default)]
struct FioReader {
    version: Option<u8>,
    clock_us: u64,
    devices: DeviceNames,
}

impl LineReader for FioReader {
    fn line(&mut self, line: &[u8]) -> Result<Entry, String> {
        let Some(version) = self.version else {
            self.version = match line.trim_ascii() {
                b"fio version 2 iolog" => Some(2),
                b"fio version 3 iolog" => Some(3),
                _ => return Err("the first line is neither 'fio version 2 iolog' nor 'fio version 3 iolog'".into()),
            };
            return Ok(Entry::HEADER);
        };
        let mut columns = Columns::<b' '>::any(line);
        if version == 3 {
            let ms = columns.whole("timestamp")?;
            self.clock_us = ms.checked_mul(1000).ok_or("the timestamp is too large")?;
        }
        let file = columns.text("file name")?;
        let kind = match columns.text("action")? {
            b"read" => IoKind::Read,
            b"write" => IoKind::Write,
            b"trim" => IoKind::Trim,
            b"sync" | b"datasync" => IoKind::Flush,
            b"add" | b"open" | b"close" => return Ok(Entry::Ignored("file is added, opened or closed")),
            b"wait" if version == 2 => {
                let us = columns.whole("wait")?;
                self.clock_us = self.clock_us.checked_add(us).ok_or("the time is too large")?;
                return Ok(Entry::Ignored("wait"));
            }
            other => return Err(format!("unknown action '{}'", String::from_utf8_lossy(other))),
        };
        let (offset_bytes, len_bytes) = match kind {
            IoKind::Flush => (0, 0),
            _ => (columns.whole("offset")?, columns.whole("length")?),
        };
        let device = self.devices.number(file)?;
        Ok(Entry::request(u128::from(self.clock_us) * 1000, kind, device, offset_bytes, len_bytes))
    }

    fn device_name(&self, number: u32) -> Option<String> {
        self.devices.name(number)
    }
}

#[derive(Default)]
struct FioWriter {
    /// Devices that were added and opened.
    opened: BTreeSet<u32>,
}

impl LineWriter for FioWriter {
    fn header(&self) -> &'static str {
        "fio version 3 iolog\n"
    }

    fn write(&mut self, request: &Request, _: Option<&str>, out: &mut dyn Write) -> io::Result<()> {
        let Request { kind, device, offset_bytes, len_bytes, .. } = *request;
        let (ms, file) = (request.time_us / 1000, format!("/dev/margay{device}"));
        if self.opened.insert(device) {
            write!(out, "{ms} {file} add\n{ms} {file} open\n")?;
        }
        match kind {
            IoKind::Flush => writeln!(out, "{ms} {file} sync 0 0"),
            IoKind::Read => writeln!(out, "{ms} {file} read {offset_bytes} {len_bytes}"),
            IoKind::Write => writeln!(out, "{ms} {file} write {offset_bytes} {len_bytes}"),
            IoKind::Trim => writeln!(out, "{ms} {file} trim {offset_bytes} {len_bytes}"),
        }
    }
}
