/// A workload that cannot be understood or run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// No such generator.
    #[error("unknown workload '{name}'; the known ones are {known}, or a path to a .toml file")]
    Unknown {
        /// What was written.
        name: String,
        /// What could be.
        known: String,
    },
    /// A parameter's value.
    #[error("workload {key} = {value}: expected {wanted}")]
    Value {
        /// The parameter.
        key: String,
        /// What was written.
        value: String,
        /// What could be.
        wanted: String,
    },
    /// The TOML text.
    #[error("{0}")]
    Toml(String),
}

impl WorkloadError {
    pub(crate) fn value(key: &str, value: impl ToString, wanted: impl Into<String>) -> Self {
        Self::Value { key: key.into(), value: value.to_string(), wanted: wanted.into() }
    }
}
