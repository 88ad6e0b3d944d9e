use super::{Devices, HEADER, Line, LineFormat, Raw, whole};
use crate::Kind;

/// fio I/O log, version 2 (`file action offset length`, with `wait`) or 3 (`timestamp file action offset
/// length`, milliseconds). Source: fio manual, "Trace file format v2", "v3".
#[derive(Debug, Default)]
pub(crate) struct Fio {
    version: Option<u8>,
    clock_us: u64,
    devices: Devices,
}

impl LineFormat for Fio {
    fn line(&mut self, line: &[u8]) -> Result<Line, String> {
        let Some(version) = self.version else {
            self.version = match line.trim_ascii() {
                b"fio version 2 iolog" => Some(2),
                b"fio version 3 iolog" => Some(3),
                _ => return Err("the first line is neither 'fio version 2 iolog' nor 'fio version 3 iolog'".into()),
            };
            return Ok(HEADER);
        };
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let mut next = |what: &str| words.next().ok_or_else(|| format!("the {what} is missing"));
        if version == 3 {
            let ms = whole("timestamp", next("timestamp")?)?;
            self.clock_us = ms.checked_mul(1000).ok_or("the timestamp is too large")?;
        }
        let file = next("file name")?;
        let kind = match next("action")? {
            b"read" => Kind::Read,
            b"write" => Kind::Write,
            b"trim" => Kind::Trim,
            b"sync" | b"datasync" => Kind::Flush,
            b"add" | b"open" | b"close" => return Ok(Line::Ignored("file is added, opened or closed")),
            b"wait" if version == 2 => {
                let us = whole("wait", next("wait")?)?;
                self.clock_us = self.clock_us.checked_add(us).ok_or("the time is too large")?;
                return Ok(Line::Ignored("wait"));
            }
            other => return Err(format!("unknown action '{}'", String::from_utf8_lossy(other))),
        };
        let (offset_bytes, len_bytes) = match kind {
            Kind::Flush => (0, 0),
            _ => (whole("offset", next("offset")?)?, whole("length", next("length")?)?),
        };
        let device = self.devices.number(file);
        Ok(Line::Request(Raw { time_ns: u128::from(self.clock_us) * 1000, kind, device, offset_bytes, len_bytes }))
    }
}
