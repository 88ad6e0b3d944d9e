//! Numbers in as few bytes as they need: LEB128, and zigzag for those with a sign.

use std::io;

/// The longest number of 64 bits, in bytes.
pub const MAX_BYTES: usize = 10;

/// Appends a number.
#[inline]
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a number off the start of `bytes`; `None` if they end before it does.
///
/// # Errors
/// The number has more than 64 bits.
#[inline]
pub fn take(bytes: &mut &[u8]) -> io::Result<Option<u64>> {
    if let [byte @ 0..0x80, rest @ ..] = *bytes {
        *bytes = rest;
        return Ok(Some(u64::from(*byte)));
    }
    take_long(bytes)
}

fn take_long(bytes: &mut &[u8]) -> io::Result<Option<u64>> {
    let too_long = || io::Error::new(io::ErrorKind::InvalidData, "a number of more than 64 bits");
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate().take(MAX_BYTES) {
        let shift = 7 * at as u32;
        let part = u64::from(byte & 0x7f);
        if part << shift >> shift != part {
            return Err(too_long());
        }
        value |= part << shift;
        if *byte < 0x80 {
            *bytes = &bytes[at + 1..];
            return Ok(Some(value));
        }
    }
    if bytes.len() < MAX_BYTES {
        return Ok(None);
    }
    Err(too_long())
}

/// A number with a sign as one without, near to 0 if it is.
#[inline]
pub const fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

/// The inverse of [`zigzag`].
#[inline]
pub const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_taken_and_ends_too_early_are_told_from_numbers_that_are_too_long() {
        let numbers = (0..64).flat_map(|bit| [1u64 << bit, (1 << bit) - 1, u64::MAX - (1 << bit)]);
        for number in numbers {
            let mut bytes = Vec::new();
            put(&mut bytes, number);
            let mut all = &bytes[..];
            assert_eq!((take(&mut all).unwrap(), all.len()), (Some(number), 0));
            assert_eq!(take(&mut &bytes[..bytes.len() - 1]).unwrap(), None);
            assert_eq!(zigzag(unzigzag(number)), number);
        }
        assert!(take(&mut &[0xff; MAX_BYTES][..]).is_err());
        for last in [2, 0x7f] {
            let mut more_than_64_bits = [0xff; MAX_BYTES];
            more_than_64_bits[MAX_BYTES - 1] = last;
            assert!(take(&mut &more_than_64_bits[..]).is_err(), "{last}");
        }
        assert_eq!([0, -1, 1, -2].map(zigzag), [0, 1, 2, 3]);
    }
}
