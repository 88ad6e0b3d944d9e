use crate::age::{AgeCeilings, AgeFunction};
use alloc::{vec, vec::Vec};

const FAN: usize = 8;

/// A key of a [`MinTree`]. The largest value means that there is no key.
pub trait Key: Copy + Ord {
    /// The value that means "no key".
    const ABSENT: Self;
}

impl Key for u32 {
    const ABSENT: Self = Self::MAX;
}

impl Key for u64 {
    const ABSENT: Self = Self::MAX;
}

/// A tree of minima, eight children to a node.
#[derive(Clone, Debug)]
pub struct MinTree<K = u32> {
    /// All levels, the keys first.
    nodes: Vec<K>,
    /// Where each level starts.
    starts: Vec<usize>,
    /// Where the parents of the keys start.
    parents: usize,
}

impl<K: Key> MinTree<K> {
    /// `len` absent keys.
    pub fn new(len: usize) -> Self {
        let (mut starts, mut total, mut width) = (Vec::new(), 0, len.max(2));
        loop {
            starts.push(total);
            total += width.next_multiple_of(FAN);
            if width == 1 {
                return Self { nodes: vec![K::ABSENT; total], parents: starts[1], starts };
            }
            width = width.div_ceil(FAN);
        }
    }

    fn top(&self) -> usize {
        self.starts.len() - 1
    }

    fn node(&self, level: usize, at: usize) -> K {
        self.nodes[self.starts[level] + at]
    }

    /// The smallest key, absent if all are.
    pub fn minimum(&self) -> K {
        self.node(self.top(), 0)
    }

    /// Sets a key that may be larger or smaller than before.
    pub fn set(&mut self, at: usize, key: K) {
        self.nodes[at] = key;
        let mut at = at;
        for level in 1..self.starts.len() {
            let group = self.starts[level - 1] + at / FAN * FAN;
            let minimum = self.nodes[group..group + FAN].iter().copied().min().unwrap_or(K::ABSENT);
            at /= FAN;
            let node = &mut self.nodes[self.starts[level] + at];
            if *node == minimum {
                return;
            }
            *node = minimum;
        }
    }

    /// Sets a key that is not larger than before. The update ends at the first ancestor whose minimum is as small
    /// already, which is the parent unless the key is the smallest of its eight.
    #[inline]
    pub fn lower(&mut self, at: usize, key: K) {
        self.nodes[at] = key;
        let parent = &mut self.nodes[self.parents + at / FAN];
        if *parent > key {
            *parent = key;
            self.lower_above(at / FAN, key);
        }
    }

    fn lower_above(&mut self, mut at: usize, key: K) {
        for start in &self.starts[2..] {
            at /= FAN;
            let node = &mut self.nodes[start + at];
            if *node <= key {
                return;
            }
            *node = key;
        }
    }

    /// The lowest index that holds the smallest key.
    pub fn first(&self) -> Option<usize> {
        let minimum = self.minimum();
        if minimum == K::ABSENT {
            return None;
        }
        let mut at = 0;
        for level in (0..self.top()).rev() {
            let first = self.starts[level] + at * FAN;
            at = at * FAN + self.nodes[first..first + FAN].iter().position(|key| *key == minimum)?;
        }
        Some(at)
    }

    /// Makes every key absent.
    pub fn clear(&mut self) {
        self.nodes.fill(K::ABSENT);
    }
}

/// Finds the minimum of weight / f(age), f not falling with the age, without looking at every candidate.
///
/// Leaves are columns in the order of opening, so ages fall from left to right, and the age of the first column of a
/// subtree is a bound for all of it. With the smallest weight in the subtree this bounds the quotient from below, and a
/// subtree whose bound exceeds the best quotient found is passed over. Exact for every such f. Weights change one by
/// one; ages, which change all at once, are never stored. Bounds take f from a table that is never below it, so that f
/// itself is evaluated for few candidates.
#[derive(Clone, Debug)]
pub struct AgeTree {
    /// Weights as the bits of positive floats, which are ordered as the floats are.
    weights: MinTree<u64>,
    opened: Vec<u64>,
    ceilings: AgeCeilings,
    /// Memory of [`AgeTree::minimum`]: subtrees to look into, each with a bound, its level and place.
    stack: Vec<(f64, u32, u32)>,
}

impl AgeTree {
    /// A tree without candidates, for the age transformation f.
    pub fn new(columns: usize, f: &AgeFunction) -> Self {
        let weights = MinTree::new(columns);
        let stack = Vec::with_capacity(FAN * (weights.top() + 1));
        Self { weights, opened: vec![0; columns], ceilings: AgeCeilings::new(f), stack }
    }

    /// Records when the segment at a column was opened. Columns must be given in ascending order of time.
    pub fn open(&mut self, column: u32, opened: u64) {
        self.opened[column as usize] = opened;
    }

    /// Adds a candidate of positive weight, or one whose weight has fallen.
    #[inline]
    pub fn lower(&mut self, column: u32, weight: f64) {
        debug_assert!(weight > 0.0);
        self.weights.lower(column as usize, weight.to_bits());
    }

    /// Removes a candidate.
    pub fn remove(&mut self, column: u32) {
        self.weights.set(column as usize, u64::ABSENT);
    }

    /// Removes every candidate.
    pub fn clear(&mut self) {
        self.weights.clear();
    }

    /// The column with the smallest weight / f(`now` - opened), the lowest column among equals, and the number of nodes
    /// looked at.
    pub fn minimum(&mut self, now: u64, f: &AgeFunction) -> (Option<u32>, u32) {
        let Self { weights, opened, ceilings, stack } = self;
        let age = |column: usize| now.saturating_sub(opened[column]);
        let cost = |column: usize| f64::from_bits(weights.nodes[column]) / f.of(age(column));
        // The lightest is a good guess, with which most subtrees are passed over.
        let Some(lightest) = weights.first() else { return (None, 0) };
        let (mut least, mut best, mut looked_at) = (cost(lightest), lightest, 0);
        let may_win =
            |cost: f64, column: usize, least: f64, best: usize| cost < least || (cost == least && column < best);
        stack.clear();
        stack.push((0.0, weights.top() as u32, 0));
        while let Some((bound, level, at)) = stack.pop() {
            let (level, at) = (level as usize, at as usize);
            let span = 1 << (FAN.ilog2() as usize * (level - 1));
            if !may_win(bound, at * FAN * span, least, best) {
                continue;
            }
            // The oldest of a group is a bound for all of it: any that weighs more costs more than the best, roundings
            // included. Weights are compared as integers.
            let limit = (least * ceilings.of(age(at * FAN * span)) * (1.0 + 8.0 * f64::EPSILON)).to_bits();
            let first = weights.starts[level - 1] + at * FAN;
            let keys = &weights.nodes[first..first + FAN];
            let mut light = keys.iter().rev().fold(0u32, |light, key| light << 1 | u32::from(*key <= limit));
            while light != 0 {
                let number = light.trailing_zeros() as usize;
                light &= light - 1;
                looked_at += 1;
                let child = at * FAN + number;
                let column = child * span;
                let bound = f64::from_bits(keys[number]) / ceilings.of(age(column));
                if !may_win(bound, column, least, best) {
                    continue;
                }
                if level > 1 {
                    stack.push((bound, level as u32 - 1, child as u32));
                    continue;
                }
                let exact = cost(column);
                if may_win(exact, column, least, best) {
                    (least, best) = (exact, column);
                }
            }
        }
        (Some(best as u32), looked_at)
    }
}
