use crate::small::{DiskError, config, max_pages, policies, superblock};
use margay_flash::{Flash, Geometry, Lpn};
use margay_format::{Anchor, ClientKind, Formatted, OwnPages, Superblock, find_superblock};
use margay_ftl::{Ftl, FtlError, MountReport, load};
use margay_log::{Config, Counters, Hint};

/// A disk of pages on a device, from formatting to stopping. What was written or trimmed before a flush that returned survives
/// a power cut, and the write of a page is there or not.
#[derive(Debug)]
pub struct SmallDisk<F> {
    ftl: Ftl<Formatted<F>>,
    /// None if the chip is so worn out, or was formatted by so late a version, that it must only be read.
    anchor: Option<Anchor>,
    superblock: Superblock,
    report: MountReport,
}

fn store<F: Flash>(device: F, superblock: &Superblock) -> Result<(Formatted<F>, Config), DiskError> {
    let owners = OwnPages::of(superblock).owners();
    let store = Formatted::new(device, owners.into(), superblock.encode()?)?;
    let mut config = config(store.layout());
    config.low_water = superblock.low_water;
    config.high_water = superblock.high_water;
    config.max_pages_per_write = superblock.max_pages_per_write.max(1);
    Ok((store, config))
}

impl<F: Flash> SmallDisk<F> {
    /// Formats a device as a disk of `exported_pages` pages: all that is on it is lost. Segments that cannot be erased are
    /// retired. `uuid` tells this disk from others; 16 bytes of any kind.
    ///
    /// # Errors
    /// [`DiskError::Size`] and [`DiskError::Layout`], with the device as it was, if the disk does not fit it; those of the
    /// device.
    pub fn format(device: F, exported_pages: u32, uuid: [u8; 16]) -> Result<Self, DiskError> {
        let geometry = *device.geometry();
        let max_pages = max_pages(&geometry)?;
        if !(1..=max_pages).contains(&exported_pages) {
            return Err(DiskError::Size { exported_pages, max_pages });
        }
        let superblock = superblock(&geometry, ClientKind::Disk, exported_pages, uuid);
        let (store, config) = store(device, &superblock)?;
        let (mut ftl, anchor) = Ftl::format(store, &superblock, config, policies(&superblock, &config))?;
        ftl.reserve();
        Ok(Self { ftl, anchor: Some(anchor), superblock, report: MountReport::default() })
    }

    /// Mounts a device that was formatted before, by this crate or on a host: after a clean stop from its checkpoint, after a
    /// power cut by looking into every segment. One with features of a later version, which it says who writes must know, is
    /// mounted for reading.
    ///
    /// # Errors
    /// [`DiskError::NotFormatted`] and [`DiskError::NotADisk`] if there is no disk on it; those of the device.
    pub fn mount(mut device: F) -> Result<Self, DiskError> {
        let copy = |superblock: &Superblock| {
            let own = OwnPages::of(superblock);
            (own.superblock().0.into(), own.owners().into())
        };
        let superblock = find_superblock(&mut device, copy)?;
        if superblock.client != ClientKind::Disk || superblock.map_entries > 0 {
            return Err(DiskError::NotADisk);
        }
        let (mut store, config) = store(device, &superblock)?;
        let loaded = load(&mut store, &superblock, true)?;
        let report = loaded.report.clone();
        let policies = policies(&superblock, &config);
        let read_only = superblock.is_read_only_to_us();
        let (mut ftl, anchor) = Ftl::mount(store, &superblock, config, policies, loaded, read_only)?;
        ftl.reserve();
        Ok(Self { ftl, anchor, superblock, report })
    }

    fn check_writable(&self) -> Result<(), DiskError> {
        if self.superblock.is_read_only_to_us() {
            return Err(DiskError::ReadOnly);
        }
        let retired_segments = self.ftl.retired_segments().len() as u32;
        self.anchor.map(drop).ok_or(DiskError::Disk(FtlError::WornOut { retired_segments }))
    }

    /// Reads a page into `page`, which is one page long; false, with `page` untouched, if it was never written or was trimmed.
    ///
    /// # Errors
    /// [`DiskError::Disk`]: the page is past the end, or cannot be read.
    pub fn read(&mut self, lpn: u32, page: &mut [u8]) -> Result<bool, DiskError> {
        Ok(self.ftl.read(Lpn(lpn), page)?.is_some())
    }

    /// Writes a page. It survives a power cut at once on a chip, and from the next flush on where the device caches.
    ///
    /// # Errors
    /// [`DiskError::Disk`]: the page is past the end, the device failed, or it is worn out.
    pub fn write(&mut self, lpn: u32, page: &[u8]) -> Result<(), DiskError> {
        self.check_writable()?;
        Ok(self.ftl.write(Lpn(lpn), page, Hint::None, 0)?)
    }

    /// Forgets a page; one that was never written may be trimmed, too. It survives a power cut from the next flush on.
    ///
    /// # Errors
    /// Those of [`SmallDisk::write`].
    pub fn trim(&mut self, lpn: u32) -> Result<(), DiskError> {
        self.check_writable()?;
        Ok(self.ftl.trim(Lpn(lpn), 0)?)
    }

    /// Returns when everything written and trimmed so far survives a power cut.
    ///
    /// # Errors
    /// Those of [`SmallDisk::write`].
    pub fn flush(&mut self) -> Result<(), DiskError> {
        self.check_writable()?;
        Ok(self.ftl.flush()?)
    }

    /// Cleans ahead in idle time, and rewrites pages that were hard to read, programming about `budget_pages` pages. False if
    /// there is nothing to do.
    ///
    /// # Errors
    /// Those of [`SmallDisk::write`].
    pub fn idle(&mut self, budget_pages: u32) -> Result<bool, DiskError> {
        self.check_writable()?;
        Ok(self.ftl.idle_step(budget_pages)?)
    }

    /// Stops cleanly and gives the device back. True if there was room for a checkpoint, which makes the next mount quick.
    /// The checkpoint is made in memory first.
    ///
    /// # Errors
    /// Those of [`SmallDisk::write`].
    pub fn stop(mut self) -> Result<(F, bool), DiskError> {
        let stopped = self.end()?;
        Ok((self.into_device(), stopped))
    }

    /// As [`SmallDisk::stop`], but keeps the disk, which must not be used any more, for what it counts.
    ///
    /// # Errors
    /// Those of [`SmallDisk::write`].
    pub fn end(&mut self) -> Result<bool, DiskError> {
        self.check_writable()?;
        let mut anchor = self.anchor.unwrap_or_default();
        let stopped = self.ftl.stop(&mut anchor, &self.superblock)?;
        let ftl = &mut self.ftl;
        let retired = ftl.retired_segments().to_vec();
        ftl.device_mut()
            .give_up(&retired)
            .map_err(|error| DiskError::Disk(margay_log::LogError::from(error).into()))?;
        Ok(stopped)
    }

    /// Gives the device back as a power cut would leave it.
    pub fn into_device(self) -> F {
        self.ftl.into_device().into_device()
    }

    /// The shape of the device.
    pub fn geometry(&self) -> &Geometry {
        &self.superblock.geometry
    }

    /// Number of pages of the disk.
    pub fn exported_pages(&self) -> u32 {
        self.ftl.exported_pages()
    }

    /// What was written, copied, erased and retired since the disk was formatted or mounted.
    pub fn counters(&self) -> &Counters {
        self.ftl.log().counters()
    }

    /// What the mount found and cost.
    pub fn mount_report(&self) -> &MountReport {
        &self.report
    }

    /// The translation below.
    pub fn ftl(&self) -> &Ftl<Formatted<F>> {
        &self.ftl
    }

    /// The device, for operations that are not the disk's.
    pub fn device_mut(&mut self) -> &mut F {
        self.ftl.device_mut().device_mut()
    }

    /// Recomputes every count and compares. It takes time for each page, and memory.
    ///
    /// # Errors
    /// What differs.
    pub fn audit(&self) -> Result<(), margay_log::AuditError> {
        self.ftl.audit()
    }
}
