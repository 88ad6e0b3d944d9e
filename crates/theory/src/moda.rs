use crate::{TheoryError, domain};

/// The cost of cleaning a whole device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CleaningCost {
    /// Segments erased.
    pub erases: f64,
    /// Pages copied.
    pub copies: f64,
}

/// Energy of copying a byte (reading and programming it), in nJ. This and [`ERASE_NJ_PER_BYTE`] follow from the two
/// energies that the MODA paper prints: 20.744 mJ for 1516 copies and 69 erases, 1.318 mJ for 62 and 10.
pub const COPY_NJ_PER_BYTE: f64 = 20.9;
/// Energy of erasing a byte, in nJ; see [`COPY_NJ_PER_BYTE`].
pub const ERASE_NJ_PER_BYTE: f64 = 4.0;

impl CleaningCost {
    /// The energy of the cleaning, in mJ (MODA paper, eq. 3, without the idle term).
    pub fn energy_mj(&self, page_bytes: f64, pages_per_segment: f64) -> f64 {
        let copied = self.copies * page_bytes * COPY_NJ_PER_BYTE;
        (copied + self.erases * page_bytes * pages_per_segment * ERASE_NJ_PER_BYTE) * 1e-6
    }
}

/// The cost of cleaning every segment with invalid pages on a device of `segments` segments at utilization
/// `u`, invalidity `i` and uniformity `p` (MODA paper, eq. 2): erases = B ((1 - p) + i p), copies = P (1 - p)
/// u / (u + i), B segments, P pages.
pub fn cleaning_cost(
    u: f64,
    i: f64,
    p: f64,
    segments: f64,
    pages_per_segment: f64,
) -> Result<CleaningCost, TheoryError> {
    for (name, share) in [("u", u), ("i", i), ("p", p)] {
        domain(name, share, (0.0..=1.0).contains(&share), "a share from 0 to 1")?;
    }
    domain("u + i", u + i, u + i <= 1.0 + 1e-9, "at most 1: a page is not valid and invalid")?;
    domain("segments", segments, segments >= 1.0, "at least 1")?;
    domain("b", pages_per_segment, pages_per_segment >= 1.0, "pages per segment, at least 1")?;
    let erases = segments * ((1.0 - p) + i * p);
    let used = u + i;
    let copies = if used > 0.0 { segments * pages_per_segment * (1.0 - p) * u / used } else { 0.0 };
    Ok(CleaningCost { erases, copies })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_1_follows_from_its_own_parameters_at_3712_segments() {
        let erases = |u, i, p| cleaning_cost(u, i, p, 3712.0, 32.0).unwrap().erases.round();
        assert_eq!(erases(0.05, 0.32, 0.62), 2147.0);
        assert_eq!(erases(0.05, 0.22, 0.72), 1627.0);
        assert_eq!(erases(0.005, 0.16, 0.83), 1124.0);
        assert_eq!(erases(0.005, 0.08, 0.90), 638.0);
        assert_eq!(erases(0.86, 0.0087, 0.73), 1026.0);
    }

    #[test]
    fn both_printed_energies_are_met_to_their_digits() {
        let energy = |copies, erases| CleaningCost { copies, erases }.energy_mj(512.0, 32.0);
        assert_eq!(format!("{:.3}", energy(1516.0, 69.0)), "20.744");
        assert_eq!(format!("{:.4}", energy(62.0, 10.0)), "1.3188");
    }

    #[test]
    fn an_empty_device_costs_nothing() {
        assert_eq!(cleaning_cost(0.0, 0.0, 1.0, 10.0, 8.0).unwrap(), CleaningCost { erases: 0.0, copies: 0.0 });
        assert!(cleaning_cost(0.8, 0.4, 1.0, 10.0, 8.0).is_err());
    }
}
