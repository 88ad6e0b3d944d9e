use rand::Rng;

/// A distribution over the ranks `0..len` with probabilities proportional to `1 / (rank + 1)^exponent`.
///
/// Sampled by rejection-inversion (Hörmann and Derflinger 1996), which needs no table and about 1.1 draws per sample,
/// and is exact for every positive exponent.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    len: f64,
    exponent: f64,
    top: f64,
    bottom: f64,
    shortcut: f64,
}

impl Zipf {
    /// A distribution over `len` ranks, at least 1, with a positive exponent.
    pub fn new(len: u32, exponent: f64) -> Self {
        let mut zipf = Self { len: f64::from(len), exponent, top: 0.0, bottom: 0.0, shortcut: 0.0 };
        zipf.top = zipf.integral(1.5) - 1.0;
        zipf.bottom = zipf.integral(zipf.len + 0.5);
        zipf.shortcut = 2.0 - zipf.integral_inverse(zipf.integral(2.5) - zipf.density(2.0));
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

    /// Draws a rank.
    pub fn sample(&self, generator: &mut impl Rng) -> u32 {
        loop {
            let u = self.bottom + unit(generator) * (self.top - self.bottom);
            let x = self.integral_inverse(u);
            let k = libm::floor(x + 0.5).clamp(1.0, self.len);
            if k - x <= self.shortcut || u >= self.integral(k + 0.5) - self.density(k) {
                return k as u32 - 1;
            }
        }
    }
}

/// A number drawn uniformly from [0, 1).
#[inline]
pub(crate) fn unit(generator: &mut impl Rng) -> f64 {
    (generator.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

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
