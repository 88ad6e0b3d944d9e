//! Binary formats on bytes that are put together here from the public descriptions of their records.

use margay_trace::{Format, IoKind, ReadOptions, Request, TraceError, TraceReader, open};
use std::collections::BTreeMap;
use std::io::{BufReader, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn named(name: &str) -> ReadOptions {
    ReadOptions { format: Some(name.parse().unwrap()), ..ReadOptions::default() }
}

struct Found {
    format: Format,
    requests: Vec<Request>,
    ignored: BTreeMap<&'static str, u64>,
}

fn read(name: &str, bytes: &[u8], options: &ReadOptions) -> Result<Found, TraceError> {
    let mut reader = TraceReader::from_stream(name, Cursor::new(bytes.to_vec()), options)?;
    let requests = reader.by_ref().collect::<Result<_, _>>()?;
    Ok(Found { format: reader.format(), requests, ignored: reader.counts().ignored.clone() })
}

fn error(name: &str, bytes: &[u8], options: &ReadOptions) -> String {
    match read(name, bytes, options) {
        Ok(found) => panic!("{} requests were read", found.requests.len()),
        Err(error) => error.to_string(),
    }
}

fn request(time_us: u64, kind: IoKind, device: u32, offset_bytes: u64, len_bytes: u64) -> Request {
    Request { time_us, kind, device, offset_bytes, len_bytes, stream: None }
}

/// An event of blktrace on device 8,0, with two bytes of payload.
fn event(time_ns: u64, sector: u64, len_bytes: u32, action: u32) -> Vec<u8> {
    let mut event = Vec::new();
    event.extend([0x6561_7407u32, 1].iter().flat_map(|word| word.to_le_bytes()));
    event.extend([time_ns, sector].iter().flat_map(|word| word.to_le_bytes()));
    event.extend([len_bytes, action, 697, 8 << 20, 3].iter().flat_map(|word| word.to_le_bytes()));
    event.extend([0u16, 2].iter().flat_map(|half| half.to_le_bytes()));
    event.extend(b"ab");
    event
}

const QUEUE: u32 = 1;
const ISSUE: u32 = 7;
const COMPLETE: u32 = 8;
const READ: u32 = 1 << 16;
const WRITE: u32 = 1 << 17;
const FLUSH: u32 = 1 << 18;
const PACKET: u32 = 1 << 25;
const NOTIFY: u32 = 1 << 26;
const DISCARD: u32 = 1 << 29;
/// A control group is named in the payload.
const CGROUP: u32 = 1 << 8;
const DEVICE: u32 = 8 << 20;

#[test]
fn of_blktrace_events_those_that_queue_a_request_are_counted_and_payload_is_skipped() {
    let events = [
        event(500, 0, 0, NOTIFY),
        event(1000, 8, 4096, QUEUE | WRITE),
        event(2000, 8, 4096, ISSUE | WRITE),
        event(3000, 16, 512, QUEUE | READ | CGROUP),
        event(4000, 0, 0, QUEUE | FLUSH | WRITE),
        event(5000, 1 << 40, 8192, QUEUE | DISCARD | WRITE),
        event(6000, 0, 36, QUEUE | PACKET | READ),
    ];
    let bytes = events.concat();
    let found = read("sda.blktrace.0", &bytes, &ReadOptions::default()).unwrap();
    let wanted = [
        request(0, IoKind::Write, DEVICE, 4096, 4096),
        request(2, IoKind::Read, DEVICE, 8192, 512),
        request(3, IoKind::Flush, DEVICE, 0, 0),
        request(4, IoKind::Trim, DEVICE, 512 << 40, 8192),
    ];
    assert_eq!((found.format.name(), &found.requests[..]), ("blktrace", &wanted[..]));
    let ignored = [("another action of a request", 1), ("command that is no read or write", 1), ("message", 1)];
    assert_eq!(found.ignored, BTreeMap::from(ignored));
    for (cut, message) in [(47, "a record, after 47 of 48 bytes"), (99, "inside the payload")] {
        assert!(error("cut", &bytes[..cut], &ReadOptions::default()).contains(message));
    }
}

#[test]
fn a_blktrace_that_was_taken_without_queuing_counts_what_it_has() {
    let issued = [event(1000, 8, 4096, COMPLETE | READ), event(2000, 16, 4096, ISSUE | WRITE)].concat();
    let found = read("t", &issued, &ReadOptions::default()).unwrap();
    assert_eq!(found.requests, [request(0, IoKind::Write, DEVICE, 8192, 4096)]);
    let completed = [event(0, 0, 0, NOTIFY), event(1000, 8, 4096, COMPLETE | READ)].concat();
    let found = read("t", &completed, &ReadOptions::default()).unwrap();
    assert_eq!(found.requests, [request(0, IoKind::Read, DEVICE, 4096, 4096)]);
}

#[test]
fn another_version_and_another_byte_order_of_blktrace_are_errors_that_say_so() {
    let good = event(1000, 8, 4096, QUEUE | WRITE);
    let with = |magic: u32| {
        let mut bytes = [good.clone(), good.clone()].concat();
        bytes[50..54].copy_from_slice(&magic.to_le_bytes());
        error("t", &bytes, &named("blktrace"))
    };
    assert!(with(0x6561_7406).ends_with("t:2: blktrace version 6; only version 7 is read"));
    assert!(with(0x0774_6165).contains("big-endian"));
    assert!(with(7).ends_with("t:2: the event does not start with the magic of blktrace"));
}

/// A record of CloudPhysics: u32 number, bytes, parts, u16 command and version, u64 sector and time in version 1; command
/// and version first, and the response's time last in version 2.
fn scsi(version: u16, command: u16, len_bytes: u32, sector: u64, us: u64) -> Vec<u8> {
    let names: Vec<u8> = [command, version << 8 | 0x2a].iter().flat_map(|half| half.to_le_bytes()).collect();
    let sizes: Vec<u8> = [9, len_bytes, 1].iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
    let [sector, us, response] = [sector, us, 300].map(u64::to_le_bytes);
    match version {
        1 => [&sizes[..], &names, &sector, &us].concat(),
        _ => [&names[..], &sizes, &sector, &us, &response].concat(),
    }
}

#[test]
fn scsi_commands_of_both_versions_are_recognized_and_read() {
    for version in [1, 2] {
        let commands = [
            scsi(version, 0x2a, 4096, 16, 1_000_000),
            scsi(version, 0x88, 512, 1 << 32, 1_500_000),
            scsi(version, 0x12, 96, 0, 1_500_001),
            scsi(version, 0x42, 24, 0, 1_500_002),
            scsi(version, 0x35, 0, 0, 1_500_003),
            scsi(version, 0x0a, 8192, 7, 1_500_010),
        ];
        let bytes = commands.concat();
        assert_eq!(bytes.len(), 6 * [32, 40][usize::from(version) - 1]);
        for options in [ReadOptions::default(), named("vscsi")] {
            let found = read("w01", &bytes, &options).unwrap();
            let wanted = [
                request(0, IoKind::Write, 0, 8192, 4096),
                request(500_000, IoKind::Read, 0, 512 << 32, 512),
                request(500_003, IoKind::Flush, 0, 0, 0),
                request(500_010, IoKind::Write, 0, 3584, 8192),
            ];
            assert_eq!((found.format.name(), &found.requests[..]), ("vscsi", &wanted[..]), "version {version}");
            assert_eq!(found.ignored["another SCSI command"], 1);
            assert_eq!(found.ignored["unmap, of which the trace does not say where"], 1);
        }
        let cut = error("w01", &bytes[..bytes.len() - 1], &ReadOptions::default());
        assert!(cut.starts_with("w01:6: the file ends inside a record, after "), "{cut}");
        let far = [commands[0].clone(), scsi(version, 0x28, 512, u64::MAX, 0)].concat();
        assert!(error("w01", &far, &ReadOptions::default()).starts_with("w01:2: the sector is too large"));
    }
}

#[test]
fn a_record_that_does_not_say_the_version_of_those_before_is_an_error() {
    let mut bytes = scsi(2, 0x2a, 4096, 16, 1).repeat(100);
    bytes[40 * 99 + 3] = 0;
    let wrong = error("w01", &bytes, &ReadOptions::default());
    assert_eq!(wrong, "w01:100: the record does not say version 2, as those before do");
    // One of the first: then it is not recognized, and can be named.
    bytes[43] = 0;
    assert!(error("w01", &bytes, &ReadOptions::default()).contains("--trace-format, one of msr,"));
    assert!(error("w01", &bytes, &named("vscsi")).contains("neither of 32 bytes with version 1"));
    let one = scsi(1, 0x2a, 4096, 16, 1);
    assert!(error("w01", &one, &ReadOptions::default()).contains("the format is not recognized"));
    assert_eq!(read("w01", &one, &named("vscsi")).unwrap().requests.len(), 1);
}

#[test]
fn numbers_of_pages_are_recognized_by_the_name_of_the_file_alone() {
    let bytes: Vec<u8> = [0u32, 5, u32::MAX].iter().flat_map(|number| number.to_le_bytes()).collect();
    let wanted = [0, 5, u64::from(u32::MAX)].map(|page| request(0, IoKind::Write, 0, page * 4096, 4096));
    for (name, options) in [("web.U32.zst", ReadOptions::default()), ("web", named("u32"))] {
        assert_eq!(read(name, &bytes, &options).unwrap().requests, wanted, "{name}");
    }
    assert!(error("web", &bytes, &ReadOptions::default()).contains("--trace-format, one of msr,"));
    assert_eq!(
        error("web.u32", &bytes[..10], &ReadOptions::default()),
        "web.u32:3: the file ends inside a record, after 2 of 4 bytes"
    );
    // A text of that name is one of numbers, too; that it is no whole number of them tells.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("web.u32");
    std::fs::write(&path, "seventeen").unwrap();
    assert!(open(&path, &ReadOptions::default()).unwrap().last().unwrap().is_err());
}

/// A file over and over, which counts what is read of it.
struct Endless {
    bytes: &'static [u8],
    at: usize,
    read: Arc<AtomicU64>,
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let rest = &self.bytes[self.at..];
        let len = rest.len().min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        self.at = (self.at + len) % self.bytes.len();
        self.read.fetch_add(len as u64, Ordering::Relaxed);
        Ok(len)
    }
}

#[test]
fn a_reader_of_any_format_is_never_far_ahead_of_what_it_hands_out() {
    const MAX_AHEAD_BYTES: u64 = 1 << 20;
    for format in Format::ALL {
        // Their files cannot be put one behind the other: they have a header that is read once, or an end.
        if matches!(format.name(), "hp-srt" | "mgt" | "csv" | "cloudphysics" | "libcachesim-csv" | "fio") {
            continue;
        }
        let (example, read) = (format.example(), Arc::new(AtomicU64::new(0)));
        let stream = BufReader::new(Endless { bytes: example.bytes, at: 0, read: Arc::clone(&read) });
        let options = ReadOptions { format: Some(*format), ..ReadOptions::default() };
        let mut reader = TraceReader::from_stream(example.file_name, stream, &options).unwrap();
        for repetition in 0..300_000 / example.requests {
            for _ in 0..example.requests {
                reader.next().unwrap().unwrap();
            }
            let used = repetition * example.bytes.len() as u64;
            let ahead = read.load(Ordering::Relaxed).saturating_sub(used);
            assert!(ahead < MAX_AHEAD_BYTES, "{format}: {ahead} bytes ahead after {used}");
        }
        assert!(read.load(Ordering::Relaxed) > 300_000, "{format}");
    }
}
