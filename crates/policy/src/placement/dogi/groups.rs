//! Which classes share a group, and what that is expected to cost.

use super::network::CLASSES;
use alloc::vec::Vec;

/// Number of ways to merge neighbouring classes.
pub(super) const MERGES: u32 = 1 << (CLASSES - 1);
/// A group has at least this share of the traffic.
const MIN_TRAFFIC: f64 = 0.0005;
/// A group has at least this many segments.
const MIN_SEGMENTS: f64 = 2.0;

/// What a configuration is computed from. Sizes in segments.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// Segments that groups can hold.
    pub segments: f64,
    /// Valid data.
    pub used: f64,
    /// Pages of a segment.
    pub data_pages: f64,
    /// Share of the host writes that go to the hot group.
    pub hot_traffic: f64,
    /// Host writes for which pages stay in the hot group.
    pub hot_bound: f64,
    /// Share of the pages of hot victims that are valid.
    pub hot_valid: f64,
    /// Upper bounds of the classes, in host writes.
    pub bounds: [f64; CLASSES],
    /// The predicted class of a page, and the host writes for which it lived.
    pub lives: Vec<(u8, f32)>,
    /// Max number of groups between the hot one and the frozen one.
    pub max_groups: usize,
}

/// A configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Groups {
    /// Number of groups between the hot one and the frozen one.
    pub count: u8,
    /// The group of each class, from 1 on.
    pub of_class: [u8; CLASSES],
    /// Bounds of groups from 1 on, in host writes; that of the last one is infinite.
    pub bounds: [f64; CLASSES],
    /// The write amplification expected.
    pub wa: f64,
}

/// Of the lives of a class, by the bound of a class.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lives {
    /// How many are at most as long as the bound.
    in_time: f64,
    /// The sum of the parts of all lives up to the bound.
    valid: f64,
}

/// The lives of class `c` by the bound of class `b`.
pub(super) type Table = [[Lives; CLASSES]; CLASSES];

impl Facts {
    /// Counts the lives once for all merges.
    pub fn table(&self) -> Table {
        let mut table = [[Lives::default(); CLASSES]; CLASSES];
        for (class, life) in &self.lives {
            let life = f64::from(*life);
            for (lives, bound) in table[usize::from(*class)].iter_mut().zip(&self.bounds) {
                lives.in_time += f64::from(u8::from(life <= *bound));
                lives.valid += life.min(*bound);
            }
        }
        table
    }

    /// The configuration in which class `c` and the next are in one group where bit `c` of `merge` is set; `None` if it is
    /// not feasible.
    pub fn groups(&self, table: &Table, merge: u32) -> Option<Groups> {
        let last = CLASSES - 1;
        let count = CLASSES - merge.count_ones() as usize;
        if count > self.max_groups {
            return None;
        }
        let mut groups = Groups { count: count as u8, of_class: [0; CLASSES], bounds: [0.0; CLASSES], wa: 0.0 };
        let mut flow = self.hot_traffic;
        let mut survives = self.hot_valid;
        let hot_segments = (self.hot_traffic * self.hot_bound / self.data_pages).max(MIN_SEGMENTS);
        // The hot group, the open segments of the last group and of the frozen one.
        let (mut held, mut size) = (hot_segments * (1.0 + survives) / 2.0, hot_segments + 3.0);
        let mut wa = 1.0 + flow * survives;
        let all = self.lives.len() as f64;
        let (mut class, mut group) = (0, 0);
        while class <= last {
            let first = class;
            while class < last && merge >> class & 1 != 0 {
                class += 1;
            }
            group += 1;
            groups.of_class[first..=class].fill(group as u8);
            groups.bounds[group - 1] = self.bounds[class];
            let here: f64 = table[first..=class].iter().map(|row| row[last].in_time).sum();
            let in_time: f64 = table[first..=class].iter().map(|row| row[class].in_time).sum();
            let valid: f64 = table[first..=class].iter().map(|row| row[class].valid).sum();
            flow = (1.0 - self.hot_traffic) * here / all + flow * survives;
            if flow < MIN_TRAFFIC && group < count {
                return None;
            }
            if group < count {
                survives = if here > 0.0 { 1.0 - in_time / here } else { 1.0 };
                let segments = libm::ceil(flow * self.bounds[class] / self.data_pages).max(MIN_SEGMENTS);
                // And the one that is open.
                size += segments + 1.0;
                held += if here > 0.0 { flow * valid / here / self.data_pages } else { segments };
                wa += flow * survives;
            }
            class += 1;
        }
        let (room, data) = (self.segments - size, self.used - held);
        if room < MIN_SEGMENTS {
            return None;
        }
        let valid = if data <= 0.0 { 0.0 } else { fifo_valid(room / data)? };
        groups.wa = wa + flow * valid / (1.0 - valid);
        Some(groups)
    }
}

/// What is valid of a victim of a queue over data that is written at random, `x` times as much space as data: the solution of
/// v = exp(-x (1 - v)). `None` if there is no space.
fn fifo_valid(x: f64) -> Option<f64> {
    if x <= 1.0 {
        return None;
    }
    let (mut low, mut high) = (0.0, 1.0 / x);
    for _ in 0..40 {
        let middle: f64 = (low + high) / 2.0;
        if libm::exp(-x * (1.0 - middle)) > middle {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(lives: Vec<(u8, f32)>) -> Facts {
        let mut bounds: [f64; CLASSES] = core::array::from_fn(|class| 100.0 * f64::from(1 << class));
        bounds[CLASSES - 1] = f64::INFINITY;
        Facts {
            segments: 1000.0,
            used: 900.0,
            data_pages: 10.0,
            hot_traffic: 0.2,
            hot_bound: 50.0,
            hot_valid: 0.1,
            bounds,
            lives,
            max_groups: 9,
        }
    }

    #[test]
    fn a_queue_over_random_writes_costs_what_theory_says() {
        // Over-provisioning of 10 %: WA 5.68 of FIFO (Desnoyers 2012).
        let valid = fifo_valid(1.1).unwrap();
        assert!((1.0 / (1.0 - valid) - 5.68).abs() < 0.1, "{}", 1.0 / (1.0 - valid));
        assert!((valid - libm::exp(-1.1 * (1.0 - valid))).abs() < 1e-6);
        assert_eq!(fifo_valid(1.0), None);
    }

    #[test]
    fn classes_that_are_predicted_well_are_worth_groups_of_their_own() {
        // Half of the writes live 150 writes, half for ever.
        let lives = (0..1000).map(|i| if i % 2 == 0 { (1, 150.0) } else { (9, 1e6) }).collect();
        let facts = facts(lives);
        let table = facts.table();
        let all = facts.groups(&table, MERGES - 1).unwrap();
        assert_eq!((all.count, all.of_class), (1, [1; CLASSES]));
        // Classes 0 and 1 in one group, the others in a second.
        let two = facts.groups(&table, (MERGES - 1) & !0b10).unwrap();
        assert_eq!((two.count, two.of_class), (2, [1, 1, 2, 2, 2, 2, 2, 2, 2, 2]));
        assert_eq!(two.bounds[..2], [200.0, f64::INFINITY]);
        assert!(two.wa < all.wa - 0.3, "{} {}", two.wa, all.wa);
    }

    #[test]
    fn groups_without_traffic_and_too_many_groups_are_refused() {
        let facts = facts(alloc::vec![(9, 1e6); 10]);
        let table = facts.table();
        assert_eq!(facts.groups(&table, 0), None, "ten groups");
        let mut cold = facts.clone();
        cold.hot_valid = 0.0;
        assert_eq!(cold.groups(&table, (MERGES - 1) & !0b10), None, "nothing comes to the first group");
        assert!(facts.groups(&table, (MERGES - 1) & !0b10).is_some(), "survivors of the hot group do");
    }
}
