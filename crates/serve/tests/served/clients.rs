use crate::chip::{Chip, PAGE};
use crate::client::*;
use crate::server::{Server, patient};
use margay_serve::Limits;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const P: u32 = PAGE as u32;

/// A page that says which write it is of.
fn stamped(stamp: u32) -> Vec<u8> {
    stamp.to_be_bytes().repeat(P as usize / 4)
}

fn stamp(page: &[u8]) -> u32 {
    assert!(page.chunks(4).all(|word| *word == page[..4]), "a page is of one write");
    u32::from_be_bytes(page[..4].try_into().unwrap())
}

/// The first one is for the volume's thread, so that those after it wait in its queue.
fn write_request(i: u32, page: u64) -> Vec<u8> {
    let flags = if i == 0 { FUA } else { 0 };
    [header(WRITE, flags, i.into(), page * PAGE, P), stamped(i)].concat()
}

/// Requests of a connection that can wait for a volume, and one that its connection cannot put into the queue.
const QUEUED: u32 = 256 + 1;

/// A server in which that many requests of a connection can wait.
fn with_queue(chip: &Chip) -> Server {
    let limits = Limits { max_requests: QUEUED as usize - 1, ..patient() };
    Server::start_limited(chip, limits)
}

/// Sends requests of a page each in a thread, as fast as the server takes them.
struct Flood {
    sent: Arc<AtomicU32>,
    thread: std::thread::JoinHandle<()>,
}

impl Flood {
    fn start(stream: &UnixStream, requests: impl Iterator<Item = Vec<u8>> + Send + 'static) -> Self {
        let (mut stream, sent) = (stream.try_clone().unwrap(), Arc::new(AtomicU32::new(0)));
        let counted = sent.clone();
        // A write that waits is woken late, when the socket is nearly empty; one that is tried again fills it.
        stream.set_write_timeout(Some(Duration::from_millis(1))).unwrap();
        let thread = std::thread::spawn(move || {
            for request in requests {
                let mut rest = &request[..];
                while !rest.is_empty() {
                    match stream.write(rest) {
                        Ok(sent) => rest = &rest[sent..],
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                        // A server that stops closes the connection.
                        Err(_) => return,
                    }
                }
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { sent, thread }
    }

    /// Waits until the server must have received this many requests, because the socket does not hold those sent, and
    /// has had a moment to put them into the queue.
    fn until_received(&self, requests: u32) {
        let (mut end, _unread) = UnixStream::pair().unwrap();
        end.set_nonblocking(true).unwrap();
        let held_by_socket = std::iter::repeat_with(|| end.write_all(&write_request(0, 0))).take_while(Result::is_ok);
        // A request of which the server has read the first bytes takes as much room there as before.
        let sent = requests + held_by_socket.count() as u32 - 1;
        let started = Instant::now();
        while self.sent.load(Ordering::SeqCst) < sent {
            let so_far = self.sent.load(Ordering::SeqCst);
            assert!(started.elapsed() < Duration::from_secs(20), "{so_far} requests were sent, not {sent}");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn two_clients_see_the_writes_of_each_other() {
    let server = Server::of(&Chip::new());
    let (mut one, mut other) = (server.client(), server.client());
    for round in 1..=50 {
        one.write(0, 0, &stamped(round)).unwrap();
        assert_eq!(stamp(&other.read(0, P).unwrap()), round);
        other.write(FUA, PAGE, &stamped(round + 1000)).unwrap();
        assert_eq!(stamp(&one.read(PAGE, P).unwrap()), round + 1000);
    }
    server.stop();
}

#[test]
fn a_client_that_disconnects_in_the_middle_of_a_write_changes_nothing() {
    let server = Server::of(&Chip::new());
    let mut witness = server.client();
    witness.write(0, 0, &stamped(1)).unwrap();
    let mut broken = server.client();
    let half = [header(WRITE, FUA, 1, 0, 2 * P), stamped(2), vec![2; 100]].concat();
    broken.stream.write_all(&half).unwrap();
    drop(broken);
    let mut broken = server.client();
    broken.stream.write_all(&header(WRITE, 0, 1, 0, P)[..20]).unwrap();
    drop(broken);
    // One that leaves with replies still to come.
    let mut hasty = server.client();
    for i in 0..100 {
        hasty.send(READ, 0, i * PAGE, 64 * P, &[]);
    }
    drop(hasty);
    assert_eq!(stamp(&witness.read(0, P).unwrap()), 1);
    assert_eq!(stamp(&server.client().read(0, P).unwrap()), 1);
    assert_eq!(server.stop().stopped[0].host_writes, 1);
}

#[test]
fn a_client_that_does_not_read_its_replies_stops_neither_another_client_nor_the_server() {
    let server = Server::start_limited(&Chip::new(), Limits::default());
    let mut silent = server.client();
    for i in 0..24 {
        // More than any socket holds.
        silent.send(READ, 0, i * PAGE, 256 * P, &[]);
    }
    let mut client = server.client();
    let started = Instant::now();
    for i in 1..=100 {
        client.write(0, 0, &stamped(i)).unwrap();
        assert_eq!(stamp(&client.read(0, P).unwrap()), i);
    }
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    let started = Instant::now();
    server.stop();
    assert!(started.elapsed() < Duration::from_secs(2), "stopping took {:?}", started.elapsed());
    drop(silent);
}

#[test]
fn a_write_that_waits_for_the_device_holds_up_no_greeting_and_the_requests_of_others_follow_it() {
    let chip = Chip::new();
    let server = Server::of(&chip);
    let (mut one, mut other) = (server.client(), server.client());
    one.write(0, 0, &stamped(1)).unwrap();
    let held = chip.hold();
    // Carried out by whoever received it, and all that came with it.
    one.stream.write_all(&(2..40).flat_map(|i| write_request(i, 0)).collect::<Vec<_>>()).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    other.send(READ, 0, 0, P, &[]);
    let mut third = server.client();
    third.stream.write_all(&write_request(100, 1)).unwrap();
    drop(held);
    assert_eq!(other.reply().1, 0);
    assert!((2..40).contains(&stamp(&other.bytes(P as usize))), "between two batches");
    for i in 2..40 {
        assert_eq!(one.reply(), (i, 0));
    }
    assert_eq!(third.reply(), (100, 0));
    assert_eq!(server.stop().stopped[0].host_writes, 40);
}

#[test]
fn a_client_with_many_requests_waits_and_another_one_has_its_turn_between_them() {
    const WRITES: u32 = 2000;
    const OTHERS: u32 = 200;
    let chip = Chip::new();
    let server = with_queue(&chip);
    let (mut greedy, mut other) = (server.client(), server.client());
    let held = chip.hold();
    let flood = Flood::start(&greedy.stream, (0..WRITES).map(|i| write_request(i, 0)));
    flood.until_received(QUEUED);
    let read = header(READ, 0, 7, 0, P);
    let requests = std::iter::once(read).chain((0..OTHERS).map(|i| write_request(i, 1)));
    let others = Flood::start(&other.stream, requests);
    others.until_received(1);
    assert!(flood.sent.load(Ordering::SeqCst) < WRITES, "the server takes what it can neither carry out nor queue");
    // The server itself does not wait: another client is greeted.
    server.client();
    drop(held);
    assert_eq!(other.reply(), (7, 0));
    let before = stamp(&other.bytes(P as usize));
    assert!(before <= 1, "the read had to wait for {before} writes of the other client");
    for i in 0..WRITES {
        assert_eq!(greedy.reply(), (i.into(), 0));
    }
    for i in 0..OTHERS {
        assert_eq!(other.reply(), (i.into(), 0));
    }
    flood.thread.join().unwrap();
    others.thread.join().unwrap();
    assert_eq!(stamp(&other.read(0, P).unwrap()), WRITES - 1);
    server.stop();
}

#[test]
fn a_stop_carries_out_what_is_queued_and_refuses_the_rest() {
    let chip = Chip::new();
    let server = with_queue(&chip);
    let mut client = server.client();
    let mut idle = server.client();
    let handshaking = Client::connect(&server.path);
    let held = chip.hold();
    let flood = Flood::start(&client.stream, (0..600).map(|i| write_request(i, i.into())));
    flood.until_received(QUEUED);
    let ended = server.begin_stop();
    // The connections without requests end although the volume is busy.
    assert!(idle.is_closed() && { handshaking }.is_closed());
    drop(held);
    let (mut done, mut refused) = (0, 0);
    let mut replies = Vec::new();
    // A socket that is closed with input left resets the connection once its replies are read.
    let _ = client.stream.read_to_end(&mut replies);
    for reply in replies.chunks(16) {
        assert_eq!((reply.len(), &reply[..4]), (16, &[0x67, 0x44, 0x66, 0x98][..]));
        let cookie = u64::from_be_bytes(reply[8..].try_into().unwrap());
        match u32::from_be_bytes(reply[4..8].try_into().unwrap()) {
            0 => {
                assert_eq!(cookie, done, "carried out in order, without a gap");
                done += 1;
            }
            error => {
                // It is answered at once, before those in the queue.
                assert_eq!(error, ESHUTDOWN);
                refused += 1;
            }
        }
    }
    drop(client);
    flood.thread.join().unwrap();
    let outcome = ended().unwrap();
    assert!(done >= u64::from(QUEUED) - 1 && refused <= 1, "{done} done, {refused} refused");
    assert_eq!(outcome.stopped[0].host_writes, done);
    assert!(outcome.stopped[0].with_checkpoint);
    let mut volume = chip.open(true);
    for i in 0..done {
        let mut page = vec![0; P as usize];
        volume.read(i * PAGE, &mut page).unwrap();
        assert_eq!(u64::from(stamp(&page)), i);
    }
}
