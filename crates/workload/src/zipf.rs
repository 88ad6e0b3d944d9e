use rand::Rng;

/// A distribution over the ranks `0..len` with probabilities proportional to `1 / (rank + 1)^exponent`.
///
/// Sampled by rejection-inversion (Hörmann and Derflinger 1996): about 1.1 draws per sample, exact for every positive
/// exponent. The inverse of the integral is interpolated with a bound on its error; where the error could change what is
/// drawn, it is computed instead. So the samples are those of the computed inverse, one by one.
#[derive(Clone, Debug)]
pub struct Zipf {
    len: f64,
    exponent: f64,
    top: f64,
    bottom: f64,
    shortcut: f64,
    cells: Box<[Cell]>,
}

/// The inverse on a part of its range, as a polynomial in the place there from 0 to 1, and the greatest error of it.
#[derive(Clone, Copy, Debug)]
struct Cell {
    coefficients: [f64; 4],
    error: f64,
}

/// Cells of the range, as a power of two: their table fits the caches beside what the simulator needs.
const CELL_BITS: u32 = 11;
const CELLS: usize = 1 << CELL_BITS;
/// Bits of a draw: those of a number from [0, 1), of which the first choose the cell.
const UNIT_BITS: u32 = 53;

impl Zipf {
    /// A distribution over `len` ranks, at least 1, with a positive exponent.
    pub fn new(len: u32, exponent: f64) -> Self {
        let cells = Box::default();
        let mut zipf = Self { len: f64::from(len), exponent, top: 0.0, bottom: 0.0, shortcut: 0.0, cells };
        zipf.top = zipf.integral(1.5) - 1.0;
        zipf.bottom = zipf.integral(zipf.len + 0.5);
        zipf.shortcut = 2.0 - zipf.integral_inverse(zipf.integral(2.5) - zipf.density(2.0));
        let edges: Vec<_> = (0..=CELLS).map(|edge| zipf.edge(edge)).collect();
        zipf.cells = edges.windows(2).map(|pair| zipf.cell(pair[0], pair[1])).collect();
        zipf
    }

    fn density(&self, x: f64) -> f64 {
        libm::exp(-self.exponent * libm::log(x))
    }

    /// The integral of the density, up to a constant.
    fn integral(&self, x: f64) -> f64 {
        let log = libm::log(x);
        let t = (1.0 - self.exponent) * log;
        let slope = if t.abs() > 1e-8 { libm::expm1(t) / t } else { 1.0 + t * 0.5 };
        slope * log
    }

    fn integral_inverse(&self, x: f64) -> f64 {
        let t = (x * (1.0 - self.exponent)).max(-1.0);
        let slope = if t.abs() > 1e-8 { libm::log1p(t) / t } else { 1.0 - t * 0.5 };
        libm::exp(slope * x)
    }

    fn point(&self, unit: f64) -> f64 {
        self.bottom + unit * (self.top - self.bottom)
    }

    /// The inverse and its slope at the start of a cell.
    fn edge(&self, edge: usize) -> (f64, f64) {
        let x = self.integral_inverse(self.point(edge as f64 / CELLS as f64));
        (x, 1.0 / self.density(x))
    }

    /// The cubic through both edges with their slopes.
    fn cell(&self, (start, start_slope): (f64, f64), (end, end_slope): (f64, f64)) -> Cell {
        let (width, s) = ((self.top - self.bottom) / CELLS as f64, self.exponent);
        let (from, to, rise) = (start_slope * width, end_slope * width, end - start);
        let coefficients = [start, from, 3.0 * rise - 2.0 * from - to, from + to - 2.0 * rise];
        // The inverse x has the derivatives x^s, s x^(2s - 1), s (2s - 1) x^(3s - 2), s (2s - 1) (3s - 2) x^(4s - 3). The
        // fourth, which bounds the error, is monotonic, so that it is greatest at an edge.
        let fourth = |x: f64| (s * (2.0 * s - 1.0) * (3.0 * s - 2.0)).abs() * libm::exp((4.0 * s - 3.0) * libm::log(x));
        let of_cubic = fourth(start).max(fourth(end)) * (width * width) * (width * width) / 384.0;
        // Rounding: of the functions, relative to x, and of their argument, which the slope carries over. Both bounds are
        // some hundred times what was seen.
        let range = self.bottom.abs() + self.top.abs() + 1.0;
        let of_rounding = 1e-13 * (1.0 + start.max(end)) + 1e-14 * range * start_slope.max(end_slope);
        Cell { coefficients, error: of_cubic + of_rounding }
    }

    /// Draws a rank.
    #[inline]
    pub fn sample(&self, generator: &mut impl Rng) -> u32 {
        loop {
            let bits = generator.next_u64() >> (64 - UNIT_BITS);
            if let Some(k) = self.interpolated(bits).or_else(|| self.computed(bits)) {
                return k as u32 - 1;
            }
        }
    }

    /// The rank from 1 for a draw, if the interpolated inverse tells it for certain.
    #[inline]
    fn interpolated(&self, bits: u64) -> Option<f64> {
        const PLACE_BITS: u32 = UNIT_BITS - CELL_BITS;
        let Cell { coefficients: [a, b, c, d], error } = self.cells.get((bits >> PLACE_BITS) as usize)?;
        let place = (bits & ((1 << PLACE_BITS) - 1)) as f64 * (1.0 / (1u64 << PLACE_BITS) as f64);
        let x = a + place * (b + place * (c + place * d));
        // Rounds to nearest while 2^52 is added; the sum would be cut where numbers are larger, but ranks are not.
        let k = (x + ROUNDS) - ROUNDS;
        // Comparisons with NaN are false.
        let is_certain = k - x <= self.shortcut.min(0.5) - error && x - k <= 0.5 - error && k >= 1.0 && k <= self.len;
        is_certain.then_some(k)
    }

    /// The rank from 1 for a draw; `None` if the draw is rejected.
    #[cold]
    fn computed(&self, bits: u64) -> Option<f64> {
        let u = self.point(bits as f64 / (1u64 << UNIT_BITS) as f64);
        let x = self.integral_inverse(u);
        let k = libm::floor(x + 0.5).clamp(1.0, self.len);
        (k - x <= self.shortcut || u >= self.integral(k + 0.5) - self.density(k)).then_some(k)
    }
}

/// Where the numbers of 64 bits have no fraction.
const ROUNDS: f64 = (1u64 << 52) as f64;

/// A number drawn uniformly from [0, 1).
#[inline]
pub(crate) fn unit(generator: &mut impl Rng) -> f64 {
    (generator.next_u64() >> (64 - UNIT_BITS)) as f64 / (1u64 << UNIT_BITS) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn what_is_interpolated_is_what_is_computed() {
        let (mut interpolated, mut draws) = (0u64, 0);
        for exponent in [0.05, 0.3, 0.5, 2.0 / 3.0, 0.75, 0.8, 0.99, 1.0, 1.0 + 1e-9, 1.2, 2.0, 5.0, 40.0] {
            for len in [1, 2, 3, 10, 1000, 235_929, 60_000_000, u32::MAX] {
                let zipf = Zipf::new(len, exponent);
                let mut generator = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(17);
                let random = (0..2000).map(|_| generator.next_u64() >> (64 - UNIT_BITS));
                // The ends of the range and of cells, and, where ranks are that wide, the places where the rank changes.
                let near = |at: u64| (at.saturating_sub(3)..at + 4).filter(|bits| bits >> UNIT_BITS == 0);
                let changes = (1..200u32).map(f64::from).filter(|k| *k <= zipf.len).flat_map(|k| {
                    let ends = [zipf.integral(k + 0.5), zipf.integral(k + 0.5) - zipf.density(k)];
                    let ends = ends.into_iter().chain([zipf.integral(k - zipf.shortcut)]);
                    ends.map(|u| ((u - zipf.bottom) / (zipf.top - zipf.bottom) * (1u64 << UNIT_BITS) as f64) as u64)
                });
                let cells = (0..=64).map(|cell| cell << (UNIT_BITS - 6));
                for bits in random.chain(cells.chain(changes).flat_map(near)) {
                    draws += 1;
                    if let Some(k) = zipf.interpolated(bits) {
                        interpolated += 1;
                        assert_eq!(Some(k), zipf.computed(bits), "exponent {exponent}, {len} ranks, draw {bits}");
                    }
                }
            }
        }
        assert!(interpolated > draws / 3, "{interpolated} of {draws}");
    }

    #[test]
    fn nearly_all_draws_are_interpolated_where_it_matters() {
        for (exponent, len) in [(0.8, 235_929), (0.99, 235_929), (0.99, 60_000_000), (1.2, 1_000_000)] {
            let zipf = Zipf::new(len, exponent);
            let mut generator = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(19);
            let draws = (0..20_000).map(|_| generator.next_u64() >> (64 - UNIT_BITS));
            let computed = draws.filter(|bits| zipf.interpolated(*bits).is_none()).count();
            assert!(computed < 2000, "exponent {exponent}, {len} ranks: {computed} of 20000 are computed");
        }
    }

    #[test]
    fn frequencies_are_those_of_the_law() {
        for exponent in [0.5, 0.99, 1.0, 1.5] {
            let zipf = Zipf::new(1000, exponent);
            let mut generator = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(11);
            let mut counts = vec![0u32; 1000];
            let samples = 400_000;
            (0..samples).for_each(|_| counts[zipf.sample(&mut generator) as usize] += 1);
            let norm: f64 = (1..=1000).map(|k| f64::from(k).powf(-exponent)).sum();
            for rank in [0, 1, 2, 9, 99] {
                let expected = f64::from(samples) * (rank as f64 + 1.0).powf(-exponent) / norm;
                let error = (f64::from(counts[rank]) - expected) / expected.sqrt();
                assert!(error.abs() < 4.5, "exponent {exponent}, rank {rank}: {} for {expected}", counts[rank]);
            }
        }
    }
}
