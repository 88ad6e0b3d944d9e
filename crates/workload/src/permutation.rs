/// A pseudo-random bijection of `0..len` without a table: a Feistel network over the next even power of two, applied
/// again until the value is below `len` (cycle walking, Black and Rogaway 2002).
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    len: u32,
    half_bits: u32,
    keys: [u32; Self::ROUNDS],
}

impl Permutation {
    const ROUNDS: usize = 6;

    /// The bijection of `0..len` for `seed`.
    pub fn new(len: u32, seed: u64) -> Self {
        let bits = 32 - len.saturating_sub(1).leading_zeros();
        let mut state = seed ^ 0x6A09_E667_F3BC_C909;
        let keys = std::array::from_fn(|_| {
            // SplitMix64.
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            (z ^ (z >> 31)) as u32
        });
        Self { len, half_bits: bits.div_ceil(2).max(1), keys }
    }

    fn mix(value: u32, key: u32) -> u32 {
        let z = (value ^ key).wrapping_mul(0x9E37_79B1);
        let z = (z ^ (z >> 15)).wrapping_mul(0x85EB_CA77);
        z ^ (z >> 13)
    }

    fn walk(&self, start: u32, step: impl Fn(u32, u32) -> (u32, u32)) -> u32 {
        let mask = (1u32 << self.half_bits) - 1;
        let mut value = u64::from(start);
        loop {
            let (high, low) = step((value >> self.half_bits) as u32, value as u32 & mask);
            value = u64::from(high) << self.half_bits | u64::from(low);
            if value < u64::from(self.len) {
                return value as u32;
            }
        }
    }

    /// The image of an index, which must be below the length.
    pub fn image(&self, index: u32) -> u32 {
        debug_assert!(index < self.len);
        let mask = (1u32 << self.half_bits) - 1;
        self.walk(index, |high, low| {
            self.keys.iter().fold((high, low), |(high, low), key| (low, high ^ Self::mix(low, *key) & mask))
        })
    }

    /// The index whose image is `image`, which must be below the length: the inverse of [`Permutation::image`].
    pub fn index(&self, image: u32) -> u32 {
        debug_assert!(image < self.len);
        let mask = (1u32 << self.half_bits) - 1;
        self.walk(image, |high, low| {
            self.keys.iter().rev().fold((high, low), |(high, low), key| (low ^ Self::mix(high, *key) & mask, high))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_bijection_with_an_inverse_at_every_length() {
        for len in (1..70).chain([255, 256, 257, 5245, 65_536]) {
            let permutation = Permutation::new(len, u64::from(len) * 31);
            let mut seen = vec![false; len as usize];
            for index in 0..len {
                let image = permutation.image(index);
                assert!(!std::mem::replace(&mut seen[image as usize], true), "{len}: {image} twice");
                assert_eq!(permutation.index(image), index);
            }
        }
        let largest = Permutation::new(u32::MAX, 1);
        assert_eq!(largest.index(largest.image(4_000_000_000)), 4_000_000_000);
    }

    #[test]
    fn images_of_a_prefix_lie_all_over_the_space() {
        let permutation = Permutation::new(10_000, 3);
        let mut tenths = [0; 10];
        (0..1000).for_each(|index| tenths[permutation.image(index) as usize / 1000] += 1);
        assert!(tenths.iter().all(|count| (60..140).contains(count)), "{tenths:?}");
    }
}
