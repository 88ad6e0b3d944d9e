//! One file per format. A text format turns a line into a request; a binary one reads a stream.

pub(crate) mod blkparse;
pub(crate) mod csv;
pub(crate) mod fio;
pub(crate) mod hp_srt;
pub(crate) mod mgt;
pub(crate) mod oracle;
pub(crate) mod simple;

use crate::Kind;

/// A request as the file states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Raw {
    /// On the file's own clock.
    pub time_ns: u128,
    pub kind: Kind,
    pub device: u32,
    pub offset_bytes: u64,
    pub len_bytes: u64,
}

/// What a line holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Request(Raw),
    /// Nothing to replay, and why.
    Ignored(&'static str),
}

pub(crate) const HEADER: Line = Line::Ignored("header");
pub(crate) const COMMENT: Line = Line::Ignored("comment or empty line");

/// A format of lines.
pub(crate) trait LineFormat: Send {
    /// Reads one line without its end.
    fn line(&mut self, line: &[u8]) -> Result<Line, String>;
}

/// A number that is not one.
pub(crate) fn not_a(what: &str) -> String {
    format!("the {what} is not a number, or too large")
}

/// Numbers devices in the order of first appearance.
#[derive(Clone, Debug, Default)]
pub(crate) struct Devices(std::collections::HashMap<Vec<u8>, u32>);

impl Devices {
    pub fn number(&mut self, name: &[u8]) -> u32 {
        if let Some(number) = self.0.get(name) {
            return *number;
        }
        let number = self.0.len() as u32;
        self.0.insert(name.to_vec(), number);
        number
    }
}

/// A number of sectors of 512 bytes in bytes.
pub(crate) fn sectors(what: &str, text: &[u8]) -> Result<u64, String> {
    crate::number::whole(text).and_then(|sectors| sectors.checked_mul(512)).ok_or_else(|| not_a(what))
}

/// A whole number.
pub(crate) fn whole(what: &str, text: &[u8]) -> Result<u64, String> {
    crate::number::whole(text).ok_or_else(|| not_a(what))
}

/// A whole number of 32 bits.
pub(crate) fn small(what: &str, text: &[u8]) -> Result<u32, String> {
    whole(what, text)?.try_into().map_err(|_| not_a(what))
}

/// A time in nanoseconds.
pub(crate) fn time(text: &[u8], unit_ns: u64) -> Result<u128, String> {
    crate::number::scaled(text, unit_ns).ok_or_else(|| not_a("time"))
}

/// Exactly `N` fields between delimiters.
pub(crate) fn fields<const N: usize>(line: &[u8], delimiter: u8) -> Result<[&[u8]; N], String> {
    let mut out = [&[][..]; N];
    let mut count = 0;
    for field in line.split(|byte| *byte == delimiter) {
        if count < N {
            out[count] = field;
        }
        count += 1;
    }
    if count == N { Ok(out) } else { Err(format!("{count} columns where {N} are expected")) }
}

/// Exactly `N` words between white space.
pub(crate) fn words<const N: usize>(line: &[u8]) -> Result<[&[u8]; N], String> {
    let mut out = [&[][..]; N];
    let mut count = 0;
    for word in line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
        if count < N {
            out[count] = word;
        }
        count += 1;
    }
    if count == N { Ok(out) } else { Err(format!("{count} columns where {N} are expected")) }
}
