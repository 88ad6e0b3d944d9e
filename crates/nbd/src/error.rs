use std::borrow::Cow;

/// The client does not speak the protocol: the connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The flags are not those of a client that speaks fixed newstyle.
    #[error("client flags {flags:#x} are not those of a fixed newstyle client")]
    ClientFlags {
        /// The flags received.
        flags: u32,
    },
    /// An option does not start with the magic number of options.
    #[error("{magic:#x} is not the magic number of an option")]
    OptionMagic {
        /// The number received in its place.
        magic: u64,
    },
    /// The data of an option are longer than [`MAX_OPTION_BYTES`](crate::MAX_OPTION_BYTES).
    #[error("an option of {len_bytes} bytes is longer than this server accepts")]
    OptionTooLong {
        /// Length of the data.
        len_bytes: u32,
    },
    /// The client sends options without end.
    #[error("the client sent more options than this server accepts")]
    TooManyOptions,
    /// A request does not start with the magic number of requests.
    #[error("{magic:#x} is not the magic number of a request")]
    RequestMagic {
        /// The number received in its place.
        magic: u32,
    },
    /// The data of a write are longer than [`MAX_PAYLOAD_BYTES`](crate::MAX_PAYLOAD_BYTES).
    #[error("a write of {len_bytes} bytes is longer than this server accepts")]
    WriteTooLong {
        /// Length of the data.
        len_bytes: u32,
    },
}

/// Error numbers of the protocol (proto.md, "Error values").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// The export is read-only.
    Perm = 1,
    /// Input or output error.
    Io = 5,
    /// Invalid request.
    Inval = 22,
    /// No space left, or a write past the end of the export.
    NoSpace = 28,
    /// A read too long for a reply in one piece.
    Overflow = 75,
    /// Zeros cannot be written faster than other data.
    NotSupported = 95,
    /// The server is stopping.
    Shutdown = 108,
}

/// Why a request is refused. Nothing has been changed by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The error number of the reply.
    pub errno: Errno,
    /// The reason, for people.
    pub message: Cow<'static, str>,
}

impl Refusal {
    /// A refusal with its reason.
    pub fn new(errno: Errno, message: impl Into<Cow<'static, str>>) -> Self {
        Self { errno, message: message.into() }
    }
}
