//! The NBD server: sockets, TLS, limits and a thread for each volume. The protocol itself is in `margay_nbd`.

mod connection;
mod engine;
mod tls;

use connection::Shared;
use engine::Engine;
pub use engine::Stopped;
use margay_nbd::Export;
use margay_trace::TraceWriter;
use margay_volume::{Volume, VolumeError};
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// A volume under a name.
#[derive(Debug)]
pub struct Offer {
    /// Name of the export; the default one has the empty name.
    pub name: String,
    /// What it is, for people.
    pub description: String,
    /// The volume.
    pub volume: Volume,
    /// Where its requests are recorded.
    pub record: Option<TraceWriter>,
}

/// Where clients come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A TCP address, `host:port`.
    Tcp(String),
    /// A Unix socket; removed when the server ends.
    Unix(PathBuf),
    /// The socket that systemd passes.
    Systemd,
}

/// How the server runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where clients come in.
    pub listen: Listen,
    /// Folder with server-cert.pem, server-key.pem and perhaps ca-cert.pem.
    pub tls: Option<PathBuf>,
    /// Refuse clients that do not start TLS.
    pub requires_tls: bool,
    /// Ask clients for a certificate of ca-cert.pem.
    pub verify_clients: bool,
    /// Most connections at once.
    pub most_connections: usize,
    /// Most requests of a connection that wait for an answer.
    pub most_requests: usize,
    /// A shell command to run; the server ends with it.
    pub run: Option<String>,
}

/// Why the server could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A socket failed.
    #[error("{what}: {error}")]
    Socket {
        /// Which.
        what: String,
        /// How.
        error: std::io::Error,
    },
    /// Nothing was passed by systemd.
    #[error("systemd passed no socket: start this by a .socket unit, or use --listen or --unix")]
    NoSocket,
    /// A certificate or key cannot be used.
    #[error("{file}: {error}")]
    Tls {
        /// The file.
        file: String,
        /// Why.
        error: String,
    },
    /// A volume failed.
    #[error("{0}")]
    Volume(#[from] VolumeError),
}

fn socket(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> ServeError {
    let what = what.into();
    |error| ServeError::Socket { what, error }
}

/// How it ended.
#[derive(Debug)]
pub struct Outcome {
    /// Each volume, in order.
    pub stopped: Vec<Stopped>,
    /// How the command of `run` ended.
    pub command: Option<ExitStatus>,
}

/// Serves volumes until a signal (SIGINT, SIGTERM, SIGHUP) comes or the command ends, then stops them cleanly.
/// `ready` is called with the URI of the first export once clients can connect.
pub fn serve(offers: Vec<Offer>, options: &Options, ready: impl FnOnce(&str)) -> Result<Outcome, ServeError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(socket("starting the server"))?;
    let tls = options.tls.as_deref().map(|folder| tls::acceptor(folder, options.verify_clients)).transpose()?;
    let (mut exports, mut engines) = (Vec::new(), Vec::new());
    for Offer { name, description, volume, record } in offers {
        exports.push(Export {
            name: name.clone(),
            description,
            size_bytes: volume.capacity_bytes(),
            preferred_bytes: volume.page_bytes().next_power_of_two().clamp(512, 32 << 20),
            read_only: volume.is_read_only(),
        });
        engines.push(Engine::start(&name, volume, record).map_err(socket("starting a thread"))?);
    }
    let (stop, stopping) = watch::channel(false);
    let shared = Arc::new(Shared {
        exports,
        engines: engines.iter().map(|engine| engine.jobs.clone()).collect(),
        tls,
        requires_tls: options.requires_tls,
        most_requests: options.most_requests,
        stopping,
    });
    let command = runtime.block_on(accept(shared, options, &stop, ready));
    drop(runtime);
    let stopped: Result<Vec<_>, _> = engines.into_iter().map(Engine::stop).collect();
    if let Listen::Unix(path) = &options.listen {
        // It may be gone already.
        let _ = std::fs::remove_file(path);
    }
    Ok(Outcome { stopped: stopped?, command: command? })
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    async fn bind(listen: &Listen) -> Result<Self, ServeError> {
        match listen {
            Listen::Tcp(address) => {
                TcpListener::bind(address).await.map(Self::Tcp).map_err(socket(format!("listening on {address}")))
            }
            Listen::Unix(path) => UnixListener::bind(path)
                .map(Self::Unix)
                .map_err(socket(format!("listening on {} (a socket left behind can be removed)", path.display()))),
            Listen::Systemd => Self::passed(),
        }
    }

    fn passed() -> Result<Self, ServeError> {
        let mut passed = listenfd::ListenFd::from_env();
        if let Ok(Some(listener)) = passed.take_unix_listener(0) {
            listener.set_nonblocking(true).map_err(socket("the socket of systemd"))?;
            return UnixListener::from_std(listener).map(Self::Unix).map_err(socket("the socket of systemd"));
        }
        match passed.take_tcp_listener(0) {
            Ok(Some(listener)) => {
                listener.set_nonblocking(true).map_err(socket("the socket of systemd"))?;
                TcpListener::from_std(listener).map(Self::Tcp).map_err(socket("the socket of systemd"))
            }
            _ => Err(ServeError::NoSocket),
        }
    }

    /// URI of an export by the URI text of the NBD project.
    fn uri(&self, name: &str) -> String {
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
}

async fn accept(
    shared: Arc<Shared>,
    options: &Options,
    stop: &watch::Sender<bool>,
    ready: impl FnOnce(&str),
) -> Result<Option<ExitStatus>, ServeError> {
    let listener = Listener::bind(&options.listen).await?;
    let uri = listener.uri(shared.exports.first().map_or("", |export| &export.name));
    let signals = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
    let [mut interrupt, mut terminate, mut hangup] =
        signals.map(|signal| signal.map_err(socket("waiting for signals")));
    ready(&uri);
    // Without systemd there is nobody to tell.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    let mut command = match &options.run {
        Some(command) => Some(spawn(command, &uri, options).map_err(socket(format!("running '{command}'")))?),
        None => None,
    };
    let places = Arc::new(Semaphore::new(options.most_connections));
    let mut connections = JoinSet::new();
    let received = async |signal: &mut Result<tokio::signal::unix::Signal, ServeError>| {
        if let Ok(signal) = signal { signal.recv().await } else { std::future::pending().await }
    };
    let status = loop {
        let ended = async {
            match &mut command {
                Some(child) => child.wait().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // A client that is one too many waits for a place before it is greeted.
            result = one_more(&listener, &shared, &places, &mut connections) => {
                if let Err(error) = result {
                    tracing::warn!("accepting a client: {error}");
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            }
            status = ended => break Some(status.map_err(socket("waiting for the command"))?),
            _ = received(&mut interrupt) => break None,
            _ = received(&mut terminate) => break None,
            _ = received(&mut hangup) => break None,
        }
    };
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    stop.send_replace(true);
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(std::time::Duration::from_secs(10), all).await.is_err() {
        tracing::warn!("some clients did not take their replies in time");
    }
    Ok(status)
}

async fn one_more(
    listener: &Listener,
    shared: &Arc<Shared>,
    places: &Arc<Semaphore>,
    connections: &mut JoinSet<()>,
) -> std::io::Result<()> {
    while connections.try_join_next().is_some() {}
    let Ok(place) = places.clone().acquire_owned().await else { return Ok(()) };
    fn start<S>(
        stream: S,
        peer: String,
        shared: &Arc<Shared>,
        place: tokio::sync::OwnedSemaphorePermit,
        to: &mut JoinSet<()>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let shared = shared.clone();
        to.spawn(async move {
            tracing::info!("{peer} connected");
            match connection::serve(stream, shared).await {
                Ok(()) => tracing::info!("{peer} disconnected"),
                Err(error) => tracing::warn!("{peer}: {error}"),
            }
            drop(place);
        });
    }
    match listener {
        Listener::Tcp(listener) => {
            let (stream, peer) = listener.accept().await?;
            stream.set_nodelay(true)?;
            start(stream, peer.to_string(), shared, place, connections);
        }
        Listener::Unix(listener) => {
            let (stream, _) = listener.accept().await?;
            start(stream, "a local client".into(), shared, place, connections);
        }
    }
    Ok(())
}

fn spawn(command: &str, uri: &str, options: &Options) -> std::io::Result<tokio::process::Child> {
    let mut shell = tokio::process::Command::new("sh");
    shell.arg("-c").arg(command).env("uri", uri).kill_on_drop(true);
    if let Listen::Unix(path) = &options.listen {
        shell.env("unixsocket", path);
    }
    shell.spawn()
}
