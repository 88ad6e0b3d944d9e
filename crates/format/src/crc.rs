//! CRC-32C (Castagnoli), as in iSCSI (RFC 3720, B.4).

/// For microcontrollers: 1 KiB. A table of 16 KiB takes 5 instructions per byte instead of 8.
#[cfg(any(not(feature = "std"), test))]
static TABLE: crc::Crc<u32, crc::Table<1>> = crc::Crc::<u32, crc::Table<1>>::new(&crc::CRC_32_ISCSI);

/// CRC-32C of `bytes`. Not inlined: the crate would put all its variants into every caller, 0.9 MB in all.
#[cfg(feature = "std")]
#[inline(never)]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// CRC-32C of `bytes`.
#[cfg(not(feature = "std"))]
pub fn crc32c(bytes: &[u8]) -> u32 {
    TABLE.checksum(bytes)
}

/// CRC-32C of `first` with `second` behind it.
#[cfg(feature = "std")]
#[inline(never)]
pub(crate) fn crc32c_of_two(first: &[u8], second: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(first);
    digest.update(second);
    digest.finalize() as u32
}

/// CRC-32C of `first` with `second` behind it.
#[cfg(not(feature = "std"))]
pub(crate) fn crc32c_of_two(first: &[u8], second: &[u8]) -> u32 {
    let mut digest = TABLE.digest();
    digest.update(first);
    digest.update(second);
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{vec, vec::Vec};
    use rand::{Rng, RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// From the polynomial, bit by bit.
    fn by_definition(bytes: &[u8]) -> u32 {
        let shift = |crc: u32| (crc >> 1) ^ (0x82F6_3B78 & (crc & 1).wrapping_neg());
        !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| shift(crc)))
    }

    /// With the feature `std` [`crc32c`] is the processor's instruction, without it the table: all are compared.
    #[test]
    fn every_implementation_gives_the_same_checksum() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let long = [(1 << 20) - 1, 3_000_017];
        let lengths: Vec<usize> =
            (0..300).chain((0..200).map(|_| random.random_range(300..20_000))).chain(long).collect();
        for len in lengths {
            let mut bytes = vec![0; len];
            random.fill_bytes(&mut bytes);
            let cut = random.random_range(0..=len);
            let expected = by_definition(&bytes);
            assert_eq!(crc32c(&bytes), expected, "{len} bytes");
            assert_eq!(TABLE.checksum(&bytes), expected, "{len} bytes");
            assert_eq!(crc32c_of_two(&bytes[..cut], &bytes[cut..]), expected, "{cut} of {len} bytes first");
        }
    }
}
