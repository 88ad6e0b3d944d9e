//! margay's own format: [`MAGIC`] and the version, then one zstd stream of records and an end.
//!
//! A record: a byte of kind (bits 0 and 1: read, write, trim, flush) with bit 2 set if the device differs from the
//! record before, then LEB128 numbers: microseconds since the record before, the device if it differs, the zigzag
//! distance of the offset from the end of the record before, the length. The end: a byte 0xFF, the number of records
//! and the xxh3 of all their bytes, each as u64 little endian.
//!
//! Version 2 is that of recordings: what else was done with a served disk stands between the requests. Bit 4 of the byte of a
//! trim says that the bytes read as zeros after it. The byte 8 begins an event: microseconds since the record before, bytes of
//! the event, the event ([`Event`]): its sort (1 opened, 2 idle, 3 syncs, 4 stopped), then its fields in their order, numbers
//! as LEB128, a byte 0 or 1 for yes or no, and bytes with their number before them.

use crate::format::{
    Detection, Entry, Example, FormatRow, Reader, RecordReader, RecordWriter, Records, Stream, Writer, WriterForm,
};
use crate::recording::{Event, MAX_EVENT_BYTES};
use crate::records::read_up_to;
use crate::writer::OutputFile;
use crate::{IoKind, Request, leb128};
use std::io::{self, Read, Write};
use std::ops::Range;
use xxhash_rust::xxh3::Xxh3;

pub(super) static ROW: FormatRow = FormatRow {
    name: "mgt",
    summary: "margay's own: delta-coded records in zstd with a checksum",
    source: "margay",
    detection: Detection::Magic(MAGIC),
    reader: Reader::Records(Decoder::open),
    writer: Some(Writer {
        kinds: &KINDS,
        time_unit_us: 1,
        form: WriterForm::Records(|file| Ok(Box::new(Encoder::new(file)?))),
    }),
    example: Example {
        file_name: "example.mgt",
        bytes: b"margay trace 1\n\
                 \x28\xb5\x2f\xfd\0\x58\x29\x01\0\x01\0\x80\x40\x80\x40\x06\xfa\x01\x01\xff\xbf\x01\x80\x04\x03\
                 \x32\xff\x07\0\xff\x03\0\0\0\0\0\0\0\xc7\x64\x1f\xc9\x7f\x6d\xa9\x17",
        requests: 3,
    },
};

const MAGIC: &[u8] = b"margay trace ";
/// A trace of requests.
const VERSION: &[u8; 2] = b"1\n";
/// A recording.
const VERSION_WITH_EVENTS: &[u8; 2] = b"2\n";
const ZSTD_LEVEL: i32 = 6;
const END: u8 = 0xff;
const OTHER_DEVICE: u8 = 4;
const EVENT: u8 = 8;
const ZEROES: u8 = 16;
const KINDS: [IoKind; 4] = [IoKind::Read, IoKind::Write, IoKind::Trim, IoKind::Flush];

#[derive(Clone, Copy, Debug, Default)]
struct Before {
    time_us: u64,
    device: u32,
    end_bytes: u64,
}

pub(crate) struct Encoder {
    out: zstd::stream::write::Encoder<'static, OutputFile>,
    hash: Xxh3,
    records: u64,
    before: Before,
    /// The record being made, kept for its memory.
    record: Vec<u8>,
}

impl Encoder {
    fn new(out: OutputFile) -> io::Result<Self> {
        Self::with_version(out, VERSION)
    }

    /// Writes a recording.
    pub fn with_events(out: OutputFile) -> io::Result<Self> {
        Self::with_version(out, VERSION_WITH_EVENTS)
    }

    fn with_version(mut out: OutputFile, version: &[u8; 2]) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        out.write_all(version)?;
        let out = zstd::stream::write::Encoder::new(out, ZSTD_LEVEL)?;
        Ok(Self { out, hash: Xxh3::new(), records: 0, before: Before::default(), record: Vec::new() })
    }

    /// Writes an event of a recording.
    pub fn write_event(&mut self, time_us: u64, event: &Event) -> io::Result<()> {
        let mut bytes = Vec::new();
        event.encode(&mut bytes);
        if bytes.len() > MAX_EVENT_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the event is too long for a recording"));
        }
        self.record.clear();
        self.record.push(EVENT);
        leb128::put(&mut self.record, time_us.saturating_sub(self.before.time_us));
        leb128::put(&mut self.record, bytes.len() as u64);
        self.record.extend_from_slice(&bytes);
        self.before.time_us = self.before.time_us.max(time_us);
        self.write_record()
    }

    /// Writes a request; with `zeroes`, a trim after which the bytes read as zeros.
    pub fn write_request(&mut self, request: &Request, zeroes: bool) -> io::Result<()> {
        let record = &mut self.record;
        record.clear();
        let kind = KINDS.iter().position(|kind| *kind == request.kind).unwrap_or(0) as u8;
        let other = request.device != self.before.device;
        record.push(kind | if other { OTHER_DEVICE } else { 0 } | if zeroes { ZEROES } else { 0 });
        leb128::put(record, request.time_us - self.before.time_us.min(request.time_us));
        if other {
            leb128::put(record, request.device.into());
        }
        let distance = request.offset_bytes.wrapping_sub(self.before.end_bytes) as i64;
        leb128::put(record, leb128::zigzag(distance));
        leb128::put(record, request.len_bytes);
        self.before = Before {
            time_us: request.time_us.max(self.before.time_us),
            device: request.device,
            end_bytes: request.offset_bytes.wrapping_add(request.len_bytes),
        };
        self.write_record()
    }

    fn write_record(&mut self) -> io::Result<()> {
        self.hash.update(&self.record);
        self.records += 1;
        self.out.write_all(&self.record)
    }
}

impl RecordWriter for Encoder {
    fn write(&mut self, request: &Request) -> io::Result<()> {
        self.write_request(request, false)
    }

    fn finish(mut self: Box<Self>) -> io::Result<OutputFile> {
        self.out.write_all(&[END])?;
        self.out.write_all(&self.records.to_le_bytes())?;
        self.out.write_all(&self.hash.digest().to_le_bytes())?;
        self.out.finish()
    }
}

/// Bytes that are decompressed at once.
const BUFFER_BYTES: usize = 1 << 16;
/// Bytes of the longest record, and more than those of the end.
const MAX_RECORD_BYTES: usize = 1 + 4 * leb128::MAX_BYTES + MAX_EVENT_BYTES;

pub(crate) struct Decoder {
    stream: zstd::stream::read::Decoder<'static, Stream>,
    buffer: Box<[u8]>,
    /// What is in the buffer and was not decoded yet.
    unread: Range<usize>,
    /// What the stream said when it could not be read on.
    failed: Option<io::Error>,
    /// Of all records but those that are still in the buffer.
    hash: Xxh3,
    records: u64,
    before: Before,
    /// It is a recording.
    has_events: bool,
    /// The last record is a trim after which the bytes read as zeros.
    zeroes: bool,
    /// The last record, if it was an event.
    event: Option<Event>,
}

impl RecordReader for Decoder {
    fn is_compressed(&self) -> bool {
        true
    }

    #[inline]
    fn next(&mut self) -> io::Result<Option<Result<Entry, String>>> {
        if self.unread.len() < MAX_RECORD_BYTES {
            self.read_on();
        }
        let mut bytes = &self.buffer[self.unread.clone()];
        let Some((&kind, rest)) = bytes.split_first() else { return Err(self.no_end()) };
        bytes = rest;
        if kind == END {
            return self.end();
        }
        if kind > 7 {
            match kind {
                EVENT if self.has_events => return self.next_event(),
                ZEROES..=23 if self.has_events && KINDS[usize::from(kind & 3)] == IoKind::Trim => {}
                _ => return Ok(Some(Err(format!("record {} is of no known kind", self.records + 1)))),
            }
        }
        self.zeroes = kind >= ZEROES;
        let elapsed = leb128::take(&mut bytes)?;
        let device = if kind & OTHER_DEVICE == 0 { Some(self.before.device.into()) } else { leb128::take(&mut bytes)? };
        let (zigzag, len_bytes) = (leb128::take(&mut bytes)?, leb128::take(&mut bytes)?);
        let (Some(elapsed), Some(device), Some(zigzag), Some(len_bytes)) = (elapsed, device, zigzag, len_bytes) else {
            return Err(self.no_end());
        };
        let offset_bytes = self.before.end_bytes.wrapping_add(leb128::unzigzag(zigzag) as u64);
        let (Some(time_us), Ok(device)) = (self.before.time_us.checked_add(elapsed), u32::try_from(device)) else {
            return Ok(Some(Err(format!("record {} holds a number that is too large", self.records + 1))));
        };
        self.unread.start = self.unread.end - bytes.len();
        self.records += 1;
        self.before = Before { time_us, device, end_bytes: offset_bytes.wrapping_add(len_bytes) };
        let kind = KINDS[usize::from(kind & 3)];
        Ok(Some(Ok(Entry::request(u128::from(time_us) * 1000, kind, device, offset_bytes, len_bytes))))
    }
}

impl Decoder {
    /// Opens the stream of records behind the magic.
    fn open(stream: Stream) -> io::Result<Records> {
        Ok(Self::open_any(stream)?.map(|decoder| Box::new(decoder) as _))
    }

    /// Opens a trace or a recording, or says what is wrong with it.
    pub fn open_any(mut stream: Stream) -> io::Result<Result<Self, String>> {
        let mut start = [0; MAGIC.len() + VERSION.len()];
        let len = read_up_to(&mut stream, &mut start)?;
        let has_events = match start[..len].strip_prefix(MAGIC) {
            Some(version) if version == VERSION => false,
            Some(version) if version == VERSION_WITH_EVENTS => true,
            Some(_) => return Ok(Err("a margay trace of a version that is not known here".into())),
            None => return Ok(Err("not a margay trace".into())),
        };
        Ok(Ok(Self {
            stream: zstd::stream::read::Decoder::with_buffer(stream)?.single_frame(),
            buffer: vec![0; BUFFER_BYTES].into(),
            unread: 0..0,
            failed: None,
            hash: Xxh3::new(),
            records: 0,
            before: Before::default(),
            has_events,
            zeroes: false,
            event: None,
        }))
    }

    /// Whether it is a recording.
    pub fn has_events(&self) -> bool {
        self.has_events
    }

    /// The time of the last record, in microseconds, and whether it was a trim after which the bytes read as zeros.
    pub fn last(&self) -> (u64, bool) {
        (self.before.time_us, self.zeroes)
    }

    /// The last record, if it was an event.
    pub fn take_event(&mut self) -> Option<Event> {
        self.event.take()
    }

    #[cold]
    fn next_event(&mut self) -> io::Result<Option<Result<Entry, String>>> {
        let mut bytes = &self.buffer[self.unread.start + 1..self.unread.end];
        let (Some(elapsed), Some(len)) = (leb128::take(&mut bytes)?, leb128::take(&mut bytes)?) else {
            return Err(self.no_end());
        };
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let (time_us, number) = (self.before.time_us.checked_add(elapsed), self.records + 1);
        let (Some(time_us), 0..=MAX_EVENT_BYTES) = (time_us, len) else {
            return Ok(Some(Err(format!("record {number} holds a number that is too large"))));
        };
        let Some((event, rest)) = bytes.split_at_checked(len) else { return Err(self.no_end()) };
        let Some(event) = Event::decode(event)? else {
            return Ok(Some(Err(format!("record {number} is no event that is known here"))));
        };
        self.unread.start = self.unread.end - rest.len();
        self.records += 1;
        (self.before.time_us, self.zeroes, self.event) = (time_us, false, Some(event));
        Ok(Some(Ok(Entry::Ignored("event of a served disk"))))
    }

    /// Fills the buffer as far as the stream goes. What was decoded is hashed first.
    #[cold]
    fn read_on(&mut self) {
        self.hash.update(&self.buffer[..self.unread.start]);
        self.buffer.copy_within(self.unread.clone(), 0);
        self.unread = 0..self.unread.len();
        while self.failed.is_none() && self.unread.end < self.buffer.len() {
            match self.stream.read(&mut self.buffer[self.unread.end..]) {
                Ok(0) => break,
                Ok(n) => self.unread.end += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => self.failed = Some(error),
            }
        }
    }

    #[cold]
    fn no_end(&mut self) -> io::Error {
        let ends = || io::Error::new(io::ErrorKind::UnexpectedEof, "the trace has no end");
        self.failed.take().unwrap_or_else(ends)
    }

    fn end(&mut self) -> io::Result<Option<Result<Entry, String>>> {
        let trailer = &self.buffer[self.unread.start + 1..self.unread.end];
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if trailer.len() != 16 {
            return Ok(Some(Err("the end of the trace is not as it should be".into())));
        }
        let number = |at: usize| (0..8).fold(0, |value, i| value | u64::from(trailer[at + i]) << (8 * i));
        if number(0) != self.records {
            return Ok(Some(Err(format!("{} records where {} were written", self.records, number(0)))));
        }
        self.hash.update(&self.buffer[..self.unread.start]);
        if number(8) != self.hash.digest() {
            return Ok(Some(Err("the checksum of the records is wrong".into())));
        }
        Ok(None)
    }
}
