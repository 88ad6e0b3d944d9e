use crate::TraceError;
use crate::lines::MAX_LINE_BYTES;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use xxhash_rust::xxh3::Xxh3;

/// How a file is compressed, recognized by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Compression {
    Plain,
    Gzip,
    Zstd,
    Xz,
}

impl Compression {
    /// The error for a stream that cannot be read any further.
    pub(crate) fn error(self, path: &str, requests: u64, error: io::Error) -> TraceError {
        match self {
            Self::Plain => TraceError::io(path, error),
            _ => TraceError::Compressed { path: path.into(), requests, error },
        }
    }
}

const BUFFER_BYTES: usize = 1 << 17;
/// Bytes by which a compressed file is recognized.
const MAGIC_BYTES: u64 = 6;
/// Bytes from which the format is detected. A line of the longest length fits.
const HEAD_BYTES: u64 = MAX_LINE_BYTES as u64 + 1;
const UTF8_MARK: &[u8] = b"\xEF\xBB\xBF";

type Source = Box<dyn Read + Send>;

/// A file as it is stored. It is hashed while it is read, by way of any of its clones.
#[derive(Clone)]
pub(crate) struct Hashed(Arc<Mutex<(Source, Xxh3)>>);

impl Hashed {
    fn new(source: Source) -> Self {
        Self(Arc::new(Mutex::new((source, Xxh3::new()))))
    }

    /// Reads the rest, if there is any, and returns the xxh3 of all of it.
    pub fn finish(&mut self) -> io::Result<u64> {
        io::copy(self, &mut io::sink())?;
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).1.digest())
    }
}

impl Read for Hashed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (source, hash) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let len = source.read(buffer)?;
        hash.update(&buffer[..len]);
        Ok(len)
    }
}

fn open_source(path: &Path) -> io::Result<Source> {
    Ok(if path == Path::new("-") { Box::new(io::stdin()) } else { Box::new(File::open(path)?) })
}

/// A file that is read as long as somebody wants it.
struct While<F> {
    source: Source,
    keep_on: F,
}

impl<F: Fn() -> bool> Read for While<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !(self.keep_on)() {
            return Err(io::Error::other("reading was stopped by request"));
        }
        self.source.read(buffer)
    }
}

/// A stream of uncompressed bytes.
pub(crate) type Stream = Box<dyn BufRead + Send>;

fn uncompressed(mut source: Source) -> io::Result<(Stream, Compression)> {
    let magic = head_of(&mut source, MAGIC_BYTES)?;
    let raw = BufReader::with_capacity(BUFFER_BYTES, Cursor::new(magic.clone()).chain(source));
    let buffered = |reader: Box<dyn Read + Send>| Box::new(BufReader::with_capacity(BUFFER_BYTES, reader));
    Ok(match magic[..] {
        [0x1f, 0x8b, ..] => (buffered(Box::new(flate2::bufread::MultiGzDecoder::new(raw))), Compression::Gzip),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let decoder = zstd::stream::read::Decoder::with_buffer(raw)?;
            (buffered(Box::new(decoder)), Compression::Zstd)
        }
        [0xfd, b'7', b'z', b'X', b'Z', 0] => {
            (buffered(Box::new(liblzma::bufread::XzDecoder::new_multi_decoder(raw))), Compression::Xz)
        }
        _ => (Box::new(raw), Compression::Plain),
    })
}

/// The first bytes of a stream, however small the parts are in which it arrives; fewer if it ends before.
fn head_of(stream: &mut impl Read, bytes: u64) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    stream.take(bytes).read_to_end(&mut head)?;
    Ok(head)
}

/// A trace whose format is not known yet. It is opened once: the standard input cannot be read twice.
pub(crate) struct Input {
    /// The name that stands in errors.
    pub path: String,
    /// Its first bytes, uncompressed.
    pub head: Vec<u8>,
    /// What is behind them.
    rest: Stream,
    pub compression: Compression,
    /// The file, if there is one, to be hashed.
    pub file: Option<Hashed>,
}

impl Input {
    /// Opens a file, or the standard input for `-`, and reads its head.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let source = open_source(path).map_err(|error| TraceError::io(&path.display().to_string(), error))?;
        Self::of_source(path, source)
    }

    /// The same, of which every read fails once `keep_on` says no.
    pub fn open_while(path: &Path, keep_on: impl Fn() -> bool + Send + 'static) -> Result<Self, TraceError> {
        let source = open_source(path).map_err(|error| TraceError::io(&path.display().to_string(), error))?;
        Self::of_source(path, Box::new(While { source, keep_on }))
    }

    fn of_source(path: &Path, source: Source) -> Result<Self, TraceError> {
        let name = path.display().to_string();
        let io = |error| TraceError::io(&name, error);
        let file = Hashed::new(source);
        let (stream, compression) = uncompressed(Box::new(file.clone())).map_err(io)?;
        Self::new(name, stream, compression, Some(file))
    }

    /// A stream of uncompressed bytes.
    pub fn of_stream(name: &str, stream: impl BufRead + Send + 'static) -> Result<Self, TraceError> {
        Self::new(name.into(), Box::new(stream), Compression::Plain, None)
    }

    fn new(path: String, mut rest: Stream, compression: Compression, file: Option<Hashed>) -> Result<Self, TraceError> {
        let mut head = head_of(&mut rest, HEAD_BYTES).map_err(|error| compression.error(&path, 0, error))?;
        // A text of Windows may start with a mark that says that it is UTF-8.
        if head.starts_with(UTF8_MARK) && !head.contains(&0) {
            head.drain(..UTF8_MARK.len());
        }
        Ok(Self { path, head, rest, compression, file })
    }

    /// Whether the head is all that there is.
    pub fn is_whole(&self) -> bool {
        (self.head.len() as u64) < HEAD_BYTES - UTF8_MARK.len() as u64
    }

    /// The error for a stream that cannot be read.
    pub fn error(&self, error: io::Error) -> TraceError {
        self.compression.error(&self.path, 0, error)
    }

    /// All bytes from the first on.
    pub fn take_stream(&mut self) -> Stream {
        let rest = std::mem::replace(&mut self.rest, Box::new(io::empty()));
        Box::new(Cursor::new(std::mem::take(&mut self.head)).chain(rest))
    }
}

/// The 64-bit xxh3 hash of a file's bytes as they are stored, compressed or not.
pub fn hash_file(path: &Path) -> Result<u64, TraceError> {
    let io = |error| TraceError::io(&path.display().to_string(), error);
    Hashed::new(Box::new(File::open(path).map_err(io)?)).finish().map_err(io)
}
