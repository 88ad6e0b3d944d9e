//! An experiment as settings: the options of the command, the keys of a TOML file, the parameters of a sweep's points.

use crate::experiment::{AddressChoice, Capacity, Experiment, Limit, Source, TraceSource};
use crate::held::HeldTraces;
use crate::own::OwnPair;
use crate::reading::Reading;
use crate::run::Prepared;
use crate::sources::Sources;
use crate::{LabError, run};
use margay_media::DeviceSpec;
use margay_policy::Spec;
use margay_policy::spec::PolicyKind;
use margay_theory::OverProvisioning;
use margay_workload::WorkloadSpec;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// How addresses of a trace become pages, as a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Addresses {
    /// Use them as they are; one past the end of the device is an error
    Direct,
    /// Take them modulo the exported capacity, as the papers did
    Fold,
    /// Number the pages in the order of their first write
    Compact,
}

/// The device, the policies, the source and how far to run. Every option can stand in a TOML file (--experiment) under the
/// same name; the command line takes precedence.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default, rename_all = "kebab-case")]
pub struct Settings {
    /// A trace file, or a workload such as `random` or `hot-cold:90/10,writes=100000` (see `margay policies workloads`), or a .toml file: one that describes a workload, or an experiment file
    pub source: Option<String>,
    /// Selection policy: which segment is cleaned next (see `margay policies selection`)
    #[cfg_attr(feature = "clap", arg(long, short = 's', value_name = "POLICY"))]
    #[serde(deserialize_with = "one_or_many")]
    pub selection: Option<Vec<String>>,
    /// Placement policy: which stream a page goes to (see `margay policies placement`)
    #[cfg_attr(feature = "clap", arg(long, short = 'p', value_name = "POLICY"))]
    #[serde(deserialize_with = "one_or_many")]
    pub placement: Option<Vec<String>>,
    /// Device: a preset or a .toml file (see `margay policies devices`) [default: ideal-1gb, sized from a trace]
    #[cfg_attr(feature = "clap", arg(long, short = 'd'))]
    pub device: Option<String>,
    /// Size the device by the pages that the trace writes, at the utilization that is asked for
    #[cfg_attr(feature = "clap", arg(long))]
    pub size_from_trace: bool,
    /// Capacity of the flash, in bytes or as 24M, 64G
    #[cfg_attr(feature = "clap", arg(long, value_name = "SIZE"))]
    #[serde(deserialize_with = "text_or_number")]
    pub flash_size: Option<String>,
    /// Number of pages in a segment, metadata pages included
    #[cfg_attr(feature = "clap", arg(long, value_name = "PAGES"))]
    pub pages_per_segment: Option<u32>,
    /// Size of a page in bytes
    #[cfg_attr(feature = "clap", arg(long, value_name = "BYTES"))]
    pub page_bytes: Option<u32>,
    /// Number of metadata pages at the start of each segment
    #[cfg_attr(feature = "clap", arg(long, value_name = "PAGES"))]
    pub header_pages: Option<u32>,
    /// Number of metadata pages at the end of each segment
    #[cfg_attr(feature = "clap", arg(long, value_name = "PAGES"))]
    pub summary_pages: Option<u32>,
    /// Number of segments that are never used for data
    #[cfg_attr(feature = "clap", arg(long, value_name = "SEGMENTS"))]
    pub reserved_segments: Option<u32>,
    /// Utilization: exported pages / data pages [default: 0.9]
    #[cfg_attr(feature = "clap", arg(long, conflicts_with_all = ["over_provisioning", "exported_pages"], value_name = "RATIO"))]
    pub utilization: Option<f64>,
    /// Over-provisioning: data pages / exported pages - 1, so 0.1 is 10 %
    #[cfg_attr(feature = "clap", arg(long, conflicts_with = "exported_pages", value_name = "RATIO"))]
    pub over_provisioning: Option<f64>,
    /// Number of exported pages
    #[cfg_attr(feature = "clap", arg(long, value_name = "PAGES"))]
    pub exported_pages: Option<u32>,
    /// Share of the exported pages that is written before the run [default: 1]
    #[cfg_attr(feature = "clap", arg(long, value_name = "RATIO"))]
    pub fill: Option<f64>,
    /// Cleaning starts when fewer segments than this are free [default: 3]
    #[cfg_attr(feature = "clap", arg(long, value_name = "SEGMENTS"))]
    pub low_water: Option<u32>,
    /// Cleaning stops when this many segments are free [default: the low-water mark]
    #[cfg_attr(feature = "clap", arg(long, value_name = "SEGMENTS"))]
    pub high_water: Option<u32>,
    /// Maximum number of pages programmed for one host write: cleaning then keeps pace with the writes, as in `margay serve` [default: all cleaning is done when a segment is opened, as in the FMS papers]
    #[cfg_attr(feature = "clap", arg(long, alias = "most-pages-per-write", value_name = "PAGES"))]
    #[serde(alias = "most-pages-per-write")]
    pub max_pages_per_write: Option<u32>,
    /// Keep data that the workload never writes in segments of its own
    #[cfg_attr(feature = "clap", arg(long))]
    pub separate_read_only: bool,
    /// Leveling policy [default: none]
    #[cfg_attr(feature = "clap", arg(long, value_name = "POLICY"))]
    pub leveling: Option<String>,
    /// Stop after this many host page writes; the source starts over as often as needed
    #[cfg_attr(feature = "clap", arg(long, conflicts_with_all = ["device_writes", "repeat"]))]
    pub writes: Option<u64>,
    /// Stop when the host has written this many times the exported capacity [default: 10 for workloads without an end]
    #[cfg_attr(feature = "clap", arg(long, conflicts_with = "repeat", value_name = "TIMES"))]
    pub device_writes: Option<f64>,
    /// Run the source this many times
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIMES"))]
    pub repeat: Option<u32>,
    /// Go on until write amplification has settled and is known to 1 %, or the host has written --device-writes times the exported capacity [then: 100, or 30 passes of a trace]
    #[cfg_attr(feature = "clap", arg(long, conflicts_with_all = ["writes", "repeat", "warm_up"]))]
    pub until_steady: bool,
    /// Leave this share of the run, from its start, out of the warm window [default: the start of the warm window is found by the test MSER-5]
    #[cfg_attr(feature = "clap", arg(long, value_name = "RATIO"))]
    pub warm_up: Option<f64>,
    /// Also forecast when this share of the segments will be worn out, beside the first one [default: 0.1]
    #[cfg_attr(feature = "clap", arg(long, value_name = "RATIO"))]
    pub worn_share: Option<f64>,
    /// Seed of the workload and of the policies, the first one if there are several [default: 1]
    #[cfg_attr(feature = "clap", arg(long))]
    pub seed: Option<u64>,
    /// How addresses of a trace become pages [default: fold, or compact if the device is sized from the trace]
    #[cfg_attr(feature = "clap", arg(long, value_enum))]
    pub addresses: Option<Addresses>,
    /// How the trace is read.
    #[cfg_attr(feature = "clap", command(flatten))]
    #[serde(flatten)]
    pub reading: Reading,
    // Traces in memory, which `source` can name.
    #[cfg_attr(feature = "clap", arg(skip))]
    #[serde(skip)]
    #[allow(missing_docs)]
    pub held: HeldTraces,
}

/// Settings of which at most one of a group can be given: who gives one anew puts all of its group aside.
pub const EXCLUSIVE: [&[&str]; 4] = [
    &["utilization", "over-provisioning", "exported-pages"],
    &["writes", "device-writes", "repeat"],
    &["until-steady", "writes", "repeat"],
    &["until-steady", "warm-up"],
];

/// Puts settings over others: those of `upper` win, and put aside those of `lower` that they exclude.
pub fn put_over(upper: Table, mut lower: Table) -> Table {
    for group in EXCLUSIVE {
        // Both may be of one side: `until-steady` takes `device-writes` as its limit.
        if group.iter().any(|key| upper.contains_key(*key)) {
            group.iter().for_each(|key| drop(lower.remove(*key)));
        }
    }
    lower.extend(upper);
    lower
}

/// Deserializes one value as a list of it.
pub(crate) fn one_or_many<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<Vec<T>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected one value, or a list of them")]
    enum OneOrMany<T> {
        One(T),
        Many(Vec<T>),
    }
    Ok(Some(match OneOrMany::deserialize(from)? {
        OneOrMany::One(one) => vec![one],
        OneOrMany::Many(many) => many,
    }))
}

fn text_or_number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a text such as \"24M\", or a number that is not negative")]
    enum Text {
        Text(String),
        Number(u64),
    }
    Ok(Some(match Text::deserialize(from)? {
        Text::Text(text) => text,
        Text::Number(number) => number.to_string(),
    }))
}

/// The number of bytes that a size such as `24M`, `1.5GiB` or `4096` stands for; its letters are binary multiples. `what` names it in
/// an error.
///
/// # Errors
/// The text is no number with K, M, G or T behind it, or less than a byte, or 10^18 bytes or more.
pub fn size_bytes(what: &'static str, text: &str) -> Result<u64, LabError> {
    let wrong = || LabError::Value {
        what,
        value: text.into(),
        problem: "expected a number of bytes from 1 on and below 10^18, or a number with K, M, G or T, as 64M".into(),
    };
    let trimmed = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[trimmed.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(wrong()),
    };
    let value: f64 = trimmed.parse().map_err(|_| wrong())?;
    let bytes = value * (1u64 << unit) as f64;
    if bytes.is_finite() && (1.0..1e18).contains(&bytes) { Ok(bytes as u64) } else { Err(wrong()) }
}

/// The one policy that is named, or the default one.
fn one<K: PolicyKind>(what: &'static str, asked: &Option<Vec<String>>) -> Result<Spec<K>, LabError> {
    match asked.as_deref().unwrap_or_default() {
        [] => Ok(Spec::default()),
        [one] => Ok(one.parse()?),
        several => Err(LabError::Value {
            what,
            value: several.join(", "),
            problem: "a run has one; `margay compare` and `margay sweep` run several".into(),
        }),
    }
}

/// The one policy that is named, if it is of the program's own.
fn own_one<T: Clone>(own: &BTreeMap<String, T>, asked: &Option<Vec<String>>) -> Option<T> {
    match asked.as_deref() {
        Some([one]) => own.get(one).cloned(),
        _ => None,
    }
}

/// What a table says of settings, in which keys that are none are passed over.
///
/// # Errors
/// A value is not of the kind that its key wants.
pub fn from_table<T: DeserializeOwned>(table: &Table) -> Result<T, LabError> {
    // Key by key first: an error of the whole table does not say which key it means.
    for (key, value) in table {
        let one = Table::from_iter([(key.clone(), value.clone())]);
        if let Err(error) = Value::Table(one).try_into::<T>() {
            let mut problem = error.message().lines().next().unwrap_or_default().to_string();
            if value.is_array() || value.as_str().is_some_and(|text| text.contains("..")) {
                problem += "; several values are for `margay sweep`";
            }
            return Err(LabError::Setting { key: key.clone(), value: value.to_string(), problem });
        }
    }
    let whole = Value::Table(table.clone()).try_into();
    whole.map_err(|error: toml::de::Error| LabError::Setting {
        key: "settings".into(),
        value: String::new(),
        problem: error.message().into(),
    })
}

/// Settings as a table, with those that are set.
///
/// # Errors
/// A path is no text that TOML could hold.
pub fn to_table<T: Serialize>(settings: &T) -> Result<Table, LabError> {
    let table = Table::try_from(settings).map_err(|error| LabError::Setting {
        key: "settings".into(),
        value: String::new(),
        problem: error.to_string(),
    })?;
    let is_set = |value: &Value| *value != Value::Boolean(false) && !value.as_array().is_some_and(Vec::is_empty);
    Ok(table.into_iter().filter(|(_, value)| is_set(value)).collect())
}

impl Settings {
    /// The settings as JSON, for another machine.
    ///
    /// # Errors
    /// A path is no text, or a trace or a policy is in memory, where another machine has none.
    pub fn to_json(&self) -> Result<String, LabError> {
        let failed = |problem: String| LabError::Setting {
            key: "source".into(),
            value: self.source.clone().unwrap_or_default(),
            problem,
        };
        if let Some((key, name)) = self.own_policies().first() {
            let problem = "a policy of Python cannot be sent to other machines; run it on this one";
            return Err(LabError::Setting { key: (*key).into(), value: (*name).into(), problem: problem.into() });
        }
        if self.source.as_ref().is_some_and(|source| self.held.get(source).is_some()) {
            let problem = "a trace in memory cannot be sent to other machines; save it to a file that they can read";
            return Err(failed(problem.into()));
        }
        let mut json = serde_json::to_value(self).map_err(|error| failed(error.to_string()))?;
        if let Some(fields) = json.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        Ok(json.to_string())
    }

    /// The settings that [`Settings::to_json`] wrote.
    ///
    /// # Errors
    /// The text is of another version, or it is none of this kind.
    pub fn from_json(text: &str) -> Result<Self, LabError> {
        serde_json::from_str(text).map_err(|error| LabError::Setting {
            key: "settings".into(),
            value: text.chars().take(80).collect(),
            problem: error.to_string(),
        })
    }

    /// The policies of the program's own that the settings name: the setting, and the name.
    pub fn own_policies(&self) -> Vec<(&'static str, &str)> {
        let own = &self.held.policies;
        let selections = self.selection.as_deref().unwrap_or_default().iter();
        let placements = self.placement.as_deref().unwrap_or_default().iter();
        let selections =
            selections.filter(|name| own.selections.contains_key(*name)).map(|name| ("selection", &**name));
        let placements =
            placements.filter(|name| own.placements.contains_key(*name)).map(|name| ("placement", &**name));
        selections.chain(placements).collect()
    }

    /// The files that the settings name, if they are there: the setting, and the path. A name that has another meaning, such
    /// as that of a device, is no file, whatever lies in the working folder.
    pub fn files(&self) -> Vec<(&'static str, String)> {
        let source = self.source.as_deref().filter(|source| self.held.get(source).is_none());
        let device = self.device.as_deref().and_then(DeviceSpec::file_of);
        let named = [
            ("source", source.map(PathBuf::from)),
            ("device", device.map(PathBuf::from)),
            ("csv-layout", self.reading.csv_layout.clone()),
        ];
        let found = named.into_iter().filter_map(|(key, path)| Some((key, path.filter(|path| path.is_file())?)));
        found.filter_map(|(key, path)| Some((key, path.into_os_string().into_string().ok()?))).collect()
    }

    fn device(&self) -> Result<DeviceSpec, LabError> {
        let mut device = DeviceSpec::load(self.device.as_deref().unwrap_or("ideal-1gb"))?;
        let bytes_before = device.geometry()?.bytes();
        device.page_bytes = self.page_bytes.unwrap_or(device.page_bytes);
        device.pages_per_segment = self.pages_per_segment.unwrap_or(device.pages_per_segment);
        device.header_pages = self.header_pages.unwrap_or(device.header_pages);
        device.summary_pages = self.summary_pages.unwrap_or(device.summary_pages);
        let size = self.flash_size.as_deref().map(|size| size_bytes("flash-size", size)).transpose()?;
        Ok(device.with_bytes(size.unwrap_or(bytes_before))?)
    }

    fn limit(&self, source: &Source) -> Result<Limit, LabError> {
        if let Some(times) = self.device_writes.filter(|times| !(times.is_finite() && *times > 0.0)) {
            let problem = "expected a positive number".into();
            return Err(LabError::Value { what: "--device-writes", value: times.to_string(), problem });
        }
        Ok(match (self.writes, self.device_writes, self.repeat) {
            _ if self.until_steady => Limit::Steady { max_device_writes: self.device_writes },
            (Some(writes), _, _) => Limit::Writes(writes),
            (_, Some(times), _) => Limit::DeviceWrites(times),
            (_, _, Some(0)) => {
                let problem = "expected at least 1".into();
                return Err(LabError::Value { what: "--repeat", value: "0".into(), problem });
            }
            (_, _, Some(times)) => Limit::Times(times),
            _ => match source {
                Source::Workload(spec) if spec.expected_writes().is_none() => Limit::DeviceWrites(10.0),
                _ => Limit::Once,
            },
        })
    }

    /// The experiment, and whether its device is to be sized from the trace. No trace is read.
    ///
    /// # Errors
    /// A name is not known, a value is impossible, or there is no source.
    pub fn experiment(&self) -> Result<(Experiment, bool), LabError> {
        let Some(text) = self.source.clone() else { return Err(LabError::NoSource) };
        if text == "-" {
            let problem = "a run reads its trace more than once; write the standard input to a file first".into();
            return Err(LabError::Setting { key: "source".into(), value: text, problem });
        }
        let held = self.held.get(&text);
        let is_file = held.is_some() || Path::new(&text).is_file() && !text.ends_with(".toml");
        let mut from_trace = self.size_from_trace;
        let source = if is_file {
            from_trace |= self.device.is_none() && self.flash_size.is_none();
            let addresses = match self.addresses {
                Some(Addresses::Direct) => AddressChoice::Direct,
                Some(Addresses::Compact) => AddressChoice::Compact,
                Some(Addresses::Fold) | None => AddressChoice::Fold,
            };
            Source::Trace(TraceSource { path: text.into(), held, options: self.reading.options()?, addresses })
        } else {
            if text.contains("://") {
                let error = "no such file; the Python package fetches what a URL names (`margay.fetch`)".into();
                return Err(LabError::File { path: text, error });
            }
            // No workload has such a name, whatever its parameters are.
            let is_path =
                text.contains('/') && !text.contains(':') || text.split([':', ',']).next().unwrap_or("").contains('.');
            if is_path && !text.ends_with(".toml") || text.ends_with(".zst") {
                return Err(LabError::File { path: text, error: "no such file".into() });
            }
            Source::Workload(WorkloadSpec::load(&text)?)
        };
        let limit = self.limit(&source)?;
        let mut experiment = Experiment::new(self.device()?, source);
        experiment.limit = limit;
        experiment.capacity = match (self.utilization, self.over_provisioning, self.exported_pages) {
            (Some(u), _, _) => Capacity::Utilization(u),
            (_, Some(op), _) => {
                OverProvisioning::from_over_provisioning(op)?;
                Capacity::OverProvisioning(op)
            }
            (_, _, Some(pages)) => Capacity::Pages(pages),
            _ => Capacity::Utilization(0.9),
        };
        experiment.own = OwnPair {
            selection: own_one(&self.held.policies.selections, &self.selection),
            placement: own_one(&self.held.policies.placements, &self.placement),
        };
        if experiment.own.selection.is_none() {
            experiment.selection = one("selection", &self.selection)?;
        }
        if experiment.own.placement.is_none() {
            experiment.placement = one("placement", &self.placement)?;
        }
        experiment.fill = self.fill.unwrap_or(1.0);
        experiment.reserved_segments = self.reserved_segments.unwrap_or(0);
        experiment.low_water = self.low_water.unwrap_or(3);
        experiment.high_water = self.high_water.unwrap_or(experiment.low_water);
        experiment.max_pages_per_write = self.max_pages_per_write.unwrap_or(0);
        experiment.separate_read_only = self.separate_read_only;
        experiment.leveling = self.leveling.as_deref().unwrap_or("none").parse()?;
        experiment.warm_up = self.warm_up;
        experiment.worn_share = self.worn_share.unwrap_or(0.1);
        experiment.seed = self.seed.unwrap_or(1);
        experiment.check()?;
        if from_trace && self.pages_per_segment.is_none() && self.device.is_none() {
            experiment.device.pages_per_segment = 64;
        }
        Ok((experiment, from_trace))
    }

    /// The experiment, and its source, read; `sources` keeps what was read for others.
    ///
    /// # Errors
    /// Those of [`Settings::experiment`], and those of reading the trace.
    pub fn prepare(&self, sources: &Sources) -> Result<(Experiment, Prepared), LabError> {
        let (mut experiment, from_trace) = self.experiment()?;
        if from_trace {
            let prepared = run::size_from_trace_of(&mut experiment, sources)?;
            experiment.device.name = format!("{}, sized from the trace", experiment.device.name);
            return Ok((experiment, prepared));
        }
        let prepared = run::prepare_of(&experiment, sources)?;
        Ok((experiment, prepared))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_of_numbers_make_no_file_of_a_workload_and_those_of_names_make_one() {
        let experiment = |source: &str| Settings { source: Some(source.into()), ..Settings::default() }.experiment();
        for workload in
            ["random,trims=0.1,reads=0.1", "zipf:0.99", "hot-cold:90/10,poisson=1.5ms", "zipf:0.9,writes=10"]
        {
            assert!(experiment(workload).is_ok(), "{workload}");
        }
        for missing in ["missing.csv", "missing.csv.zst", "folder/missing", "./missing", "s3://bucket/missing"] {
            let error = experiment(missing).unwrap_err();
            assert!(matches!(error, LabError::File { .. }), "{missing}: {error}");
        }
        assert!(matches!(experiment("randum").unwrap_err(), LabError::Workload(_)));
    }
}
