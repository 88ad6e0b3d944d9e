//! The socket on which clients connect.

use crate::{Listen, ServeError, failed};
use socket2::{SockRef, TcpKeepalive};
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
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
    /// Keeps the number of the inode from being given to another file.
    _inode: File,
}

/// Opens a file for its identity alone, which is all that can be opened of a socket (O_PATH of Linux).
const PATH_ONLY: i32 = 0o10_000_000;
/// Making and removing a socket takes milliseconds; a folder that is locked for longer is locked by something else.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// A server that ends does not wait for long.
const UNLINK_TIMEOUT: Duration = Duration::from_millis(200);
const LOCK_RETRY: Duration = Duration::from_millis(5);

/// Device and inode number of a file.
fn id(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let started = Instant::now();
        let _lock = loop {
            match try_lock(&self.path) {
                // A server that is being started may be replacing the socket: it is left to that one.
                Err(TryLockError::WouldBlock) if started.elapsed() > UNLINK_TIMEOUT => return,
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_RETRY),
                lock => break lock,
            }
        };
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
                let what = || failed(format!("listening on {}", path.display()));
                let _lock = lock(path).await?;
                let listener = bind_unix(path).await?;
                let inode = OpenOptions::new().read(true).custom_flags(PATH_ONLY).open(path).map_err(what())?;
                let id = inode.metadata().map(|metadata| id(&metadata)).map_err(what())?;
                Ok((Self::Unix(listener), Some(SocketFile { path: path.clone(), id, _inode: inode })))
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
                SockRef::from(&stream).set_tcp_keepalive(&KEEPALIVE)?;
                Ok(Connection::Tcp(stream, peer.to_string()))
            }
            Self::Unix(listener) => listener.accept().await.map(|(stream, _)| Connection::Unix(stream)),
        }
    }
}

/// A client whose machine is gone without a word is noticed: after a minute of silence, and four probes, 15 seconds apart.
const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(60)).with_interval(Duration::from_secs(15)).with_retries(4);

/// Locks the folder of a socket, if it can be: while one server looks whether a socket is in use, and replaces it, no other
/// one may do the same, or listen on it. The lock ends with the file.
fn try_lock(path: &Path) -> Result<File, TryLockError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = File::open(folder).map_err(TryLockError::Error)?;
    folder.try_lock()?;
    Ok(folder)
}

/// The same, waiting for a server that has the lock. `None` where folders cannot be locked.
async fn lock(path: &Path) -> Result<Option<File>, ServeError> {
    let started = Instant::now();
    loop {
        match try_lock(path) {
            Ok(lock) => return Ok(Some(lock)),
            // What is wrong with the folder is found when the socket is made.
            Err(TryLockError::Error(_)) => return Ok(None),
            Err(TryLockError::WouldBlock) if started.elapsed() > LOCK_TIMEOUT => {
                return Err(ServeError::FolderLocked { path: path.into() });
            }
            Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_RETRY).await,
        }
    }
}

/// Listens on a Unix socket, whose folder is locked. A socket that a dead server left behind is replaced; nothing else is
/// touched.
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
    std::fs::remove_file(path).map_err(listening())?;
    UnixListener::bind(path).map_err(listening())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Barrier};

    #[test]
    fn of_servers_that_find_the_socket_of_a_dead_one_at_the_same_time_one_gets_it() {
        const SERVERS: usize = 4;
        let folder = tempfile::tempdir().unwrap();
        for round in 0..200 {
            let path = folder.path().join(format!("{round}.sock"));
            drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
            let together = Arc::new(Barrier::new(SERVERS));
            let start = || {
                let (path, together) = (path.clone(), together.clone());
                std::thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                    together.wait();
                    let bound = runtime.block_on(Listener::bind(&Listen::Unix(path.clone())));
                    // All have tried before the first one ends.
                    together.wait();
                    match bound {
                        Ok(bound) => {
                            let is_ours = std::os::unix::net::UnixStream::connect(&path).is_ok();
                            drop(bound);
                            Some(is_ours)
                        }
                        Err(ServeError::InUse { .. }) => None,
                        Err(error) => panic!("{error}"),
                    }
                })
            };
            let started = [(); SERVERS].map(|()| start());
            let got: Vec<bool> = started.into_iter().filter_map(|thread| thread.join().unwrap()).collect();
            assert_eq!(got, [true], "round {round}: servers that have the socket, and whether it is there");
            assert!(!path.exists(), "round {round}");
        }
    }
}
