//! A connection: the handshake, then requests to the volume's thread and its replies to the client.

use crate::engine::{Job, Reply};
use crate::queue::QueueSender;
use margay_nbd::{Errno, Event, Export, Handshake, Replies, RequestKind, Session, greeting, next_request};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

/// What all connections share.
pub(crate) struct Shared {
    pub exports: Vec<Export>,
    /// The queue of each export's volume.
    pub queues: Vec<QueueSender<Job>>,
    pub tls: Option<TlsAcceptor>,
    pub requires_tls: bool,
    pub max_requests: usize,
    /// Becomes true when the server stops.
    pub stopping: watch::Receiver<bool>,
}

/// A client that has not completed its handshake after this time is disconnected.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// When the server stops, a client that takes no byte of its replies for this long is disconnected.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

fn invalid(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

/// Serves a client until it disconnects or the server stops.
pub(crate) async fn serve<S>(stream: S, shared: Arc<Shared>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut stopping = shared.stopping.clone();
    let session = tokio::select! {
        session = handshake(stream, &shared) => session?,
        _ = stopping.wait_for(|stop| *stop) => return Ok(()),
    };
    match session {
        Some((Connected::Plain(stream), session, input)) => transmit(stream, session, input, shared).await,
        Some((Connected::Secure(stream), session, input)) => transmit(*stream, session, input, shared).await,
        None => Ok(()),
    }
}

enum Connected<S> {
    Plain(S),
    Secure(Box<tokio_rustls::server::TlsStream<S>>),
}

/// Agrees on a session, in TLS if the client starts it; `None` if the client leaves before. Input that was received
/// behind the handshake comes with it.
async fn handshake<S>(mut stream: S, shared: &Shared) -> io::Result<Option<(Connected<S>, Session, Vec<u8>)>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let late = |_| invalid("the client did not complete its handshake in time");
    let mut handshake = Handshake::new(shared.tls.is_some(), shared.requires_tls);
    let negotiated = tokio::time::timeout(HANDSHAKE_TIMEOUT, async {
        stream.write_all(&greeting()).await?;
        negotiate(&mut stream, &mut handshake, shared).await
    });
    match negotiated.await.map_err(late)?? {
        (Outcome::Closed, _) => Ok(None),
        (Outcome::Serve(session), input) => Ok(Some((Connected::Plain(stream), session, input))),
        // What a client sent before TLS started cannot be trusted after it.
        (Outcome::Tls, input) if !input.is_empty() => Err(invalid("the client sent bytes between STARTTLS and TLS")),
        (Outcome::Tls, _) => {
            let acceptor = shared.tls.clone().ok_or_else(|| invalid("TLS was started without a certificate"))?;
            let secure = tokio::time::timeout(HANDSHAKE_TIMEOUT, async {
                let mut stream = acceptor.accept(stream).await?;
                handshake.tls_started();
                let outcome = negotiate(&mut stream, &mut handshake, shared).await?;
                Ok::<_, io::Error>((stream, outcome))
            });
            match secure.await.map_err(late)?? {
                (stream, (Outcome::Serve(session), input)) => {
                    Ok(Some((Connected::Secure(Box::new(stream)), session, input)))
                }
                (_, (Outcome::Closed | Outcome::Tls, _)) => Ok(None),
            }
        }
    }
}

enum Outcome {
    Closed,
    Tls,
    Serve(Session),
}

async fn negotiate<S>(stream: &mut S, handshake: &mut Handshake, shared: &Shared) -> io::Result<(Outcome, Vec<u8>)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut input, mut output) = (Vec::new(), Vec::new());
    loop {
        let event = handshake.step(&shared.exports, &mut input, &mut output).map_err(invalid)?;
        stream.write_all(&output).await?;
        stream.flush().await?;
        output.clear();
        match event {
            Event::NeedBytes => {
                if stream.read_buf(&mut input).await? == 0 {
                    return Ok((Outcome::Closed, input));
                }
            }
            Event::StartTls => return Ok((Outcome::Tls, input)),
            Event::Close => return Ok((Outcome::Closed, input)),
            Event::Serve(session) => return Ok((Outcome::Serve(session), input)),
        }
    }
}

async fn transmit<S>(stream: S, session: Session, mut input: Vec<u8>, shared: Arc<Shared>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut reader, writer) = tokio::io::split(stream);
    let (reply_to, outbox) = unbounded_channel();
    let writing = tokio::spawn(send_replies(writer, outbox, shared.stopping.clone()));
    let unanswered = Arc::new(Semaphore::new(shared.max_requests));
    let (queue, replies) = (&shared.queues[session.export], Replies::new(&session));
    let mut stopping = shared.stopping.clone();
    let result = loop {
        match next_request(&mut input, &session) {
            Err(error) => break Err(invalid(error)),
            Ok(None) => {
                input.reserve(64 << 10);
                let read = tokio::select! {
                    biased;
                    read = reader.read_buf(&mut input) => read,
                    // Replies can no longer be sent.
                    () = reply_to.closed() => break Ok(()),
                    _ = stopping.wait_for(|stop| *stop) => break Ok(()),
                };
                match read {
                    Ok(0) => break Ok(()),
                    Ok(_) => {}
                    Err(error) => break Err(error),
                }
            }
            Ok(Some(request)) if request.kind == RequestKind::Disconnect => break Ok(()),
            Ok(Some(request)) => {
                // Nothing is read from the client while it has too many unanswered requests, or the queue is full.
                let cookie = request.cookie;
                let queued = async {
                    let unanswered = unanswered.clone().acquire_owned().await.map_err(invalid)?;
                    let job = Job { request, replies, reply_to: reply_to.clone(), unanswered };
                    queue.send(job).await.map_err(|_| invalid("the thread of the volume has ended"))
                };
                tokio::select! {
                    biased;
                    queued = queued => if let Err(error) = queued { break Err(error) },
                    () = reply_to.closed() => break Ok(()),
                    _ = stopping.wait_for(|stop| *stop) => {
                        let mut bytes = Vec::new();
                        replies.error(cookie, Errno::Shutdown, "the server is stopping", &mut bytes);
                        // If the client is gone, nobody waits for the reply.
                        let _ = reply_to.send(Reply { bytes, unanswered: None });
                        break Ok(());
                    }
                }
            }
        }
    };
    drop(reply_to);
    // Requests in the queue are still carried out and answered.
    match writing.await.map_err(invalid)? {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => result.and(Err(error)),
        // That a client disconnected before it had its replies is its own affair.
        _ => result,
    }
}

/// Sends replies until no request is left that could have one.
async fn send_replies<W: AsyncWrite + Unpin>(
    mut writer: W,
    mut outbox: UnboundedReceiver<Reply>,
    mut stopping: watch::Receiver<bool>,
) -> io::Result<()> {
    while let Some(reply) = outbox.recv().await {
        let mut rest = &reply.bytes[..];
        while !rest.is_empty() {
            match in_time(&mut stopping, writer.write(rest)).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                sent => rest = &rest[sent..],
            }
        }
        in_time(&mut stopping, writer.flush()).await?;
        drop(reply.unanswered);
    }
    in_time(&mut stopping, writer.shutdown()).await
}

/// Waits for as long as it takes while the server runs, but not for long when it stops.
async fn in_time<T>(
    stopping: &mut watch::Receiver<bool>,
    operation: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let too_late = async {
        // An error says that the server has ended.
        let _ = stopping.wait_for(|stop| *stop).await;
        tokio::time::sleep(STOP_TIMEOUT).await;
    };
    tokio::select! {
        biased;
        result = operation => result,
        () = too_late => Err(io::Error::new(io::ErrorKind::TimedOut, "the client did not take its replies in time")),
    }
}

#[cfg(test)]
mod tests;
