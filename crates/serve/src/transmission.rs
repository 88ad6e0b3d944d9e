//! A connection after its handshake: requests become jobs for the volume's thread, long ones in pieces, and replies go back
//! to the client. Nothing is read for which there is no memory, and no memory is waited for by any other connection.

use crate::activity::{Activity, Wait};
use crate::connection::{Agreed, Shared, Stopping, invalid, late};
use crate::engine::{Client, Form, HEAD_BYTES, Job, MAX_EXTENTS, STOPPING, Work, piece_end};
use crate::memory::{Allowance, Held, REQUEST_OVERHEAD_BYTES};
use crate::queue::{Closed, Lane};
use crate::sender::send_replies;
use margay_nbd::{Errno, Export, REQUEST_BYTES, Refusal, Replies, Request, RequestKind, Session};
use margay_trace::{Kind, Request as TraceRequest};
use std::io::{self, Cursor};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, BufReader};
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

/// Bytes received at once, if they are there.
const RECEIVE_BYTES: usize = 64 << 10;
/// A client that sends less than this of a request in the time it has makes no progress.
const PROGRESS_BYTES: usize = 64 << 10;
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
    lane: Lane<Job>,
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
}

impl Receiver<'_> {
    /// Receives requests until the client disconnects.
    async fn receive<R: AsyncBufRead + Unpin>(&mut self, reader: &mut R) -> io::Result<()> {
        loop {
            // Before a request, a client may wait for ever.
            if reader.fill_buf().await?.is_empty() {
                return Ok(());
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
        let (cookie, replies) = (request.cookie, self.client.replies);
        if let Err(refusal) = request.check(self.export) {
            self.discard(reader, request.payload_bytes as usize).await?;
            let held = self.allowance.take(2 * REQUEST_OVERHEAD_BYTES).await;
            return self.put_refusal(cookie, refusal, held, Some(unanswered));
        }
        let (mut record, mut unanswered) = (recorded(&request), Some(unanswered));
        let (start, end) = (request.offset, request.offset + u64::from(request.len_bytes));
        let mut job = |work, range: Range<u64>, held, is_last| Job {
            client: self.client.clone(),
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
        let chunks = matches!(request.kind, RequestKind::Read { dont_fragment } if replies.has_chunks() && (!dont_fragment || start == end));
        let mut at = start;
        loop {
            let mut until = piece_end(at, end, self.piece_bytes, page_bytes);
            let len = (until - at) as usize;
            let (work, held) = match request.kind {
                RequestKind::Read { .. } => {
                    if !chunks && at == start && until < end {
                        let held = self.allowance.take(REQUEST_OVERHEAD_BYTES).await;
                        self.lane.send(job(Work::Verify, start..end, held, false)).map_err(ended)?;
                    }
                    let heads_bytes = if chunks { (len / page_bytes as usize + 2) * HEAD_BYTES } else { HEAD_BYTES };
                    let held = self.allowance.take(len + heads_bytes + REQUEST_OVERHEAD_BYTES).await;
                    let head = (at == start).then_some(request.len_bytes);
                    (Work::Read(if chunks { Form::Chunks } else { Form::Whole { head } }), held)
                }
                RequestKind::Write { .. } => {
                    let held = self.allowance.take(len + REQUEST_OVERHEAD_BYTES).await;
                    (Work::Write(self.payload(reader, len).await?), held)
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
            self.lane.send(job(work, at..until, held, until == end)).map_err(ended)?;
            self.waiting = None;
            if until == end {
                return Ok(());
            }
            at = until;
        }
    }

    /// Receives data of a write.
    async fn payload<R: AsyncBufRead + Unpin>(&self, reader: &mut R, len: usize) -> io::Result<Vec<u8>> {
        let mut data = Vec::with_capacity(len);
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
        RequestKind::Read { .. } => Kind::Read,
        RequestKind::Write { .. } => Kind::Write,
        RequestKind::Trim { .. } | RequestKind::WriteZeroes { .. } => Kind::Trim,
        RequestKind::Flush => Kind::Flush,
        _ => return None,
    };
    let len_bytes = if kind == Kind::Flush { 0 } else { u64::from(request.len_bytes) };
    Some(TraceRequest { time_us: 0, kind, device: 0, offset_bytes: request.offset, len_bytes })
}

#[cfg(test)]
mod tests;
