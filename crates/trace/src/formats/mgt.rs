//! margay's own format: [`MAGIC`], then one zstd stream of records and an end.
//!
//! A record: a byte of kind (bits 0 and 1: read, write, trim, flush) with bit 2 set if the device differs from the
//! record before, then LEB128 numbers: microseconds since the record before, the device if it differs, the zigzag
//! distance of the offset from the end of the record before, the length. The end: a byte 0xFF, the number of records
//! and the xxh3 of all their bytes, each as u64 little endian.

use crate::format::{
    Detection, Entry, Example, FormatRow, Reader, RecordReader, RecordWriter, Records, Stream, Writer, WriterForm,
};
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

const MAGIC: &[u8] = b"margay trace 1\n";
const ZSTD_LEVEL: i32 = 6;
const END: u8 = 0xff;
const OTHER_DEVICE: u8 = 4;
const KINDS: [IoKind; 4] = [IoKind::Read, IoKind::Write, IoKind::Trim, IoKind::Flush];

#[derive(Clone, Copy, Debug, Default)]
struct Before {
    time_us: u64,
    device: u32,
    end_bytes: u64,
}

struct Encoder {
    out: zstd::stream::write::Encoder<'static, OutputFile>,
    hash: Xxh3,
    records: u64,
    before: Before,
    /// The record being made, kept for its memory.
    record: Vec<u8>,
}

impl Encoder {
    fn new(mut out: OutputFile) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        let out = zstd::stream::write::Encoder::new(out, ZSTD_LEVEL)?;
        Ok(Self { out, hash: Xxh3::new(), records: 0, before: Before::default(), record: Vec::new() })
    }
}

impl RecordWriter for Encoder {
    fn write(&mut self, request: &Request) -> io::Result<()> {
        let record = &mut self.record;
        record.clear();
        let kind = KINDS.iter().position(|kind| *kind == request.kind).unwrap_or(0) as u8;
        let other = request.device != self.before.device;
        record.push(kind | if other { OTHER_DEVICE } else { 0 });
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
        self.hash.update(record);
        self.records += 1;
        self.out.write_all(record)
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
const MAX_RECORD_BYTES: usize = 1 + 4 * leb128::MAX_BYTES;

struct Decoder {
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
            return Ok(Some(Err(format!("record {} is of no known kind", self.records + 1))));
        }
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
    fn open(mut stream: Stream) -> io::Result<Records> {
        let mut magic = [0; MAGIC.len()];
        if read_up_to(&mut stream, &mut magic)? != magic.len() || magic != MAGIC {
            return Ok(Err("not a margay trace".into()));
        }
        Ok(Ok(Box::new(Self {
            stream: zstd::stream::read::Decoder::with_buffer(stream)?.single_frame(),
            buffer: vec![0; BUFFER_BYTES].into(),
            unread: 0..0,
            failed: None,
            hash: Xxh3::new(),
            records: 0,
            before: Before::default(),
        })))
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
