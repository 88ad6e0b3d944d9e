use crate::error::ProtocolError;
use crate::export::{Export, Session};
use crate::wire::{self, Bytes, CONTEXT, CONTEXT_ID, MAX_NAME_BYTES, MAX_OPTION_BYTES, info, option, reply};

/// What the caller has to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Send the output, then read more bytes from the client.
    NeedBytes,
    /// Send the output, then start TLS, then continue the handshake within it.
    StartTls,
    /// Send the output, then close the connection.
    Close,
    /// Send the output; the handshake is complete and requests follow.
    Serve(Session),
}

/// The first bytes that a server sends.
pub fn greeting() -> [u8; 18] {
    let mut bytes = [0; 18];
    bytes[..8].copy_from_slice(&wire::MAGIC.to_be_bytes());
    bytes[8..16].copy_from_slice(&wire::OPTION_MAGIC.to_be_bytes());
    bytes[16..].copy_from_slice(&(wire::FLAG_FIXED_NEWSTYLE | wire::FLAG_NO_ZEROES).to_be_bytes());
    bytes
}

/// The server's state in the handshake with one client.
#[derive(Clone, Debug)]
pub struct Handshake {
    /// The client's flags, once they have been received.
    client_flags: Option<u32>,
    structured: bool,
    /// The export for which the client selected `base:allocation`.
    allocation_of: Option<usize>,
    has_tls: bool,
    requires_tls: bool,
    is_secure: bool,
    /// Options received.
    options: u32,
}

/// A client that sends more options than this is disconnected.
const MAX_OPTIONS: u32 = 256;

/// Encodes the replies to one option.
struct OptionReplies<'a> {
    code: u32,
    output: &'a mut Vec<u8>,
}

impl OptionReplies<'_> {
    fn send(&mut self, kind: u32, data: &[u8]) {
        self.output.extend_from_slice(&wire::OPTION_REPLY_MAGIC.to_be_bytes());
        for word in [self.code, kind, data.len() as u32] {
            self.output.extend_from_slice(&word.to_be_bytes());
        }
        self.output.extend_from_slice(data);
    }

    fn info(&mut self, kind: u16, data: &[u8]) {
        self.send(reply::INFO, &[&kind.to_be_bytes(), data].concat());
    }
}

fn find(exports: &[Export], name: &[u8]) -> Option<usize> {
    exports.iter().position(|export| export.name.as_bytes() == name)
}

impl Handshake {
    /// A handshake that offers TLS if the server has a certificate, and may insist on it.
    pub fn new(has_tls: bool, requires_tls: bool) -> Self {
        Self {
            client_flags: None,
            structured: false,
            allocation_of: None,
            has_tls,
            requires_tls,
            is_secure: false,
            options: 0,
        }
    }

    /// TLS has been started. What was agreed on in plain text no longer counts.
    pub fn tls_started(&mut self) {
        self.is_secure = true;
        self.structured = false;
        self.allocation_of = None;
    }

    /// Takes messages from the front of `input` until one needs the caller, and appends the answers to `output`.
    ///
    /// # Errors
    /// The client does not speak the protocol; the connection is to be closed.
    pub fn step(
        &mut self,
        exports: &[Export],
        input: &mut Vec<u8>,
        output: &mut Vec<u8>,
    ) -> Result<Event, ProtocolError> {
        if self.client_flags.is_none() {
            let Some(flags) = Bytes(input).u32() else { return Ok(Event::NeedBytes) };
            if flags & !3 != 0 || flags & 1 == 0 {
                return Err(ProtocolError::ClientFlags { flags });
            }
            self.client_flags = Some(flags);
            input.drain(..4);
        }
        loop {
            let mut bytes = Bytes(input);
            let (Some(magic), Some(code), Some(len)) = (bytes.u64(), bytes.u32(), bytes.u32()) else {
                return Ok(Event::NeedBytes);
            };
            if magic != wire::OPTION_MAGIC {
                return Err(ProtocolError::OptionMagic { magic });
            }
            if len > MAX_OPTION_BYTES {
                return Err(ProtocolError::OptionTooLong { len_bytes: len });
            }
            let Some(data) = bytes.take(len as usize).map(<[u8]>::to_vec) else { return Ok(Event::NeedBytes) };
            input.drain(..16 + len as usize);
            self.options += 1;
            if self.options > MAX_OPTIONS {
                return Err(ProtocolError::TooManyOptions);
            }
            if let Some(event) = self.option(exports, &data, OptionReplies { code, output }) {
                return Ok(event);
            }
        }
    }

    /// Answers an option. Returns an event unless the next option follows.
    fn option(&mut self, exports: &[Export], data: &[u8], mut replies: OptionReplies<'_>) -> Option<Event> {
        let needs_tls = self.requires_tls && !self.is_secure;
        match replies.code {
            option::ABORT => {
                replies.send(reply::ACK, &[]);
                return Some(Event::Close);
            }
            option::STARTTLS => {
                if !data.is_empty() || self.is_secure {
                    replies.send(reply::ERR_INVALID, b"STARTTLS has no data, and can be sent only once");
                } else if !self.has_tls {
                    replies.send(reply::ERR_POLICY, b"this server has no certificate");
                } else {
                    replies.send(reply::ACK, &[]);
                    return Some(Event::StartTls);
                }
            }
            // The protocol has no error reply to this option.
            option::EXPORT_NAME if needs_tls => return Some(Event::Close),
            _ if needs_tls => replies.send(reply::ERR_TLS_REQD, b"this server requires TLS: send STARTTLS first"),
            option::EXPORT_NAME => return Some(self.export_name(exports, data, replies.output)),
            option::LIST if data.is_empty() => {
                for export in exports {
                    let mut bytes = (export.name.len() as u32).to_be_bytes().to_vec();
                    bytes.extend_from_slice(export.name.as_bytes());
                    bytes.extend_from_slice(export.description.as_bytes());
                    replies.send(reply::SERVER, &bytes);
                }
                replies.send(reply::ACK, &[]);
            }
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                replies.send(reply::ACK, &[]);
            }
            option::LIST | option::STRUCTURED_REPLY => replies.send(reply::ERR_INVALID, b"this option has no data"),
            option::INFO | option::GO => return self.info(exports, data, replies),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.contexts(exports, data, replies),
            _ => replies.send(reply::ERR_UNSUP, b"this server does not know the option"),
        }
        None
    }

    fn export_name(&self, exports: &[Export], name: &[u8], output: &mut Vec<u8>) -> Event {
        let Some(at) = find(exports, name) else { return Event::Close };
        output.extend_from_slice(&exports[at].size_bytes.to_be_bytes());
        output.extend_from_slice(&exports[at].flags(self.structured).to_be_bytes());
        if self.client_flags.is_some_and(|flags| flags & u32::from(wire::FLAG_NO_ZEROES) == 0) {
            output.extend_from_slice(&[0; 124]);
        }
        self.serve(at)
    }

    fn info(&self, exports: &[Export], data: &[u8], mut replies: OptionReplies<'_>) -> Option<Event> {
        let Some((name, wanted)) = info_request(data) else {
            replies.send(reply::ERR_INVALID, b"malformed request for information");
            return None;
        };
        let Some(at) = find(exports, name) else {
            replies.send(reply::ERR_UNKNOWN, b"no export has this name");
            return None;
        };
        let export = &exports[at];
        let size = export.size_bytes.to_be_bytes();
        replies.info(info::EXPORT, &[&size[..], &export.flags(self.structured).to_be_bytes()].concat());
        if wanted.contains(&info::NAME) {
            replies.info(info::NAME, export.name.as_bytes());
        }
        if wanted.contains(&info::DESCRIPTION) {
            replies.info(info::DESCRIPTION, export.description.as_bytes());
        }
        let sizes = [1, export.preferred_bytes, wire::MAX_PAYLOAD_BYTES];
        replies.info(info::BLOCK_SIZE, &sizes.map(u32::to_be_bytes).concat());
        replies.send(reply::ACK, &[]);
        (replies.code == option::GO).then(|| self.serve(at))
    }

    fn contexts(&mut self, exports: &[Export], data: &[u8], mut replies: OptionReplies<'_>) {
        let is_set = replies.code == option::SET_META_CONTEXT;
        let Some((name, queries)) = context_request(data) else {
            return replies.send(reply::ERR_INVALID, b"malformed request for metadata contexts");
        };
        if is_set && !self.structured {
            return replies.send(reply::ERR_INVALID, b"metadata contexts need structured replies");
        }
        let Some(at) = find(exports, name) else {
            return replies.send(reply::ERR_UNKNOWN, b"no export has this name");
        };
        let selects = |query: &&[u8]| *query == CONTEXT || !is_set && *query == b"base:";
        let is_selected = queries.iter().any(selects) || !is_set && queries.is_empty();
        if is_set {
            self.allocation_of = is_selected.then_some(at);
        }
        if is_selected {
            let id = if is_set { CONTEXT_ID } else { 0 };
            replies.send(reply::META_CONTEXT, &[&id.to_be_bytes()[..], CONTEXT].concat());
        }
        replies.send(reply::ACK, &[]);
    }

    fn serve(&self, export: usize) -> Event {
        let allocation = self.allocation_of == Some(export);
        Event::Serve(Session { export, structured: self.structured, allocation })
    }
}

/// The name of the export, and the kinds of information wanted.
fn info_request(data: &[u8]) -> Option<(&[u8], Vec<u16>)> {
    let mut bytes = Bytes(data);
    let len = bytes.u32()? as usize;
    let name = bytes.take(len).filter(|name| name.len() <= MAX_NAME_BYTES)?;
    let count = bytes.u16()?;
    let wanted: Option<Vec<_>> = (0..count).map(|_| bytes.u16()).collect();
    wanted.filter(|_| bytes.0.is_empty()).map(|wanted| (name, wanted))
}

/// The name of the export, and the queries.
fn context_request(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let mut bytes = Bytes(data);
    let len = bytes.u32()? as usize;
    let name = bytes.take(len).filter(|name| name.len() <= MAX_NAME_BYTES)?;
    let count = bytes.u32()?;
    if count as usize > data.len() / 4 {
        return None;
    }
    let queries: Option<Vec<_>> = (0..count)
        .map(|_| {
            let len = bytes.u32()? as usize;
            bytes.take(len)
        })
        .collect();
    queries.filter(|_| bytes.0.is_empty()).map(|queries| (name, queries))
}
