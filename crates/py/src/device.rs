//! Flash devices: presets, and devices of one's own.

use crate::errors::{of_kind, usage};
use crate::values::{table_of, to_python};
use margay_lab::ErrorKind;
use margay_media::{DeviceError, DeviceSpec, presets};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

/// A flash device: shape, times, energy, endurance.
#[pyclass(frozen, eq, module = "margay")]
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    spec: DeviceSpec,
    /// The text that names it as a setting, if it is a preset or a file.
    name: Option<String>,
}

fn of_device(error: &DeviceError) -> PyErr {
    of_kind(ErrorKind::from(error), error.to_string())
}

fn toml_of(spec: &DeviceSpec) -> PyResult<String> {
    toml::to_string(spec).map_err(|error| usage(format!("device: {error}")))
}

impl Device {
    fn checked(spec: DeviceSpec, name: Option<String>) -> PyResult<Self> {
        spec.geometry().map_err(|error| of_device(&error))?;
        Ok(Self { spec, name })
    }

    /// The device as the value of the setting.
    pub fn as_setting(&self) -> PyResult<String> {
        match &self.name {
            Some(name) => Ok(name.clone()),
            None => toml_of(&self.spec),
        }
    }
}

#[pymethods]
impl Device {
    /// A preset by its name, or the device that a .toml file describes.
    #[new]
    fn new(name: &str) -> PyResult<Self> {
        let spec = DeviceSpec::load(name).map_err(|error| of_device(&error))?;
        Self::checked(spec, Some(name.into()))
    }

    /// A device of these fields, which are those of a .toml file.
    #[classmethod]
    #[pyo3(signature = (**fields))]
    fn custom(_: &Bound<'_, PyType>, fields: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut table = fields.map_or_else(|| Ok(toml::Table::new()), table_of)?;
        table.entry("source").or_insert_with(|| "given in Python".into());
        let text = toml::to_string(&table).map_err(|error| usage(format!("device: {error}")))?;
        Self::from_toml(&text)
    }

    /// The names of the presets.
    #[staticmethod]
    fn presets() -> Vec<&'static str> {
        presets().iter().map(|(name, _)| *name).collect()
    }

    /// The fields: times are in microseconds, energies in microjoules.
    #[getter]
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let json = serde_json::to_value(&self.spec).map_err(|error| usage(error.to_string()))?;
        to_python(py, &json)
    }

    /// The same in TOML.
    fn to_toml(&self) -> PyResult<String> {
        toml_of(&self.spec)
    }

    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.spec.name
    }

    /// The bytes of its pages, metadata pages included.
    #[getter]
    fn flash_bytes(&self) -> PyResult<u64> {
        Ok(self.spec.geometry().map_err(|error| of_device(&error))?.bytes())
    }

    fn __repr__(&self) -> String {
        let DeviceSpec { name, segments, pages_per_segment, page_bytes, .. } = &self.spec;
        format!("<margay.Device {name}: {segments} segments of {pages_per_segment} pages of {page_bytes} bytes>")
    }

    /// A device from its description in TOML.
    #[staticmethod]
    fn from_toml(text: &str) -> PyResult<Self> {
        let wrong = |error: toml::de::Error| {
            let start = error.span().map_or(0, |span| span.start).min(text.len());
            let line = text[text[..start].rfind('\n').map_or(0, |at| at + 1)..].lines().next().unwrap_or_default();
            usage(format!("device: {line}: {}", error.message().lines().next().unwrap_or_default()))
        };
        Self::checked(toml::from_str::<DeviceSpec>(text).map_err(wrong)?, None)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        let class = slf.get_type();
        let this = slf.get();
        match &this.name {
            Some(name) => Ok((class.into_any(), (name.clone(),))),
            None => Ok((class.getattr("from_toml")?, (this.to_toml()?,))),
        }
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Device>()
}
