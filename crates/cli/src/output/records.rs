use crate::failure::Failure;
use arrow_array::{ArrayRef, BooleanArray, Float64Array, RecordBatch, StringArray, UInt64Array};
use margay_lab::Outcome;
use serde::Serialize;
use serde_json::{Map, Value};
use std::sync::Arc;

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Run(format!("the result cannot be written: {error}"))
}

/// Everything, series included; an object for one run, a list for several.
pub fn json<T: Serialize>(results: &[T]) -> Result<Vec<u8>, Failure> {
    let mut bytes = match results {
        [one] => serde_json::to_vec_pretty(one),
        several => serde_json::to_vec_pretty(several),
    }
    .map_err(failed)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Rows with nested objects flattened: `forecast.years_first` is a column.
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

/// The rows of runs.
pub fn csv(outcomes: &[Outcome]) -> Result<Vec<u8>, Failure> {
    write_csv(&flatten(outcomes.iter().map(|outcome| &outcome.row))?)
}

/// Any rows.
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

pub fn parquet(outcomes: &[Outcome]) -> Result<Vec<u8>, Failure> {
    write_parquet(&flatten(outcomes.iter().map(|outcome| &outcome.row))?)
}

/// Any rows.
pub fn parquet_table<T: Serialize>(rows: &[T]) -> Result<Vec<u8>, Failure> {
    write_parquet(&flatten(rows.iter())?)
}

fn write_parquet(rows: &[Map<String, Value>]) -> Result<Vec<u8>, Failure> {
    let Some(first) = rows.first() else { return Err(failed("there are no rows")) };
    let columns = first.keys().map(|key| (key.clone(), column(rows, key), true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).map_err(failed)?;
    let properties = parquet::file::properties::WriterProperties::builder()
        .set_compression(parquet::basic::Compression::ZSTD(parquet::basic::ZstdLevel::default()))
        .build();
    let mut bytes = Vec::new();
    let writer = parquet::arrow::ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties));
    let mut writer = writer.map_err(failed)?;
    writer.write(&batch).map_err(failed)?;
    writer.close().map_err(failed)?;
    Ok(bytes)
}

/// A column of the narrowest type that holds all its values; the type of a field never depends on the run,
/// but for fractions that happen to be whole, which JSON keeps as fractions.
fn column(rows: &[Map<String, Value>], key: &str) -> ArrayRef {
    let values = || rows.iter().map(|row| row.get(key).unwrap_or(&Value::Null));
    if values().any(Value::is_string) {
        Arc::new(values().map(Value::as_str).collect::<StringArray>())
    } else if values().any(Value::is_boolean) {
        Arc::new(values().map(Value::as_bool).collect::<BooleanArray>())
    } else if values().any(Value::is_u64) {
        Arc::new(values().map(Value::as_u64).collect::<UInt64Array>())
    } else {
        Arc::new(values().map(Value::as_f64).collect::<Float64Array>())
    }
}
