use crate::IoKind;
use crate::devices::linux_name;
use crate::format::{Detection, Entry, Example, FormatRow, Reader, RecordReader, Stream};
use crate::records::{ends_inside, le_u32, le_u64, read_up_to};
use std::io::{self, BufRead, Read};

pub(super) static ROW: FormatRow = FormatRow {
    name: "blktrace",
    summary: "blktrace, binary, little endian: events of 48 bytes and their payload; one action is counted (Q, else D, else C)",
    source: "Linux, include/uapi/linux/blktrace_api.h, version 7; merge the files of several CPUs with blkparse -d",
    detection: Detection::Magic(b"\x07tae"),
    reader: Reader::Records(|stream| Ok(Ok(Box::new(Blktrace::new(stream)?)))),
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
/// u32 device, u32 CPU, u16 error, u16 bytes of payload. Every request passes through several actions, of which one is
/// counted.
struct Blktrace {
    stream: Stream,
    action: u32,
}

const EVENT_BYTES: usize = 48;
/// The magic of version 7, which every event starts with.
const MAGIC: u32 = 0x6561_7407;
/// The same as a machine of the other byte order writes it.
const MAGIC_OF_BIG_ENDIAN: u32 = MAGIC.swap_bytes();
/// The actions, in the lowest byte of their word: a request is queued, issued to the driver, completed.
const QUEUE: u32 = 1;
const ISSUE: u32 = 7;
const COMPLETE: u32 = 8;
/// The categories, in the high half.
const WRITE: u32 = 1 << 17;
const FLUSH: u32 = 1 << 18;
const PACKET_COMMAND: u32 = 1 << 25;
const NOTIFY: u32 = 1 << 26;
const DISCARD: u32 = 1 << 29;

/// The action of an event that is one of a request. The bit above the lowest byte says that a control group is in the payload.
fn action_of(word: u32) -> Option<u32> {
    (word & NOTIFY == 0).then_some(word & 0xff)
}

impl Blktrace {
    /// Counts requests when they are queued if the start of the file shows that, else when they are issued or completed:
    /// a trace may have been taken with some of the actions only.
    fn new(mut stream: Stream) -> io::Result<Self> {
        let mut seen = [false; 256];
        let mut head = stream.fill_buf()?;
        while let Some(event) = head.get(..EVENT_BYTES).filter(|event| le_u32(event, 0) == MAGIC) {
            if let Some(action) = action_of(le_u32(event, 28)) {
                seen[action as usize] = true;
            }
            head = head.get(EVENT_BYTES + (le_u32(event, 44) >> 16) as usize..).unwrap_or_default();
        }
        let action = [QUEUE, ISSUE, COMPLETE].into_iter().find(|action| seen[*action as usize]);
        Ok(Self { stream, action: action.unwrap_or(QUEUE) })
    }

    fn parse(&self, event: &[u8]) -> Result<Entry, String> {
        let (action, len_bytes) = (le_u32(event, 28), u64::from(le_u32(event, 24)));
        match action_of(action) {
            None => return Ok(Entry::Ignored("message")),
            Some(of_request) if of_request != self.action => return Ok(Entry::Ignored("another action of a request")),
            Some(_) if action & PACKET_COMMAND != 0 => return Ok(Entry::Ignored("command that is no read or write")),
            Some(_) => {}
        }
        let kind = match action {
            _ if action & DISCARD != 0 => IoKind::Trim,
            _ if action & FLUSH != 0 && len_bytes == 0 => IoKind::Flush,
            _ if action & WRITE != 0 => IoKind::Write,
            _ => IoKind::Read,
        };
        let sector = if kind == IoKind::Flush { 0 } else { le_u64(event, 16) };
        let offset_bytes = sector.checked_mul(512).ok_or("the sector is too large")?;
        Ok(Entry::request(le_u64(event, 8).into(), kind, le_u32(event, 36), offset_bytes, len_bytes))
    }
}

impl RecordReader for Blktrace {
    fn next(&mut self) -> io::Result<Option<Result<Entry, String>>> {
        let mut event = [0; EVENT_BYTES];
        match read_up_to(&mut self.stream, &mut event)? {
            0 => return Ok(None),
            EVENT_BYTES => {}
            n => return Ok(Some(Err(ends_inside(n, EVENT_BYTES)))),
        }
        match le_u32(&event, 0) {
            MAGIC => {}
            MAGIC_OF_BIG_ENDIAN => return Ok(Some(Err(BIG_ENDIAN.into()))),
            other if other >> 8 == MAGIC >> 8 => {
                return Ok(Some(Err(format!("blktrace version {}; only version 7 is read", other & 0xff))));
            }
            _ => return Ok(Some(Err("the event does not start with the magic of blktrace".into()))),
        }
        let payload = u64::from(le_u32(&event, 44) >> 16);
        if io::copy(&mut (&mut self.stream).take(payload), &mut io::sink())? != payload {
            return Ok(Some(Err("the file ends inside the payload of an event".into())));
        }
        Ok(Some(self.parse(&event)))
    }

    fn device_name(&self, number: u32) -> Option<String> {
        Some(linux_name(number))
    }
}

const BIG_ENDIAN: &str = "the trace was taken on a big-endian machine; convert it with blkparse and read its text";
