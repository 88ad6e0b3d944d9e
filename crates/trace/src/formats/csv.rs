use crate::format::{
    Detection, Entry, Example, FormatRow, LineReader, LineWriter, Opening, Raw, Reader, Writer, WriterForm,
};
use crate::hash::FastMap;
use crate::layout::{Column, CsvLayout};
use crate::lines::full_lines;
use crate::text::{DeviceNames, insert_object, integer, not_a_number, time};
use crate::{IoKind, Request, TraceError};
use memchr::memchr_iter;
use std::io::{self, Write};
use xxhash_rust::xxh3::xxh3_128;

pub(super) static ROW: FormatRow = FormatRow {
    name: "csv",
    summary: "columns by name or number, by a layout in TOML (--csv-layout); some layouts are recognized, and the header time_us,op,device,offset_bytes,len_bytes with or without a column stream, the host's stream from 0 to 255, which is read and not written",
    source: "margay",
    detection: Detection::FirstLine(|line| recognized_layout(line).is_some()),
    reader: Reader::Lines(|opening| Ok(Box::new(Csv::new(layout(opening)?)?))),
    writer: Some(Writer {
        kinds: &[IoKind::Read, IoKind::Write, IoKind::Trim],
        time_unit_us: 1,
        form: WriterForm::Lines(|| Box::new(CsvWriter)),
    }),
    example: Example {
        file_name: "requests.csv",
        bytes: b"time_us,op,device,offset_bytes,len_bytes\n0,write,0,4096,8192\n250,trim,1,0,512\n",
        requests: 2,
    },
};

/// The header line that margay writes.
const OWN_HEADER: &str = "time_us,op,device,offset_bytes,len_bytes\n";

/// The layout that the user gave, or one that the first line shows.
fn layout(opening: &Opening<'_>) -> Result<CsvLayout, TraceError> {
    let recognized = || full_lines(opening.head).next().and_then(recognized_layout);
    opening.csv.cloned().or_else(recognized).ok_or_else(|| {
        let why = "csv needs a layout (--csv-layout FILE.toml), and this file has none of the recognized ones";
        TraceError::Layout(why.into())
    })
}

/// The layouts that the first line shows without being named.
fn recognized_layout(line: &[u8]) -> Option<CsvLayout> {
    if let Some(rest) = line.strip_prefix(OWN_HEADER.trim_ascii_end().as_bytes())
        && matches!(rest, b"" | b",stream")
    {
        let own = CsvLayout::built_in(
            "header = true\ntime = 'time_us'\ntime_unit = 'us'\nop = 'op'\ndevice = 'device'\n\
             offset = 'offset_bytes'\nsize = 'len_bytes'",
        );
        let stream = (!rest.is_empty()).then(|| Box::new(Column::Name("stream".into())));
        return Some(CsvLayout { stream, ..own });
    }
    let fields: Vec<_> = line.split(|byte| *byte == b',').collect();
    let second_is_op = matches!(fields.get(1), Some(&b"R" | &b"W"));
    match (second_is_op, fields.len()) {
        // seconds,R/W,disk,sector,bytes
        (true, 5) if fields[0].contains(&b'.') => {
            Some(CsvLayout::built_in("time = 0\nop = 1\ndevice = 2\noffset = 3\noffset_bytes = 512\nsize = 4"))
        }
        // us,R/W,offset,bytes
        (true, 4) => Some(CsvLayout::built_in("time = 0\ntime_unit = 'us'\nop = 1\noffset = 2\nsize = 3")),
        _ => None,
    }
}

/// Reads the columns that a layout names.
#[derive(Debug)]
pub(super) struct Csv {
    layout: CsvLayout,
    columns: Option<Columns>,
    devices: DeviceNames,
    /// The number of the first device with a name: 0 if the first device has one, and else [`BEHIND_NUMBERS`].
    named_from: Option<u32>,
    /// Where an object starts, by the hash of its name, so that long names take no more memory.
    objects: FastMap<u128, u64>,
    next_object_bytes: u64,
    /// Where the columns of a line end, kept for its memory.
    ends: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Columns {
    time: Option<usize>,
    op: Option<usize>,
    offset: usize,
    size: Option<usize>,
    device: Option<usize>,
    stream: Option<usize>,
}

const OBJECT_ALIGN_BYTES: u64 = 4096;
/// Devices with names have numbers from this on if others have numbers for names.
const BEHIND_NUMBERS: u32 = 1 << 31;

impl Csv {
    pub fn new(layout: CsvLayout) -> Result<Self, TraceError> {
        if !layout.delimiter.is_ascii() {
            return Err(TraceError::Layout(format!("delimiter '{}' is not ASCII", layout.delimiter)));
        }
        let columns = if layout.header { None } else { Some(Columns::find(&layout, &[]).map_err(TraceError::Layout)?) };
        Ok(Self {
            layout,
            columns,
            devices: DeviceNames::default(),
            named_from: None,
            objects: FastMap::default(),
            next_object_bytes: 0,
            ends: Vec::new(),
        })
    }

    fn kind(&self, word: &[u8]) -> Result<IoKind, String> {
        let is = |words: &[String]| words.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(word));
        if is(&self.layout.writes) {
            Ok(IoKind::Write)
        } else if is(&self.layout.reads) {
            Ok(IoKind::Read)
        } else if is(&self.layout.trims) {
            Ok(IoKind::Trim)
        } else {
            Err(format!("'{}' is no known operation", String::from_utf8_lossy(word)))
        }
    }

    fn object(&mut self, name: &[u8], len_bytes: u64) -> Result<u64, String> {
        let name = xxh3_128(name);
        if let Some(offset) = self.objects.get(&name) {
            return Ok(*offset);
        }
        let offset = self.next_object_bytes;
        let room = len_bytes.max(1).checked_next_multiple_of(OBJECT_ALIGN_BYTES);
        let end = room.and_then(|room| offset.checked_add(room)).ok_or_else(|| not_a_number("size of all objects"))?;
        self.next_object_bytes = end;
        insert_object(&mut self.objects, name, offset)?;
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
            stream: layout.stream.as_deref().map(at).transpose()?,
        })
    }
}

impl LineReader for Csv {
    fn line(&mut self, line: &[u8]) -> Result<Entry, String> {
        let delimiter = self.layout.delimiter as u8;
        let Some(columns) = self.columns else {
            let header: Vec<_> = line.split(|byte| *byte == delimiter).collect();
            self.columns = Some(Columns::find(&self.layout, &header)?);
            return Ok(Entry::HEADER);
        };
        let mut ends = std::mem::take(&mut self.ends);
        ends.clear();
        ends.extend(memchr_iter(delimiter, line));
        ends.push(line.len());
        let entry = self.request(line, &ends, columns);
        self.ends = ends;
        entry
    }

    fn device_name(&self, number: u32) -> Option<String> {
        self.devices.name(number.checked_sub(self.named_from?)?)
    }
}

impl Csv {
    /// The request of a line whose columns end at `ends`.
    fn request(&mut self, line: &[u8], ends: &[usize], columns: Columns) -> Result<Entry, String> {
        let field = |number: usize, what: &str| match ends.get(number) {
            Some(end) => {
                let start = if number == 0 { 0 } else { ends[number - 1] + 1 };
                Ok(line[start..*end].trim_ascii())
            }
            None => Err(format!("column {number} ({what}) is missing")),
        };
        let time_ns = match columns.time {
            Some(number) => time(field(number, "time")?, self.layout.time_unit.ns())?,
            None => 0,
        };
        let kind = match columns.op {
            Some(number) => self.kind(field(number, "operation")?)?,
            None => IoKind::Write,
        };
        let bytes = |text: &[u8], unit: u64, what: &str| {
            integer(text).and_then(|value| value.checked_mul(unit)).ok_or_else(|| not_a_number(what))
        };
        let len_bytes = match columns.size {
            Some(number) => bytes(field(number, "size")?, self.layout.size_bytes, "size")?,
            None => OBJECT_ALIGN_BYTES,
        };
        let offset = field(columns.offset, "offset")?;
        let offset_bytes = if self.layout.objects {
            self.object(offset, len_bytes)?
        } else {
            bytes(offset, self.layout.offset_bytes, "offset")?
        };
        let stream = match columns.stream {
            Some(number) => match field(number, "stream")? {
                b"" => None,
                text => {
                    let number = integer(text).and_then(|number| u8::try_from(number).ok());
                    let bad =
                        || format!("'{}' is no stream: expected a number from 0 to 255", String::from_utf8_lossy(text));
                    Some(number.ok_or_else(bad)?)
                }
            },
            None => None,
        };
        // Last, so that a bad line names no device.
        let device = match columns.device {
            Some(number) => {
                let name = field(number, "device")?;
                let number = integer(name).and_then(|number| u32::try_from(number).ok());
                match number.filter(|number| *number < BEHIND_NUMBERS && self.named_from != Some(0)) {
                    Some(number) => {
                        self.named_from = Some(BEHIND_NUMBERS);
                        number
                    }
                    None => *self.named_from.get_or_insert(0) + self.devices.number(name)?,
                }
            }
            None => 0,
        };
        Ok(Entry::Request(Raw { time_ns, kind, device, offset_bytes, len_bytes, stream }))
    }
}

struct CsvWriter;

impl LineWriter for CsvWriter {
    fn header(&self) -> &'static str {
        OWN_HEADER
    }

    fn write(&mut self, request: &Request, device: Option<&str>, out: &mut dyn Write) -> io::Result<()> {
        let Request { time_us, kind, device: number, offset_bytes, len_bytes, .. } = *request;
        let word = match kind {
            IoKind::Read => "read",
            IoKind::Write => "write",
            IoKind::Trim => "trim",
            IoKind::Flush => "flush",
        };
        match device {
            Some(name) => writeln!(out, "{time_us},{word},{name},{offset_bytes},{len_bytes}"),
            None => writeln!(out, "{time_us},{word},{number},{offset_bytes},{len_bytes}"),
        }
    }
}
