use crate::args::OutputFormat;
use crate::failure::Failure;
use margay_lab::Outcome;
use margay_lab::rows::{self, Row};
use serde::Serialize;
use serde_json::Value;

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Run(format!("the result cannot be written: {error}"))
}

/// Results as JSON, time series included: an object for one run, a list for several.
pub fn json<T: Serialize>(results: &[T]) -> Result<Vec<u8>, Failure> {
    Ok(rows::json(results)?.into_bytes())
}

/// Rows in the format that is asked for; those of JSON are a list of objects.
pub fn in_format(format: OutputFormat, rows: &[Row]) -> Result<Vec<u8>, Failure> {
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

/// The rows of runs as CSV.
pub fn csv(outcomes: &[Outcome]) -> Result<Vec<u8>, Failure> {
    write_csv(&rows::of_runs(outcomes)?)
}

/// Rows of any kind as CSV.
pub fn table<T: Serialize>(rows: &[T]) -> Result<Vec<u8>, Failure> {
    write_csv(&rows::flat(rows.iter())?)
}

fn write_csv(rows: &[Row]) -> Result<Vec<u8>, Failure> {
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
    write_parquet(&rows::of_runs(outcomes)?)
}

/// Rows of any kind as Parquet.
pub fn parquet_table<T: Serialize>(rows: &[T]) -> Result<Vec<u8>, Failure> {
    write_parquet(&rows::flat(rows.iter())?)
}

fn write_parquet(rows: &[Row]) -> Result<Vec<u8>, Failure> {
    if rows.is_empty() {
        return Err(failed("there are no rows"));
    }
    super::parquet::file(rows).map_err(failed)
}
