//! Syncs of a file, also in the background.

use std::fs::File;
use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

/// Syncs a file by a thread of its own, one sync at a time.
#[derive(Debug, Default)]
pub(super) struct Syncer {
    worker: Option<Worker>,
    is_under_way: bool,
}

#[derive(Debug)]
struct Worker {
    /// Each message is a sync. `None` once the thread is to end.
    requests: Option<Sender<()>>,
    results: Receiver<io::Result<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn start(file: &File) -> io::Result<Self> {
        // The same open file, so that an error of writing back is told once, to whoever syncs first.
        let file = file.try_clone()?;
        let (requests, incoming) = channel();
        let (outgoing, results) = channel();
        let work = move || {
            while let Ok(()) = incoming.recv() {
                if outgoing.send(file.sync_data()).is_err() {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name("sync".to_owned()).spawn(work)?;
        Ok(Self { requests: Some(requests), results, thread: Some(thread) })
    }
}

/// The file stays locked until the thread has closed it.
impl Drop for Worker {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Syncer {
    /// Begins a sync; none may be under way.
    pub fn begin(&mut self, file: &File) -> io::Result<()> {
        let worker = match &mut self.worker {
            Some(worker) => worker,
            none => none.insert(Worker::start(file)?),
        };
        let sent = worker.requests.as_ref().map(|requests| requests.send(()));
        if sent.is_none_or(|sent| sent.is_err()) {
            return Err(ended());
        }
        self.is_under_way = true;
        Ok(())
    }

    /// The result of the sync that was begun, if it has ended or is waited for. `None` if it has not.
    pub fn end(&mut self, wait: bool) -> Option<io::Result<()>> {
        let Some(worker) = self.worker.as_ref().filter(|_| self.is_under_way) else { return Some(Ok(())) };
        let result = match worker.results.try_recv() {
            Err(TryRecvError::Empty) if wait => worker.results.recv().unwrap_or_else(|_| Err(ended())),
            Err(TryRecvError::Empty) => return None,
            Ok(result) => result,
            Err(TryRecvError::Disconnected) => Err(ended()),
        };
        self.is_under_way = false;
        Some(result)
    }
}

/// Only after a panic, which syncs do not cause.
fn ended() -> io::Error {
    io::Error::other("the thread that syncs the image has ended")
}
