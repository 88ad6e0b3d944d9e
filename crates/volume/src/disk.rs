//! A mounted disk behind one pointer, whatever its device.

use crate::VolumeError;
use margay_flash::{Flash, Lpn};
use margay_format::{Anchor, Formatted, Superblock};
use margay_ftl::{Ftl, Loaded};
use margay_log::{Config, Counters, Hint, Policies, Uniformity};
use margay_policy::{Segments, Sizing, SpecError};

/// What the volume needs of a mounted disk.
pub(crate) trait Disk: Send {
    fn read(&mut self, lpn: Lpn, page: &mut [u8]) -> Result<bool, VolumeError>;
    fn write(&mut self, lpn: Lpn, page: &[u8], hint: Hint, now_us: u64) -> Result<(), VolumeError>;
    fn trim(&mut self, lpn: Lpn, now_us: u64) -> Result<(), VolumeError>;
    fn is_mapped(&self, lpn: Lpn) -> bool;
    fn flush(&mut self) -> Result<(), VolumeError>;
    fn idle(&mut self, budget_pages: u32) -> Result<bool, VolumeError>;
    fn stop(&mut self) -> Result<bool, VolumeError>;
    fn counters(&self) -> &Counters;
    fn segments(&self) -> &Segments;
    fn uniformity(&self) -> Uniformity;
    fn lifetime(&self) -> (u64, u64);
    fn retired(&self) -> usize;
    fn memory_bytes(&self) -> u64;
    fn audit(&self) -> Result<(), margay_log::AuditError>;
}

struct Mounted<F> {
    ftl: Ftl<Formatted<F>>,
    anchor: Anchor,
    superblock: Superblock,
}

impl<F: Flash + Send> Disk for Mounted<F> {
    fn read(&mut self, lpn: Lpn, page: &mut [u8]) -> Result<bool, VolumeError> {
        Ok(self.ftl.read(lpn, page)?.is_some())
    }

    fn write(&mut self, lpn: Lpn, page: &[u8], hint: Hint, now_us: u64) -> Result<(), VolumeError> {
        Ok(self.ftl.write(lpn, page, hint, now_us)?)
    }

    fn trim(&mut self, lpn: Lpn, now_us: u64) -> Result<(), VolumeError> {
        Ok(self.ftl.trim(lpn, now_us)?)
    }

    fn is_mapped(&self, lpn: Lpn) -> bool {
        self.ftl.is_mapped(lpn)
    }

    fn flush(&mut self) -> Result<(), VolumeError> {
        Ok(self.ftl.flush()?)
    }

    fn idle(&mut self, budget_pages: u32) -> Result<bool, VolumeError> {
        Ok(self.ftl.idle_step(budget_pages)?)
    }

    fn stop(&mut self) -> Result<bool, VolumeError> {
        Ok(self.ftl.stop(&mut self.anchor, &self.superblock)?)
    }

    fn counters(&self) -> &Counters {
        self.ftl.log().counters()
    }

    fn segments(&self) -> &Segments {
        self.ftl.log().segments()
    }

    fn uniformity(&self) -> Uniformity {
        self.ftl.log().uniformity()
    }

    fn lifetime(&self) -> (u64, u64) {
        (self.ftl.log().now().writes, self.ftl.log().seq())
    }

    fn retired(&self) -> usize {
        self.ftl.retired_segments().len()
    }

    fn memory_bytes(&self) -> u64 {
        self.ftl.memory_bytes()
    }

    fn audit(&self) -> Result<(), margay_log::AuditError> {
        self.ftl.audit()
    }
}

/// The policies that a superblock names.
fn policies(superblock: &Superblock, config: &Config) -> Result<Policies, SpecError> {
    let sizing = Sizing {
        segments: superblock.geometry.segments(),
        data_pages: config.data_pages(&superblock.geometry),
        exported_pages: superblock.exported_pages,
        // The random choices of a policy need no other seed on every device.
        seed: u64::from_le_bytes(superblock.uuid[..8].try_into().expect("8 bytes")),
    };
    Ok(Policies::new(superblock.selection.parse()?, superblock.placement.parse()?, sizing))
}

/// A fresh disk on an erased device.
pub(crate) fn create<F: Flash + Send + 'static>(
    device: Formatted<F>,
    anchor: Anchor,
    superblock: Superblock,
    config: Config,
) -> Result<Box<dyn Disk>, VolumeError> {
    let (policies, encoded) = (policies(&superblock, &config)?, superblock.encode()?);
    let ftl = Ftl::new(device, config, policies, superblock.exported_pages, &encoded)?;
    Ok(Box::new(Mounted { ftl, anchor, superblock }))
}

/// The disk of a device that was scanned.
pub(crate) fn mount<F: Flash + Send + 'static>(
    device: Formatted<F>,
    loaded: Loaded,
    superblock: Superblock,
    config: Config,
    read_only: bool,
) -> Result<Box<dyn Disk>, VolumeError> {
    let policies = policies(&superblock, &config)?;
    let (ftl, anchor) = Ftl::mount(device, &superblock, config, policies, loaded, read_only)?;
    Ok(Box::new(Mounted { ftl, anchor, superblock }))
}
