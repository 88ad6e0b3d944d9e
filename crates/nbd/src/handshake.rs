use crate::request::ProtocolError;
use crate::wire::{self, Bytes, MAX_NAME, MAX_OPTION, info, option, reply, transmission};

/// What a server offers under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its name; the default export has the empty one.
    pub name: String,
    /// What it is, for people.
    pub description: String,
    /// Its size.
    pub size_bytes: u64,
    /// Size of requests that cost least.
    pub preferred_bytes: u32,
    /// It cannot be written.
    pub read_only: bool,
}

impl Export {
    /// All connections see each other's writes, and a flush on one is a flush of all: several may be used.
    fn flags(&self) -> u16 {
        use transmission::*;
        let always = HAS_FLAGS | SEND_FLUSH | SEND_FUA | SEND_DF | CAN_MULTI_CONN | SEND_CACHE;
        always | if self.read_only { READ_ONLY } else { SEND_TRIM | SEND_WRITE_ZEROES | SEND_FAST_ZERO }
    }
}

/// What was agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// The export, by its place in the list.
    pub export: usize,
    /// Replies are structured.
    pub structured: bool,
    /// The client asked for `base:allocation`.
    pub allocation: bool,
}

/// What the caller has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Read more bytes from the client.
    NeedBytes,
    /// Send what is in the output, then start TLS, then go on.
    StartTls,
    /// Send what is in the output, then close.
    Close,
    /// Send what is in the output; what follows are requests.
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

/// A negotiation.
#[derive(Clone, Debug)]
pub struct Handshake {
    /// Flags of the client, once they came.
    client_flags: Option<u32>,
    structured: bool,
    /// The export for which `base:allocation` was asked.
    allocation_of: Option<usize>,
    has_tls: bool,
    requires_tls: bool,
    is_secure: bool,
    options: u32,
}

/// A client with more options than this is not one.
const MOST_OPTIONS: u32 = 256;

impl Handshake {
    /// A negotiation that can start TLS, or insists on it.
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

    /// TLS has been started. What was agreed on before does not count.
    pub fn tls_started(&mut self) {
        self.is_secure = true;
        self.structured = false;
        self.allocation_of = None;
    }

    /// Takes the next message from `input`, if it is there, and puts the answer into `output`.
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
            if len > MAX_OPTION {
                return Err(ProtocolError::OptionTooLong { len_bytes: len });
            }
            let Some(data) = bytes.take(len as usize).map(<[u8]>::to_vec) else { return Ok(Event::NeedBytes) };
            input.drain(..16 + len as usize);
            self.options += 1;
            if self.options > MOST_OPTIONS {
                return Err(ProtocolError::TooManyOptions);
            }
            if let Some(event) = self.option(exports, code, &data, output) {
                return Ok(event);
            }
        }
    }

    /// Answers an option; an event if negotiation does not simply go on.
    fn option(&mut self, exports: &[Export], code: u32, data: &[u8], output: &mut Vec<u8>) -> Option<Event> {
        let mut answer = |kind: u32, data: &[u8]| {
            output.extend_from_slice(&wire::OPTION_REPLY_MAGIC.to_be_bytes());
            for word in [code, kind, data.len() as u32] {
                output.extend_from_slice(&word.to_be_bytes());
            }
            output.extend_from_slice(data);
        };
        let locked = self.requires_tls && !self.is_secure;
        match code {
            option::ABORT => {
                answer(reply::ACK, &[]);
                return Some(Event::Close);
            }
            option::STARTTLS => {
                if !data.is_empty() || self.is_secure {
                    answer(reply::ERR_INVALID, b"STARTTLS has no data, and comes once");
                } else if !self.has_tls {
                    answer(reply::ERR_POLICY, b"this server has no certificate");
                } else {
                    answer(reply::ACK, &[]);
                    return Some(Event::StartTls);
                }
            }
            // There is no way to refuse this one but to hang up.
            option::EXPORT_NAME if locked => return Some(Event::Close),
            _ if locked => answer(reply::ERR_TLS_REQD, b"start TLS first"),
            option::EXPORT_NAME => {
                let found = exports.iter().position(|export| export.name.as_bytes() == data);
                let Some(export) = found else { return Some(Event::Close) };
                output.extend_from_slice(&exports[export].size_bytes.to_be_bytes());
                output.extend_from_slice(&exports[export].flags().to_be_bytes());
                if self.client_flags.is_some_and(|flags| flags & u32::from(wire::FLAG_NO_ZEROES) == 0) {
                    output.extend_from_slice(&[0; 124]);
                }
                return Some(self.serve(export));
            }
            option::LIST if data.is_empty() => {
                for export in exports {
                    let mut bytes = (export.name.len() as u32).to_be_bytes().to_vec();
                    bytes.extend_from_slice(export.name.as_bytes());
                    bytes.extend_from_slice(export.description.as_bytes());
                    answer(reply::SERVER, &bytes);
                }
                answer(reply::ACK, &[]);
            }
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                answer(reply::ACK, &[]);
            }
            option::LIST | option::STRUCTURED_REPLY => answer(reply::ERR_INVALID, b"this option has no data"),
            option::INFO | option::GO => {
                let Some((name, wanted)) = info_request(data) else {
                    answer(reply::ERR_INVALID, b"malformed request for information");
                    return None;
                };
                let Some(at) = exports.iter().position(|export| export.name.as_bytes() == name) else {
                    answer(reply::ERR_UNKNOWN, b"no export of this name");
                    return None;
                };
                let export = &exports[at];
                let mut piece = |kind: u16, data: &[u8]| {
                    answer(reply::INFO, &[&kind.to_be_bytes(), data].concat());
                };
                let size = [&export.size_bytes.to_be_bytes()[..], &export.flags().to_be_bytes()].concat();
                piece(info::EXPORT, &size);
                if wanted.contains(&info::NAME) {
                    piece(info::NAME, export.name.as_bytes());
                }
                if wanted.contains(&info::DESCRIPTION) {
                    piece(info::DESCRIPTION, export.description.as_bytes());
                }
                let sizes = [1, export.preferred_bytes, wire::MAX_PAYLOAD];
                piece(info::BLOCK_SIZE, &sizes.map(u32::to_be_bytes).concat());
                answer(reply::ACK, &[]);
                if code == option::GO {
                    return Some(self.serve(at));
                }
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                let is_set = code == option::SET_META_CONTEXT;
                let Some((name, queries)) = context_request(data) else {
                    answer(reply::ERR_INVALID, b"malformed request for contexts");
                    return None;
                };
                if is_set && !self.structured {
                    answer(reply::ERR_INVALID, b"contexts need structured replies");
                    return None;
                }
                let Some(at) = exports.iter().position(|export| export.name.as_bytes() == name) else {
                    answer(reply::ERR_UNKNOWN, b"no export of this name");
                    return None;
                };
                let asks = |query: &&[u8]| *query == CONTEXT || !is_set && *query == b"base:";
                let selected = queries.iter().any(asks) || !is_set && queries.is_empty();
                if is_set {
                    self.allocation_of = selected.then_some(at);
                }
                if selected {
                    let id = if is_set { CONTEXT_ID } else { 0 };
                    answer(reply::META_CONTEXT, &[&id.to_be_bytes()[..], CONTEXT].concat());
                }
                answer(reply::ACK, &[]);
            }
            _ => answer(reply::ERR_UNSUP, b"unknown option"),
        }
        None
    }

    fn serve(&self, export: usize) -> Event {
        let allocation = self.allocation_of == Some(export);
        Event::Serve(Session { export, structured: self.structured, allocation })
    }
}

const CONTEXT: &[u8] = b"base:allocation";
/// The id under which the context is reported.
pub(crate) const CONTEXT_ID: u32 = 1;

/// Name and wanted pieces of information.
fn info_request(data: &[u8]) -> Option<(&[u8], Vec<u16>)> {
    let mut bytes = Bytes(data);
    let len = bytes.u32()? as usize;
    let name = bytes.take(len).filter(|name| name.len() <= MAX_NAME)?;
    let count = bytes.u16()?;
    let wanted: Option<Vec<_>> = (0..count).map(|_| bytes.u16()).collect();
    wanted.filter(|_| bytes.0.is_empty()).map(|wanted| (name, wanted))
}

/// Name and queries.
fn context_request(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let mut bytes = Bytes(data);
    let len = bytes.u32()? as usize;
    let name = bytes.take(len).filter(|name| name.len() <= MAX_NAME)?;
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
