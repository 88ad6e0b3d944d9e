//! Segments that are retired are told to the chip, which may erase and mark them, once nothing on them is needed.

use margay_flash::{Flash, FlashError, Geometry, SegmentId, pass_on};
use margay_fs::{NewObject, ROOT};
use margay_media::{Faults, RamFlash};
use margay_volume::{
    Disk, FilesFormatOptions, FilesOpenOptions, FormatOptions, Hint, OpenOptions, check, check_files, format_files,
    open_files,
};
use std::sync::{Arc, Mutex};

/// A chip that erases a segment before it marks it, as Linux does.
struct Marks {
    device: RamFlash,
    marked: Arc<Mutex<Vec<SegmentId>>>,
}

impl Flash for Marks {
    fn retire(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        self.marked.lock().unwrap().push(segment);
        self.device.erase(segment)
    }

    pass_on!(device: pages);
}

/// A chip of which two programs fail.
fn chip() -> (Faults<Marks>, Arc<Mutex<Vec<SegmentId>>>) {
    let marked = Arc::<Mutex<Vec<SegmentId>>>::default();
    let device = RamFlash::new(Geometry::new(48, 16, 512).unwrap().with_spare(64));
    let mut chip = Faults::new(Marks { device, marked: Arc::clone(&marked) }, 0);
    chip.fail_program(200);
    chip.fail_program(420);
    (chip, marked)
}

#[test]
fn a_disk_tells_the_chip_of_retired_segments_when_it_stops() {
    let (chip, marked) = chip();
    let mut disk =
        Disk::format(chip, &FormatOptions { exported_pages: Some(400), ..FormatOptions::default() }).unwrap();
    for number in 0..2000u32 {
        disk.write(number * 7 % 400, &[number as u8; 512], Hint::None, number.into()).unwrap();
    }
    let retired = disk.ftl().retired_segments().to_vec();
    assert_eq!((retired.len(), marked.lock().unwrap().len()), (2, 0), "not before it is certain");
    let (mut chip, _) = disk.stop().unwrap();
    assert_eq!(*marked.lock().unwrap(), retired);
    assert!(check(&mut chip).unwrap().is_clean());
    let mut disk = Disk::open(chip, &OpenOptions::default()).unwrap();
    assert_eq!(disk.ftl().retired_segments().len(), 2);
    let mut page = [0; 512];
    for number in 1600..2000u32 {
        assert!(disk.read(number * 7 % 400, &mut page).unwrap());
        assert_eq!(page, [number as u8; 512], "write {number}");
    }
}

#[test]
fn a_file_system_does_so_too() {
    let (mut chip, marked) = chip();
    let mut files = format_files(&mut chip, &FilesFormatOptions::default()).unwrap();
    let file = files.create(ROOT, b"a", &NewObject::FILE).unwrap().object;
    for number in 0..1500u32 {
        files.write(file, u64::from(number * 7 % 300) * 512, &[number as u8; 512]).unwrap();
    }
    assert_eq!((files.retired_segments(), marked.lock().unwrap().len()), (2, 0));
    files.stop().unwrap();
    drop(files);
    assert_eq!(marked.lock().unwrap().len(), 2);
    assert_eq!(check_files(&mut chip).unwrap().problems, []);
    let mut opened = open_files(&mut chip, &FilesOpenOptions::default()).unwrap();
    let mut page = [0; 512];
    for number in 1200..1500u32 {
        opened.files.read(file, u64::from(number * 7 % 300) * 512, &mut page).unwrap();
        assert_eq!(page, [number as u8; 512], "write {number}");
    }
}
