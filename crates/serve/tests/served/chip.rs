use margay_flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId};
use margay_media::RamFlash;
use margay_volume::{FormatOptions, OpenOptions, Volume};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

pub const PAGE: u64 = 4096;
pub const PAGES: u64 = 700;
pub const SIZE: u64 = PAGES * PAGE;

/// A chip in memory that counts programs, can hold them up, and outlives the server.
#[derive(Clone, Debug)]
pub struct Chip {
    geometry: Geometry,
    ram: Arc<Mutex<RamFlash>>,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    is_closed: Mutex<bool>,
    opened: Condvar,
    programs: AtomicU64,
    /// Syncs asked for, and how many of the next ones fail.
    syncs: AtomicU64,
    failing_syncs: AtomicU64,
    /// Pages whose data hold this cannot be read.
    unreadable: Mutex<Option<Vec<u8>>>,
}

/// While it exists, no program is carried out.
pub struct Held<'a>(&'a Gate);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        *self.0.is_closed.lock().unwrap() = false;
        self.0.opened.notify_all();
    }
}

impl Chip {
    pub fn new() -> Self {
        let geometry = Geometry::new(64, 16, PAGE as u32).unwrap().with_spare(256);
        Self { geometry, ram: Arc::new(Mutex::new(RamFlash::new(geometry))), gate: Arc::default() }
    }

    /// Formats the chip as a disk of [`PAGES`] pages.
    pub fn format(&self) -> Volume {
        let options = FormatOptions { exported_pages: Some(PAGES as u32), ..FormatOptions::default() };
        Volume::format(self.clone(), &options).unwrap()
    }

    pub fn open(&self, read_only: bool) -> Volume {
        Volume::open(self.clone(), &OpenOptions { read_only, ..OpenOptions::default() }).unwrap()
    }

    pub fn hold(&self) -> Held<'_> {
        *self.gate.is_closed.lock().unwrap() = true;
        Held(&self.gate)
    }

    /// Lets the next syncs fail.
    pub fn fail_syncs(&self, count: u64) {
        self.gate.failing_syncs.store(count, Ordering::Relaxed);
    }

    /// Syncs asked for so far.
    pub fn syncs(&self) -> u64 {
        self.gate.syncs.load(Ordering::Relaxed)
    }

    /// Lets reads of pages fail in whose data these bytes are somewhere, as they are or inverted.
    pub fn lose(&self, bytes: &[u8]) {
        *self.gate.unreadable.lock().unwrap() = Some(bytes.to_vec());
    }

    /// Pages programmed so far.
    pub fn programs(&self) -> u64 {
        self.gate.programs.load(Ordering::Relaxed)
    }
}

impl Flash for Chip {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }
    fn read(&mut self, ppn: Ppn, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, FlashError> {
        let status = self.ram.lock().unwrap().read(ppn, data, spare)?;
        let is_lost = |lost: &Vec<u8>| {
            let inverted: Vec<u8> = lost.iter().map(|byte| !byte).collect();
            data.windows(lost.len()).any(|part| part == lost || part == inverted)
        };
        match &*self.gate.unreadable.lock().unwrap() {
            Some(lost) if is_lost(lost) => Err(FlashError::Uncorrectable { ppn }),
            _ => Ok(status),
        }
    }
    fn program(&mut self, ppn: Ppn, data: &[u8], spare: &[u8]) -> Result<(), FlashError> {
        let gate = self.gate.is_closed.lock().unwrap();
        drop(self.gate.opened.wait_while(gate, |is_closed| *is_closed).unwrap());
        self.gate.programs.fetch_add(1, Ordering::Relaxed);
        self.ram.lock().unwrap().program(ppn, data, spare)
    }
    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        self.ram.lock().unwrap().erase(segment)
    }
    fn sync(&mut self) -> Result<(), FlashError> {
        self.gate.syncs.fetch_add(1, Ordering::Relaxed);
        let fail = |count: u64| count.checked_sub(1);
        match self.gate.failing_syncs.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fail) {
            Ok(_) => Err(FlashError::Io { code: 5 }),
            Err(_) => Ok(()),
        }
    }
}
