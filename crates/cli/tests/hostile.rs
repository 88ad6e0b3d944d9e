//! The server against clients that mean harm or are stuck, by raw sockets: what they can take of its memory and time, and
//! that others are served meanwhile.

#[path = "../../serve/tests/served/client.rs"]
#[allow(dead_code, reason = "a test takes what it needs")]
mod client;
mod common;

use client::*;
use common::{MARGAY, has, run};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
/// The longest read and write.
const LONGEST: u32 = 32 << 20;

struct Server {
    child: Child,
    socket: PathBuf,
    _folder: TempDir,
}

impl Server {
    /// Serves a new image of 64 MiB in memory.
    fn start(args: &[&str]) -> Self {
        Self::start_with(args, Stdio::null())
    }

    fn start_with(args: &[&str], stderr: impl Into<Stdio>) -> Self {
        let memory = Path::new("/dev/shm");
        let folder = if memory.exists() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let (image, socket) = (folder.path().join("flash.img"), folder.path().join("nbd.sock"));
        run(MARGAY, &["format", &image.display().to_string(), "--size", "64M"]);
        let child = Command::new(MARGAY)
            .args(["serve".as_ref(), image.as_os_str(), "--no-sync".as_ref(), "--unix".as_ref(), socket.as_os_str()])
            .args(args)
            .stderr(stderr)
            .spawn()
            .unwrap();
        let server = Self { child, socket, _folder: folder };
        let started = Instant::now();
        while UnixStream::connect(&server.socket).is_err() {
            assert!(started.elapsed() < Duration::from_secs(20), "the server does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }

    fn client(&self) -> Client<UnixStream> {
        let mut client = Client::connect(&self.socket);
        client.go("").unwrap();
        client
    }

    /// The most memory that the server has had, in MiB.
    fn peak_mib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
    }

    /// Another client is served.
    fn serves_others(&self) {
        let started = Instant::now();
        let mut client = self.client();
        for i in 0..20 {
            client.write(0, i * 4096, &[i as u8 + 1; 4096]).unwrap();
            assert_eq!(client.read(i * 4096 + 7, 512).unwrap(), [i as u8 + 1; 512]);
        }
        assert_eq!(client.read(0, 4 << 20).unwrap().len(), 4 << 20);
        client.call(FLUSH, 0, 0, 0).unwrap();
        assert!(started.elapsed() < Duration::from_secs(5), "another client waited for {:?}", started.elapsed());
    }

    /// Asks the server to stop; returns how long it took.
    fn terminate(&mut self) -> Duration {
        let started = Instant::now();
        run("kill", &["-TERM", &self.child.id().to_string()]);
        assert!(self.child.wait().unwrap().success());
        started.elapsed()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends as many of these bytes as the server takes before it takes none for a while; whether it took all.
fn send_what_is_taken(stream: &mut UnixStream, bytes: &[u8]) -> bool {
    stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    stream.write_all(bytes).is_ok()
}

/// Reads of 32 MiB, one behind the other, whose replies nobody takes.
fn silent_reader(server: &Server) -> Client<UnixStream> {
    let mut client = server.client();
    for i in 0..60 {
        client.send(READ, 0, i % 20 * MIB, LONGEST, &[]);
    }
    client
}

/// All but the end of a write of 32 MiB.
fn half_a_write(server: &Server) -> Client<UnixStream> {
    let mut client = server.client();
    client.stream.write_all(&header(WRITE, 0, 1, 8 * MIB, LONGEST)).unwrap();
    send_what_is_taken(&mut client.stream, &vec![3; LONGEST as usize - 1]);
    client
}

#[test]
fn clients_that_read_no_replies_or_send_half_writes_take_a_bounded_part_of_the_memory() {
    let server = Server::start(&[]);
    server.serves_others();
    let idle_mib = server.peak_mib();
    let _one = silent_reader(&server);
    server.serves_others();
    let one_mib = server.peak_mib() - idle_mib;
    assert!(one_mib < 16 + 16, "one client took {one_mib} MiB");
    let _seven = [(); 7].map(|()| silent_reader(&server));
    server.serves_others();
    let eight_mib = server.peak_mib() - idle_mib;
    assert!(eight_mib < 8 * 16 + 32, "eight clients took {eight_mib} MiB");
    let _halves = [(); 4].map(|()| half_a_write(&server));
    server.serves_others();
    let twelve_mib = server.peak_mib() - idle_mib;
    assert!(twelve_mib < 12 * 16 + 32, "twelve clients took {twelve_mib} MiB");
}

#[test]
fn the_limit_on_memory_holds_for_all_connections_together() {
    let server = Server::start(&["--max-memory", "24M", "--max-connections", "12"]);
    server.serves_others();
    let idle_mib = server.peak_mib();
    let _readers = [(); 7].map(|()| silent_reader(&server));
    let _writers = [(); 4].map(|()| half_a_write(&server));
    server.serves_others();
    let taken_mib = server.peak_mib() - idle_mib;
    assert!(taken_mib < 24 + 16, "eleven clients took {taken_mib} MiB");
    let image = server.socket.with_file_name("flash.img").display().to_string();
    let mut refused = Command::new(MARGAY);
    let refused = refused.args(["serve", &image, "--max-memory", "1M", "--read-only"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(text.contains("too little for 64 connections") && text.contains("--max-memory"), "{text}");
}

#[test]
fn a_request_of_the_longest_kind_is_carried_out_however_little_memory_there_is() {
    let server = Server::start(&["--max-memory", "2M", "--max-connection-memory", "128K", "--max-connections", "4"]);
    let mut client = server.client();
    let data: Vec<u8> = (0..LONGEST).map(|i| (i >> 9) as u8 | 1).collect();
    client.write(FUA, 4096 * 3 + 5, &data).unwrap();
    assert!(client.read(4096 * 3 + 5, LONGEST).unwrap() == data);
}

#[test]
fn a_long_zeroing_is_interrupted_by_the_requests_of_others() {
    let server = Server::start(&[]);
    let (mut long, mut other) = (server.client(), server.client());
    for _ in 0..60 {
        long.send(WRITE_ZEROES, NO_HOLE, 0, LONGEST, &[]);
    }
    for i in 0..10 {
        let started = Instant::now();
        other.read(40 * MIB + i * 512, 512).unwrap();
        assert!(started.elapsed() < Duration::from_secs(2), "read {i} waited for {:?}", started.elapsed());
    }
    long.stream.set_nonblocking(true).unwrap();
    let mut replies = [0; 60 * 16];
    let replied = long.stream.read(&mut replies).unwrap_or(0);
    assert!(replied < replies.len(), "the zeroings were over before the reads: this showed nothing");
}

/// Whether the server closes a connection within ten seconds, and not before half a second has passed.
fn is_dropped_in_time(mut stream: UnixStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let started = Instant::now();
    let ended = match stream.read_to_end(&mut Vec::new()) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    };
    ended && started.elapsed() > Duration::from_millis(500)
}

#[test]
fn clients_that_get_stuck_are_disconnected_and_idle_ones_are_not() {
    let server = Server::start(&["--client-timeout", "1", "--handshake-timeout", "1"]);
    let mut idle = server.client();
    let mut greeted = UnixStream::connect(&server.socket).unwrap();
    greeted.write_all(&[0, 0]).unwrap();
    let mut half_a_header = server.client();
    half_a_header.stream.write_all(&header(READ, 0, 1, 0, 512)[..20]).unwrap();
    let mut half_a_payload = server.client();
    half_a_payload.stream.write_all(&[header(WRITE, 0, 1, 0, 8192), vec![1; 5000]].concat()).unwrap();
    let silent = silent_reader(&server);
    // One after the other: the time of each has begun.
    let started = Instant::now();
    assert!(is_dropped_in_time(greeted));
    for mut stuck in [half_a_header.stream, half_a_payload.stream] {
        stuck.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        assert_eq!(stuck.read_to_end(&mut Vec::new()).unwrap_or(0), 0);
    }
    assert!(started.elapsed() < Duration::from_secs(10));
    std::thread::sleep(Duration::from_millis(1500).saturating_sub(started.elapsed()));
    // What was on its way is there, the rest is not.
    let mut silent = silent.stream;
    let taken = std::iter::from_fn(|| silent.read(&mut [0; 1 << 16]).ok().filter(|len| *len > 0)).sum::<usize>();
    assert!(taken < LONGEST as usize, "{taken}");
    assert_eq!(idle.read(0, 3).unwrap(), [0; 3]);
}

#[test]
fn as_many_stuck_clients_as_there_are_places_keep_nobody_out() {
    let server = Server::start(&[]);
    let stuck: Vec<_> = (0..64)
        .map(|_| {
            let mut client = server.client();
            client.stream.write_all(&header(READ, 0, 1, 0, 512)[..20]).unwrap();
            client
        })
        .collect();
    server.serves_others();
    drop(stuck);
    let greeted: Vec<_> = (0..64).map(|_| UnixStream::connect(&server.socket).unwrap()).collect();
    server.serves_others();
    drop(greeted);
}

#[test]
fn the_server_stops_soon_whatever_its_clients_do() {
    let mut server = Server::start(&[]);
    let _silent = silent_reader(&server);
    let _half = half_a_write(&server);
    let mut busy = server.client();
    for _ in 0..60 {
        busy.send(WRITE_ZEROES, NO_HOLE, 0, LONGEST, &[]);
    }
    let mut header_only = server.client();
    header_only.stream.write_all(&header(WRITE, 0, 1, 0, 512)[..27]).unwrap();
    let _greeted = UnixStream::connect(&server.socket).unwrap();
    let took = server.terminate();
    assert!(took < Duration::from_secs(3), "{took:?}");
    let image = server.socket.with_file_name("flash.img").display().to_string();
    let report = run(MARGAY, &["check", &image]);
    assert!(report.ends_with("clean\n"), "{report}");
}

#[test]
fn replies_are_not_lost_when_the_server_stops_while_a_client_sends() {
    let image = tempfile::tempdir().unwrap();
    let path = image.path().join("flash.img").display().to_string();
    run(MARGAY, &["format", &path, "--size", "64M"]);
    let mut child = Command::new(MARGAY)
        .args(["serve", &path, "--no-sync", "--listen", "127.0.0.1:0", "--max-requests", "1"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address = line.split("nbd://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    let mut client = Client::greet(TcpStream::connect(address).unwrap(), 3);
    client.go("").unwrap();
    let data: Vec<u8> = (0..6 * MIB).map(|i| (i >> 9) as u8 | 1).collect();
    client.write(0, 0, &data).unwrap();
    // One request is in progress, and far more are sent than the server receives.
    let cookie = client.send(READ, 0, 0, data.len() as u32, &[]);
    for _ in 0..8000 {
        client.send(FLUSH, 0, 0, 0, &[]);
    }
    run("kill", &["-TERM", &child.id().to_string()]);
    std::thread::sleep(Duration::from_millis(100));
    let mut replies = Vec::new();
    client.stream.read_to_end(&mut replies).expect("the replies were lost with the connection");
    assert!(child.wait().unwrap().success());
    assert_eq!(replies[..16], [&[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0][..], &cookie.to_be_bytes()].concat());
    assert!(replies[16..].starts_with(&data), "{} bytes were sent", replies.len());
}

#[test]
fn a_standard_error_that_nobody_reads_stops_nothing() {
    let (_reader, mut writer) = std::io::pipe().unwrap();
    let stderr = writer.try_clone().unwrap();
    // Fills the pipe, and waits for ever.
    std::thread::spawn(move || while writer.write_all(&[b'.'; 512]).is_ok() {});
    std::thread::sleep(Duration::from_millis(300));
    let mut server = Server::start_with(&["--verbose"], stderr);
    for _ in 0..1500 {
        // Each connection is a message, and one about nonsense.
        let mut stream = UnixStream::connect(&server.socket).unwrap();
        stream.write_all(&[0xFF; 4]).unwrap();
    }
    server.serves_others();
    let took = server.terminate();
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn messages_of_a_kind_are_written_ten_times_a_second_and_then_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stderr");
    let started = Instant::now();
    let mut server = Server::start_with(&[], std::fs::File::create(&path).unwrap());
    for _ in 0..300 {
        let mut stream = UnixStream::connect(&server.socket).unwrap();
        stream.write_all(&[0xFF; 4]).unwrap();
        // Until the server has closed it.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    server.terminate();
    let seconds = started.elapsed().as_secs() as usize + 2;
    let text = std::fs::read_to_string(&path).unwrap();
    let is_summary = |line: &&str| line.contains("more messages like this one were suppressed");
    let (summaries, lines): (Vec<_>, Vec<_>) = text.lines().filter(|line| line.contains("WARN")).partition(is_summary);
    let suppressed: usize =
        summaries.iter().map(|line| line.split(' ').next().unwrap().parse::<usize>().unwrap()).sum();
    // One more is about the look whether the server has started.
    assert!((300..=301).contains(&(lines.len() + suppressed)), "{text}");
    assert!(suppressed > 0 && lines.len() <= 10 * seconds, "{text}");
}

#[test]
fn verified_clients_are_the_only_ones() {
    if !has("openssl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];
    let names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"];
    let files = ["-keyout", &at("server-key.pem"), "-out", &at("server-cert.pem")];
    run("openssl", &[&["req", "-x509"][..], &key, &names, &files].concat());
    std::fs::copy(at("server-cert.pem"), at("ca-cert.pem")).unwrap();
    let tls = folder.path().display().to_string();
    let server = Server::start(&["--tls", &tls, "--tls-verify-clients", "--handshake-timeout", "1"]);
    let mut plain = Client::connect(&server.socket);
    assert_eq!(plain.go(""), Err((1 << 31) + 5), "a client without TLS was served");
    plain.send_option(OPT_EXPORT_NAME, b"");
    assert!(plain.is_closed(), "a client without TLS was served by the old way");
    // One that begins TLS and does not go on is disconnected.
    let mut half = Client::connect(&server.socket);
    assert_eq!(half.option(OPT_STARTTLS, &[])[0].0, REP_ACK);
    half.stream.write_all(&[0x16, 3, 1, 2, 0]).unwrap();
    assert!(is_dropped_in_time(half.stream));
}
