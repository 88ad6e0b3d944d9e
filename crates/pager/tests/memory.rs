//! Memory on flash under pressure, by one thread and by several at the same pages.

#[path = "../../trace/tests/skip/mod.rs"]
mod skip;

use margay_flash::Geometry;
use margay_hybrid::{FormatOptions, Hybrid, Mapping, Persistence, format};
use margay_media::{Faults, RamFlash, Strict};
use margay_pager::{Options, PagedMemory, PagerError};
use std::sync::atomic::{AtomicU64, Ordering};

type Store = Hybrid<margay_format::Formatted<Strict<RamFlash>>>;

fn store(pages: u32) -> Store {
    let geometry = Geometry::new(pages / 64 + 12, 64, 4096).unwrap().with_spare(64);
    let options = FormatOptions {
        mapping: Mapping::Fast { sequential: true, leave_open: false },
        persistence: Persistence::Volatile,
        log_blocks: 8,
        logical_pages: Some(pages),
        uuid: [3; 16],
        created_s: 0,
    };
    format(Strict::new(RamFlash::new(geometry)), &options).unwrap()
}

fn paged_memory(pages: u32, frames: u32, scheme: &str) -> Result<PagedMemory, PagerError> {
    let options =
        Options { bytes: u64::from(pages) * 4096, frames, scheme: scheme.parse().unwrap(), first_descriptor: 0 };
    PagedMemory::new(store(pages), &options, None, |error| {
        eprintln!("{error}");
        std::process::abort();
    })
}

/// Whether this process may handle its faults at all; if not, the test is skipped.
fn is_allowed() -> bool {
    match paged_memory(256, 16, "du-gc") {
        Err(error @ (PagerError::NotAllowed(_) | PagerError::NoWriteProtection(_))) => {
            skip::skip(error);
            false
        }
        _ => true,
    }
}

/// A sequence that looks random and is not.
fn mixed(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

#[test]
fn memory_holds_what_was_written_though_a_sixteenth_of_it_is_in_ram() {
    if !is_allowed() {
        return;
    }
    for scheme in ["du-gc", "da-gc", "lda-gc3", "lda-gc5"] {
        let mut paged = paged_memory(1024, 64, scheme).unwrap();
        let words = paged.bytes() / 8;
        let memory = paged.start().cast::<u64>();
        let mut oracle = vec![0u64; words];
        let mut state = 7;
        for step in 0..20_000u64 {
            // Half of the accesses go to a sixteenth of the memory.
            let span = if mixed(&mut state) & 1 == 0 { words } else { words / 16 };
            let at = mixed(&mut state) as usize % span;
            if mixed(&mut state).is_multiple_of(3) {
                // SAFETY: within the paged memory, which no other thread uses.
                unsafe { memory.add(at).write_volatile(step) };
                oracle[at] = step;
            } else {
                // SAFETY: as above.
                assert_eq!(unsafe { memory.add(at).read_volatile() }, oracle[at], "{scheme}, word {at}, step {step}");
            }
        }
        let stats = paged.stats();
        assert!(stats.cache.dirty_evictions > 1000 && stats.erases > 0 && stats.write_faults > 0, "{stats:?}");
        let bytes = paged.as_mut_slice();
        let same = bytes.chunks_exact(8).zip(&oracle).all(|(bytes, word)| bytes == word.to_ne_bytes());
        assert!(same, "{scheme}");
    }
}

#[test]
fn threads_that_touch_the_same_pages_lose_no_update() {
    if !is_allowed() {
        return;
    }
    let paged = paged_memory(512, 32, "lda-gc5").unwrap();
    let (threads, rounds, counters) = (6u64, 4000u64, 512usize);
    let start = paged.start() as usize;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut state = thread;
                for _ in 0..rounds {
                    let page = mixed(&mut state) as usize % counters;
                    // SAFETY: an aligned word of the paged memory, shared by atomic operations only.
                    let counter = unsafe { &*((start + page * 4096) as *const AtomicU64) };
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    // SAFETY: as above; the threads have ended.
    let counter = |page: usize| unsafe { &*((start + page * 4096) as *const AtomicU64) }.load(Ordering::Relaxed);
    assert_eq!((0..counters).map(counter).sum::<u64>(), threads * rounds);
}

#[test]
fn system_calls_read_and_write_the_memory() {
    if !is_allowed() {
        return;
    }
    use std::io::{Read, Seek, Write};
    let mut paged = paged_memory(256, 16, "lda-gc5").unwrap();
    let bytes = paged.as_mut_slice();
    bytes.chunks_exact_mut(4096).zip(0..=255u8).for_each(|(page, number)| page.fill(number));
    let mut file = tempfile();
    file.write_all(bytes).unwrap();
    bytes.fill(0);
    file.rewind().unwrap();
    file.read_exact(bytes).unwrap();
    assert!(bytes.chunks_exact(4096).zip(0..=255u8).all(|(page, number)| page.iter().all(|byte| *byte == number)));
}

/// Writes each page's number into it.
fn number_pages(paged: &mut PagedMemory) {
    paged.as_mut_slice().chunks_exact_mut(4096).zip(0u16..).for_each(|(page, number)| {
        page[..2].copy_from_slice(&number.to_ne_bytes());
    });
}

/// The number in a page.
fn number(paged: &mut PagedMemory, page: usize) -> u16 {
    let bytes = &paged.as_mut_slice()[page * 4096..page * 4096 + 2];
    u16::from_ne_bytes([bytes[0], bytes[1]])
}

#[test]
fn pages_that_are_discarded_read_as_zeros_and_those_left_to_the_kernel_keep_their_content() {
    if !is_allowed() {
        return;
    }
    let mut paged = paged_memory(512, 32, "lda-gc5").unwrap();
    number_pages(&mut paged);
    // The last ones are in RAM, the others on flash.
    paged.discard(100..110).unwrap();
    paged.discard(500..512).unwrap();
    paged.leave(200..220).unwrap();
    paged.leave(490..500).unwrap();
    let given_up = |page| (100..110).contains(&page) || page >= 500;
    for page in 0..512 {
        let expected = if given_up(page) { 0 } else { page as u16 };
        assert_eq!(number(&mut paged, page), expected, "page {page}");
    }
    assert_eq!(paged.stats().left_pages, 30);
    // They are the kernel's, and faults of theirs are not seen, until they are discarded.
    let faults = paged.stats().faults;
    (200..220).for_each(|page| assert_eq!(number(&mut paged, page), page as u16));
    assert_eq!(paged.stats().faults, faults);
    paged.discard(190..230).unwrap();
    (190..230).for_each(|page| assert_eq!(number(&mut paged, page), 0));
    assert!(paged.stats().faults >= faults + 40);
    number_pages(&mut paged);
    (0..512).for_each(|page| assert_eq!(number(&mut paged, page), page as u16, "page {page}"));
}

#[test]
fn a_sequential_run_brings_pages_in_ahead_and_a_random_order_does_not() {
    if !is_allowed() {
        return;
    }
    let mut paged = paged_memory(1024, 128, "lda-gc5").unwrap();
    number_pages(&mut paged);
    let before = paged.stats();
    (0..1024).for_each(|page| assert_eq!(number(&mut paged, page), page as u16));
    let run = paged.stats();
    assert!(run.faults - before.faults < 256 && run.ahead - before.ahead > 512, "{run:?}");
    (0..1024).for_each(|step| assert_eq!(number(&mut paged, step * 389 % 1024), (step * 389 % 1024) as u16));
    assert_eq!(paged.stats().ahead, run.ahead);
}

fn tempfile() -> std::fs::File {
    let path = std::env::temp_dir().join(format!("margay-pager-{}", std::process::id()));
    let file = std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file
}

#[test]
fn a_store_that_is_worn_out_is_reported_to_the_maker_of_the_memory() {
    if !is_allowed() {
        return;
    }
    let geometry = Geometry::new(24, 16, 4096).unwrap().with_spare(64);
    let mut device = Faults::new(Strict::new(RamFlash::new(geometry)), 4);
    device.wear_out_after(3);
    let options = FormatOptions {
        mapping: Mapping::Bast,
        persistence: Persistence::Volatile,
        log_blocks: 4,
        logical_pages: Some(256),
        uuid: [3; 16],
        created_s: 0,
    };
    let (said, heard) = std::sync::mpsc::channel();
    let paging = Options { bytes: 256 * 4096, frames: 16, scheme: "lda-gc5".parse().unwrap(), first_descriptor: 0 };
    let paged = PagedMemory::new(format(device, &options).unwrap(), &paging, None, move |error| {
        said.send(error.to_string()).unwrap();
    });
    // The thread that waits for a page waits for ever, and what it uses must stay.
    let paged = Box::leak(Box::new(paged.unwrap()));
    let start = paged.start() as usize;
    std::thread::spawn(move || {
        for step in 0u64.. {
            // SAFETY: within the paged memory, which is never given back.
            unsafe { ((start + step as usize * 7919 % 256 * 4096) as *mut u64).write_volatile(step) };
        }
    });
    let error = heard.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
    assert!(error.contains("no segment is left") && error.contains("have failed"), "{error}");
}

#[test]
fn what_cannot_work_is_refused_with_its_numbers() {
    let few = paged_memory(256, 4, "lda-gc5").unwrap_err().to_string();
    assert!(few.contains("4 pages of RAM") && few.contains("16"), "{few}");
    let buffer = paged_memory(256, 64, "ba-gc").unwrap_err().to_string();
    assert!(buffer.contains("BA-GC"), "{buffer}");
    let options = Options { bytes: 4096 * 300, frames: 64, scheme: "du-gc".parse().unwrap(), first_descriptor: 0 };
    let small = PagedMemory::new(store(256), &options, None, |_| {}).unwrap_err().to_string();
    assert!(small.contains("256 pages") && small.contains("300"), "{small}");
}
