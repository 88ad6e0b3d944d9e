use crate::chip::{Chip, PAGE};
use crate::client::*;
use crate::server::Server;
use std::io::{Read, Write};
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

/// Sends writes in a thread, as many as the server takes: write `i` puts stamp `i` on page `page_of(i)`.
struct Flood {
    sent: Arc<AtomicU32>,
    thread: std::thread::JoinHandle<()>,
}

impl Flood {
    fn start(stream: &UnixStream, writes: u32, page_of: fn(u32) -> u64) -> Self {
        let (mut stream, sent) = (stream.try_clone().unwrap(), Arc::new(AtomicU32::new(0)));
        let counted = sent.clone();
        let thread = std::thread::spawn(move || {
            for i in 0..writes {
                let request = [header(WRITE, 0, i.into(), page_of(i) * PAGE, P), stamped(i)].concat();
                // A server that stops closes the connection.
                if stream.write_all(&request).is_err() {
                    return;
                }
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { sent, thread }
    }

    /// Waits until the server takes no more; returns how many writes were sent until then.
    fn until_it_waits(&self) -> u32 {
        let (started, mut last, mut since) = (Instant::now(), 0, Instant::now());
        while last == 0 || since.elapsed() < Duration::from_millis(150) {
            assert!(started.elapsed() < Duration::from_secs(20), "the server takes and takes");
            let now = self.sent.load(Ordering::SeqCst);
            if now != last {
                (last, since) = (now, Instant::now());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        last
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
    let server = Server::of(&Chip::new());
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
    assert!(started.elapsed() < Duration::from_secs(5), "stopping took {:?}", started.elapsed());
    drop(silent);
}

#[test]
fn a_full_queue_makes_its_client_wait_and_serves_another_one_in_turn() {
    const WRITES: u32 = 2000;
    let chip = Chip::new();
    let server = Server::of(&chip);
    let mut greedy = server.client();
    let mut other = server.client();
    let held = chip.hold();
    let flood = Flood::start(&greedy.stream, WRITES, |_| 0);
    let sent = flood.until_it_waits();
    assert!((256..WRITES).contains(&sent), "the server took {sent} writes while it could carry out none");
    // The server still talks to others: a third client is greeted, and the request of another one is taken.
    server.client();
    let cookie = other.send(READ, 0, 0, P, &[]);
    std::thread::sleep(Duration::from_millis(200));
    drop(held);
    assert_eq!(other.reply(), (cookie, 0));
    let before = stamp(&other.bytes(P as usize));
    assert!(before <= sent, "the read waited for {before} writes, {sent} of them sent before it");
    for i in 0..WRITES {
        assert_eq!(greedy.reply(), (i.into(), 0));
    }
    flood.thread.join().unwrap();
    assert_eq!(stamp(&other.read(0, P).unwrap()), WRITES - 1);
    server.stop();
}

#[test]
fn a_stop_carries_out_what_is_queued_and_refuses_the_rest() {
    let chip = Chip::new();
    let server = Server::of(&chip);
    let mut client = server.client();
    let mut idle = server.client();
    let handshaking = Client::connect(&server.path);
    let held = chip.hold();
    let flood = Flood::start(&client.stream, 600, u64::from);
    let sent = flood.until_it_waits();
    let ended = server.begin_stop();
    // The connections without requests end although the volume is busy.
    assert!(idle.is_closed() && { handshaking }.is_closed());
    drop(held);
    let (mut done, mut refused) = (Vec::new(), 0);
    let mut replies = Vec::new();
    // A socket that is closed with input left resets the connection once its replies are read.
    let _ = client.stream.read_to_end(&mut replies);
    for reply in replies.chunks(16) {
        assert_eq!((reply.len(), &reply[..4]), (16, &[0x67, 0x44, 0x66, 0x98][..]));
        let cookie = u64::from_be_bytes(reply[8..].try_into().unwrap());
        match u32::from_be_bytes(reply[4..8].try_into().unwrap()) {
            0 => done.push(cookie),
            error => {
                assert_eq!(error, ESHUTDOWN);
                refused += 1;
            }
        }
    }
    drop(client);
    flood.thread.join().unwrap();
    let outcome = ended().unwrap();
    assert_eq!((done.len() as u64, refused), (outcome.stopped[0].host_writes, 1), "of {sent} sent");
    assert!(done.len() >= 256, "only {} were carried out", done.len());
    assert!(outcome.stopped[0].with_checkpoint);
    let mut volume = chip.open(true);
    for i in done {
        let mut page = vec![0; P as usize];
        volume.read(i * PAGE, &mut page).unwrap();
        assert_eq!(u64::from(stamp(&page)), i);
    }
}
