//! Requests by their bytes: what is refused before anything is done, and the form of the replies.

use margay_nbd::{Errno, Export, ProtocolError, Refusal, Replies, Request, RequestKind, Session};

const PAGE: u64 = 4096;
const SIZE: u64 = 8 * PAGE;

const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const CACHE: u16 = 5;
const WRITE_ZEROES: u16 = 6;
const BLOCK_STATUS: u16 = 7;

const FUA: u16 = 1;
const NO_HOLE: u16 = 1 << 1;
const DF: u16 = 1 << 2;
const FAST_ZERO: u16 = 1 << 4;

const SESSION: Session = Session { export: 0, structured: true, allocation: true };

fn export(read_only: bool) -> Export {
    Export {
        name: String::new(),
        description: String::new(),
        size_bytes: SIZE,
        preferred_bytes: 4096,
        fast_zero_bytes: 4096,
        read_only,
    }
}

/// A request as it arrives.
fn request(command: u16, flags: u16, offset: u64, len_bytes: u32) -> Request {
    let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
    bytes.extend_from_slice(&flags.to_be_bytes());
    bytes.extend_from_slice(&command.to_be_bytes());
    bytes.extend_from_slice(&7u64.to_be_bytes());
    bytes.extend_from_slice(&offset.to_be_bytes());
    bytes.extend_from_slice(&len_bytes.to_be_bytes());
    let request = Request::decode(&bytes.try_into().unwrap(), &SESSION).unwrap();
    assert_eq!(request.payload_bytes, if command == WRITE { len_bytes } else { 0 });
    assert_eq!((request.cookie, request.offset, request.len_bytes), (7, offset, len_bytes));
    request
}

fn check(command: u16, flags: u16, offset: u64, len_bytes: u32) -> Result<(), Errno> {
    request(command, flags, offset, len_bytes).check(&export(false)).map_err(|refusal| refusal.errno)
}

#[test]
fn every_command_with_a_range_is_refused_past_the_end_of_the_export() {
    let commands = [
        (READ, Errno::Inval),
        (WRITE, Errno::NoSpace),
        (TRIM, Errno::Inval),
        (CACHE, Errno::Inval),
        (WRITE_ZEROES, Errno::NoSpace),
        (BLOCK_STATUS, Errno::Inval),
    ];
    for (command, errno) in commands {
        for (offset, len_bytes) in [(0, SIZE as u32), (SIZE - 1, 1), (SIZE - PAGE, PAGE as u32)] {
            assert_eq!(check(command, 0, offset, len_bytes), Ok(()), "command {command} at {offset}");
        }
        let past =
            [(0, SIZE as u32 + 1), (SIZE - 1, 2), (SIZE, 1), (SIZE + 1, 1), (u64::MAX, 1), (u64::MAX - 511, 512)];
        for (offset, len_bytes) in past.into_iter().chain([(u64::MAX - 3, 4096), (1 << 63, 4096)]) {
            assert_eq!(check(command, 0, offset, len_bytes), Err(errno), "command {command} at {offset}");
        }
    }
    assert_eq!(check(FLUSH, 0, u64::MAX, 1), Ok(()), "a flush has no range");
}

#[test]
fn the_range_is_checked_before_everything_else() {
    for flags in [NO_HOLE, FAST_ZERO, NO_HOLE | FAST_ZERO | FUA] {
        assert_eq!(check(WRITE_ZEROES, flags, SIZE - PAGE, 2 * PAGE as u32), Err(Errno::NoSpace));
        assert_eq!(check(WRITE_ZEROES, flags, u64::MAX - PAGE + 1, PAGE as u32), Err(Errno::NoSpace));
    }
    let refusal = request(WRITE_ZEROES, FAST_ZERO, 1, SIZE as u32).check(&export(true)).unwrap_err();
    assert_eq!(refusal.errno, Errno::NoSpace);
    assert_eq!(refusal.message, "32768 bytes at offset 1 are past the end of the export (32768 bytes)");
}

#[test]
fn zeros_are_fast_for_whole_pages_that_may_become_holes() {
    for (offset, len_bytes) in [(0, SIZE), (0, PAGE), (PAGE, 3 * PAGE), (SIZE - PAGE, PAGE), (5, 0)] {
        assert_eq!(check(WRITE_ZEROES, FAST_ZERO, offset, len_bytes as u32), Ok(()), "{offset} + {len_bytes}");
        assert_eq!(check(WRITE_ZEROES, FAST_ZERO | FUA, offset, len_bytes as u32), Ok(()), "{offset} + {len_bytes}");
    }
    for (offset, len_bytes) in [(0, 512), (1, PAGE - 1), (512, PAGE), (PAGE, PAGE + 1), (SIZE - 1, 1)] {
        let fast = check(WRITE_ZEROES, FAST_ZERO, offset, len_bytes as u32);
        assert_eq!(fast, Err(Errno::NotSupported), "{offset} + {len_bytes}");
        assert_eq!(check(WRITE_ZEROES, 0, offset, len_bytes as u32), Ok(()), "without the flag");
    }
    assert_eq!(check(WRITE_ZEROES, FAST_ZERO | NO_HOLE, 0, PAGE as u32), Err(Errno::NotSupported));
    assert_eq!(check(WRITE_ZEROES, NO_HOLE, 0, PAGE as u32), Ok(()));
}

#[test]
fn a_read_only_export_refuses_every_change() {
    for (command, expected) in [
        (READ, Ok(())),
        (WRITE, Err(Errno::Perm)),
        (FLUSH, Ok(())),
        (TRIM, Err(Errno::Perm)),
        (CACHE, Ok(())),
        (WRITE_ZEROES, Err(Errno::Perm)),
        (BLOCK_STATUS, Ok(())),
    ] {
        let checked = request(command, 0, 0, 512).check(&export(true)).map_err(|refusal| refusal.errno);
        assert_eq!(checked, expected, "command {command}");
    }
}

#[test]
fn flags_of_other_commands_and_unknown_commands_are_invalid() {
    for (command, flags) in [(READ, FAST_ZERO), (WRITE, NO_HOLE), (TRIM, FAST_ZERO), (WRITE_ZEROES, DF), (42, 0)] {
        assert_eq!(check(command, flags, 0, 512), Err(Errno::Inval), "command {command}");
    }
    for command in [READ, WRITE, FLUSH, TRIM, CACHE, WRITE_ZEROES, BLOCK_STATUS] {
        assert_eq!(check(command, FUA, 0, 512), Ok(()), "command {command}");
    }
}

#[test]
fn a_read_longer_than_a_reply_is_an_overflow_only_for_a_client_that_knows_it() {
    let too_long = margay_nbd::MAX_PAYLOAD_BYTES + 1;
    assert_eq!(check(READ, 0, 0, too_long), Err(Errno::Inval));
    assert_eq!(check(READ, DF, 0, too_long), Err(Errno::Overflow));
}

#[test]
fn a_request_that_was_refused_is_answered_in_the_form_agreed_on() {
    let Refusal { errno, message } = request(WRITE_ZEROES, FAST_ZERO, 1, 1).check(&export(false)).unwrap_err();
    let mut output = Vec::new();
    Replies::new(&Session { structured: false, ..SESSION }).error(7, errno, &message, &mut output);
    assert_eq!(output, [&[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 95][..], &7u64.to_be_bytes()].concat());
    output.clear();
    Replies::new(&SESSION).error(7, errno, &message, &mut output);
    let len = message.len() as u32;
    let header = [&[0x66, 0x8e, 0x33, 0xef, 0, 1, 0x80, 1][..], &7u64.to_be_bytes(), &(6 + len).to_be_bytes()].concat();
    assert_eq!(output, [&header[..], &[0, 0, 0, 95], &(len as u16).to_be_bytes(), message.as_bytes()].concat());
}

#[test]
fn a_long_message_is_cut_between_characters() {
    let mut output = Vec::new();
    Replies::new(&SESSION).error(7, Errno::Io, &"\u{e9}".repeat(700).replacen('\u{e9}', "e", 1), &mut output);
    let message = std::str::from_utf8(&output[26..]).unwrap();
    assert_eq!(message.len(), 999);
}

#[test]
fn what_is_no_request_and_a_write_that_is_too_long_are_errors_of_the_protocol() {
    let mut bytes = [0xFF; margay_nbd::REQUEST_BYTES];
    assert_eq!(Request::decode(&bytes, &SESSION), Err(ProtocolError::RequestMagic { magic: u32::MAX }));
    bytes[..8].copy_from_slice(&[0x25, 0x60, 0x95, 0x13, 0, 0, 0, 1]);
    assert_eq!(Request::decode(&bytes, &SESSION), Err(ProtocolError::WriteTooLong { len_bytes: u32::MAX }));
    bytes[24..].copy_from_slice(&margay_nbd::MAX_PAYLOAD_BYTES.to_be_bytes());
    assert!(Request::decode(&bytes, &SESSION).is_ok());
}

#[test]
fn the_data_of_a_write_with_foreign_flags_follow_it_too() {
    assert!(matches!(request(WRITE, DF, 0, 512).kind, RequestKind::Bad(_)));
}

#[test]
fn the_reply_to_a_read_is_chunks_of_data_and_holes_or_a_simple_head() {
    let (structured, mut output) = (Replies::new(&SESSION), Vec::new());
    structured.hole(7, 100, 3, false, &mut output);
    structured.data(7, 103, 2, true, &mut output);
    let chunk = |done: u8, kind: u8, len: u8, rest: &[u8]| {
        [&[0x66, 0x8e, 0x33, 0xef, 0, done, 0, kind, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, len][..], rest].concat()
    };
    let (hole, data) =
        (chunk(0, 2, 12, &[0, 0, 0, 0, 0, 0, 0, 100, 0, 0, 0, 3]), chunk(1, 1, 10, &103u64.to_be_bytes()));
    assert_eq!(output, [hole, data].concat());
    output.clear();
    structured.no_data(7, &mut output);
    assert_eq!(output, chunk(1, 0, 0, &[]));
    let simple = Replies::new(&Session { structured: false, ..SESSION });
    assert!(structured.has_chunks() && !simple.has_chunks());
    output.clear();
    simple.data(7, 100, 5, true, &mut output);
    simple.no_data(7, &mut output);
    let head = [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
    assert_eq!(output, [head, head].concat());
}

#[test]
fn a_disconnect_is_a_request_without_a_range() {
    let request = request(2, 0, u64::MAX, u32::MAX);
    assert_eq!((request.check(&export(true)), request.kind), (Ok(()), RequestKind::Disconnect));
}
