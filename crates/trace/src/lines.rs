//! Lines of text: reading them within a bound, and the first of a file for detection.

use memchr::memchr;
use std::io::{self, Read};
use std::ops::Range;

/// The longest line that is read, in bytes without its end. No trace format has lines near it; a longer one is not
/// text, and reading it to its end could need any amount of memory.
pub const MAX_LINE_BYTES: usize = 1 << 16;

/// The problem that is reported for a line of more than [`MAX_LINE_BYTES`].
pub(crate) const TOO_LONG: &str = "the line is longer than 65536 bytes, so this is no text trace";

/// What [`Lines::next`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextLine {
    /// [`Lines::line`] is a line.
    Line,
    /// [`Lines::line`] is the start of a line that is longer than [`MAX_LINE_BYTES`]; its rest counts as the next one.
    TooLong,
    /// There are no more lines.
    End,
}

/// Bytes that are read at once; more than a line of the longest length with its end.
const BUFFER_BYTES: usize = 2 * MAX_LINE_BYTES;

/// The lines of a stream, in a buffer that never grows. A line is looked at where it was read to.
pub(crate) struct Lines<R> {
    stream: R,
    buffer: Box<[u8]>,
    /// The line that was found last, in the buffer.
    line: Range<usize>,
    /// What was read behind it.
    unread: Range<usize>,
}

impl<R: Read> Lines<R> {
    pub fn new(stream: R) -> Self {
        Self { stream, buffer: vec![0; BUFFER_BYTES].into(), line: 0..0, unread: 0..0 }
    }

    /// The line that was found last, without its end; empty before the first.
    #[inline]
    pub fn line(&self) -> &[u8] {
        &self.buffer[self.line.clone()]
    }

    /// Goes to the next line.
    #[inline]
    pub fn next(&mut self) -> io::Result<NextLine> {
        match memchr(b'\n', self.unread()) {
            Some(len) if len <= MAX_LINE_BYTES => Ok(self.found(len, 1)),
            _ => self.read_on(),
        }
    }

    /// What was read behind the line that was found last.
    #[inline(always)]
    pub fn unread(&self) -> &[u8] {
        &self.buffer[self.unread.clone()]
    }

    /// Passes a line of this many bytes, end included. It counts as found with its end.
    #[inline(always)]
    pub fn pass(&mut self, bytes: usize) {
        self.line = self.unread.start..self.unread.start + bytes;
        self.unread.start = self.line.end;
    }

    fn found(&mut self, len: usize, end_bytes: usize) -> NextLine {
        self.line = self.unread.start..self.unread.start + len;
        self.unread.start = self.line.end + end_bytes;
        NextLine::Line
    }

    /// Reads until the buffer holds a whole line.
    #[cold]
    fn read_on(&mut self) -> io::Result<NextLine> {
        self.buffer.copy_within(self.unread.clone(), 0);
        (self.line, self.unread) = (0..0, 0..self.unread.len());
        let mut searched = 0;
        loop {
            let end = self.unread.end;
            let len = memchr(b'\n', &self.buffer[searched..end]).map(|at| searched + at);
            if len.unwrap_or(end) > MAX_LINE_BYTES {
                (self.line, self.unread.start) = (0..MAX_LINE_BYTES, MAX_LINE_BYTES);
                return Ok(NextLine::TooLong);
            }
            if let Some(len) = len {
                return Ok(self.found(len, 1));
            }
            searched = end;
            match self.stream.read(&mut self.buffer[end..]) {
                Ok(0) if end == 0 => return Ok(NextLine::End),
                Ok(0) => return Ok(self.found(end, 0)),
                Ok(n) => self.unread.end += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
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
        let mut lines = Lines::new(&longest[..]);
        assert_eq!(lines.next().unwrap(), NextLine::Line);
        assert_eq!((lines.line().len(), lines.line().last()), (MAX_LINE_BYTES, Some(&b'x')));
        assert_eq!(lines.next().unwrap(), NextLine::Line);
        assert_eq!(lines.line(), b"next");
        assert_eq!(lines.next().unwrap(), NextLine::End);
        longest.insert(0, b'x');
        assert_eq!(Lines::new(&longest[..]).next().unwrap(), NextLine::TooLong);
        longest.truncate(MAX_LINE_BYTES);
        let mut lines = Lines::new(&longest[..]);
        assert_eq!((lines.next().unwrap(), lines.line().len()), (NextLine::Line, MAX_LINE_BYTES));
    }

    /// Hands out few bytes at once, and fails now and then as a system call does that a signal interrupts.
    struct Dribble<'a>(&'a [u8], usize);

    impl Read for Dribble<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 += 1;
            if self.1.is_multiple_of(3) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let len = self.0.len().min(self.1 % 7 + 1).min(buffer.len());
            buffer[..len].copy_from_slice(&self.0[..len]);
            self.0 = &self.0[len..];
            Ok(len)
        }
    }

    #[test]
    fn lines_are_those_of_the_text_however_it_arrives() {
        let mut text = Vec::new();
        (0..40_000u32).for_each(|at| text.extend(format!("{}\n", "7".repeat((at * 7 % 40) as usize)).bytes()));
        text.extend(b"the last has no end");
        for stream in [Box::new(&text[..]) as Box<dyn Read>, Box::new(Dribble(&text, 0))] {
            let mut lines = Lines::new(stream);
            for wanted in text.split(|byte| *byte == b'\n') {
                assert_eq!((lines.next().unwrap(), lines.line()), (NextLine::Line, wanted));
            }
            assert_eq!(lines.next().unwrap(), NextLine::End);
        }
    }

    #[test]
    fn a_line_without_end_is_too_long_and_takes_no_more_memory_than_the_bound() {
        let mut endless = Lines::new(io::repeat(b'7'));
        assert_eq!(endless.next().unwrap(), NextLine::TooLong);
        assert!(endless.buffer.len() <= 4 * MAX_LINE_BYTES, "{}", endless.buffer.len());
        assert!(TOO_LONG.contains(&MAX_LINE_BYTES.to_string()));
    }
}
