//! Accepting clients: who gets a place, and the end of the server.

use crate::activity::Activities;
use crate::connection::{self, Shared};
use crate::listener::{Connection, Listener, SocketFile};
use crate::{Listen, Options, ServeError, failed};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

/// After an error in accepting a client (too many open files, for instance) the server waits this long.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// So often the server looks for a connection that can make room for a client that waits.
const EVICT_RETRY: Duration = Duration::from_millis(50);

/// Accepts clients until the server has to end, then waits for the replies that are due, but not for long.
pub(crate) async fn accept(
    shared: Arc<Shared>,
    options: &Options,
    stopping: &watch::Sender<Option<Instant>>,
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
    let places = Places { free: Arc::new(Semaphore::new(options.limits.max_connections)), all: Activities::new() };
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
                Ok((connection, place)) => start(connection, place, &places.all, &shared, &mut connections),
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
    let (now, stop_timeout) = (Instant::now(), options.limits.stop_timeout);
    for queue in &shared.queues {
        queue.be_late_from(now + stop_timeout / 2);
    }
    stopping.send_replace(Some(now));
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout_at((now + stop_timeout).into(), all).await.is_err() {
        tracing::warn!("some clients did not take their replies in time");
    }
    Ok((status, socket_file))
}

/// Places for connections.
struct Places {
    free: Arc<Semaphore>,
    all: Activities,
}

/// Waits for a client, then for a place for it: a client too many is not greeted until another one leaves, or is found to be
/// stuck.
async fn next_client(listener: &Listener, places: &Places) -> std::io::Result<(Connection, OwnedSemaphorePermit)> {
    let client = listener.accept().await?;
    loop {
        match tokio::time::timeout(EVICT_RETRY, places.free.clone().acquire_owned()).await {
            Ok(place) => return Ok((client, place.map_err(std::io::Error::other)?)),
            Err(_) => places.all.evict(),
        }
    }
}

fn start(
    connection: Connection,
    place: OwnedSemaphorePermit,
    activities: &Activities,
    shared: &Arc<Shared>,
    connections: &mut JoinSet<()>,
) {
    let (shared, activity) = (shared.clone(), activities.start());
    connections.spawn(async move {
        let peer = match &connection {
            Connection::Tcp(_, peer) => peer.clone(),
            Connection::Unix(_) => "a local client".into(),
        };
        tracing::info!("{peer} connected");
        let ended = match connection {
            Connection::Tcp(stream, _) => connection::serve(stream, shared, activity).await,
            Connection::Unix(stream) => connection::serve(stream, shared, activity).await,
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
