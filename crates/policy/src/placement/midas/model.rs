//! What a choice of group sizes would cost, from the distribution of intervals alone.

use super::intervals::Distribution;

/// Max number of groups of the model, the hot one and the last one included.
pub(super) const MAX_GROUPS: usize = 16;
/// Share of the device, in segments, that the last group has at least, and by which intervals may miss the epoch's end.
const MARGIN: f64 = 50.0 / 2048.0;

/// The device as the model sees it. All in segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Segments that groups can hold.
    pub segments: u32,
    /// Pages in a segment.
    pub data_pages: u32,
    /// Valid data.
    pub used: f64,
    /// Valid data that is never written again.
    pub cold: f64,
}

impl Room {
    /// Segments that the last group keeps at least.
    pub fn margin(&self) -> f64 {
        libm::ceil(f64::from(self.segments) * MARGIN).max(2.0)
    }
}

/// The hot group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hot {
    /// Its size in segments.
    pub segments: u32,
    /// Share of host writes that go to it.
    pub traffic: f64,
    /// Share of its pages that are valid when they are cleaned.
    pub valid: f64,
    /// Intervals shorter than this, in segments of host writes, are its own.
    pub time: f64,
}

/// Sizes of groups and what they are predicted to cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prediction {
    /// Number of groups, the hot one and the last one included.
    pub groups: usize,
    /// Sizes in segments.
    pub segments: [u32; MAX_GROUPS],
    /// Share of a victim's pages that are valid.
    pub valid: [f64; MAX_GROUPS],
    /// Write amplification.
    pub wa: f64,
}

/// What groups of these sizes (the first after the hot one, and so on; the last one gets the rest) cost; `None` if they do
/// not fit, or if the distribution does not reach as far.
pub(super) fn predict(distribution: &Distribution, room: &Room, hot: &Hot, sizes: &[u32]) -> Option<Prediction> {
    let mut prediction =
        Prediction { groups: sizes.len() + 2, segments: [0; MAX_GROUPS], valid: [0.0; MAX_GROUPS], wa: 0.0 };
    let others = hot.segments + sizes.iter().sum::<u32>();
    let last = room.segments.checked_sub(others).filter(|last| f64::from(*last) >= room.margin())?;
    prediction.segments[0] = hot.segments;
    prediction.valid[0] = hot.valid;
    let mut flow = 1.0 - hot.traffic * (1.0 - hot.valid);
    let mut place = hot.time;
    // About half of the pages in the hot group are valid.
    let mut held = f64::from(hot.segments) * (1.0 + hot.valid) / 2.0;
    for (i, size) in sizes.iter().enumerate() {
        let time = (f64::from(*size) - 0.5) / flow;
        if place + time >= distribution.end() - room.margin() {
            return None;
        }
        let (valid, mean) = distribution.survival(place, time)?;
        if valid <= 0.0 {
            return None;
        }
        held += f64::from(*size) * mean;
        flow *= valid;
        place += time;
        prediction.segments[i + 1] = *size;
        prediction.valid[i + 1] = valid;
    }
    let data = room.used - room.cold - held;
    let valid = last_valid(distribution, place, (f64::from(last) - room.cold) / data, room.data_pages)?;
    prediction.segments[sizes.len() + 1] = last;
    prediction.valid[sizes.len() + 1] = valid;
    prediction.wa = write_amplification(hot.traffic, &prediction.valid[..prediction.groups]);
    Some(prediction)
}

/// The write amplification of a chain of groups of whose victims so much is valid, the hot one first. The steady state of
/// the Markov chain of MiDAS needs no iteration: the flow into a group is what survives in the one before, and the last group's
/// own copies are a geometric series.
fn write_amplification(traffic: f64, valid: &[f64]) -> f64 {
    let mut flow = 1.0 - traffic * (1.0 - valid[0]);
    let mut programs = 1.0 + traffic * valid[0];
    let last = valid.len() - 1;
    for valid in &valid[1..last] {
        flow *= valid;
        programs += flow;
    }
    programs + flow * valid[last] / (1.0 - valid[last])
}

/// What is valid of a victim of the last group: that of FIFO over data of two classes, `alpha` times as much space as data.
fn last_valid(distribution: &Distribution, place: f64, alpha: f64, data_pages: u32) -> Option<f64> {
    let (writes, pages) = distribution.two_classes(place)?;
    let whole = 1.0 + 1.0 / (2.0 * f64::from(data_pages));
    let alpha = alpha * whole;
    if !(alpha > 1.0 && alpha.is_finite()) {
        return None;
    }
    let part = |writes: f64, pages: f64, wa: f64| {
        if writes <= 0.0 || pages <= 0.0 { 0.0 } else { writes / libm::expm1(writes * alpha / (pages * wa)) }
    };
    let excess = |wa: f64| 1.0 + part(writes, pages, wa) + part(1.0 - writes, 1.0 - pages, wa) - wa;
    let (mut low, mut high) = (1.0, 2.0);
    while excess(high) > 0.0 {
        high *= 2.0;
        if high > 1e4 {
            return None;
        }
    }
    for _ in 0..30 {
        let middle = (low + high) / 2.0;
        if excess(middle) > 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some((1.0 - whole / high).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::midas::intervals::Intervals;

    #[test]
    fn the_chain_gives_the_published_prediction() {
        // The run of the public simulator on FIO Zipf: valid shares predicted, and 2.220729.
        let valid = [0.0, 0.560998, 0.706775, 0.780401, 0.838156, 0.908237];
        let wa = write_amplification(0.702, &valid);
        assert!((wa - 2.2207).abs() < 0.003, "{wa}");
    }

    fn even_intervals() -> Distribution {
        let mut intervals = Intervals::new(32 * 400, 8);
        (0..32 * 400).for_each(|writes| intervals.count(writes / 2));
        intervals.distribution(32)
    }

    #[test]
    fn the_last_group_is_fifo_over_two_classes() {
        // Where all pages live as long, v = exp(-alpha (1 - v)).
        let mut equal = Intervals::new(32 * 400, 8);
        (0..32 * 400).for_each(|_| equal.count(32 * 10));
        let equal = equal.distribution(32);
        for alpha in [1.05, 1.2, 1.6] {
            let valid = last_valid(&equal, 0.0, alpha, 1 << 20).unwrap();
            let uniform = (0..10_000).fold(0.5, |valid: f64, _| libm::exp(-alpha * (1.0 - valid)));
            assert!((valid - uniform).abs() < 1e-4, "{alpha}: {valid} {uniform}");
            let mixed = last_valid(&even_intervals(), 0.0, alpha, 1 << 20).unwrap();
            assert!(mixed > valid, "{alpha}: a queue does not separate hot from cold");
        }
        assert_eq!(last_valid(&even_intervals(), 0.0, 0.95, 32), None, "more data than room");
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        let room = Room { segments: 100, data_pages: 32, used: 90.0, cold: 0.0 };
        let hot = Hot { segments: 2, traffic: 0.3, valid: 0.0, time: 5.0 };
        let distribution = even_intervals();
        let fits = predict(&distribution, &room, &hot, &[10, 10]).unwrap();
        assert_eq!(fits.segments[..4], [2, 10, 10, 78]);
        assert!(fits.wa > 1.0 && fits.valid[..4].iter().all(|valid| (0.0..1.0).contains(valid)), "{fits:?}");
        assert!(predict(&distribution, &room, &hot, &[10, 87]).is_none(), "nothing is left for the last group");
        assert!(predict(&distribution, &room, &hot, &[10, 80]).is_none(), "longer than the epoch");
    }
}
