use crate::IoKind;
use crate::format::{Detection, Entry, Example, FormatRow, Reader, RecordReader, Stream};
use crate::records::read_up_to;
use std::io::{self, Read};

pub(super) static ROW: FormatRow = FormatRow {
    name: "blktrace",
    summary: "blktrace, binary, little endian: events of 48 bytes and their payload; the queuing of requests is counted",
    source: "Linux, include/uapi/linux/blktrace_api.h, version 7; merge the files of several CPUs with blkparse -d",
    detection: Detection::Magic(b"\x07tae"),
    reader: Reader::Records(|stream| Ok(Ok(Box::new(Blktrace { stream, events: 0 })))),
    writer: None,
    example: Example {
        file_name: "sda.blktrace.0",
        // A write of 4096 bytes at sector 8 is queued and issued, with 2 bytes of payload; then a flush is queued.
        bytes: b"\x07tae\x01\0\0\0\xe8\x03\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\0\x10\0\0\x01\0\x12\0\xb9\x02\0\0\0\0\x80\0\0\0\0\0\
                 \0\0\0\0\
                 \x07tae\x02\0\0\0\xd0\x07\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\0\x10\0\0\x07\0\x42\0\xb9\x02\0\0\0\0\x80\0\0\0\0\0\
                 \0\0\x02\0ab\
                 \x07tae\x03\0\0\0\xb8\x0b\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\x14\0\xb9\x02\0\0\0\0\x80\0\0\0\0\0\
                 \0\0\0\0",
        requests: 2,
    },
};

/// Events are u32 magic and version, u32 sequence, u64 time (ns), u64 sector (512 B), u32 bytes, u32 action, u32 pid,
/// u32 device, u32 CPU, u16 error, u16 bytes of payload.
struct Blktrace {
    stream: Stream,
    events: u64,
}

const EVENT_BYTES: usize = 48;
/// The magic of version 7, which every event starts with.
const MAGIC: u32 = 0x6561_7407;
/// The action, in the low half of its word: a request is queued.
const QUEUE: u32 = 1;
/// The categories, in the high half.
const WRITE: u32 = 1 << 17;
const FLUSH: u32 = 1 << 18;
const NOTIFY: u32 = 1 << 26;
const DISCARD: u32 = 1 << 29;

impl RecordReader for Blktrace {
    fn next(&mut self) -> io::Result<Option<Result<Entry, String>>> {
        let mut event = [0; EVENT_BYTES];
        match read_up_to(&mut self.stream, &mut event)? {
            0 => return Ok(None),
            EVENT_BYTES => {}
            n => return Ok(Some(Err(format!("the file ends inside an event, after {n} of {EVENT_BYTES} bytes")))),
        }
        self.events += 1;
        let u32_at = |at: usize| u32::from_le_bytes([event[at], event[at + 1], event[at + 2], event[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if u32_at(0) != MAGIC {
            return Ok(Some(Err(format!("event {} does not start with the magic of blktrace version 7", self.events))));
        }
        let payload = u64::from(u32_at(44) >> 16);
        if io::copy(&mut (&mut self.stream).take(payload), &mut io::sink())? != payload {
            return Ok(Some(Err("the file ends inside the payload of an event".into())));
        }
        let (action, len_bytes) = (u32_at(28), u64::from(u32_at(24)));
        Ok(Some(if action & NOTIFY != 0 {
            Ok(Entry::Ignored("message"))
        } else if action & 0xffff != QUEUE {
            Ok(Entry::Ignored("another action of a request"))
        } else {
            let kind = match action {
                _ if action & DISCARD != 0 => IoKind::Trim,
                _ if action & FLUSH != 0 && len_bytes == 0 => IoKind::Flush,
                _ if action & WRITE != 0 => IoKind::Write,
                _ => IoKind::Read,
            };
            let offset_bytes = if kind == IoKind::Flush { Some(0) } else { u64_at(16).checked_mul(512) };
            offset_bytes
                .map(|offset_bytes| Entry::request(u64_at(8).into(), kind, u32_at(36), offset_bytes, len_bytes))
                .ok_or_else(|| "the sector is too large".into())
        }))
    }
}
