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
            at = (at * FAN..at * FAN + FAN).find(|child| self.node(level, *child) == minimum)?;
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
/// one; ages, which change all at once, are never stored.
#[derive(Clone, Debug)]
pub struct AgeTree {
    /// Weights as the bits of positive floats, which are ordered as the floats are.
    weights: MinTree<u64>,
    opened: Vec<u64>,
}

impl AgeTree {
    /// A tree without candidates.
    pub fn new(columns: usize) -> Self {
        Self { weights: MinTree::new(columns), opened: vec![0; columns] }
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

    /// The column with the smallest weight / `f(now - opened)`, the lowest column among equals, and the number
    /// of nodes looked at.
    pub fn minimum(&self, now: u64, f: impl Fn(u64) -> f64) -> (Option<u32>, u32) {
        let mut best: Option<(f64, usize)> = None;
        let mut looked_at = 0;
        let top = self.weights.top();
        let mut stack: Vec<(f64, usize, usize)> = Vec::with_capacity(FAN * (top + 1));
        if self.weights.minimum() != u64::ABSENT {
            stack.push((0.0, top, 0));
        }
        let is_worse = |bound: f64, first: usize, best: Option<(f64, usize)>| {
            best.is_some_and(|(cost, column)| bound > cost || (bound == cost && first > column))
        };
        while let Some((bound, level, at)) = stack.pop() {
            let span = FAN.pow(level as u32);
            if is_worse(bound, at * span, best) {
                continue;
            }
            if level == 0 {
                best = Some((bound, at));
                continue;
            }
            let (below, pushed, span) = (level - 1, stack.len(), span / FAN);
            // The oldest of a group is a bound for all of it, which saves most evaluations of f.
            let oldest = f(now.saturating_sub(self.opened[at * FAN * span]));
            for child in at * FAN..at * FAN + FAN {
                let key = self.weights.node(below, child);
                if key == u64::ABSENT {
                    continue;
                }
                looked_at += 1;
                let weight = f64::from_bits(key);
                if is_worse(weight / oldest, child * span, best) {
                    continue;
                }
                let bound = weight / f(now.saturating_sub(self.opened[child * span]));
                if !is_worse(bound, child * span, best) {
                    stack.push((bound, below, child));
                }
            }
            // The cheapest subtree is on top of the stack, so that a good victim is found early; the leftmost among
            // equals.
            stack[pushed..].sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(b.2.cmp(&a.2)));
        }
        (best.map(|(_, column)| column as u32), looked_at)
    }
}
