use crate::{AnyFlash, Disk, FormatOptions, Health, OpenOptions, VolumeError};
use margay_flash::Flash;
use margay_format::{Layout, Superblock};
use margay_ftl::{MapCounters, MountReport};
use margay_log::{Counters, Hint, Uniformity};
use margay_policy::Segments;
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

/// What a volume is and how it is doing.
#[derive(Debug)]
pub struct Status<'a> {
    /// What it was formatted with, and is run with.
    pub superblock: &'a Superblock,
    /// Where its information on pages is kept.
    pub layout: Layout,
    /// What was done since it was opened.
    pub counters: &'a Counters,
    /// Its segments.
    pub segments: &'a Segments,
    /// Utilization, invalidity, uniformity.
    pub uniformity: Uniformity,
    /// Pages programmed since it was opened. Pages of the anchor are counted apart, and not here.
    pub programs: u64,
    /// Host page writes over its life, as far as known.
    pub lifetime_writes: u64,
    /// Pages programmed over its life, likewise.
    pub lifetime_programs: u64,
    /// Segments retired.
    pub retired_segments: usize,
    /// Bytes of memory it takes.
    pub memory_bytes: u64,
    /// Of a map on flash, the bytes of memory that it holds now and what it has done since the disk was opened; `None` if all of
    /// the map is in memory.
    pub map_on_flash: Option<(u64, MapCounters)>,
}

/// A disk by bytes, on any device.
///
/// ```
/// use margay_media::RamFlash;
/// use margay_volume::flash::Geometry;
/// use margay_volume::{FormatOptions, Hint, Volume};
///
/// let chip = RamFlash::new(Geometry::new(64, 32, 2048)?.with_spare(64));
/// let mut volume = Volume::format(chip, &FormatOptions::default())?;
/// volume.write(5000, b"over any bytes", Hint::None)?;
/// volume.flush()?;
/// let mut bytes = [0; 16];
/// volume.read(4998, &mut bytes)?;
/// assert_eq!(&bytes, b"\0\0over any bytes");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Volume {
    disk: Disk<AnyFlash>,
    page: Vec<u8>,
    is_holding: bool,
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume").field("superblock", self.disk.superblock()).finish_non_exhaustive()
    }
}

impl Status<'_> {
    /// Pages programmed since it was opened that are neither host writes nor copies: pages of the disk's own, and of
    /// checkpoints.
    pub fn metadata_pages(&self) -> u64 {
        self.programs.saturating_sub(self.counters.host_writes + self.counters.copies)
    }

    /// Pages programmed per page written by hosts, over its life. `None` before the first write.
    pub fn lifetime_write_amplification(&self) -> Option<f64> {
        (self.lifetime_writes > 0).then(|| self.lifetime_programs as f64 / self.lifetime_writes as f64)
    }

    /// Erases over its life, those of formatting apart.
    pub fn lifetime_erases(&self) -> u64 {
        self.segments.total_erases
    }
}

impl Volume {
    fn of(disk: Disk<AnyFlash>) -> Self {
        let page = vec![0; disk.superblock().geometry.page_bytes() as usize];
        Self { disk, page, is_holding: false }
    }

    /// Formats a device: all that is on it is lost. See [`Disk::format`]. The time of formatting is now, unless the
    /// options state another.
    pub fn format<F: Flash + Send + 'static>(device: F, options: &FormatOptions) -> Result<Self, VolumeError> {
        let mut options = options.clone();
        if options.store.created_s == 0 {
            options.store.created_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        }
        Ok(Self::of(Disk::format(Box::new(device) as AnyFlash, &options)?))
    }

    /// Opens a device that was formatted before.
    pub fn open<F: Flash + Send + 'static>(device: F, options: &OpenOptions) -> Result<Self, VolumeError> {
        Ok(Self::of(Disk::open(Box::new(device) as AnyFlash, options)?))
    }

    /// What opening it found and cost.
    pub fn mount_report(&self) -> &MountReport {
        self.disk.mount_report()
    }

    /// Bytes exported.
    pub fn capacity_bytes(&self) -> u64 {
        u64::from(self.disk.superblock().exported_pages) * u64::from(self.page_bytes())
    }

    /// Bytes of a page: writes of whole pages need no reading.
    pub fn page_bytes(&self) -> u32 {
        self.disk.superblock().geometry.page_bytes()
    }

    /// Whether it was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.disk.is_read_only()
    }

    /// How much of its life it has behind it.
    pub fn health(&self) -> Health {
        let log = self.disk.ftl().log();
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        Health::new(self.disk.superblock(), log.segments(), log.now().writes, log.seq(), now_s)
    }

    /// As [`Disk::reserve_segments`].
    pub fn reserve_segments(&self) -> u32 {
        self.disk.reserve_segments()
    }

    /// The time since it was formatted, in microseconds.
    pub fn now_us(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64);
        now.saturating_sub(self.disk.superblock().created_s * 1_000_000)
    }

    fn check_range(&self, offset: u64, len: u64) -> Result<(), VolumeError> {
        let capacity_bytes = self.capacity_bytes();
        match offset.checked_add(len) {
            Some(end) if end <= capacity_bytes => Ok(()),
            end => Err(VolumeError::PastEnd { offset, end: end.unwrap_or(u64::MAX), capacity_bytes }),
        }
    }

    fn check_writable(&self, offset: u64, len: u64) -> Result<(), VolumeError> {
        if self.is_read_only() {
            return Err(VolumeError::ReadOnly);
        }
        self.check_range(offset, len)
    }

    /// The pages that a range of bytes touches, each with the part of it.
    fn pages(&self, offset: u64, len: u64) -> impl Iterator<Item = (u32, Range<usize>)> + use<> {
        let page_bytes = u64::from(self.page_bytes());
        let mut at = offset;
        let end = offset + len;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let (lpn, first) = ((at / page_bytes) as u32, at % page_bytes);
            let last = (first + end - at).min(page_bytes);
            at += last - first;
            Some((lpn, first as usize..last as usize))
        })
    }

    /// Reads bytes; those never written, or trimmed, are zero.
    pub fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), VolumeError> {
        self.check_range(offset, bytes.len() as u64)?;
        let mut rest = bytes;
        let mut pages = self.pages(offset, rest.len() as u64);
        while let Some((lpn, part)) = pages.next() {
            let page_bytes = self.page.len();
            if part.len() < page_bytes {
                self.read_page(lpn)?;
                let target = rest.split_off_mut(..part.len()).expect("there is room for each part");
                target.copy_from_slice(&self.page[part]);
                continue;
            }
            let read = match self.disk.read_run(lpn, rest)? {
                0 => {
                    rest[..page_bytes].fill(0);
                    1
                }
                read => read,
            };
            rest = &mut rest[read * page_bytes..];
            pages.by_ref().take(read - 1).for_each(drop);
        }
        Ok(())
    }

    fn read_page(&mut self, lpn: u32) -> Result<(), VolumeError> {
        if !self.disk.read(lpn, &mut self.page)? {
            self.page.fill(0);
        }
        Ok(())
    }

    /// Writes bytes; parts of pages are read first.
    pub fn write(&mut self, offset: u64, bytes: &[u8], hint: Hint) -> Result<(), VolumeError> {
        self.write_at(offset, bytes, hint, self.now_us())
    }

    /// As [`Volume::write`], at a time since formatting, in microseconds, that the caller states.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8], hint: Hint, now_us: u64) -> Result<(), VolumeError> {
        self.check_writable(offset, bytes.len() as u64)?;
        if self.is_holding || bytes.len() <= self.page.len() {
            return self.write_pages(offset, bytes, hint, now_us);
        }
        self.disk.hold(true)?;
        let written = self.write_pages(offset, bytes, hint, now_us);
        written.and(self.disk.hold(false))
    }

    /// With `on`, what is written from now on may reach the device together, which is quicker; without, returns when it has,
    /// and an error says that it may not have. It is then kept, can be read, and is tried again before the next change. A
    /// single [`Volume::write`] does this by itself.
    pub fn hold(&mut self, on: bool) -> Result<(), VolumeError> {
        self.is_holding = on;
        self.disk.hold(on)
    }

    fn write_pages(&mut self, offset: u64, bytes: &[u8], hint: Hint, now_us: u64) -> Result<(), VolumeError> {
        let mut rest = bytes;
        for (lpn, part) in self.pages(offset, rest.len() as u64) {
            let (source, more) = rest.split_at(part.len());
            if part.len() == self.page.len() {
                self.disk.write(lpn, source, hint, now_us)?;
            } else {
                self.read_page(lpn)?;
                self.page[part].copy_from_slice(source);
                self.disk.write(lpn, &self.page, hint, now_us)?;
            }
            rest = more;
        }
        Ok(())
    }

    /// Forgets bytes: whole pages are trimmed and read as zero; parts of pages are left as they are, or with
    /// `zero` written as zeros.
    pub fn trim(&mut self, offset: u64, len: u64, zero: bool) -> Result<(), VolumeError> {
        self.trim_at(offset, len, zero, self.now_us())
    }

    /// As [`Volume::trim`], at a time since formatting, in microseconds, that the caller states.
    pub fn trim_at(&mut self, offset: u64, len: u64, zero: bool, now_us: u64) -> Result<(), VolumeError> {
        self.check_writable(offset, len)?;
        for (lpn, part) in self.pages(offset, len) {
            if part.len() == self.page.len() {
                self.disk.trim(lpn, now_us)?;
            } else if zero && self.disk.is_mapped(lpn) {
                self.read_page(lpn)?;
                self.page[part].fill(0);
                self.disk.write(lpn, &self.page, Hint::None, now_us)?;
            }
        }
        Ok(())
    }

    /// Whether the page that holds a byte was written, and where the next page starts that differs in that, at
    /// most `end`.
    pub fn extent(&mut self, offset: u64, end: u64) -> (bool, u64) {
        let page_bytes = u64::from(self.page_bytes());
        let mut mapped = |at: u64| self.disk.is_mapped((at / page_bytes) as u32);
        let is_mapped = mapped(offset);
        let mut next = (offset / page_bytes + 1) * page_bytes;
        while next < end && mapped(next) == is_mapped {
            next += page_bytes;
        }
        (is_mapped, next.min(end))
    }

    /// Returns when everything written and trimmed so far survives a power cut.
    pub fn flush(&mut self) -> Result<(), VolumeError> {
        self.disk.flush()
    }

    /// Works for a moment of idle time; false if there is nothing to do.
    pub fn idle(&mut self) -> Result<bool, VolumeError> {
        self.disk.idle(self.disk.superblock().max_pages_per_write)
    }

    /// Stops cleanly. Says whether there was room for a checkpoint, which makes the next opening fast.
    pub fn stop(mut self) -> Result<bool, VolumeError> {
        self.end()
    }

    /// As [`Volume::stop`], but keeps the volume, which must not be used any more, for its status.
    pub fn end(&mut self) -> Result<bool, VolumeError> {
        self.disk.end()
    }

    /// What it is and how it is doing.
    pub fn status(&self) -> Status<'_> {
        let ftl = self.disk.ftl();
        let log = ftl.log();
        Status {
            superblock: self.disk.superblock(),
            layout: *log.device().layout(),
            counters: log.counters(),
            segments: log.segments(),
            uniformity: log.uniformity(),
            programs: log.programs(),
            lifetime_writes: log.now().writes,
            lifetime_programs: log.seq(),
            retired_segments: ftl.retired_segments().len(),
            memory_bytes: ftl.memory_bytes(),
            map_on_flash: ftl.map_on_flash(),
        }
    }

    /// Recomputes every count and compares.
    pub fn audit(&mut self) -> Result<(), margay_log::AuditError> {
        self.disk.audit()
    }
}
