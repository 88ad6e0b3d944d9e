//! A thread for each volume: takes requests in the order in which they come, and cleans when there are none.

use margay_log::Hint;
use margay_nbd::{Errno, Extent, Replies, Request, RequestKind};
use margay_trace::{Kind, Request as TraceRequest, TraceWriter};
use margay_volume::{Volume, VolumeError};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedSender;

/// A request with where its reply goes.
pub(crate) struct Job {
    pub request: Request,
    pub replies: Replies,
    pub to: UnboundedSender<(Vec<u8>, OwnedSemaphorePermit)>,
    pub permit: OwnedSemaphorePermit,
}

pub(crate) enum Message {
    Job(Box<Job>),
    Stop,
}

/// What is left when a volume was stopped.
#[derive(Debug)]
pub struct Stopped {
    /// Whether there was room for a checkpoint.
    pub with_checkpoint: bool,
    /// Pages that the host wrote.
    pub host_writes: u64,
    /// Write amplification, if anything was written.
    pub write_amplification: Option<f64>,
    /// Requests recorded.
    pub recorded: u64,
}

pub(crate) struct Engine {
    pub jobs: SyncSender<Message>,
    thread: JoinHandle<Result<Stopped, VolumeError>>,
}

/// Requests that may wait for a volume.
const QUEUE: usize = 256;
/// Without requests for so long, it is idle.
const IDLE_AFTER: Duration = Duration::from_millis(5);

impl Engine {
    pub fn start(name: &str, volume: Volume, record: Option<TraceWriter>) -> std::io::Result<Self> {
        let (jobs, inbox) = sync_channel(QUEUE);
        let worker = Worker { volume, record, recorded: 0, started: Instant::now(), buffer: Vec::new() };
        let thread = std::thread::Builder::new().name(format!("volume {name}")).spawn(|| worker.run(inbox))?;
        Ok(Self { jobs, thread })
    }

    /// Stops the volume cleanly after the requests that wait.
    pub fn stop(self) -> Result<Stopped, VolumeError> {
        // The thread is gone only if it panicked, which joining tells.
        let _ = self.jobs.send(Message::Stop);
        match self.thread.join() {
            Ok(stopped) => stopped,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

struct Worker {
    volume: Volume,
    record: Option<TraceWriter>,
    recorded: u64,
    started: Instant,
    buffer: Vec<u8>,
}

impl Worker {
    fn run(mut self, inbox: Receiver<Message>) -> Result<Stopped, VolumeError> {
        let mut has_work = true;
        loop {
            let message = if has_work {
                inbox.recv_timeout(IDLE_AFTER)
            } else {
                inbox.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            match message {
                Ok(Message::Job(job)) => {
                    has_work = true;
                    self.serve(*job);
                }
                Err(RecvTimeoutError::Timeout) => {
                    has_work = self.volume.idle().unwrap_or_else(|error| {
                        tracing::warn!("cleaning in idle time: {error}");
                        false
                    });
                }
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if let Some(record) = self.record.take()
            && let Err(error) = record.finish()
        {
            tracing::error!("the recorded trace could not be finished: {error}");
        }
        let status = self.volume.status();
        let (host_writes, write_amplification) = (status.counters.host_writes, status.counters.write_amplification());
        let with_checkpoint = self.volume.stop()?;
        Ok(Stopped { with_checkpoint, host_writes, write_amplification, recorded: self.recorded })
    }

    fn record(&mut self, request: &Request) {
        let Some(record) = &mut self.record else { return };
        let kind = match request.kind {
            RequestKind::Read { .. } => Kind::Read,
            RequestKind::Write { .. } => Kind::Write,
            RequestKind::Trim { .. } | RequestKind::WriteZeroes { .. } => Kind::Trim,
            RequestKind::Flush => Kind::Flush,
            _ => return,
        };
        let len_bytes = if kind == Kind::Flush { 0 } else { u64::from(request.len_bytes) };
        let time_us = self.started.elapsed().as_micros() as u64;
        let line = TraceRequest { time_us, kind, device: 0, offset_bytes: request.offset, len_bytes };
        match record.write(&line) {
            Ok(()) => self.recorded += 1,
            Err(error) => {
                tracing::error!("recording stops: {error}");
                self.record = None;
            }
        }
    }

    fn serve(&mut self, job: Job) {
        let Job { request, replies, to, permit } = job;
        self.record(&request);
        let mut output = Vec::new();
        if let Err(error) = self.carry_out(&request, replies, &mut output) {
            output.clear();
            let errno = errno_of(&error);
            if errno == Errno::Io {
                tracing::error!("{error}");
            }
            replies.error(request.cookie, errno, &error.to_string(), &mut output);
        }
        // A client that went away needs no reply.
        let _ = to.send((output, permit));
    }

    fn carry_out(&mut self, request: &Request, replies: Replies, output: &mut Vec<u8>) -> Result<(), VolumeError> {
        let Request { cookie, offset, len_bytes, ref kind } = *request;
        let len = u64::from(len_bytes);
        match kind {
            RequestKind::Read { dont_fragment } => {
                self.buffer.resize(len_bytes as usize, 0);
                self.volume.read(offset, &mut self.buffer)?;
                let runs = self.runs(offset, len, usize::MAX);
                replies.read(cookie, offset, &self.buffer, &runs, *dont_fragment, output);
                return Ok(());
            }
            RequestKind::BlockStatus { one } => {
                if offset.checked_add(len).is_none_or(|end| end > self.volume.capacity_bytes()) {
                    self.volume.read(offset, &mut [0])?;
                    let end = offset.saturating_add(len);
                    let capacity_bytes = self.volume.capacity_bytes();
                    return Err(VolumeError::PastEnd { offset, end, capacity_bytes });
                }
                let extents = self.runs(offset, len, if *one { 1 } else { 4096 });
                replies.block_status(cookie, &extents, output);
                return Ok(());
            }
            RequestKind::Write { data, fua } => {
                self.volume.write(offset, data, Hint::None)?;
                self.flush_if(*fua)?;
            }
            RequestKind::Trim { fua } => {
                self.volume.trim(offset, len, false)?;
                self.flush_if(*fua)?;
            }
            RequestKind::WriteZeroes { fua, no_hole, .. } => {
                if *no_hole {
                    self.write_zeros(offset, len)?;
                } else {
                    self.volume.trim(offset, len, true)?;
                }
                self.flush_if(*fua)?;
            }
            RequestKind::Flush => self.volume.flush()?,
            RequestKind::Cache => {
                // Pages are not cached; asking for bytes that are not there is an error all the same.
                self.volume.read(offset.saturating_add(len).max(1) - 1, &mut [0])?;
            }
            RequestKind::Bad(errno, text) => {
                replies.error(cookie, *errno, text, output);
                return Ok(());
            }
            RequestKind::Disconnect => return Ok(()),
        }
        replies.done(cookie, output);
        Ok(())
    }

    fn flush_if(&mut self, fua: bool) -> Result<(), VolumeError> {
        if fua { self.volume.flush() } else { Ok(()) }
    }

    fn write_zeros(&mut self, offset: u64, len: u64) -> Result<(), VolumeError> {
        const PIECE: u64 = 1 << 20;
        let zeros = vec![0; PIECE.min(len) as usize];
        let mut at = offset;
        while at < offset + len {
            let piece = PIECE.min(offset + len - at);
            self.volume.write(at, &zeros[..piece as usize], Hint::None)?;
            at += piece;
        }
        Ok(())
    }

    /// Runs of data and holes, neighbours different.
    fn runs(&self, offset: u64, len: u64, most: usize) -> Vec<Extent> {
        let (mut at, end, mut runs) = (offset, offset + len, Vec::new());
        while at < end && runs.len() < most {
            let (is_mapped, next) = self.volume.extent(at, end);
            runs.push(Extent { len_bytes: (next - at) as u32, is_hole: !is_mapped });
            at = next;
        }
        runs
    }
}

fn errno_of(error: &VolumeError) -> Errno {
    match error {
        error if error.is_read_only() => Errno::Perm,
        error if error.is_no_space() => Errno::NoSpace,
        VolumeError::PastEnd { .. } => Errno::Inval,
        _ => Errno::Io,
    }
}
