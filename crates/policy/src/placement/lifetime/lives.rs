//! How long the pages of a class live.

use crate::octaves;

/// Pages that have to be left of an age for their remaining life to be known.
const ENOUGH: f32 = 2.0;
/// Pages written in order are regular if so large a part of them lives equally long, within an octave. Of pages that die by
/// chance a quarter does.
const REGULAR_SHARE: f32 = 0.6;
/// Pages of a class that have to be seen before they are taken for regular.
const SEEN_PAGES: f32 = 32.0;

/// Pages and how long they live.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lives {
    /// Pages that the host wrote.
    pub written: f32,
    /// Those of them that died, by their age.
    pub died: [f32; octaves::COUNT],
}

impl Lives {
    pub const NONE: Self = Self { written: 0.0, died: [0.0; octaves::COUNT] };

    pub fn are_none(&self) -> bool {
        self.written == 0.0 && self.died.iter().all(|died| *died == 0.0)
    }

    pub fn add(&mut self, other: &Self, weight: f32) {
        self.written += weight * other.written;
        self.died.iter_mut().zip(&other.died).for_each(|(died, more)| *died += weight * more);
    }

    /// Adds so many pages of a larger group that these belong to, by which they are judged while they are few.
    pub fn lean_on(&mut self, group: &Self, pages: f32) {
        if group.written > 0.0 {
            self.add(group, (pages / group.written).min(1.0));
        }
    }

    /// The life that most of them have, in host page writes, if it is nearly the same for most.
    pub fn regular(&self) -> Option<f64> {
        if self.written < SEEN_PAGES {
            return None;
        }
        let within_octave = |age: usize| self.died[age] + self.died[age + 1];
        let ages = 0..octaves::COUNT - 1;
        let usual = ages.fold(0, |most, age| if within_octave(age) > within_octave(most) { age } else { most });
        // More deaths than writes: those are of pages written together, long ago.
        let all = self.written.max(self.died.iter().sum());
        (within_octave(usual) > REGULAR_SHARE * all).then(|| octaves::start(usual))
    }
}

/// The stream for each age: the first whose bound is above the remaining life. That is, in host page writes, the mean of the
/// exponential distribution with the median of the pages that are left at this age; `usual` if too few are.
pub(super) fn place(lives: &Lives, usual: f64, bounds: &[f64], streams: &mut [u8; octaves::COUNT]) {
    // Pages that live longer than each age, and in the end those that were not seen to die.
    let mut left = [0.0; octaves::COUNT + 1];
    left[octaves::COUNT] = (lives.written - lives.died.iter().sum::<f32>()).max(0.0);
    for age in (0..octaves::COUNT).rev() {
        left[age] = left[age + 1] + lives.died[age];
    }
    let mut last = 0;
    for (age, stream) in streams.iter_mut().enumerate() {
        let (start, half) = (octaves::start(age), left[age] / 2.0);
        last = last.max(age);
        while last < octaves::COUNT && left[last + 1] > half {
            last += 1;
        }
        let remaining = if left[age] < ENOUGH {
            usual.max(1.2 * start)
        } else if last == octaves::COUNT {
            f64::INFINITY
        } else {
            let part = f64::from((left[last] - half) / lives.died[last].max(1e-9)).clamp(0.0, 1.0);
            let (from, to) = (octaves::start(last), octaves::start(last + 1));
            let now = if last == age { start } else { 1.2 * start };
            (from + (to - from) * part - now).max(0.05 * start) / core::f64::consts::LN_2
        };
        *stream = bounds.iter().filter(|bound| remaining >= **bound).count() as u8;
    }
}
