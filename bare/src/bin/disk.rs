//! A disk on a chip: formatted, overwritten many times, stopped and mounted, cut off and mounted, and read each time.
#![no_std]
#![no_main]
extern crate alloc;

use alloc::string::String;
use alloc::{format, vec};
use margay_bare::chip::{self, Chip, PAGE_BYTES};
use margay_bare::{Random, Row, config, policies, superblock, text};
use margay_flash::{Flash, Geometry, Lpn, SegmentId};
use margay_format::{Anchor, ClientKind, Formatted, Record, SegmentInfo, Store, Superblock, find_superblock};
use margay_ftl::{Ftl, OwnPages, load};
use margay_log::Hint;

margay_bare::entry!(run);

type Ram<'a, 'b> = Formatted<&'a mut Chip<'b>>;

struct Disk<'a, 'b> {
    ftl: Ftl<Ram<'a, 'b>>,
    superblock: Superblock,
    anchor: Anchor,
}

/// 80 % of the chip is exported.
fn exported_pages(geometry: &Geometry) -> u32 {
    geometry.pages() / 5 * 4
}

impl<'a, 'b> Disk<'a, 'b> {
    fn format(chip: &'a mut Chip<'b>) -> Result<Self, String> {
        let geometry = *chip.geometry();
        let superblock = superblock(&geometry, ClientKind::Disk, exported_pages(&geometry));
        let owners = OwnPages::new(superblock.exported_pages, geometry.page_bytes()).owners();
        let encoded = superblock.encode().map_err(text)?;
        let config = config(&geometry, owners.into()).map_err(text)?;
        let mut store = Formatted::new(chip, owners.into(), encoded).map_err(text)?;
        for segment in (config.reserved_segments..geometry.segments()).map(SegmentId) {
            store.erase(segment, SegmentInfo { erases: 1, ..SegmentInfo::default() }).map_err(text)?;
        }
        let mut anchor = Anchor::default();
        store.write_anchor(&mut anchor, &superblock, &Record::InUse).map_err(text)?;
        let policies = policies(&superblock, &config);
        let ftl = Ftl::new(store, config, policies, superblock.exported_pages, &encoded).map_err(text)?;
        Ok(Self { ftl, superblock, anchor })
    }

    /// Fails unless it is mounted from a checkpoint, or by looking into every segment, as it should be.
    fn mount(chip: &'a mut Chip<'b>, from_checkpoint: bool) -> Result<Self, String> {
        let own = |superblock: &Superblock| OwnPages::new(superblock.exported_pages, superblock.geometry.page_bytes());
        let copy = |superblock: &Superblock| (own(superblock).superblock().0.into(), own(superblock).owners().into());
        let superblock = find_superblock(chip, copy).map_err(text)?;
        let owners = u64::from(own(&superblock).owners());
        let config = config(&superblock.geometry, owners).map_err(text)?;
        let mut store = Formatted::new(chip, owners, superblock.encode().map_err(text)?).map_err(text)?;
        let loaded = load(&mut store, &superblock, true).map_err(text)?;
        if loaded.report.from_checkpoint != from_checkpoint {
            return Err(format!("mounted from a checkpoint: {}, not as expected", !from_checkpoint));
        }
        let policies = policies(&superblock, &config);
        let (ftl, anchor) = Ftl::mount(store, &superblock, config, policies, loaded, false).map_err(text)?;
        Ok(Self { ftl, superblock, anchor })
    }

    /// Overwrites random pages, as many as there are.
    fn overwrite(&mut self, versions: &mut [u16], seed: u32) -> Result<(), String> {
        let mut random = Random::new(seed);
        for _ in 0..versions.len() {
            let lpn = random.below(versions.len() as u32);
            versions[lpn as usize] += 1;
            let page = content(lpn, versions[lpn as usize]);
            self.ftl.write(Lpn(lpn), &page, Hint::None, 0).map_err(text)?;
        }
        self.ftl.flush().map_err(text)
    }

    fn check(&mut self, versions: &[u16]) -> Result<(), String> {
        let mut page = [0; PAGE_BYTES];
        for (lpn, version) in (0..).zip(versions) {
            let found = self.ftl.read(Lpn(lpn), &mut page).map_err(text)?;
            if found.is_some() != (*version > 0) || (*version > 0 && page != content(lpn, *version)) {
                return Err(format!("page {lpn} does not hold its version {version}"));
            }
        }
        self.ftl.audit().map_err(text)
    }
}

fn content(lpn: u32, version: u16) -> [u8; PAGE_BYTES] {
    let mut page = [0; PAGE_BYTES];
    Random::new(lpn << 16 ^ u32::from(version)).fill(&mut page);
    page
}

fn run() -> Result<(), String> {
    let memory = chip::take().expect("nobody else asks for the memory");
    for mib in [1, 16] {
        let chip = &mut Chip::new(memory, mib);
        let mut versions = vec![0; exported_pages(chip.geometry()) as usize];
        let mut row = Row::start();
        let mut disk = Disk::format(chip)?;
        for seed in 1..4 {
            disk.overwrite(&mut versions, seed)?;
            disk.check(&versions)?;
        }
        row.end(0);
        disk.ftl.stop(&mut disk.anchor, &disk.superblock).map_err(text)?;
        row.end(1);
        drop(disk);
        let mut disk = Disk::mount(chip, true)?;
        row.end(2);
        disk.check(&versions)?;
        disk.overwrite(&mut versions, 4)?;
        // The power is cut.
        drop(disk);
        row.end(3);
        let mut disk = Disk::mount(chip, false)?;
        row.end(3);
        disk.check(&versions)?;
        row.print("disk", mib);
    }
    Ok(())
}
