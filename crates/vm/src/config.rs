use crate::Scheme;
use crate::cost::Costs;
use core::fmt;
use core::str::FromStr;
use margay_policy::SpecError;
use margay_policy::spec::{Row, find_row};

/// Which page leaves a full cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// The least recently used.
    Lru,
    /// The least recently used clean page of the LRU region, or else the least recently used.
    CleanFirst,
}

static REPLACEMENTS: [Row<Replacement>; 2] = [
    Row {
        name: "lru",
        summary: "the least recently used page",
        parameters: &[],
        source: "the paper's page cache: LDA-GC (IEEE Trans. CE 56(4), 2010)",
        build: Replacement::Lru,
    },
    Row {
        name: "clean-first",
        summary: "the least recently used clean page of the LRU region, or else the least recently used",
        parameters: &[],
        source: "CFLRU, Park et al. 2006; its window is the LRU region here",
        build: Replacement::CleanFirst,
    },
];

/// All rules of replacement: name, meaning and source.
pub fn replacements() -> impl ExactSizeIterator<Item = &'static Row<Replacement>> + Clone {
    REPLACEMENTS.iter()
}

impl fmt::Display for Replacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = REPLACEMENTS.iter().find(|row| row.build == *self).expect("every value has a row");
        f.write_str(row.name)
    }
}

impl FromStr for Replacement {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        find_row("replacement", &REPLACEMENTS, text).map(|row| row.build)
    }
}

/// How large the LRU region of the cache is. As text: `none`, a share of the cache as `50%` (or `50`), `adaptive`, or
/// `adaptive:10/20` with both thresholds in per cent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LruRegion {
    /// There is none: plain LRU.
    None,
    /// This share of the cache.
    Fixed {
        /// Between 0 and 100.
        percent: f64,
    },
    /// Adjusted once in as many misses as the cache has frames: if more than `high_percent` of the pages that fell
    /// into the region were hit there, the rest of the cache grows by 1/32; if fewer than `low_percent`, it shrinks
    /// by that.
    Adaptive {
        /// The lower threshold, between 0 and 100.
        low_percent: f64,
        /// The upper threshold, between 0 and 100.
        high_percent: f64,
    },
}

impl LruRegion {
    /// The thresholds of the recommended reading of the paper.
    pub const ADAPTIVE: Self = Self::Adaptive { low_percent: 10.0, high_percent: 20.0 };
}

fn percent(text: &str) -> Option<f64> {
    let value: f64 = text.strip_suffix('%').unwrap_or(text).parse().ok()?;
    (value > 0.0 && value < 100.0).then_some(value)
}

impl fmt::Display for LruRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Fixed { percent } => write!(f, "{percent}%"),
            Self::Adaptive { low_percent, high_percent } => write!(f, "adaptive:{low_percent}/{high_percent}"),
        }
    }
}

impl FromStr for LruRegion {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let parsed = match text.split_once(':') {
            Some(("adaptive", thresholds)) => thresholds.split_once('/').and_then(|(low, high)| {
                Some(Self::Adaptive { low_percent: percent(low)?, high_percent: percent(high)? })
            }),
            Some(_) => None,
            None => match text {
                "adaptive" => Some(Self::ADAPTIVE),
                "none" => Some(Self::None),
                share => percent(share).map(|percent| Self::Fixed { percent }),
            },
        };
        let expected = ["adaptive", "adaptive:10/20", "none", "a share in per cent between 0 and 100"];
        parsed.ok_or_else(|| SpecError::unknown("LRU region", text, expected.into_iter()))
    }
}

/// How many of the oldest log blocks least-cost selection looks at. As text: `all`, a number, `adaptive`, or
/// `adaptive:8` with the first size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// All of them.
    All,
    /// This many, at least one.
    Static(u32),
    /// A number that is doubled and halved at random, and kept where cleaning got cheaper.
    Adaptive {
        /// The first size, at least one.
        start: u32,
    },
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Static(size) => size.fmt(f),
            Self::Adaptive { start } => write!(f, "adaptive:{start}"),
        }
    }
}

impl FromStr for Window {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let number = |text: &str| text.parse().ok().filter(|number| *number > 0);
        let parsed = match text.split_once(':') {
            Some(("adaptive", start)) => number(start).map(|start| Self::Adaptive { start }),
            Some(_) => None,
            None => match text {
                "all" => Some(Self::All),
                "adaptive" => Some(Self::Adaptive { start: 1 }),
                size => number(size).map(Self::Static),
            },
        };
        let expected = ["all", "a number of log blocks from 1 on", "adaptive", "adaptive:START"];
        parsed.ok_or_else(|| SpecError::unknown("window", text, expected.into_iter()))
    }
}

/// A page cache and how it answers merges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheConfig {
    /// Pages it holds.
    pub frames: u32,
    /// Which page leaves a full cache.
    pub replacement: Replacement,
    /// How large the LRU region is.
    pub lru_region: LruRegion,
    /// How merges are done.
    pub scheme: Scheme,
    /// How many log blocks least-cost selection looks at.
    pub window: Window,
    /// Whether the rules for duplicates hold for merges of the sequential log block too.
    pub rules_sequential: bool,
    /// Whether a dirty page of the LRU region is written in a merge although flash has no copy of it.
    pub evicts_unduplicated: bool,
    /// Whether the probability that a page is written again counts as 0 in the equations.
    pub ignores_updates: bool,
    /// Costs of operations.
    pub costs: Costs,
    /// Seed of the adaptive window.
    pub seed: u64,
}

impl CacheConfig {
    /// The recommended reading of the paper.
    pub const fn new(frames: u32, scheme: Scheme) -> Self {
        Self {
            frames,
            replacement: Replacement::Lru,
            lru_region: LruRegion::ADAPTIVE,
            scheme,
            window: Window::All,
            rules_sequential: true,
            evicts_unduplicated: false,
            ignores_updates: false,
            costs: Costs::PAPER,
            seed: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{format, string::ToString, vec::Vec};

    #[test]
    fn what_results_state_is_what_the_parser_reads() {
        for Row { name, build: value, .. } in REPLACEMENTS {
            assert_eq!((name.parse(), value.to_string().as_str()), (Ok(value), name));
        }
        let adaptive = LruRegion::Adaptive { low_percent: 0.7, high_percent: 33.3 };
        for region in [LruRegion::None, LruRegion::Fixed { percent: 7.1 }, LruRegion::ADAPTIVE, adaptive] {
            assert_eq!(region.to_string().parse(), Ok(region), "{region}");
        }
        for window in [Window::All, Window::Static(8), Window::Adaptive { start: 31 }] {
            assert_eq!(window.to_string().parse(), Ok(window), "{window}");
        }
        assert_eq!("90".parse(), Ok(LruRegion::Fixed { percent: 90.0 }));
        assert_eq!(LruRegion::Fixed { percent: 90.0 }.to_string(), "90%");
    }

    #[test]
    fn impossible_values_are_refused() {
        for text in ["0", "100", "-5", "NaN", "5%%", "adaptive:10", "adaptive:10/200", "fixed:5", ""] {
            let error = text.parse::<LruRegion>().unwrap_err().to_string();
            assert!(error.contains("adaptive:10/20"), "{error}");
        }
        for text in ["0", "-1", "adaptive:0", "adaptive:x", "some", "all:3"] {
            assert!(text.parse::<Window>().unwrap_err().to_string().contains("adaptive:START"), "{text}");
        }
        let names: Vec<_> = replacements().map(|info| info.name).collect();
        let error = "mru".parse::<Replacement>().unwrap_err().to_string();
        assert_eq!(error, format!("unknown replacement 'mru'; the known ones are {}", names.join(", ")));
    }
}
