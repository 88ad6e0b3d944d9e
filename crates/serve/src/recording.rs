//! Recording what is done with a served disk, so that it can be done again (`margay replay --as-served`).

use margay_trace::{Event, Recorded, RecordingWriter, Request, Shape, Totals, TraceError};
use margay_volume::flash::{Flash, FlashError, pass_on};
use margay_volume::{OpenOptions, Status, Volume, VolumeError, find};
use std::sync::{Arc, Mutex, PoisonError};

/// The answers of a device when it was asked whether a sync that was begun had ended. They depend on the host's disk, and
/// how far the log cleans ahead depends on them.
#[derive(Clone, Debug, Default)]
struct Answers(Arc<Mutex<Vec<(u64, bool)>>>);

impl Answers {
    fn add(&self, has_ended: bool) {
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match answers.last_mut() {
            Some((_, ended @ false)) if has_ended => *ended = true,
            Some((pending, false)) => *pending += 1,
            _ => answers.push((u64::from(!has_ended), has_ended)),
        }
    }

    fn take(&self) -> Vec<(u64, bool)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A layer that notes those answers.
struct NotesAnswers<F> {
    device: F,
    answers: Answers,
}

impl<F: Flash> Flash for NotesAnswers<F> {
    fn sync(&mut self) -> Result<(), FlashError> {
        self.device.sync()
    }

    fn hold(&mut self, on: bool) -> Result<(), FlashError> {
        self.device.hold(on)
    }

    fn begin_sync(&mut self) -> Result<(), FlashError> {
        self.device.begin_sync()
    }

    fn end_sync(&mut self, wait: bool) -> Result<bool, FlashError> {
        let has_ended = self.device.end_sync(wait)?;
        if !wait {
            self.answers.add(has_ended);
        }
        Ok(has_ended)
    }

    pass_on!(device: pages, parts, retire, has_payload, shortcuts, is_cached, void_page, mark, set_mark);
}

/// The recording of a served volume. After an error nothing more is recorded; [`Stopped`](crate::Stopped) has it.
#[derive(Debug)]
pub struct Recording {
    writer: Result<RecordingWriter, TraceError>,
    answers: Answers,
    requests: u64,
}

/// What the disk has done since it was formatted.
pub(crate) fn totals(status: &Status<'_>) -> Totals {
    Totals { host_writes: status.lifetime_writes, programs: status.lifetime_programs, erases: status.lifetime_erases() }
}

impl Recording {
    /// Opens a device as [`Volume::open`] does, and records what is done from then on.
    ///
    /// # Errors
    /// Those of [`Volume::open`].
    pub fn open<F: Flash + Send + 'static>(
        mut device: F,
        options: &OpenOptions,
        writer: RecordingWriter,
    ) -> Result<(Volume, Self), VolumeError> {
        let (geometry, is_cached) = (*device.geometry(), device.is_cached());
        let formatted = find(&mut device)?.encode()?.to_vec();
        let answers = Answers::default();
        let volume = Volume::open(NotesAnswers { device, answers: answers.clone() }, options)?;
        let mut recording = Self { writer: Ok(writer), answers, requests: 0 };
        if volume.is_read_only() {
            return Ok((volume, recording));
        }
        let shape = Shape {
            segments: geometry.segments(),
            pages_per_segment: geometry.pages_per_segment(),
            page_bytes: geometry.page_bytes(),
            spare_bytes: geometry.spare_bytes(),
            is_byte_programmable: geometry.is_byte_programmable(),
        };
        let status = volume.status();
        let (totals, used) = (totals(&status), status.superblock.encode()?.to_vec());
        recording.event(volume.now_us(), Event::Opened { shape, is_cached, totals, formatted, used });
        Ok((volume, recording))
    }

    /// A request of a client, which is carried out in one part or more.
    pub(crate) fn count_request(&mut self) {
        self.requests += 1;
    }

    pub(crate) fn request(&mut self, request: &Request, zeroes: bool) {
        self.write(request.time_us, Some(Recorded::Request { request: *request, zeroes }));
    }

    pub(crate) fn event(&mut self, now_us: u64, event: Event) {
        self.write(now_us, Some(Recorded::Event(event)));
    }

    /// Writes the answers that were given before, and then the entry.
    fn write(&mut self, now_us: u64, entry: Option<Recorded>) {
        let Ok(writer) = &mut self.writer else { return };
        let answers = self.answers.take().into_iter();
        let answers = answers.map(|(pending, has_ended)| Recorded::Event(Event::Syncs { pending, has_ended }));
        if let Err(error) = answers.chain(entry).try_for_each(|entry| writer.write(now_us, &entry)) {
            tracing::error!("what is done is no longer recorded: {error}");
            self.writer = Err(error);
        }
    }

    /// Completes the recording; the number of its requests.
    pub(crate) fn finish(mut self, now_us: u64) -> Result<u64, TraceError> {
        self.write(now_us, None);
        self.writer?.finish().map(|_| self.requests)
    }
}
