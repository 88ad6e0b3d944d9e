use crate::IoKind;
use crate::format::{Detection, Entry, Example, FormatRow, LineReader, Reader};
use crate::text::{Columns, DeviceNames, words};

pub(super) static ROW: FormatRow = FormatRow {
    name: "blkparse",
    summary: "device cpu seq time (s) pid action RWBS sector + sectors; one action is counted (Q, else D, else C)",
    source: "blkparse(1); also the line per event of block-layer tracers: pid action op offset bytes time latency sync",
    detection: Detection::Lines(|_| true),
    reader: Reader::Lines(|opening| Ok(Box::new(Blkparse::new(opening.head)))),
    writer: None,
    example: Example {
        file_name: "sda.blkparse",
        bytes: b"  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]\n\
                 \x20 8,0    3        2     0.000100000   697  D   W 223490 + 8 [kjournald]\n\
                 \x20 8,0    3        3     0.000300000   697  Q  FN [kjournald]\n\
                 CPU0 (8,0):\n Reads Queued:           0,        0KiB\n",
        requests: 2,
    },
};

/// Every request passes through several actions, of which one is counted.
#[derive(Debug)]
struct Blkparse {
    action: u8,
    devices: DeviceNames,
}

const OTHER_ACTION: Entry = Entry::Ignored("another action of a request");
const SUMMARY: Entry = Entry::Ignored("summary");

impl Blkparse {
    /// Counts requests when they are queued (Q) if the start of the file shows that, else when they are dispatched (D)
    /// or completed (C).
    fn new(head: &[u8]) -> Self {
        let seen = |action: u8| head.split(|byte| *byte == b'\n').any(|line| action_of(line) == Some(action));
        let action = [b'Q', b'D', b'C'].into_iter().find(|action| seen(*action)).unwrap_or(b'Q');
        Self { action, devices: DeviceNames::default() }
    }
}

fn is_event(line: &[u8]) -> bool {
    let device = Columns::<b' '>::any(line).maybe().unwrap_or_default();
    device.contains(&b',') && device.first().is_some_and(u8::is_ascii_digit)
}

fn action_of(line: &[u8]) -> Option<u8> {
    let word = if is_event(line) { words(line).nth(5)? } else { words(line).nth(1)? };
    (word.len() == 1).then(|| word[0])
}

/// What the letters of RWBS say is done; `None` if they say nothing of the kind. A flush (F) counts only without a read,
/// write or discard.
fn kind_of(rwbs: &[u8]) -> Option<IoKind> {
    rwbs.iter().find_map(|letter| match letter {
        b'R' => Some(IoKind::Read),
        b'W' => Some(IoKind::Write),
        b'D' => Some(IoKind::Trim),
        b'F' if rwbs.iter().all(|l| !b"RWD".contains(l)) => Some(IoKind::Flush),
        _ => None,
    })
}

impl LineReader for Blkparse {
    fn line(&mut self, line: &[u8]) -> Result<Entry, String> {
        if line.trim_ascii().is_empty() {
            return Ok(Entry::COMMENT);
        }
        if is_event(line) {
            return self.event(line);
        }
        // The summary of blkparse: "CPU0 (8,0):", "Total (8,0):", "Reads Queued: ...", "Throughput ...".
        let first = Columns::<b' '>::any(line).maybe().unwrap_or_default();
        if !first.iter().all(u8::is_ascii_digit) {
            let is_summary = first.first().is_some_and(u8::is_ascii_alphabetic) && line.contains(&b':');
            return if is_summary { Ok(SUMMARY) } else { Err("neither an event nor a summary".into()) };
        }
        self.flat(line)
    }

    /// As the kernel writes it, `8:0`: in lists a comma stands between devices.
    fn device_name(&self, number: u32) -> Option<String> {
        Some(self.devices.name(number)?.replacen(',', ":", 1))
    }
}

impl Blkparse {
    fn event(&mut self, line: &[u8]) -> Result<Entry, String> {
        let mut columns = Columns::<b' '>::any(line);
        let device = columns.text("device")?;
        columns.text("cpu")?;
        columns.text("sequence")?;
        let mut at_time = columns.clone();
        columns.text("time")?;
        columns.text("pid")?;
        let action = columns.text("action")?;
        let rwbs = columns.text("RWBS")?;
        if action != [self.action] {
            return Ok(OTHER_ACTION);
        }
        let Some(kind) = kind_of(rwbs) else { return Ok(Entry::Ignored("neither read, write, discard nor flush")) };
        let time_ns = at_time.time(1_000_000_000)?;
        if !columns.next_is_digit() {
            if kind != IoKind::Flush {
                return Ok(Entry::Ignored("no sector"));
            }
            return Ok(Entry::request(time_ns, kind, self.devices.number(device)?, 0, 0));
        }
        let offset_bytes = columns.sectors("sector")?;
        let len_bytes = match columns.maybe() {
            Some(b"+") => columns.sectors("number of sectors")?,
            _ => 0,
        };
        Ok(Entry::request(time_ns, kind, self.devices.number(device)?, offset_bytes, len_bytes))
    }

    fn flat(&mut self, line: &[u8]) -> Result<Entry, String> {
        let mut columns = Columns::<b' '>::any(line);
        columns.whole("pid")?;
        if columns.text("action")? != [self.action] {
            return Ok(OTHER_ACTION);
        }
        let kind = match columns.text("operation")? {
            b"read" => IoKind::Read,
            b"write" => IoKind::Write,
            b"discard" => IoKind::Trim,
            b"flush" => IoKind::Flush,
            other => return Err(format!("unknown operation '{}'", String::from_utf8_lossy(other))),
        };
        let (offset_bytes, len_bytes) = (columns.whole("offset")?, columns.whole("size")?);
        let time_ns = columns.time(1_000_000_000)?;
        Ok(Entry::request(time_ns, kind, 0, offset_bytes, len_bytes))
    }
}
