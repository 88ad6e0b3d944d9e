//! Reading binary records.

use std::io::{self, Read};

/// Fills the buffer as far as the stream goes; returns the bytes read.
pub(crate) fn read_up_to(stream: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// The problem with a record of which only the first `read` of so many bytes are there.
#[cold]
pub(crate) fn ends_inside(read: usize, bytes: usize) -> String {
    format!("the file ends inside a record, after {read} of {bytes} bytes")
}

/// The little-endian number of 32 bits at a place that the record has.
pub(crate) fn le_u32(record: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]])
}

/// The little-endian number of 64 bits at a place that the record has.
pub(crate) fn le_u64(record: &[u8], at: usize) -> u64 {
    u64::from(le_u32(record, at)) | u64::from(le_u32(record, at + 4)) << 32
}
