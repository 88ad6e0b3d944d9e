use super::{Devices, HEADER, Line, LineFormat, Raw, not_a, time};
use crate::layout::{Column, CsvLayout};
use crate::number::whole;
use crate::{Kind, TraceError};
use std::collections::HashMap;

/// Columns by a layout.
#[derive(Debug)]
pub(crate) struct Csv {
    layout: CsvLayout,
    columns: Option<Columns>,
    devices: Devices,
    objects: HashMap<Vec<u8>, u64>,
    next_object_bytes: u64,
}

#[derive(Clone, Debug)]
struct Columns {
    time: Option<usize>,
    op: Option<usize>,
    offset: usize,
    size: Option<usize>,
    device: Option<usize>,
}

const OBJECT_ALIGN_BYTES: u64 = 4096;

impl Csv {
    pub fn new(layout: CsvLayout) -> Result<Self, TraceError> {
        if !layout.delimiter.is_ascii() {
            return Err(TraceError::Layout(format!("delimiter '{}' is not ASCII", layout.delimiter)));
        }
        let columns = if layout.header { None } else { Some(Columns::find(&layout, &[]).map_err(TraceError::Layout)?) };
        Ok(Self { layout, columns, devices: Devices::default(), objects: HashMap::new(), next_object_bytes: 0 })
    }

    fn kind(&self, word: &[u8]) -> Result<Kind, String> {
        let is = |words: &[String]| words.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(word));
        if is(&self.layout.writes) {
            Ok(Kind::Write)
        } else if is(&self.layout.reads) {
            Ok(Kind::Read)
        } else if is(&self.layout.trims) {
            Ok(Kind::Trim)
        } else {
            Err(format!("'{}' is no known operation", String::from_utf8_lossy(word)))
        }
    }

    fn object(&mut self, name: &[u8], len_bytes: u64) -> Result<u64, String> {
        if let Some(offset) = self.objects.get(name) {
            return Ok(*offset);
        }
        let offset = self.next_object_bytes;
        let room = len_bytes.max(1).checked_next_multiple_of(OBJECT_ALIGN_BYTES);
        let end = room.and_then(|room| offset.checked_add(room)).ok_or_else(|| not_a("size of all objects"))?;
        self.next_object_bytes = end;
        self.objects.insert(name.to_vec(), offset);
        Ok(offset)
    }
}

impl Columns {
    fn find(layout: &CsvLayout, header: &[&[u8]]) -> Result<Self, String> {
        let at = |column: &Column| match column {
            Column::Number(number) => Ok(*number),
            Column::Name(name) => {
                let same = |field: &&[u8]| field.trim_ascii().eq_ignore_ascii_case(name.as_bytes());
                header.iter().position(same).ok_or_else(|| format!("no column is named '{name}'"))
            }
        };
        let maybe = |column: &Option<Column>| column.as_ref().map(at).transpose();
        Ok(Self {
            time: maybe(&layout.time)?,
            op: maybe(&layout.op)?,
            offset: at(&layout.offset)?,
            size: maybe(&layout.size)?,
            device: maybe(&layout.device)?,
        })
    }
}

impl LineFormat for Csv {
    fn line(&mut self, line: &[u8]) -> Result<Line, String> {
        let delimiter = self.layout.delimiter as u8;
        let Some(columns) = self.columns.clone() else {
            let header: Vec<_> = line.split(|byte| *byte == delimiter).collect();
            self.columns = Some(Columns::find(&self.layout, &header)?);
            return Ok(HEADER);
        };
        let field = |number: usize, what: &str| {
            let found = line.split(|byte| *byte == delimiter).nth(number).map(<[u8]>::trim_ascii);
            found.ok_or_else(|| format!("column {number} ({what}) is missing"))
        };
        let time_ns = match columns.time {
            Some(number) => time(field(number, "time")?, self.layout.time_unit.ns())?,
            None => 0,
        };
        let kind = match columns.op {
            Some(number) => self.kind(field(number, "operation")?)?,
            None => Kind::Write,
        };
        let bytes = |text: &[u8], unit: u64, what: &str| {
            whole(text).and_then(|value| value.checked_mul(unit)).ok_or_else(|| not_a(what))
        };
        let len_bytes = match columns.size {
            Some(number) => bytes(field(number, "size")?, self.layout.size_bytes, "size")?,
            None => OBJECT_ALIGN_BYTES,
        };
        let device = match columns.device {
            Some(number) => {
                let name = field(number, "device")?;
                match whole(name).and_then(|number| u32::try_from(number).ok()) {
                    Some(number) => number,
                    None => self.devices.number(name),
                }
            }
            None => 0,
        };
        let offset = field(columns.offset, "offset")?;
        let offset_bytes = if self.layout.objects {
            self.object(offset, len_bytes)?
        } else {
            bytes(offset, self.layout.offset_bytes, "offset")?
        };
        Ok(Line::Request(Raw { time_ns, kind, device, offset_bytes, len_bytes }))
    }
}
