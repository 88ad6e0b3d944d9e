use alloc::{vec, vec::Vec};

/// Rows of bits with a hierarchy of summaries above each, so that the first set bit of a row is found in
/// one step per level (a level is a factor of 64).
///
/// For selection a row is a number of valid pages and a column a segment, so all rows together take about one bit per
/// page.
#[derive(Clone, Debug)]
pub struct BucketBits {
    levels: Vec<Level>,
}

#[derive(Clone, Debug)]
struct Level {
    words_per_row: usize,
    words: Vec<u64>,
}

impl BucketBits {
    /// `rows` rows of `columns` bits, all clear.
    pub fn new(rows: usize, columns: usize) -> Self {
        let mut levels = Vec::new();
        let mut width = columns.max(1);
        loop {
            width = width.div_ceil(64);
            levels.push(Level { words_per_row: width, words: vec![0; width * rows] });
            if width == 1 {
                return Self { levels };
            }
        }
    }

    /// Clears every bit.
    pub fn clear_all(&mut self) {
        for level in &mut self.levels {
            level.words.fill(0);
        }
    }

    /// Sets a bit.
    #[inline]
    pub fn set(&mut self, row: u32, column: u32) {
        let mut column = column as usize;
        for level in &mut self.levels {
            let word = &mut level.words[row as usize * level.words_per_row + column / 64];
            let before = *word;
            *word |= 1 << (column % 64);
            if before != 0 {
                return;
            }
            column /= 64;
        }
    }

    /// Clears a bit.
    #[inline]
    pub fn clear(&mut self, row: u32, column: u32) {
        let mut column = column as usize;
        for level in &mut self.levels {
            let word = &mut level.words[row as usize * level.words_per_row + column / 64];
            *word &= !(1 << (column % 64));
            if *word != 0 {
                return;
            }
            column /= 64;
        }
    }

    /// Whether a row has no bit set.
    #[inline]
    pub fn is_empty(&self, row: u32) -> bool {
        self.levels.last().is_none_or(|top| top.words[row as usize] == 0)
    }

    /// The lowest column set in a row.
    pub fn first(&self, row: u32) -> Option<u32> {
        let mut column = 0;
        for level in self.levels.iter().rev() {
            let word = level.words[row as usize * level.words_per_row + column];
            if word == 0 {
                return None;
            }
            column = column * 64 + word.trailing_zeros() as usize;
        }
        Some(column as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_bit_of_a_row_is_that_of_a_sorted_set(
            columns in prop_oneof![1usize..70, 4000usize..4200, Just(300_000usize)],
            steps in proptest::collection::vec((any::<u32>(), 0u32..3, any::<bool>()), 1..200),
        ) {
            let mut bits = BucketBits::new(3, columns);
            let mut rows = [const { BTreeSet::new() }; 3];
            for (column, row, set) in steps {
                let column = column % columns as u32;
                if set {
                    bits.set(row, column);
                    rows[row as usize].insert(column);
                } else {
                    bits.clear(row, column);
                    rows[row as usize].remove(&column);
                }
                for row in 0..3 {
                    prop_assert_eq!(bits.first(row), rows[row as usize].first().copied());
                    prop_assert_eq!(bits.is_empty(row), rows[row as usize].is_empty());
                }
            }
        }
    }
}
