use crate::TraceError;
use serde::Deserialize;

/// A column of a CSV file: its name in the header, or its number from 0.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Column {
    /// Number from 0.
    Number(usize),
    /// Name in the header line.
    Name(String),
}

/// The unit of a time column: seconds, milliseconds, microseconds or nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum TimeUnit {
    #[default]
    S,
    Ms,
    Us,
    Ns,
}

impl TimeUnit {
    pub(crate) const fn ns(self) -> u64 {
        match self {
            Self::S => 1_000_000_000,
            Self::Ms => 1_000_000,
            Self::Us => 1000,
            Self::Ns => 1,
        }
    }
}

fn comma() -> char {
    ','
}

fn one() -> u64 {
    1
}

fn reads() -> Vec<String> {
    ["r", "rs", "read", "get"].map(String::from).to_vec()
}

fn writes() -> Vec<String> {
    ["w", "ws", "write", "set", "put"].map(String::from).to_vec()
}

fn trims() -> Vec<String> {
    ["d", "t", "trim", "discard", "unmap", "delete"].map(String::from).to_vec()
}

/// The columns of a CSV file and their units.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CsvLayout {
    /// The character between columns, ASCII.
    #[serde(default = "comma")]
    pub delimiter: char,
    /// Whether the first line names the columns.
    #[serde(default)]
    pub header: bool,
    /// The time; without it all requests are at time 0.
    #[serde(default)]
    pub time: Option<Column>,
    /// Unit of the time.
    #[serde(default)]
    pub time_unit: TimeUnit,
    /// The operation; without it all requests are writes.
    #[serde(default)]
    pub op: Option<Column>,
    /// The address, or with `objects` the name of an object.
    pub offset: Column,
    /// Bytes in a unit of the address.
    #[serde(default = "one")]
    pub offset_bytes: u64,
    /// The length; without it 4096 bytes.
    #[serde(default)]
    pub size: Option<Column>,
    /// Bytes in a unit of the length.
    #[serde(default = "one")]
    pub size_bytes: u64,
    /// The device, a number or a name; without it there is one device.
    #[serde(default)]
    pub device: Option<Column>,
    /// The stream that the host wrote to, a number from 0 to 255; a field may be empty. Without it no streams are known.
    #[serde(default)]
    pub stream: Option<Box<Column>>,
    /// Whether the address names an object. Objects are placed one after the other in the order of first appearance.
    #[serde(default)]
    pub objects: bool,
    /// Words that mean a read, in any case.
    #[serde(default = "reads")]
    pub reads: Vec<String>,
    /// Words that mean a write, in any case.
    #[serde(default = "writes")]
    pub writes: Vec<String>,
    /// Words that mean a trim, in any case.
    #[serde(default = "trims")]
    pub trims: Vec<String>,
}

impl CsvLayout {
    /// Parses a layout from TOML. The error says what is wrong with it.
    pub fn from_toml(text: &str) -> Result<Self, TraceError> {
        toml::from_str(text).map_err(|error| TraceError::Layout(error.to_string()))
    }

    /// A layout that is written into the program.
    pub(crate) fn built_in(text: &str) -> Self {
        Self::from_toml(text).expect("built-in layouts are well-formed")
    }
}
