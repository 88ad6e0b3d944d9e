//! A connection after its handshake: requests become jobs for the volume's thread, long ones in pieces, and replies go back
//! to the client. Nothing is read for which there is no memory, and no memory is waited for by any other connection.

use crate::activity::{Activity, Wait};
use crate::connection::{Agreed, Shared, Stopping, invalid, late};
use crate::engine::{Client, Form, HEAD_BYTES, Job, MAX_EXTENTS, STOPPING, Work, Worker, lock, piece_end};
use crate::memory::{Allowance, Held, REQUEST_OVERHEAD_BYTES};
use crate::queue::{Closed, Entered, Lane};
use crate::sender::send_replies;
use margay_nbd::{Errno, Export, REQUEST_BYTES, Refusal, Replies, Request, RequestKind, Session};
use margay_trace::{IoKind, Request as TraceRequest};
use std::borrow::Cow;
use std::io::{self, Cursor};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, BufReader};
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

/// Bytes received at once, if they are there.
const RECEIVE_BYTES: usize = 64 << 10;
/// A client that sends less than this of a request in the time it has makes no progress.
const PROGRESS_BYTES: usize = 64 << 10;
/// Requests of at most this many bytes are carried out by whoever received them, if the volume's thread has nothing to do.
const SHORT_BYTES: u32 = 32 << 10;
/// If that took longer, the host's disk was waited for, and it is left to the volume's thread for some time.
const SLOW: Duration = Duration::from_millis(1);
/// For so many requests.
const DETOURS: u32 = 64;
/// A connection that this side ends waits so long for the client to end it too: if it were closed while the client sends,
/// replies on their way could be lost.
const LINGER: Duration = Duration::from_millis(200);

/// Carries out a client's requests until it disconnects, has to make room for another one, or the server stops.
pub(crate) async fn transmit<S>(
    stream: S,
    Agreed { session, input }: Agreed,
    shared: Arc<Shared>,
    activity: Arc<Activity>,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (reader, writer) = tokio::io::split(stream);
    let mut reader = BufReader::with_capacity(RECEIVE_BYTES, Cursor::new(input).chain(reader));
    let (reply_to, outbox) = unbounded_channel();
    // Ends with this function, in whatever way that ends.
    let mut sending = JoinSet::new();
    sending.spawn(send_replies(writer, outbox, activity.clone(), shared.clone()));
    let replies = Replies::new(&session);
    let mut receiver = Receiver {
        session,
        export: &shared.exports[session.export],
        lane: shared.queues[session.export].lane(),
        client: Client::new(replies, reply_to.clone()),
        unanswered: Arc::new(Semaphore::new(shared.limits.max_requests)),
        allowance: Allowance::new(shared.memory.clone()),
        piece_bytes: shared.memory.piece_bytes() as u64,
        client_timeout: shared.limits.client_timeout,
        activity: &activity,
        waiting: None,
        worker: shared.workers.get(session.export),
        detours: 0,
    };
    let mut stopping = shared.stopping.clone();
    let mut ended = tokio::select! {
        biased;
        ended = receiver.receive(&mut reader) => match ended {
            // A client may leave in the middle of a request.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            ended => ended,
        },
        // Replies can no longer be sent.
        () = reply_to.closed() => Ok(()),
        error = activity.evicted() => Err(error),
        _ = stopping.begun() => {
            receiver.refuse();
            Ok(())
        }
    };
    let Receiver { lane, client, .. } = receiver;
    drop((client, reply_to));
    // Requests in the queue are still carried out and answered, as long as the client takes the answers.
    let sent = tokio::select! {
        sent = sending.join_next() => sent.map_or(Ok(()), |sent| sent.map_err(invalid).flatten()),
        error = activity.evicted() => Err(error),
    };
    match sent {
        Ok(()) => linger(&mut reader, &mut stopping, shared.limits.stop_timeout * 9 / 10).await,
        Err(error) => {
            lane.cancel();
            // That a client disconnected before it had its replies is its own affair.
            if error.kind() == io::ErrorKind::TimedOut || error.kind() == io::ErrorKind::Other {
                ended = ended.and(Err(error));
            }
        }
    }
    ended
}

/// Takes, and forgets, what the client still sends until it ends the connection too, but not for long.
async fn linger<R: AsyncBufRead + Unpin>(reader: &mut R, stopping: &mut Stopping, until: Duration) {
    let forget = async {
        while let Ok(bytes) = reader.fill_buf().await
            && !bytes.is_empty()
        {
            let len = bytes.len();
            reader.consume(len);
        }
    };
    tokio::select! {
        () = forget => {}
        () = tokio::time::sleep(LINGER) => {}
        () = stopping.for_long(until) => {}
    }
}

/// The receiving half of a connection.
struct Receiver<'a> {
    session: Session,
    export: &'a Export,
    lane: Lane<Job<'static>>,
    client: Arc<Client>,
    /// Permits for the requests that can still be unanswered.
    unanswered: Arc<Semaphore>,
    allowance: Arc<Allowance>,
    /// The maximum length of a piece.
    piece_bytes: u64,
    client_timeout: Duration,
    activity: &'a Activity,
    /// The cookie of a request that has been received whole, and of which nothing is in the queue.
    waiting: Option<u64>,
    /// Of the volume.
    worker: Option<&'a Arc<Mutex<Worker>>>,
    /// Requests that are left to the volume's thread because some of those before took long.
    detours: u32,
}

impl Receiver<'_> {
    /// Receives requests until the client disconnects.
    async fn receive<R: AsyncBufRead + Unpin>(&mut self, reader: &mut R) -> io::Result<()> {
        loop {
            // Before a request, a client may wait for ever.
            let input = reader.fill_buf().await?;
            if input.is_empty() {
                return Ok(());
            }
            let (taken, is_full) = self.carry_out(input);
            if taken > 0 {
                reader.consume(taken);
                if is_full {
                    // The replies come first. Otherwise they are sent when the client is waited for.
                    tokio::task::yield_now().await;
                }
                continue;
            }
            let mut header = [0; REQUEST_BYTES];
            self.in_time(reader.read_exact(&mut header)).await?;
            let request = Request::decode(&header, &self.session).map_err(invalid)?;
            if request.kind == RequestKind::Disconnect {
                return Ok(());
            }
            self.accept(reader, request).await?;
        }
    }

    /// Waits until a request can be carried out, then puts it into the queue, piece by piece.
    async fn accept<R: AsyncBufRead + Unpin>(&mut self, reader: &mut R, request: Request) -> io::Result<()> {
        self.waiting = (request.payload_bytes == 0).then_some(request.cookie);
        let unanswered = self.unanswered.clone().acquire_owned().await.map_err(invalid)?;
        let cookie = request.cookie;
        if let Err(refusal) = request.check(self.export) {
            self.discard(reader, request.payload_bytes as usize).await?;
            let held = self.allowance.take(2 * REQUEST_OVERHEAD_BYTES).await;
            return self.put_refusal(cookie, refusal, held, Some(unanswered));
        }
        let (mut record, mut unanswered) = (recorded(&request), Some(unanswered));
        let (start, end) = (request.offset, request.offset + u64::from(request.len_bytes));
        let client = self.client.clone();
        let mut job = |work, range: Range<u64>, held, is_last| Job {
            client: client.clone(),
            cookie,
            work,
            offset: range.start,
            len_bytes: range.end - range.start,
            done_bytes: 0,
            fua: is_last && request.kind.is_durable(),
            is_last,
            record: record.take(),
            held,
            unanswered: unanswered.take_if(|_| is_last),
        };
        // Pages are the unit of zeros, too.
        let page_bytes = u64::from(self.export.fast_zero_bytes);
        let is_short = self.is_short(&request);
        let mut at = start;
        loop {
            let mut until = piece_end(at, end, self.piece_bytes, page_bytes);
            let len = (until - at) as usize;
            let (work, held) = match request.kind {
                RequestKind::Read { .. } => {
                    let (form, bytes) = self.form(&request, at, len);
                    if form != Form::Chunks && at == start && until < end {
                        let held = self.allowance.take(REQUEST_OVERHEAD_BYTES).await;
                        self.lane.send(job(Work::Verify, start..end, held, false)).map_err(ended)?;
                    }
                    (Work::Read(form), self.allowance.take(bytes).await)
                }
                RequestKind::Write { .. } => {
                    let held = self.allowance.take(len + REQUEST_OVERHEAD_BYTES).await;
                    (Work::Write(self.payload(reader, held.buffer(len), len).await?.into()), held)
                }
                ref kind => {
                    until = end;
                    let (work, reply_bytes) = match *kind {
                        RequestKind::Trim { .. } => (Work::Trim, 0),
                        RequestKind::WriteZeroes { no_hole, .. } => (Work::WriteZeroes { no_hole }, 0),
                        RequestKind::BlockStatus { one } => {
                            (Work::BlockStatus { one }, if one { HEAD_BYTES } else { MAX_EXTENTS * 8 })
                        }
                        // Nothing is cached. What is bad was refused.
                        _ => (Work::Nothing, 0),
                    };
                    (work, self.allowance.take(reply_bytes + REQUEST_OVERHEAD_BYTES).await)
                }
            };
            let job = job(work, at..until, held, until == end);
            self.waiting = None;
            let left = if is_short { self.carry_out_one(job) } else { Some(job) };
            left.map_or(Ok(()), |job| self.lane.send(job)).map_err(ended)?;
            if until == end {
                return Ok(());
            }
            at = until;
        }
    }

    /// How the reply to a piece of a read is sent, and the memory that it takes.
    fn form(&self, request: &Request, at: u64, len: usize) -> (Form, usize) {
        let dont_fragment = matches!(request.kind, RequestKind::Read { dont_fragment: true });
        let pages = len / self.export.fast_zero_bytes as usize;
        let (form, heads) = if self.client.replies.has_chunks() && (!dont_fragment || request.len_bytes == 0) {
            (Form::Chunks, pages + 2)
        } else {
            (Form::Whole { head: (at == request.offset).then_some(request.len_bytes) }, 1)
        };
        (form, len + heads * HEAD_BYTES + REQUEST_OVERHEAD_BYTES)
    }

    /// Whether a request can be carried out at once and in one piece, without waiting for the host's disk.
    fn is_short(&self, request: &Request) -> bool {
        let is_quick = matches!(request.kind, RequestKind::Read { .. } | RequestKind::Write { fua: false });
        let len = request.len_bytes;
        is_quick && len <= SHORT_BYTES && u64::from(len) <= self.piece_bytes && request.check(self.export).is_ok()
    }

    /// Takes the place of the volume's thread, if it has nothing to do.
    fn enter(&self) -> Option<(Entered<'_, Job<'static>>, MutexGuard<'_, Worker>)> {
        let worker = self.worker.filter(|_| self.detours == 0)?;
        self.lane.enter().map(|entered| (entered, lock(worker)))
    }

    /// The short request at the start of what was received, if it is there whole, and its data.
    fn short_request<'i>(&self, input: &'i [u8]) -> Option<(Request, &'i [u8])> {
        let (header, rest) = input.split_first_chunk()?;
        let request = Request::decode(header, &self.session).ok().filter(|request| self.is_short(request))?;
        let payload = rest.get(..request.payload_bytes as usize)?;
        Some((request, payload))
    }

    /// Carries out the short requests at the start of what was received, as one batch, if the volume's thread has nothing
    /// to do: to wake it would take longer. Returns how many bytes of what was received they were, and whether they were as
    /// many as a batch can have.
    fn carry_out(&mut self, input: &[u8]) -> (usize, bool) {
        if self.short_request(input).is_none() {
            return (0, false);
        }
        self.detours = self.detours.saturating_sub(1);
        let Some((entered, mut worker)) = self.enter() else { return (0, false) };
        let (begun, mut taken) = (Instant::now(), 0);
        while !worker.is_full()
            && let Some((request, payload)) = self.short_request(&input[taken..])
            && let Ok(unanswered) = self.unanswered.clone().try_acquire_owned()
        {
            let len = request.len_bytes as usize;
            let (work, bytes) = match request.kind {
                RequestKind::Read { .. } => {
                    let (form, bytes) = self.form(&request, request.offset, len);
                    (Work::Read(form), bytes)
                }
                _ => (Work::Write(Cow::Borrowed(payload)), REQUEST_OVERHEAD_BYTES),
            };
            let Some(held) = self.allowance.try_take(bytes) else { break };
            let job = Job {
                client: self.client.clone(),
                cookie: request.cookie,
                work,
                offset: request.offset,
                len_bytes: len as u64,
                done_bytes: 0,
                fua: false,
                is_last: true,
                record: recorded(&request),
                held,
                unanswered: Some(unanswered),
            };
            worker.turn(job, false);
            taken += REQUEST_BYTES + payload.len();
        }
        let is_full = worker.is_full();
        worker.end_batch();
        drop((worker, entered));
        self.note_time(begun);
        (taken, is_full)
    }

    /// Carries out a short request whose data came in parts. Returns it if the volume's thread has something to do.
    fn carry_out_one(&mut self, job: Job<'static>) -> Option<Job<'static>> {
        let Some((entered, mut worker)) = self.enter() else { return Some(job) };
        let begun = Instant::now();
        worker.turn(job, false);
        worker.end_batch();
        drop((worker, entered));
        self.note_time(begun);
        None
    }

    /// What was begun then in the place of the volume's thread is done.
    fn note_time(&mut self, begun: Instant) {
        if begun.elapsed() > SLOW {
            self.detours = DETOURS;
        }
    }

    /// Receives data of a write into an empty buffer.
    async fn payload<R: AsyncBufRead + Unpin>(
        &self,
        reader: &mut R,
        mut data: Vec<u8>,
        len: usize,
    ) -> io::Result<Vec<u8>> {
        while data.len() < len {
            let target = len.min(data.len() + PROGRESS_BYTES);
            let progress = async {
                while data.len() < target {
                    let left = (len - data.len()) as u64;
                    if (&mut *reader).take(left).read_buf(&mut data).await? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Ok(())
            };
            self.in_time(progress).await?;
        }
        Ok(data)
    }

    /// Receives data of a write that was refused.
    async fn discard<R: AsyncBufRead + Unpin>(&self, reader: &mut R, mut len: usize) -> io::Result<()> {
        while len > 0 {
            let received = self.in_time(async { Ok(reader.fill_buf().await?.len()) }).await?.min(len);
            if received == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            reader.consume(received);
            len -= received;
        }
        Ok(())
    }

    /// Waits for a client that is in the middle of a request, but not for ever.
    async fn in_time<T>(&self, receiving: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let _waiting = self.activity.wait(Wait::Receiving);
        let received = tokio::time::timeout(self.client_timeout, receiving).await;
        received.unwrap_or_else(|_| Err(late("it began a request and did not go on with it in time")))
    }

    /// Refuses the request that has to wait while the server stops.
    fn refuse(&mut self) {
        if let Some(cookie) = self.waiting.take()
            && let Some(held) = self.allowance.try_take(REQUEST_OVERHEAD_BYTES)
        {
            // A thread that has ended carries out nothing, so that there is nothing to refuse.
            let _ = self.put_refusal(cookie, Refusal::new(Errno::Shutdown, STOPPING), held, None);
        }
    }

    /// Puts a refusal into the queue: the reply to an earlier request may still be on its way in several parts.
    fn put_refusal(
        &mut self,
        cookie: u64,
        refusal: Refusal,
        held: Held,
        unanswered: Option<OwnedSemaphorePermit>,
    ) -> io::Result<()> {
        let job = Job {
            client: self.client.clone(),
            cookie,
            work: Work::Refuse(refusal),
            offset: 0,
            len_bytes: 0,
            done_bytes: 0,
            fua: false,
            is_last: true,
            record: None,
            held,
            unanswered,
        };
        self.waiting = None;
        self.lane.send(job).map_err(ended)
    }
}

fn ended(_: Closed) -> io::Error {
    invalid("the thread of the volume has ended")
}

/// A request as a trace has it, if it has it.
fn recorded(request: &Request) -> Option<TraceRequest> {
    let kind = match request.kind {
        RequestKind::Read { .. } => IoKind::Read,
        RequestKind::Write { .. } => IoKind::Write,
        RequestKind::Trim { .. } | RequestKind::WriteZeroes { .. } => IoKind::Trim,
        RequestKind::Flush => IoKind::Flush,
        _ => return None,
    };
    let len_bytes = if kind == IoKind::Flush { 0 } else { u64::from(request.len_bytes) };
    Some(TraceRequest { time_us: 0, kind, device: 0, offset_bytes: request.offset, len_bytes, stream: None })
}

#[cfg(test)]
mod tests;
