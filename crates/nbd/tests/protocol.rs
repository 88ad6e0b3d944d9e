//! The handshake by its bytes, and input that no client should send.

use margay_nbd::{Event, Export, Handshake, ProtocolError, Request, RequestKind, Session};

fn exports() -> Vec<Export> {
    let export = |name: &str, read_only| Export {
        name: name.into(),
        description: "a disk".into(),
        size_bytes: 1 << 20,
        preferred_bytes: 4096,
        fast_zero_bytes: 4096,
        read_only,
    };
    vec![export("", false), export("second", true)]
}

fn option(code: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = 0x4948_4156_454f_5054u64.to_be_bytes().to_vec();
    bytes.extend_from_slice(&code.to_be_bytes());
    bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

/// The types of the option replies in an output.
fn reply_types(mut output: &[u8]) -> Vec<u32> {
    let mut types = Vec::new();
    while output.len() >= 20 {
        assert_eq!(output[..8], 0x0003_e889_0455_65a9u64.to_be_bytes());
        let word = |at: usize| u32::from_be_bytes(output[at..at + 4].try_into().unwrap());
        types.push(word(12));
        output = &output[20 + word(16) as usize..];
    }
    types
}

fn step(handshake: &mut Handshake, input: Vec<u8>) -> (Result<Event, ProtocolError>, Vec<u8>) {
    let (mut input, mut output) = (input, Vec::new());
    (handshake.step(&exports(), &mut input, &mut output), output)
}

fn connected(has_tls: bool, requires_tls: bool) -> Handshake {
    let mut handshake = Handshake::new(has_tls, requires_tls);
    assert_eq!(step(&mut handshake, vec![0, 0, 0, 3]).0, Ok(Event::NeedBytes));
    handshake
}

fn go(name: &str) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&[0, 1, 0, 3]);
    option(7, &data)
}

#[test]
fn go_serves_an_export_by_name_and_unknown_names_are_errors() {
    let mut handshake = connected(false, false);
    let (event, output) = step(&mut handshake, go("nobody"));
    assert_eq!((event, reply_types(&output)), (Ok(Event::NeedBytes), vec![(1 << 31) + 6]));
    let (event, output) = step(&mut handshake, go("second"));
    let session = Session { export: 1, structured: false, allocation: false };
    assert_eq!((event, reply_types(&output)), (Ok(Event::Serve(session)), vec![3, 3, 1]));
}

/// The transmission flags in the answer to `GO` of the default export.
fn flags(handshake: &mut Handshake) -> u16 {
    let (_, output) = step(handshake, go(""));
    u16::from_be_bytes([output[30], output[31]])
}

#[test]
fn reads_in_one_piece_are_offered_with_structured_replies_only() {
    const SEND_DF: u16 = 1 << 7;
    assert_eq!(flags(&mut connected(false, false)) & SEND_DF, 0);
    let mut handshake = connected(false, false);
    assert_eq!(reply_types(&step(&mut handshake, option(8, &[])).1), [1]);
    assert_eq!(flags(&mut handshake) & SEND_DF, SEND_DF);
}

#[test]
fn fast_zeros_are_offered_where_the_export_can_be_written() {
    const SEND_FAST_ZERO: u16 = 1 << 11;
    assert_eq!(flags(&mut connected(false, false)) & SEND_FAST_ZERO, SEND_FAST_ZERO);
    let (_, output) = step(&mut connected(false, false), go("second"));
    assert_eq!(u16::from_be_bytes([output[30], output[31]]) & SEND_FAST_ZERO, 0);
}

#[test]
fn contexts_need_structured_replies_and_hold_for_their_export_only() {
    let query = |name: &str| {
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend_from_slice(name.as_bytes());
        data.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 15]);
        data.extend_from_slice(b"base:allocation");
        option(10, &data)
    };
    let mut handshake = connected(false, false);
    assert_eq!(reply_types(&step(&mut handshake, query("")).1), [(1 << 31) + 3]);
    assert_eq!(reply_types(&step(&mut handshake, option(8, &[])).1), [1]);
    assert_eq!(reply_types(&step(&mut handshake, query("")).1), [4, 1]);
    let mut other = handshake.clone();
    let served = |export, allocation| Ok(Event::Serve(Session { export, structured: true, allocation }));
    assert_eq!(step(&mut handshake, go("")).0, served(0, true));
    assert_eq!(step(&mut other, go("second")).0, served(1, false));
}

#[test]
fn nothing_but_tls_is_answered_where_tls_is_required() {
    let mut handshake = connected(true, true);
    for request in [option(3, &[]), go(""), option(8, &[])] {
        assert_eq!(reply_types(&step(&mut handshake, request).1), [(1 << 31) + 5]);
    }
    assert_eq!(step(&mut handshake.clone(), option(1, &[])).0, Ok(Event::Close));
    let (event, output) = step(&mut handshake, option(5, &[]));
    assert_eq!((event, reply_types(&output)), (Ok(Event::StartTls), vec![1]));
    handshake.tls_started();
    assert!(matches!(step(&mut handshake, go("")).0, Ok(Event::Serve(_))));
}

#[test]
fn bytes_may_come_one_by_one() {
    let mut handshake = Handshake::new(false, false);
    let (mut input, mut output) = (Vec::new(), Vec::new());
    let bytes = [vec![0, 0, 0, 3], option(8, &[]), go("")].concat();
    for (at, byte) in bytes.iter().enumerate() {
        input.push(*byte);
        let event = handshake.step(&exports(), &mut input, &mut output).unwrap();
        assert_eq!(matches!(event, Event::Serve(_)), at + 1 == bytes.len());
    }
    assert_eq!(reply_types(&output), [1, 3, 3, 1]);
}

#[test]
fn no_bytes_make_it_panic_or_take_memory_without_bound() {
    let mut random = 0x1234_5678_9ABC_DEF1u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let session = Session { export: 0, structured: true, allocation: true };
    for _ in 0..20_000 {
        let mut bytes = if next() % 2 == 0 { option(next() as u32 % 12, &[]) } else { vec![0x25, 0x60, 0x95, 0x13] };
        bytes.extend((0..next() % 60).map(|_| if next() % 3 == 0 { 0 } else { next() as u8 }));
        for _ in 0..next() % 4 {
            let at = next() as usize % bytes.len();
            bytes[at] = next() as u8;
        }
        let mut handshake = connected(next() % 2 == 0, next() % 2 == 0);
        let (mut input, mut output) = (bytes.clone(), Vec::new());
        while matches!(handshake.step(&exports(), &mut input, &mut output), Ok(Event::Serve(_))) {}
        assert!(output.len() < 1 << 20);
        let mut rest = &bytes[..];
        while let Some((header, behind)) = rest.split_first_chunk()
            && let Ok(request) = Request::decode(header, &session)
            && let Some((_, behind)) = behind.split_at_checked(request.payload_bytes as usize)
        {
            let is_write = matches!(request.kind, RequestKind::Write { .. } | RequestKind::Bad(_));
            assert!(is_write || request.payload_bytes == 0);
            rest = behind;
        }
    }
}
