use crate::chip::{Chip, PAGE, SIZE};
use crate::client::*;
use crate::server::{Server, offer};
use margay_host::Existing;
use margay_serve::{Offer, Recording};
use margay_trace::RecordingWriter;
use margay_volume::OpenOptions;

const P: u32 = PAGE as u32;

/// Writes a pattern over the first eight pages.
fn fill<S: std::io::Read + std::io::Write>(client: &mut Client<S>) -> Vec<u8> {
    let pattern: Vec<u8> = (0..8 * P).map(|i| (i / 7 + 1) as u8 | 1).collect();
    client.write(0, 0, &pattern).unwrap();
    pattern
}

#[test]
fn what_is_written_is_read_and_what_is_trimmed_or_zeroed_reads_as_zeros() {
    let chip = Chip::new();
    let server = Server::of(&chip);
    let mut client = server.client();
    let mut expected = fill(&mut client);
    client.write(0, 5000, b"across pages").unwrap();
    expected[5000..5012].copy_from_slice(b"across pages");
    client.call(TRIM, 0, PAGE - 1, 2 * P).unwrap();
    expected[P as usize..2 * P as usize].fill(0);
    client.call(WRITE_ZEROES, 0, 3 * PAGE + 5, P).unwrap();
    expected[3 * P as usize + 5..4 * P as usize + 5].fill(0);
    client.call(WRITE_ZEROES, NO_HOLE, 6 * PAGE, P).unwrap();
    expected[6 * P as usize..7 * P as usize].fill(0);
    client.call(CACHE, 0, 0, 8 * P).unwrap();
    assert!(client.read(0, 8 * P).unwrap() == expected);
    assert_eq!(client.read(SIZE - 3, 3).unwrap(), [0; 3]);
    assert_eq!((client.read(SIZE, 0), client.call(WRITE, 0, 0, 0)), (Ok(Vec::new()), Ok(())));
    server.stop();
    let mut again = vec![0; expected.len()];
    chip.open(true).read(0, &mut again).unwrap();
    assert!(again == expected);
}

#[test]
fn what_a_flush_or_fua_covers_survives_without_a_clean_stop() {
    let chip = Chip::new();
    let server = Server::of(&chip);
    let mut client = server.client();
    fill(&mut client);
    client.call(TRIM, 0, 0, P).unwrap();
    client.call(FLUSH, 0, 0, 0).unwrap();
    client.call(TRIM, FUA, PAGE, P).unwrap();
    client.call(WRITE_ZEROES, FUA | FAST_ZERO, 2 * PAGE, P).unwrap();
    client.call(WRITE_ZEROES, FUA | NO_HOLE, 3 * PAGE, P).unwrap();
    client.write(FUA, 4 * PAGE, &[0x44; PAGE as usize]).unwrap();
    // As after a power cut: the chip is mounted while the server still has it.
    let mut bytes = vec![1; 5 * PAGE as usize];
    chip.open(true).read(0, &mut bytes).unwrap();
    assert!(bytes[..4 * PAGE as usize].iter().all(|byte| *byte == 0));
    assert!(bytes[4 * PAGE as usize..].iter().all(|byte| *byte == 0x44));
    server.stop();
}

#[test]
fn fast_zeros_are_trims_of_whole_pages_and_nothing_else() {
    let chip = Chip::new();
    let server = Server::of(&chip);
    let mut client = server.client();
    let mut expected = fill(&mut client);
    let programs = chip.programs();
    for (flags, offset, len_bytes) in
        [(0, 1, P - 1), (0, 0, 512), (0, PAGE - 1, P), (0, PAGE, 2 * P + 1), (NO_HOLE, 0, P), (NO_HOLE | FUA, 1, 1)]
    {
        let answer = client.call(WRITE_ZEROES, FAST_ZERO | flags, offset, len_bytes);
        assert_eq!(answer, Err(ENOTSUP), "{len_bytes} bytes at {offset}");
    }
    assert!(client.read(0, 8 * P).unwrap() == expected);
    assert_eq!(client.call(WRITE_ZEROES, FAST_ZERO, PAGE, 2 * P), Ok(()));
    assert_eq!(chip.programs(), programs, "refused before anything is done; fast without writing data");
    expected[P as usize..3 * P as usize].fill(0);
    assert!(client.read(0, 8 * P).unwrap() == expected);
    assert_eq!(client.call(WRITE_ZEROES, FAST_ZERO, 0, SIZE as u32), Ok(()), "a client may clear the whole export");
    assert!(client.read(0, 8 * P).unwrap().iter().all(|byte| *byte == 0));
    server.stop();
}

#[test]
fn a_range_past_the_end_is_refused_before_anything_is_changed() {
    let chip = Chip::new();
    let server = Server::of(&chip);
    let mut client = server.client();
    client.write(0, SIZE - 2 * PAGE, &[0x77; 2 * PAGE as usize]).unwrap();
    let programs = chip.programs();
    let ranges = [
        (SIZE - PAGE, P + 1),
        (SIZE - 1, 2),
        (SIZE - 2 * PAGE, 3 * P),
        (SIZE, 1),
        (1 << 63, P),
        (u64::MAX - PAGE + 1, P),
        (u64::MAX - 1, 2 * P),
        (u64::MAX, 1),
    ];
    for (offset, len_bytes) in ranges {
        for flags in [0, FUA, NO_HOLE, FAST_ZERO, NO_HOLE | FAST_ZERO] {
            let answer = client.call(WRITE_ZEROES, flags, offset, len_bytes);
            assert_eq!(answer, Err(ENOSPC), "zeros of {len_bytes} bytes at {offset}, flags {flags}");
        }
        for (command, error) in [(WRITE, ENOSPC), (READ, EINVAL), (TRIM, EINVAL), (CACHE, EINVAL)] {
            let answer = client.call(command, 0, offset, len_bytes);
            assert_eq!(answer, Err(error), "command {command} of {len_bytes} bytes at {offset}");
        }
    }
    assert!(client.read(SIZE - 2 * PAGE, 2 * P).unwrap().iter().all(|byte| *byte == 0x77));
    assert_eq!(chip.programs(), programs);
    server.stop();
}

/// A client with structured replies and `base:allocation`.
fn structured(server: &Server) -> Client<std::os::unix::net::UnixStream> {
    let mut client = Client::connect(&server.path);
    client.option(OPT_STRUCTURED_REPLY, &[]);
    let query = [&[0, 0, 0, 1, 0, 0, 0, 15][..], b"base:allocation"].concat();
    assert_eq!(client.option(OPT_SET_META_CONTEXT, &export_option("", &query)).len(), 2);
    client.go("").unwrap();
    client
}

#[test]
fn structured_replies_tell_holes_from_data_and_say_why_a_request_failed() {
    let server = Server::of(&Chip::new());
    let mut client = structured(&server);
    client.write(0, PAGE, &[9; PAGE as usize]).unwrap();
    client.call(WRITE_ZEROES, 0, 2 * PAGE, P).unwrap();
    client.call(WRITE_ZEROES, NO_HOLE, 3 * PAGE, P).unwrap();
    let cookie = client.send(BLOCK_STATUS, 0, 0, 4 * P, &[]);
    let words: Vec<u8> = [1, P, 3, P, 0, P, 3, P, 0].map(u32::to_be_bytes).concat();
    assert_eq!(client.chunk(), Chunk { is_last: true, kind: 5, cookie, payload: words });
    client.send(READ, 0, PAGE - 1, P + 1, &[]);
    let (hole, data) = (client.chunk(), client.chunk());
    assert_eq!((hole.kind, hole.is_last, data.kind, data.is_last), (2, false, 1, true));
    assert_eq!(data.payload, [&PAGE.to_be_bytes()[..], &[9; PAGE as usize]].concat());
    for (offset, len_bytes) in [(SIZE - PAGE, P + 1), (SIZE, 1), (u64::MAX, 1), (u64::MAX - 4095, P)] {
        client.send(BLOCK_STATUS, 0, offset, len_bytes, &[]);
        let chunk = client.chunk();
        assert_eq!((chunk.kind, &chunk.payload[..4]), ((1 << 15) + 1, &EINVAL.to_be_bytes()[..]));
        let message = String::from_utf8_lossy(&chunk.payload[6..]);
        assert!(message.contains("past the end of the export (2867200 bytes)"), "{message}");
    }
    server.stop();
}

#[test]
fn a_read_only_volume_refuses_every_change() {
    let chip = Chip::new();
    let mut volume = chip.format();
    volume.write(0, &[5; PAGE as usize], margay_log::Hint::None).unwrap();
    volume.stop().unwrap();
    let server = Server::start(vec![offer("", chip.open(true))]);
    let mut client = Client::connect(&server.path);
    let (_, flags) = client.go("").unwrap();
    assert_eq!(flags & (1 << 1 | 1 << 5 | 1 << 6 | 1 << 11), 1 << 1, "read-only, without trims and zeros");
    let programs = chip.programs();
    for (command, flags) in [(WRITE, 0), (TRIM, 0), (WRITE_ZEROES, 0), (WRITE_ZEROES, FAST_ZERO)] {
        assert_eq!(client.call(command, flags, 0, P), Err(EPERM), "command {command}");
    }
    assert_eq!((client.call(FLUSH, 0, 0, 0), client.read(0, 2)), (Ok(()), Ok(vec![5; 2])));
    server.stop();
    assert_eq!(chip.programs(), programs);
}

#[test]
fn requests_are_recorded_unless_they_were_refused() {
    let folder = tempfile::tempdir().unwrap();
    let chip = Chip::new();
    chip.format().stop().unwrap();
    let writer = RecordingWriter::create(&folder.path().join("host.mgt"), Existing::Refuse).unwrap();
    let (volume, record) = Recording::open(chip, &OpenOptions::default(), writer).unwrap();
    let mut offer = offer("", volume);
    offer.record = Some(record);
    let server = Server::start(vec![offer]);
    let mut client = server.client();
    for (command, offset) in [(WRITE, 0), (READ, 0), (TRIM, 0), (WRITE, SIZE), (TRIM, u64::MAX), (READ, SIZE)] {
        // Those past the end are refused.
        assert_eq!(client.call_any(command, offset, P), offset == 0, "command {command} at {offset}");
    }
    assert_eq!(*server.stop().stopped[0].recorded.as_ref().unwrap().as_ref().unwrap(), 3);
}

#[test]
fn a_recording_that_cannot_be_written_is_an_error_at_the_stop_and_the_disk_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("host.mgt");
    let chip = Chip::new();
    chip.format().stop().unwrap();
    let writer = RecordingWriter::create(&path, Existing::Refuse).unwrap();
    let (volume, record) = Recording::open(chip, &OpenOptions::default(), writer).unwrap();
    let server = Server::start(vec![Offer { record: Some(record), ..offer("", volume) }]);
    let mut client = server.client();
    assert!(client.call_any(WRITE, 0, P));
    // What the recording may not replace.
    std::fs::write(&path, "another's").unwrap();
    assert!(client.call_any(WRITE, 0, P));
    let error = server.stop().stopped[0].recorded.as_ref().unwrap().as_ref().unwrap_err().to_string();
    assert!(error.contains("host.mgt"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "another's");
}
