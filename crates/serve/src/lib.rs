//! The NBD server: sockets, TLS, limits, and a thread for each volume. The protocol itself is in `margay_nbd`.

mod connection;
mod engine;
mod listener;
mod queue;
mod tls;

use connection::Shared;
use engine::Engine;
pub use engine::Stopped;
use listener::{Connection, Listener, SocketFile};
use margay_nbd::Export;
use margay_trace::TraceWriter;
use margay_volume::{Volume, VolumeError};
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

/// A volume that is to be served under a name.
#[derive(Debug)]
pub struct Offer {
    /// Name of the export; the default one has the empty name.
    pub name: String,
    /// A description for people.
    pub description: String,
    /// The volume.
    pub volume: Volume,
    /// The trace in which its requests are recorded, if any.
    pub record: Option<TraceWriter>,
}

/// Where clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A TCP address, `host:port`.
    Tcp(String),
    /// The path of a Unix socket. It is made by the server and removed when the server ends.
    Unix(PathBuf),
    /// The socket that systemd passes.
    Systemd,
}

/// How the server runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where clients connect.
    pub listen: Listen,
    /// Offers TLS, with server-cert.pem, server-key.pem and perhaps ca-cert.pem of this folder.
    pub tls: Option<PathBuf>,
    /// Refuses clients that do not start TLS.
    pub requires_tls: bool,
    /// Asks clients for a certificate signed by ca-cert.pem.
    pub verify_clients: bool,
    /// The maximum number of connections at once; further clients wait for one to end.
    pub max_connections: usize,
    /// The maximum number of unanswered requests of a connection; further ones are not read from its socket.
    pub max_requests: usize,
    /// A shell command to run; the server ends with it.
    pub run: Option<String>,
}

/// Why the server could not start or continue.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A socket, or something else of the operating system, failed.
    #[error("{what}: {error}")]
    Socket {
        /// What was attempted.
        what: String,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// The path for the Unix socket is that of another kind of file.
    #[error("{} exists and is not a socket: choose another path for the socket, or move that file away", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The path for the Unix socket is that of a socket in use.
    #[error("{} is the socket of a server that is running: stop that server, or choose another path", path.display())]
    InUse {
        /// The path.
        path: PathBuf,
    },
    /// Nothing was passed by systemd.
    #[error("systemd passed no socket: start this by a .socket unit, or use --listen or --unix")]
    NoSocket,
    /// A certificate or key cannot be used.
    #[error("{file}: {error}")]
    Tls {
        /// The file.
        file: String,
        /// Why it cannot be used.
        error: String,
    },
    /// A volume failed.
    #[error("{0}")]
    Volume(#[from] VolumeError),
}

fn failed(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> ServeError {
    let what = what.into();
    |error| ServeError::Socket { what, error }
}

/// How the server ended.
#[derive(Debug)]
pub struct Outcome {
    /// What each volume did, in the order of the offers.
    pub stopped: Vec<Stopped>,
    /// How the command of [`Options::run`] ended; `None` if a signal came first.
    pub command: Option<ExitStatus>,
}

/// When the server stops, connections get this long to send the replies that are due.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// After an error in accepting a client (too many open files, for instance) the server waits this long.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Serves volumes until a signal (SIGINT, SIGTERM, SIGHUP) comes or the command ends, then stops them cleanly.
/// `ready` is called with the URI of the first export when clients can connect.
///
/// # Errors
/// The server could not start, or a volume could not be stopped cleanly.
pub fn serve(offers: Vec<Offer>, options: &Options, ready: impl FnOnce(&str)) -> Result<Outcome, ServeError> {
    serve_until(offers, options, std::future::pending(), ready)
}

/// Serves volumes as [`serve`] does, and stops them when the future `stop` is ready, too.
///
/// # Errors
/// The server could not start, or a volume could not be stopped cleanly.
pub fn serve_until(
    offers: Vec<Offer>,
    options: &Options,
    stop: impl Future<Output = ()>,
    ready: impl FnOnce(&str),
) -> Result<Outcome, ServeError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(failed("starting the server"))?;
    let tls = options.tls.as_deref().map(|folder| tls::acceptor(folder, options.verify_clients)).transpose()?;
    let (mut exports, mut engines) = (Vec::new(), Vec::new());
    for Offer { name, description, volume, record } in offers {
        let export = Export {
            name,
            description,
            size_bytes: volume.capacity_bytes(),
            preferred_bytes: volume.page_bytes().next_power_of_two().clamp(512, 32 << 20),
            // Whole pages are trimmed; of others the rest has to be read and written.
            fast_zero_bytes: volume.page_bytes(),
            read_only: volume.is_read_only(),
        };
        engines.push(Engine::start(export.clone(), volume, record).map_err(failed("starting a thread"))?);
        exports.push(export);
    }
    let (stopping, is_stopping) = watch::channel(false);
    let shared = Arc::new(Shared {
        exports,
        queues: engines.iter().map(|engine| engine.jobs.clone()).collect(),
        tls,
        requires_tls: options.requires_tls,
        max_requests: options.max_requests,
        stopping: is_stopping,
    });
    let ended = runtime.block_on(accept(shared, options, &stopping, stop, ready));
    drop(runtime);
    let stopped: Result<Vec<_>, _> = engines.into_iter().map(Engine::stop).collect();
    let stopped = stopped?;
    // The socket file was kept until now, when the volumes are stopped.
    let (command, _socket_file) = ended?;
    Ok(Outcome { stopped, command })
}

/// Accepts clients until the server has to end, then waits for the replies that are due.
async fn accept(
    shared: Arc<Shared>,
    options: &Options,
    stopping: &watch::Sender<bool>,
    stop: impl Future<Output = ()>,
    ready: impl FnOnce(&str),
) -> Result<(Option<ExitStatus>, Option<SocketFile>), ServeError> {
    let (listener, socket_file) = Listener::bind(&options.listen).await?;
    let uri = listener.uri(shared.exports.first().map_or("", |export| &export.name));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed("waiting for SIGINT"))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed("waiting for SIGTERM"))?;
    let mut hangup = signal(SignalKind::hangup()).map_err(failed("waiting for SIGHUP"))?;
    ready(&uri);
    // Fails only where no systemd waits for it.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    let mut command = match &options.run {
        Some(command) => Some(spawn(command, &uri, options).map_err(failed(format!("running '{command}'")))?),
        None => None,
    };
    let places = Arc::new(Semaphore::new(options.max_connections));
    let mut connections = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    let received = async |signal: &mut Signal| signal.recv().await.is_some();
    let status = loop {
        let ended = async {
            match &mut command {
                Some(child) => child.wait().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = next_client(&listener, &places) => match accepted {
                Ok((connection, place)) => start(connection, place, &shared, &mut connections),
                Err(error) => {
                    tracing::warn!("accepting a client: {error}");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            },
            status = ended => break Some(status.map_err(failed("waiting for the command"))?),
            true = received(&mut interrupt) => break None,
            true = received(&mut terminate) => break None,
            true = received(&mut hangup) => break None,
            () = &mut stop => break None,
        }
        while connections.try_join_next().is_some() {}
    };
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    stopping.send_replace(true);
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(STOP_TIMEOUT, all).await.is_err() {
        tracing::warn!("some clients did not take their replies in time");
    }
    Ok((status, socket_file))
}

/// Waits for a client, once a place is free for it: a client too many is not greeted until another one leaves.
async fn next_client(
    listener: &Listener,
    places: &Arc<Semaphore>,
) -> std::io::Result<(Connection, OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await.map_err(std::io::Error::other)?;
    Ok((listener.accept().await?, place))
}

fn start(connection: Connection, place: OwnedSemaphorePermit, shared: &Arc<Shared>, connections: &mut JoinSet<()>) {
    let shared = shared.clone();
    connections.spawn(async move {
        let peer = match &connection {
            Connection::Tcp(_, peer) => peer.clone(),
            Connection::Unix(_) => "a local client".into(),
        };
        tracing::info!("{peer} connected");
        let ended = match connection {
            Connection::Tcp(stream, _) => connection::serve(stream, shared).await,
            Connection::Unix(stream) => connection::serve(stream, shared).await,
        };
        match ended {
            Ok(()) => tracing::info!("{peer} disconnected"),
            Err(error) => tracing::warn!("{peer}: {error}"),
        }
        drop(place);
    });
}

fn spawn(command: &str, uri: &str, options: &Options) -> std::io::Result<tokio::process::Child> {
    let mut shell = tokio::process::Command::new("sh");
    shell.arg("-c").arg(command).env("uri", uri).kill_on_drop(true);
    if let Listen::Unix(path) = &options.listen {
        shell.env("unixsocket", path);
    }
    shell.spawn()
}
