//! The text of `valgrind --tool=lackey --trace-mem=yes`: a line for each access of the program.

use super::format::{Opened, ReferenceReader, VmFormatRow};
use super::{Reducer, Reference, VmHeader};
use crate::Example;
use crate::format::Stream;
use crate::lines::{Lines, NextLine, TOO_LONG};
use crate::text::unsigned_hex;
use std::collections::VecDeque;
use std::io;

pub(super) static ROW: VmFormatRow = VmFormatRow {
    name: "lackey",
    summary: "one of I, L, S, M (instruction, load, store, both), then address (hex),size (bytes)",
    source: "Valgrind manual, Lackey, --trace-mem=yes",
    detect,
    open,
    is_written: false,
    example: Example {
        file_name: "lackey.txt",
        bytes: b"==7== Lackey, an example Valgrind tool\nI  04001000,3\n L 1ffeffe7e,2\n S 1ffefffff,2\n",
        requests: 4,
    },
};

/// Lines that show the format without Valgrind's banner.
const DETECTION_LINES: usize = 20;
/// How far into the file Valgrind's banner names the tool.
const BANNER_BYTES: usize = 64;

fn detect(head: &[u8]) -> bool {
    let has_banner = head.starts_with(b"==") && head.windows(8).take(BANNER_BYTES).any(|word| word == b" Lackey,");
    let mut lines = head.split(|byte| *byte == b'\n').take(DETECTION_LINES).map(parse);
    let is_access = |line| matches!(line, Some(Line::Access { .. }));
    has_banner || (lines.clone().filter(|line| is_access(*line)).count() > 2 && lines.all(|line| line.is_some()))
}

fn open(stream: Stream, header: VmHeader) -> io::Result<Result<Opened, String>> {
    let reducer = Reducer::new(header.window);
    let (lines, pending) = (Lines::new(stream), VecDeque::new());
    Ok(Ok((header, Box::new(LackeyReader { lines, header, reducer, number: 0, pending }))))
}

/// An access of more bytes than this is damage.
pub(super) const MAX_ACCESS_BYTES: u64 = 1 << 20;

struct LackeyReader {
    lines: Lines<Stream>,
    header: VmHeader,
    reducer: Reducer,
    /// Of the last line.
    number: u64,
    /// Pages of the last access that were not handed out yet.
    pending: VecDeque<Reference>,
}

impl ReferenceReader for LackeyReader {
    fn next(&mut self) -> io::Result<Option<Result<Reference, String>>> {
        loop {
            while let Some(touch) = self.pending.pop_front() {
                if self.reducer.keeps(touch) {
                    return Ok(Some(Ok(touch)));
                }
            }
            let next = self.lines.next()?;
            self.number += 1;
            match next {
                NextLine::End => return Ok(None),
                NextLine::TooLong => return Ok(Some(Err(TOO_LONG.into()))),
                NextLine::Line => {}
            }
            match parse(self.lines.line()) {
                Some(Line::Access { fetch: true, .. }) if !self.header.fetches => {}
                Some(Line::Access { bytes, .. }) if bytes > MAX_ACCESS_BYTES => {
                    return Ok(Some(Err("an access of more than 1 MiB".into())));
                }
                Some(Line::Access { address, bytes, write, .. }) => {
                    self.pending.extend(pages(address, bytes, write, self.header.page_shift));
                }
                Some(Line::Other) => {}
                None => {
                    let problem = "expected I, L, S or M, an address in hex, a comma and a size";
                    return Ok(Some(Err(problem.into())));
                }
            }
        }
    }

    fn place(&self) -> (u64, &[u8]) {
        (self.number, self.lines.line())
    }
}

/// A line of lackey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Bytes at an address are read or written; `fetch` marks the fetch of an instruction, which is a read.
    Access { address: u64, bytes: u64, write: bool, fetch: bool },
    /// A message of Valgrind, or an empty line.
    Other,
}

/// Parses `I  04001090,3`, ` L 1ffeffe7e,2`, ` S ...` and ` M ...`; `None` if the line is none of these.
pub(super) fn parse(line: &[u8]) -> Option<Line> {
    let line = line.trim_ascii();
    if line.is_empty() || line.starts_with(b"==") || line.starts_with(b"--") {
        return Some(Line::Other);
    }
    let (write, fetch) = match line[0] {
        b'I' => (false, true),
        b'L' => (false, false),
        b'S' | b'M' => (true, false),
        _ => return None,
    };
    let rest = line[1..].strip_prefix(b" ")?.trim_ascii_start();
    let comma = rest.iter().position(|byte| *byte == b',')?;
    let address = unsigned_hex(&rest[..comma])?;
    let bytes = std::str::from_utf8(&rest[comma + 1..]).ok()?.parse().ok()?;
    Some(Line::Access { address, bytes, write, fetch })
}

/// The pages that an access touches.
pub(super) fn pages(address: u64, bytes: u64, write: bool, page_shift: u8) -> impl Iterator<Item = Reference> {
    let last = address.saturating_add(bytes.max(1) - 1) >> page_shift;
    (address >> page_shift..=last).map(move |page| Reference { page, write })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_lackey_are_read_and_others_are_told_apart() {
        let access = |address, bytes, write, fetch| Some(Line::Access { address, bytes, write, fetch });
        assert_eq!(parse(b"I  04001090,3\n"), access(0x0400_1090, 3, false, true));
        assert_eq!(parse(b" L 1ffeffe7e,2"), access(0x1_ffef_fe7e, 2, false, false));
        assert_eq!(parse(b" S 1000,16"), access(0x1000, 16, true, false));
        assert_eq!(parse(b" M 1000,8"), access(0x1000, 8, true, false));
        assert_eq!(parse(b"==123== Lackey, an example Valgrind tool"), Some(Line::Other));
        for bad in [&b"X 1000,8"[..], b" L 1000", b" L ,8", b" L 10g0,8", b" L 1000,-8", b"L1000,8"] {
            assert_eq!(parse(bad), None, "{:?}", String::from_utf8_lossy(bad));
        }
        let crossing: Vec<_> = pages(2047, 2, true, 11).map(|touch| touch.page).collect();
        assert_eq!(crossing, [0, 1]);
        assert_eq!(pages(u64::MAX, 8, false, 11).count(), 1);
    }
}
