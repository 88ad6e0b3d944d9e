//! Lines of text: reading them within a bound, and the first of a file for detection.

use std::io::{self, BufRead, Read};

/// The longest line that is read, in bytes without its end. No trace format has lines near it; a longer one is not
/// text, and reading it to its end could need any amount of memory.
pub const MAX_LINE_BYTES: usize = 1 << 16;

/// The problem that is reported for a line of more than [`MAX_LINE_BYTES`].
pub(crate) const TOO_LONG: &str = "the line is longer than 65536 bytes, so this is no text trace";

/// What [`next_line`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextLine {
    /// The buffer holds a line, with its end if it has one.
    Line,
    /// The buffer holds the start of a line that is longer than [`MAX_LINE_BYTES`].
    TooLong,
    /// There are no more lines.
    End,
}

/// Reads the next line into the buffer, which never grows past [`MAX_LINE_BYTES`] and one byte.
pub(crate) fn next_line(mut stream: &mut dyn BufRead, line: &mut Vec<u8>) -> io::Result<NextLine> {
    line.clear();
    let limit = MAX_LINE_BYTES as u64 + 1;
    Ok(match (&mut stream).take(limit).read_until(b'\n', line)? {
        0 => NextLine::End,
        n if n > MAX_LINE_BYTES && line.last() != Some(&b'\n') => NextLine::TooLong,
        _ => NextLine::Line,
    })
}

/// The lines of a text that are not empty, without white space around them.
pub(crate) fn full_lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty())
}

/// The start of a file whose format is looked for.
pub(crate) struct Sample<'a> {
    /// The file's name, as given.
    pub path: &'a str,
    /// Its first bytes.
    pub head: &'a [u8],
    /// Its first lines that are not empty; none if the file is binary.
    pub lines: Vec<&'a [u8]>,
}

/// Lines that are looked at.
const SAMPLE_LINES: usize = 64;

impl<'a> Sample<'a> {
    /// `is_whole` says that `head` is the whole file, so that its last line is not cut.
    pub fn new(path: &'a str, head: &'a [u8], is_whole: bool) -> Self {
        let mut sample = Self { path, head, lines: Vec::new() };
        if !sample.is_binary() {
            let last_end = head.iter().rposition(|byte| *byte == b'\n');
            let end = if is_whole { head.len() } else { last_end.unwrap_or(head.len()) };
            sample.lines = full_lines(&head[..end]).take(SAMPLE_LINES).collect();
        }
        sample
    }

    /// Whether the file is no text.
    pub fn is_binary(&self) -> bool {
        self.head.contains(&0)
    }

    /// The first line that is not empty.
    pub fn first_line(&self) -> Option<&'a [u8]> {
        self.lines.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_longest_length_is_read_and_one_byte_more_is_too_long() {
        let mut longest = vec![b'x'; MAX_LINE_BYTES];
        longest.extend(b"\nnext");
        let mut stream = &longest[..];
        let mut line = Vec::new();
        assert_eq!(next_line(&mut stream, &mut line).unwrap(), NextLine::Line);
        assert_eq!((line.len(), line.last()), (MAX_LINE_BYTES + 1, Some(&b'\n')));
        assert_eq!(next_line(&mut stream, &mut line).unwrap(), NextLine::Line);
        assert_eq!(line, b"next");
        assert_eq!(next_line(&mut stream, &mut line).unwrap(), NextLine::End);
        longest.insert(0, b'x');
        assert_eq!(next_line(&mut &longest[..], &mut line).unwrap(), NextLine::TooLong);
    }

    #[test]
    fn a_line_without_end_is_too_long_and_takes_no_more_memory_than_the_bound() {
        let mut line = Vec::new();
        let mut endless = std::io::BufReader::new(std::io::repeat(b'7'));
        assert_eq!(next_line(&mut endless, &mut line).unwrap(), NextLine::TooLong);
        assert!(line.capacity() <= 4 * MAX_LINE_BYTES, "{}", line.capacity());
        assert!(TOO_LONG.contains(&MAX_LINE_BYTES.to_string()));
    }
}
