//! What kind of fault an error is.

use crate::LabError;
use margay_media::DeviceError;
use margay_trace::TraceError;
use std::io;

/// What kind of fault an error is. Each has an exit code of the command, and an exception in Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The run failed, or a result could not be written.
    Run,
    /// An unknown name or an impossible value.
    Usage,
    /// An input file cannot be read or is damaged.
    Input,
    /// Stopped by the user.
    Interrupted,
}

impl ErrorKind {
    /// Its name, between machines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Usage => "usage",
            Self::Input => "input",
            Self::Interrupted => "interrupted",
        }
    }

    /// The kind of this name; a failed run if the name is none.
    pub fn of_name(name: &str) -> Self {
        let all = [Self::Usage, Self::Input, Self::Interrupted];
        all.into_iter().find(|kind| kind.name() == name).unwrap_or(Self::Run)
    }
}

impl From<&TraceError> for ErrorKind {
    fn from(error: &TraceError) -> Self {
        match error {
            TraceError::UnknownName { .. } | TraceError::NotWritable { .. } | TraceError::Layout(_) => Self::Usage,
            TraceError::Write { error, .. } if error.kind() == io::ErrorKind::AlreadyExists => Self::Usage,
            TraceError::Write { .. } => Self::Run,
            _ => Self::Input,
        }
    }
}

impl From<&DeviceError> for ErrorKind {
    fn from(error: &DeviceError) -> Self {
        if matches!(error, DeviceError::File { .. }) { Self::Input } else { Self::Usage }
    }
}

impl LabError {
    /// What kind of fault it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::OwnPolicy { .. }
            | Self::Stopped { .. }
            | Self::Short { .. }
            | Self::Files(_)
            | Self::Hybrid(_)
            | Self::Log(_)
            | Self::Write { .. } => ErrorKind::Run,
            Self::Interrupted { .. } => ErrorKind::Interrupted,
            Self::Trace(error) => error.into(),
            Self::Device(error) => error.into(),
            Self::File { .. } | Self::Recording { .. } => ErrorKind::Input,
            Self::Point { error, .. } => error.kind(),
            Self::Elsewhere { kind, .. } => *kind,
            Self::Value { .. }
            | Self::Setting { .. }
            | Self::NoSource
            | Self::Theory(_)
            | Self::Config(_)
            | Self::Policy(_)
            | Self::Workload(_) => ErrorKind::Usage,
        }
    }
}
