use super::*;
use crate::RamFlash;

#[test]
fn a_file_behaves_as_memory_does_and_keeps_everything() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flash.img");
    for geometry in
        [Geometry::new(3, 4, 512).unwrap().with_spare(64), Geometry::new(3, 4, 512).unwrap().byte_programmable()]
    {
        let mut ram = RamFlash::new(geometry);
        let mut image = ImageFlash::create(&path, geometry).unwrap();
        assert!(matches!(ImageFlash::open(&path, false), Err(ImageError::InUse)));
        let mut devices: [&mut dyn Flash; 2] = [&mut ram, &mut image];
        for device in &mut devices {
            device.program(Ppn(0), &[7; 512], &[]).unwrap();
            device.program(Ppn(5), &[1; 512], &vec![3; geometry.spare_bytes() as usize]).unwrap();
            device.erase(SegmentId(0)).unwrap();
            device.program(Ppn(1), &[9; 512], &[]).unwrap();
            if geometry.is_byte_programmable() {
                device.program_part(Ppn(9), 100, &[0xF0, 1, 2]).unwrap();
                device.program_part(Ppn(9), 99, &[0, 0x3F]).unwrap();
            }
        }
        drop(image);
        let mut image = ImageFlash::open(&path, true).unwrap();
        if geometry.spare_bytes() > 0 {
            for (first, pages) in [(0, 12), (3, 4), (11, 1), (11, 2), (5, 0)] {
                let read = |device: &mut dyn Flash| {
                    let (mut data, mut spare) = (vec![1; 512 * pages], vec![1; 64 * pages]);
                    let is_read = device.read_run(Ppn(first), &mut data, &mut spare);
                    assert_eq!(is_read, pages > 0 && first as usize + pages <= 12, "{pages} from {first}");
                    (data, spare)
                };
                assert!(read(&mut ram) == read(&mut image), "{pages} pages from {first}");
            }
        }
        for page in 0..12 {
            let read = |device: &mut dyn Flash| {
                let (mut data, mut spare) = (vec![0; 512], vec![0; geometry.spare_bytes() as usize]);
                device.read(Ppn(page), &mut data, &mut spare).unwrap();
                (data, spare)
            };
            assert!(read(&mut ram) == read(&mut image), "page {page}");
        }
        drop(image);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn segments_that_were_never_written_are_known_to_be_erased() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flash.img");
    let geometry = Geometry::new(8, 64, 4096).unwrap().with_spare(256);
    let known = |image: &mut ImageFlash| -> Vec<u32> {
        (0..9).filter(|segment| image.is_known_erased(SegmentId(*segment))).collect()
    };
    let mut image = ImageFlash::create(&path, geometry).unwrap();
    assert_eq!(known(&mut image), [0, 1, 2, 3, 4, 5, 6, 7]);
    image.program(Ppn(2 * 64 + 63), &[7; 4096], &[1; 256]).unwrap();
    image.hold(true).unwrap();
    image.program(Ppn(4 * 64), &[7; 4096], &[1; 256]).unwrap();
    assert!(!known(&mut image).iter().any(|segment| [2, 4].contains(segment)), "a page that waits is none");
    image.hold(false).unwrap();
    drop(image);
    for read_only in [true, false] {
        let mut image = ImageFlash::open(&path, read_only).unwrap();
        let known = known(&mut image);
        assert!(!known.iter().any(|segment| [2, 4].contains(segment)), "{known:?}");
        // Those beside them share a unit of the host's file system.
        assert!([0, 6, 7].iter().all(|segment| known.contains(segment)), "{known:?}");
    }
}

#[test]
fn many_may_read_an_image_and_who_writes_it_has_it_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flash.img");
    let geometry = Geometry::new(3, 4, 512).unwrap();
    let writer = ImageFlash::create(&path, geometry).unwrap();
    assert!(matches!(ImageFlash::open(&path, true), Err(ImageError::InUse)));
    drop(writer);
    let readers = [ImageFlash::open(&path, true).unwrap(), ImageFlash::open(&path, true).unwrap()];
    assert!(matches!(ImageFlash::open(&path, false), Err(ImageError::InUse)));
    drop(readers);
    ImageFlash::open(&path, false).unwrap();
}

#[test]
fn files_that_are_no_images_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    std::fs::write(&path, b"hello").unwrap();
    assert!(matches!(ImageFlash::open(&path, true), Err(ImageError::NotAnImage)));
    let mut header = [0u8; 5000];
    header[..7].copy_from_slice(MAGIC);
    assert!(matches!(ImageFlash::open(&path, true), Err(ImageError::NotAnImage)));
    header[7] = VERSION + 1;
    std::fs::write(&path, header).unwrap();
    assert!(matches!(ImageFlash::open(&path, true), Err(ImageError::Newer { version: 3 })));
    header[7] = 1;
    std::fs::write(&path, header).unwrap();
    assert!(matches!(ImageFlash::open(&path, true), Err(ImageError::Damaged(_))));
    for at in [8, 12, 16] {
        header[at..at + 4].copy_from_slice(&64u32.to_le_bytes());
    }
    std::fs::write(&path, header).unwrap();
    let error = ImageFlash::open(&path, true).unwrap_err().to_string();
    assert_eq!(error, "its header is damaged: the file has 5000 bytes where its geometry needs 266240");
}

#[test]
fn the_mark_survives_and_one_that_was_written_in_part_leaves_the_one_before() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flash.img");
    let geometry = Geometry::new(3, 4, 512).unwrap().with_spare(64);
    let mut image = ImageFlash::create(&path, geometry).unwrap();
    assert_eq!(image.mark(), Ok(None));
    for mark in [0, 7, 9] {
        image.set_mark(Some(mark)).unwrap();
        drop(image);
        image = ImageFlash::open(&path, false).unwrap();
        assert_eq!(image.mark(), Ok(Some(mark)));
    }
    let newest = usize::from(image.marks[1] == Some(9));
    image.file.write_all_at(&[8], MARKS_AT[newest]).unwrap();
    drop(image);
    image = ImageFlash::open(&path, false).unwrap();
    assert_eq!(image.mark(), Ok(Some(7)));
    image.set_mark(Some(3)).unwrap();
    assert_eq!(image.mark(), Ok(Some(3)), "a device that is formatted anew");
    image.set_mark(None).unwrap();
    drop(image);
    assert_eq!(ImageFlash::open(&path, false).unwrap().mark(), Ok(None));
}

#[test]
fn programs_that_are_held_are_read_as_done_and_reach_the_file_before_all_that_comes_after_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flash.img");
    let geometry = Geometry::new(4, 100, 4096).unwrap().with_spare(64);
    let page = |number: u32| [vec![number as u8; 4096], vec![number as u8 + 1; 64]];
    let program = |image: &mut ImageFlash, number: u32| {
        let [data, spare] = page(number);
        image.program(Ppn(number), &data, &spare[..number as usize % 65]).unwrap();
    };
    let reads = |image: &mut ImageFlash, number: u32| {
        let [data, spare] = page(number);
        let (mut found, mut found_spare) = (vec![0; 4096], vec![0; 64]);
        image.read(Ppn(number), &mut found, &mut found_spare).unwrap();
        let (programmed, rest) = found_spare.split_at(number as usize % 65);
        found == data && *programmed == spare[..programmed.len()] && rest.iter().all(|byte| *byte == 0xFF)
    };
    let in_file = |number: u32| {
        let at = HEADER_BYTES + u64::from(number) * 4160;
        let mut byte = [0];
        File::open(&path).unwrap().read_exact_at(&mut byte, at).unwrap();
        byte[0] == !(number as u8)
    };
    let mut image = ImageFlash::create(&path, geometry).unwrap();
    image.hold(true).unwrap();
    // Two segments by turns.
    let first = [0, 100, 1, 2, 101, 3];
    first.into_iter().for_each(|number| program(&mut image, number));
    assert!(first.into_iter().all(|number| reads(&mut image, number) && !in_file(number)));
    image.erase(SegmentId(2)).unwrap();
    assert!(first.into_iter().all(|number| reads(&mut image, number) && in_file(number)));
    // More than is held at once.
    (4..100).for_each(|number| program(&mut image, number));
    assert!(in_file(4) && !in_file(99) && (4..100).all(|number| reads(&mut image, number)));
    image.sync().unwrap();
    assert!(in_file(99));
    program(&mut image, 102);
    image.hold(false).unwrap();
    assert!(in_file(102));
    program(&mut image, 103);
    assert!(in_file(103), "nothing is held any more");
    drop(image);
    let mut image = ImageFlash::open(&path, true).unwrap();
    assert!((0..104).all(|number| reads(&mut image, number)));
}

#[test]
fn a_voided_page_reads_as_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let geometry = Geometry::new(3, 4, 512).unwrap().with_spare(64);
    let mut image = ImageFlash::create(&dir.path().join("flash.img"), geometry).unwrap();
    image.program(Ppn(5), &[7; 512], &[3; 64]).unwrap();
    image.void_page(Ppn(5)).unwrap();
    let (mut data, mut spare) = ([1; 512], [1; 64]);
    image.read(Ppn(5), &mut data, &mut spare).unwrap();
    assert_eq!((data, spare), ([0; 512], [0; 64]));
    image.read(Ppn(6), &mut data, &mut spare).unwrap();
    assert_eq!((data, spare), ([0xFF; 512], [0xFF; 64]));
}
