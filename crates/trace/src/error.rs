/// Why a trace could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: String,
        /// What went wrong.
        error: std::io::Error,
    },
    /// The file cannot be written.
    #[error("{path}: {error}")]
    Write {
        /// The file.
        path: String,
        /// What went wrong.
        error: std::io::Error,
    },
    /// The compressed data ends early or is damaged.
    #[error("{path}: truncated or damaged compressed data after {requests} requests: {error}")]
    Compressed {
        /// The file.
        path: String,
        /// Requests read before.
        requests: u64,
        /// What the decompressor says.
        error: std::io::Error,
    },
    /// A line or record does not follow the format.
    #[error("{path}:{line}: {problem}{}", quoted(text))]
    BadLine {
        /// The file.
        path: String,
        /// Line or record number, from 1.
        line: u64,
        /// What is wrong.
        problem: String,
        /// The start of the line; empty for a binary record.
        text: String,
    },
    /// There are more bad lines than were allowed.
    #[error("{path}: over {limit} bad lines, the first: {first}")]
    TooManyBadLines {
        /// The file.
        path: String,
        /// The limit.
        limit: u64,
        /// The first of them.
        first: String,
    },
    /// The format is not recognized.
    #[error("{path}: the format is not recognized ({why}); name it with --trace-format, one of {known}")]
    UnknownFormat {
        /// The file.
        path: String,
        /// Why no format fits.
        why: String,
        /// The names of all formats.
        known: String,
    },
    /// The file is no trace of page references.
    #[error("{path}: this is no trace of page references; the known formats are {known}")]
    UnknownVmFormat {
        /// The file.
        path: String,
        /// The formats with their layouts.
        known: String,
    },
    /// There is no format of this name.
    #[error("unknown trace format '{name}'; the known ones are {known}")]
    UnknownName {
        /// The name that was given.
        name: String,
        /// The names of all formats.
        known: String,
    },
    /// The trace holds no requests.
    #[error("{path}: holds no request ({lines} lines read)")]
    Empty {
        /// The file.
        path: String,
        /// Lines or records read.
        lines: u64,
    },
    /// A device was asked for that the trace does not have.
    #[error("{path}: no request goes to a device '{wanted}'; the trace has {known}")]
    NoSuchDevice {
        /// The file.
        path: String,
        /// The name that was asked for.
        wanted: String,
        /// The devices that the trace has.
        known: String,
    },
    /// There are too many devices to be written at once, and the trace cannot be read again.
    #[error(
        "{path}: there are more than {limit} devices; write the trace to a file first, which can be read several times"
    )]
    TooManyDevices {
        /// The file.
        path: String,
        /// How many can be written at once.
        limit: usize,
    },
    /// The format cannot be written.
    #[error("{path}: the format {format} cannot be written; one of {writable} can")]
    NotWritable {
        /// The file.
        path: String,
        /// The format.
        format: &'static str,
        /// The names of the formats that can.
        writable: String,
    },
    /// The CSV layout is wrong.
    #[error("csv layout: {0}")]
    Layout(String),
}

/// The text of a line as the end of a message, without what would control a terminal.
fn quoted(text: &str) -> String {
    let shown = printable(text);
    if shown.is_empty() { shown } else { format!(": '{shown}'") }
}

/// A text without what would control a terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect()
}

impl TraceError {
    pub(crate) fn io(path: &str, error: std::io::Error) -> Self {
        Self::Io { path: path.into(), error }
    }

    pub(crate) fn write(path: &std::path::Path, error: std::io::Error) -> Self {
        Self::Write { path: path.display().to_string(), error }
    }
}
