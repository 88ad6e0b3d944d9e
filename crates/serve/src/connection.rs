//! A connection: its handshake, in TLS if there is one, and what all connections share.

use crate::activity::{Activity, Wait};
use crate::engine::{Job, Worker};
use crate::limits::Limits;
use crate::memory::Memory;
use crate::queue::Queue;
use crate::transmission::transmit;
use margay_nbd::{Event, Export, Handshake, Session, greeting};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// What all connections share.
pub(crate) struct Shared {
    pub exports: Vec<Export>,
    /// The queue of each export's volume.
    pub queues: Vec<Queue<Job<'static>>>,
    /// What each volume's thread works with.
    pub workers: Vec<Arc<Mutex<Worker>>>,
    pub tls: Option<TlsAcceptor>,
    pub requires_tls: bool,
    pub limits: Limits,
    pub memory: Arc<Memory>,
    pub stopping: Stopping,
}

/// When the server was asked to stop, if it was.
#[derive(Clone, Debug)]
pub(crate) struct Stopping(pub watch::Receiver<Option<Instant>>);

impl Stopping {
    /// Waits until the server stops; the time at which it was asked to.
    pub async fn begun(&mut self) -> Instant {
        match self.0.wait_for(Option::is_some).await {
            Ok(time) => time.unwrap_or_else(Instant::now),
            // The server has ended.
            Err(_) => Instant::now(),
        }
    }

    /// Waits until the server has been stopping for so long.
    pub async fn for_long(&mut self, time: Duration) {
        let begun = self.begun().await;
        tokio::time::sleep_until((begun + time).into()).await;
    }
}

pub(crate) fn late(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

pub(crate) fn invalid(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

/// Serves a client until it disconnects, has to make room for another one, or the server stops.
pub(crate) async fn serve<S>(stream: S, shared: Arc<Shared>, activity: Arc<Activity>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut stopping = shared.stopping.clone();
    let waiting = activity.wait(Wait::Receiving);
    let agreed = tokio::time::timeout(shared.limits.handshake_timeout, handshake(stream, &shared));
    let agreed = tokio::select! {
        agreed = agreed => agreed.map_err(|_| late("it did not complete its handshake in time"))??,
        error = activity.evicted() => return Err(error),
        _ = stopping.begun() => return Ok(()),
    };
    drop(waiting);
    match agreed {
        Some((Connected::Plain(stream), agreed)) => transmit(stream, agreed, shared, activity).await,
        Some((Connected::Secure(stream), agreed)) => transmit(*stream, agreed, shared, activity).await,
        None => Ok(()),
    }
}

/// The stream of a client whose handshake is complete.
enum Connected<S> {
    Plain(S),
    Secure(Box<tokio_rustls::server::TlsStream<S>>),
}

/// What came of a handshake.
pub(crate) struct Agreed {
    pub session: Session,
    /// What was received behind the handshake.
    pub input: Vec<u8>,
}

/// Agrees on a session, in TLS if the client starts it; `None` if the client leaves before.
async fn handshake<S>(mut stream: S, shared: &Shared) -> io::Result<Option<(Connected<S>, Agreed)>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut handshake = Handshake::new(shared.tls.is_some(), shared.requires_tls);
    stream.write_all(&greeting()).await?;
    match negotiate(&mut stream, &mut handshake, shared).await? {
        (Outcome::Closed, _) => Ok(None),
        (Outcome::Serve(session), input) => Ok(Some((Connected::Plain(stream), Agreed { session, input }))),
        // What a client sent before TLS started cannot be trusted after it.
        (Outcome::Tls, input) if !input.is_empty() => Err(invalid("the client sent bytes between STARTTLS and TLS")),
        (Outcome::Tls, _) => {
            let acceptor = shared.tls.clone().ok_or_else(|| invalid("TLS was started without a certificate"))?;
            let mut stream = acceptor.accept(stream).await?;
            handshake.tls_started();
            match negotiate(&mut stream, &mut handshake, shared).await? {
                (Outcome::Serve(session), input) => {
                    Ok(Some((Connected::Secure(Box::new(stream)), Agreed { session, input })))
                }
                (Outcome::Closed | Outcome::Tls, _) => Ok(None),
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
