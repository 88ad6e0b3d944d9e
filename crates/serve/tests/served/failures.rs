use crate::chip::{Chip, PAGE, SIZE};
use crate::client::*;
use crate::server::Server;
use std::os::unix::net::UnixStream;

const P: u32 = PAGE as u32;
/// Longer than the pieces in which requests are carried out.
const LONG: u32 = 600 * P;
const DF: u16 = 1 << 2;
const MARK: &[u8] = b"here the chip has a flaw";

fn structured(server: &Server) -> Client<UnixStream> {
    let mut client = Client::connect(&server.path);
    client.option(OPT_STRUCTURED_REPLY, &[]);
    client.go("").unwrap();
    client
}

/// Fills the first pages, with a mark in one that is in the second piece.
fn filled(server: &Server) -> Vec<u8> {
    let mut data: Vec<u8> = (0..LONG).map(|i| (i >> 8) as u8 | 1).collect();
    data[450 * P as usize + 99..][..MARK.len()].copy_from_slice(MARK);
    server.client().write(0, 0, &data).unwrap();
    data
}

#[test]
fn a_failed_sync_is_an_error_of_every_request_that_asked_for_it_on_every_connection() {
    let chip = Chip::new();
    let server = Server::of(&chip);
    let (mut one, mut other) = (server.client(), server.client());
    for client in [&mut one, &mut other] {
        let syncs = chip.syncs();
        client.write(0, 0, &[1; PAGE as usize]).unwrap();
        client.call(FLUSH, 0, 0, 0).unwrap();
        assert!(chip.syncs() > syncs, "each flush is the volume's");
    }
    one.write(0, PAGE, &[2; PAGE as usize]).unwrap();
    chip.fail_syncs(1000);
    for client in [&mut one, &mut other] {
        assert_eq!(client.call(FLUSH, 0, 0, 0), Err(EIO));
        assert_eq!(client.call(FLUSH, 0, 0, 0), Err(EIO), "again");
        assert_eq!(client.write(FUA, 2 * PAGE, &[3; PAGE as usize]), Err(EIO));
        assert_eq!(client.call(TRIM, FUA, 3 * PAGE, P), Err(EIO));
        assert_eq!(client.call(WRITE_ZEROES, FUA, 4 * PAGE, P), Err(EIO));
        assert_eq!(client.read(0, 2 * P).unwrap()[PAGE as usize..], [2; PAGE as usize], "reads go on");
    }
}

#[test]
fn what_cannot_be_read_is_an_error_of_its_request_whatever_the_form_of_the_reply() {
    let chip = Chip::new();
    let server = Server::of(&chip);
    let data = filled(&server);
    chip.lose(MARK);
    let mut simple = server.client();
    assert_eq!(simple.read(0, LONG), Err(EIO), "a long reply has no place for an error once it is begun");
    assert_eq!(simple.read(450 * PAGE, 512), Err(EIO));
    assert!(simple.read(0, 440 * P).unwrap() == data[..440 * P as usize]);
    let mut client = structured(&server);
    for flags in [0, DF] {
        let cookie = client.send(READ, flags, 0, LONG, &[]);
        let mut received = 0;
        let error = loop {
            let chunk = client.chunk();
            assert_eq!(chunk.cookie, cookie);
            if chunk.is_last {
                break chunk;
            }
            received += chunk.payload.len() - 8;
        };
        assert_eq!((error.kind, &error.payload[..4]), ((1 << 15) + 1, &EIO.to_be_bytes()[..]), "flags {flags}");
        assert!(received < 450 * P as usize && (flags == 0 || received == 0), "{received} bytes");
    }
    assert_eq!(client.call(FLUSH, 0, 0, 0), Ok(()));
}

#[test]
fn a_long_reply_is_in_one_piece_and_nothing_comes_between() {
    let server = Server::of(&Chip::new());
    let data = filled(&server);
    let mut simple = server.client();
    let mut long = structured(&server);
    for round in 0..5 {
        let reading = simple.send(READ, 0, 0, LONG, &[]);
        let refused = simple.send(READ, 0, SIZE, 1, &[]);
        let flushing = simple.send(FLUSH, 0, 0, 0, &[]);
        assert_eq!(simple.reply(), (reading, 0));
        assert!(simple.bytes(LONG as usize) == data, "round {round}");
        assert_eq!((simple.reply(), simple.reply()), ((refused, EINVAL), (flushing, 0)));
        let cookie = long.send(READ, DF, 0, LONG, &[]);
        let chunk = long.chunk();
        assert_eq!((chunk.is_last, chunk.kind, chunk.cookie), (true, 1, cookie));
        assert!(chunk.payload[8..] == data);
    }
}

#[test]
fn a_long_write_that_is_refused_is_received_and_changes_nothing() {
    let chip = Chip::new();
    let server = Server::of(&chip);
    let mut client = server.client();
    client.write(0, SIZE - PAGE, &[7; PAGE as usize]).unwrap();
    let programs = chip.programs();
    for offset in [SIZE - PAGE, u64::MAX - PAGE, 1 << 63] {
        assert_eq!(client.write(FUA, offset, &vec![9; LONG as usize]), Err(ENOSPC));
    }
    assert_eq!(client.read(SIZE - PAGE, P).unwrap(), [7; PAGE as usize]);
    assert_eq!(chip.programs(), programs);
}
