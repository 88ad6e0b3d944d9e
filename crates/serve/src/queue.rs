//! The queue between the connections of a volume and its thread: bounded, first come first served. A connection that
//! finds it full waits for a place without holding up others, and is woken when the thread takes a request.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A queue in which `max_waiting` requests can wait.
pub(crate) fn queue<T>(max_waiting: usize) -> (QueueSender<T>, QueueReceiver<T>) {
    let (messages, inbox) = channel();
    let places = Arc::new(Semaphore::new(max_waiting));
    (QueueSender { places: places.clone(), messages }, QueueReceiver { places, inbox })
}

enum Message<T> {
    Request(T, OwnedSemaphorePermit),
    Stop,
}

/// The receiving thread has ended.
#[derive(Debug)]
pub(crate) struct Closed;

/// The connections' end.
#[derive(Debug)]
pub(crate) struct QueueSender<T> {
    /// One permit for each place; the permits of a semaphore are given in the order of asking.
    places: Arc<Semaphore>,
    /// Unbounded by itself: a message with a request holds its place.
    messages: Sender<Message<T>>,
}

impl<T> Clone for QueueSender<T> {
    fn clone(&self) -> Self {
        Self { places: self.places.clone(), messages: self.messages.clone() }
    }
}

impl<T> QueueSender<T> {
    /// Waits for a place, then puts the request into it. Nothing is sent if the future is dropped before it is ready.
    pub async fn send(&self, request: T) -> Result<(), Closed> {
        let place = self.places.clone().acquire_owned().await.map_err(|_| Closed)?;
        self.messages.send(Message::Request(request, place)).map_err(|_| Closed)
    }

    /// Asks the thread to stop after the requests that are in the queue. Needs no place.
    pub fn stop(&self) {
        // A thread that has ended needs no message.
        let _ = self.messages.send(Message::Stop);
    }
}

/// What the thread received.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received<T> {
    Request(T),
    /// No request came in the time given.
    Nothing,
    Stop,
}

/// The thread's end.
#[derive(Debug)]
pub(crate) struct QueueReceiver<T> {
    places: Arc<Semaphore>,
    inbox: Receiver<Message<T>>,
}

impl<T> QueueReceiver<T> {
    /// The next message; waits for it no longer than `timeout`, if there is one. Taking a request frees its place.
    pub fn receive(&self, timeout: Option<Duration>) -> Received<T> {
        let message = match timeout {
            Some(timeout) => self.inbox.recv_timeout(timeout),
            None => self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match message {
            Ok(Message::Request(request, place)) => {
                drop(place);
                Received::Request(request)
            }
            Err(RecvTimeoutError::Timeout) => Received::Nothing,
            Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => Received::Stop,
        }
    }
}

impl<T> Drop for QueueReceiver<T> {
    /// Wakes the connections that wait for a place; they will get none.
    fn drop(&mut self) {
        self.places.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    const NOW: Option<Duration> = Some(Duration::ZERO);

    #[test]
    fn a_full_queue_makes_senders_wait_and_gives_places_in_the_order_of_asking() {
        let (sender, receiver) = queue(2);
        for request in 0..2 {
            assert!(matches!(poll(pin!(sender.send(request))), Poll::Ready(Ok(()))));
        }
        let (mut first, mut second) = (pin!(sender.send(10)), pin!(sender.send(20)));
        assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
        assert_eq!(receiver.receive(NOW), Received::Request(0));
        assert!(poll(second.as_mut()).is_pending(), "the place is for the one that asked first");
        assert!(poll(pin!(sender.send(30))).is_pending(), "a newcomer does not take it either");
        assert!(poll(first.as_mut()).is_ready());
        for expected in [1, 10] {
            assert_eq!(receiver.receive(NOW), Received::Request(expected));
        }
        assert!(poll(second.as_mut()).is_ready());
        assert_eq!((receiver.receive(NOW), receiver.receive(NOW)), (Received::Request(20), Received::Nothing));
    }

    #[test]
    fn a_sender_that_waits_is_woken_by_the_thread_that_takes_a_request() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (sender, receiver) = queue(1);
        let taking = std::thread::spawn(move || [receiver.receive(None), receiver.receive(None)]);
        // Without a timer in the runtime only the thread can wake what waits.
        runtime.block_on(async {
            sender.send(1).await.unwrap();
            sender.send(2).await.unwrap();
        });
        assert_eq!(taking.join().unwrap(), [Received::Request(1), Received::Request(2)]);
    }

    #[test]
    fn stopping_needs_no_place_and_comes_after_what_waits() {
        let (sender, receiver) = queue(1);
        assert!(poll(pin!(sender.send(1))).is_ready());
        sender.stop();
        assert_eq!((receiver.receive(None), receiver.receive(None)), (Received::Request(1), Received::Stop));
    }

    #[test]
    fn senders_that_wait_learn_that_the_thread_has_ended() {
        let (sender, receiver) = queue(1);
        assert!(poll(pin!(sender.send(1))).is_ready());
        let mut waiting = pin!(sender.send(2));
        assert!(poll(waiting.as_mut()).is_pending());
        drop(receiver);
        assert!(matches!(poll(waiting), Poll::Ready(Err(Closed))));
        assert!(matches!(poll(pin!(sender.send(3))), Poll::Ready(Err(Closed))));
    }

    #[test]
    fn a_sender_that_gives_up_waiting_leaves_nothing_behind() {
        let (sender, receiver) = queue(1);
        assert!(poll(pin!(sender.send(1))).is_ready());
        assert!(poll(pin!(sender.send(2))).is_pending());
        assert_eq!(receiver.receive(NOW), Received::Request(1));
        assert_eq!(receiver.receive(NOW), Received::Nothing);
        assert!(poll(pin!(sender.send(3))).is_ready());
        assert_eq!(receiver.receive(NOW), Received::Request(3));
    }
}
