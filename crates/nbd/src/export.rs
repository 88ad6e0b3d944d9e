use crate::wire::transmission::*;

/// What a server offers under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its name; the default export has the empty one.
    pub name: String,
    /// A description for people.
    pub description: String,
    /// Its size.
    pub size_bytes: u64,
    /// The size, and the alignment, of the requests that cost least.
    pub preferred_bytes: u32,
    /// A write of zeros is faster than a write of other data if it starts and ends at multiples of this.
    pub fast_zero_bytes: u32,
    /// It cannot be written.
    pub read_only: bool,
}

impl Export {
    /// The transmission flags. Every connection sees the writes of all others, and a flush on one is a flush of all,
    /// so a client may use several (`CAN_MULTI_CONN`). Reads in one piece exist in structured replies only.
    pub(crate) fn flags(&self, structured: bool) -> u16 {
        let always = HAS_FLAGS | SEND_FLUSH | SEND_FUA | CAN_MULTI_CONN | SEND_CACHE;
        let replies = if structured { SEND_DF } else { 0 };
        always | replies | if self.read_only { READ_ONLY } else { SEND_TRIM | SEND_WRITE_ZEROES | SEND_FAST_ZERO }
    }

    /// Whether a range of bytes lies within the export. No offset and length overflow.
    pub(crate) fn contains(&self, offset: u64, len_bytes: u64) -> bool {
        offset.checked_add(len_bytes).is_some_and(|end| end <= self.size_bytes)
    }

    /// Whether zeros for a range within the export need no data to be read or written.
    pub(crate) fn can_zero_fast(&self, offset: u64, len_bytes: u64, no_hole: bool) -> bool {
        let unit = u64::from(self.fast_zero_bytes);
        len_bytes == 0 || !no_hole && offset.is_multiple_of(unit) && (offset + len_bytes).is_multiple_of(unit)
    }
}

/// What client and server agreed on in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// Index of the export in the list given to the handshake.
    pub export: usize,
    /// Replies are structured.
    pub structured: bool,
    /// The client selected the metadata context `base:allocation` for this export.
    pub allocation: bool,
}
