use crate::handshake::{CONTEXT_ID, Session};
use crate::wire::{self, Bytes, MAX_PAYLOAD, chunk, command, command_flag};

/// A peer that does not speak the protocol: the connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// Flags that no client of fixed newstyle has.
    #[error("client flags {flags:#x} are not those of a fixed newstyle client")]
    ClientFlags {
        /// The flags.
        flags: u32,
    },
    /// An option does not start with the mark of one.
    #[error("{magic:#x} is not the magic number of an option")]
    OptionMagic {
        /// What is there.
        magic: u64,
    },
    /// An option is too long.
    #[error("an option of {len_bytes} bytes")]
    OptionTooLong {
        /// Its length.
        len_bytes: u32,
    },
    /// There is no end of options.
    #[error("too many options")]
    TooManyOptions,
    /// A request does not start with the mark of one.
    #[error("{magic:#x} is not the magic number of a request")]
    RequestMagic {
        /// What is there.
        magic: u32,
    },
    /// A write is too long to be skipped.
    #[error("a write of {len_bytes} bytes")]
    WriteTooLong {
        /// Its length.
        len_bytes: u32,
    },
}

/// Error numbers of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// Not permitted: the export is read-only.
    Perm = 1,
    /// Input or output error.
    Io = 5,
    /// Invalid request.
    Inval = 22,
    /// No space left.
    NoSpace = 28,
    /// Too large.
    Overflow = 75,
    /// Not supported.
    NotSupported = 95,
    /// The server is stopping.
    Shutdown = 108,
}

/// What a client wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Bytes.
    Read {
        /// In one piece.
        dont_fragment: bool,
    },
    /// To write bytes, durably with `fua`.
    Write {
        /// The bytes.
        data: Vec<u8>,
        /// Acknowledge when it survives a power cut.
        fua: bool,
    },
    /// To forget bytes.
    Trim {
        /// Acknowledge when it survives a power cut.
        fua: bool,
    },
    /// To have zeros.
    WriteZeroes {
        /// Acknowledge when it survives a power cut.
        fua: bool,
        /// Room must stay provided.
        no_hole: bool,
        /// Only if it is faster than writing.
        fast: bool,
    },
    /// Everything acknowledged to survive a power cut.
    Flush,
    /// Bytes to be read soon.
    Cache,
    /// Where data is.
    BlockStatus {
        /// One extent is enough.
        one: bool,
    },
    /// To go.
    Disconnect,
    /// Something that is answered with an error.
    Bad(Errno, &'static str),
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The client's number for it.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len_bytes: u32,
    /// What it wants.
    pub kind: RequestKind,
}

/// Takes the next request from `input`, if it is there whole.
pub fn next_request(input: &mut Vec<u8>, session: &Session) -> Result<Option<Request>, ProtocolError> {
    let mut bytes = Bytes(input);
    let (Some(magic), Some(flags), Some(kind), Some(cookie), Some(offset), Some(len_bytes)) =
        (bytes.u32(), bytes.u16(), bytes.u16(), bytes.u64(), bytes.u64(), bytes.u32())
    else {
        return Ok(None);
    };
    if magic != wire::REQUEST_MAGIC {
        return Err(ProtocolError::RequestMagic { magic });
    }
    let mut taken = 28;
    let mut data = Vec::new();
    if kind == command::WRITE {
        if len_bytes > MAX_PAYLOAD {
            return Err(ProtocolError::WriteTooLong { len_bytes });
        }
        let Some(payload) = bytes.take(len_bytes as usize) else { return Ok(None) };
        data = payload.to_vec();
        taken += payload.len();
    }
    input.drain(..taken);
    let kind = kind_of(kind, flags, len_bytes, data, session);
    Ok(Some(Request { cookie, offset, len_bytes, kind }))
}

fn kind_of(kind: u16, flags: u16, len_bytes: u32, data: Vec<u8>, session: &Session) -> RequestKind {
    use command_flag::{DF, FAST_ZERO, FUA, NO_HOLE, REQ_ONE};
    let bad = |text| RequestKind::Bad(Errno::Inval, text);
    // FUA has no meaning for what writes nothing, and is allowed.
    let allowed = FUA
        | match kind {
            command::READ => DF,
            command::WRITE_ZEROES => NO_HOLE | FAST_ZERO,
            command::BLOCK_STATUS => REQ_ONE,
            _ => 0,
        };
    let is = |flag: u16| flags & flag != 0;
    if flags & !allowed != 0 {
        return bad("unknown flags");
    }
    match kind {
        command::READ if len_bytes > MAX_PAYLOAD => RequestKind::Bad(Errno::Overflow, "a read that long"),
        command::READ if is(DF) && !session.structured => bad("DF needs structured replies"),
        command::READ => RequestKind::Read { dont_fragment: is(DF) },
        command::WRITE => RequestKind::Write { data, fua: is(FUA) },
        command::DISC => RequestKind::Disconnect,
        command::FLUSH => RequestKind::Flush,
        command::TRIM => RequestKind::Trim { fua: is(FUA) },
        command::CACHE => RequestKind::Cache,
        command::WRITE_ZEROES => RequestKind::WriteZeroes { fua: is(FUA), no_hole: is(NO_HOLE), fast: is(FAST_ZERO) },
        command::BLOCK_STATUS if !session.allocation => bad("base:allocation was not negotiated"),
        command::BLOCK_STATUS if len_bytes == 0 => bad("block status of nothing"),
        command::BLOCK_STATUS => RequestKind::BlockStatus { one: is(REQ_ONE) },
        _ => bad("unknown command"),
    }
}

/// A run of bytes that are all data or all a hole that reads as zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes.
    pub len_bytes: u32,
    /// A hole.
    pub is_hole: bool,
}

/// Writes replies in the form that was agreed on.
#[derive(Clone, Copy, Debug)]
pub struct Replies {
    structured: bool,
}

impl Replies {
    /// For a session.
    pub const fn new(session: &Session) -> Self {
        Self { structured: session.structured }
    }

    fn simple(cookie: u64, error: u32, output: &mut Vec<u8>) {
        output.extend_from_slice(&wire::SIMPLE_REPLY_MAGIC.to_be_bytes());
        output.extend_from_slice(&error.to_be_bytes());
        output.extend_from_slice(&cookie.to_be_bytes());
    }

    fn chunk(cookie: u64, flags: u16, kind: u16, len: usize, output: &mut Vec<u8>) {
        output.extend_from_slice(&wire::STRUCTURED_REPLY_MAGIC.to_be_bytes());
        output.extend_from_slice(&flags.to_be_bytes());
        output.extend_from_slice(&kind.to_be_bytes());
        output.extend_from_slice(&cookie.to_be_bytes());
        output.extend_from_slice(&(len as u32).to_be_bytes());
    }

    /// It is done.
    pub fn done(&self, cookie: u64, output: &mut Vec<u8>) {
        Self::simple(cookie, 0, output);
    }

    /// It failed. `is_read` and block status requests are answered in the structured form.
    pub fn error(&self, cookie: u64, errno: Errno, text: &str, output: &mut Vec<u8>) {
        if !self.structured {
            return Self::simple(cookie, errno as u32, output);
        }
        let text = &text.as_bytes()[..text.len().min(1000)];
        Self::chunk(cookie, chunk::DONE, chunk::ERROR, 6 + text.len(), output);
        output.extend_from_slice(&(errno as u32).to_be_bytes());
        output.extend_from_slice(&(text.len() as u16).to_be_bytes());
        output.extend_from_slice(text);
    }

    /// The bytes of a read: all of them, with the runs that are holes. In the structured form holes are not sent,
    /// unless the reply must be in one piece.
    pub fn read(&self, cookie: u64, offset: u64, bytes: &[u8], runs: &[Extent], one_piece: bool, output: &mut Vec<u8>) {
        if !self.structured {
            Self::simple(cookie, 0, output);
            output.extend_from_slice(bytes);
            return;
        }
        if bytes.is_empty() {
            return Self::chunk(cookie, chunk::DONE, chunk::NONE, 0, output);
        }
        let whole = [Extent { len_bytes: bytes.len() as u32, is_hole: false }];
        let runs = if one_piece || runs.is_empty() { &whole } else { runs };
        let mut at = 0;
        for (i, run) in runs.iter().enumerate() {
            let flags = if i + 1 == runs.len() { chunk::DONE } else { 0 };
            let place = (offset + at as u64).to_be_bytes();
            if run.is_hole {
                Self::chunk(cookie, flags, chunk::OFFSET_HOLE, 12, output);
                output.extend_from_slice(&place);
                output.extend_from_slice(&run.len_bytes.to_be_bytes());
            } else {
                let part = &bytes[at..at + run.len_bytes as usize];
                Self::chunk(cookie, flags, chunk::OFFSET_DATA, 8 + part.len(), output);
                output.extend_from_slice(&place);
                output.extend_from_slice(part);
            }
            at += run.len_bytes as usize;
        }
    }

    /// Where data is.
    pub fn block_status(&self, cookie: u64, extents: &[Extent], output: &mut Vec<u8>) {
        const HOLE_THAT_READS_AS_ZERO: u32 = 3;
        Self::chunk(cookie, chunk::DONE, chunk::BLOCK_STATUS, 4 + extents.len() * 8, output);
        output.extend_from_slice(&CONTEXT_ID.to_be_bytes());
        for extent in extents {
            output.extend_from_slice(&extent.len_bytes.to_be_bytes());
            output.extend_from_slice(&(if extent.is_hole { HOLE_THAT_READS_AS_ZERO } else { 0 }).to_be_bytes());
        }
    }
}
