use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISC: u16 = 2;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const CACHE: u16 = 5;
pub const WRITE_ZEROES: u16 = 6;
pub const BLOCK_STATUS: u16 = 7;

pub const FUA: u16 = 1;
pub const NO_HOLE: u16 = 1 << 1;
pub const FAST_ZERO: u16 = 1 << 4;

pub const EPERM: u32 = 1;
pub const EIO: u32 = 5;
pub const EINVAL: u32 = 22;
pub const ENOSPC: u32 = 28;
pub const ENOTSUP: u32 = 95;
pub const ESHUTDOWN: u32 = 108;

pub const OPT_EXPORT_NAME: u32 = 1;
pub const OPT_ABORT: u32 = 2;
pub const OPT_LIST: u32 = 3;
pub const OPT_STARTTLS: u32 = 5;
pub const OPT_INFO: u32 = 6;
pub const OPT_GO: u32 = 7;
pub const OPT_STRUCTURED_REPLY: u32 = 8;
pub const OPT_SET_META_CONTEXT: u32 = 10;

pub const REP_ACK: u32 = 1;
pub const REP_SERVER: u32 = 2;
pub const REP_ERR_UNSUP: u32 = (1 << 31) + 1;
pub const REP_ERR_POLICY: u32 = (1 << 31) + 2;
pub const REP_ERR_UNKNOWN: u32 = (1 << 31) + 6;

/// A client that trusts nothing: what is not as the protocol says fails the test.
pub struct Client<S> {
    pub stream: S,
    cookie: u64,
}

/// A part of a structured reply.
#[derive(Debug, PartialEq, Eq)]
pub struct Chunk {
    pub is_last: bool,
    pub kind: u16,
    pub cookie: u64,
    pub payload: Vec<u8>,
}

pub fn export_option(name: &str, rest: &[u8]) -> Vec<u8> {
    [&(name.len() as u32).to_be_bytes(), name.as_bytes(), rest].concat()
}

/// A header, to be followed by the data of a write.
pub fn header(command: u16, flags: u16, cookie: u64, offset: u64, len_bytes: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
    bytes.extend_from_slice(&flags.to_be_bytes());
    bytes.extend_from_slice(&command.to_be_bytes());
    bytes.extend_from_slice(&cookie.to_be_bytes());
    bytes.extend_from_slice(&offset.to_be_bytes());
    bytes.extend_from_slice(&len_bytes.to_be_bytes());
    bytes
}

impl Client<UnixStream> {
    pub fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self::greet(stream, 3)
    }
}

impl<S: Read + Write> Client<S> {
    /// Takes the greeting and sends the client's flags.
    pub fn greet(mut stream: S, flags: u32) -> Self {
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting[..], b"NBDMAGICIHAVEOPT\x00\x03");
        stream.write_all(&flags.to_be_bytes()).unwrap();
        Self { stream, cookie: 0 }
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.bytes(2).try_into().unwrap())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.bytes(4).try_into().unwrap())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.bytes(8).try_into().unwrap())
    }

    /// Nothing more comes: the server has closed the connection.
    pub fn is_closed(&mut self) -> bool {
        !matches!(self.stream.read(&mut [0]), Ok(1))
    }

    pub fn send_option(&mut self, code: u32, data: &[u8]) {
        let head = [&b"IHAVEOPT"[..], &code.to_be_bytes(), &(data.len() as u32).to_be_bytes()].concat();
        self.stream.write_all(&[&head, data].concat()).unwrap();
    }

    /// Sends an option and takes its replies: type and data of each, an acknowledgment or error at the end.
    pub fn option(&mut self, code: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.send_option(code, data);
        let mut replies = Vec::new();
        loop {
            assert_eq!((self.u64(), self.u32()), (0x0003_e889_0455_65a9, code));
            let (kind, len) = (self.u32(), self.u32() as usize);
            let data = self.bytes(len);
            replies.push((kind, data));
            if kind == REP_ACK || kind >> 31 == 1 {
                return replies;
            }
        }
    }

    /// Chooses an export: its size and flags, or the error.
    pub fn go(&mut self, name: &str) -> Result<(u64, u16), u32> {
        let replies = self.option(OPT_GO, &export_option(name, &[0, 0]));
        match replies.last() {
            Some((REP_ACK, _)) => {
                let info = &replies.iter().find(|(_, data)| data[..2] == [0, 0]).unwrap().1;
                Ok((u64::from_be_bytes(info[2..10].try_into().unwrap()), u16::from_be_bytes([info[10], info[11]])))
            }
            other => Err(other.unwrap().0),
        }
    }

    /// Sends a request; returns its cookie.
    pub fn send(&mut self, command: u16, flags: u16, offset: u64, len_bytes: u32, data: &[u8]) -> u64 {
        self.cookie += 1;
        self.stream.write_all(&header(command, flags, self.cookie, offset, len_bytes)).unwrap();
        self.stream.write_all(data).unwrap();
        self.cookie
    }

    /// Takes the head of a simple reply: cookie and error.
    pub fn reply(&mut self) -> (u64, u32) {
        assert_eq!(self.u32(), 0x6744_6698);
        let error = self.u32();
        (self.u64(), error)
    }

    pub fn chunk(&mut self) -> Chunk {
        assert_eq!(self.u32(), 0x668e_33ef);
        let (flags, kind, cookie, len) = (self.u16(), self.u16(), self.u64(), self.u32() as usize);
        Chunk { is_last: flags & 1 == 1, kind, cookie, payload: self.bytes(len) }
    }

    /// A request with a reply that has no data.
    pub fn call(&mut self, command: u16, flags: u16, offset: u64, len_bytes: u32) -> Result<(), u32> {
        let data = if command == WRITE { vec![0xEE; len_bytes as usize] } else { Vec::new() };
        let cookie = self.send(command, flags, offset, len_bytes, &data);
        self.finish(cookie)
    }

    pub fn write(&mut self, flags: u16, offset: u64, data: &[u8]) -> Result<(), u32> {
        let cookie = self.send(WRITE, flags, offset, data.len() as u32, data);
        self.finish(cookie)
    }

    pub fn read(&mut self, offset: u64, len_bytes: u32) -> Result<Vec<u8>, u32> {
        let cookie = self.send(READ, 0, offset, len_bytes, &[]);
        self.finish(cookie).map(|()| self.bytes(len_bytes as usize))
    }

    /// Any command, with data of its own; whether it succeeded.
    pub fn call_any(&mut self, command: u16, offset: u64, len_bytes: u32) -> bool {
        match command {
            READ => self.read(offset, len_bytes).is_ok(),
            _ => self.call(command, 0, offset, len_bytes).is_ok(),
        }
    }

    fn finish(&mut self, cookie: u64) -> Result<(), u32> {
        let (replied, error) = self.reply();
        assert_eq!(replied, cookie);
        if error == 0 { Ok(()) } else { Err(error) }
    }
}
