use crate::error::Errno;
use crate::export::Session;
use crate::wire::{self, CONTEXT_ID, chunk};

/// A run of bytes that are all data, or all a hole that reads as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length of the run.
    pub len_bytes: u32,
    /// Whether it is a hole.
    pub is_hole: bool,
}

/// Encodes replies in the form that client and server agreed on.
#[derive(Clone, Copy, Debug)]
pub struct Replies {
    structured: bool,
}

/// A message of an error reply is cut to this length.
const MAX_MESSAGE_BYTES: usize = 1000;

impl Replies {
    /// The form of replies of a session.
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

    /// Appends a reply without data: the request succeeded.
    pub fn done(&self, cookie: u64, output: &mut Vec<u8>) {
        Self::simple(cookie, 0, output);
    }

    /// Appends an error reply. The message is sent in the structured form only.
    pub fn error(&self, cookie: u64, errno: Errno, message: &str, output: &mut Vec<u8>) {
        if !self.structured {
            return Self::simple(cookie, errno as u32, output);
        }
        let limit = message.len().min(MAX_MESSAGE_BYTES);
        let end = (0..=limit).rev().find(|&at| message.is_char_boundary(at)).unwrap_or(0);
        let message = &message.as_bytes()[..end];
        Self::chunk(cookie, chunk::DONE, chunk::ERROR, 6 + message.len(), output);
        output.extend_from_slice(&(errno as u32).to_be_bytes());
        output.extend_from_slice(&(message.len() as u16).to_be_bytes());
        output.extend_from_slice(message);
    }

    /// Whether a read may be answered in chunks, and its holes without their bytes.
    pub const fn has_chunks(&self) -> bool {
        self.structured
    }

    /// Appends what goes before the data of a read, `len_bytes` bytes from `offset` on, which the caller appends. In the
    /// structured form it is one chunk of the reply, perhaps the last; in the simple form it is the whole reply.
    pub fn data(&self, cookie: u64, offset: u64, len_bytes: u32, is_last: bool, output: &mut Vec<u8>) {
        if !self.structured {
            return Self::simple(cookie, 0, output);
        }
        Self::chunk(cookie, if is_last { chunk::DONE } else { 0 }, chunk::OFFSET_DATA, 8 + len_bytes as usize, output);
        output.extend_from_slice(&offset.to_be_bytes());
    }

    /// Appends a chunk of the reply to a read: a hole of `len_bytes` bytes from `offset` on. Structured form only.
    pub fn hole(&self, cookie: u64, offset: u64, len_bytes: u32, is_last: bool, output: &mut Vec<u8>) {
        Self::chunk(cookie, if is_last { chunk::DONE } else { 0 }, chunk::OFFSET_HOLE, 12, output);
        output.extend_from_slice(&offset.to_be_bytes());
        output.extend_from_slice(&len_bytes.to_be_bytes());
    }

    /// Appends the reply to a read of no bytes.
    pub fn no_data(&self, cookie: u64, output: &mut Vec<u8>) {
        if !self.structured {
            return Self::simple(cookie, 0, output);
        }
        Self::chunk(cookie, chunk::DONE, chunk::NONE, 0, output);
    }

    /// Appends the reply to a block status request: the extents of its range, from its start.
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
