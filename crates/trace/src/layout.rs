use crate::TraceError;
use serde::Deserialize;

/// A column, by its name in the header or its number from 0.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Column {
    /// Number from 0.
    Number(usize),
    /// Name in the header line.
    Name(String),
}

/// Unit of a time column.
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

/// Where a CSV file keeps what.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CsvLayout {
    /// Between columns.
    #[serde(default = "comma")]
    pub delimiter: char,
    /// Whether the first line names the columns.
    #[serde(default)]
    pub header: bool,
    /// Time; all requests at time 0 without it.
    #[serde(default)]
    pub time: Option<Column>,
    /// Unit of the time.
    #[serde(default)]
    pub time_unit: TimeUnit,
    /// Read, write or trim; all requests are writes without it.
    #[serde(default)]
    pub op: Option<Column>,
    /// Address, or identity of an object.
    pub offset: Column,
    /// Bytes in a unit of the address.
    #[serde(default = "one")]
    pub offset_bytes: u64,
    /// Length; 4096 bytes without it.
    #[serde(default)]
    pub size: Option<Column>,
    /// Bytes in a unit of the length.
    #[serde(default = "one")]
    pub size_bytes: u64,
    /// Device; one device without it.
    #[serde(default)]
    pub device: Option<Column>,
    /// The address names an object: objects get room one after the other in the order of first appearance.
    #[serde(default)]
    pub objects: bool,
    /// Words for a read, in any case.
    #[serde(default = "reads")]
    pub reads: Vec<String>,
    /// Words for a write.
    #[serde(default = "writes")]
    pub writes: Vec<String>,
    /// Words for a trim.
    #[serde(default = "trims")]
    pub trims: Vec<String>,
}

impl CsvLayout {
    /// Reads a layout from TOML.
    pub fn from_toml(text: &str) -> Result<Self, TraceError> {
        toml::from_str(text).map_err(|error| TraceError::Layout(error.to_string()))
    }

    fn built_in(text: &str) -> Self {
        Self::from_toml(text).expect("built-in layouts are well-formed")
    }

    /// What margay writes: `time_us,op,device,offset_bytes,len_bytes`.
    pub(crate) fn own() -> Self {
        Self::built_in(
            "header = true\ntime = 'time_us'\ntime_unit = 'us'\nop = 'op'\ndevice = 'device'\noffset = 'offset_bytes'\nsize = 'len_bytes'",
        )
    }

    /// `seconds,R/W,disk,sector,bytes`
    pub(crate) fn seconds_op_disk_sector_bytes() -> Self {
        Self::built_in("time = 0\nop = 1\ndevice = 2\noffset = 3\noffset_bytes = 512\nsize = 4")
    }

    /// `us,R/W,offset,bytes`
    pub(crate) fn us_op_offset_bytes() -> Self {
        Self::built_in("time = 0\ntime_unit = 'us'\nop = 1\noffset = 2\nsize = 3")
    }

    /// CloudPhysics: SCSI operation codes.
    pub(crate) fn cloudphysics() -> Self {
        Self::built_in(
            "header = true\ntime = 'time'\nop = 'op'\noffset = 'lbn'\noffset_bytes = 512\nsize = 'size'\n\
             reads = ['8', '08', '28', 'a8', '88']\nwrites = ['a', '0a', '2a', 'aa', '8a']\ntrims = ['42']",
        )
    }

    /// libCacheSim: objects, with or without an operation.
    pub(crate) fn libcachesim(columns: usize, header: bool) -> Self {
        let op = if columns > 3 { "op = 3\n" } else { "" };
        Self::built_in(&format!("header = {header}\ntime = 0\n{op}offset = 1\nsize = 2\nobjects = true"))
    }
}
