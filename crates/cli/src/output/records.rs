use crate::failure::Failure;
use margay_lab::Outcome;
use serde::Serialize;
use serde_json::{Map, Value};

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

/// The rows of runs as CSV.
pub fn csv(outcomes: &[Outcome]) -> Result<Vec<u8>, Failure> {
    write_csv(&flatten(outcomes.iter().map(|outcome| &outcome.row))?)
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
    write_parquet(&flatten(outcomes.iter().map(|outcome| &outcome.row))?)
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
