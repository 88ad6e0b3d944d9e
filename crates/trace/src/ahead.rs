//! Lines as they usually are, read from the buffer before anyone has looked for their end.

use crate::text::{POWERS, ZEROS, digit_bits, eight_digits};

/// The longest usual line, end included; a power of two.
const LINE_BYTES: usize = 128;
/// Bytes that are read at once at any place of the line.
const READ_BYTES: usize = 16;

/// The start of what was read and not looked at yet. Every part is `None` if it is not as it usually is, and then the
/// line is read again with more patience, which also finds what is wrong with it.
#[derive(Clone, Copy)]
pub(crate) struct Ahead<'a> {
    bytes: &'a [u8; LINE_BYTES + READ_BYTES],
    /// Where the next part starts. It never goes back; once it is past the longest line, what is read is of no use, and
    /// [`Ahead::line_end`] says so.
    at: usize,
}

impl<'a> Ahead<'a> {
    /// `None` if the buffer is nearly at its end.
    #[inline(always)]
    pub fn new(unread: &'a [u8]) -> Option<Self> {
        Some(Self { bytes: unread.first_chunk()?, at: 0 })
    }

    /// What stands from here on.
    #[inline(always)]
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at % LINE_BYTES..]
    }

    /// Passes so many bytes, which the caller has looked at.
    #[inline(always)]
    pub fn pass(&mut self, len: usize) {
        self.at += len;
    }

    /// The eight bytes from so many bytes ahead on, the first in the lowest byte.
    #[inline(always)]
    pub fn word_at(&self, ahead: usize) -> u64 {
        let bytes = self.rest().get(ahead..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// The next eight bytes, likewise.
    #[inline(always)]
    pub fn word(&self) -> u64 {
        self.word_at(0)
    }

    /// A number of 1 to 19 digits, and the delimiter behind it.
    #[inline(always)]
    pub fn number(&mut self, delimiter: u8) -> Option<u64> {
        let word = self.word() ^ ZEROS;
        match digit_bits(word) {
            Some(0) => None,
            Some(bits) => self.last_digits(word, bits, delimiter),
            None => {
                self.at += 8;
                self.number_from(eight_digits(word), delimiter)
            }
        }
    }

    /// The rest of a number of 8 to 19 digits, whose first eight were passed and are this number, and the delimiter behind it.
    #[inline(always)]
    fn number_from(&mut self, first: u64, delimiter: u8) -> Option<u64> {
        let word = self.word() ^ ZEROS;
        let Some(bits) = digit_bits(word) else {
            self.at += 8;
            let (value, behind) = self.long_number_from(first * 100_000_000 + eight_digits(word), delimiter)?;
            *self = behind;
            return Some(value);
        };
        let last = self.last_digits(word, bits, delimiter)?;
        Some(first * POWERS[bits as usize / 8 % 8] + last)
    }

    /// The rest of a number of 16 to 19 digits likewise, and what is behind it: a place in memory would be slower for the
    /// others. More digits are for others to judge.
    #[cold]
    fn long_number_from(mut self, first: u64, delimiter: u8) -> Option<(u64, Self)> {
        let word = self.word() ^ ZEROS;
        let bits = digit_bits(word).filter(|bits| *bits <= 3 * 8)?;
        let last = self.last_digits(word, bits, delimiter)?;
        Some((first * POWERS[bits as usize / 8] + last, self))
    }

    /// The digits in the first so many bits of a word, and the delimiter behind them.
    #[inline(always)]
    fn last_digits(&mut self, word: u64, bits: u32, delimiter: u8) -> Option<u64> {
        self.at += bits as usize / 8 + 1;
        // Of a multiple of 8 below 64 this is the difference to 56.
        let behind = bits ^ 56;
        (word.wrapping_shr(bits) as u8 == delimiter ^ b'0').then(|| eight_digits((word << 8).wrapping_shl(behind)))
    }

    /// Passes at most 15 digits and the end of the line behind them, and returns the bytes of the line.
    #[inline(always)]
    pub fn line_end(&mut self) -> Option<usize> {
        let mut word = self.word();
        let bits = match digit_bits(word ^ ZEROS) {
            Some(bits) => bits,
            None => {
                self.at += 8;
                word = self.word();
                digit_bits(word ^ ZEROS)?
            }
        };
        self.at += bits as usize / 8 + 1;
        match word.wrapping_shr(bits) as u8 {
            b'\n' => {}
            b'\r' if self.word() as u8 == b'\n' => self.at += 1,
            _ => return None,
        }
        (self.at <= LINE_BYTES).then_some(self.at)
    }
}
