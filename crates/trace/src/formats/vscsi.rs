use crate::IoKind;
use crate::format::{Detection, Entry, Example, FormatRow, Reader, RecordReader, Stream};
use crate::records::{ends_inside, le_u32, le_u64, read_up_to};
use std::io::{self, BufRead};

pub(super) static ROW: FormatRow = FormatRow {
    name: "vscsi",
    summary: "records of 32 bytes (version 1) or 40 (version 2), little endian: SCSI commands with time (us), length (bytes) and address (512 B)",
    source: "Waldspurger et al., SHARDS, FAST 2015; CloudPhysics traces vscsi1 and vscsi2, whose structures libCacheSim declares",
    detection: Detection::Records(|head| Version::of(head, 2).is_some()),
    reader: Reader::Records(|mut stream| {
        let Some(version) = Version::of(stream.fill_buf()?, 1) else {
            return Ok(Err(NEITHER.into()));
        };
        Ok(Ok(Box::new(Vscsi { stream, version })))
    }),
    writer: None,
    example: Example {
        file_name: "w01.vscsi2",
        // A write of 4096 bytes at sector 16, half a second later a read of 512 at 2^32, then a TEST UNIT READY.
        bytes: b"\x2a\0\x07\x02\x01\0\0\0\0\x10\0\0\x01\0\0\0\x10\0\0\0\0\0\0\0\x40\x42\x0f\0\0\0\0\0\x2c\x01\0\0\0\0\0\0\
                 \x88\0\x07\x02\x02\0\0\0\0\x02\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\x60\xe3\x16\0\0\0\0\0\x2c\x01\0\0\0\0\0\0\
                 \0\0\x07\x02\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x61\xe3\x16\0\0\0\0\0\x05\0\0\0\0\0\0\0",
        requests: 2,
    },
};

const NEITHER: &str = "the first records are neither of 32 bytes with version 1 in them nor of 40 with version 2";

/// A version of the records, which is the upper byte of a number of 16 bits in each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// u32 number, u32 bytes, u32 parts, u16 command, u16 version, u64 sector, u64 time.
    One,
    /// u16 command, u16 version, u32 number, u32 bytes, u32 parts, u64 sector, u64 time, u64 time of response.
    Two,
}

/// Records that are looked at to tell the version.
const SAMPLE_RECORDS: usize = 64;
const MAX_RECORD_BYTES: usize = 40;

impl Version {
    const fn bytes(self) -> usize {
        match self {
            Self::One => 32,
            Self::Two => 40,
        }
    }

    /// The version of the records that a file starts with, if there are `min` of them and all say the same.
    fn of(head: &[u8], min: usize) -> Option<Self> {
        [Self::One, Self::Two].into_iter().find(|version| {
            let mut records = head.chunks_exact(version.bytes()).take(SAMPLE_RECORDS);
            records.len() >= min && records.all(|record| version.is_of(record))
        })
    }

    /// Whether a record says this version, and has the code of a SCSI command where the command stands.
    fn is_of(self, record: &[u8]) -> bool {
        let (command, version) = match self {
            Self::One => (&record[12..14], record[15]),
            Self::Two => (&record[..2], record[3]),
        };
        command[1] == 0 && version == self as u8 + 1
    }
}

struct Vscsi {
    stream: Stream,
    version: Version,
}

impl RecordReader for Vscsi {
    fn next(&mut self) -> io::Result<Option<Result<Entry, String>>> {
        let mut record = [0; MAX_RECORD_BYTES];
        let record = &mut record[..self.version.bytes()];
        Ok(match read_up_to(&mut self.stream, record)? {
            0 => None,
            n if n < record.len() => Some(Err(ends_inside(n, record.len()))),
            _ if !self.version.is_of(record) => {
                Some(Err(format!("the record does not say version {}, as those before do", self.version as u8 + 1)))
            }
            _ => Some(self.parse(record)),
        })
    }
}

impl Vscsi {
    fn parse(&self, record: &[u8]) -> Result<Entry, String> {
        let (command, len_at, sector_at) = match self.version {
            Version::One => (record[12], 4, 16),
            Version::Two => (record[0], 8, 16),
        };
        let kind = match command {
            // READ and WRITE of 6, 10, 12 and 16 bytes, WRITE AND VERIFY, SYNCHRONIZE CACHE.
            0x08 | 0x28 | 0xa8 | 0x88 => IoKind::Read,
            0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0xae | 0x8e => IoKind::Write,
            0x35 | 0x91 => IoKind::Flush,
            // What it frees stands in its data, which the record does not have.
            0x42 => return Ok(Entry::Ignored("unmap, of which the trace does not say where")),
            _ => return Ok(Entry::Ignored("another SCSI command")),
        };
        let time_ns = u128::from(le_u64(record, sector_at + 8)) * 1000;
        if kind == IoKind::Flush {
            return Ok(Entry::request(time_ns, kind, 0, 0, 0));
        }
        let offset_bytes = le_u64(record, sector_at).checked_mul(512).ok_or("the sector is too large")?;
        Ok(Entry::request(time_ns, kind, 0, offset_bytes, le_u32(record, len_at).into()))
    }
}
