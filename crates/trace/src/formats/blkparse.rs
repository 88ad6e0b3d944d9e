use super::{COMMENT, Devices, Line, LineFormat, Raw, sectors, time, whole};
use crate::Kind;

/// Text of blkparse, `8,0 1 42 0.000123 4510 Q W 1234 + 8 [proc]`, or of tracers that print `pid action op
/// offset bytes time latency sync`. Every request passes several actions, of which one is counted.
#[derive(Debug)]
pub(crate) struct Blkparse {
    action: u8,
    devices: Devices,
}

const OTHER_ACTION: Line = Line::Ignored("another action of a request");
const SUMMARY: Line = Line::Ignored("summary");

impl Blkparse {
    /// Counts requests when queued (Q) if the start of the file shows that, else when dispatched (D) or
    /// completed (C).
    pub fn new(head: &[u8]) -> Self {
        let seen = |action: u8| head.split(|byte| *byte == b'\n').any(|line| action_of(line) == Some(action));
        let action = [b'Q', b'D', b'C'].into_iter().find(|action| seen(*action)).unwrap_or(b'Q');
        Self { action, devices: Devices::default() }
    }
}

fn split(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

fn is_event(line: &[u8]) -> bool {
    let device = split(line).next().unwrap_or_default();
    device.contains(&b',') && device.first().is_some_and(u8::is_ascii_digit)
}

fn action_of(line: &[u8]) -> Option<u8> {
    let word = if is_event(line) { split(line).nth(5)? } else { split(line).nth(1)? };
    (word.len() == 1).then(|| word[0])
}

/// Of RWBS: the first letter that says what is done. None for messages and empty flushes are told apart.
fn kind_of(rwbs: &[u8]) -> Option<Kind> {
    rwbs.iter().find_map(|letter| match letter {
        b'R' => Some(Kind::Read),
        b'W' => Some(Kind::Write),
        b'D' => Some(Kind::Trim),
        b'F' if rwbs.iter().all(|l| !b"RWD".contains(l)) => Some(Kind::Flush),
        _ => None,
    })
}

impl LineFormat for Blkparse {
    fn line(&mut self, line: &[u8]) -> Result<Line, String> {
        if line.trim_ascii().is_empty() {
            return Ok(COMMENT);
        }
        if is_event(line) {
            return self.event(line);
        }
        // The summary of blkparse: "CPU0 (8,0):", "Total (8,0):", "Reads Queued: ...", "Throughput ...".
        let first = split(line).next().unwrap_or_default();
        if !first.iter().all(u8::is_ascii_digit) {
            let is_summary = first.first().is_some_and(u8::is_ascii_alphabetic) && line.contains(&b':');
            return if is_summary { Ok(SUMMARY) } else { Err("neither an event nor a summary".into()) };
        }
        self.flat(line)
    }
}

impl Blkparse {
    fn event(&mut self, line: &[u8]) -> Result<Line, String> {
        let mut words = split(line);
        let mut next = |what: &str| words.next().ok_or_else(|| format!("the {what} is missing"));
        let device = next("device")?;
        next("cpu")?;
        next("sequence")?;
        let seconds = next("time")?;
        next("pid")?;
        let action = next("action")?;
        let rwbs = next("RWBS")?;
        if action != [self.action] {
            return Ok(OTHER_ACTION);
        }
        let Some(kind) = kind_of(rwbs) else { return Ok(Line::Ignored("neither read, write, discard nor flush")) };
        let time_ns = time(seconds, 1_000_000_000)?;
        let device = self.devices.number(device);
        let Some(sector) = words.next().filter(|word| word.first().is_some_and(u8::is_ascii_digit)) else {
            let raw = Raw { time_ns, kind: Kind::Flush, device, offset_bytes: 0, len_bytes: 0 };
            return Ok(if kind == Kind::Flush { Line::Request(raw) } else { Line::Ignored("no sector") });
        };
        let offset_bytes = sectors("sector", sector)?;
        let len_bytes = match words.next() {
            Some(b"+") => sectors("number of sectors", words.next().unwrap_or_default())?,
            _ => 0,
        };
        Ok(Line::Request(Raw { time_ns, kind, device, offset_bytes, len_bytes }))
    }

    fn flat(&mut self, line: &[u8]) -> Result<Line, String> {
        let mut words = split(line);
        let mut next = |what: &str| words.next().ok_or_else(|| format!("the {what} is missing"));
        whole("pid", next("pid")?)?;
        if next("action")? != [self.action] {
            return Ok(OTHER_ACTION);
        }
        let kind = match next("operation")? {
            b"read" => Kind::Read,
            b"write" => Kind::Write,
            b"discard" => Kind::Trim,
            b"flush" => Kind::Flush,
            other => return Err(format!("unknown operation '{}'", String::from_utf8_lossy(other))),
        };
        let (offset_bytes, len_bytes) = (whole("offset", next("offset")?)?, whole("size", next("size")?)?);
        let time_ns = time(next("time")?, 1_000_000_000)?;
        Ok(Line::Request(Raw { time_ns, kind, device: 0, offset_bytes, len_bytes }))
    }
}
