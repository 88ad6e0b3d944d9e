//! What is kept of a page, and the class that follows from it.

use crate::placement::Content;

/// Classes of pages for each octave of their mean interval: the last interval was about the mean, under half of it, over
/// twice as long; and chunks of files that are not complete. Of pages without a known interval: pages of a disk, headers of a
/// file system, complete chunks, and again those that are not.
pub(super) const STATES: usize = 4;
const HEADERS: u32 = 1;
pub(super) const COMPLETE: u32 = 2;
pub(super) const INCOMPLETE: u32 = 3;
/// With the same for pages that were written in order, after the page before them.
pub(super) const KINDS: usize = 2 * STATES;
/// Octaves of intervals.
pub(super) const OCTAVES: usize = Known::MEAN_BITS as usize;
/// The first class of pages without a known interval.
pub(super) const UNKNOWN: usize = OCTAVES * KINDS;
pub(super) const CLASSES: usize = UNKNOWN + KINDS;

/// What is known of a page.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    /// Host page writes when the host wrote it, modulo 2^32.
    pub written: u32,
    /// From the highest bit: the mean interval between its writes in units of `Lifetime::shift` ([`Known::MEAN_BITS`], the
    /// lowest of which says instead that it was written in order), its state ([`STATES`], 2 bits), the number of intervals up to
    /// 15 (4 bits). The mean is 0 if no interval is known.
    pub intervals: u32,
}

impl Known {
    const COUNT_BITS: u32 = 4;
    const STATE_BITS: u32 = 2;
    pub const MEAN_BITS: u32 = 32 - Self::COUNT_BITS - Self::STATE_BITS;

    pub const IN_ORDER: u32 = 1 << (Self::COUNT_BITS + Self::STATE_BITS);

    #[inline]
    pub fn mean(self) -> u32 {
        (self.intervals & !Self::IN_ORDER) >> (32 - Self::MEAN_BITS)
    }

    #[inline]
    pub fn count(self) -> u32 {
        self.intervals & ((1 << Self::COUNT_BITS) - 1)
    }

    #[inline]
    pub fn state(self) -> u32 {
        self.intervals >> Self::COUNT_BITS & ((1 << Self::STATE_BITS) - 1)
    }

    /// Notes what the page holds, where that says more than intervals.
    #[inline]
    pub fn hold(&mut self, content: Content) {
        let state = match content {
            Content::Chunk { whole: false, .. } => INCOMPLETE,
            Content::Chunk { .. } if self.count() == 0 => COMPLETE,
            Content::Headers { .. } if self.count() == 0 => HEADERS,
            _ => return,
        };
        self.intervals |= state << Self::COUNT_BITS;
    }

    #[inline]
    pub fn class(self) -> usize {
        let in_order = usize::from(self.intervals & Self::IN_ORDER != 0);
        let octave = 31 - (self.mean() | 1).leading_zeros() as usize;
        let octave = if self.count() == 0 { OCTAVES } else { octave };
        octave * KINDS + in_order * STATES + self.state() as usize
    }

    /// The intervals with one more, of a page that was not written in order: the mean of the first, then a mean in which older
    /// ones fade, each new one having a sixteenth.
    #[inline]
    pub fn with(self, interval: u32) -> u32 {
        let interval = interval.min((1 << Self::MEAN_BITS) - 1);
        let (mean, count) = (self.mean(), self.count());
        let shift = 32 - count.leading_zeros();
        let trend = if count == 0 { 0 } else { u32::from(interval < mean / 2) | u32::from(interval > 2 * mean) << 1 };
        let mean = (mean as i32 + ((interval as i32 - mean as i32) >> shift)).max(0) as u32;
        mean << (32 - Self::MEAN_BITS) & !Self::IN_ORDER | trend << Self::COUNT_BITS | (count + 1).min(15)
    }
}
