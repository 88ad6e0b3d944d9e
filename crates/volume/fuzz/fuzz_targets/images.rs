#![no_main]
//! Whole images, NAND with whole and with short tags, and NOR: opening, reading, writing and checking must end in a result.

use libfuzzer_sys::fuzz_target;
use margay_flash::{Geometry, Ppn};
use margay_media::RamFlash;
use margay_volume::{FormatOptions, OpenOptions, Volume, check};
use std::sync::OnceLock;

#[path = "../../tests/shared.rs"]
mod shared;
use shared::SharedFlash;

fn bases() -> &'static [RamFlash; 3] {
    static BASES: OnceLock<[RamFlash; 3]> = OnceLock::new();
    BASES.get_or_init(|| {
        let nand = Geometry::new(16, 8, 512).unwrap().with_spare(160);
        let nor = Geometry::new(16, 10, 512).unwrap().byte_programmable();
        let short_tags = nand.with_spare(34);
        [nand, nor, short_tags].map(|geometry| {
            let chip = SharedFlash::new(geometry);
            let options = FormatOptions { exported_pages: Some(48), ..FormatOptions::default() };
            let mut volume = Volume::format(chip.clone(), &options).unwrap();
            for number in 0..300u64 {
                volume.write(number * 29 % 48 * 512, &number.to_le_bytes(), Default::default()).unwrap();
            }
            volume.stop().unwrap();
            let base = chip.0.lock().unwrap().clone();
            base
        })
    })
}

fuzz_target!(|bytes: &[u8]| {
    let Some((which, rest)) = bytes.split_first() else { return };
    let mut ram = bases()[usize::from(which % 3)].clone();
    // Each four bytes overwrite one byte of a page.
    for change in rest.chunks_exact(4) {
        let page = ram.page_bytes_mut(Ppn(u32::from(change[0]) % 128));
        let at = usize::from(u16::from_le_bytes([change[1], change[2]])) % page.len();
        page[at] = change[3];
    }
    let chip = SharedFlash::of(ram);
    let mut page = [0; 512];
    if let Ok(mut volume) = Volume::open(chip.clone(), &OpenOptions::default()) {
        for at in (0..volume.capacity_bytes() - 512).step_by(1024) {
            let _ = volume.read(at, &mut page);
            let _ = volume.write(at, &page, Default::default());
        }
        let _ = volume.stop();
    }
    let _ = check(chip);
});
