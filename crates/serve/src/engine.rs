//! A thread for each volume. The connections take turns: a request of one, or a piece of it if it is long. When there is
//! nothing to do, it cleans. What is done without a pause is a batch: its pages reach the device together, and the replies are
//! sent when they have.

use crate::memory::{Held, REQUEST_OVERHEAD_BYTES};
use crate::queue::{Inbox, Queue, Received, queue};
use crate::recording::{Recording, totals};
use margay_log::Hint;
use margay_nbd::{Errno, Export, Extent, Refusal, Replies};
use margay_trace::{Event, IoKind, Request as TraceRequest, Totals, TraceError};
use margay_volume::{Volume, VolumeError};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedSender;

/// What is sent to a client.
#[derive(Debug)]
pub(crate) enum Reply {
    /// A reply, or a part of one.
    Bytes {
        bytes: Vec<u8>,
        /// The memory of the bytes.
        held: Held,
        /// Held until the reply has been sent: the place of its request among the unanswered ones of the connection.
        unanswered: Option<OwnedSemaphorePermit>,
    },
    /// A reply that has been begun cannot be completed, and has no place for an error: the connection is to be closed.
    Broken(String),
}

/// The client of a connection, as the thread of its volume sees it.
#[derive(Debug)]
pub(crate) struct Client {
    pub replies: Replies,
    pub reply_to: UnboundedSender<Reply>,
    /// Why the request in progress failed: the rest of it is not carried out.
    failure: Mutex<Option<Refusal>>,
}

impl Client {
    pub fn new(replies: Replies, reply_to: UnboundedSender<Reply>) -> Arc<Self> {
        Arc::new(Self { replies, reply_to, failure: Mutex::new(None) })
    }

    fn fail(&self, failure: Refusal) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
    }

    fn has_failed(&self) -> bool {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn take_failure(&self) -> Option<Refusal> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Sends bytes to a client; one that has disconnected gets none.
    pub fn send(&self, bytes: Vec<u8>, held: Held, unanswered: Option<OwnedSemaphorePermit>) {
        let _ = self.reply_to.send(Reply::Bytes { bytes, held, unanswered });
    }
}

/// How the bytes of a read are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As chunks, holes without their bytes.
    Chunks,
    /// In one piece; before its first bytes goes a head, which states how many there are in all.
    Whole { head: Option<u32> },
}

/// What is to be done with a range.
#[derive(Debug)]
pub(crate) enum Work<'a> {
    Read(Form),
    /// Read, but not sent: whether it can be read is to be known before a reply is begun that has no place for an error.
    Verify,
    Write(Cow<'a, [u8]>),
    Trim,
    WriteZeroes {
        no_hole: bool,
    },
    BlockStatus {
        one: bool,
    },
    /// Nothing: the request was refused.
    Refuse(Refusal),
    /// Nothing but the flush that `fua` asks for, if it does.
    Nothing,
}

/// A request, or a piece of one. The pieces of a request follow each other in the lane of its connection.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub client: Arc<Client>,
    pub cookie: u64,
    pub work: Work<'a>,
    pub offset: u64,
    pub len_bytes: u64,
    /// How much of the range has been dealt with.
    pub done_bytes: u64,
    /// Flush after it.
    pub fua: bool,
    /// It is the end of its request, which is to be answered now.
    pub is_last: bool,
    /// The request as a trace has it, with its first piece.
    pub record: Option<TraceRequest>,
    /// The memory of its data, or for its reply.
    pub held: Held,
    pub unanswered: Option<OwnedSemaphorePermit>,
}

/// What a volume did until it was stopped.
#[derive(Debug)]
pub struct Stopped {
    /// Whether there was room for a checkpoint, which makes the next opening fast.
    pub with_checkpoint: bool,
    /// Pages written by clients.
    pub host_writes: u64,
    /// Pages copied, those in idle time included.
    pub copies: u64,
    /// Other pages programmed: those of the disk's own, and of its checkpoint.
    pub metadata_pages: u64,
    /// Segments erased, those in idle time included.
    pub erases: u64,
    /// Pages copied in idle time.
    pub idle_copies: u64,
    /// Segments erased in idle time.
    pub idle_erases: u64,
    /// What the disk has done since it was formatted.
    pub since_format: Totals,
    /// The number of requests in the recording, or why there is none; `None` if none was wanted.
    pub recorded: Option<Result<u64, TraceError>>,
}

/// The thread of a volume, and the queue that leads to it.
pub(crate) struct Engine {
    pub jobs: Queue<Job<'static>>,
    /// What the thread works with; a connection that has entered the queue may do so, too.
    pub worker: Arc<Mutex<Worker>>,
    thread: JoinHandle<Result<Stopped, VolumeError>>,
}

/// Why requests are refused at the end.
pub(crate) const STOPPING: &str = "the server is stopping";
/// A volume that gets no request for this long cleans in advance.
const IDLE_AFTER: Duration = Duration::from_millis(5);
/// The maximum number of extents in a reply to a block status request.
pub(crate) const MAX_EXTENTS: usize = 4096;
/// No head of a chunk is longer.
pub(crate) const HEAD_BYTES: usize = 32;
/// Bytes written in a turn.
const STEP_BYTES: u64 = 256 << 10;
/// Pages trimmed in a turn, or looked at for a block status.
const STEP_PAGES: u64 = 4096;
/// Replies that wait for a batch to end.
const BATCH: usize = 16;
/// Bytes that a batch reads or changes.
const BATCH_BYTES: u64 = 256 << 10;

impl Engine {
    /// `runtime` is that of the connections.
    pub fn start(
        export: Export,
        volume: Volume,
        record: Option<Recording>,
        cleans_idle: bool,
        runtime: Handle,
    ) -> std::io::Result<Self> {
        let (jobs, inbox) = queue();
        let name = format!("volume {}", export.name);
        let worker = Worker { volume: Some(volume), record, buffer: Vec::new(), done: Vec::new(), batch_bytes: 0 };
        let worker = Arc::new(Mutex::new(worker));
        let of_thread = worker.clone();
        let work = move || run(&of_thread, inbox, cleans_idle, &runtime);
        let thread = std::thread::Builder::new().name(name).spawn(work)?;
        Ok(Self { jobs, worker, thread })
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

/// Carries out jobs, one after the other.
pub(crate) struct Worker {
    /// `None` once it was stopped.
    volume: Option<Volume>,
    record: Option<Recording>,
    /// Zeros to be written, or bytes that are read and not sent.
    buffer: Vec<u8>,
    /// Jobs of the batch, in their order.
    done: Vec<Done>,
    /// Bytes that the batch has read or changed.
    batch_bytes: u64,
}

/// A job that was carried out, and answered when its batch ends.
struct Done {
    client: Arc<Client>,
    cookie: u64,
    bytes: Vec<u8>,
    held: Held,
    unanswered: Option<OwnedSemaphorePermit>,
    is_last: bool,
    /// Whether it failed already, or changed nothing.
    is_settled: bool,
    /// Its client waits for what is not quick.
    is_flush: bool,
}

pub(crate) fn lock(worker: &Mutex<Worker>) -> MutexGuard<'_, Worker> {
    worker.lock().expect("nothing is done with a volume after a panic")
}

/// The thread.
fn run(
    worker: &Mutex<Worker>,
    mut inbox: Inbox<Job<'static>>,
    cleans_idle: bool,
    runtime: &Handle,
) -> Result<Stopped, VolumeError> {
    let (mut has_work, mut left) = (true, None);
    loop {
        // What is there already belongs to the batch.
        while !lock(worker).is_full()
            && let Some((job, is_late)) = inbox.try_next(left.take())
        {
            left = lock(worker).turn(job, is_late);
        }
        lock(worker).end_batch();
        match inbox.next(left.take(), (has_work && cleans_idle).then_some(IDLE_AFTER)) {
            Received::Job { job, is_late } => {
                has_work = true;
                left = lock(worker).turn(job, is_late);
            }
            Received::Entered { is_inside } => {
                has_work = true;
                if is_inside {
                    // It may be one of the runtime's threads that waits for the host's disk there, and the one that all
                    // others have left the sockets to: another one is woken, and looks after them.
                    runtime.spawn(async {});
                }
            }
            Received::Nothing => has_work = lock(worker).idle(),
            Received::Stop => break,
        }
    }
    drop(inbox);
    lock(worker).stop()
}

impl Worker {
    fn volume(&mut self) -> &mut Volume {
        self.volume.as_mut().expect("nothing is done with a volume after it was stopped")
    }

    /// Works for a moment of idle time; whether there may be more to do.
    fn idle(&mut self) -> bool {
        if self.record.is_some() && !self.volume().is_read_only() {
            let max_pages = self.volume().status().superblock.max_pages_per_write;
            let now_us = self.volume().now_us();
            self.keep(now_us, Event::Idle { max_pages });
        }
        self.volume().idle().unwrap_or_else(|error| {
            tracing::warn!("cleaning while idle failed: {error}");
            false
        })
    }

    fn stop(&mut self) -> Result<Stopped, VolumeError> {
        let mut volume = self.volume.take().expect("a volume is stopped once");
        let ended = volume.end();
        let (now_us, status) = (volume.now_us(), volume.status());
        let since_format = totals(&status);
        if let (Ok(with_checkpoint), false) = (&ended, volume.is_read_only()) {
            let copies = status.counters.copies;
            self.keep(now_us, Event::Stopped { with_checkpoint: *with_checkpoint, totals: since_format, copies });
        }
        let recorded = self.record.take().map(|record| record.finish(now_us));
        let counters = status.counters;
        Ok(Stopped {
            with_checkpoint: ended?,
            host_writes: counters.host_writes,
            copies: counters.copies,
            metadata_pages: status.metadata_pages(),
            erases: counters.erases,
            idle_copies: counters.idle_copies,
            idle_erases: counters.idle_erases,
            since_format,
            recorded,
        })
    }

    /// Whether a batch is to end now.
    pub fn is_full(&self) -> bool {
        let is_flushed = self.done.last().is_some_and(|done| done.is_flush);
        self.done.len() >= BATCH || self.batch_bytes >= BATCH_BYTES || is_flushed
    }

    /// Hands the pages of the batch to the device, and answers its jobs.
    pub fn end_batch(&mut self) {
        self.batch_bytes = 0;
        let failure = self.volume().hold(false).err().map(|error| fail(&error, errno_of(&error)));
        // Clients of requests of which a piece has failed now, and the last piece is to come.
        let mut failed: Vec<Arc<Client>> = Vec::new();
        for Done { client, cookie, mut bytes, held, unanswered, is_last, is_settled, .. } in self.done.drain(..) {
            if let Some(Refusal { errno, message }) = &failure {
                let before = failed.iter().position(|one| Arc::ptr_eq(one, &client));
                match (is_last, before) {
                    (true, _) if before.is_some() || !is_settled => {
                        bytes.clear();
                        client.replies.error(cookie, *errno, message, &mut bytes);
                        before.map(|at| failed.swap_remove(at));
                    }
                    (false, None) if !is_settled => failed.push(client.clone()),
                    _ => {}
                }
            }
            if is_last || !bytes.is_empty() {
                client.send(bytes, held, unanswered);
            }
        }
        if let Some(failure) = failure {
            failed.into_iter().for_each(|client| client.fail(failure.clone()));
        }
    }

    /// Records an event, if there is a recording.
    fn keep(&mut self, now_us: u64, event: Event) {
        if let Some(record) = &mut self.record {
            record.event(now_us, event);
        }
    }

    /// Records what is done at this time with a range of bytes.
    fn record(&mut self, kind: IoKind, time_us: u64, offset_bytes: u64, len_bytes: u64, zeroes: bool) {
        if let Some(record) = &mut self.record {
            record.request(&TraceRequest { time_us, kind, device: 0, offset_bytes, len_bytes, stream: None }, zeroes);
        }
    }

    /// Carries out a step of a job; returns the job if something is left of it. It is answered when the batch ends.
    pub fn turn<'a>(&mut self, mut job: Job<'a>, is_late: bool) -> Option<Job<'a>> {
        let mut bytes = Vec::new();
        let outcome = if let Work::Refuse(refusal) = &job.work {
            Err(refusal.clone())
        } else if job.client.has_failed() {
            Ok(true)
        } else if is_late {
            Err(Refusal::new(Errno::Shutdown, STOPPING))
        } else {
            if let Some(request) = job.record.take()
                && let Some(record) = &mut self.record
            {
                record.count_request();
                if request.kind == IoKind::Read {
                    let now_us = self.volume().now_us();
                    self.record(IoKind::Read, now_us, request.offset_bytes, request.len_bytes, false);
                }
            }
            self.step(&mut job, &mut bytes)
        };
        match outcome {
            Ok(true) => {}
            Ok(false) => return Some(job),
            Err(failure) => {
                bytes = Vec::new();
                if matches!(job.work, Work::Read(Form::Whole { head: None })) {
                    // The client waits for the rest of the bytes, and for nothing else.
                    let _ = job.client.reply_to.send(Reply::Broken(failure.message.into_owned()));
                } else {
                    job.client.fail(failure);
                }
            }
        }
        let mut is_settled = !matches!(job.work, Work::Write(_) | Work::Trim | Work::WriteZeroes { .. });
        let Job { client, cookie, work, mut held, unanswered, is_last, fua: is_flush, .. } = job;
        if let Work::Write(Cow::Owned(data)) = work {
            held.reuse(data);
        }
        if is_last && let Some(Refusal { errno, message }) = client.take_failure() {
            is_settled = true;
            bytes.clear();
            client.replies.error(cookie, errno, &message, &mut bytes);
        }
        held.shrink(bytes.capacity() + REQUEST_OVERHEAD_BYTES);
        self.done.push(Done { client, cookie, bytes, held, unanswered, is_last, is_settled, is_flush });
        None
    }

    /// Deals with the next part of a job's range, and appends what is to be sent; whether that was the last part.
    fn step(&mut self, job: &mut Job<'_>, output: &mut Vec<u8>) -> Result<bool, Refusal> {
        let (at, end) = (job.offset + job.done_bytes, job.offset + job.len_bytes);
        let is_read = matches!(job.work, Work::Read(_) | Work::BlockStatus { .. });
        let until = if is_read { end } else { self.step_end(&job.work, at, end) };
        self.batch_bytes += until - at;
        // Until the end of the batch.
        self.volume().hold(true).map_err(|error| fail(&error, errno_of(&error)))?;
        let now_us = if is_read { 0 } else { self.volume().now_us() };
        if self.record.is_some() {
            match &job.work {
                Work::Write(_) | Work::WriteZeroes { no_hole: true } => {
                    self.record(IoKind::Write, now_us, at, until - at, false);
                }
                Work::Trim => self.record(IoKind::Trim, now_us, at, until - at, false),
                Work::WriteZeroes { no_hole: false } => self.record(IoKind::Trim, now_us, at, until - at, true),
                Work::Read(_) | Work::Verify | Work::BlockStatus { .. } | Work::Refuse(_) | Work::Nothing => {}
            }
        }
        self.carry_out(job, at..until, now_us, output).map_err(|error| fail(&error, errno_of(&error)))?;
        job.done_bytes = until - job.offset;
        if until < end {
            return Ok(false);
        }
        if job.fua {
            // What could not be made durable is an error of the device, whatever the reason, unless there was no room.
            let errno = |error: &VolumeError| if error.is_no_space() { Errno::NoSpace } else { Errno::Io };
            self.record(IoKind::Flush, now_us, 0, 0, false);
            self.volume().flush().map_err(|error| fail(&error, errno(&error)))?;
        }
        if job.is_last && !is_read {
            job.client.replies.done(job.cookie, output);
        }
        Ok(true)
    }

    /// Where the step of a job ends that starts at `at`: at the end of a page, so that no page is dealt with in parts.
    fn step_end(&mut self, work: &Work<'_>, at: u64, end: u64) -> u64 {
        let page_bytes = u64::from(self.volume().page_bytes());
        let step_bytes = match work {
            Work::Trim | Work::WriteZeroes { no_hole: false } => STEP_PAGES * page_bytes,
            _ => STEP_BYTES,
        };
        piece_end(at, end, step_bytes, page_bytes)
    }

    /// Does what a job wants with a part of its range, at this time.
    fn carry_out(
        &mut self,
        job: &Job<'_>,
        range: Range<u64>,
        now_us: u64,
        output: &mut Vec<u8>,
    ) -> Result<(), VolumeError> {
        let Job { ref client, cookie, ref work, .. } = *job;
        let (replies, at, len) = (client.replies, range.start, range.end - range.start);
        match work {
            Work::Read(form) => return self.read(job, *form, output),
            Work::BlockStatus { one } => {
                let looked_at = len.min(STEP_PAGES * 16 * u64::from(self.volume().page_bytes()));
                let extents = self.runs(at, looked_at, if *one { 1 } else { MAX_EXTENTS });
                replies.block_status(cookie, &extents, output);
                return Ok(());
            }
            Work::Verify => {
                self.buffer.resize(STEP_BYTES as usize, 0);
                let mut bytes = std::mem::take(&mut self.buffer);
                let read = self.volume().read(at, &mut bytes[..len as usize]);
                self.buffer = bytes;
                read?;
            }
            Work::Write(data) => {
                let done = job.done_bytes as usize;
                self.volume().write_at(at, &data[done..done + len as usize], Hint::None, now_us)?;
            }
            Work::WriteZeroes { no_hole: true } => {
                self.buffer.clear();
                self.buffer.resize(len as usize, 0);
                let zeros = std::mem::take(&mut self.buffer);
                let written = self.volume().write_at(at, &zeros, Hint::None, now_us);
                self.buffer = zeros;
                written?;
            }
            Work::WriteZeroes { no_hole: false } => self.volume().trim_at(at, len, true, now_us)?,
            Work::Trim => self.volume().trim_at(at, len, false, now_us)?,
            Work::Refuse(_) | Work::Nothing => {}
        }
        Ok(())
    }

    fn read(&mut self, job: &Job<'_>, form: Form, output: &mut Vec<u8>) -> Result<(), VolumeError> {
        let Job { ref client, cookie, offset, len_bytes, is_last, .. } = *job;
        match form {
            Form::Whole { head } => {
                *output = job.held.buffer(len_bytes as usize + HEAD_BYTES);
                if let Some(total_bytes) = head {
                    client.replies.data(cookie, offset, total_bytes, true, output);
                }
                self.append(offset, len_bytes, output)?;
            }
            Form::Chunks if len_bytes == 0 => client.replies.no_data(cookie, output),
            Form::Chunks => {
                let runs = self.runs(offset, len_bytes, usize::MAX);
                let data_bytes: usize = runs.iter().filter(|run| !run.is_hole).map(|run| run.len_bytes as usize).sum();
                *output = job.held.buffer(data_bytes + runs.len() * HEAD_BYTES);
                let mut at = offset;
                for (i, run) in runs.iter().enumerate() {
                    let is_last = is_last && i + 1 == runs.len();
                    if run.is_hole {
                        client.replies.hole(cookie, at, run.len_bytes, is_last, output);
                    } else {
                        client.replies.data(cookie, at, run.len_bytes, is_last, output);
                        self.append(at, run.len_bytes.into(), output)?;
                    }
                    at += u64::from(run.len_bytes);
                }
            }
        }
        Ok(())
    }

    /// Appends bytes of the volume.
    fn append(&mut self, offset: u64, len_bytes: u64, output: &mut Vec<u8>) -> Result<(), VolumeError> {
        let start = output.len();
        output.resize(start + len_bytes as usize, 0);
        self.volume().read(offset, &mut output[start..])
    }

    /// Runs of data and holes from the start of a range, in turn; at most `max` of them.
    fn runs(&mut self, offset: u64, len: u64, max: usize) -> Vec<Extent> {
        let (mut at, end, mut runs) = (offset, offset + len, Vec::new());
        while at < end && runs.len() < max {
            let (is_mapped, next) = self.volume().extent(at, end);
            runs.push(Extent { len_bytes: (next - at) as u32, is_hole: !is_mapped });
            at = next;
        }
        runs
    }
}

/// Where a piece of a range ends that starts at `at` and is at most `max_bytes` long: at a multiple of `unit_bytes` if there
/// is one.
pub(crate) fn piece_end(at: u64, end: u64, max_bytes: u64, unit_bytes: u64) -> u64 {
    match at.checked_add(max_bytes) {
        Some(limit) if limit < end => match limit - limit % unit_bytes {
            aligned if aligned > at => aligned,
            _ => limit,
        },
        _ => end,
    }
}

fn fail(error: &VolumeError, errno: Errno) -> Refusal {
    if errno == Errno::Io {
        tracing::error!("{error}");
    }
    Refusal::new(errno, error.to_string())
}

fn errno_of(error: &VolumeError) -> Errno {
    match error {
        error if error.is_read_only() => Errno::Perm,
        error if error.is_no_space() => Errno::NoSpace,
        _ => Errno::Io,
    }
}
