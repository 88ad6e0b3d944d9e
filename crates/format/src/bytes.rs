//! Little-endian fields at fixed places.

/// The largest sequence number, number of a host write and time that a tag holds: 2^48 - 1.
pub const U48_MAX: u64 = (1 << 48) - 1;

/// Writes fields one behind the other.
pub(crate) struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.at..][..bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    /// The low `bytes` bytes of a value.
    #[inline]
    pub fn uint(&mut self, value: u64, bytes: usize) {
        self.put(&value.to_le_bytes()[..bytes]);
    }

    /// A value in six bytes: the largest stands for all above it.
    #[inline]
    pub fn u48(&mut self, value: u64) {
        self.uint(value.min(U48_MAX), 6);
    }

    pub fn at(&self) -> usize {
        self.at
    }
}

/// Reads fields one behind the other; past the end they are zero and [`Reader::is_short`] holds.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    short: bool,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, short: false }
    }

    pub fn take(&mut self, count: usize) -> &'a [u8] {
        match self.bytes.split_at_checked(count) {
            Some((taken, rest)) => {
                self.bytes = rest;
                taken
            }
            None => {
                self.short = true;
                self.bytes = &[];
                &[]
            }
        }
    }

    #[inline]
    pub fn uint(&mut self, bytes: usize) -> u64 {
        let mut value = [0; 8];
        let taken = self.take(bytes);
        value[..taken.len()].copy_from_slice(taken);
        u64::from_le_bytes(value)
    }

    pub fn u32(&mut self) -> u32 {
        self.uint(4) as u32
    }

    pub fn is_short(&self) -> bool {
        self.short
    }
}
