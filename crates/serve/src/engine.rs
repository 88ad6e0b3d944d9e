//! A thread for each volume: it carries out requests in the order in which they come, and cleans when there are none.

use crate::queue::{QueueReceiver, QueueSender, Received, queue};
use margay_log::Hint;
use margay_nbd::{Errno, Export, Extent, Replies, Request, RequestKind};
use margay_trace::{Kind, Request as TraceRequest, TraceWriter};
use margay_volume::{Volume, VolumeError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedSender;

/// A reply for a client.
#[derive(Debug)]
pub(crate) struct Reply {
    pub bytes: Vec<u8>,
    /// Held until the reply has been sent: the place of its request among the unanswered ones of the connection.
    pub unanswered: Option<OwnedSemaphorePermit>,
}

/// A request with what is needed to reply to it.
#[derive(Debug)]
pub(crate) struct Job {
    pub request: Request,
    pub replies: Replies,
    pub reply_to: UnboundedSender<Reply>,
    pub unanswered: OwnedSemaphorePermit,
}

/// What a volume did until it was stopped.
#[derive(Debug)]
pub struct Stopped {
    /// Whether there was room for a checkpoint, which makes the next opening fast.
    pub with_checkpoint: bool,
    /// Pages written by clients.
    pub host_writes: u64,
    /// Write amplification; `None` if nothing was written.
    pub write_amplification: Option<f64>,
    /// Requests recorded in the trace.
    pub recorded: u64,
}

/// The thread of a volume, and the queue that leads to it.
pub(crate) struct Engine {
    pub jobs: QueueSender<Job>,
    thread: JoinHandle<Result<Stopped, VolumeError>>,
}

/// Requests of all clients that can wait for a volume.
const MAX_WAITING: usize = 256;
/// A volume that gets no request for this long cleans in advance.
const IDLE_AFTER: Duration = Duration::from_millis(5);
/// The maximum number of extents in a reply to a block status request.
const MAX_EXTENTS: usize = 4096;

impl Engine {
    pub fn start(export: Export, volume: Volume, record: Option<TraceWriter>) -> std::io::Result<Self> {
        let (jobs, inbox) = queue(MAX_WAITING);
        let name = format!("volume {}", export.name);
        let worker = Worker { export, volume, record, recorded: 0, started: Instant::now(), buffer: Vec::new() };
        let thread = std::thread::Builder::new().name(name).spawn(|| worker.run(inbox))?;
        Ok(Self { jobs, thread })
    }

    /// Stops the volume cleanly after the requests in the queue.
    pub fn stop(self) -> Result<Stopped, VolumeError> {
        self.jobs.stop();
        match self.thread.join() {
            Ok(stopped) => stopped,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

struct Worker {
    export: Export,
    volume: Volume,
    record: Option<TraceWriter>,
    recorded: u64,
    started: Instant,
    /// The bytes of the latest read.
    buffer: Vec<u8>,
}

impl Worker {
    fn run(mut self, inbox: QueueReceiver<Job>) -> Result<Stopped, VolumeError> {
        let mut has_work = true;
        loop {
            match inbox.receive(has_work.then_some(IDLE_AFTER)) {
                Received::Request(job) => {
                    has_work = true;
                    self.serve(job);
                }
                Received::Nothing => {
                    has_work = self.volume.idle().unwrap_or_else(|error| {
                        tracing::warn!("cleaning while idle failed: {error}");
                        false
                    });
                }
                Received::Stop => break,
            }
        }
        // Requests that still wait for a place get none.
        drop(inbox);
        if let Some(record) = self.record.take()
            && let Err(error) = record.finish()
        {
            tracing::error!("the recorded trace could not be completed: {error}");
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
                tracing::error!("requests are no longer recorded: {error}");
                self.record = None;
            }
        }
    }

    fn serve(&mut self, job: Job) {
        let Job { request, replies, reply_to, unanswered } = job;
        let mut bytes = Vec::new();
        match request.check(&self.export) {
            Err(refusal) => replies.error(request.cookie, refusal.errno, &refusal.message, &mut bytes),
            Ok(()) => {
                self.record(&request);
                if let Err(error) = self.carry_out(&request, replies, &mut bytes) {
                    let errno = errno_of(&error);
                    if errno == Errno::Io {
                        tracing::error!("{error}");
                    }
                    bytes.clear();
                    replies.error(request.cookie, errno, &error.to_string(), &mut bytes);
                }
            }
        }
        // A client that has disconnected gets no reply.
        let _ = reply_to.send(Reply { bytes, unanswered: Some(unanswered) });
    }

    /// Carries out a request that was checked, and appends its reply.
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
                let extents = self.runs(offset, len, if *one { 1 } else { MAX_EXTENTS });
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
            // Nothing is cached. A disconnect has no reply, and what is bad was refused: neither comes here.
            RequestKind::Cache | RequestKind::Disconnect | RequestKind::Bad(_) => {}
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

    /// Runs of data and holes from the start of a range, in turn; at most `max` of them.
    fn runs(&self, offset: u64, len: u64, max: usize) -> Vec<Extent> {
        let (mut at, end, mut runs) = (offset, offset + len, Vec::new());
        while at < end && runs.len() < max {
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
        _ => Errno::Io,
    }
}
