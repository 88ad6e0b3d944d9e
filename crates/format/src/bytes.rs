//! Little-endian fields one behind the other: the only code that turns numbers into bytes on flash and back.

use alloc::vec::Vec;
use margay_flash::SegmentId;

/// The largest sequence number, number of a host write and time that a tag holds: 2^48 - 1.
pub const U48_MAX: u64 = (1 << 48) - 1;

/// Writes fields one behind the other: a vector grows; of a slice the part that is left moves on.
pub trait PutBytes {
    /// Writes bytes.
    ///
    /// # Panics
    /// If they do not fit a slice.
    fn put(&mut self, bytes: &[u8]);

    /// Writes the low `count` bytes of a number, at most 8.
    #[inline]
    fn put_uint(&mut self, value: u64, count: usize) {
        self.put(&value.to_le_bytes()[..count]);
    }

    /// Writes a number of 4 bytes.
    #[inline]
    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }

    /// Writes a number in 6 bytes: the largest stands for all above it.
    #[inline]
    fn put_u48(&mut self, value: u64) {
        self.put_uint(value.min(U48_MAX), 6);
    }
}

impl PutBytes for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl PutBytes for &mut [u8] {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        let (start, rest) = core::mem::take(self).split_at_mut(bytes.len());
        start.copy_from_slice(bytes);
        *self = rest;
    }
}

/// Reads fields one behind the other; every method returns `None` past the end.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// What is left.
    pub const fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// The next `count` bytes.
    #[inline]
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// The next number of `count` bytes, at most 8.
    #[inline]
    pub fn uint(&mut self, count: usize) -> Option<u64> {
        let mut value = [0; 8];
        value[..count].copy_from_slice(self.take(count)?);
        Some(u64::from_le_bytes(value))
    }

    /// The next byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    /// The next number of 2 bytes.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.uint(2).map(|value| value as u16)
    }

    /// The next number of 4 bytes.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.uint(4).map(|value| value as u32)
    }

    /// The next number of 8 bytes.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.uint(8)
    }

    /// The number of a segment of a device of `segments` segments; `None` also if there is no such segment.
    pub(crate) fn segment(&mut self, segments: u32) -> Option<SegmentId> {
        self.u32().filter(|id| *id < segments).map(SegmentId)
    }

    /// A list of segments of a device of `segments` segments, behind its length; `None` also if it cannot be one.
    pub(crate) fn segments(&mut self, segments: u32) -> Option<Vec<SegmentId>> {
        let count = self.u32().filter(|count| *count <= segments)?;
        (0..count).map(|_| self.segment(segments)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_and_slices_hold_the_same_bytes_and_nothing_is_read_past_the_end() {
        let mut vector = Vec::new();
        let mut array = [0xEE; 9];
        let mut slice = &mut array[..];
        for bytes in [&mut vector as &mut dyn PutBytes, &mut slice] {
            bytes.put(b"ab");
            bytes.put_uint(0x0102_0304_0506, 3);
            bytes.put_u32(7);
        }
        assert_eq!(slice.len(), 0);
        assert_eq!(array, [b'a', b'b', 6, 5, 4, 7, 0, 0, 0]);
        assert_eq!(vector, array);
        let mut reader = Reader::new(&vector);
        assert_eq!((reader.take(2), reader.uint(3)), (Some(b"ab".as_slice()), Some(0x0004_0506)));
        assert_eq!((reader.u16(), reader.u32(), reader.u8()), (Some(7), None, Some(0)));
        assert_eq!((reader.u16(), reader.u8(), reader.u64()), (None, Some(0), None));
    }
}
