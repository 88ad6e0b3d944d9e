//! Rows as a Parquet file: one row group, columns that may be empty, compressed with Zstandard.

use margay_lab::rows::{Kind, Row};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;
use serde_json::{Map, Value};
use std::sync::Arc;

fn field(kind: Kind, name: &str) -> Result<Type, ParquetError> {
    let (physical, logical) = match kind {
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Flag => (Physical::BOOLEAN, None),
        Kind::Count => (Physical::INT64, Some(LogicalType::integer(64, false))),
        Kind::Fraction => (Physical::DOUBLE, None),
    };
    let field = Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
    field.with_logical_type(logical).build()
}

/// Writes one column; a missing value is one whose definition level is 0.
fn put<T: DataType>(
    column: &mut SerializedColumnWriter<'_>,
    values: impl Iterator<Item = Option<T::T>>,
) -> Result<(), ParquetError> {
    let values: Vec<Option<T::T>> = values.collect();
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let present: Vec<T::T> = values.into_iter().flatten().collect();
    column.typed::<T>().write_batch(&present, Some(&levels), None).map(drop)
}

/// The bytes of a Parquet file with these rows. The first row names the columns.
pub fn file(rows: &[Row]) -> Result<Vec<u8>, ParquetError> {
    let keys: Vec<&String> = rows.first().into_iter().flat_map(Map::keys).collect();
    let kinds: Vec<Kind> = keys.iter().map(|key| Kind::of(rows, key)).collect();
    let fields =
        keys.iter().zip(&kinds).map(|(key, kind)| field(*kind, key).map(Arc::new)).collect::<Result<_, _>>()?;
    let schema = Arc::new(Type::group_type_builder("rows").with_fields(fields).build()?);
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for (key, kind) in keys.iter().zip(&kinds) {
        let Some(mut column) = group.next_column()? else { break };
        let values = rows.iter().map(|row| row.get(*key).unwrap_or(&Value::Null));
        match kind {
            Kind::Text => put::<ByteArrayType>(&mut column, values.map(|value| value.as_str().map(ByteArray::from)))?,
            Kind::Flag => put::<BoolType>(&mut column, values.map(Value::as_bool))?,
            // Parquet keeps an unsigned number in the bits of a signed one.
            Kind::Count => put::<Int64Type>(&mut column, values.map(|value| value.as_u64().map(u64::cast_signed)))?,
            Kind::Fraction => put::<DoubleType>(&mut column, values.map(Value::as_f64))?,
        }
        column.close()?;
    }
    group.close()?;
    writer.close()?;
    Ok(bytes)
}
