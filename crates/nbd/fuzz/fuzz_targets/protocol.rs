#![no_main]
//! What a client may send, before and after negotiation.

use libfuzzer_sys::fuzz_target;
use margay_nbd::{Event, Export, Handshake, Request, Session};

fuzz_target!(|bytes: &[u8]| {
    let export = |name: &str| Export {
        name: name.into(),
        description: String::new(),
        size_bytes: 1 << 30,
        preferred_bytes: 4096,
        fast_zero_bytes: 4096,
        read_only: false,
    };
    let exports = [export(""), export("b")];
    let mut handshake = Handshake::new(true, bytes.first().is_some_and(|byte| byte & 1 == 1));
    let (mut input, mut output) = (bytes.to_vec(), Vec::new());
    loop {
        match handshake.step(&exports, &mut input, &mut output) {
            Ok(Event::StartTls) => handshake.tls_started(),
            Ok(Event::Serve(session)) => {
                requests(&input, &session);
                break;
            }
            _ => break,
        }
    }
    requests(bytes, &Session { export: 0, structured: true, allocation: true });
});

/// Decodes requests, each with the data that follow it, until one is no request.
fn requests(mut input: &[u8], session: &Session) {
    while let Some((header, rest)) = input.split_first_chunk()
        && let Ok(request) = Request::decode(header, session)
        && let Some((_, rest)) = rest.split_at_checked(request.payload_bytes as usize)
    {
        input = rest;
    }
}
