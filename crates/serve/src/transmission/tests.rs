use super::*;
use crate::activity::Activities;
use crate::limits::Limits;
use crate::queue::{Inbox, Received, queue};
use std::time::Instant;
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, yield_now};

const SESSION: Session = Session { export: 0, structured: false, allocation: false };
const K: usize = 1 << 10;

/// A connection that is past its handshake, its client, and the thread's end of the queue.
struct Connected {
    client: DuplexStream,
    inbox: Inbox<Job<'static>>,
    stop: watch::Sender<Option<Instant>>,
    task: JoinHandle<io::Result<()>>,
}

fn connect(max_requests: usize) -> Connected {
    connect_with(Limits { max_requests, stop_timeout: Duration::from_secs(100), ..Limits::default() })
}

fn connect_with(limits: Limits) -> Connected {
    let (client, stream) = tokio::io::duplex(K);
    let (queue, inbox) = queue();
    let (stop, stopping) = watch::channel(None);
    let export = Export {
        name: String::new(),
        description: String::new(),
        size_bytes: 1 << 30,
        preferred_bytes: 4096,
        fast_zero_bytes: 4096,
        read_only: false,
    };
    let shared = Shared {
        exports: vec![export],
        queues: vec![queue],
        workers: Vec::new(),
        tls: None,
        requires_tls: false,
        memory: limits.memory().unwrap(),
        limits,
        stopping: Stopping(stopping),
    };
    let activity = Activities::new().start();
    let agreed = Agreed { session: SESSION, input: Vec::new() };
    let task = tokio::spawn(transmit(stream, agreed, Arc::new(shared), activity));
    Connected { client, inbox, stop, task }
}

fn request(command: u8, cookie: u64, offset: u64, len_bytes: u32) -> Vec<u8> {
    let head = [&0x2560_9513u32.to_be_bytes()[..], &[0, 0, 0, command], &cookie.to_be_bytes()].concat();
    [&head[..], &offset.to_be_bytes(), &len_bytes.to_be_bytes()].concat()
}

fn flush(cookie: u64) -> Vec<u8> {
    request(3, cookie, 0, 0)
}

fn write(cookie: u64, len: usize) -> Vec<u8> {
    [request(1, cookie, 0, len as u32), vec![7; len]].concat()
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

fn next(inbox: &mut Inbox<Job<'static>>) -> Option<Job<'static>> {
    match inbox.next(None, Some(Duration::ZERO)) {
        Received::Job { job, .. } => Some(job),
        Received::Nothing | Received::Entered { .. } | Received::Stop => None,
    }
}

/// What a volume does with a request without data.
fn answer(inbox: &mut Inbox<Job<'static>>) -> u64 {
    answer_with(inbox, 0)
}

/// The same, with a reply that is longer by some bytes.
fn answer_with(inbox: &mut Inbox<Job<'static>>, len: usize) -> u64 {
    let job = next(inbox).expect("no request is in the queue");
    assert!(job.is_last);
    let mut bytes = Vec::new();
    job.client.replies.done(job.cookie, &mut bytes);
    bytes.resize(bytes.len() + len, 0);
    job.client.send(bytes, job.held, job.unanswered);
    job.cookie
}

#[test]
fn nothing_is_read_from_a_client_that_does_not_read_its_replies() {
    run(async {
        let Connected { mut client, mut inbox, stop: _stop, .. } = connect(3);
        client.write_all(&[flush(0), flush(1), flush(2), flush(3)].concat()).await.unwrap();
        settle().await;
        // The first reply does not fit into the buffers.
        assert_eq!([answer_with(&mut inbox, 2 * K), answer(&mut inbox), answer(&mut inbox)], [0, 1, 2]);
        settle().await;
        assert!(next(&mut inbox).is_none(), "three have no reply yet");
        assert_eq!(reply(&mut client).await, (0, 0));
        client.read_exact(&mut [0; 2 * K]).await.unwrap();
        settle().await;
        assert_eq!(answer(&mut inbox), 3);
        for cookie in 1..4 {
            assert_eq!(reply(&mut client).await, (cookie, 0));
        }
    });
}

#[test]
fn nothing_is_read_for_which_there_is_no_memory() {
    let limits = Limits {
        max_requests: 1000,
        max_connection_memory_bytes: 512 << 10,
        max_memory_bytes: 1 << 20,
        max_connections: 1,
        ..Limits::default()
    };
    run(async {
        let Connected { mut client, mut inbox, stop: _stop, .. } = connect_with(limits);
        let sending = tokio::spawn(async move {
            for cookie in 0..20 {
                client.write_all(&write(cookie, 60 * K)).await.unwrap();
            }
            client
        });
        settle().await;
        let mut jobs: Vec<_> = std::iter::from_fn(|| next(&mut inbox)).collect();
        assert_eq!(jobs.len(), 8, "those for which there is memory");
        assert!(jobs.iter().all(|job| matches!(&job.work, Work::Write(data) if **data == [7; 60 * K])));
        settle().await;
        assert!(next(&mut inbox).is_none());
        jobs.truncate(6);
        settle().await;
        jobs.extend(std::iter::from_fn(|| next(&mut inbox)));
        assert_eq!(jobs.len(), 8, "two were received in place of two");
        while jobs.pop().is_some() {
            settle().await;
            jobs.extend(next(&mut inbox));
        }
        assert!(sending.is_finished());
    });
}

#[test]
fn a_long_request_is_put_into_the_queue_in_pieces_that_end_with_pages() {
    let limits = Limits { max_connections: 256, max_memory_bytes: 64 << 20, ..Limits::default() };
    run(async {
        let Connected { mut client, mut inbox, stop: _stop, .. } = connect_with(limits);
        const OFFSET: u64 = 4096 * 3 + 512;
        const LEN: u32 = 200 << 10;
        let mut pieces = async |command: u8| {
            client.write_all(&request(command, 5, OFFSET, LEN)).await.unwrap();
            if command == 1 {
                client.write_all(&vec![9; LEN as usize]).await.unwrap();
            }
            settle().await;
            std::iter::from_fn(|| next(&mut inbox)).collect::<Vec<_>>()
        };
        let range = |job: &Job| (job.offset, job.offset + job.len_bytes);
        for command in [0, 1] {
            let mut jobs = pieces(command).await;
            if command == 0 {
                // A simple reply has no place for an error behind its head.
                let first = jobs.remove(0);
                assert!(matches!(first.work, Work::Verify) && range(&first) == (OFFSET, OFFSET + u64::from(LEN)));
            }
            let ranges: Vec<_> = jobs.iter().map(range).collect();
            let (first, last) = (ranges[0], ranges[ranges.len() - 1]);
            assert_eq!((first.0, last.1), (OFFSET, OFFSET + u64::from(LEN)), "{ranges:?}");
            assert!(ranges.len() > 2 && ranges.windows(2).all(|pair| pair[0].1 == pair[1].0 && pair[0].1 % 4096 == 0));
            let ends: Vec<_> = jobs.iter().filter(|job| job.is_last && job.unanswered.is_some()).collect();
            assert!(ends.len() == 1 && jobs.last().unwrap().is_last);
            // A piece of a read brings the head, and the first of either is recorded.
            let heads = jobs.iter().filter(|job| matches!(job.work, Work::Read(Form::Whole { head: Some(LEN) })));
            assert_eq!(heads.count(), usize::from(command == 0));
        }
        let zeros = pieces(6).await;
        assert_eq!(zeros.iter().map(range).collect::<Vec<_>>(), [(OFFSET, OFFSET + u64::from(LEN))], "needs no memory");
    });
}

#[test]
fn a_request_that_waits_when_the_server_stops_is_refused_and_those_in_the_queue_are_answered() {
    run(async {
        let Connected { mut client, mut inbox, stop, task } = connect(2);
        client.write_all(&[flush(0), flush(1), flush(2), flush(3)].concat()).await.unwrap();
        settle().await;
        stop.send_replace(Some(Instant::now()));
        settle().await;
        assert_eq!((answer(&mut inbox), answer(&mut inbox)), (0, 1));
        assert_eq!((reply(&mut client).await, reply(&mut client).await), ((0, 0), (1, 0)));
        let refused = next(&mut inbox).unwrap();
        assert!(matches!(refused.work, Work::Refuse(Refusal { errno: Errno::Shutdown, .. })) && refused.cookie == 2);
        drop(refused);
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0, "the connection is closed");
        task.await.unwrap().unwrap();
    });
}

#[test]
fn a_connection_ends_when_the_thread_of_its_volume_does() {
    run(async {
        let Connected { mut client, inbox, task, stop: _stop } = connect(2);
        drop(inbox);
        client.write_all(&flush(0)).await.unwrap();
        let error = task.await.unwrap().unwrap_err();
        assert!(error.to_string().contains("the thread of the volume has ended"), "{error}");
    });
}

#[test]
fn what_a_client_left_in_the_queue_is_forgotten_when_it_takes_no_replies() {
    run(async {
        let limits = Limits { client_timeout: Duration::from_millis(50), ..Limits::default() };
        let Connected { mut client, mut inbox, stop: _stop, task } = connect_with(limits);
        client.write_all(&[flush(0), flush(1), flush(2)].concat()).await.unwrap();
        settle().await;
        // Its reply does not fit into the buffers.
        answer_with(&mut inbox, 2 * K);
        let error = task.await.unwrap().unwrap_err();
        assert!(error.to_string().contains("did not take its replies in time"), "{error}");
        assert!(next(&mut inbox).is_none());
    });
}
