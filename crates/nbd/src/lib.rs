//! The server side of the NBD protocol, without sockets: bytes in, events and bytes out.
//!
//! Source: the protocol text of the NBD project (doc/proto.md): fixed newstyle negotiation, structured replies,
//! `base:allocation`. What a peer sends is never trusted: lengths are bounded, and what cannot be understood is an
//! error reply or a [`ProtocolError`], never a panic.

mod handshake;
mod request;
mod wire;

pub use handshake::{Event, Export, Handshake, Session, greeting};
pub use request::{Errno, Extent, ProtocolError, Replies, Request, RequestKind, next_request};
pub use wire::{MAX_OPTION, MAX_PAYLOAD};
