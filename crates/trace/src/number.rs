//! Numbers in text, without a detour over floating point.

/// A whole number.
pub(crate) fn whole(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii();
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |value, byte| match byte {
        b'0'..=b'9' => value.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    })
}

/// A decimal number times `unit`, rounded down: seconds to nanoseconds with a unit of 10^9.
pub(crate) fn scaled(text: &[u8], unit: u64) -> Option<u128> {
    let text = text.trim_ascii();
    let (before, after) = match text.iter().position(|byte| *byte == b'.') {
        Some(point) => (&text[..point], &text[point + 1..]),
        None => (text, &[][..]),
    };
    if before.is_empty() && after.is_empty() {
        return None;
    }
    let mut value = if before.is_empty() { 0 } else { u128::from(whole(before)?) * u128::from(unit) };
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
}
