use crate::chip::{Chip, PAGE, SIZE};
use crate::client::*;
use crate::server::{Server, offer, options};
use margay_serve::Listen;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

fn two_exports() -> Server {
    Server::start(vec![offer("", Chip::new().format()), offer("second", Chip::new().format())])
}

#[test]
fn unknown_options_and_exports_are_errors_after_which_the_handshake_continues() {
    let server = two_exports();
    let mut client = Client::connect(&server.path);
    for code in [0, 4, 9999, u32::MAX] {
        assert_eq!(client.option(code, b"whatever")[0].0, REP_ERR_UNSUP, "option {code}");
    }
    assert_eq!(client.option(OPT_STARTTLS, &[])[0].0, REP_ERR_POLICY);
    assert_eq!(client.go("third"), Err(REP_ERR_UNKNOWN));
    assert_eq!(client.option(OPT_INFO, &export_option("third", &[0, 0]))[0].0, REP_ERR_UNKNOWN);
    assert_eq!(client.option(OPT_INFO, &export_option("second", &[0, 0])).last().unwrap().0, REP_ACK);
    assert_eq!(client.go("second").unwrap().0, SIZE);
    assert_eq!(client.call(FLUSH, 0, 0, 0), Ok(()));
    server.stop();
}

#[test]
fn several_exports_are_listed_and_hold_their_own_data() {
    let server = two_exports();
    let mut first = Client::connect(&server.path);
    let entry = |name: &str, description: &str| (REP_SERVER, export_option(name, description.as_bytes()));
    let expected = [entry("", "the disk ''"), entry("second", "the disk 'second'"), (REP_ACK, Vec::new())];
    assert_eq!(first.option(OPT_LIST, &[]), expected);
    first.go("").unwrap();
    first.write(0, 0, &[1; PAGE as usize]).unwrap();
    let mut second = Client::connect(&server.path);
    second.go("second").unwrap();
    assert_eq!(second.read(0, 4).unwrap(), [0; 4]);
    second.write(0, 0, &[2; PAGE as usize]).unwrap();
    assert_eq!(first.read(0, 4).unwrap(), [1; 4]);
    let outcome = server.stop();
    assert_eq!(outcome.stopped.iter().map(|stopped| stopped.host_writes).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn an_old_client_chooses_by_name_and_is_sent_away_if_there_is_none() {
    let server = two_exports();
    let mut client = Client::connect(&server.path);
    client.send_option(OPT_EXPORT_NAME, b"nobody");
    assert!(client.is_closed());
    let mut client = Client::greet(UnixStream::connect(&server.path).unwrap(), 1);
    client.send_option(OPT_EXPORT_NAME, b"second");
    assert_eq!((client.u64(), client.u16() & 1), (SIZE, 1));
    assert_eq!(client.bytes(124), [0; 124], "the client did not ask to leave them out");
    assert_eq!(client.call(FLUSH, 0, 0, 0), Ok(()));
    server.stop();
}

#[test]
fn aborting_disconnecting_and_nonsense_end_one_connection_only() {
    let server = two_exports();
    let mut client = Client::connect(&server.path);
    assert_eq!(client.option(OPT_ABORT, &[]), [(REP_ACK, Vec::new())]);
    assert!(client.is_closed());
    let mut client = server.client();
    client.send(DISC, 0, 0, 0, &[]);
    assert!(client.is_closed());
    let mut client = server.client();
    client.stream.write_all(&[0xFF; 28]).unwrap();
    assert!(client.is_closed());
    assert_eq!(server.client().call(FLUSH, 0, 0, 0), Ok(()));
    server.stop();
}

#[test]
fn a_client_too_many_waits_until_another_one_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(Listen::Unix(folder.path().join("nbd.sock")));
    options.limits.max_connections = 1;
    let server = Server::start_with(vec![offer("", Chip::new().format())], options).unwrap();
    let first = server.client();
    let mut waiting = UnixStream::connect(&server.path).unwrap();
    waiting.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(waiting.read(&mut [0]).is_err(), "it is not greeted");
    drop(first);
    waiting.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert!(Client::greet(waiting, 3).go("").is_ok());
    server.stop();
}
