use crate::TraceError;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
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

const BUFFER_BYTES: usize = 1 << 17;

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

/// A stream of the uncompressed bytes of a file, and how it is compressed.
pub(crate) type Opened = (Box<dyn BufRead + Send>, Compression);

/// Opens a file, or the standard input for `-`, as a stream of its uncompressed bytes.
pub(crate) fn open_stream(path: &Path) -> Result<Opened, TraceError> {
    let io = |error| TraceError::io(&path.display().to_string(), error);
    uncompressed(open_source(path).map_err(io)?).map_err(io)
}

/// As [`open_stream`], and hashes the file's bytes as they are read.
pub(crate) fn open_hashed(path: &Path) -> Result<(Opened, Hashed), TraceError> {
    let io = |error| TraceError::io(&path.display().to_string(), error);
    let hashed = Hashed::new(open_source(path).map_err(io)?);
    Ok((uncompressed(Box::new(hashed.clone())).map_err(io)?, hashed))
}

fn uncompressed(source: Source) -> io::Result<Opened> {
    let mut raw = BufReader::with_capacity(BUFFER_BYTES, source);
    let magic = peek(&mut raw)?;
    let buffered = |reader: Box<dyn Read + Send>| Box::new(BufReader::with_capacity(BUFFER_BYTES, reader));
    Ok(match magic {
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

/// The next six bytes without consuming them, with zeros if there are fewer.
fn peek(reader: &mut impl BufRead) -> io::Result<[u8; 6]> {
    let mut magic = [0; 6];
    let seen = reader.fill_buf()?;
    let len = seen.len().min(6);
    magic[..len].copy_from_slice(&seen[..len]);
    Ok(magic)
}

/// The 64-bit xxh3 hash of a file's bytes as they are stored, compressed or not.
pub fn hash_file(path: &Path) -> Result<u64, TraceError> {
    let io = |error| TraceError::io(&path.display().to_string(), error);
    Hashed::new(Box::new(File::open(path).map_err(io)?)).finish().map_err(io)
}
