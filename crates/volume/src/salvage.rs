//! Reading what can be read of a file that is damaged.

use alloc::{vec, vec::Vec};
use core::ops::Range;
use margay_format::Store;
use margay_fs::{Fs, FsError};

/// Bytes that are read at one time as long as nothing is damaged.
const STEP_BYTES: u64 = 1 << 20;

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// Its first byte.
    pub offset: u64,
    /// Its bytes, or how many of them cannot be read, and why.
    pub bytes: Result<&'a [u8], (u64, FsError)>,
}

/// Hands out a file of `size` bytes from its start to its end, also behind what cannot be read. Damaged parts are whole
/// pages but for the last.
///
/// # Errors
/// The first error of `each`, after which nothing more is read.
pub fn read_parts<D: Store, E>(
    fs: &mut Fs<D>,
    object: u32,
    size: u64,
    mut each: impl FnMut(Part<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let page_bytes = u64::from(fs.room().page_bytes);
    let step = STEP_BYTES.next_multiple_of(page_bytes);
    let mut buffer = vec![0; step.min(size.next_multiple_of(page_bytes)) as usize];
    let mut offset = 0;
    while offset < size {
        let len = step.min(size - offset);
        if fs.read(object, offset, &mut buffer[..len as usize]).is_ok() {
            each(Part { offset, bytes: Ok(&buffer[..len as usize]) })?;
            offset += len;
            continue;
        }
        let end = offset + len;
        while offset < end {
            let page = &mut buffer[..page_bytes.min(end - offset) as usize];
            let len = page.len() as u64;
            let bytes = fs.read(object, offset, page);
            each(Part { offset, bytes: bytes.map(|_| &*page).map_err(|error| (len, error)) })?;
            offset += len;
        }
    }
    Ok(())
}

/// Adds a range of bytes to a list in ascending order, to the last one if that ends where it starts.
pub fn note_range(ranges: &mut Vec<Range<u64>>, from: u64, len: u64) {
    match ranges.last_mut() {
        Some(last) if last.end == from => last.end = from + len,
        _ => ranges.push(from..from + len),
    }
}
