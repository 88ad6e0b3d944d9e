use super::*;
use crate::queue::{QueueReceiver, Received, queue};
use tokio::io::DuplexStream;
use tokio::task::{JoinHandle, yield_now};

const SESSION: Session = Session { export: 0, structured: false, allocation: false };

/// A connection that is past its handshake, its client, and the other end of a queue with few places.
struct Connected {
    client: DuplexStream,
    queue: QueueReceiver<Job>,
    stop: watch::Sender<bool>,
    task: JoinHandle<io::Result<()>>,
}

fn connect(max_waiting: usize, max_requests: usize) -> Connected {
    let (client, stream) = tokio::io::duplex(1 << 10);
    let (sender, queue) = queue(max_waiting);
    let (stop, stopping) = watch::channel(false);
    let shared =
        Shared { exports: Vec::new(), queues: vec![sender], tls: None, requires_tls: false, max_requests, stopping };
    let task = tokio::spawn(transmit(stream, SESSION, Vec::new(), Arc::new(shared)));
    Connected { client, queue, stop, task }
}

fn flush(cookie: u64) -> Vec<u8> {
    [&0x2560_9513u32.to_be_bytes()[..], &[0, 0, 0, 3], &cookie.to_be_bytes(), &[0; 12]].concat()
}

/// Lets all tasks run until each of them waits: they share this thread.
async fn settle() {
    for _ in 0..1000 {
        yield_now().await;
    }
}

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test);
}

async fn reply(client: &mut DuplexStream) -> (u64, u32) {
    let mut bytes = [0; 16];
    client.read_exact(&mut bytes).await.unwrap();
    assert_eq!(bytes[..4], 0x6744_6698u32.to_be_bytes());
    let error = u32::from_be_bytes(bytes[4..8].try_into().unwrap());
    (u64::from_be_bytes(bytes[8..].try_into().unwrap()), error)
}

/// What a volume does with a flush.
fn answer(queue: &QueueReceiver<Job>) -> u64 {
    answer_with(queue, 0)
}

/// The same, with a reply that is longer by some bytes.
fn answer_with(queue: &QueueReceiver<Job>, len: usize) -> u64 {
    let Received::Request(job) = queue.receive(Some(Duration::ZERO)) else { panic!("no request is in the queue") };
    let mut bytes = Vec::new();
    job.replies.done(job.request.cookie, &mut bytes);
    bytes.resize(bytes.len() + len, 0);
    job.reply_to.send(Reply { bytes, unanswered: Some(job.unanswered) }).unwrap();
    job.request.cookie
}

/// Sends requests until the connection takes no more; returns how many it took.
async fn send_until_full(client: &mut DuplexStream) -> u64 {
    let mut sent = 0;
    loop {
        let request = flush(sent);
        let mut sending = std::pin::pin!(client.write_all(&request));
        tokio::select! {
            biased;
            result = &mut sending => result.unwrap(),
            () = settle() => return sent,
        }
        sent += 1;
    }
}

#[test]
fn nothing_is_read_from_a_client_while_the_queue_is_full() {
    run(async {
        let Connected { mut client, queue, stop: _stop, .. } = connect(2, 100);
        let taken = send_until_full(&mut client).await;
        // Two are in the queue and one waits; the rest is in buffers.
        assert!(taken < 3000, "{taken}");
        assert_eq!((answer(&queue), answer(&queue)), (0, 1));
        assert!(matches!(queue.receive(Some(Duration::ZERO)), Received::Nothing), "no more than fit were put in");
        settle().await;
        assert_eq!((answer(&queue), answer(&queue)), (2, 3), "the connection was woken");
        for cookie in 0..4 {
            assert_eq!(reply(&mut client).await, (cookie, 0));
        }
    });
}

#[test]
fn nothing_is_read_from_a_client_that_does_not_read_its_replies() {
    run(async {
        let Connected { mut client, queue, stop: _stop, .. } = connect(100, 3);
        client.write_all(&[flush(0), flush(1), flush(2), flush(3)].concat()).await.unwrap();
        settle().await;
        // The first reply does not fit into the buffers.
        assert_eq!([answer_with(&queue, 2 << 10), answer(&queue), answer(&queue)], [0, 1, 2]);
        settle().await;
        assert!(matches!(queue.receive(Some(Duration::ZERO)), Received::Nothing), "three have no reply yet");
        assert_eq!(reply(&mut client).await, (0, 0));
        client.read_exact(&mut [0; 2 << 10]).await.unwrap();
        settle().await;
        assert_eq!(answer(&queue), 3);
        for cookie in 1..4 {
            assert_eq!(reply(&mut client).await, (cookie, 0));
        }
    });
}

#[test]
fn a_request_that_waits_when_the_server_stops_is_refused_and_those_in_the_queue_are_answered() {
    run(async {
        let Connected { mut client, queue, stop, task } = connect(2, 100);
        client.write_all(&[flush(0), flush(1), flush(2), flush(3)].concat()).await.unwrap();
        settle().await;
        stop.send_replace(true);
        assert_eq!(reply(&mut client).await, (2, 108));
        assert_eq!((answer(&queue), answer(&queue)), (0, 1));
        assert_eq!((reply(&mut client).await, reply(&mut client).await), ((0, 0), (1, 0)));
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0, "the connection is closed");
        task.await.unwrap().unwrap();
        assert!(matches!(queue.receive(Some(Duration::ZERO)), Received::Stop), "no sender is left");
    });
}

#[test]
fn a_connection_ends_when_the_thread_of_its_volume_does() {
    run(async {
        let Connected { mut client, queue, task, stop: _stop } = connect(2, 100);
        client.write_all(&[flush(0), flush(1), flush(2)].concat()).await.unwrap();
        settle().await;
        drop(queue);
        let error = task.await.unwrap().unwrap_err();
        assert!(error.to_string().contains("the thread of the volume has ended"), "{error}");
    });
}
