//! Fields of a line of text: splitting, numbers without a detour over floating point, device names.

use crate::Kind;
use std::collections::HashMap;
use std::hash::Hash;

/// An unsigned integer in decimal digits.
pub(crate) fn integer(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii();
    if text.is_empty() {
        return None;
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

/// The field `what` as an unsigned integer.
pub(crate) fn whole(what: &str, text: &[u8]) -> Result<u64, String> {
    integer(text).ok_or_else(|| not_a_number(what))
}

/// The field `what` as an unsigned integer of 32 bits.
pub(crate) fn small(what: &str, text: &[u8]) -> Result<u32, String> {
    whole(what, text)?.try_into().map_err(|_| not_a_number(what))
}

/// The field `what`, a number of sectors of 512 bytes, in bytes.
pub(crate) fn sectors(what: &str, text: &[u8]) -> Result<u64, String> {
    integer(text).and_then(|sectors| sectors.checked_mul(512)).ok_or_else(|| not_a_number(what))
}

/// A time in nanoseconds; `unit_ns` is the unit of the text.
pub(crate) fn time(text: &[u8], unit_ns: u64) -> Result<u128, String> {
    scaled(text, unit_ns).ok_or_else(|| not_a_number("time"))
}

/// A request's type in the words that most formats use.
pub(crate) fn read_or_write(text: &[u8]) -> Result<Kind, String> {
    match text.trim_ascii() {
        b"R" | b"r" | b"Read" | b"read" | b"READ" => Ok(Kind::Read),
        b"W" | b"w" | b"Write" | b"write" | b"WRITE" => Ok(Kind::Write),
        _ => Err("the type is neither a read nor a write".into()),
    }
}

/// Splits a line into exactly `N` fields between delimiters.
pub(crate) fn fields<const N: usize>(line: &[u8], delimiter: u8) -> Result<[&[u8]; N], String> {
    exactly(line.split(|byte| *byte == delimiter))
}

/// Splits a line into words between white space.
pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// The parts of a line as an array; an error if there are not exactly `N`.
pub(crate) fn exactly<'a, const N: usize>(parts: impl Iterator<Item = &'a [u8]>) -> Result<[&'a [u8]; N], String> {
    let mut out = [&[][..]; N];
    let mut count = 0;
    for part in parts {
        if count < N {
            out[count] = part;
        }
        count += 1;
    }
    if count == N { Ok(out) } else { Err(format!("{count} columns where {N} are expected")) }
}

/// Numbers the devices that a trace names, in the order of first appearance.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceNames(HashMap<Vec<u8>, u32>);

/// Devices that a trace can name. More are a sign of a wrong column, and would grow memory with the trace.
const MAX_NAMED_DEVICES: usize = 1 << 16;
/// Bytes of the longest name of a device. A longer one is a wrong column, too.
const MAX_DEVICE_NAME_BYTES: usize = 256;

impl DeviceNames {
    /// The number of the device with this name.
    pub fn number(&mut self, name: &[u8]) -> Result<u32, String> {
        if let Some(number) = self.0.get(name) {
            return Ok(*number);
        }
        if name.len() > MAX_DEVICE_NAME_BYTES {
            return Err(format!("a device is named by {} bytes; is it the right column?", name.len()));
        }
        if self.0.len() == MAX_NAMED_DEVICES {
            return Err(format!("more than {MAX_NAMED_DEVICES} devices are named; is it the right column?"));
        }
        let number = self.0.len() as u32;
        self.0.insert(name.to_vec(), number);
        Ok(number)
    }
}

/// Objects that a trace can name. Each takes some tens of bytes of memory.
const MAX_TRACE_OBJECTS: usize = 1 << 26;

/// Adds an object to a map if it is not too many for the bound or for the memory.
pub(crate) fn insert_object<K: Eq + Hash>(objects: &mut HashMap<K, u64>, key: K, offset: u64) -> Result<(), String> {
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

    #[test]
    fn devices_are_numbered_by_first_appearance_up_to_a_bound() {
        let mut names = DeviceNames::default();
        assert_eq!((names.number(b"sda"), names.number(b"sdb"), names.number(b"sda")), (Ok(0), Ok(1), Ok(0)));
        for number in 2..MAX_NAMED_DEVICES {
            assert_eq!(names.number(number.to_string().as_bytes()), Ok(number as u32));
        }
        assert!(names.number(b"one more").unwrap_err().contains("65536 devices"));
        assert_eq!(names.number(b"sdb"), Ok(1));
        let mut names = DeviceNames::default();
        assert_eq!(names.number(&[b'n'; MAX_DEVICE_NAME_BYTES]), Ok(0));
        assert!(names.number(&[b'n'; MAX_DEVICE_NAME_BYTES + 1]).unwrap_err().contains("257 bytes"));
    }
}
