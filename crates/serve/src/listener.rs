//! The socket on which clients connect.

use crate::{Listen, ServeError, failed};
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A client that connected.
pub(crate) enum Connection {
    Tcp(TcpStream, String),
    Unix(UnixStream),
}

/// The file of a Unix socket that this server made. It is removed when this is dropped, unless another file has taken
/// its place.
pub(crate) struct SocketFile {
    path: PathBuf,
    id: (u64, u64),
}

/// Device and inode number of a file.
fn id(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if std::fs::symlink_metadata(&self.path).is_ok_and(|metadata| id(&metadata) == self.id)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!("the socket {} cannot be removed: {error}", self.path.display());
        }
    }
}

impl Listener {
    /// Starts to listen. Returns the file to be removed in the end, if one was made.
    pub async fn bind(listen: &Listen) -> Result<(Self, Option<SocketFile>), ServeError> {
        match listen {
            Listen::Tcp(address) => {
                let listener = TcpListener::bind(address).await.map_err(failed(format!("listening on {address}")))?;
                Ok((Self::Tcp(listener), None))
            }
            Listen::Unix(path) => {
                let listener = bind_unix(path).await?;
                let what = format!("listening on {}", path.display());
                let id = std::fs::symlink_metadata(path).map(|metadata| id(&metadata)).map_err(failed(what))?;
                Ok((Self::Unix(listener), Some(SocketFile { path: path.clone(), id })))
            }
            Listen::Systemd => Ok((Self::passed()?, None)),
        }
    }

    /// The socket that systemd passes.
    fn passed() -> Result<Self, ServeError> {
        let what = "the socket passed by systemd";
        let mut passed = listenfd::ListenFd::from_env();
        if let Ok(Some(listener)) = passed.take_unix_listener(0) {
            listener.set_nonblocking(true).map_err(failed(what))?;
            return UnixListener::from_std(listener).map(Self::Unix).map_err(failed(what));
        }
        match passed.take_tcp_listener(0) {
            Ok(Some(listener)) => {
                listener.set_nonblocking(true).map_err(failed(what))?;
                TcpListener::from_std(listener).map(Self::Tcp).map_err(failed(what))
            }
            _ => Err(ServeError::NoSocket),
        }
    }

    /// The URI of an export (NBD project, doc/uri.md).
    pub fn uri(&self, name: &str) -> String {
        match self {
            Self::Tcp(listener) => {
                let address = listener.local_addr().map_or_else(|_| "localhost".into(), |address| address.to_string());
                format!("nbd://{address}/{name}")
            }
            Self::Unix(listener) => {
                let path = listener.local_addr().ok().and_then(|a| a.as_pathname().map(|p| p.display().to_string()));
                format!("nbd+unix:///{name}?socket={}", path.unwrap_or_default())
            }
        }
    }

    /// Waits for the next client.
    pub async fn accept(&self) -> std::io::Result<Connection> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Connection::Tcp(stream, peer.to_string()))
            }
            Self::Unix(listener) => listener.accept().await.map(|(stream, _)| Connection::Unix(stream)),
        }
    }
}

/// Listens on a Unix socket. A socket that a dead server left behind is replaced; nothing else is touched.
async fn bind_unix(path: &Path) -> Result<UnixListener, ServeError> {
    let listening = || failed(format!("listening on {}", path.display()));
    match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {}
        bound => return bound.map_err(listening()),
    }
    let found = std::fs::symlink_metadata(path).map_err(listening())?;
    if !found.file_type().is_socket() {
        return Err(ServeError::NotASocket { path: path.into() });
    }
    // Nobody answers on the socket of a server that has ended; any other outcome means that it may be in use.
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
        _ => return Err(ServeError::InUse { path: path.into() }),
    }
    // Another server may have replaced it in the meantime.
    let still = std::fs::symlink_metadata(path).map_err(listening())?;
    if id(&still) != id(&found) {
        return Err(ServeError::InUse { path: path.into() });
    }
    std::fs::remove_file(path).map_err(listening())?;
    UnixListener::bind(path).map_err(listening())
}
