//! Images of hybrid-mapped disks that were changed in ways no flash would; shared by the quick test and the fuzz target.

use margay_flash::{Geometry, Lpn, Ppn};
use margay_format::{Layout, Place, TAG_BYTES, crc32c, shown_geometry};
use margay_hybrid::{FormatOptions, HybridError, Mapping, Persistence, format, open};
use margay_media::RamFlash;
use std::sync::OnceLock;

const PAGES: u32 = 20;
const PAGE_BYTES: usize = 512;
const SEGMENTS: u32 = 11;
/// Where a tag has its checksum.
const CRC_AT: usize = TAG_BYTES - 4;

/// NAND with windows, NAND with the smallest tag, NOR, and pages in pairs.
pub fn geometries() -> [Geometry; 4] {
    let shape = |pages| Geometry::new(SEGMENTS, pages, PAGE_BYTES as u32).unwrap();
    [shape(8).with_spare(160), shape(8).with_spare(64), shape(10).byte_programmable(), shape(16)]
}

/// Used disks: every geometry under every mapping.
pub fn bases() -> &'static [RamFlash] {
    static BASES: OnceLock<Vec<RamFlash>> = OnceLock::new();
    BASES.get_or_init(|| {
        let mappings = ["bast", "fast", "fast:sequential=no", "fast:open=yes"];
        let pairs = geometries().into_iter().flat_map(|geometry| mappings.map(|mapping| (geometry, mapping)));
        pairs.map(|(geometry, mapping)| used(geometry, mapping.parse().unwrap())).collect()
    })
}

fn used(geometry: Geometry, mapping: Mapping) -> RamFlash {
    let options = FormatOptions {
        mapping,
        persistence: Persistence::Persistent,
        log_blocks: 3,
        logical_pages: Some(PAGES),
        uuid: [2; 16],
        created_s: 0,
    };
    let mut flash = RamFlash::new(geometry);
    let mut disk = format(&mut flash, &options).unwrap();
    for number in (0..PAGES).chain((0..60).map(|number| number * 7)).chain(8..16) {
        disk.write_alone(Lpn(number % PAGES), &[number as u8; PAGE_BYTES]).unwrap();
    }
    disk.sync().unwrap();
    drop(disk);
    flash
}

/// Changes a flash as these bytes say, six to a change.
pub fn mutate(flash: &mut RamFlash, changes: &[u8]) {
    use margay_flash::Flash;
    let geometry = *flash.geometry();
    for change in changes.chunks_exact(6) {
        let [how, page, other, low, high, value] = *change else { continue };
        let (ppn, other) = (u32::from(page) % geometry.pages(), u32::from(other) % geometry.pages());
        let bytes = flash.page_bytes_mut(Ppn(ppn));
        let at = usize::from(u16::from_le_bytes([low, high]));
        match how % 5 {
            0 => {
                let at = at % bytes.len();
                bytes[at] = value;
            }
            1 => bytes.fill(value),
            2 => {
                let copied = flash.page_bytes_mut(Ppn(other)).to_vec();
                flash.page_bytes_mut(Ppn(ppn)).copy_from_slice(&copied);
            }
            // A tag that is whole and says something else.
            3 => {
                let layout = Layout::new(&shown_geometry(&geometry), PAGES.into()).unwrap();
                let (ppn, first) = match layout.place {
                    Place::Table => (ppn / 10 * 10 + 1, usize::from(value % 8) * TAG_BYTES),
                    Place::Spare if geometry.spare_bytes() == 0 => (ppn | 1, 0),
                    Place::Spare => (ppn, PAGE_BYTES),
                };
                let tag = &mut flash.page_bytes_mut(Ppn(ppn))[first..][..layout.tag_bytes()];
                tag[at % CRC_AT] = other as u8;
                let covered = [&tag[..CRC_AT], &tag[TAG_BYTES..]].concat();
                tag[CRC_AT..TAG_BYTES].copy_from_slice(&crc32c(&covered).to_le_bytes());
            }
            // A superblock that is whole and says something else; it covers its first 384 bytes.
            _ => {
                let at = 12 + at % (384 - 12);
                let first = if geometry.is_byte_programmable() { 128 } else { 0 };
                let bytes = &mut flash.page_bytes_mut(Ppn(0))[first..];
                bytes[at] = value;
                let crc = crc32c(&bytes[12..384]).to_le_bytes();
                bytes[8..12].copy_from_slice(&crc);
            }
        }
    }
}

/// Opens, reads, writes and opens again: each ends in a result, and what is opened is consistent in itself.
pub fn exercise(flash: &mut RamFlash) {
    for _ in 0..2 {
        let Ok(mut disk) = open(&mut *flash) else { return };
        disk.audit().unwrap();
        let pages = disk.config().logical_pages.min(200);
        let mut page = [0; PAGE_BYTES];
        for lpn in (0..pages).chain(0..5).chain([pages, u32::MAX]) {
            let _ = disk.read(Lpn(lpn), &mut page);
            match disk.write_alone(Lpn(lpn), &page) {
                Ok(()) => assert!(disk.read(Lpn(lpn), &mut page).unwrap().is_some(), "page {lpn} was just written"),
                Err(HybridError::OutOfRange { .. }) => assert!(lpn >= pages),
                Err(_) => {}
            }
        }
        disk.audit().unwrap();
        let _ = disk.sync();
    }
}
