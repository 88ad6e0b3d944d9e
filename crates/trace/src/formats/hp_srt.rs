use super::Raw;
use crate::Kind;
use std::io::{self, BufRead};

/// The start of an SRT file.
pub(crate) const MAGIC: &[u8] = b"$$TR_IOREC-1.3";

/// No header of a trace is longer.
const LONGEST_HEADER_BYTES: usize = 1 << 20;
const LONGEST_RECORD_BYTES: usize = 4096;
const IO_RECORD: u16 = 4;

/// HP SRT 1.3, as read off a real week that is also there as CSV: a text header that ends in a form feed, then
/// big-endian records: u32 length, u16 type, u16 version, u32 seconds and u32 microseconds of arrival, u32 start
/// and u32 finish relative to it, u32 bytes, u32 sector (512 B), u32 device (major, unit, partition), u32, u32,
/// u32 flags (bit 0: read), u32, u32.
#[derive(Debug, Default)]
pub(crate) struct HpSrt {
    has_header: bool,
}

impl HpSrt {
    /// The next I/O record; other records are passed over and counted in `ignored`.
    pub fn next(&mut self, stream: &mut dyn BufRead, ignored: &mut u64) -> io::Result<Option<Result<Raw, String>>> {
        if !self.has_header {
            if let Err(problem) = skip_header(stream)? {
                return Ok(Some(Err(problem)));
            }
            self.has_header = true;
        }
        loop {
            let mut word = [0; 4];
            match read_up_to(stream, &mut word)? {
                0 => return Ok(None),
                4 => {}
                _ => return Ok(Some(Err("the file ends inside a record".into()))),
            }
            let len = u32::from_be_bytes(word) as usize;
            if !(12..=LONGEST_RECORD_BYTES).contains(&len) {
                return Ok(Some(Err(format!("a record of {len} bytes"))));
            }
            let mut record = vec![0; len];
            record[..4].copy_from_slice(&word);
            if read_up_to(stream, &mut record[4..])? != len - 4 {
                return Ok(Some(Err("the file ends inside a record".into())));
            }
            if u16::from_be_bytes([record[4], record[5]]) != IO_RECORD {
                *ignored += 1;
                continue;
            }
            return Ok(Some(parse(&record)));
        }
    }
}

fn parse(record: &[u8]) -> Result<Raw, String> {
    if record.len() < 48 {
        return Err(format!("an I/O record of {} bytes", record.len()));
    }
    let word = |at: usize| u32::from_be_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]);
    let (seconds, us) = (word(8), word(12));
    let device = word(32);
    Ok(Raw {
        time_ns: u128::from(seconds) * 1_000_000_000 + u128::from(us) * 1000,
        kind: if word(44) & 1 == 1 { Kind::Read } else { Kind::Write },
        device: device >> 8 & 0xff,
        offset_bytes: u64::from(word(28)) * 512,
        len_bytes: u64::from(word(24)),
    })
}

fn skip_header(stream: &mut dyn BufRead) -> io::Result<Result<(), String>> {
    let mut seen = 0;
    loop {
        let buffer = stream.fill_buf()?;
        let end = buffer.iter().position(|byte| *byte == 0x0c);
        let used = end.map_or(buffer.len(), |end| end + 1);
        stream.consume(used);
        seen += used;
        if end.is_some() {
            return Ok(Ok(()));
        }
        if used == 0 || seen > LONGEST_HEADER_BYTES {
            return Ok(Err("the text header has no end".into()));
        }
    }
}

/// Fills the buffer as far as the stream goes.
pub(crate) fn read_up_to(stream: &mut dyn BufRead, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
