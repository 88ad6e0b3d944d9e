use crate::args::OutputFormat;
use crate::failure::Failure;
use margay_lab::statistics::Interval;
use margay_lab::summary::Group;
use margay_lab::sweep::{Point, plain};
use margay_lab::{Outcome, ResultRow};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::hash::Hash;

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Run(format!("the result cannot be written: {error}"))
}

/// Results as JSON, time series included: an object for one run, a list for several.
pub fn json<T: Serialize>(results: &[T]) -> Result<Vec<u8>, Failure> {
    let mut bytes = match results {
        [one] => serde_json::to_vec_pretty(one),
        several => serde_json::to_vec_pretty(several),
    }
    .map_err(failed)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Rows in which the fields of nested objects are columns, such as `forecast.years_first`.
fn flatten<'a, T: Serialize + 'a>(rows: impl Iterator<Item = &'a T>) -> Result<Vec<Map<String, Value>>, Failure> {
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
fn run_rows(outcomes: &[Outcome]) -> Result<Vec<Map<String, Value>>, Failure> {
    let mut rows = flatten(outcomes.iter().map(|outcome| &outcome.row))?;
    let policies = |row: &ResultRow| (row.selection.clone(), row.placement.clone(), row.leveling.clone());
    let keyed: Vec<_> = outcomes.iter().map(|outcome| (policies(&outcome.row), &outcome.row)).collect();
    add_groups(&mut rows, &keyed);
    Ok(rows)
}

/// Adds to each row what is known of its group.
fn add_groups<K: Eq + Hash + Clone>(rows: &mut [Map<String, Value>], keyed: &[(K, &ResultRow)]) {
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
pub fn sweep_rows(points: &[Point], rows: &[Option<ResultRow>]) -> Result<Vec<Map<String, Value>>, Failure> {
    let done: Vec<(&Point, &ResultRow)> =
        points.iter().zip(rows).filter_map(|(point, row)| Some((point, row.as_ref()?))).collect();
    let mut maps = flatten(done.iter().map(|(_, row)| *row))?;
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

/// Rows in the format that is asked for; those of JSON are a list of objects.
pub fn rows(format: OutputFormat, rows: &[Map<String, Value>]) -> Result<Vec<u8>, Failure> {
    match format {
        OutputFormat::Parquet => write_parquet(rows),
        OutputFormat::Json => {
            let mut bytes = serde_json::to_vec_pretty(rows).map_err(failed)?;
            bytes.push(b'\n');
            Ok(bytes)
        }
        OutputFormat::Csv | OutputFormat::Table => write_csv(rows),
    }
}

/// The outcomes of runs as JSON, each with what is known of its group.
pub fn outcomes_json(outcomes: &[Outcome]) -> Result<Vec<u8>, Failure> {
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

/// The rows of runs as CSV.
pub fn csv(outcomes: &[Outcome]) -> Result<Vec<u8>, Failure> {
    write_csv(&run_rows(outcomes)?)
}

/// Rows of any kind as CSV.
pub fn table<T: Serialize>(rows: &[T]) -> Result<Vec<u8>, Failure> {
    write_csv(&flatten(rows.iter())?)
}

fn write_csv(rows: &[Map<String, Value>]) -> Result<Vec<u8>, Failure> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    if let Some(first) = rows.first() {
        writer.write_record(first.keys()).map_err(failed)?;
    }
    for row in rows {
        let fields = row.values().map(|value| match value {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            value => value.to_string(),
        });
        writer.write_record(fields).map_err(failed)?;
    }
    writer.into_inner().map_err(failed)
}

/// The rows of runs as Parquet.
pub fn parquet(outcomes: &[Outcome]) -> Result<Vec<u8>, Failure> {
    write_parquet(&run_rows(outcomes)?)
}

/// Rows of any kind as Parquet.
pub fn parquet_table<T: Serialize>(rows: &[T]) -> Result<Vec<u8>, Failure> {
    write_parquet(&flatten(rows.iter())?)
}

fn write_parquet(rows: &[Map<String, Value>]) -> Result<Vec<u8>, Failure> {
    if rows.is_empty() {
        return Err(failed("there are no rows"));
    }
    super::parquet::file(rows).map_err(failed)
}
