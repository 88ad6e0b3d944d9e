#![no_main]
//! Whole images of file systems, NAND and NOR: opening, listing, reading, writing and checking must end in a result.

use libfuzzer_sys::fuzz_target;
use margay_flash::{Geometry, Ppn};
use margay_fs::{ObjectKind, NewObject, ROOT};
use margay_media::RamFlash;
use margay_volume::{FilesFormatOptions, FilesOpenOptions, check_files, format_files, open_files};
use std::sync::OnceLock;

#[path = "../../tests/shared.rs"]
mod shared;
use shared::SharedFlash;

fn bases() -> &'static [RamFlash; 3] {
    static BASES: OnceLock<[RamFlash; 3]> = OnceLock::new();
    BASES.get_or_init(|| {
        let nand = Geometry::new(20, 8, 512).unwrap().with_spare(160);
        let nor = Geometry::new(20, 10, 512).unwrap().byte_programmable();
        let short_tags = nand.with_spare(34);
        [nand, nor, short_tags].map(|geometry| {
            let chip = SharedFlash::new(geometry);
            let mut fs = format_files(chip.clone(), &FilesFormatOptions::default()).unwrap();
            for number in 0..12u8 {
                let file = fs.create(ROOT, &[b'a' + number], &NewObject::FILE).unwrap().object;
                fs.write(file, u64::from(number) * 300, &[number; 700]).unwrap();
                fs.close(file).unwrap();
            }
            fs.stop().unwrap();
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
        let page = ram.page_bytes_mut(Ppn(u32::from(change[0]) % 160));
        let at = usize::from(u16::from_le_bytes([change[1], change[2]])) % page.len();
        page[at] = change[3];
    }
    let chip = SharedFlash::of(ram);
    let mut data = [0; 600];
    if let Ok(opened) = open_files(chip.clone(), &FilesOpenOptions::default()) {
        let mut fs = opened.files;
        for (name, attributes) in fs.list(ROOT).unwrap() {
            if attributes.kind == ObjectKind::File {
                let _ = fs.read(attributes.object, 0, &mut data);
                let _ = fs.write(attributes.object, 200, &data);
            }
            let _ = fs.unlink(ROOT, &name);
        }
        let _ = fs.stop();
    }
    let _ = check_files(chip);
});
