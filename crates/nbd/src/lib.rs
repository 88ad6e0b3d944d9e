//! The server side of the NBD protocol without sockets: bytes of the client in, events and bytes of the server out.
//!
//! Source: the protocol text of the NBD project (doc/proto.md): fixed newstyle negotiation, structured replies,
//! `base:allocation`. Nothing that a client sends is trusted: lengths are bounded, and what cannot be understood is
//! answered with an error reply or ends in a [`ProtocolError`], never in a panic.

mod error;
mod export;
mod handshake;
mod reply;
mod request;
mod wire;

pub use error::{Errno, ProtocolError, Refusal};
pub use export::{Export, Session};
pub use handshake::{Event, Handshake, greeting};
pub use reply::{Extent, Replies};
pub use request::{Request, RequestKind};
pub use wire::{MAX_OPTION_BYTES, MAX_PAYLOAD_BYTES, REQUEST_BYTES};
