//! The NBD server: sockets, TLS, limits, and a thread for each volume. The protocol itself is in `margay_nbd`.

mod accept;
mod activity;
mod connection;
mod engine;
mod limits;
mod listener;
mod memory;
mod queue;
mod recording;
mod sender;
mod tls;
mod transmission;

use connection::{Shared, Stopping};
use engine::Engine;
pub use engine::Stopped;
pub use limits::Limits;
use margay_nbd::Export;
use margay_volume::{Volume, VolumeError};
pub use recording::Recording;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use tokio::sync::watch;

/// A volume that is to be served under a name.
#[derive(Debug)]
pub struct Offer {
    /// Name of the export; the default one has the empty name.
    pub name: String,
    /// A description for people.
    pub description: String,
    /// The volume.
    pub volume: Volume,
    /// The recording of what is done with it, if there is one.
    pub record: Option<Recording>,
    /// Whether it cleans in advance while no client wants anything.
    pub cleans_idle: bool,
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
    /// Refuses clients without a certificate signed by ca-cert.pem, and so those that do not start TLS.
    pub verify_clients: bool,
    /// What clients may take.
    pub limits: Limits,
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
    /// Something else than a server has locked the folder of the Unix socket.
    #[error("the folder of {} is locked by another program: end that program, or choose another path", path.display())]
    FolderLocked {
        /// The path of the socket.
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
    /// The memory allowed is too little for the connections allowed.
    #[error(
        "{allowed_bytes} bytes of memory are too little for {connections} connections, which need {needed_bytes}: allow more memory, or fewer connections"
    )]
    TooLittleMemory {
        /// What is allowed.
        allowed_bytes: usize,
        /// What is needed at least.
        needed_bytes: usize,
        /// For so many connections.
        connections: usize,
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
    // One for each volume may wait for the host's disk.
    let threads = 2 + offers.len();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let runtime = runtime.map_err(failed("starting the server"))?;
    let limits = &options.limits;
    let memory = limits.memory()?;
    let tls = options.tls.as_deref().map(|folder| tls::acceptor(folder, options.verify_clients)).transpose()?;
    let (mut exports, mut engines) = (Vec::new(), Vec::new());
    for Offer { name, description, volume, record, cleans_idle } in offers {
        let export = Export {
            name,
            description,
            size_bytes: volume.capacity_bytes(),
            preferred_bytes: volume.page_bytes().next_power_of_two().clamp(512, 32 << 20),
            // Whole pages are trimmed; of others the rest has to be read and written.
            fast_zero_bytes: volume.page_bytes(),
            read_only: volume.is_read_only(),
        };
        engines.push(
            Engine::start(export.clone(), volume, record, cleans_idle, runtime.handle().clone())
                .map_err(failed("starting a thread"))?,
        );
        exports.push(export);
    }
    let (stopping, is_stopping) = watch::channel(None);
    let shared = Arc::new(Shared {
        exports,
        queues: engines.iter().map(|engine| engine.jobs.clone()).collect(),
        workers: engines.iter().map(|engine| engine.worker.clone()).collect(),
        tls,
        requires_tls: options.requires_tls || options.verify_clients,
        limits: limits.clone(),
        memory,
        stopping: Stopping(is_stopping),
    });
    let ended = runtime.block_on(accept::accept(shared, options, &stopping, stop, ready));
    // What is left of connections ends here, without waiting for it.
    runtime.shutdown_background();
    let stopped: Result<Vec<_>, _> = engines.into_iter().map(Engine::stop).collect();
    let stopped = stopped?;
    // The socket file was kept until now, when the volumes are stopped.
    let (command, _socket_file) = ended?;
    Ok(Outcome { stopped, command })
}
