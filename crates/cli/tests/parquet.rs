//! The Parquet writer by itself. A test in the command would compile everything that the command uses a second time.

#[path = "../src/output/parquet.rs"]
mod written;

use parquet::basic::{LogicalType, Type as Physical};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use parquet::schema::types::Type;

use serde_json::{Map, Value, json};

fn rows(values: &[Value]) -> Vec<Map<String, Value>> {
    values.iter().map(|value| value.as_object().expect("a row").clone()).collect()
}

fn read(bytes: Vec<u8>) -> (Vec<Type>, Vec<Vec<Field>>) {
    let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).expect("a Parquet file");
    let schema = reader.metadata().file_metadata().schema_descr().columns().to_vec();
    let types = schema.iter().map(|column| column.self_type().clone()).collect();
    let rows = reader.get_row_iter(None).expect("rows");
    let fields = |row: parquet::record::Row| row.get_column_iter().map(|(_, field)| field.clone()).collect();
    (types, rows.map(|row| fields(row.expect("a row"))).collect())
}

#[test]
fn every_kind_of_value_comes_back_and_missing_ones_stay_missing() {
    let rows = rows(&[
        json!({ "name": "größe, \"a\"", "flag": true, "count": u64::MAX, "share": 2.0, "never": null }),
        json!({ "name": null, "flag": null, "count": null, "share": null, "never": null }),
        json!({ "name": "", "flag": false, "count": 0, "share": -0.125, "never": null }),
    ]);
    let order: Vec<&str> = rows[0].keys().map(String::as_str).collect();
    let (types, found) = read(written::file(&rows).expect("written"));
    assert_eq!(types.iter().map(Type::name).collect::<Vec<_>>(), order);
    for one in &types {
        assert!(one.is_optional(), "{one:?}");
        let (physical, logical) = (one.get_physical_type(), one.get_basic_info().logical_type_ref());
        match one.name() {
            "name" => assert_eq!((physical, logical), (Physical::BYTE_ARRAY, Some(&LogicalType::String))),
            "flag" => assert_eq!((physical, logical), (Physical::BOOLEAN, None)),
            "count" => assert_eq!((physical, logical), (Physical::INT64, Some(&LogicalType::integer(64, false)))),
            _ => assert_eq!((physical, logical), (Physical::DOUBLE, None)),
        }
    }
    assert_eq!(found.len(), rows.len());
    for (row, found) in rows.iter().zip(&found) {
        for ((key, value), field) in row.iter().zip(found) {
            let expected = match value {
                Value::Null => Field::Null,
                Value::String(text) => Field::Str(text.clone()),
                Value::Bool(flag) => Field::Bool(*flag),
                value => value.as_u64().map_or_else(|| Field::Double(value.as_f64().unwrap()), Field::ULong),
            };
            assert_eq!(*field, expected, "{key}");
        }
    }
}

#[test]
fn more_rows_than_a_page_holds_come_back_in_order() {
    let rows: Vec<_> = (0..30_000u64).flat_map(|n| rows(&[json!({ "n": n, "text": format!("row {n}") })])).collect();
    let (_, found) = read(written::file(&rows).expect("written"));
    assert!(found.len() == 30_000 && found.iter().zip(0u64..).all(|(row, n)| row[0] == Field::ULong(n)));
}
