//! Recordings of a served disk: the requests of its clients with all else that changed it, so that the day can be done
//! again. To every reader of traces a recording is a trace of the requests.

use crate::compress::Input;
use crate::format::{Entry, RecordReader, RecordWriter};
use crate::formats::mgt::{Decoder, Encoder};
use crate::leb128;
use crate::{Request, TraceError};
use margay_host::{Existing, NewFile};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

/// What a disk has done since it was formatted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Totals {
    /// Pages written by hosts.
    pub host_writes: u64,
    /// Pages programmed.
    pub programs: u64,
    /// Segments erased.
    pub erases: u64,
}

/// The shape of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Segments.
    pub segments: u32,
    /// Pages of a segment.
    pub pages_per_segment: u32,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Bytes of the spare area of a page.
    pub spare_bytes: u32,
    /// It is programmed byte by byte.
    pub is_byte_programmable: bool,
}

/// Something that changed a served disk and was no request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The disk was opened.
    Opened {
        /// The device.
        shape: Shape,
        /// Writes wait for a sync before they are durable.
        is_cached: bool,
        /// The state right after.
        totals: Totals,
        /// The superblock that the disk was formatted with, as its bytes on flash.
        formatted: Vec<u8>,
        /// The same with the policies that it runs with, and with all read-only ranges.
        used: Vec<u8>,
    },
    /// A step of work in idle time.
    Idle {
        /// At most so many pages were to be copied.
        max_pages: u32,
    },
    /// The device was asked whether a sync that was begun has ended.
    Syncs {
        /// So many times it had not.
        pending: u64,
        /// Then it had.
        has_ended: bool,
    },
    /// The disk was stopped cleanly.
    Stopped {
        /// There was room for a checkpoint.
        with_checkpoint: bool,
        /// The state right after.
        totals: Totals,
        /// Pages copied since it was opened.
        copies: u64,
    },
}

const OPENED: u8 = 1;
const IDLE: u8 = 2;
const SYNCS: u8 = 3;
const STOPPED: u8 = 4;

/// Bytes of the longest event.
pub(crate) const MAX_EVENT_BYTES: usize = 2048;

impl Totals {
    fn put(&self, out: &mut Vec<u8>) {
        [self.host_writes, self.programs, self.erases].iter().for_each(|number| leb128::put(out, *number));
    }

    fn take(bytes: &mut &[u8]) -> io::Result<Option<Self>> {
        let (host_writes, programs, erases) = (leb128::take(bytes)?, leb128::take(bytes)?, leb128::take(bytes)?);
        Ok(host_writes.zip(programs).zip(erases).map(|((host_writes, programs), erases)| Self {
            host_writes,
            programs,
            erases,
        }))
    }
}

impl Shape {
    fn put(&self, out: &mut Vec<u8>) {
        for number in [self.segments, self.pages_per_segment, self.page_bytes, self.spare_bytes] {
            leb128::put(out, number.into());
        }
        out.push(self.is_byte_programmable.into());
    }

    fn take(bytes: &mut &[u8]) -> io::Result<Option<Self>> {
        let mut numbers = [0; 4];
        for number in &mut numbers {
            let Some(found) = leb128::take(bytes)?.and_then(|number| u32::try_from(number).ok()) else {
                return Ok(None);
            };
            *number = found;
        }
        let [segments, pages_per_segment, page_bytes, spare_bytes] = numbers;
        let is_byte_programmable = take_bool(bytes);
        Ok(is_byte_programmable.map(|is_byte_programmable| Self {
            segments,
            pages_per_segment,
            page_bytes,
            spare_bytes,
            is_byte_programmable,
        }))
    }
}

fn take_bool(bytes: &mut &[u8]) -> Option<bool> {
    let (first, rest) = bytes.split_first()?;
    *bytes = rest;
    (*first < 2).then_some(*first == 1)
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    leb128::put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn take_bytes(bytes: &mut &[u8]) -> io::Result<Option<Vec<u8>>> {
    let len = leb128::take(bytes)?.and_then(|len| usize::try_from(len).ok());
    let Some((taken, rest)) = len.and_then(|len| bytes.split_at_checked(len)) else { return Ok(None) };
    *bytes = rest;
    Ok(Some(taken.to_vec()))
}

impl Event {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Opened { shape, is_cached, totals, formatted, used } => {
                out.push(OPENED);
                shape.put(out);
                out.push((*is_cached).into());
                totals.put(out);
                put_bytes(out, formatted);
                put_bytes(out, used);
            }
            Self::Idle { max_pages } => {
                out.push(IDLE);
                leb128::put(out, (*max_pages).into());
            }
            Self::Syncs { pending, has_ended } => {
                out.push(SYNCS);
                leb128::put(out, *pending);
                out.push((*has_ended).into());
            }
            Self::Stopped { with_checkpoint, totals, copies } => {
                out.extend([STOPPED, u8::from(*with_checkpoint)]);
                totals.put(out);
                leb128::put(out, *copies);
            }
        }
    }

    /// Reads an event; `None` if it makes no sense.
    pub(crate) fn decode(mut bytes: &[u8]) -> io::Result<Option<Self>> {
        let Some((&tag, rest)) = bytes.split_first() else { return Ok(None) };
        bytes = rest;
        let bytes = &mut bytes;
        let event = match tag {
            OPENED => {
                let (shape, is_cached) = (Shape::take(bytes)?, take_bool(bytes));
                let (totals, formatted, used) = (Totals::take(bytes)?, take_bytes(bytes)?, take_bytes(bytes)?);
                let known = shape.zip(is_cached).zip(totals).zip(formatted.zip(used));
                known.map(|(((shape, is_cached), totals), (formatted, used))| Self::Opened {
                    shape,
                    is_cached,
                    totals,
                    formatted,
                    used,
                })
            }
            IDLE => {
                let max_pages = leb128::take(bytes)?.and_then(|pages| u32::try_from(pages).ok());
                max_pages.map(|max_pages| Self::Idle { max_pages })
            }
            SYNCS => {
                let (pending, has_ended) = (leb128::take(bytes)?, take_bool(bytes));
                pending.zip(has_ended).map(|(pending, has_ended)| Self::Syncs { pending, has_ended })
            }
            STOPPED => {
                let (with_checkpoint, totals) = (take_bool(bytes), Totals::take(bytes)?);
                let known = with_checkpoint.zip(totals).zip(leb128::take(bytes)?);
                known.map(|((with_checkpoint, totals), copies)| Self::Stopped { with_checkpoint, totals, copies })
            }
            _ => None,
        };
        Ok(event.filter(|_| bytes.is_empty()))
    }
}

/// An entry of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// A request of a client, or a part of a long one that was carried out at once. Its time is that since the disk was
    /// formatted.
    Request {
        /// The request.
        request: Request,
        /// A trim after which the bytes read as zeros, those of pages that are not trimmed whole included.
        zeroes: bool,
    },
    /// Anything else.
    Event(Event),
}

/// Writes a recording. As with [`TraceWriter`](crate::TraceWriter), the file gets its name when it is finished.
pub struct RecordingWriter {
    path: PathBuf,
    out: Box<Encoder>,
    last_us: u64,
}

impl std::fmt::Debug for RecordingWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordingWriter").field("path", &self.path).finish_non_exhaustive()
    }
}

impl RecordingWriter {
    /// Starts a recording in a new file; `existing` says what is done if the file exists.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(path: &Path, existing: Existing) -> Result<Self, TraceError> {
        let open = || Encoder::with_events(BufWriter::new(NewFile::create(path, existing)?));
        let out = open().map_err(|error| TraceError::write(path, error))?;
        Ok(Self { path: path.into(), out: Box::new(out), last_us: 0 })
    }

    /// Starts one that goes on with the recording in this file, which is replaced when the new one is finished.
    ///
    /// # Errors
    /// There is no such recording, or it cannot be read or written.
    pub fn go_on_with(path: &Path) -> Result<Self, TraceError> {
        let old = RecordingReader::open(path)?;
        let mut new = Self::create(path, Existing::Replace)?;
        for entry in old {
            let (time_us, entry) = entry?;
            new.write(time_us, &entry)?;
        }
        Ok(new)
    }

    /// Appends an entry; a time before that of the last one becomes that one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, time_us: u64, entry: &Recorded) -> Result<(), TraceError> {
        self.last_us = self.last_us.max(time_us);
        let written = match entry {
            Recorded::Request { request, zeroes } => {
                self.out.write_request(&Request { time_us: self.last_us, ..*request }, *zeroes)
            }
            Recorded::Event(event) => self.out.write_event(self.last_us, event),
        };
        written.map_err(|error| self.error(error))
    }

    fn error(&self, error: io::Error) -> TraceError {
        TraceError::write(&self.path, error)
    }

    /// Completes the recording, makes it durable and gives it its name.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(self) -> Result<(), TraceError> {
        let complete = |out: Box<Encoder>| -> io::Result<()> {
            out.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?.commit()
        };
        complete(self.out).map_err(|error| TraceError::write(&self.path, error))
    }
}

/// A recording being read: an iterator over its entries with their times, in microseconds since the disk was formatted.
/// After an error it ends.
pub struct RecordingReader {
    path: String,
    decoder: Decoder,
    entries: u64,
    has_ended: bool,
}

impl std::fmt::Debug for RecordingReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordingReader").field("path", &self.path).finish_non_exhaustive()
    }
}

impl RecordingReader {
    /// Opens a recording.
    ///
    /// # Errors
    /// The file cannot be read, or is a trace without what a recording has.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let mut input = Input::open(path)?;
        let path = input.path.clone();
        let bad = |problem: String| TraceError::BadLine { path: path.clone(), line: 1, problem, text: String::new() };
        let decoder = Decoder::open_any(input.take_stream()).map_err(|error| TraceError::io(&path, error))?;
        let decoder = decoder.map_err(bad)?;
        if !decoder.has_events() {
            let problem = "a trace of requests alone; to do a day of a disk again takes a recording of it (margay serve --record)";
            return Err(bad(problem.into()));
        }
        Ok(Self { path: input.path, decoder, entries: 0, has_ended: false })
    }

    fn next_entry(&mut self) -> Result<Option<(u64, Recorded)>, TraceError> {
        let entry = self.decoder.next().map_err(|error| TraceError::Compressed {
            path: self.path.clone(),
            requests: self.entries,
            error,
        })?;
        self.entries += 1;
        let Some(entry) = entry else { return Ok(None) };
        let (time_us, zeroes) = self.decoder.last();
        match (entry, self.decoder.take_event()) {
            (Ok(Entry::Request(raw)), _) => {
                let crate::format::Raw { kind, device, offset_bytes, len_bytes, .. } = raw;
                let request = Request { time_us, kind, device, offset_bytes, len_bytes, stream: None };
                Ok(Some((time_us, Recorded::Request { request, zeroes })))
            }
            (Ok(Entry::Ignored(_)), Some(event)) => Ok(Some((time_us, Recorded::Event(event)))),
            (Ok(Entry::Ignored(problem)), None) => Err(self.bad(problem.into())),
            (Err(problem), _) => Err(self.bad(problem)),
        }
    }

    fn bad(&self, problem: String) -> TraceError {
        TraceError::BadLine { path: self.path.clone(), line: self.entries, problem, text: String::new() }
    }
}

impl Iterator for RecordingReader {
    type Item = Result<(u64, Recorded), TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let entry = self.next_entry();
        self.has_ended = !matches!(entry, Ok(Some(_)));
        entry.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IoKind, ReadOptions, open};

    fn totals(host_writes: u64) -> Totals {
        Totals { host_writes, programs: host_writes * 2, erases: 1 << 40 }
    }

    fn request(time_us: u64, kind: IoKind, offset_bytes: u64, len_bytes: u64) -> Request {
        Request { time_us, kind, device: 0, offset_bytes, len_bytes, stream: None }
    }

    fn entries() -> Vec<(u64, Recorded)> {
        let shape = Shape {
            segments: 64,
            pages_per_segment: 32,
            page_bytes: 4096,
            spare_bytes: 256,
            is_byte_programmable: true,
        };
        let (formatted, used) = (vec![7; 384], vec![0; 384]);
        let opened = Event::Opened { shape, is_cached: true, totals: totals(0), formatted, used };
        let write = request(1_000_000_007, IoKind::Write, 4096, 512);
        let zeroes = request(1_000_000_009, IoKind::Trim, 0, 8192);
        let trim = request(1_000_000_010, IoKind::Trim, 4096, 4096);
        let flush = request(1_000_000_010, IoKind::Flush, 0, 0);
        let stopped = Event::Stopped { with_checkpoint: true, totals: totals(9), copies: 5 };
        let request = |request: Request, zeroes| (request.time_us, Recorded::Request { request, zeroes });
        let event = |time_us, event| (time_us, Recorded::Event(event));
        vec![
            event(1_000_000_000, opened),
            request(write, false),
            event(1_000_000_008, Event::Idle { max_pages: 16 }),
            request(zeroes, true),
            request(trim, false),
            request(flush, false),
            event(1_000_000_010, Event::Syncs { pending: u64::MAX, has_ended: true }),
            event(2_000_000_000, stopped),
        ]
    }

    fn write(path: &Path, entries: &[(u64, Recorded)]) {
        let mut writer = RecordingWriter::create(path, Existing::Refuse).unwrap();
        entries.iter().for_each(|(time_us, entry)| writer.write(*time_us, entry).unwrap());
        writer.finish().unwrap();
    }

    fn read(path: &Path) -> Vec<(u64, Recorded)> {
        RecordingReader::open(path).unwrap().collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn a_recording_is_read_as_written_and_to_other_readers_is_a_trace_of_its_requests() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("day.mgt");
        write(&path, &entries());
        assert_eq!(read(&path), entries());
        let mut trace = open(&path, &ReadOptions::default()).unwrap();
        let requests: Vec<_> = trace.by_ref().map(Result::unwrap).collect();
        assert_eq!(requests.iter().map(|request| request.time_us).collect::<Vec<_>>(), [0, 2, 3, 3]);
        assert_eq!((requests[1].kind, requests[1].offset_bytes, requests[1].len_bytes), (IoKind::Trim, 0, 8192));
        assert_eq!(trace.counts().ignored["event of a served disk"], 4);
    }

    #[test]
    fn a_recording_goes_on_behind_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("day.mgt");
        write(&path, &entries());
        let mut writer = RecordingWriter::go_on_with(&path).unwrap();
        // The clock of the host went back.
        writer.write(5, &Recorded::Event(Event::Idle { max_pages: 1 })).unwrap();
        assert_eq!(read(&path), entries(), "until the new one is complete");
        writer.finish().unwrap();
        let mut longer = entries();
        longer.push((2_000_000_000, Recorded::Event(Event::Idle { max_pages: 1 })));
        assert_eq!(read(&path), longer);
    }

    #[test]
    fn a_trace_of_requests_alone_is_no_recording() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("requests.mgt");
        let mut writer = crate::TraceWriter::create(&path, crate::Format::MGT).unwrap();
        writer.write(&request(1, IoKind::Write, 0, 4096)).unwrap();
        writer.finish().unwrap();
        let error = RecordingReader::open(&path).unwrap_err().to_string();
        assert!(error.contains("requests.mgt") && error.contains("serve --record"), "{error}");
        assert!(RecordingWriter::go_on_with(&path).is_err());
    }

    #[test]
    fn an_event_that_was_cut_short_or_has_more_bytes_is_none() {
        for (_, entry) in entries() {
            let Recorded::Event(event) = entry else { continue };
            let mut bytes = Vec::new();
            event.encode(&mut bytes);
            assert_eq!(Event::decode(&bytes).unwrap(), Some(event));
            for len in 0..bytes.len() {
                assert!(matches!(Event::decode(&bytes[..len]), Ok(None) | Err(_)), "{len} bytes");
            }
            bytes.push(0);
            assert!(matches!(Event::decode(&bytes), Ok(None)));
        }
    }
}
