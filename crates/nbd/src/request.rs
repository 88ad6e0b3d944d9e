use crate::error::{Errno, ProtocolError, Refusal};
use crate::export::{Export, Session};
use crate::wire::{self, MAX_PAYLOAD_BYTES, REQUEST_BYTES, command, command_flag};
use std::ops::Range;

/// The command of a request, with its flags and data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Read bytes.
    Read {
        /// The reply has to be in one piece.
        dont_fragment: bool,
    },
    /// Write the bytes that follow the request.
    Write {
        /// Reply only when the write survives a power cut.
        fua: bool,
    },
    /// The content of the range is no longer needed.
    Trim {
        /// Reply only when the trim survives a power cut.
        fua: bool,
    },
    /// The range is to read as zeros.
    WriteZeroes {
        /// Reply only when the zeros survive a power cut.
        fua: bool,
        /// Write the zeros rather than trim the range.
        no_hole: bool,
        /// Fail unless it is faster than writing data.
        fast: bool,
    },
    /// Reply when everything answered before survives a power cut.
    Flush,
    /// The range will be read soon.
    Cache,
    /// Which parts of the range are data, and which are holes.
    BlockStatus {
        /// The client wants one extent only.
        one: bool,
    },
    /// The client closes the connection.
    Disconnect,
    /// A request that this server refuses whatever its range is.
    Bad(Refusal),
}

impl RequestKind {
    /// Whether the reply is to come only when what was done survives a power cut.
    pub fn is_durable(&self) -> bool {
        match self {
            Self::Write { fua } | Self::Trim { fua } | Self::WriteZeroes { fua, .. } => *fua,
            Self::Flush => true,
            Self::Read { .. } | Self::Cache | Self::BlockStatus { .. } | Self::Disconnect | Self::Bad(_) => false,
        }
    }
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The client's identifier of the request, returned in the reply.
    pub cookie: u64,
    /// Offset of the first byte.
    pub offset: u64,
    /// Length of the range.
    pub len_bytes: u32,
    /// Bytes that follow the request: the data of a write, also of one that is refused.
    pub payload_bytes: u32,
    /// What is to be done with the range.
    pub kind: RequestKind,
}

impl Request {
    /// Decodes a request. The data of a write follow it.
    ///
    /// # Errors
    /// The bytes are no request, or its data are too long: where the next one starts is unknown.
    pub fn decode(bytes: &[u8; REQUEST_BYTES], session: &Session) -> Result<Self, ProtocolError> {
        let number = |at: Range<usize>| bytes[at].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let (magic, flags, command, len_bytes) =
            (number(0..4) as u32, number(4..6) as u16, number(6..8) as u16, number(24..28) as u32);
        if magic != wire::REQUEST_MAGIC {
            return Err(ProtocolError::RequestMagic { magic });
        }
        let payload_bytes = if command == command::WRITE { len_bytes } else { 0 };
        if payload_bytes > MAX_PAYLOAD_BYTES {
            return Err(ProtocolError::WriteTooLong { len_bytes });
        }
        let kind = kind_of(command, flags, len_bytes, session);
        Ok(Self { cookie: number(8..16), offset: number(16..24), len_bytes, payload_bytes, kind })
    }

    /// Checks a request before anything is done: first that its range lies within the export (`ENOSPC` for writes and
    /// zeros, else `EINVAL`), then that the export can be written (`EPERM`), then that zeros which have to be fast can
    /// be (`ENOTSUP`).
    ///
    /// # Errors
    /// The error reply that the request gets.
    pub fn check(&self, export: &Export) -> Result<(), Refusal> {
        let past_end = match &self.kind {
            RequestKind::Write { .. } | RequestKind::WriteZeroes { .. } => Errno::NoSpace,
            RequestKind::Read { .. }
            | RequestKind::Trim { .. }
            | RequestKind::Cache
            | RequestKind::BlockStatus { .. } => Errno::Inval,
            RequestKind::Flush | RequestKind::Disconnect => return Ok(()),
            RequestKind::Bad(refusal) => return Err(refusal.clone()),
        };
        let (offset, len_bytes) = (self.offset, u64::from(self.len_bytes));
        if !export.contains(offset, len_bytes) {
            let size_bytes = export.size_bytes;
            let message =
                format!("{len_bytes} bytes at offset {offset} are past the end of the export ({size_bytes} bytes)");
            return Err(Refusal::new(past_end, message));
        }
        if export.read_only && self.is_change() {
            return Err(Refusal::new(Errno::Perm, "the export is read-only"));
        }
        match self.kind {
            RequestKind::WriteZeroes { fast: true, no_hole, .. }
                if !export.can_zero_fast(offset, len_bytes, no_hole) =>
            {
                let message = format!(
                    "zeros are fast only for ranges aligned to {} bytes that may become holes",
                    export.fast_zero_bytes
                );
                Err(Refusal::new(Errno::NotSupported, message))
            }
            _ => Ok(()),
        }
    }

    /// Whether it changes what the export holds.
    fn is_change(&self) -> bool {
        let kind = &self.kind;
        matches!(kind, RequestKind::Write { .. } | RequestKind::Trim { .. } | RequestKind::WriteZeroes { .. })
    }
}

fn kind_of(kind: u16, flags: u16, len_bytes: u32, session: &Session) -> RequestKind {
    use command_flag::{DF, FAST_ZERO, FUA, NO_HOLE, REQ_ONE};
    let bad = |message| RequestKind::Bad(Refusal::new(Errno::Inval, message));
    // FUA is allowed on every command, and means nothing on those that change nothing.
    let allowed = FUA
        | match kind {
            command::READ => DF,
            command::WRITE_ZEROES => NO_HOLE | FAST_ZERO,
            command::BLOCK_STATUS => REQ_ONE,
            _ => 0,
        };
    let is = |flag: u16| flags & flag != 0;
    if flags & !allowed != 0 {
        return bad("the command does not have these flags");
    }
    match kind {
        command::READ if is(DF) && !session.structured => bad("the flag DF needs structured replies"),
        command::READ if len_bytes > MAX_PAYLOAD_BYTES => {
            // EOVERFLOW is for clients that set DF; others may not know it.
            let errno = if is(DF) { Errno::Overflow } else { Errno::Inval };
            RequestKind::Bad(Refusal::new(errno, "the read is longer than this server accepts"))
        }
        command::READ => RequestKind::Read { dont_fragment: is(DF) },
        command::WRITE => RequestKind::Write { fua: is(FUA) },
        command::DISC => RequestKind::Disconnect,
        command::FLUSH => RequestKind::Flush,
        command::TRIM => RequestKind::Trim { fua: is(FUA) },
        command::CACHE => RequestKind::Cache,
        command::WRITE_ZEROES => RequestKind::WriteZeroes { fua: is(FUA), no_hole: is(NO_HOLE), fast: is(FAST_ZERO) },
        command::BLOCK_STATUS if !session.allocation => bad("base:allocation was not negotiated"),
        command::BLOCK_STATUS if len_bytes == 0 => bad("the status of an empty range was requested"),
        command::BLOCK_STATUS => RequestKind::BlockStatus { one: is(REQ_ONE) },
        _ => bad("unknown command"),
    }
}
