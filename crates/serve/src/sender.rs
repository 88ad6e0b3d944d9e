//! The sending half of a connection.

use crate::activity::{Activity, Wait};
use crate::connection::{Shared, Stopping, late};
use crate::engine::Reply;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::UnboundedReceiver;

/// Replies that are ready together are sent together, up to this many bytes.
const TOGETHER_BYTES: usize = 32 << 10;
/// Replies taken at once.
const TOGETHER: usize = 64;

/// Sends replies until no request is left that could have one, then ends the connection in this direction. A reply's memory
/// and its place among the unanswered requests are free when it has been sent.
pub(crate) async fn send_replies<W: AsyncWrite + Unpin>(
    writer: W,
    mut outbox: UnboundedReceiver<Reply>,
    activity: Arc<Activity>,
    shared: Arc<Shared>,
) -> io::Result<()> {
    let (stopping, stop_timeout) = (shared.stopping.clone(), shared.limits.stop_timeout * 3 / 4);
    let mut sender = Sender { writer, activity, stopping, client_timeout: shared.limits.client_timeout, stop_timeout };
    let (mut replies, mut together, mut sent) = (Vec::new(), Vec::new(), Vec::new());
    while outbox.recv_many(&mut replies, TOGETHER).await > 0 {
        let is_alone = replies.len() == 1;
        for reply in replies.drain(..) {
            match reply {
                Reply::Bytes { bytes, held, unanswered } => {
                    if !together.is_empty() && together.len() + bytes.len() > TOGETHER_BYTES {
                        sender.send(&together).await?;
                        together.clear();
                        sent.clear();
                    }
                    if is_alone || bytes.len() > TOGETHER_BYTES {
                        sender.send(&bytes).await?;
                        held.reuse(bytes);
                    } else {
                        together.extend_from_slice(&bytes);
                        sent.push((held, unanswered));
                    }
                }
                Reply::Broken(message) => {
                    sender.send(&together).await?;
                    return Err(io::Error::other(format!("a reply could not be completed: {message}")));
                }
            }
        }
        sender.send(&together).await?;
        together.clear();
        sent.clear();
        sender.flush().await?;
    }
    sender.shutdown().await
}

struct Sender<W> {
    writer: W,
    activity: Arc<Activity>,
    stopping: Stopping,
    client_timeout: Duration,
    stop_timeout: Duration,
}

impl<W: AsyncWrite + Unpin> Sender<W> {
    async fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.in_time(async |writer| writer.write(bytes).await).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                sent => bytes = &bytes[sent..],
            }
        }
        Ok(())
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.in_time(async |writer| writer.flush().await).await
    }

    async fn shutdown(&mut self) -> io::Result<()> {
        self.in_time(async |writer| writer.shutdown().await).await
    }

    /// Waits for a client that takes no replies, but not for ever, and not for long when the server stops.
    async fn in_time<T>(&mut self, sending: impl AsyncFnOnce(&mut W) -> io::Result<T>) -> io::Result<T> {
        let _waiting = self.activity.wait(Wait::Sending);
        tokio::select! {
            biased;
            sent = sending(&mut self.writer) => sent,
            () = tokio::time::sleep(self.client_timeout) => Err(late("it did not take its replies in time")),
            () = self.stopping.for_long(self.stop_timeout) => {
                Err(late("it did not take its replies before the server had to end"))
            }
        }
    }
}
