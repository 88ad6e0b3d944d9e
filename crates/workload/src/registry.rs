/// A generator or a parameter, as it is listed for people.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// How it is written on the command line.
    pub name: &'static str,
    /// What it does.
    pub summary: &'static str,
}

const fn info(name: &'static str, summary: &'static str) -> Info {
    Info { name, summary }
}

/// All generators that are named on the command line.
pub fn patterns() -> &'static [Info] {
    const PATTERNS: &[Info] = &[
        info("sequential", "page after page, over and over"),
        info("random", "every page with the same probability"),
        info("hot-cold:90/10", "90 % of the accesses to 10 % of the pages, uniform in both groups"),
        info(
            "moving:90/10",
            "as hot-cold, with a hot set that moves on: around the space in `period=10` operations per page of it",
        ),
        info(
            "log:50/50",
            "50 % of the accesses to 50 % of the pages, one after the other; the others uniform over the rest",
        ),
        info("zipf:0.99", "the page of rank k with probability proportional to 1 / k^0.99"),
        info("jedec-enterprise", "JESD219A enterprise: 50/30/20 % of accesses to 5/15/80 % of the space, 4 to 64 KiB"),
    ];
    PATTERNS
}

/// The parameters that every generator takes.
pub fn parameters() -> &'static [Info] {
    const PARAMETERS: &[Info] = &[
        info("writes=N", "host page writes; endless without"),
        info("poisson=T", "arrivals as a Poisson process with mean distance T (5us, 20ms, 24.6s, 2h)"),
        info("gap=T", "arrivals at a fixed distance T; without either the workload has no times"),
        info("reads=S", "share of reads among the operations"),
        info("trims=S", "share of trims among the operations"),
        info("read-only=S", "share of the pages that are never written or trimmed"),
        info("layout=L", "where favoured pages lie: scattered (default), contiguous, strided"),
    ];
    PARAMETERS
}

pub(crate) fn pattern_names() -> String {
    let names: Vec<_> = patterns().iter().map(|info| info.name.split(':').next().unwrap_or(info.name)).collect();
    names.join(", ")
}
