//! The columns of a trace in memory, as they came from NumPy or Arrow: whole numbers of any width, without a copy.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::ScalarBuffer;
use arrow_schema::DataType;
use margay_trace::{IoKind, Request};

/// Numbers, one for each request.
#[derive(Clone, Debug)]
pub enum Column {
    I8(ScalarBuffer<i8>),
    I16(ScalarBuffer<i16>),
    I32(ScalarBuffer<i32>),
    I64(ScalarBuffer<i64>),
    U8(ScalarBuffer<u8>),
    U16(ScalarBuffer<u16>),
    U32(ScalarBuffer<u32>),
    U64(ScalarBuffer<u64>),
    /// The same for every request.
    All(u64),
}

impl Column {
    /// A column of Arrow.
    ///
    /// # Errors
    /// It is not of whole numbers, or a value is missing.
    pub fn of_arrow(name: &str, array: &ArrayRef) -> Result<Self, String> {
        if array.null_count() > 0 {
            return Err(format!("{name}: {} values are missing; fill or drop them", array.null_count()));
        }
        Ok(match array.data_type() {
            DataType::Int8 => Self::I8(array.as_primitive::<Int8Type>().values().clone()),
            DataType::Int16 => Self::I16(array.as_primitive::<Int16Type>().values().clone()),
            DataType::Int32 => Self::I32(array.as_primitive::<Int32Type>().values().clone()),
            DataType::Int64 => Self::I64(array.as_primitive::<Int64Type>().values().clone()),
            DataType::UInt8 => Self::U8(array.as_primitive::<UInt8Type>().values().clone()),
            DataType::UInt16 => Self::U16(array.as_primitive::<UInt16Type>().values().clone()),
            DataType::UInt32 => Self::U32(array.as_primitive::<UInt32Type>().values().clone()),
            DataType::UInt64 => Self::U64(array.as_primitive::<UInt64Type>().values().clone()),
            other => return Err(format!("{name}: expected whole numbers, not {other}")),
        })
    }

    /// The number at a row, of those that the column has.
    ///
    /// # Errors
    /// It is negative.
    #[inline]
    fn at(&self, row: usize) -> Result<u64, String> {
        let whole = match self {
            Self::I8(values) => i64::from(values[row]),
            Self::I16(values) => i64::from(values[row]),
            Self::I32(values) => i64::from(values[row]),
            Self::I64(values) => values[row],
            Self::U8(values) => return Ok(values[row].into()),
            Self::U16(values) => return Ok(values[row].into()),
            Self::U32(values) => return Ok(values[row].into()),
            Self::U64(values) => return Ok(values[row]),
            Self::All(value) => return Ok(*value),
        };
        u64::try_from(whole).map_err(|_| format!("{whole} is negative"))
    }

    /// The same numbers from a row on.
    fn slice(&self, from: usize, rows: usize) -> Self {
        match self {
            Self::I8(values) => Self::I8(values.slice(from, rows)),
            Self::I16(values) => Self::I16(values.slice(from, rows)),
            Self::I32(values) => Self::I32(values.slice(from, rows)),
            Self::I64(values) => Self::I64(values.slice(from, rows)),
            Self::U8(values) => Self::U8(values.slice(from, rows)),
            Self::U16(values) => Self::U16(values.slice(from, rows)),
            Self::U32(values) => Self::U32(values.slice(from, rows)),
            Self::U64(values) => Self::U64(values.slice(from, rows)),
            Self::All(value) => Self::All(*value),
        }
    }
}

/// Kinds of requests by their numbers in a column.
pub const KINDS: [(&str, IoKind); 4] =
    [("read", IoKind::Read), ("write", IoKind::Write), ("trim", IoKind::Trim), ("flush", IoKind::Flush)];

/// The number of a kind.
pub fn number_of(kind: IoKind) -> u8 {
    KINDS.iter().position(|(_, other)| *other == kind).unwrap_or(0) as u8
}

/// Requests that came together.
#[derive(Clone, Debug)]
pub struct Batch {
    pub rows: usize,
    pub time_us: Column,
    pub kind: Column,
    pub device: Column,
    pub offset_bytes: Column,
    pub len_bytes: Column,
    /// The stream of the host; none without it.
    pub stream: Option<Column>,
}

impl Batch {
    /// The request at a row.
    ///
    /// # Errors
    /// What is wrong with it.
    #[inline]
    pub fn request(&self, row: usize) -> Result<Request, String> {
        let named = |name: &'static str| move |problem: String| format!("{name}: {problem}");
        let kind = self.kind.at(row).map_err(named("kind"))?;
        let kind = KINDS
            .get(usize::try_from(kind).unwrap_or(usize::MAX))
            .ok_or_else(|| format!("kind: {kind} is none; expected 0 (read), 1 (write), 2 (trim) or 3 (flush)"))?;
        let device = self.device.at(row).map_err(named("device"))?;
        let stream = match &self.stream {
            None => None,
            Some(column) => {
                let number = column.at(row).map_err(named("stream"))?;
                Some(u8::try_from(number).map_err(|_| format!("stream: {number} is over 255"))?)
            }
        };
        Ok(Request {
            time_us: self.time_us.at(row).map_err(named("time_us"))?,
            kind: kind.1,
            device: u32::try_from(device).map_err(|_| format!("device: {device} is over 4294967295"))?,
            offset_bytes: self.offset_bytes.at(row).map_err(named("offset_bytes"))?,
            len_bytes: self.len_bytes.at(row).map_err(named("len_bytes"))?,
            stream,
        })
    }

    /// The requests from a row on, on the same memory.
    pub fn slice(&self, from: usize, rows: usize) -> Self {
        Self {
            rows,
            time_us: self.time_us.slice(from, rows),
            kind: self.kind.slice(from, rows),
            device: self.device.slice(from, rows),
            offset_bytes: self.offset_bytes.slice(from, rows),
            len_bytes: self.len_bytes.slice(from, rows),
            stream: self.stream.as_ref().map(|stream| stream.slice(from, rows)),
        }
    }
}

/// Collects requests as a batch.
#[derive(Debug, Default)]
pub struct Builder {
    time_us: Vec<u64>,
    kind: Vec<u8>,
    device: Vec<u32>,
    offset_bytes: Vec<u64>,
    len_bytes: Vec<u64>,
    stream: Vec<Option<u8>>,
}

impl Builder {
    /// Appends a request.
    pub fn push(&mut self, request: &Request) {
        self.time_us.push(request.time_us);
        self.kind.push(number_of(request.kind));
        self.device.push(request.device);
        self.offset_bytes.push(request.offset_bytes);
        self.len_bytes.push(request.len_bytes);
        self.stream.push(request.stream);
    }

    /// All that were appended. Requests without a stream go to stream 0 if others have one.
    pub fn finish(self) -> Batch {
        let has_streams = self.stream.iter().any(Option::is_some);
        let streams = || self.stream.iter().map(|stream| stream.unwrap_or(0)).collect::<Vec<u8>>();
        Batch {
            rows: self.time_us.len(),
            stream: has_streams.then(|| Column::U8(streams().into())),
            time_us: Column::U64(self.time_us.into()),
            kind: Column::U8(self.kind.into()),
            device: Column::U32(self.device.into()),
            offset_bytes: Column::U64(self.offset_bytes.into()),
            len_bytes: Column::U64(self.len_bytes.into()),
        }
    }
}
