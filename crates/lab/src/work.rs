use hdrhistogram::Histogram;
use margay_media::Timing;

/// Modelled time of flash work per host write.
#[derive(Clone, Debug)]
pub struct WorkMeter {
    timing: Timing,
    writes: u64,
    measured: u64,
    /// Times in nanoseconds of the writes that caused more than one program.
    histogram: Histogram<u64>,
    worst_programs: u64,
}

impl WorkMeter {
    /// No writes yet, on a part with the given times.
    pub fn new(timing: Timing) -> Self {
        let histogram = Histogram::new(3).expect("3 significant digits are allowed");
        Self { timing, writes: 0, measured: 0, histogram, worst_programs: 1 }
    }

    /// Sets the total number of host writes.
    pub fn count_writes(&mut self, writes: u64) {
        self.writes += writes;
    }

    /// Records a host write that caused more than its own program.
    pub fn record(&mut self, copies: u64, metadata_pages: u64, erases: u64) {
        let us = self.timing.program_us * (1 + metadata_pages) as f64
            + self.timing.copy_us() * copies as f64
            + self.timing.erase_us * erases as f64;
        self.histogram.record((us * 1000.0) as u64).expect("the histogram grows with its values");
        self.measured += 1;
        self.worst_programs = self.worst_programs.max(1 + copies + metadata_pages);
    }

    /// Modelled time of the slowest host write, in microseconds.
    pub fn worst_us(&self) -> f64 {
        self.quantile_us(1.0)
    }

    /// Modelled time that this share of host writes does not exceed, in microseconds.
    pub fn quantile_us(&self, share: f64) -> f64 {
        let plain = self.writes - self.measured;
        let rank = (share * self.writes as f64).ceil() as u64;
        if self.measured == 0 || rank <= plain {
            return self.timing.program_us;
        }
        self.histogram.value_at_quantile((rank - plain) as f64 / self.measured as f64) as f64 / 1000.0
    }

    /// The greatest number of pages programmed for one host write, its own page included.
    pub fn worst_programs(&self) -> u64 {
        self.worst_programs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_count_the_writes_that_caused_nothing_else() {
        let timing = Timing { read_us: 10.0, program_us: 100.0, erase_us: 1000.0, copy_extra_us: None };
        let mut work = WorkMeter::new(timing);
        work.count_writes(1000);
        for _ in 0..20 {
            work.record(3, 1, 1);
        }
        assert_eq!(work.quantile_us(0.5), 100.0);
        assert_eq!(work.quantile_us(0.98), 100.0);
        let slow = 2.0 * 100.0 + 3.0 * 110.0 + 1000.0;
        assert!((work.quantile_us(0.99) - slow).abs() < 2.0);
        assert!((work.worst_us() - slow).abs() < 2.0);
        assert_eq!(work.worst_programs(), 5);
    }
}
