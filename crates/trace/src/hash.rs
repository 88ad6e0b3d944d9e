//! Hash tables for keys of a few bytes, of which there are millions in a trace.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// A hash table with a fast hash. As with the standard one nobody who writes a trace knows which keys collide: each table
/// has a secret of its own. Nothing may depend on its order.
pub(crate) type FastMap<K, V> = HashMap<K, V, Seeded>;

/// Makes the hashers of one table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seeded(u64);

impl Default for Seeded {
    fn default() -> Self {
        Self(RandomState::new().hash_one(0))
    }
}

impl BuildHasher for Seeded {
    type Hasher = Folded;

    #[inline]
    fn build_hasher(&self) -> Folded {
        Folded(self.0)
    }
}

/// Multiplies each word to 128 bits and adds the halves without carry, as wyhash and its kin do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Folded(u64);

impl Hasher for Folded {
    #[inline]
    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    #[inline]
    fn write_u128(&mut self, word: u128) {
        self.write_u64(word as u64);
        self.write_u64((word >> 64) as u64);
    }

    #[inline]
    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_that_differ_in_few_bits_are_spread_over_the_whole_range() {
        let seeded = Seeded::default();
        let keys = (0..8u32).flat_map(|device| (0..4096u64).map(move |page| (device, page << (device * 6))));
        let hashes: Vec<u64> = keys.map(|key| seeded.hash_one(key)).collect();
        for shift in [0, 20, 50] {
            let places: HashSet<u64> = hashes.iter().map(|hash| hash >> shift & 0x3fff).collect();
            // Balls into as many bins and twice as many: 1 - e^-2 of the bins are hit.
            assert!(places.len() > 13_000, "{} of 16384 places at bit {shift}", places.len());
        }
    }
}
