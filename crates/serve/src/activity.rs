//! Whether connections make progress, and which one is to make room for a client that waits.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A connection that has made no progress for this long may have to make room for another client.
const STALLED_AFTER: Duration = Duration::from_secs(1);

/// What a connection is in the middle of, one number for receiving and one for sending: since when it has waited for its
/// client, in microseconds since the server started, plus one; 0 while it does not wait, or may wait for ever.
#[derive(Debug)]
pub(crate) struct Activity {
    started: Instant,
    waits: [AtomicU64; 2],
    evicted: Notify,
}

/// For what a connection waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    /// For the rest of a handshake or of a request.
    Receiving,
    /// For its client to take a reply.
    Sending,
}

/// While it exists, its connection waits for its client.
pub(crate) struct Waiting<'a>(&'a AtomicU64);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl Activity {
    /// Notes that the connection waits for its client from now on, until it makes progress.
    pub fn wait(&self, wait: Wait) -> Waiting<'_> {
        let slot = &self.waits[wait as usize];
        slot.store(self.started.elapsed().as_micros() as u64 + 1, Ordering::Relaxed);
        Waiting(slot)
    }

    /// Since when it has waited, if it does.
    fn since(&self) -> Option<u64> {
        self.waits.iter().map(|slot| slot.load(Ordering::Relaxed)).filter(|since| *since > 0).min()
    }

    /// Ready when the connection is to make room.
    pub async fn evicted(&self) -> io::Error {
        self.evicted.notified().await;
        io::Error::new(io::ErrorKind::TimedOut, "it made no progress, and its place was needed for another client")
    }
}

/// All connections.
#[derive(Debug)]
pub(crate) struct Activities {
    started: Instant,
    all: Mutex<Vec<Weak<Activity>>>,
}

impl Activities {
    pub fn new() -> Self {
        Self { started: Instant::now(), all: Mutex::default() }
    }

    /// That of a new connection.
    pub fn start(&self) -> Arc<Activity> {
        let activity = Activity { started: self.started, waits: Default::default(), evicted: Notify::new() };
        let activity = Arc::new(activity);
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|activity| activity.strong_count() > 0);
        all.push(Arc::downgrade(&activity));
        activity
    }

    /// Tells the connection that has waited for its client for longest to make room, if that is long enough.
    pub fn evict(&self) {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let stalled = all.iter().filter_map(Weak::upgrade).filter_map(|one| Some((one.since()?, one)));
        if let Some((since, longest)) = stalled.min_by_key(|(since, _)| *since)
            && self.started.elapsed().saturating_sub(Duration::from_micros(since)) >= STALLED_AFTER
        {
            longest.evicted.notify_one();
        }
    }
}
