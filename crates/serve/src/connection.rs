//! A connection: negotiation, then requests to the volume's thread and replies from it.

use crate::engine::{Job, Message};
use margay_nbd::{Event, Export, Handshake, Replies, RequestKind, Session, greeting, next_request};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_rustls::TlsAcceptor;

/// What all connections share.
pub(crate) struct Shared {
    pub exports: Vec<Export>,
    pub engines: Vec<SyncSender<Message>>,
    pub tls: Option<TlsAcceptor>,
    pub requires_tls: bool,
    pub most_requests: usize,
    /// Becomes true when the server stops.
    pub stopping: watch::Receiver<bool>,
}

/// A client that does not finish its negotiation in this time is not waited for.
const NEGOTIATION: Duration = Duration::from_secs(30);

fn protocol(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

/// Serves a client until it goes.
pub(crate) async fn serve<S>(stream: S, shared: Arc<Shared>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut stream = stream;
    let mut handshake = Handshake::new(shared.tls.is_some(), shared.requires_tls);
    let negotiated = tokio::time::timeout(NEGOTIATION, async {
        stream.write_all(&greeting()).await?;
        negotiate(&mut stream, &mut handshake, &shared).await
    });
    let (outcome, input) = negotiated.await.map_err(|_| protocol("no negotiation in time"))??;
    match outcome {
        Outcome::Closed => Ok(()),
        Outcome::Serve(session) => transmit(stream, session, input, shared).await,
        Outcome::Tls => {
            // What a client sent before TLS started cannot be trusted after it.
            if !input.is_empty() {
                return Err(protocol("bytes between STARTTLS and TLS"));
            }
            let acceptor = shared.tls.clone().ok_or_else(|| protocol("TLS without a certificate"))?;
            let secure = tokio::time::timeout(NEGOTIATION, async {
                let mut stream = acceptor.accept(stream).await?;
                handshake.tls_started();
                let outcome = negotiate(&mut stream, &mut handshake, &shared).await?;
                Ok::<_, io::Error>((stream, outcome))
            });
            let (stream, (outcome, input)) = secure.await.map_err(|_| protocol("no negotiation in time"))??;
            match outcome {
                Outcome::Serve(session) => transmit(stream, session, input, shared).await,
                Outcome::Closed | Outcome::Tls => Ok(()),
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
        let event = handshake.step(&shared.exports, &mut input, &mut output).map_err(protocol)?;
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
    let (mut reader, mut writer) = tokio::io::split(stream);
    let (to, mut outbox) = mpsc::unbounded_channel::<(Vec<u8>, _)>();
    let writing = tokio::spawn(async move {
        while let Some((bytes, permit)) = outbox.recv().await {
            writer.write_all(&bytes).await?;
            writer.flush().await?;
            drop(permit);
        }
        writer.shutdown().await
    });
    let requests = Arc::new(Semaphore::new(shared.most_requests));
    let (engine, replies) = (&shared.engines[session.export], Replies::new(&session));
    let mut stopping = shared.stopping.clone();
    let result = loop {
        match next_request(&mut input, &session) {
            Err(error) => break Err(protocol(error)),
            Ok(None) => {
                input.reserve(64 << 10);
                let read = tokio::select! {
                    read = reader.read_buf(&mut input) => read,
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
                // Held until the reply is sent: a client that reads no replies can send no more requests.
                let permit = requests.clone().acquire_owned().await.map_err(protocol)?;
                let mut message = Message::Job(Box::new(Job { request, replies, to: to.clone(), permit }));
                let gone = loop {
                    match engine.try_send(message) {
                        Ok(()) => break false,
                        Err(TrySendError::Disconnected(_)) => break true,
                        Err(TrySendError::Full(back)) => {
                            message = back;
                            tokio::time::sleep(Duration::from_micros(200)).await;
                        }
                    }
                };
                if gone {
                    break Ok(());
                }
            }
        }
    };
    drop(to);
    // Replies that are due are still sent.
    writing.await.map_err(protocol)?.or_else(|error| if result.is_ok() { Ok(()) } else { Err(error) })?;
    result
}
