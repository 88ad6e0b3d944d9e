use crate::ahead::Ahead;
use crate::format::{Detection, Entry, Example, FormatRow, LineReader, LineWriter, Raw, Reader, Writer, WriterForm};
use crate::text::{Columns, DeviceNames, ZEROS, digit_bits, eight_digits};
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
struct MsrReader {
    devices: DeviceNames,
    last_time: LastTime,
    /// The device of the last line, if its name is short.
    last_device: ShortName,
}

/// The first ten digits of a time of 18, as the words at its bytes 0 and 2, and what they stand for in ticks. They change
/// every ten seconds.
#[derive(Debug, Default)]
struct LastTime {
    words: [u64; 2],
    ticks: u64,
}

/// Digits of the ticks of our days, of which two words are the first ten.
const TICK_DIGITS: usize = 18;

/// The name of a host and a disk with the comma behind it, as two words, the bits of these that it takes, its length, and
/// the device that it names.
#[derive(Debug)]
struct ShortName {
    words: [u64; 2],
    masks: [u64; 2],
    len: usize,
    device: u32,
}

impl Default for ShortName {
    /// The name of nothing.
    fn default() -> Self {
        Self { words: [1; 2], masks: [0; 2], len: 0, device: 0 }
    }
}

impl LineReader for MsrReader {
    fn line(&mut self, line: &[u8]) -> Result<Entry, String> {
        if line.starts_with(b"Timestamp") {
            return Ok(Entry::HEADER);
        }
        let mut columns = Columns::<b','>::exactly(line, 7);
        let time_ns = columns.time(TICK_NS)?;
        // Host and disk together name a device.
        let (device, kind) = (columns.two("host and disk")?, columns.read_or_write()?);
        let (offset_bytes, len_bytes) = (columns.whole("offset")?, columns.whole("size")?);
        columns.text("response time")?;
        columns.end()?;
        Ok(Entry::request(time_ns, kind, self.devices.number(device)?, offset_bytes, len_bytes))
    }

    fn usual_line(&mut self, unread: &[u8]) -> Option<(Raw, usize)> {
        let mut ahead = Ahead::new(unread)?;
        let last_digits = ahead.word_at(10) ^ ZEROS;
        let is_near = [ahead.word(), ahead.word_at(2)] == self.last_time.words
            && ahead.word_at(TICK_DIGITS) as u8 == b','
            && digit_bits(last_digits).is_none();
        let ticks = if is_near {
            ahead.pass(TICK_DIGITS + 1);
            self.last_time.ticks + eight_digits(last_digits)
        } else {
            let (ticks, behind) = self.another_time(ahead)?;
            ahead = behind;
            ticks
        };
        let (name, last) = (ahead, &self.last_device);
        let is_last =
            (ahead.word() & last.masks[0] == last.words[0]) && (ahead.word_at(8) & last.masks[1] == last.words[1]);
        let name_bytes = if is_last { last.len } else { name_bytes(name.rest())? };
        ahead.pass(name_bytes);
        let word = ahead.word();
        let kind = if word & READ_MASK == READ {
            ahead.pass(5);
            IoKind::Read
        } else if word & WRITE_MASK == WRITE {
            ahead.pass(6);
            IoKind::Write
        } else {
            return None;
        };
        let (offset_bytes, len_bytes) = (ahead.number(b',')?, ahead.number(b',')?);
        let bytes = ahead.line_end()?;
        let device = if is_last { last.device } else { self.another_device(&name.rest()[..name_bytes])? };
        let time_ns = u128::from(ticks) * u128::from(TICK_NS);
        Some((Raw { time_ns, kind, device, offset_bytes, len_bytes, stream: None }, bytes))
    }

    /// As the files of the published traces are named, `usr_0`.
    fn device_name(&self, number: u32) -> Option<String> {
        Some(self.devices.name(number)?.replacen(',', "_", 1))
    }
}

/// Nanoseconds of a tick.
const TICK_NS: u64 = 100;
const READ: u64 = u64::from_le_bytes(*b"Read,\0\0\0");
const READ_MASK: u64 = (1 << 40) - 1;
const WRITE: u64 = u64::from_le_bytes(*b"Write,\0\0");
const WRITE_MASK: u64 = (1 << 48) - 1;

/// Bytes of the two columns at the start of a line's rest, with the commas behind them.
#[cold]
fn name_bytes(rest: &[u8]) -> Option<usize> {
    let mut commas = rest.iter().take_while(|byte| **byte != b'\n').enumerate().filter(|(_, byte)| **byte == b',');
    Some(commas.nth(1)?.0 + 1)
}

impl MsrReader {
    /// A time, and what is behind its comma.
    #[cold]
    fn another_time<'a>(&mut self, mut ahead: Ahead<'a>) -> Option<(u64, Ahead<'a>)> {
        let words = [ahead.word(), ahead.word_at(2)];
        let ends_there = ahead.word_at(TICK_DIGITS) as u8 == b',';
        let ticks = ahead.number(b',')?;
        if ends_there && ticks >= 10u64.pow(TICK_DIGITS as u32 - 1) {
            self.last_time = LastTime { words, ticks: ticks - ticks % 100_000_000 };
        }
        Some((ticks, ahead))
    }

    /// The number of the device with this name, behind which a comma stands.
    #[cold]
    fn another_device(&mut self, name: &[u8]) -> Option<u32> {
        let device = self.devices.number(&name[..name.len() - 1]).ok()?;
        let mut bytes = [0; 16];
        if let Some(place) = bytes.get_mut(..name.len()) {
            place.copy_from_slice(name);
            let halves = |number: u128| [number as u64, (number >> 64) as u64];
            let masks = halves(u128::MAX >> (128 - 8 * name.len()));
            self.last_device = ShortName { words: halves(u128::from_le_bytes(bytes)), masks, len: name.len(), device };
        }
        Some(device)
    }
}

/// Where time starts, in ticks of 100 ns since 1601: any value will do, and this one is close to that of the original
/// traces.
const START_TICKS: u64 = 128_166_372_000_000_000;

struct MsrWriter;

impl LineWriter for MsrWriter {
    fn write(&mut self, request: &Request, device: Option<&str>, out: &mut dyn Write) -> io::Result<()> {
        let Request { time_us, kind, device: number, offset_bytes, len_bytes, .. } = *request;
        let word = if kind == IoKind::Read { "Read" } else { "Write" };
        let ticks = START_TICKS.saturating_add(time_us.saturating_mul(10));
        write!(out, "{ticks},")?;
        match device.map(|name| name.rsplit_once('_').unwrap_or((name, "0"))) {
            Some((host, disk)) => write!(out, "{host},{disk}")?,
            None => write!(out, "margay,{number}")?,
        }
        writeln!(out, ",{word},{offset_bytes},{len_bytes},0")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_read_ahead_is_the_line_itself() {
        let mut state = 11u64;
        let mut below = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        let (mut whole, mut ahead) = (MsrReader::default(), MsrReader::default());
        let (mut usual, mut bad) = (0, 0);
        for at in 0..200_000u64 {
            let host = ["usr", "rsrch", "a-host-of-a-long-name", "src1", ""][below(5) as usize];
            let (word, end) = (
                ["Read", "Write", "write", "Trim"][[0, 0, 1, 1, 2, 3][below(6) as usize]],
                ["\n", "\r\n"][below(2) as usize],
            );
            let digits = [1, 10, 1 << 16, 1 << 40, 1 << 62][below(5) as usize];
            let (offset, size, response) = (below(digits), below(1 << 20), below(digits));
            let ticks = 128_166_372_003_061_629 + at * 12_345_678 * (1 + below(2));
            let ticks = [ticks, ticks, ticks, ticks % 1_000_000_000_000, ticks % 100, u64::MAX][below(6) as usize];
            let mut line = format!("{ticks},{host},{},{word},{offset},{size},{response}", below(3)).into_bytes();
            if below(8) == 0 {
                let (place, byte) = (below(line.len() as u64) as usize, b",x\r0 9-.\0"[below(9) as usize]);
                line[place] = byte;
            }
            let mut unread = line.clone();
            unread.extend(end.as_bytes());
            unread.extend([b'7'; 128]);
            let wanted = whole.line(line.trim_ascii_end());
            let found = match ahead.usual_line(&unread) {
                Some((raw, bytes)) => {
                    usual += 1;
                    assert_eq!(bytes, line.len() + end.len());
                    Ok(Entry::Request(raw))
                }
                None => ahead.line(line.trim_ascii_end()),
            };
            assert_eq!(found, wanted, "{:?}", String::from_utf8_lossy(&line));
            bad += u64::from(wanted.is_err());
        }
        assert!(usual > 50_000 && bad > 10_000, "{usual} as usual, {bad} bad");
    }

    #[test]
    fn lines_of_the_published_traces_are_usual_ones() {
        let mut reader = MsrReader::default();
        for line in
            ["128166372003061629,usr,0,Read,7014609920,24576,41286\n", "128166372016382155,hm,1,Write,512,8192,1\r\n"]
        {
            let unread = format!("{line}{}", "x".repeat(128));
            let (_, bytes) = reader.usual_line(unread.as_bytes()).unwrap();
            assert_eq!(bytes, line.len());
        }
        assert!(
            reader.usual_line(b"128166372003061629,usr,0,Read,7014609920,24576,41286\n").is_none(),
            "the last ones"
        );
    }
}
