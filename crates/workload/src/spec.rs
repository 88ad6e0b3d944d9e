use crate::WorkloadError;
use crate::registry::pattern_names;
use serde::Deserialize;
use std::fmt;
use std::str::FromStr;

/// Where the pages lie that a skewed pattern favours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HotLayout {
    /// Scattered at random over the space. With this the FMS tables are reproduced.
    #[default]
    Scattered,
    /// The first pages of the space.
    Contiguous,
    /// Evenly spaced over the space.
    Strided,
}

/// The times at which operations arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Arrival {
    /// As fast as possible: the workload has no times.
    #[default]
    Asap,
    /// At a fixed interval, in microseconds.
    Fixed(f64),
    /// As a Poisson process with this mean interval, in microseconds.
    Poisson(f64),
}

/// A part of the space and its share of the accesses.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Zone {
    /// Share of the pages. Zones lie one after the other.
    pub space: f64,
    /// Weight of the accesses.
    pub access: f64,
}

/// A request size and its frequency.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeClass {
    /// Size, in pages.
    pub pages: u32,
    /// Weight of the requests.
    pub weight: f64,
}

/// Requests of several sizes to zones of the space, as JEDEC defines endurance workloads (JESD219A).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// Zones from the start of the space; the shares of space add up to 1.
    pub zones: Vec<Zone>,
    /// Sizes of requests. Each request is aligned to its size.
    pub sizes: Vec<SizeClass>,
}

/// The order in which pages are accessed.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// All pages in ascending order, over and over.
    Sequential,
    /// Every page with the same probability.
    Random,
    /// A share `access` of the operations to a share `space` of the pages, uniform in both groups.
    HotCold {
        /// Share of the operations, over 0 and under 1.
        access: f64,
        /// Share of the pages, over 0 and under 1.
        space: f64,
        /// Where the hot pages lie.
        layout: HotLayout,
    },
    /// The page of rank k with probability proportional to 1 / k^exponent.
    Zipf {
        /// Exponent, positive.
        exponent: f64,
        /// Where the pages of low rank lie.
        layout: HotLayout,
    },
    /// As [`Pattern::HotCold`], with a hot set that moves on by a page every `period` operations.
    Moving {
        /// Share of the operations that go to the hot set, over 0 and under 1.
        access: f64,
        /// Share of the pages in it, over 0 and under 1.
        space: f64,
        /// Operations per page of the space until the hot set has moved all around it, from 0.001 to 10^9.
        period: f64,
        /// Where the pages of the space that the hot set moves through lie.
        layout: HotLayout,
    },
    /// A share `access` of the operations to a log in a share `space` of the pages, one page after the other and over and
    /// over; the others uniform over the other pages.
    Log {
        /// Share of the operations, over 0 and under 1.
        access: f64,
        /// Share of the pages, from the start of the space, over 0 and under 1.
        space: f64,
    },
    /// Several request sizes and zones.
    Mix(Mix),
    /// One workload after the other.
    Phases {
        /// How many times the phases are run, all in order each time.
        repeat: u32,
        /// The phases.
        phases: Vec<WorkloadSpec>,
    },
}

/// A workload.
///
/// As text: a pattern, then `key=value` pairs, all separated by commas: `hot-cold:90/10,writes=49152,
/// poisson=24.6s,read-only=0.1`. As TOML, for mixes and phases: see [`WorkloadSpec::from_toml`].
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadSpec {
    /// The order in which pages are accessed.
    pub pattern: Pattern,
    /// Host page writes; endless if not given.
    pub writes: Option<u64>,
    /// The times of the operations.
    pub arrival: Arrival,
    /// Share of reads among the operations.
    pub reads: f64,
    /// Share of trims among the operations.
    pub trims: f64,
    /// Share of the pages that are never written or trimmed.
    pub read_only: f64,
}

/// JESD219A, enterprise: 50 % of the accesses to the first 5 % of the addresses, 30 % to the next 15 %, the rest
/// to the rest; 512 bytes to 3.5 KiB 10 %, 4 KiB 67 %, 8 KiB 10 %, 16 KiB 7 %, 32 KiB 3 %, 64 KiB 3 %. In pages
/// of 4 KiB; smaller requests write a whole page.
fn jedec_enterprise() -> Mix {
    let zone = |space, access| Zone { space, access };
    let size = |pages, weight| SizeClass { pages, weight };
    Mix {
        zones: vec![zone(0.05, 50.0), zone(0.15, 30.0), zone(0.80, 20.0)],
        sizes: vec![size(1, 77.0), size(2, 10.0), size(4, 7.0), size(8, 3.0), size(16, 3.0)],
    }
}

impl WorkloadSpec {
    /// A workload that only writes, without times and without end.
    pub fn new(pattern: Pattern) -> Self {
        Self { pattern, writes: None, arrival: Arrival::Asap, reads: 0.0, trims: 0.0, read_only: 0.0 }
    }

    /// Parses the text of a workload, or reads the TOML file that the text names by ending in `.toml`.
    pub fn load(text: &str) -> Result<Self, WorkloadError> {
        if !text.ends_with(".toml") {
            return text.parse();
        }
        let content = std::fs::read_to_string(text).map_err(|error| WorkloadError::Toml(format!("{text}: {error}")))?;
        Self::from_toml(&content).map_err(|error| match error {
            WorkloadError::Toml(message) => WorkloadError::Toml(format!("{text}: {message}")),
            other => other,
        })
    }

    /// Reads TOML: `workload = "random,writes=1000"` alone, or a `[mix]` with `zones` and `sizes`, or a list
    /// of `[[phase]]` with any of these, and `repeat`.
    pub fn from_toml(text: &str) -> Result<Self, WorkloadError> {
        let file: File = toml::from_str(text).map_err(|error| WorkloadError::Toml(error.to_string()))?;
        file.spec()
    }

    /// The total number of host page writes, or `None` for a workload without end.
    pub fn expected_writes(&self) -> Option<u64> {
        match &self.pattern {
            Pattern::Phases { repeat, phases } => {
                let sum: Option<u64> = phases.iter().map(Self::expected_writes).sum();
                sum.map(|writes| writes * u64::from(*repeat))
            }
            _ => self.writes,
        }
    }

    pub(crate) fn check(&self) -> Result<(), WorkloadError> {
        let share = |key: &str, value: f64, below_one: bool| {
            let ok = (0.0..=1.0).contains(&value) && !(below_one && value >= 1.0);
            ok.then_some(()).ok_or_else(|| {
                WorkloadError::value(
                    key,
                    value,
                    if below_one { "a share from 0 to under 1" } else { "a share from 0 to 1" },
                )
            })
        };
        share("reads", self.reads, true)?;
        share("trims", self.trims, true)?;
        share("reads + trims", self.reads + self.trims, true)?;
        share("read-only", self.read_only, true)?;
        if let Arrival::Fixed(gap) | Arrival::Poisson(gap) = self.arrival
            && !(gap.is_finite() && gap > 0.0)
        {
            return Err(WorkloadError::value("gap", gap, "a positive time"));
        }
        let open = |key: &str, value: f64| {
            let ok = value > 0.0 && value < 1.0;
            ok.then_some(()).ok_or_else(|| WorkloadError::value(key, value, "a share over 0 and under 1"))
        };
        match &self.pattern {
            Pattern::Sequential | Pattern::Random => Ok(()),
            Pattern::HotCold { access, space, .. } | Pattern::Log { access, space } => {
                open("share of accesses", *access)?;
                open("share of pages", *space)
            }
            Pattern::Moving { access, space, period, .. } => {
                open("share of accesses", *access)?;
                open("share of pages", *space)?;
                let fits = (0.001..=1e9).contains(period);
                fits.then_some(()).ok_or_else(|| WorkloadError::value("period", period, "a number from 0.001 to 10^9"))
            }
            Pattern::Zipf { exponent, .. } if exponent.is_finite() && *exponent > 0.0 => Ok(()),
            Pattern::Zipf { exponent, .. } => Err(WorkloadError::value("exponent", exponent, "a positive number")),
            Pattern::Mix(mix) => mix.check(),
            Pattern::Phases { phases, repeat } => {
                if phases.is_empty() || *repeat == 0 {
                    return Err(WorkloadError::value("phases", phases.len(), "at least one phase, run at least once"));
                }
                let endless = phases.iter().position(|phase| phase.expected_writes().is_none());
                if let Some(at) = endless.filter(|at| *at + 1 < phases.len() || *repeat > 1) {
                    let phase = format!("phase {} without writes", at + 1);
                    return Err(WorkloadError::value("writes", phase, "a number of writes in each phase"));
                }
                phases.iter().try_for_each(Self::check)
            }
        }
    }
}

impl Mix {
    fn check(&self) -> Result<(), WorkloadError> {
        let space: f64 = self.zones.iter().map(|zone| zone.space).sum();
        if self.zones.iter().any(|zone| !(zone.space > 0.0 && zone.access >= 0.0)) || (space - 1.0).abs() > 1e-6 {
            return Err(WorkloadError::value("zones", space, "positive shares of the space that add up to 1"));
        }
        if self.zones.iter().map(|zone| zone.access).sum::<f64>() <= 0.0 {
            return Err(WorkloadError::value("zones", 0, "a zone with a positive weight"));
        }
        let weight: f64 = self.sizes.iter().map(|size| size.weight).sum();
        let bad = self.sizes.iter().any(|size| size.pages == 0 || !size.weight.is_finite() || size.weight < 0.0);
        if bad || weight.is_nan() || weight <= 0.0 {
            return Err(WorkloadError::value("sizes", weight, "sizes of at least 1 page with weights over 0 in all"));
        }
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    workload: Option<String>,
    #[serde(default)]
    mix: Option<Mix>,
    #[serde(default)]
    phase: Vec<File>,
    #[serde(default)]
    repeat: Option<u32>,
    /// More `key=value` pairs for a mix or phases, as in the text form.
    #[serde(default)]
    options: Option<String>,
}

impl File {
    fn spec(self) -> Result<WorkloadSpec, WorkloadError> {
        let given = [self.workload.is_some(), self.mix.is_some(), !self.phase.is_empty()];
        if given.iter().filter(|given| **given).count() != 1 {
            let message = "give exactly one of workload = \"...\", [mix] and [[phase]]";
            return Err(WorkloadError::Toml(message.into()));
        }
        let mut spec = if let Some(text) = self.workload {
            text.parse()?
        } else if let Some(mix) = self.mix {
            WorkloadSpec::new(Pattern::Mix(mix))
        } else {
            let phases = self.phase.into_iter().map(File::spec).collect::<Result<Vec<_>, _>>()?;
            WorkloadSpec::new(Pattern::Phases { repeat: self.repeat.unwrap_or(1), phases })
        };
        for pair in self.options.iter().flat_map(|options| options.split(',')) {
            spec.set(pair)?;
        }
        spec.check()?;
        Ok(spec)
    }
}

/// Parses a time such as `20ms`, `5s` or `14d` into microseconds.
fn duration_us(key: &str, text: &str) -> Result<f64, WorkloadError> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" => 60e6,
        "h" => 3600e6,
        "d" => 86_400e6,
        _ => f64::NAN,
    };
    let value = digits.parse::<f64>().unwrap_or(f64::NAN) * unit;
    let wanted = "a positive time with its unit: 5us, 20ms, 24.6s, 5m, 2h, 14d";
    if value.is_finite() && value > 0.0 { Ok(value) } else { Err(WorkloadError::value(key, text, wanted)) }
}

impl WorkloadSpec {
    fn set(&mut self, pair: &str) -> Result<(), WorkloadError> {
        let (key, value) = pair.trim().split_once('=').unwrap_or((pair.trim(), ""));
        let number = || {
            let parsed = value.parse::<f64>().ok().filter(|v| v.is_finite());
            parsed.ok_or_else(|| WorkloadError::value(key, value, "a number"))
        };
        match key {
            "writes" => {
                let wanted = "a whole number of page writes";
                self.writes = Some(value.parse().map_err(|_| WorkloadError::value(key, value, wanted))?);
            }
            "poisson" => self.arrival = Arrival::Poisson(duration_us(key, value)?),
            "gap" => self.arrival = Arrival::Fixed(duration_us(key, value)?),
            "reads" => self.reads = number()?,
            "trims" => self.trims = number()?,
            "read-only" => self.read_only = number()?,
            "layout" => {
                let wanted = "scattered, contiguous or strided, with hot-cold, moving or zipf";
                let chosen = match value {
                    "scattered" => HotLayout::Scattered,
                    "contiguous" => HotLayout::Contiguous,
                    "strided" => HotLayout::Strided,
                    _ => return Err(WorkloadError::value(key, value, wanted)),
                };
                match &mut self.pattern {
                    Pattern::HotCold { layout, .. } | Pattern::Moving { layout, .. } | Pattern::Zipf { layout, .. } => {
                        *layout = chosen
                    }
                    _ => return Err(WorkloadError::value(key, value, wanted)),
                }
            }
            "period" => match &mut self.pattern {
                Pattern::Moving { period, .. } => *period = number()?,
                _ => return Err(WorkloadError::value(key, value, "the workload `moving`")),
            },
            _ => {
                let known = "one of writes, poisson, gap, reads, trims, read-only, layout, period";
                return Err(WorkloadError::value("parameter", key, known));
            }
        }
        Ok(())
    }
}

/// Parses `x/y`, in percent.
fn shares(name: &str, argument: &str, default: &str) -> Result<(f64, f64), WorkloadError> {
    let argument = if argument.is_empty() { default } else { argument };
    let both = argument.split_once('/').and_then(|(x, y)| Some((x.parse::<f64>().ok()?, y.parse::<f64>().ok()?)));
    let wanted = format!("x/y: x % of the accesses to y % of the pages, as {default}");
    let (x, y) = both.ok_or_else(|| WorkloadError::value(name, argument, wanted))?;
    Ok((x / 100.0, y / 100.0))
}

impl FromStr for WorkloadSpec {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let mut parts = text.split(',');
        let first = parts.next().unwrap_or_default().trim();
        let (name, argument) = first.split_once(':').unwrap_or((first, ""));
        let plain = |pattern| {
            if argument.is_empty() { Ok(pattern) } else { Err(WorkloadError::value(name, argument, "no argument")) }
        };
        let pattern = match name {
            "sequential" => plain(Pattern::Sequential)?,
            "random" => plain(Pattern::Random)?,
            "jedec-enterprise" => plain(Pattern::Mix(jedec_enterprise()))?,
            "hot-cold" => {
                let (access, space) = shares(name, argument, "90/10")?;
                Pattern::HotCold { access, space, layout: HotLayout::Scattered }
            }
            "moving" => {
                let (access, space) = shares(name, argument, "90/10")?;
                Pattern::Moving { access, space, period: 10.0, layout: HotLayout::Scattered }
            }
            "log" => {
                let (access, space) = shares(name, argument, "50/50")?;
                Pattern::Log { access, space }
            }
            "zipf" => {
                let argument = if argument.is_empty() { "0.99" } else { argument };
                let exponent =
                    argument.parse().map_err(|_| WorkloadError::value(name, argument, "an exponent, as 0.99"))?;
                Pattern::Zipf { exponent, layout: HotLayout::Scattered }
            }
            _ => return Err(WorkloadError::Unknown { name: name.into(), known: pattern_names() }),
        };
        let mut spec = Self::new(pattern);
        for pair in parts {
            spec.set(pair)?;
        }
        spec.check()?;
        Ok(spec)
    }
}

impl fmt::Display for WorkloadSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = match &self.pattern {
            Pattern::HotCold { layout, .. } | Pattern::Moving { layout, .. } | Pattern::Zipf { layout, .. } => *layout,
            _ => HotLayout::Scattered,
        };
        // The shares were given in percent; rounding removes the digits that the division by 100 added.
        let percent = |share: f64| (share * 1e8).round() / 1e6;
        match &self.pattern {
            Pattern::Sequential => f.write_str("sequential")?,
            Pattern::Random => f.write_str("random")?,
            Pattern::HotCold { access, space, .. } => {
                write!(f, "hot-cold:{}/{}", percent(*access), percent(*space))?;
            }
            Pattern::Moving { access, space, period, .. } => {
                write!(f, "moving:{}/{},period={period}", percent(*access), percent(*space))?;
            }
            Pattern::Log { access, space } => write!(f, "log:{}/{}", percent(*access), percent(*space))?,
            Pattern::Zipf { exponent, .. } => write!(f, "zipf:{exponent}")?,
            Pattern::Mix(mix) if *mix == jedec_enterprise() => f.write_str("jedec-enterprise")?,
            Pattern::Mix(mix) => write!(f, "mix of {} zones and {} sizes", mix.zones.len(), mix.sizes.len())?,
            Pattern::Phases { repeat, phases } => {
                let texts: Vec<_> = phases.iter().map(ToString::to_string).collect();
                write!(f, "{repeat} x ({})", texts.join("; "))?;
            }
        }
        match layout {
            HotLayout::Scattered => {}
            HotLayout::Contiguous => f.write_str(",layout=contiguous")?,
            HotLayout::Strided => f.write_str(",layout=strided")?,
        }
        if let Some(writes) = self.writes {
            write!(f, ",writes={writes}")?;
        }
        match self.arrival {
            Arrival::Asap => {}
            Arrival::Fixed(us) => write!(f, ",gap={us}us")?,
            Arrival::Poisson(us) => write!(f, ",poisson={us}us")?,
        }
        for (key, value) in [("reads", self.reads), ("trims", self.trims), ("read-only", self.read_only)] {
            if value > 0.0 {
                write!(f, ",{key}={value}")?;
            }
        }
        Ok(())
    }
}
