//! Fields of a line of text: splitting, numbers without a detour over floating point, device names.

use crate::IoKind;
use crate::hash::FastMap;
use memchr::memchr_iter;
use std::hash::Hash;
use std::num::NonZeroU64;

/// An unsigned integer in decimal digits.
pub(crate) fn integer(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii();
    if text.is_empty() {
        return None;
    }
    if text.len() <= SAFE_DIGITS {
        let (value, len) = digits(text);
        return (len == text.len()).then_some(value);
    }
    text.iter().try_fold(0u64, |value, byte| match byte {
        b'0'..=b'9' => value.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    })
}

/// A decimal number times `unit`, rounded down. With a unit of 10^9, seconds become nanoseconds.
pub(crate) fn scaled(text: &[u8], unit: u64) -> Option<u128> {
    let text = text.trim_ascii();
    let (before, after) = match text.iter().position(|byte| *byte == b'.') {
        Some(point) => (&text[..point], &text[point + 1..]),
        None => (text, &[][..]),
    };
    if before.is_empty() && after.is_empty() {
        return None;
    }
    let mut value = if before.is_empty() { 0 } else { u128::from(integer(before)?) * u128::from(unit) };
    let mut place = u128::from(unit);
    for byte in after {
        if !byte.is_ascii_digit() {
            return None;
        }
        // Digits below a unit of the result are dropped.
        let digit = u128::from(byte - b'0') * place;
        place = place.max(1);
        value += digit / 10;
        place /= 10;
    }
    Some(value)
}

/// A number in hexadecimal digits.
pub(crate) fn unsigned_hex(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0, |number, digit| Some(number << 4 | u64::from(char::from(*digit).to_digit(16)?)))
}

/// The problem with a field that holds no number, or one that is too large.
pub(crate) fn not_a_number(what: &str) -> String {
    format!("the {what} is not a number, or too large")
}

/// Eight digits `0`, as the bytes of a word.
pub(crate) const ZEROS: u64 = 0x3030_3030_3030_3030;

/// Powers of ten by the number of their zeros.
pub(crate) const POWERS: [u64; 8] = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000];

/// How many bits of eight bytes of text, combined with [`ZEROS`] by exclusive or, are digits before the first byte that is none;
/// `None` if all are.
#[inline(always)]
pub(crate) fn digit_bits(word: u64) -> Option<u32> {
    // Digits are 0 to 9 now. Other bytes have a bit in their upper half, or get one by adding 6; the first of them is
    // found, because a sum carries only into the bytes behind it.
    let others = (word | word.wrapping_add(0x0606_0606_0606_0606)) & 0xf0f0_f0f0_f0f0_f0f0;
    Some(NonZeroU64::new(others)?.trailing_zeros() & 56)
}

/// The digits at the start of a text: their number, and how many they are. Of more than 19 digits the number is wrong.
#[inline(always)]
fn digits(text: &[u8]) -> (u64, usize) {
    let (mut value, mut rest) = (0u64, text);
    while let Some((eight, after)) = rest.split_first_chunk::<8>() {
        let word = u64::from_le_bytes(*eight) ^ ZEROS;
        if let Some(bits) = digit_bits(word) {
            let count = bits as usize / 8;
            if count > 0 {
                value = value.wrapping_mul(POWERS[count % 8]).wrapping_add(eight_digits(word << (64 - bits)));
            }
            return (value, text.len() - rest.len() + count);
        }
        value = value.wrapping_mul(100_000_000).wrapping_add(eight_digits(word));
        rest = after;
    }
    let mut len = text.len() - rest.len();
    for byte in rest {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        value = value.wrapping_mul(10).wrapping_add(digit.into());
        len += 1;
    }
    (value, len)
}

/// The number of eight digits from 0 to 9, the first in the lowest byte: pairs, then fours, then all by one
/// multiplication each.
#[inline(always)]
pub(crate) fn eight_digits(word: u64) -> u64 {
    let pairs = word.wrapping_mul(1 + (10 << 8)) >> 8 & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(1 + (100 << 16)) >> 16 & 0x0000_ffff_0000_ffff;
    fours.wrapping_mul(1 + (10_000 << 32)) >> 32
}

/// Digits that a number of 64 bits always has room for.
const SAFE_DIGITS: usize = 19;

/// The columns of a line, one after the other: between delimiters `D`, or, if `D` is a space, between any white space.
/// Numbers are read where they stand; only what is wrong is looked at twice. If the number of columns is wrong, that is
/// the error, whatever else is.
#[derive(Clone, Debug)]
pub(crate) struct Columns<'a, const D: u8> {
    line: &'a [u8],
    /// From the start of the next column.
    rest: &'a [u8],
    /// Whether there is no next column.
    ended: bool,
    /// How many columns there have to be; any number without it.
    wanted: Option<usize>,
}

impl<'a, const D: u8> Columns<'a, D> {
    const WORDS: bool = D == b' ';

    /// The columns of a line that has to have this many of them.
    #[inline(always)]
    pub fn exactly(line: &'a [u8], wanted: usize) -> Self {
        Self { wanted: Some(wanted), ..Self::any(line) }
    }

    /// The columns of a line that may have any number of them.
    #[inline(always)]
    pub fn any(line: &'a [u8]) -> Self {
        let rest = if Self::WORDS { line.trim_ascii_start() } else { line };
        Self { line, rest, ended: Self::WORDS && rest.is_empty(), wanted: None }
    }

    #[inline(always)]
    fn is_end(byte: u8) -> bool {
        if Self::WORDS { byte.is_ascii_whitespace() } else { byte == D }
    }

    /// Goes past the first `len` bytes if a column ends there.
    #[inline(always)]
    fn ends_after(&mut self, len: usize) -> bool {
        match self.rest.get(len..) {
            Some([byte, after @ ..]) if Self::is_end(*byte) => {
                self.rest = after;
                if Self::WORDS {
                    // Mostly there is one space.
                    if after.first().is_none_or(u8::is_ascii_whitespace) {
                        self.rest = after.trim_ascii_start();
                        self.ended = self.rest.is_empty();
                    }
                }
                true
            }
            Some([]) => {
                (self.rest, self.ended) = (&[], true);
                true
            }
            _ => false,
        }
    }

    /// The next column, if there is one.
    #[inline(always)]
    pub fn maybe(&mut self) -> Option<&'a [u8]> {
        const EACH: u64 = 0x0101_0101_0101_0101;
        if self.ended {
            return None;
        }
        let text = self.rest;
        if let Some(eight) = text.first_chunk::<8>() {
            // Delimiters become 0, white space is below 33. Of the bytes that are, the first gets the lowest bit that is set.
            let (word, below) = if Self::WORDS { (0, 33) } else { (EACH * D as u64, 1) };
            let word = u64::from_le_bytes(*eight) ^ word;
            let ends = word.wrapping_sub(EACH * below) & !word & (EACH << 7);
            let len = (ends.trailing_zeros() / 8) as usize;
            if ends != 0 && self.ends_after(len) {
                return Some(&text[..len]);
            }
        }
        let len = text.iter().position(|byte| Self::is_end(*byte)).unwrap_or(text.len());
        self.ends_after(len);
        Some(&text[..len])
    }

    /// Whether the next column starts with a digit.
    #[inline]
    pub fn next_is_digit(&self) -> bool {
        self.rest.first().is_some_and(u8::is_ascii_digit)
    }

    /// The next column.
    #[inline(always)]
    pub fn text(&mut self, what: &str) -> Result<&'a [u8], String> {
        self.maybe().ok_or_else(|| self.wrong(format!("the {what} is missing")))
    }

    /// The next column as an unsigned integer.
    #[inline(always)]
    pub fn whole(&mut self, what: &str) -> Result<u64, String> {
        let (value, len) = digits(self.rest);
        if (1..=SAFE_DIGITS).contains(&len) && self.ends_after(len) {
            return Ok(value);
        }
        self.odd_number(what)
    }

    #[cold]
    fn odd_number(&mut self, what: &str) -> Result<u64, String> {
        let text = self.text(what)?;
        integer(text).ok_or_else(|| self.wrong(not_a_number(what)))
    }

    /// The next column as an unsigned integer of 32 bits.
    #[inline(always)]
    pub fn small(&mut self, what: &str) -> Result<u32, String> {
        let value = self.whole(what)?;
        u32::try_from(value).map_err(|_| self.wrong(not_a_number(what)))
    }

    /// The next column, a number of sectors of 512 bytes, in bytes.
    #[inline(always)]
    pub fn sectors(&mut self, what: &str) -> Result<u64, String> {
        let value = self.whole(what)?;
        value.checked_mul(512).ok_or_else(|| self.wrong(not_a_number(what)))
    }

    /// The next column, a time whose unit is `unit_ns`, a power of ten, in nanoseconds.
    #[inline(always)]
    pub fn time(&mut self, unit_ns: u64) -> Result<u128, String> {
        match short_time(self.rest, unit_ns) {
            Some((time_ns, len)) if self.ends_after(len) => Ok(time_ns),
            _ => self.odd_time(unit_ns),
        }
    }

    #[cold]
    fn odd_time(&mut self, unit_ns: u64) -> Result<u128, String> {
        let text = self.text("time")?;
        time(text, unit_ns).map_err(|problem| self.wrong(problem))
    }

    /// The next column as a request's type, in the words that most formats use.
    #[inline(always)]
    pub fn read_or_write(&mut self) -> Result<IoKind, String> {
        let text = self.text("type")?;
        read_or_write(text).ok_or_else(|| self.wrong("the type is neither a read nor a write".into()))
    }

    /// The next column and the one behind it, as they stand.
    #[inline(always)]
    pub fn two(&mut self, what: &str) -> Result<&'a [u8], String> {
        let start = self.rest;
        let (first, second) = (self.text(what)?, self.text(what)?);
        Ok(&start[..first.len() + 1 + second.len()])
    }

    /// That there are no more columns.
    #[inline(always)]
    pub fn end(&self) -> Result<(), String> {
        if self.ended { Ok(()) } else { Err(self.wrong(String::new())) }
    }

    /// What is wrong with the line: the number of its columns, or else this.
    #[cold]
    pub fn wrong(&self, problem: String) -> String {
        let count = if Self::WORDS { words(self.line).count() } else { memchr_iter(D, self.line).count() + 1 };
        match self.wanted {
            Some(wanted) if count != wanted => format!("{count} columns where {wanted} are expected"),
            _ => problem,
        }
    }
}

/// The time at the start of a text and the bytes that it takes, unless it has more digits than numbers usually have.
#[inline(always)]
fn short_time(text: &[u8], unit_ns: u64) -> Option<(u128, usize)> {
    let (value, len) = digits(text);
    let whole_ns = u128::from(value) * u128::from(unit_ns);
    if !(1..=SAFE_DIGITS).contains(&len) {
        return None;
    }
    if text.get(len) != Some(&b'.') {
        return Some((whole_ns, len));
    }
    let (after, places) = digits(&text[len + 1..]);
    // With this many places after the point every unit is a whole number of the last one, or the other way round.
    let last = *POWERS_OF_TEN.get(places)?;
    let fraction_ns = if unit_ns >= last { after * (unit_ns / last) } else { after / (last / unit_ns) };
    Some((whole_ns + u128::from(fraction_ns), len + 1 + places))
}

/// A time in nanoseconds; `unit_ns`, a power of ten, is the unit of the text.
pub(crate) fn time(text: &[u8], unit_ns: u64) -> Result<u128, String> {
    match short_time(text, unit_ns) {
        Some((time_ns, len)) if len == text.len() => Ok(time_ns),
        _ => scaled(text, unit_ns).ok_or_else(|| not_a_number("time")),
    }
}

const POWERS_OF_TEN: [u64; 10] = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000];

/// A request's type in the words that most formats use.
#[inline]
fn read_or_write(text: &[u8]) -> Option<IoKind> {
    match text {
        b"R" | b"r" | b"Read" | b"read" | b"READ" => Some(IoKind::Read),
        b"W" | b"w" | b"Write" | b"write" | b"WRITE" => Some(IoKind::Write),
        [first, .., last] if first.is_ascii_whitespace() || last.is_ascii_whitespace() => {
            read_or_write(text.trim_ascii())
        }
        _ => None,
    }
}

/// Splits a line into words between white space.
pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// Numbers the devices that a trace names, in the order of first appearance.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceNames {
    numbers: FastMap<Vec<u8>, u32>,
    names: Vec<Vec<u8>>,
    /// The name that was asked for last, and its number: mostly the one that comes next, too.
    last: Option<(Vec<u8>, u32)>,
}

/// Devices that a trace can name. More are a sign of a wrong column, and would grow memory with the trace.
const MAX_NAMED_DEVICES: usize = 1 << 16;
/// Bytes of the longest name of a device. A longer one is a wrong column, too.
const MAX_DEVICE_NAME_BYTES: usize = 256;

impl DeviceNames {
    /// The number of the device with this name.
    #[inline]
    pub fn number(&mut self, name: &[u8]) -> Result<u32, String> {
        match &self.last {
            Some((last, number)) if last == name => Ok(*number),
            _ => self.another(name),
        }
    }

    /// The name of the device with this number.
    pub fn name(&self, number: u32) -> Option<String> {
        Some(String::from_utf8_lossy(self.names.get(number as usize)?).into_owned())
    }

    fn another(&mut self, name: &[u8]) -> Result<u32, String> {
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None => self.add(name)?,
        };
        let (last, of_last) = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(name);
        *of_last = number;
        Ok(number)
    }

    fn add(&mut self, name: &[u8]) -> Result<u32, String> {
        if name.len() > MAX_DEVICE_NAME_BYTES {
            return Err(format!("a device is named by {} bytes; is it the right column?", name.len()));
        }
        if self.numbers.len() == MAX_NAMED_DEVICES {
            return Err(format!("more than {MAX_NAMED_DEVICES} devices are named; is it the right column?"));
        }
        let number = self.numbers.len() as u32;
        self.numbers.insert(name.to_vec(), number);
        self.names.push(name.to_vec());
        Ok(number)
    }
}

/// Objects that a trace can name. Each takes some tens of bytes of memory.
const MAX_TRACE_OBJECTS: usize = 1 << 26;

/// Adds an object to a map if it is not too many for the bound or for the memory.
pub(crate) fn insert_object<K: Eq + Hash>(objects: &mut FastMap<K, u64>, key: K, offset: u64) -> Result<(), String> {
    if objects.len() >= MAX_TRACE_OBJECTS {
        return Err(format!("more than {MAX_TRACE_OBJECTS} objects are named"));
    }
    objects.try_reserve(1).map_err(|_| format!("there is no memory for more than {} objects", objects.len()))?;
    objects.insert(key, offset);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        assert_eq!(scaled(b"1577808000.000046", 1_000_000_000), Some(1_577_808_000_000_046_000));
        assert_eq!(scaled(b" 0.5 ", 1000), Some(500));
        assert_eq!(scaled(b".25", 1_000_000), Some(250_000));
        assert_eq!(scaled(b"7", 100), Some(700));
        assert_eq!(scaled(b"0.1234567890123", 1_000_000_000), Some(123_456_789));
        for bad in [&b""[..], b".", b"1e5", b"-1", b"1.2.3", b"12a", b"99999999999999999999"] {
            assert_eq!(scaled(bad, 1000), None, "{bad:?}");
        }
    }

    /// The number of a text with nothing but digits and white space around them.
    fn plain(text: &str) -> Option<u64> {
        let text = text.trim_ascii();
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
    }

    #[test]
    fn numbers_and_times_in_columns_are_those_of_the_columns_alone() {
        let alphabet = b"0123456789012345678901234567890123456789.. x+,,,,\xff\0/:";
        let mut state = 5u64;
        let mut next = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let (mut whole, mut times) = (0, 0);
        for _ in 0..100_000 {
            let text: Vec<u8> = (0..next(60)).map(|_| alphabet[next(alphabet.len())]).collect();
            let texts: Vec<&[u8]> = text.split(|byte| *byte == b',').collect();
            let unit = POWERS_OF_TEN[next(10)];
            let (mut numbers, mut seconds) = (Columns::<b','>::any(&text), Columns::<b','>::any(&text));
            for column in texts {
                let expected = std::str::from_utf8(column).ok().and_then(plain);
                assert_eq!((integer(column), numbers.whole("n").ok()), (expected, expected), "{text:?}");
                assert_eq!(seconds.time(unit).ok(), scaled(column, unit), "{text:?}");
                whole += u64::from(expected.is_some());
                times += u64::from(column.contains(&b'.') && scaled(column, unit).is_some());
            }
            assert_eq!(numbers.whole("n"), Err("the n is missing".into()));
            let mut in_words = Columns::<b' '>::any(&text);
            for word in words(&text) {
                let expected = std::str::from_utf8(word).ok().and_then(plain);
                assert_eq!(in_words.whole("n").ok(), expected, "{text:?}");
            }
            assert!(in_words.end().is_ok() && in_words.maybe().is_none());
        }
        assert!(whole > 20_000 && times > 5000, "{whole} numbers, {times} times");
    }

    #[test]
    fn the_number_of_columns_is_the_first_thing_that_is_wrong() {
        let mut columns = Columns::<b','>::exactly(b"x,2", 3);
        assert_eq!(columns.whole("a"), Err("2 columns where 3 are expected".into()));
        let mut columns = Columns::<b' '>::exactly(b" 1  x 3 ", 3);
        assert_eq!(columns.whole("a"), Ok(1));
        assert_eq!(columns.whole("b"), Err(not_a_number("b")));
        let mut columns = Columns::<b','>::exactly(b"7,8,9,", 3);
        assert_eq!((columns.whole("a"), columns.two("b").map(<[u8]>::len)), (Ok(7), Ok(3)));
        assert_eq!(columns.end(), Err("4 columns where 3 are expected".into()));
    }

    #[test]
    fn devices_are_numbered_by_first_appearance_up_to_a_bound() {
        let mut names = DeviceNames::default();
        assert_eq!((names.number(b"sda"), names.number(b"sdb"), names.number(b"sda")), (Ok(0), Ok(1), Ok(0)));
        for number in 2..MAX_NAMED_DEVICES {
            assert_eq!(names.number(number.to_string().as_bytes()), Ok(number as u32));
        }
        assert!(names.number(b"one more").unwrap_err().contains("65536 devices"));
        assert_eq!(names.number(b"sdb"), Ok(1));
        assert_eq!((names.name(1), names.name(70_000)), (Some("sdb".into()), None));
        let mut names = DeviceNames::default();
        assert_eq!(names.number(&[b'n'; MAX_DEVICE_NAME_BYTES]), Ok(0));
        assert!(names.number(&[b'n'; MAX_DEVICE_NAME_BYTES + 1]).unwrap_err().contains("257 bytes"));
    }
}
