//! CRC-32C (Castagnoli), as in iSCSI (RFC 3720, B.4).

#[cfg(any(not(feature = "std"), test))]
const TABLES: crc::Crc<u32, crc::Table<16>> = crc::Crc::<u32, crc::Table<16>>::new(&crc::CRC_32_ISCSI);

/// CRC-32C of `bytes`.
#[cfg(feature = "std")]
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// CRC-32C of `bytes`.
#[cfg(not(feature = "std"))]
pub fn crc32c(bytes: &[u8]) -> u32 {
    TABLES.checksum(bytes)
}

/// CRC-32C of `first` with `second` behind it.
#[cfg(feature = "std")]
#[inline]
pub(crate) fn crc32c_of_two(first: &[u8], second: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(first), second)
}

/// CRC-32C of `first` with `second` behind it.
#[cfg(not(feature = "std"))]
pub(crate) fn crc32c_of_two(first: &[u8], second: &[u8]) -> u32 {
    let mut digest = TABLES.digest();
    digest.update(first);
    digest.update(second);
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_value_and_both_implementations_agree() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        let bytes: [u8; 300] = core::array::from_fn(|i| (i * 7) as u8);
        for len in 0..bytes.len() {
            assert_eq!(crc32c(&bytes[..len]), TABLES.checksum(&bytes[..len]), "{len} bytes");
            assert_eq!(crc32c_of_two(&bytes[..len], &bytes[len..]), TABLES.checksum(&bytes), "{len} bytes first");
        }
    }
}
