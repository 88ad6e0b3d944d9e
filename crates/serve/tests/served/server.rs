use crate::chip::Chip;
use crate::client::Client;
use margay_serve::{Limits, Listen, Offer, Options, Outcome, ServeError, serve_until};
use margay_volume::Volume;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::oneshot;

/// A server in a thread of this process.
pub struct Server {
    thread: JoinHandle<Result<Outcome, ServeError>>,
    stop: oneshot::Sender<()>,
    pub uri: String,
    pub path: PathBuf,
    _folder: Option<TempDir>,
}

pub fn offer(name: &str, volume: Volume) -> Offer {
    Offer { name: name.into(), description: format!("the disk '{name}'"), volume, record: None, cleans_idle: true }
}

pub fn options(listen: Listen) -> Options {
    Options { listen, tls: None, requires_tls: false, verify_clients: false, run: None, limits: patient() }
}

/// Limits by which nothing ends early on a busy machine.
pub fn patient() -> Limits {
    Limits { stop_timeout: Duration::from_secs(20), ..Limits::default() }
}

impl Server {
    /// Serves a freshly formatted chip on a Unix socket of its own.
    pub fn of(chip: &Chip) -> Self {
        Self::start(vec![offer("", chip.format())])
    }

    pub fn start(offers: Vec<Offer>) -> Self {
        Self::start_in_folder(offers, patient())
    }

    /// The same as [`Self::of`], with these limits.
    pub fn start_limited(chip: &Chip, limits: Limits) -> Self {
        Self::start_in_folder(vec![offer("", chip.format())], limits)
    }

    fn start_in_folder(offers: Vec<Offer>, limits: Limits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listen = Listen::Unix(folder.path().join("nbd.sock"));
        let mut server = Self::start_with(offers, Options { limits, ..options(listen) }).unwrap();
        server._folder = Some(folder);
        server
    }

    pub fn start_with(offers: Vec<Offer>, options: Options) -> Result<Self, ServeError> {
        let path = match &options.listen {
            Listen::Unix(path) => path.clone(),
            _ => PathBuf::new(),
        };
        let (stop, stopped) = oneshot::channel();
        let (ready, uri) = channel();
        let thread = std::thread::spawn(move || {
            let stopped = async {
                // A test that failed has dropped its end.
                let _ = stopped.await;
            };
            serve_until(offers, &options, stopped, |uri| ready.send(uri.to_owned()).unwrap())
        });
        match uri.recv_timeout(Duration::from_secs(20)) {
            Ok(uri) => Ok(Self { thread, stop, uri, path, _folder: None }),
            Err(RecvTimeoutError::Disconnected) => Err(thread.join().unwrap().expect_err("it was never ready")),
            Err(RecvTimeoutError::Timeout) => panic!("the server does not start"),
        }
    }

    /// A client that has passed the handshake of the default export.
    pub fn client(&self) -> Client<UnixStream> {
        let mut client = Client::connect(&self.path);
        client.go("").unwrap();
        client
    }

    /// Asks the server to stop, and returns what waits for its end.
    pub fn begin_stop(self) -> impl FnOnce() -> Result<Outcome, ServeError> {
        self.stop.send(()).unwrap();
        move || {
            let outcome = self.thread.join().unwrap();
            drop(self._folder);
            outcome
        }
    }

    pub fn stop(self) -> Outcome {
        self.begin_stop()().unwrap()
    }

    /// Waits for the server to end by itself.
    pub fn wait(self) -> Outcome {
        let outcome = self.thread.join().unwrap().unwrap();
        drop(self.stop);
        outcome
    }
}

pub fn exists(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}
