//! VMT1, margay's compact format of page references. The layout is in the module's documentation.

use super::format::{Opened, ReferenceReader, VmFormatRow};
use super::{HEADER_BYTES, MAGIC, Reference, VmHeader};
use crate::Example;
use crate::format::Stream;
use crate::leb128::unzigzag;
use crate::records::read_up_to;
use std::io::{self, BufRead};

pub(super) static ROW: VmFormatRow = VmFormatRow {
    name: "vmt",
    summary: "VMT1, binary: 16-byte header, then LEB128 differences of page numbers with a bit for a write",
    source: "margay",
    detect: |head| head.starts_with(MAGIC),
    open,
    is_written: true,
    example: Example {
        file_name: "example.vmt",
        // Pages 5 (written), 6 and 2.
        bytes: b"VMT1\x0b\x01\x40\0\0\0\0\0\0\0\0\0\x15\x04\x0e",
        requests: 3,
    },
};

/// Binary logarithms of the page sizes that are read.
const PAGE_SHIFTS: std::ops::RangeInclusive<u8> = 6..=30;

fn open(mut stream: Stream, _: VmHeader) -> io::Result<Result<Opened, String>> {
    let mut bytes = [0; HEADER_BYTES];
    let len = read_up_to(&mut stream, &mut bytes)?;
    if len < HEADER_BYTES {
        return Ok(Err(format!("the header is cut short after {len} of {HEADER_BYTES} bytes")));
    }
    let Some(header) = VmHeader::decode(&bytes) else {
        return Ok(Err("the header is no VMT1 header".into()));
    };
    if !PAGE_SHIFTS.contains(&header.page_shift) {
        let (min, max) = (PAGE_SHIFTS.start(), PAGE_SHIFTS.end());
        return Ok(Err(format!("pages of 2^{} bytes: expected 2^{min} to 2^{max}", header.page_shift)));
    }
    Ok(Ok((header, Box::new(VmtReader { stream, previous: 0, records: 0 }))))
}

struct VmtReader {
    stream: Stream,
    /// Page of the record before.
    previous: u64,
    records: u64,
}

impl ReferenceReader for VmtReader {
    #[inline]
    fn next(&mut self) -> io::Result<Option<Result<Reference, String>>> {
        self.records += 1;
        let value = match self.number()? {
            None => return Ok(None),
            Some(Err(problem)) => return Ok(Some(Err(problem.into()))),
            Some(Ok(value)) => value,
        };
        let (zigzag, write) = (value >> 1, value & 1 != 0);
        self.previous = self.previous.wrapping_add(unzigzag(zigzag) as u64);
        Ok(Some(Ok(Reference { page: self.previous, write })))
    }

    fn place(&self) -> (u64, &[u8]) {
        (self.records, b"")
    }
}

impl VmtReader {
    /// One LEB128 number, or `None` at the end.
    #[inline]
    fn number(&mut self) -> io::Result<Option<Result<u64, &'static str>>> {
        let (mut value, mut shift) = (0u64, 0u32);
        loop {
            let buffer = self.stream.fill_buf()?;
            if buffer.is_empty() {
                return Ok((shift > 0).then_some(Err("the last record is cut short")));
            }
            let mut used = 0;
            for byte in buffer {
                used += 1;
                let bits = u64::from(byte & 0x7F);
                if shift > 63 || (shift == 63 && bits > 1) {
                    return Ok(Some(Err("a record is longer than 64 bits")));
                }
                value |= bits << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    self.stream.consume(used);
                    return Ok(Some(Ok(value)));
                }
            }
            self.stream.consume(used);
        }
    }
}
