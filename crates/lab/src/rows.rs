//! Results as rows: columns of a table, which the command writes as CSV and Parquet, and Python has as Arrow.

use crate::LabError;
use crate::result::{Outcome, ResultRow};
use crate::statistics::Interval;
use crate::summary::Group;
use crate::sweep::{Point, plain};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::hash::Hash;

/// A row: values by the names of their columns.
pub type Row = Map<String, Value>;

fn failed(error: impl std::fmt::Display) -> LabError {
    LabError::Write { path: "the result".into(), error: format!("cannot be written: {error}") }
}

/// What the values of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    Text,
    /// True or false.
    Flag,
    /// Whole numbers of 64 bits, not negative.
    Count,
    /// Numbers of floating point.
    Fraction,
}

impl Kind {
    /// The narrowest kind that holds all values of a column. The kind of a field never depends on the run: JSON keeps a
    /// fraction that happens to be whole as a fraction.
    pub fn of(rows: &[Row], key: &str) -> Self {
        let values = || rows.iter().filter_map(|row| row.get(key));
        if values().any(Value::is_string) {
            Self::Text
        } else if values().any(Value::is_boolean) {
            Self::Flag
        } else if values().any(Value::is_u64) {
            Self::Count
        } else {
            Self::Fraction
        }
    }
}

/// Rows in which the fields of nested objects are columns, such as `forecast.years_first`.
///
/// # Errors
/// A value has no form in JSON.
pub fn flat<'a, T: Serialize + 'a>(rows: impl Iterator<Item = &'a T>) -> Result<Vec<Row>, LabError> {
    let flat = |row: &T| {
        let Value::Object(row) = serde_json::to_value(row).map_err(failed)? else { return Ok(Map::new()) };
        let mut out = Map::new();
        for (key, value) in row {
            match value {
                Value::Object(inner) => out.extend(inner.into_iter().map(|(name, v)| (format!("{key}.{name}"), v))),
                value => drop(out.insert(key, value)),
            }
        }
        Ok(out)
    };
    rows.map(flat).collect()
}

/// The rows of runs; those of runs that differ in their seed alone have the mean of all of them and half its 95 % interval.
///
/// # Errors
/// A value has no form in JSON.
pub fn of_runs(outcomes: &[Outcome]) -> Result<Vec<Row>, LabError> {
    let mut rows = flat(outcomes.iter().map(|outcome| &outcome.row))?;
    let policies = |row: &ResultRow| (row.selection.clone(), row.placement.clone(), row.leveling.clone());
    let keyed: Vec<_> = outcomes.iter().map(|outcome| (policies(&outcome.row), &outcome.row)).collect();
    add_groups(&mut rows, &keyed);
    Ok(rows)
}

/// Adds to each row what is known of its group.
fn add_groups<K: Eq + Hash + Clone>(rows: &mut [Row], keyed: &[(K, &ResultRow)]) {
    let groups = Group::by(keyed.iter().map(|(key, row)| (key.clone(), *row)));
    let mut of_key: HashMap<&K, usize> = HashMap::new();
    for (key, _) in keyed {
        let next = of_key.len();
        of_key.entry(key).or_insert(next);
    }
    for (row, (key, _)) in rows.iter_mut().zip(keyed) {
        let group = &groups[of_key[key]];
        let wa = group.wa();
        row.insert("group_seeds".into(), group.rows.len().into());
        row.insert("group_wa_warm".into(), wa.mean.into());
        row.insert("group_wa_warm_half95".into(), wa.half95.map_or(Value::Null, Value::from));
    }
}

/// A setting as a value of a column: whole numbers become fractions if another row has one, all become text if another has
/// text.
fn setting(key: &str, points: &[Point], value: &toml::Value) -> Value {
    let all = || points.iter().filter_map(|point| point.varied.get(key));
    match value {
        toml::Value::Boolean(flag) if all().all(toml::Value::is_bool) => (*flag).into(),
        toml::Value::Integer(number) if all().all(|value| value.as_integer().is_some_and(|n| n >= 0)) => {
            number.unsigned_abs().into()
        }
        toml::Value::Integer(number) if all().all(|value| value.is_integer() || value.is_float()) => {
            (*number as f64).into()
        }
        toml::Value::Float(number) if all().all(|value| value.is_integer() || value.is_float()) => (*number).into(),
        value => plain(value).into(),
    }
}

/// Times of the wall clock, which a sweep leaves out.
const WALL_TIMES: [&str; 2] = ["wall_s", "writes_per_s"];

/// The rows of the finished points of a sweep, with the settings that it varies as columns `set.NAME`.
///
/// # Errors
/// A value has no form in JSON.
pub fn of_sweep(points: &[Point], rows: &[Option<ResultRow>]) -> Result<Vec<Row>, LabError> {
    let done: Vec<(&Point, &ResultRow)> =
        points.iter().zip(rows).filter_map(|(point, row)| Some((point, row.as_ref()?))).collect();
    let mut maps = flat(done.iter().map(|(_, row)| *row))?;
    for (map, (point, _)) in maps.iter_mut().zip(&done) {
        WALL_TIMES.iter().for_each(|key| drop(map.remove(*key)));
        for (key, value) in &point.varied {
            map.insert(format!("set.{key}"), setting(key, points, value));
        }
    }
    let keyed: Vec<_> = done.iter().map(|(point, row)| (point.varied.to_string(), *row)).collect();
    add_groups(&mut maps, &keyed);
    Ok(maps)
}

/// Results as JSON, time series included: an object for one run, a list for several.
///
/// # Errors
/// A value has no form in JSON.
pub fn json<T: Serialize>(results: &[T]) -> Result<String, LabError> {
    let text = match results {
        [one] => serde_json::to_string_pretty(one),
        several => serde_json::to_string_pretty(several),
    };
    Ok(text.map_err(failed)? + "\n")
}

/// The outcomes of runs as JSON, each with what is known of its group.
///
/// # Errors
/// A value has no form in JSON.
pub fn runs_as_json(outcomes: &[Outcome]) -> Result<String, LabError> {
    #[derive(Serialize)]
    struct OfGroup<'a> {
        #[serde(flatten)]
        outcome: &'a Outcome,
        /// Write amplification in the warm window over the seeds.
        group_wa_warm: Interval,
    }
    let rows: Vec<&ResultRow> = outcomes.iter().map(|outcome| &outcome.row).collect();
    let groups = Group::by_policies(rows.iter().copied());
    let of = |outcome: &&Outcome| {
        let group = groups.iter().find(|group| group.rows.iter().any(|row| std::ptr::eq(*row, &outcome.row)));
        group.map_or(Interval::exact(outcome.row.wa_warm), Group::wa)
    };
    let all: Vec<_> = outcomes.iter().map(|outcome| OfGroup { outcome, group_wa_warm: of(&outcome) }).collect();
    json(&all)
}
