//! How long pages live: a histogram of the host page writes between two writes of a page.

use alloc::{vec, vec::Vec};

/// Max number of bins.
const MAX_BINS: u64 = 1 << 16;
/// Max factor for intervals that the epoch cuts; few as long as that are seen.
const MAX_UNSEEN: f64 = 4.0;

/// Counts the intervals between writes of the same page over an epoch.
#[derive(Clone, Debug)]
pub(super) struct Intervals {
    /// Host page writes that a bin spans.
    pub bin: u32,
    counts: Vec<u32>,
}

impl Intervals {
    /// For an epoch of `writes` host page writes; bins of at least `bin` of them.
    pub fn new(writes: u64, bin: u32) -> Self {
        let bin = u64::from(bin.max(1)).max(writes.div_ceil(MAX_BINS));
        Self { bin: bin as u32, counts: vec![0; writes.div_ceil(bin) as usize] }
    }

    /// Counts an interval. One longer than the epoch counts as of its length.
    #[inline]
    pub fn count(&mut self, writes: u32) {
        let last = self.counts.len() - 1;
        let count = &mut self.counts[((writes / self.bin) as usize).min(last)];
        *count = count.saturating_add(1);
    }

    /// What was counted, in segments of `data_pages` pages. All writes of the epoch whose interval was not seen whole, beside
    /// those that were cut by its ends, have the longest one.
    pub fn distribution(&self, data_pages: u32) -> Distribution {
        let bins = self.counts.len();
        let width = f64::from(self.bin) / f64::from(data_pages);
        let writes = f64::from(self.bin) * bins as f64;
        let mut cumulated = Vec::with_capacity(bins + 1);
        let mut sum = Cumulated::default();
        cumulated.push(sum);
        for (i, count) in self.counts.iter().enumerate() {
            let mut count = f64::from(*count) * unseen(i, bins);
            if i + 1 == bins {
                count = count.max(writes - sum.number);
            }
            sum.area += sum.number + count / 2.0;
            sum.number += count;
            sum.weight += count * (i as f64 + 0.5);
            cumulated.push(sum);
        }
        Distribution { width, cumulated }
    }
}

/// By how much intervals of bin `i` are to be multiplied because the epoch, `bins` long, began or ended inside some: those
/// that begin in its last `i` bins are not seen.
fn unseen(i: usize, bins: usize) -> f64 {
    (bins as f64 / (bins as f64 - i as f64 - 0.5)).min(MAX_UNSEEN)
}

/// Sums over all bins before a place.
#[derive(Clone, Copy, Debug, Default)]
struct Cumulated {
    /// Intervals.
    number: f64,
    /// Intervals times their length in bins.
    weight: f64,
    /// Integral of `number`, in bins.
    area: f64,
}

/// A distribution of intervals. Lengths are in segments of host writes.
#[derive(Clone, Debug)]
pub(super) struct Distribution {
    /// Length of a bin.
    width: f64,
    cumulated: Vec<Cumulated>,
}

impl Distribution {
    /// The longest interval.
    pub fn end(&self) -> f64 {
        self.width * (self.cumulated.len() - 1) as f64
    }

    fn all(&self) -> Cumulated {
        self.cumulated[self.cumulated.len() - 1]
    }

    /// Whether anything was counted.
    pub fn is_empty(&self) -> bool {
        self.all().number <= 0.0
    }

    /// The sums over all intervals shorter than this.
    fn below(&self, length: f64) -> Cumulated {
        let at = (length / self.width).clamp(0.0, (self.cumulated.len() - 1) as f64);
        let low = at as usize;
        let from = self.cumulated[low];
        let Some(to) = self.cumulated.get(low + 1) else { return from };
        let part = at - low as f64;
        let number = from.number + part * (to.number - from.number);
        Cumulated {
            number,
            weight: from.weight + part * (to.weight - from.weight),
            area: from.area + part * (from.number + number) / 2.0,
        }
    }

    /// The share of intervals shorter than this.
    #[cfg(test)]
    pub fn share_below(&self, length: f64) -> f64 {
        self.below(length).number / self.all().number
    }

    /// The length below which this share of the intervals lies.
    pub fn quantile(&self, share: f64) -> f64 {
        let wanted = share * self.all().number;
        self.width * self.cumulated.partition_point(|sum| sum.number < wanted) as f64
    }

    /// The shortest time, and the share of writes that it covers, in which writes repeated within it fill `segments`.
    pub fn time_to_fill(&self, segments: f64) -> Option<(f64, f64)> {
        let all = self.all().number;
        let fills = |at: usize| at as f64 * self.width * self.cumulated[at].number / all >= segments;
        // Both factors grow with the bin.
        let (mut low, mut high) = (1, self.cumulated.len() - 1);
        if !fills(high) {
            return None;
        }
        while low < high {
            let middle = (low + high) / 2;
            if fills(middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Some((low as f64 * self.width, self.cumulated[low].number / all))
    }

    /// Of pages that live longer than `from`: the share that is valid after `time` more, and the mean share valid in it.
    pub fn survival(&self, from: f64, time: f64) -> Option<(f64, f64)> {
        let (start, end) = (self.below(from), self.below(from + time));
        let left = self.all().number - start.number;
        if left <= 0.0 || time <= 0.0 {
            return None;
        }
        let lost = (end.area - start.area) * self.width / time - start.number;
        Some((1.0 - (end.number - start.number) / left, 1.0 - lost / left))
    }

    /// Of intervals longer than `from`, divided at 0.7 of their mean: the share of the shorter ones among all writes, and among
    /// the pages written.
    pub fn two_classes(&self, from: f64) -> Option<(f64, f64)> {
        let (start, all) = (self.below(from), self.all());
        let (number, weight) = (all.number - start.number, all.weight - start.weight);
        if number <= 0.0 || weight <= 0.0 {
            return None;
        }
        let middle = self.below(0.7 * weight / number * self.width);
        let writes = (middle.number - start.number).max(0.0) / number;
        let pages = (middle.weight - start.weight).max(0.0) / weight;
        Some((writes, pages))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All intervals equally frequent, 4 bins to a segment, 25 segments.
    fn even() -> Distribution {
        let mut intervals = Intervals::new(800, 8);
        intervals.counts.fill(10);
        intervals.distribution(32)
    }

    #[test]
    fn long_intervals_count_for_those_that_the_epoch_did_not_see_whole() {
        assert!((unseen(0, 100) - 1.0).abs() < 0.01);
        assert!((unseen(49, 100) - 100.0 / 50.5).abs() < 1e-9);
        assert_eq!(unseen(99, 100), MAX_UNSEEN);
    }

    #[test]
    fn pages_written_again_and_again_give_their_interval_although_the_epoch_cuts_it() {
        // Two pages, each written every 400 of 800 writes, among others that are written once.
        let mut intervals = Intervals::new(800, 8);
        (0..2).for_each(|_| intervals.count(400));
        let distribution = intervals.distribution(32);
        let number = distribution.below(13.0).number;
        assert!((3.9..4.1).contains(&number), "{number} of the 4 intervals of 400 that begin in 800 writes");
        assert!((distribution.all().number - 800.0).abs() < 1e-9, "every write has an interval");
    }

    #[test]
    fn survival_is_that_of_the_intervals_counted() {
        let mut intervals = Intervals::new(2000, 8);
        (0..1000).for_each(|_| intervals.count(4));
        (0..500).for_each(|_| intervals.count(12));
        let distribution = intervals.distribution(32);
        assert_eq!(distribution.end(), 62.5);
        let (after, mean) = distribution.survival(0.0, 0.25).unwrap();
        assert!((after - 0.5).abs() < 0.01 && (mean - 0.75).abs() < 0.01, "{after} {mean}");
        let (after, _) = distribution.survival(0.25, 0.25).unwrap();
        assert!((after - 0.5).abs() < 0.01, "{after}");
        assert_eq!(distribution.survival(63.0, 1.0), None, "nothing lives longer");
        assert!((distribution.share_below(0.25) - 0.5).abs() < 0.01);
        assert_eq!(distribution.quantile(0.6), 0.5);
    }

    #[test]
    fn the_time_to_fill_is_the_first_in_which_repeated_writes_fill_the_space() {
        let distribution = even();
        let (time, share) = distribution.time_to_fill(1.0).unwrap();
        assert!(time * share >= 1.0 && (time - 0.25) * distribution.share_below(time - 0.25) < 1.0, "{time} {share}");
        assert_eq!(distribution.time_to_fill(26.0), None);
    }

    #[test]
    fn two_classes_divide_writes_and_pages() {
        let mut intervals = Intervals::new(8000, 8);
        // Of 8000 writes 7200 are of 84 pages, the others of pages that are written once.
        (0..7200).for_each(|_| intervals.count(84));
        let (writes, pages) = intervals.distribution(32).two_classes(0.0).unwrap();
        assert!((writes - 0.9).abs() < 0.02, "{writes}");
        assert!((pages - 0.9 * 84.0 / (0.9 * 84.0 + 0.1 * 8000.0)).abs() < 0.02, "{pages}");
    }
}
