use crate::Window;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Merges between two changes of the size.
const PERIOD: u32 = 16;

/// The number of the oldest log blocks that are looked at, and how it adapts.
#[derive(Clone, Debug)]
pub(crate) struct Size {
    now: u32,
    adaptive: bool,
    previous_cost: Option<f64>,
    /// The size before the last change, and whether it was a growth.
    before: Option<(u32, bool)>,
    sum: f64,
    count: u32,
    random: Xoshiro256PlusPlus,
}

impl Size {
    pub fn new(window: Window, seed: u64) -> Self {
        let (now, adaptive) = match window {
            Window::All => (u32::MAX, false),
            Window::Static(size) => (size.max(1), false),
            Window::Adaptive { start } => (start.max(1), true),
        };
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self { now, adaptive, previous_cost: None, before: None, sum: 0.0, count: 0, random }
    }

    pub fn now(&self) -> u32 {
        self.now
    }

    /// Takes note of the cost of a merge of a random log block. There are `max` random log blocks.
    pub fn merged(&mut self, cost_us: f64, max: u32) {
        if !self.adaptive {
            return;
        }
        self.sum += cost_us;
        self.count += 1;
        if self.count < PERIOD {
            return;
        }
        let cost = self.sum / f64::from(self.count);
        (self.sum, self.count) = (0.0, 0);
        self.previous_cost = Some(match (self.before, self.previous_cost) {
            (Some((size, grew)), Some(previous)) => {
                if cost <= if grew { 0.8 } else { 1.2 } * previous {
                    cost
                } else {
                    self.now = size;
                    (previous + cost) / 2.0
                }
            }
            _ => cost,
        });
        let grows = self.random.next_u64() & 1 == 0;
        let size = if grows { self.now.saturating_mul(2) } else { self.now / 2 }.clamp(1, max.max(1));
        self.before = (size != self.now).then_some((self.now, grows));
        self.now = size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_kept_only_where_cleaning_gets_a_fifth_cheaper() {
        // Cost falls with the window up to 8 and not beyond.
        let mut size = Size::new(Window::Adaptive { start: 1 }, 3);
        let (mut sum, looks) = (0, 4000);
        for _ in 0..looks {
            (0..PERIOD).for_each(|_| size.merged(1000.0 / f64::from(size.now().min(8)).powi(2), 64));
            sum += size.now();
        }
        // It wanders about there: a size that was given up makes the next change look better than it is.
        assert!((4 * looks..24 * looks).contains(&sum), "{}", f64::from(sum) / f64::from(looks));
        assert_eq!(Size::new(Window::All, 1).now(), u32::MAX);
    }
}
