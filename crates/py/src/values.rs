//! Values of Python as those of TOML and JSON, and back.

use crate::calls::Calls;
use crate::device::Device;
use crate::errors::usage;
use crate::policy;
use crate::trace::Trace;
use clap::Args;
use margay_lab::settings::EXCLUSIVE;
use margay_lab::{HeldTrace, HeldTraces, OwnPolicies, Settings};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use std::collections::BTreeMap;
use std::sync::Arc;
use toml::{Table, Value};

/// What the traces among the values bring with them.
#[derive(Default)]
struct Held {
    traces: BTreeMap<String, Arc<dyn HeldTrace>>,
    /// How the trace of a file is read.
    reading: Table,
    named: usize,
    /// Policies of Python.
    policies: OwnPolicies,
    calls: Calls,
}

impl Held {
    /// The text that names a trace as a source.
    fn name(&mut self, trace: &Trace) -> PyResult<String> {
        let (name, reading, memory) = trace.as_source();
        self.named += 1;
        if self.named > 1 && (!reading.is_empty() || !self.reading.is_empty()) {
            return Err(usage(
                "several traces of files share the options of reading: open them without options, and give the options to the call",
            ));
        }
        self.reading.extend(reading);
        if let Some(memory) = memory {
            self.traces.insert(name.clone(), memory);
        }
        Ok(name)
    }
}

/// How deep lists and dictionaries may lie in each other: one may hold itself.
const MAX_DEPTH: usize = 32;

fn too_deep(key: &str) -> PyErr {
    usage(format!("{key}: lists and dictionaries lie in each other over {MAX_DEPTH} deep"))
}

/// The value of a setting; none for `None`.
fn value(key: &str, from: &Bound<'_, PyAny>, held: &mut Held, depth: usize) -> PyResult<Option<Value>> {
    if depth > MAX_DEPTH {
        return Err(too_deep(key));
    }
    if from.is_none() {
        return Ok(None);
    }
    if from.is_instance_of::<PyBool>() {
        return Ok(Some(Value::Boolean(from.extract()?)));
    }
    if from.is_instance_of::<PyString>() {
        return Ok(Some(Value::String(from.extract()?)));
    }
    if from.is_instance_of::<PyList>() || from.is_instance_of::<PyTuple>() {
        // What is called for an element may change the list.
        let given = from.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        let mut values = Vec::new();
        for one in given {
            values.extend(value(key, &one, held, depth + 1)?);
        }
        return Ok(Some(Value::Array(values)));
    }
    if let Ok(trace) = from.cast::<Trace>() {
        return Ok(Some(Value::String(held.name(trace.get())?)));
    }
    if let Ok(device) = from.cast::<Device>() {
        return Ok(Some(Value::String(device.get().as_setting()?)));
    }
    if from.hasattr("__fspath__")? {
        // Paths may be bytes.
        let path = from.py().import("os")?.call_method1("fsdecode", (from,))?;
        let path = path.extract::<String>();
        return Ok(Some(Value::String(path.map_err(|_| usage(format!("{key}: the name of the file is no UTF-8")))?)));
    }
    if let Some(name) = policy::named(key, from, &held.calls, &mut held.policies)? {
        return Ok(Some(Value::String(name)));
    }
    // Numbers of NumPy are numbers too.
    let is_whole = from.is_instance_of::<PyInt>() || !from.is_instance_of::<PyFloat>() && from.hasattr("__index__")?;
    if is_whole {
        let number = from.extract::<i64>();
        let too_large = |_| usage(format!("{key} = {from}: expected a whole number below 2^63"));
        return Ok(Some(Value::Integer(number.map_err(too_large)?)));
    }
    if let Ok(number) = from.extract::<f64>() {
        return Ok(Some(Value::Float(number)));
    }
    let kind = from.get_type().name()?;
    Err(usage(format!("{key} = {from}: expected text, a number, True, False or a list of them, not a {kind}")))
}

/// Keywords as a table; underscores are the hyphens of the command's options. `None` and `False` are left out: no setting is on
/// unless it is given.
fn keywords(from: &Bound<'_, PyDict>, held: &mut Held) -> PyResult<Table> {
    let mut table = Table::new();
    // What is called for a value may change the dictionary.
    for (key, given) in from.copy()?.iter() {
        let key = key.extract::<String>()?.replace('_', "-");
        if let Some(value) = value(&key, &given, held, 0)?.filter(|value| *value != Value::Boolean(false)) {
            table.insert(key, value);
        }
    }
    Ok(table)
}

/// The keywords of a call as settings.
pub struct Keywords {
    pub table: Table,
    /// The traces in memory and the policies that they name.
    pub held: HeldTraces,
    /// The calls of these policies.
    pub calls: Calls,
}

/// Settings from the keywords of a call.
///
/// # Errors
/// A key is no setting, settings exclude each other, or a value is of a kind that no setting takes.
pub fn settings_table(from: &Bound<'_, PyDict>) -> PyResult<Keywords> {
    let mut held = Held::default();
    let mut table = keywords(from, &mut held)?;
    let known = settings_names();
    if let Some(unknown) = table.keys().find(|key| !known.contains(key)) {
        let names: Vec<_> = known.iter().map(|name| name.replace('-', "_")).collect();
        let unknown = unknown.replace('-', "_");
        return Err(usage(format!("unknown key '{unknown}'; the known ones are {}", names.join(", "))));
    }
    for (key, value) in std::mem::take(&mut held.reading) {
        table.entry(key).or_insert(value);
    }
    for group in EXCLUSIVE {
        let given: Vec<&str> = group.iter().copied().filter(|key| table.contains_key(*key)).collect();
        if let [one, other, ..] = given.as_slice() {
            let [one, other] = [one, other].map(|key| key.replace('-', "_"));
            return Err(usage(format!("'{one}' and '{other}' exclude each other; take one out")));
        }
    }
    let calls = held.calls;
    Ok(Keywords { table, held: HeldTraces::new(held.traces).with_policies(held.policies), calls })
}

/// The names of all settings, as options of the command.
pub fn settings_names() -> Vec<String> {
    let command = Settings::augment_args(clap::Command::new("settings"));
    let name = |option: &clap::Arg| option.get_long().unwrap_or(option.get_id().as_str()).to_string();
    command.get_arguments().map(name).collect()
}

/// A dictionary as a table of TOML, with the keys that it has.
pub fn table_of(from: &Bound<'_, PyDict>) -> PyResult<Table> {
    inner_table(from, 0)
}

fn inner_table(from: &Bound<'_, PyDict>, depth: usize) -> PyResult<Table> {
    let mut table = Table::new();
    for (key, given) in from.copy()?.iter() {
        let key = key.extract::<String>()?;
        let found = match given.cast::<PyDict>() {
            Ok(_) if depth == MAX_DEPTH => return Err(too_deep(&key)),
            Ok(inner) => Some(Value::Table(inner_table(inner, depth + 1)?)),
            Err(_) => value(&key, &given, &mut Held::default(), depth)?,
        };
        if let Some(found) = found {
            table.insert(key, found);
        }
    }
    Ok(table)
}

/// A value of JSON as one of Python.
pub fn to_python<'py>(py: Python<'py>, value: &serde_json::Value) -> PyResult<Bound<'py, PyAny>> {
    use serde_json::Value as Json;
    Ok(match value {
        Json::Null => py.None().into_bound(py),
        Json::Bool(flag) => PyBool::new(py, *flag).to_owned().into_any(),
        Json::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(whole), _) => whole.into_pyobject(py)?.into_any(),
            (_, Some(whole)) => whole.into_pyobject(py)?.into_any(),
            _ => PyFloat::new(py, number.as_f64().unwrap_or(f64::NAN)).into_any(),
        },
        Json::String(text) => PyString::new(py, text).into_any(),
        Json::Array(values) => {
            let list = PyList::empty(py);
            for value in values {
                list.append(to_python(py, value)?)?;
            }
            list.into_any()
        }
        Json::Object(fields) => {
            let dict = PyDict::new(py);
            for (key, value) in fields {
                dict.set_item(key, to_python(py, value)?)?;
            }
            dict.into_any()
        }
    })
}
