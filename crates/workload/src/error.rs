/// Why a workload cannot be parsed or run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// There is no generator of this name.
    #[error("unknown workload '{name}'; the known ones are {known}, or a path to a .toml file")]
    Unknown {
        /// What was written.
        name: String,
        /// The names that there are, separated by commas.
        known: String,
    },
    /// A parameter has a value outside its range.
    #[error("workload {key} = {value}: expected {wanted}")]
    Value {
        /// The parameter.
        key: String,
        /// What was written.
        value: String,
        /// The values that are allowed.
        wanted: String,
    },
    /// The TOML file cannot be read or parsed; the text says why.
    #[error("{0}")]
    Toml(String),
}

impl WorkloadError {
    pub(crate) fn value(key: &str, value: impl ToString, wanted: impl Into<String>) -> Self {
        Self::Value { key: key.into(), value: value.to_string(), wanted: wanted.into() }
    }
}
