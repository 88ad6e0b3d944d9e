use crate::TraceError;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

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

/// Opens a file, or the standard input for `-`, as a stream of its uncompressed bytes.
pub(crate) fn open_stream(path: &Path) -> Result<(Box<dyn BufRead + Send>, Compression), TraceError> {
    let name = path.display().to_string();
    let io = |error| TraceError::io(&name, error);
    let raw: Box<dyn Read + Send> =
        if path == Path::new("-") { Box::new(io::stdin()) } else { Box::new(File::open(path).map_err(io)?) };
    let mut raw = BufReader::with_capacity(BUFFER_BYTES, raw);
    let magic = peek(&mut raw).map_err(io)?;
    let buffered = |reader: Box<dyn Read + Send>| Box::new(BufReader::with_capacity(BUFFER_BYTES, reader));
    Ok(match magic {
        [0x1f, 0x8b, ..] => (buffered(Box::new(flate2::bufread::MultiGzDecoder::new(raw))), Compression::Gzip),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let decoder = zstd::stream::read::Decoder::with_buffer(raw).map_err(io)?;
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
    let mut file = File::open(path).map_err(io)?;
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match file.read(&mut buffer).map_err(io)? {
            0 => return Ok(hash.digest()),
            n => hash.update(&buffer[..n]),
        }
    }
}
