use super::Raw;
use super::hp_srt::read_up_to;
use crate::{Kind, Request};
use std::io::{self, BufRead, Write};
use xxhash_rust::xxh3::Xxh3;

/// The start of a margay trace. What follows is one zstd stream of records and an end.
///
/// A record: a byte of kind (bits 0 and 1: read, write, trim, flush) with bit 2 set if the device differs from
/// the record before, then LEB128 numbers: microseconds since the record before, the device if it differs, the
/// zigzag distance of the offset from the end of the record before, the length. The end: a byte 0xFF, the
/// number of records and the xxh3 of all their bytes, each as u64 little endian.
pub(crate) const MAGIC: &[u8] = b"margay trace 1\n";

const END: u8 = 0xff;
const OTHER_DEVICE: u8 = 4;
const KINDS: [Kind; 4] = [Kind::Read, Kind::Write, Kind::Trim, Kind::Flush];

#[derive(Clone, Copy, Debug, Default)]
struct Before {
    time_us: u64,
    device: u32,
    end_bytes: u64,
}

/// Writes records.
pub(crate) struct Encoder<W: Write> {
    out: zstd::stream::write::Encoder<'static, W>,
    hash: Xxh3,
    records: u64,
    before: Before,
}

impl<W: Write> Encoder<W> {
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        let out = zstd::stream::write::Encoder::new(out, 6)?;
        Ok(Self { out, hash: Xxh3::new(), records: 0, before: Before::default() })
    }

    pub fn write(&mut self, request: &Request) -> io::Result<()> {
        let mut record = Vec::with_capacity(32);
        let kind = KINDS.iter().position(|kind| *kind == request.kind).unwrap_or(0) as u8;
        let other = request.device != self.before.device;
        record.push(kind | if other { OTHER_DEVICE } else { 0 });
        leb128(&mut record, request.time_us - self.before.time_us.min(request.time_us));
        if other {
            leb128(&mut record, request.device.into());
        }
        let distance = request.offset_bytes.wrapping_sub(self.before.end_bytes) as i64;
        leb128(&mut record, ((distance << 1) ^ (distance >> 63)) as u64);
        leb128(&mut record, request.len_bytes);
        self.before = Before {
            time_us: request.time_us.max(self.before.time_us),
            device: request.device,
            end_bytes: request.offset_bytes.wrapping_add(request.len_bytes),
        };
        self.hash.update(&record);
        self.records += 1;
        self.out.write_all(&record)
    }

    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&[END])?;
        self.out.write_all(&self.records.to_le_bytes())?;
        self.out.write_all(&self.hash.digest().to_le_bytes())?;
        self.out.finish()
    }
}

fn leb128(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads records from the stream behind the magic.
pub(crate) struct Decoder {
    hash: Xxh3,
    records: u64,
    before: Before,
    bytes: Vec<u8>,
}

impl Decoder {
    pub fn new() -> Self {
        Self { hash: Xxh3::new(), records: 0, before: Before::default(), bytes: Vec::new() }
    }

    pub fn next(&mut self, stream: &mut dyn BufRead) -> io::Result<Option<Result<Raw, String>>> {
        self.bytes.clear();
        let kind = self.byte(stream)?;
        if kind == END {
            return self.end(stream);
        }
        if kind > 7 {
            return Ok(Some(Err(format!("record {} is of no known kind", self.records + 1))));
        }
        let elapsed = self.number(stream)?;
        let device = if kind & OTHER_DEVICE == 0 { u64::from(self.before.device) } else { self.number(stream)? };
        let zigzag = self.number(stream)?;
        let len_bytes = self.number(stream)?;
        let distance = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
        let offset_bytes = self.before.end_bytes.wrapping_add(distance as u64);
        let (Some(time_us), Ok(device)) = (self.before.time_us.checked_add(elapsed), u32::try_from(device)) else {
            return Ok(Some(Err(format!("record {} holds a number that is too large", self.records + 1))));
        };
        self.hash.update(&self.bytes);
        self.records += 1;
        self.before = Before { time_us, device, end_bytes: offset_bytes.wrapping_add(len_bytes) };
        let kind = KINDS[usize::from(kind & 3)];
        Ok(Some(Ok(Raw { time_ns: u128::from(time_us) * 1000, kind, device, offset_bytes, len_bytes })))
    }

    fn end(&mut self, stream: &mut dyn BufRead) -> io::Result<Option<Result<Raw, String>>> {
        let mut trailer = [0; 17];
        if read_up_to(stream, &mut trailer)? != 16 {
            return Ok(Some(Err("the end of the trace is not as it should be".into())));
        }
        let number = |at: usize| (0..8).fold(0, |value, i| value | u64::from(trailer[at + i]) << (8 * i));
        if number(0) != self.records {
            return Ok(Some(Err(format!("{} records where {} were written", self.records, number(0)))));
        }
        if number(8) != self.hash.digest() {
            return Ok(Some(Err("the checksum of the records is wrong".into())));
        }
        Ok(None)
    }

    fn byte(&mut self, stream: &mut dyn BufRead) -> io::Result<u8> {
        let Some(byte) = stream.fill_buf()?.first().copied() else {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the trace has no end"));
        };
        stream.consume(1);
        self.bytes.push(byte);
        Ok(byte)
    }

    fn number(&mut self, stream: &mut dyn BufRead) -> io::Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(stream)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "a number of more than 64 bits"))
    }
}
