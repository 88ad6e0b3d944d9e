//! A recorded day of a served disk, done again: the same code, on a device in memory that keeps no data.

use crate::LabError;
use margay_format::Superblock;
use margay_media::{ImageFlash, SparseFlash};
use margay_trace::{Event, IoKind, Recorded, RecordingReader, Request, Shape, Totals};
use margay_volume::flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId};
use margay_volume::{AnyFlash, FormatOptions, Hint, MapOnFlash, OpenOptions, Status, StoreOptions, Volume};
use serde::Serialize;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What one start of the server did, from the opening of the disk to its stop.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServedRow {
    /// Number of the start, from 1.
    pub start: u32,
    /// The selection policy.
    pub selection: String,
    /// The placement policy.
    pub placement: String,
    /// The leveling policy.
    pub leveling: String,
    /// Pages written by hosts.
    pub host_writes: u64,
    /// Pages copied.
    pub copies: u64,
    /// Other pages programmed: those of the disk's own, and of its checkpoint.
    pub metadata_pages: u64,
    /// Segments erased.
    pub erases: u64,
    /// Pages copied in idle time; part of `copies`.
    pub idle_copies: u64,
    /// Segments erased in idle time; part of `erases`.
    pub idle_erases: u64,
    /// Pages copied by leveling; part of `copies`.
    pub leveling_copies: u64,
    /// Pages programmed / pages written by hosts, since the disk was formatted; none before the first write.
    pub wa_since_format: Option<f64>,
    /// What the disk has done since it was formatted.
    pub since_format: Totals,
    /// Whether that and the copies are what was recorded at the stop; none if the recording ends before.
    pub is_as_recorded: Option<bool>,
}

/// What became of a recorded day.
#[derive(Clone, Debug, PartialEq)]
pub struct Served {
    /// A row for each start of the server.
    pub rows: Vec<ServedRow>,
    /// The erases of each segment at the end.
    pub erases: Vec<u32>,
}

/// The answers of the device about its syncs, as they were recorded.
struct Answers {
    reader: RecordingReader,
    pending: u64,
    has_ended: bool,
}

impl Answers {
    /// Whether the sync had ended. What was not recorded has.
    fn next(&mut self) -> bool {
        loop {
            if self.pending > 0 {
                self.pending -= 1;
                return false;
            }
            if std::mem::take(&mut self.has_ended) {
                return true;
            }
            match self.reader.next() {
                Some(Ok((_, Recorded::Event(Event::Syncs { pending, has_ended })))) => {
                    (self.pending, self.has_ended) = (pending, has_ended);
                }
                Some(Ok(_)) => {}
                // Whoever reads the requests meets the error, too.
                Some(Err(_)) | None => return true,
            }
        }
    }
}

struct Shared {
    device: AnyFlash,
    is_cached: bool,
    mark: Option<u64>,
    answers: Answers,
}

/// The device of a recorded disk: kept while the disk is stopped, and as slow to sync as it was.
#[derive(Clone)]
struct RecordedFlash {
    geometry: Geometry,
    shared: Arc<Mutex<Shared>>,
}

impl RecordedFlash {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flash for RecordedFlash {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn read(&mut self, ppn: Ppn, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.shared().device.read(ppn, data, spare)
    }

    fn program(&mut self, ppn: Ppn, data: &[u8], spare: &[u8]) -> Result<(), FlashError> {
        self.shared().device.program(ppn, data, spare)
    }

    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        self.shared().device.erase(segment)
    }

    fn read_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.shared().device.read_part(ppn, offset_bytes, bytes)
    }

    fn program_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &[u8]) -> Result<(), FlashError> {
        self.shared().device.program_part(ppn, offset_bytes, bytes)
    }

    fn end_sync(&mut self, wait: bool) -> Result<bool, FlashError> {
        Ok(wait || self.shared().answers.next())
    }

    fn is_cached(&self) -> bool {
        self.shared().is_cached
    }

    fn void_page(&mut self, ppn: Ppn) -> Result<(), FlashError> {
        self.shared().device.void_page(ppn)
    }

    fn mark(&mut self) -> Result<Option<u64>, FlashError> {
        Ok(self.shared().mark)
    }

    fn set_mark(&mut self, mark: Option<u64>) -> Result<(), FlashError> {
        self.shared().mark = mark;
        Ok(())
    }
}

/// A disk that is done again.
struct Day<'a> {
    path: &'a Path,
    from: Option<&'a Path>,
    device: Option<RecordedFlash>,
    volume: Option<Volume>,
    zeros: Vec<u8>,
    served: Served,
}

/// Does again what a recording says was done with a disk. `from` is a copy of the image as it was when the recording began;
/// without it, the disk is taken to have been formatted then. `progress` is called every few thousand entries with their
/// number, and stops the run by returning false.
///
/// # Errors
/// The recording cannot be read or is none, it begins with another disk than `from`, or it was stopped.
pub fn replay_served(
    path: &Path,
    from: Option<&Path>,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Served, LabError> {
    let served = Served { rows: Vec::new(), erases: Vec::new() };
    let mut day = Day { path, from, device: None, volume: None, zeros: Vec::new(), served };
    for (entry, number) in RecordingReader::open(path)?.zip(1u64..) {
        let (time_us, entry) = entry?;
        match entry {
            Recorded::Request { request, zeroes } => day.request(time_us, &request, zeroes),
            Recorded::Event(event) => day.event(&event)?,
        }
        if number.is_multiple_of(4096) && !progress(number) {
            let writes = day.volume.as_ref().map_or(0, |volume| volume.status().lifetime_writes);
            return Err(LabError::Interrupted { writes });
        }
    }
    if day.volume.is_some() {
        day.end(None);
    }
    if day.served.rows.is_empty() {
        return Err(day.problem("it holds no opening of a disk for writing, so nothing was done with one"));
    }
    Ok(day.served)
}

impl Day<'_> {
    fn problem(&self, problem: impl std::fmt::Display) -> LabError {
        LabError::Recording { path: self.path.display().to_string(), problem: problem.to_string() }
    }

    fn event(&mut self, event: &Event) -> Result<(), LabError> {
        match event {
            Event::Opened { shape, is_cached, totals, formatted, used } => {
                let decode = |bytes| Superblock::decode(bytes).map_err(|error| self.problem(error));
                let (formatted, used) = (decode(formatted)?, decode(used)?);
                self.open(*shape, *is_cached, *totals, &formatted, &used)
            }
            // What failed then fails now.
            Event::Idle { .. } => {
                if let Some(volume) = &mut self.volume {
                    let _ = volume.idle();
                }
                Ok(())
            }
            Event::Syncs { .. } => Ok(()),
            Event::Stopped { totals, copies, .. } => {
                self.end(Some((*totals, *copies)));
                Ok(())
            }
        }
    }

    fn request(&mut self, time_us: u64, request: &Request, zeroes: bool) {
        let Some(volume) = &mut self.volume else { return };
        let (offset, len) = (request.offset_bytes, request.len_bytes);
        // What failed then fails now.
        let _ = match request.kind {
            IoKind::Write => {
                let len = len as usize;
                self.zeros.resize(self.zeros.len().max(len), 0);
                volume.write_at(offset, &self.zeros[..len], Hint::None, time_us)
            }
            IoKind::Trim => volume.trim_at(offset, len, zeroes, time_us),
            IoKind::Flush => volume.flush(),
            IoKind::Read => Ok(()),
        };
    }

    fn open(
        &mut self,
        shape: Shape,
        is_cached: bool,
        totals: Totals,
        formatted: &Superblock,
        used: &Superblock,
    ) -> Result<(), LabError> {
        if self.volume.is_some() {
            return Err(self.problem(
                "the disk is opened again without a stop; the recording of a server that was killed is not whole",
            ));
        }
        let device = match &self.device {
            Some(device) => device.clone(),
            None => self.device(shape, formatted)?,
        };
        device.shared().is_cached = is_cached;
        let options = open_options(formatted, used).map_err(|error| self.problem(error))?;
        let volume = Volume::open(device.clone(), &options).map_err(|error| self.problem(error))?;
        let found = totals_of(&volume.status());
        if volume.status().superblock != used || found != totals {
            let problem = format!(
                "at start {} the disk had {}, and here it has {}; {}",
                self.served.rows.len() + 1,
                text(totals),
                text(found),
                match (self.from, self.served.rows.is_empty()) {
                    (None, true) =>
                        "the recording does not begin with the first start after `margay format`, or what was formatted had been used before: name a copy of the image as it was when the recording began with --from",
                    (Some(_), true) => "the image of --from is not as it was when the recording began",
                    (_, false) =>
                        "between the stop and this start something else was done with the image, or it was used without --record",
                }
            );
            return Err(self.problem(problem));
        }
        (self.device, self.volume) = (Some(device), Some(volume));
        Ok(())
    }

    /// The device as it was when the recording began.
    fn device(&self, shape: Shape, formatted: &Superblock) -> Result<RecordedFlash, LabError> {
        let geometry = geometry(shape).map_err(|error| self.problem(error))?;
        let answers = Answers { reader: RecordingReader::open(self.path)?, pending: 0, has_ended: false };
        let (device, mark): (AnyFlash, _) = match self.from {
            None => (Box::new(SparseFlash::new(geometry)), None),
            Some(image) => {
                let mut copy = copy_of(image)
                    .map_err(|problem| LabError::Recording { path: image.display().to_string(), problem })?;
                let mark = copy.mark().map_err(|error| self.problem(error))?;
                (Box::new(copy), mark)
            }
        };
        if *device.geometry() != geometry {
            return Err(self.problem("the image of --from has another shape than the one that was served"));
        }
        let shared = Arc::new(Mutex::new(Shared { device, is_cached: false, mark, answers }));
        let device = RecordedFlash { geometry, shared };
        if self.from.is_none() {
            let options = format_options(formatted).map_err(|error| self.problem(error))?;
            let volume = Volume::format(device.clone(), &options).and_then(Volume::stop);
            volume.map_err(|error| self.problem(error))?;
        }
        Ok(device)
    }

    fn end(&mut self, recorded: Option<(Totals, u64)>) {
        let Some(mut volume) = self.volume.take() else { return };
        if recorded.is_some() {
            let _ = volume.end();
        }
        let status = volume.status();
        let (superblock, counters, since_format) = (status.superblock, status.counters, totals_of(&status));
        self.served.erases.clone_from(&status.segments.erases);
        self.served.rows.push(ServedRow {
            start: self.served.rows.len() as u32 + 1,
            selection: superblock.selection.clone(),
            placement: superblock.placement.clone(),
            leveling: superblock.leveling.clone(),
            host_writes: counters.host_writes,
            copies: counters.copies,
            metadata_pages: status.metadata_pages(),
            erases: counters.erases,
            idle_copies: counters.idle_copies,
            idle_erases: counters.idle_erases,
            leveling_copies: counters.leveling_copies,
            wa_since_format: status.lifetime_write_amplification(),
            since_format,
            is_as_recorded: recorded.map(|recorded| recorded == (since_format, counters.copies)),
        });
    }
}

fn totals_of(status: &Status<'_>) -> Totals {
    Totals { host_writes: status.lifetime_writes, programs: status.lifetime_programs, erases: status.lifetime_erases() }
}

fn text(totals: Totals) -> String {
    let Totals { host_writes, programs, erases } = totals;
    format!("{host_writes} host page writes, {programs} pages programmed and {erases} erases behind it")
}

fn geometry(shape: Shape) -> Result<Geometry, String> {
    let geometry = Geometry::new(shape.segments, shape.pages_per_segment, shape.page_bytes);
    let geometry = geometry.map_err(|error| error.to_string())?;
    Ok(if shape.is_byte_programmable { geometry.byte_programmable() } else { geometry.with_spare(shape.spare_bytes) })
}

/// A copy of an image in a file without a name, so that the image stays as it is.
fn copy_of(image: &Path) -> Result<ImageFlash, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let copy = folder.path().join("copy.img");
    std::fs::copy(image, &copy).map_err(|error| error.to_string())?;
    // It is locked and open, and needs no name.
    Ok(ImageFlash::open(&copy, false).map_err(|error| error.to_string())?.without_sync())
}

fn format_options(formatted: &Superblock) -> Result<FormatOptions, Box<dyn std::error::Error>> {
    let store = StoreOptions {
        selection: formatted.selection.parse()?,
        leveling: formatted.leveling.parse()?,
        max_pages_per_write: formatted.max_pages_per_write,
        low_water: formatted.low_water,
        high_water: formatted.high_water,
        uuid: formatted.uuid,
        created_s: formatted.created_s,
        // Without effect on other devices.
        pair_pages: !formatted.has_summaries(),
        endurance_erases: formatted.endurance_erases,
        erases: Vec::new(),
    };
    Ok(FormatOptions {
        store,
        exported_pages: Some(formatted.exported_pages),
        placement: formatted.placement.parse()?,
        read_only_ranges: formatted.read_only_ranges.clone(),
        map: MapOnFlash::of(formatted),
    })
}

fn open_options(formatted: &Superblock, used: &Superblock) -> Result<OpenOptions, Box<dyn std::error::Error>> {
    let ranges = used.read_only_ranges.get(formatted.read_only_ranges.len()..).unwrap_or_default();
    Ok(OpenOptions {
        read_only: false,
        selection: Some(used.selection.parse()?),
        placement: Some(used.placement.parse()?),
        leveling: Some(used.leveling.parse()?),
        max_pages_per_write: Some(used.max_pages_per_write),
        max_segment_reads: 0,
        read_only_ranges: ranges.to_vec(),
    })
}
