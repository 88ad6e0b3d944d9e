//! Async tasks in an interrupt and a disk in the main loop: two tasks write and read through the mailbox of `margay-micro`, and a third takes
//! a sample at each tick of the timer. The chip is slow, as flash is, and its driver waits for it; the sampler must not miss a tick
//! meanwhile. Nothing may be allocated.
#![no_std]
#![no_main]
extern crate alloc;

mod machine;

use alloc::format;
use alloc::string::String;
use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::pin::pin;
use core::sync::atomic::{AtomicU32, Ordering};
use core::task::{Poll, Waker};
use critical_section::Mutex;
use margay_bare::chip::{self, Chip, PAGE_BYTES};
use margay_bare::{Random, check_nothing_allocated, heap, println, text};
use margay_flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId, pass_on};
use margay_micro::{AsyncDisk, AsyncDiskError, Mailbox, SmallDisk};

margay_bare::entry!(run);

/// Ticks of the timer that the chip takes.
const PROGRAM_TICKS: u32 = 1;
const ERASE_TICKS: u32 = 20;
const EXPORTED_PAGES: u32 = 700;
/// Tasks that write, each its own half of the disk.
const WRITERS: u32 = 2;
const PAGES: u32 = EXPORTED_PAGES / WRITERS;

static MAILBOX: Mailbox<PAGE_BYTES, { WRITERS as usize }> = Mailbox::new();
static TICKS: AtomicU32 = AtomicU32::new(0);
static SAMPLES: AtomicU32 = AtomicU32::new(0);
static SAMPLER: Mutex<RefCell<Option<Waker>>> = Mutex::new(RefCell::new(None));
static FINISHED: AtomicU32 = AtomicU32::new(0);
/// Of the writes that the tasks waited for, the maximum of ticks that one took.
static LONGEST_TICKS: AtomicU32 = AtomicU32::new(0);
static FAILED: Mutex<Cell<Option<Failure>>> = Mutex::new(Cell::new(None));

#[derive(Clone, Copy)]
enum Failure {
    Disk(AsyncDiskError),
    /// The page does not hold what was written.
    Wrong(u32),
    /// A page past the end was written.
    NoEnd,
}

impl From<AsyncDiskError> for Failure {
    fn from(error: AsyncDiskError) -> Self {
        Self::Disk(error)
    }
}

/// In the interrupt of the timer.
fn tick() {
    TICKS.fetch_add(1, Ordering::Relaxed);
    if let Some(waker) = critical_section::with(|section| SAMPLER.borrow_ref_mut(section).take()) {
        waker.wake();
    }
}

fn ticks() -> u32 {
    TICKS.load(Ordering::Relaxed)
}

/// A task that has something to do at each tick.
async fn sample() {
    loop {
        let last = ticks();
        poll_fn(|context| {
            let waker = context.waker().clone();
            drop(critical_section::with(|section| SAMPLER.borrow_ref_mut(section).replace(waker)));
            if ticks() == last { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        SAMPLES.fetch_add(1, Ordering::Relaxed);
    }
}

/// A task that writes its part of the disk, and closes the mailbox if it is the last.
async fn write(number: u32) {
    if let Err(failure) = write_and_check(number).await {
        critical_section::with(|section| FAILED.borrow(section).set(Some(failure)));
    }
    if FINISHED.fetch_add(1, Ordering::Relaxed) + 1 == WRITERS {
        MAILBOX.close();
    }
}

fn content(lpn: u32, version: u8, page: &mut [u8; PAGE_BYTES]) {
    page.fill(version);
    page[..4].copy_from_slice(&lpn.to_le_bytes());
}

/// Writes, trims and gives up writes at random, then reads everything.
async fn write_and_check(number: u32) -> Result<(), Failure> {
    let Some(mut disk) = MAILBOX.open() else { return Err(AsyncDiskError::NotServed.into()) };
    // The chip is being formatted.
    disk.exported_pages().await?;
    let (first, mut random) = (number * PAGES, Random::new(number + 1));
    let (mut versions, mut page) = ([0u8; PAGES as usize], [0; PAGE_BYTES]);
    for round in 0..PAGES * 3 {
        let at = if round < PAGES { round } else { random.below(PAGES) };
        let (lpn, old) = (first + at, versions[at as usize]);
        let version = old % 100 + 1;
        content(lpn, version, &mut page);
        match random.below(16) {
            0 if round > PAGES => {
                disk.trim(lpn).await?;
                versions[at as usize] = 0;
            }
            1 => {
                give_up(&mut disk, lpn, &page, random.below(4)).await;
                // The old version or the new one.
                let is_written = disk.read(lpn, &mut page).await?;
                let is_new = is_written && is_content(lpn, version, &page);
                if is_written != (is_new || old > 0) || (is_written && !is_new && !is_content(lpn, old, &page)) {
                    return Err(Failure::Wrong(lpn));
                }
                versions[at as usize] = if is_new { version } else { old };
            }
            _ => {
                let before = ticks();
                disk.write(lpn, &page).await?;
                LONGEST_TICKS.fetch_max(ticks() - before, Ordering::Relaxed);
                versions[at as usize] = version;
            }
        }
    }
    disk.flush().await?;
    for (lpn, version) in (first..).zip(versions) {
        let is_written = disk.read(lpn, &mut page).await?;
        if is_written != (version > 0) || (is_written && !is_content(lpn, version, &page)) {
            return Err(Failure::Wrong(lpn));
        }
    }
    match disk.write(EXPORTED_PAGES, &page).await {
        Err(AsyncDiskError::PastEnd { .. }) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(()) => Err(Failure::NoEnd),
    }
}

fn is_content(lpn: u32, version: u8, page: &[u8; PAGE_BYTES]) -> bool {
    let mut expected = [0; PAGE_BYTES];
    content(lpn, version, &mut expected);
    *page == expected
}

/// Waits for a write for so many polls and drops it.
async fn give_up(disk: &mut AsyncDisk<PAGE_BYTES, 2>, lpn: u32, page: &[u8; PAGE_BYTES], mut polls: u32) {
    let mut write = pin!(disk.write(lpn, page));
    poll_fn(|context| {
        if write.as_mut().poll(context).is_ready() || polls == 0 {
            return Poll::Ready(());
        }
        polls -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A chip that takes its time, for which its driver waits.
struct Slow<'a> {
    chip: Chip<'a>,
    erases: u32,
    /// Samples that were taken during the erases.
    samples: u32,
}

impl Flash for Slow<'_> {
    pass_on!(chip: retire, has_payload, sync, is_cached, void_page, mark, set_mark);

    fn geometry(&self) -> &Geometry {
        self.chip.geometry()
    }
    fn read(&mut self, ppn: Ppn, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.chip.read(ppn, data, spare)
    }
    fn program(&mut self, ppn: Ppn, data: &[u8], spare: &[u8]) -> Result<(), FlashError> {
        machine::wait(PROGRAM_TICKS);
        self.chip.program(ppn, data, spare)
    }
    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        let before = SAMPLES.load(Ordering::Relaxed);
        machine::wait(ERASE_TICKS);
        self.erases += 1;
        self.samples += SAMPLES.load(Ordering::Relaxed) - before;
        self.chip.erase(segment)
    }
    fn read_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.chip.read_part(ppn, offset_bytes, bytes)
    }
    fn program_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &[u8]) -> Result<(), FlashError> {
        machine::wait(PROGRAM_TICKS);
        self.chip.program_part(ppn, offset_bytes, bytes)
    }
}

fn run() -> Result<(), String> {
    let memory = chip::take().expect("nobody else asks for the memory");
    machine::start();
    let slow = Slow { chip: Chip::new(memory, 1), erases: 0, samples: 0 };
    let mut disk = SmallDisk::format(slow, EXPORTED_PAGES, *b"margay-bare-task").map_err(text)?;
    (disk.device_mut().erases, disk.device_mut().samples) = (0, 0);

    let before = heap::allocations();
    MAILBOX.server(&mut disk).map_err(text)?.serve(1, machine::sleep);
    check_nothing_allocated(before, "tasks and server")?;

    match critical_section::with(|section| FAILED.borrow(section).get()) {
        None => {}
        Some(Failure::Disk(error)) => return Err(text(error)),
        Some(Failure::Wrong(lpn)) => return Err(format!("page {lpn} does not hold what was written")),
        Some(Failure::NoEnd) => return Err("a page past the end of the disk was written".into()),
    }
    disk.audit().map_err(text)?;
    let (ticks, samples, longest) = (ticks(), SAMPLES.load(Ordering::Relaxed), LONGEST_TICKS.load(Ordering::Relaxed));
    let (erases, during) = (disk.device_mut().erases, disk.device_mut().samples);
    if ticks - samples > 1 {
        return Err(format!("the sampler took {samples} samples in {ticks} ticks"));
    }
    if erases == 0 || during < erases * ERASE_TICKS || longest < ERASE_TICKS {
        return Err(format!("{during} samples during {erases} erases, and no write took longer than {longest} ticks"));
    }
    let bytes = size_of_val(&MAILBOX);
    println!(
        "tasks: the longest write took {longest} ticks; {during} samples during {erases} erases of {ERASE_TICKS} ticks, {samples} in all {ticks} ticks; mailbox: {bytes} bytes"
    );
    Ok(())
}
