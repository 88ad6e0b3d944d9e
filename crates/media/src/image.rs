mod held;
mod syncer;

use crate::ram::{check_page, check_part, check_run};
use held::Held;
use margay_flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId};
use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::path::Path;
use syncer::Syncer;

const MAGIC: &[u8; 7] = b"MGIMAGE";
/// Version of the file, behind the magic bytes: 2 since files have a mark, which a program that does not keep it must
/// not write past.
const VERSION: u8 = 2;
/// Where the mark is kept: in two places by turns, so that one of them is whole at every moment.
const MARKS_AT: [u64; 2] = [512, 1024];
/// Bytes of the file before the first page.
const HEADER_BYTES: u64 = 4096;

/// Bytes of a segment that are erased by one write.
const MAX_ZEROS_BYTES: usize = 512 << 10;

/// A flash device in a file.
///
/// The file starts with a header of 4,096 bytes that describes the chip; behind it lie the pages, each with its
/// spare area. All bytes are stored inverted, so that a hole in the file is erased flash (FORMAT.md, "Image file").
#[derive(Debug)]
pub struct ImageFlash {
    file: File,
    geometry: Geometry,
    /// Whether [`Flash::sync`] waits until the host's disk has the data.
    is_synced: bool,
    /// Nothing was ever written from this byte on: there the file is a hole, which is erased flash.
    hole_from: u64,
    /// Something was written since the last sync began.
    dirty: bool,
    syncer: Syncer,
    /// A sync has failed. The host may have dropped what it was to save, so that the next one would mean nothing.
    failed_sync: Option<FlashError>,
    /// The marks as they are in the file.
    marks: [Option<u64>; 2],
    version: u8,
    /// Programs may wait to be written together.
    is_holding: bool,
    held: Held,
    /// What erased flash is in the file, a part of a segment or all of it.
    zeros: Vec<u8>,
}

/// Why a file is not an image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The file cannot be opened, read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file is something else.
    #[error("it is not a flash image: the mark at its start is missing")]
    NotAnImage,
    /// Another process uses it.
    #[error("another process uses it")]
    InUse,
    /// A later version of margay has written it.
    #[error("it is an image of version {version}, and this margay knows versions up to {VERSION}: use a later margay")]
    Newer {
        /// Its version.
        version: u8,
    },
    /// Its header makes no sense, or the file is shorter than the header says.
    #[error("its header is damaged: {0}")]
    Damaged(String),
}

fn io_error(error: &io::Error) -> FlashError {
    FlashError::Io { code: error.raw_os_error().unwrap_or(0) }
}

/// The mark, and the same with every bit inverted: what was written in part is neither.
fn encode_mark(mark: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&mark.to_le_bytes());
    bytes[8..].copy_from_slice(&(!mark).to_le_bytes());
    bytes
}

fn decode_mark(bytes: [u8; 16]) -> Option<u64> {
    let (mark, inverted) = bytes.split_at(8);
    let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).ok();
    number(mark).filter(|mark| number(inverted) == Some(!mark))
}

fn invert(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
}

impl ImageFlash {
    /// Creates an erased device in a new file. Fails if the file exists.
    pub fn create(path: &Path, geometry: Geometry) -> Result<Self, ImageError> {
        Self::create_in(OpenOptions::new().read(true).write(true).create_new(true).open(path)?, geometry)
    }

    /// Creates an erased device in an empty file that is open for reading and writing, and locks it.
    pub fn create_in(file: File, geometry: Geometry) -> Result<Self, ImageError> {
        lock(&file, false)?;
        let mut header = [0; 40];
        header[..7].copy_from_slice(MAGIC);
        header[7] = VERSION;
        let fields = [geometry.segments(), geometry.pages_per_segment(), geometry.page_bytes(), geometry.spare_bytes()];
        for (slot, field) in header[8..].chunks_exact_mut(4).zip(fields) {
            slot.copy_from_slice(&field.to_le_bytes());
        }
        header[24] = u8::from(geometry.is_byte_programmable());
        file.write_all_at(&header, 0)?;
        file.set_len(Self::file_bytes(&geometry))?;
        Ok(Self { hole_from: HEADER_BYTES, ..Self::with(file, geometry, VERSION) })
    }

    /// Opens a device and locks its file: for itself alone, or with `read_only` for all who only read it. The file is then
    /// opened for reading only; otherwise what is read from then on is what the host's disk has, and not what a failed
    /// write left in the host's memory.
    pub fn open(path: &Path, read_only: bool) -> Result<Self, ImageError> {
        let file = OpenOptions::new().read(true).write(!read_only).open(path)?;
        lock(&file, read_only)?;
        let mut header = [0; 40];
        match file.read_exact_at(&mut header, 0) {
            Ok(()) if header.starts_with(MAGIC) && header[7] > VERSION => {
                return Err(ImageError::Newer { version: header[7] });
            }
            Ok(()) if header.starts_with(MAGIC) && header[7] > 0 => {}
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error.into()),
            _ => return Err(ImageError::NotAnImage),
        }
        let field = |i: usize| u32::from_le_bytes([header[i], header[i + 1], header[i + 2], header[i + 3]]);
        let damaged = |what: String| ImageError::Damaged(what);
        let geometry = Geometry::new(field(8), field(12), field(16)).map_err(|error| damaged(error.to_string()))?;
        if field(20) > 65_536 || field(16) > 1 << 20 {
            return Err(damaged(format!("pages of {} + {} bytes", field(16), field(20))));
        }
        let geometry = geometry.with_spare(field(20));
        let geometry = if header[24] == 1 { geometry.byte_programmable() } else { geometry };
        let (len, needed) = (file.metadata()?.len(), Self::file_bytes(&geometry));
        if len < needed {
            return Err(damaged(format!("the file has {len} bytes where its geometry needs {needed}")));
        }
        if !read_only {
            file.sync_data()?;
            // Advice that the host may not take; there is nothing to be done about that.
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        }
        let mut image = Self::with(file, geometry, header[7]);
        for (slot, at) in MARKS_AT.into_iter().enumerate() {
            let mut bytes = [0; 16];
            image.file.read_exact_at(&mut bytes, at)?;
            image.marks[slot] = decode_mark(bytes);
        }
        Ok(image)
    }

    fn with(file: File, geometry: Geometry, version: u8) -> Self {
        Self {
            file,
            geometry,
            is_synced: true,
            dirty: false,
            hole_from: u64::MAX,
            syncer: Syncer::default(),
            failed_sync: None,
            marks: [None; 2],
            version,
            is_holding: false,
            held: Held::default(),
            zeros: Vec::new(),
        }
    }

    fn write_mark(&mut self, slot: usize, mark: Option<u64>) -> io::Result<()> {
        self.file.write_all_at(&mark.map_or([0; 16], encode_mark), MARKS_AT[slot])?;
        self.marks[slot] = mark;
        Ok(())
    }

    /// The same device with a [`Flash::sync`] that does not wait for the host's disk. Data that was synced may then be
    /// lost when the host loses its power, though not when the process is killed.
    #[must_use]
    pub fn without_sync(mut self) -> Self {
        self.is_synced = false;
        self
    }

    /// Bytes of the file of a device.
    pub fn file_bytes(geometry: &Geometry) -> u64 {
        let stride = u64::from(geometry.page_bytes()) + u64::from(geometry.spare_bytes());
        HEADER_BYTES + u64::from(geometry.pages()) * stride
    }

    /// The file will be written up to this byte.
    fn touch(&mut self, end: u64) {
        self.dirty = true;
        if self.hole_from != u64::MAX {
            self.hole_from = self.hole_from.max(end);
        }
    }

    /// Writes bytes behind everything that was programmed so far.
    fn write(&mut self, bytes: &[u8], at: u64) -> Result<(), FlashError> {
        self.write_held()?;
        self.touch(at + bytes.len() as u64);
        self.file.write_all_at(bytes, at).map_err(|error| io_error(&error))
    }

    /// Writes the programs that wait.
    fn write_held(&mut self) -> Result<(), FlashError> {
        if self.held.is_empty() {
            return Ok(());
        }
        self.touch(self.held.end());
        self.held.write(&self.file).map_err(|error| io_error(&error))
    }

    /// What follows from the result of a sync: after one that failed, none succeeds.
    fn note_sync(&mut self, result: io::Result<()>) -> Result<(), FlashError> {
        if let Err(error) = result {
            self.failed_sync.get_or_insert(io_error(&error));
        }
        self.failed_sync.map_or(Ok(()), Err)
    }

    fn stride(&self) -> usize {
        (self.geometry.page_bytes() + self.geometry.spare_bytes()) as usize
    }

    fn read_page(&self, ppn: Ppn, data: &mut [u8], spare: &mut [u8]) -> io::Result<()> {
        let at = self.at(ppn);
        if let Some(held) = self.held.get(at, self.stride()) {
            let (held_data, held_spare) = held.split_at(self.geometry.page_bytes() as usize);
            data.copy_from_slice(&held_data[..data.len()]);
            spare.copy_from_slice(&held_spare[..spare.len()]);
            return Ok(());
        }
        // Only a whole page lies before its spare area without a gap.
        if data.len() == self.geometry.page_bytes() as usize && !spare.is_empty() {
            let wanted = data.len() + spare.len();
            let mut parts = [IoSliceMut::new(data), IoSliceMut::new(spare)];
            if rustix::io::preadv(&self.file, &mut parts, at) == Ok(wanted) {
                return Ok(());
            }
        }
        self.file.read_exact_at(data, at)?;
        self.file.read_exact_at(spare, at + u64::from(self.geometry.page_bytes()))
    }

    fn at(&self, ppn: Ppn) -> u64 {
        HEADER_BYTES + u64::from(ppn.0) * self.stride() as u64
    }
}

fn lock(file: &File, shared: bool) -> Result<(), ImageError> {
    match if shared { file.try_lock_shared() } else { file.try_lock() } {
        Ok(()) => Ok(()),
        Err(std::fs::TryLockError::WouldBlock) => Err(ImageError::InUse),
        Err(std::fs::TryLockError::Error(error)) => Err(error.into()),
    }
}

impl Flash for ImageFlash {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn read(&mut self, ppn: Ppn, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, FlashError> {
        check_page(&self.geometry, ppn, data.len(), spare.len())?;
        self.read_page(ppn, data, spare).map_err(|error| io_error(&error))?;
        invert(data);
        invert(spare);
        Ok(ReadStatus::Clean)
    }

    fn read_run(&mut self, first: Ppn, data: &mut [u8], spare: &mut [u8]) -> bool {
        let Some(pages) = check_run(&self.geometry, first, data.len(), spare.len()) else { return false };
        let (at, wanted) = (self.at(first), pages.len() * self.stride());
        if self.held.overlaps(at, at + wanted as u64) {
            return false;
        }
        let (page_bytes, spare_bytes) = (self.geometry.page_bytes() as usize, self.geometry.spare_bytes() as usize);
        let pairs = data.chunks_mut(page_bytes).zip(spare.chunks_mut(spare_bytes));
        let mut parts: Vec<_> =
            pairs.flat_map(|(data, spare)| [IoSliceMut::new(data), IoSliceMut::new(spare)]).collect();
        // The system takes up to 1,024 parts.
        if rustix::io::preadv(&self.file, &mut parts, at) != Ok(wanted) {
            return false;
        }
        invert(data);
        invert(spare);
        true
    }

    fn is_known_erased(&mut self, segment: SegmentId) -> bool {
        let at = self.at(self.geometry.first_page(segment));
        let end = at + self.stride() as u64 * u64::from(self.geometry.pages_per_segment());
        if segment.0 >= self.geometry.segments() || self.held.overlaps(at, end) {
            return false;
        }
        // A host whose files have no holes says that there is data.
        at >= self.hole_from
            || match rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Data(at)) {
                Ok(data_at) => data_at >= end,
                Err(error) => error == rustix::io::Errno::NXIO,
            }
    }

    fn program(&mut self, ppn: Ppn, data: &[u8], spare: &[u8]) -> Result<(), FlashError> {
        check_page(&self.geometry, ppn, data.len(), spare.len())?;
        if !self.is_holding || self.held.is_full() {
            self.write_held()?;
        }
        let (at, stride) = (self.at(ppn), self.stride());
        self.held.put(at, data, spare, self.geometry.page_bytes() as usize, stride);
        if self.is_holding {
            return Ok(());
        }
        // It was alone, and the caller is told of an error.
        self.write_held().inspect_err(|_| self.held.clear())
    }

    fn hold(&mut self, on: bool) -> Result<(), FlashError> {
        self.is_holding = on;
        if on { Ok(()) } else { self.write_held() }
    }

    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        let segments = self.geometry.segments();
        if segment.0 >= segments {
            return Err(FlashError::SegmentOutOfRange { segment, segments });
        }
        self.write_held()?;
        let at = self.at(self.geometry.first_page(segment));
        if at >= self.hole_from {
            return Ok(());
        }
        // A hole would cost the host more, with every page that is programmed in it later.
        let end = at + self.stride() as u64 * u64::from(self.geometry.pages_per_segment());
        let mut zeros = std::mem::take(&mut self.zeros);
        zeros.resize(MAX_ZEROS_BYTES.min((end - at) as usize), 0);
        let mut parts = (at..end).step_by(zeros.len());
        let result = parts.try_for_each(|part| {
            let len = zeros.len().min((end - part) as usize);
            self.write(&zeros[..len], part)
        });
        self.zeros = zeros;
        result
    }

    fn read_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &mut [u8]) -> Result<ReadStatus, FlashError> {
        check_part(&self.geometry, ppn, offset_bytes, bytes.len())?;
        self.write_held()?;
        self.file.read_exact_at(bytes, self.at(ppn) + u64::from(offset_bytes)).map_err(|error| io_error(&error))?;
        invert(bytes);
        Ok(ReadStatus::Clean)
    }

    fn program_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &[u8]) -> Result<(), FlashError> {
        check_part(&self.geometry, ppn, offset_bytes, bytes.len())?;
        let mut old = vec![0; bytes.len()];
        self.read_part(ppn, offset_bytes, &mut old)?;
        let new: Vec<u8> = old.iter().zip(bytes).map(|(old, new)| !(old & new)).collect();
        self.write(&new, self.at(ppn) + u64::from(offset_bytes))
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        self.write_held()?;
        self.end_sync(true)?;
        if self.is_synced && self.dirty {
            let synced = self.file.sync_data();
            self.note_sync(synced)?;
            self.dirty = false;
        }
        Ok(())
    }

    fn begin_sync(&mut self) -> Result<(), FlashError> {
        self.write_held()?;
        self.end_sync(true)?;
        if self.is_synced && self.dirty {
            let begun = self.syncer.begin(&self.file);
            self.note_sync(begun)?;
            self.dirty = false;
        }
        Ok(())
    }

    fn end_sync(&mut self, wait: bool) -> Result<bool, FlashError> {
        match self.syncer.end(wait) {
            None => Ok(false),
            Some(result) => self.note_sync(result).map(|()| true),
        }
    }

    fn is_cached(&self) -> bool {
        self.is_synced
    }

    fn void_page(&mut self, ppn: Ppn) -> Result<(), FlashError> {
        check_page(&self.geometry, ppn, 0, 0)?;
        // Zeros, inverted like everything.
        self.write(&vec![0xFF; self.stride()], self.at(ppn))
    }

    fn mark(&mut self) -> Result<Option<u64>, FlashError> {
        Ok(self.marks.into_iter().flatten().max())
    }

    fn set_mark(&mut self, mark: Option<u64>) -> Result<(), FlashError> {
        let set = |image: &mut Self| {
            if mark < image.marks[0].max(image.marks[1]) {
                image.write_mark(0, None)?;
                image.write_mark(1, None)?;
                if mark.is_none() {
                    // No mark keeps up with what is done from now on, so the old one must be gone before it.
                    image.file.sync_data()?;
                }
            }
            if mark.is_none() {
                return Ok(());
            }
            if image.version < VERSION {
                image.file.write_all_at(&[VERSION], MAGIC.len() as u64)?;
                image.version = VERSION;
            }
            // The other one stays as it is.
            image.write_mark(usize::from(image.marks[0] > image.marks[1]), mark)
        };
        self.write_held()?;
        self.dirty = true;
        set(self).map_err(|error| io_error(&error))
    }
}

#[cfg(test)]
mod tests;
