use super::*;
use crate::RamFlash;
use margay_mtd::Kind;
use std::sync::Mutex;

/// What a chip did, for tests that look at it afterwards.
#[derive(Debug, Default)]
struct State {
    /// Pages, each with its free spare bytes.
    bytes: Vec<u8>,
    bad: Vec<bool>,
    failing_erases: Vec<u64>,
    failing_writes: Vec<u64>,
    /// Bits that were corrected, or `None` for too many, of the page at this place.
    flips: Vec<(u64, Option<u32>)>,
    marked: Vec<u64>,
    is_protected: bool,
    /// Nothing can be read of a segment that is marked bad.
    refuses_bad: bool,
}

#[derive(Clone, Debug)]
struct Simulated {
    info: Info,
    state: std::sync::Arc<Mutex<State>>,
}

const NAND: Info = Info {
    kind: Kind::Nand,
    is_writable: true,
    is_bit_writable: false,
    size_bytes: 8 * 4 * 512,
    erase_bytes: 4 * 512,
    write_bytes: 512,
    oob_bytes: 128,
    free_oob_bytes: 80,
    bitflip_threshold: 3,
    erase_regions: 0,
};
const NOR: Info =
    Info { kind: Kind::Nor, is_bit_writable: true, write_bytes: 1, oob_bytes: 0, free_oob_bytes: 0, ..NAND };

impl Simulated {
    fn new(info: Info) -> Self {
        let pages = info.size_bytes / u64::from(info.write_bytes.max(1));
        let bytes = info.size_bytes + pages * u64::from(info.free_oob_bytes);
        let state = State { bytes: vec![0xFF; bytes as usize], ..State::default() };
        Self { info, state: std::sync::Arc::new(Mutex::new(state)) }
    }

    fn with(self, change: impl FnOnce(&mut State)) -> Self {
        change(&mut self.state.lock().unwrap());
        self
    }

    fn chip(&self) -> MtdFlash {
        MtdFlash::with(Box::new(self.clone())).unwrap()
    }

    fn error(&self) -> String {
        MtdFlash::with(Box::new(self.clone())).unwrap_err().to_string()
    }

    /// Where the parts of a request lie: for each page its data and its spare bytes.
    fn places(&self, at: u64, data: usize, oob: usize) -> Vec<(std::ops::Range<usize>, std::ops::Range<usize>)> {
        let (page, free) = (self.info.write_bytes as usize, self.info.free_oob_bytes as usize);
        if free == 0 {
            return vec![(at as usize..at as usize + data, 0..0)];
        }
        let pages = (data / page).max(oob.div_ceil(free)).max(1);
        let first = at as usize / page;
        (first..first + pages)
            .map(|number| {
                let start = number * (page + free);
                (start..start + page.min(data), start + page..start + page + free.min(oob))
            })
            .collect()
    }
}

fn fails(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

impl Driver for Simulated {
    fn info(&self) -> &Info {
        &self.info
    }

    fn read(&self, at: u64, data: &mut [u8], oob: &mut [u8]) -> Result<u32, ReadError> {
        let state = self.state.lock().unwrap();
        if state.refuses_bad && state.bad.get((at / u64::from(self.info.erase_bytes)) as usize) == Some(&true) {
            return Err(ReadError::Io(fails(5)));
        }
        let (mut data_at, mut oob_at, mut most) = (0, 0, 0);
        for (number, (bytes, spare)) in (0u64..).zip(self.places(at, data.len(), oob.len())) {
            let page = at + number * u64::from(self.info.write_bytes);
            if let Some((_, flips)) = state.flips.iter().find(|(place, _)| *place == page) {
                most = most.max(flips.ok_or(ReadError::Uncorrectable)?);
            }
            data[data_at..data_at + bytes.len()].copy_from_slice(&state.bytes[bytes.clone()]);
            oob[oob_at..oob_at + spare.len()].copy_from_slice(&state.bytes[spare.clone()]);
            (data_at, oob_at) = (data_at + bytes.len(), oob_at + spare.len());
        }
        Ok(most)
    }

    fn write(&self, at: u64, data: &[u8], oob: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        if state.failing_writes.contains(&at) {
            return Err(fails(5));
        }
        for (bytes, spare) in self.places(at, data.len(), oob.len()) {
            state.bytes[bytes].copy_from_slice(data);
            state.bytes[spare].copy_from_slice(oob);
        }
        Ok(())
    }

    fn erase(&self, at: u64) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        if state.is_protected || state.failing_erases.contains(&at) {
            return Err(fails(5));
        }
        let (page, free) = (u64::from(self.info.write_bytes), u64::from(self.info.free_oob_bytes));
        let stride = |bytes: u64| (bytes / page * (page + free)) as usize;
        state.bytes[stride(at)..][..stride(self.info.erase_bytes.into())].fill(0xFF);
        Ok(())
    }

    fn is_bad(&self, at: u64) -> io::Result<bool> {
        let number = (at / u64::from(self.info.erase_bytes)) as usize;
        Ok(self.state.lock().unwrap().bad.get(number).copied().unwrap_or(false))
    }

    fn mark_bad(&self, at: u64) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        if state.is_protected {
            return Err(fails(30));
        }
        state.marked.push(at);
        Ok(())
    }

    fn stats(&self) -> io::Result<Stats> {
        Err(fails(95))
    }
}

#[test]
fn a_chip_behaves_as_memory_does() {
    for info in [NAND, NOR] {
        let mut chip = Simulated::new(info).chip();
        let geometry = *chip.geometry();
        let mut ram = RamFlash::new(geometry);
        let spare = vec![3; geometry.spare_bytes() as usize];
        let devices: [&mut dyn Flash; 2] = [&mut ram, &mut chip];
        for device in devices {
            device.program(Ppn(0), &[7; 512], &[]).unwrap();
            device.program(Ppn(5), &[1; 512], &spare).unwrap();
            device.program(Ppn(6), &[2; 512], &spare[..spare.len() / 2]).unwrap();
            device.erase(SegmentId(0)).unwrap();
            assert!(matches!(device.erase(SegmentId(8)), Err(FlashError::SegmentOutOfRange { .. })));
            assert!(matches!(device.program(Ppn(1), &[9; 511], &[]), Err(FlashError::BufferSize { .. })));
            if geometry.is_byte_programmable() {
                device.program_part(Ppn(9), 100, &[0xF0, 1, 2]).unwrap();
            }
        }
        let read = |device: &mut dyn Flash| {
            let mut all = Vec::new();
            for ppn in (0..geometry.pages()).map(Ppn) {
                let (mut data, mut spare) = (vec![0; 512], vec![0; spare.len()]);
                assert_eq!(device.read(ppn, &mut data, &mut spare), Ok(ReadStatus::Clean));
                all.extend([data, spare]);
            }
            all
        };
        assert!(read(&mut ram) == read(&mut chip));
        if info == NAND {
            let run = |device: &mut dyn Flash| {
                let (mut data, mut spare) = (vec![0; 3 * 512], vec![0; 3 * 80]);
                assert!(device.read_run(Ppn(4), &mut data, &mut spare));
                (data, spare)
            };
            assert!(run(&mut ram) == run(&mut chip));
        }
    }
}

#[test]
fn memory_that_shows_itself_as_flash_only_ever_clears_bits() {
    let simulated = Simulated::new(NOR);
    let mut chip = MtdFlash { is_memory: true, ..simulated.chip() };
    chip.program_part(Ppn(9), 100, &[0xF0, 1]).unwrap();
    chip.program_part(Ppn(9), 100, &[0x8F, 0xFF]).unwrap();
    let mut bytes = [0; 2];
    chip.read_part(Ppn(9), 100, &mut bytes).unwrap();
    assert_eq!(bytes, [0x80, 1]);
}

#[test]
fn corrected_bits_count_from_the_threshold_of_the_chip_on() {
    let flips = |flips: &[(u64, Option<u32>)]| Simulated::new(NAND).with(|state| state.flips = flips.to_vec());
    let mut chip = flips(&[(512, Some(2)), (1024, Some(3)), (1536, None)]).chip();
    let mut page = vec![0; 512];
    assert_eq!(chip.read(Ppn(1), &mut page, &mut []), Ok(ReadStatus::Clean));
    assert_eq!(chip.read(Ppn(2), &mut page, &mut []), Ok(ReadStatus::Corrected));
    assert_eq!(chip.read(Ppn(3), &mut page, &mut []), Err(FlashError::Uncorrectable { ppn: Ppn(3) }));
    let mut run = |first: u32, pages: usize| {
        let (mut data, mut spare) = (vec![0; pages * 512], vec![0; pages * 80]);
        chip.read_run(Ppn(first), &mut data, &mut spare)
    };
    assert_eq!([run(0, 2), run(0, 3), run(3, 2), run(4, 4)], [true, false, false, true]);
}

#[test]
fn segments_that_are_marked_bad_hold_nothing_and_cannot_be_used() {
    let simulated = Simulated::new(NAND).with(|state| {
        state.bytes.fill(0);
        state.bad = vec![true, false, true];
    });
    let mut chip = simulated.chip();
    assert_eq!(chip.bad_segments().collect::<Vec<_>>(), [SegmentId(0), SegmentId(2)]);
    let (mut data, mut spare) = (vec![1; 512], vec![1; 80]);
    chip.read(Ppn(3), &mut data, &mut spare).unwrap();
    assert!(data.iter().chain(&spare).all(|byte| *byte == 0xFF));
    assert!(!chip.read_run(Ppn(4), &mut vec![0; 5 * 512], &mut vec![0; 5 * 80]));
    assert_eq!(chip.erase(SegmentId(2)), Err(FlashError::EraseFailed { segment: SegmentId(2) }));
    assert_eq!(chip.program(Ppn(1), &data, &[]), Err(FlashError::ProgramFailed { ppn: Ppn(1) }));
    assert_eq!(simulated.state.lock().unwrap().marked, [], "they are marked already");
}

#[test]
fn a_segment_whose_erase_fails_is_marked_and_one_whose_program_fails_when_it_is_retired() {
    let simulated = Simulated::new(NAND).with(|state| {
        state.failing_erases = vec![2048];
        state.failing_writes = vec![4096];
    });
    let mut chip = simulated.chip();
    let marked = || simulated.state.lock().unwrap().marked.clone();
    assert_eq!(chip.erase(SegmentId(1)), Err(FlashError::EraseFailed { segment: SegmentId(1) }));
    assert_eq!(marked(), [], "it may be the driver");
    chip.erase(SegmentId(3)).unwrap();
    assert_eq!(marked(), [2048]);
    assert_eq!(chip.program(Ppn(8), &[0; 512], &[0; 80]), Err(FlashError::ProgramFailed { ppn: Ppn(8) }));
    assert_eq!(marked(), [2048], "what is on the segment is still needed");
    for segment in [1, 2, 2, 9] {
        chip.retire(SegmentId(segment)).unwrap();
    }
    assert_eq!(marked(), [2048, 4096]);
}

#[test]
fn a_chip_of_which_nothing_can_be_erased_keeps_its_marks_and_is_given_up() {
    let simulated =
        Simulated::new(NAND).with(|state| state.failing_erases = (0..8).map(|segment| segment * 2048).collect());
    let mut chip = simulated.chip();
    let erased: Vec<_> = (0..8).map(|segment| chip.erase(SegmentId(segment))).collect();
    assert!(erased[..4].iter().all(|erased| matches!(erased, Err(FlashError::EraseFailed { .. }))), "{erased:?}");
    assert!(erased[4..].iter().all(|erased| *erased == Err(FlashError::Io { code: 5 })), "{erased:?}");
    (0..4).for_each(|segment| chip.retire(SegmentId(segment)).unwrap());
    assert_eq!(simulated.state.lock().unwrap().marked, []);
}

#[test]
fn a_chip_that_becomes_write_protected_loses_no_segment() {
    let simulated = Simulated::new(NAND);
    let mut chip = simulated.chip();
    chip.erase(SegmentId(0)).unwrap();
    simulated.state.lock().unwrap().is_protected = true;
    assert_eq!(chip.erase(SegmentId(1)), Err(FlashError::Io { code: 30 }));
    assert_eq!(chip.bad_segments().count(), 0);
}

#[test]
fn a_new_chip_is_told_from_one_that_was_used() {
    let simulated = Simulated::new(NAND).with(|state| {
        state.bytes[..512].fill(0);
        state.bad = vec![true];
    });
    assert_eq!(simulated.chip().is_used(), Ok(false), "what is on a bad segment does not count");
    simulated.chip().program(Ppn(20), &[7; 512], &[]).unwrap();
    assert_eq!(simulated.chip().is_used(), Ok(true));
}

#[test]
fn shapes_that_cannot_be_are_refused_with_what_the_driver_says() {
    for (info, words) in [
        (Info { size_bytes: 10_000, ..NAND }, "10000 bytes in erase blocks of 2048"),
        (Info { size_bytes: 0, ..NAND }, "0 bytes in erase blocks"),
        (Info { erase_bytes: 0, ..NAND }, "in erase blocks of 0"),
        (Info { write_bytes: 600, ..NAND }, "pages of 600 bytes in erase blocks of 2048"),
        (Info { write_bytes: 0, ..NAND }, "pages of 0 bytes"),
        (Info { free_oob_bytes: 200, ..NAND }, "200 free bytes in spare areas of 128"),
        (Info { oob_bytes: 1 << 20, ..NAND }, "spare areas of 1048576"),
        (Info { erase_regions: 3, ..NOR }, "erase blocks of 3 different sizes"),
        (Info { size_bytes: 2048, ..NAND }, "1 erase blocks of 2048 bytes"),
        (Info { size_bytes: 2048 << 40, ..NAND }, "up to 2^32 - 1 pages"),
        (Info { erase_bytes: 512 * 3, size_bytes: 512 * 12, write_bytes: 1536, ..NAND }, "2 erase blocks of 2 pages"),
    ] {
        let refused = geometry(&info).unwrap_err().to_string();
        assert!(refused.starts_with("the driver says that the chip has") && refused.contains(words), "{refused}");
    }
    assert!(Simulated::new(Info { erase_regions: 2, ..NOR }).error().contains("2 different sizes"));
}

#[test]
fn a_chip_whose_last_segment_is_bad_is_opened_though_nothing_of_that_can_be_read() {
    let bad = |state: &mut State| (state.bad, state.refuses_bad) = ([vec![false; 6], vec![true; 2]].concat(), true);
    let chip = Simulated::new(NAND).with(bad).chip();
    assert_eq!(chip.bad_segments().count(), 2);
}

#[test]
fn a_chip_that_is_bad_all_over_is_refused() {
    let simulated = Simulated::new(NAND).with(|state| state.bad = vec![true; 5]);
    assert!(simulated.error().starts_with("5 of the chip's 8 segments are marked bad"), "{}", simulated.error());
}

#[test]
fn pages_of_nor_follow_from_its_erase_blocks() {
    let shape = |erase_bytes: u32| {
        let geometry = geometry(&Info { erase_bytes, size_bytes: 8 * u64::from(erase_bytes), ..NOR }).unwrap();
        assert!(geometry.is_byte_programmable());
        (geometry.pages_per_segment(), geometry.page_bytes())
    };
    assert_eq!([4096, 32 << 10, 64 << 10, 256 << 10].map(shape), [(8, 512), (16, 2048), (16, 4096), (64, 4096)]);
}
