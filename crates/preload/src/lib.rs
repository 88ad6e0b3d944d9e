//! The heap of a program on flash. `margay vm run` preloads this library; it makes a [`margay_pager::PagedMemory`] before the
//! program starts, and takes the place of malloc and its kin, and of mmap and its kin for large anonymous mappings.
//!
//! What is not heap stays in ordinary memory: code, stacks, files that are mapped. A process that the program makes with
//! fork(2) has the heap as it was at the fork, and a pager of its own; one that calls exec(2) begins anew, with a heap on flash
//! of its own.

mod descriptors;
mod fork;
mod heap;
mod interpose;
mod mappings;
mod report;
mod store;

use margay_flash::Geometry;
use margay_hybrid::{FormatOptions, Mapping, OpenError, Persistence};
use margay_media::ImageFlash;
use margay_pager::{PAGE_BYTES, PagedMemory, store_error_text};
use margay_vm::Scheme;
use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

#[global_allocator]
static HEAP: heap::Own = heap::Own;

/// The options that `margay vm run` passes in the environment.
struct Options {
    /// The file for the heap, or the folder for one without a name.
    store: PathBuf,
    keep: bool,
    memory_bytes: u64,
    ram_bytes: u64,
    log_blocks: u32,
    scheme: String,
    /// The process that `margay vm run` has started, and not one that it started in turn.
    is_first: bool,
}

static MEMORY: OnceLock<Running> = OnceLock::new();

/// The process that `margay vm run` has started, if it is this one. The environment may be in the paged memory later.
static FIRST: AtomicU32 = AtomicU32::new(0);

/// The memory of the process, and what the report at the end needs.
struct Running {
    memory: PagedMemory,
    /// The descriptors of the file for the heap, and of the report.
    store: RawFd,
    report: RawFd,
    process: AtomicI32,
}

/// Whether `margay vm run` has started this process itself.
fn is_first() -> bool {
    // SAFETY: asks for a number.
    let parent = unsafe { libc::getppid() };
    std::env::var("MARGAY_VM_PARENT").is_ok_and(|margay| margay == parent.to_string())
}

fn options() -> Result<Options, String> {
    let text = |name: &str| {
        std::env::var_os(name).ok_or_else(|| format!("{name} is not set: run the program with `margay vm run`"))
    };
    let number = |name: &str| -> Result<u64, String> {
        let value = text(name)?;
        value.to_str().and_then(|value| value.parse().ok()).ok_or_else(|| format!("{name} is not a number"))
    };
    Ok(Options {
        store: text("MARGAY_VM_STORE")?.into(),
        keep: std::env::var_os("MARGAY_VM_KEEP").is_some(),
        memory_bytes: number("MARGAY_VM_MEMORY")?,
        ram_bytes: number("MARGAY_VM_RAM")?,
        log_blocks: number("MARGAY_VM_LOG_BLOCKS")? as u32,
        scheme: text("MARGAY_VM_SCHEME")?.to_string_lossy().into_owned(),
        is_first: is_first(),
    })
}

const PAGES_PER_BLOCK: u32 = 64;
/// Segments beyond what is needed, for those that go bad.
const SPARE_SEGMENTS: u32 = 4;

fn start(options: &Options, report: RawFd) -> Result<Running, String> {
    let pages =
        u32::try_from(options.memory_bytes.div_ceil(PAGE_BYTES as u64)).map_err(|_| "more than 16 TiB of memory")?;
    let segments = pages.div_ceil(PAGES_PER_BLOCK) + options.log_blocks + 2 + SPARE_SEGMENTS;
    let geometry = Geometry::new(segments, PAGES_PER_BLOCK, PAGE_BYTES as u32).map_err(|error| error.to_string())?;
    let name = options.store.display();
    let file = store::new_file(&options.store, options.keep, options.is_first);
    let file = store::kept(file.map_err(|error| format!("{name}: {error}"))?);
    let of_report = store::kept(file.try_clone().map_err(|error| format!("{name}: {error}"))?);
    let forks = store::Forks::new(&options.store, [file.as_raw_fd(), of_report.as_raw_fd()]);
    // Its content is of no use after the process, so it need not wait for the disk.
    let image = ImageFlash::create_in(file, geometry.with_spare(64)).map_err(|error| format!("{name}: {error}"))?;
    let format = FormatOptions {
        mapping: Mapping::Fast { sequential: true, leave_open: false },
        persistence: Persistence::Volatile,
        log_blocks: options.log_blocks,
        logical_pages: Some(pages),
        uuid: [0; 16],
        created_s: std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_secs()),
    };
    let store = margay_hybrid::format(image.without_sync(), &format).map_err(|error| match error {
        OpenError::Hybrid(error) => format!("{name}: {}", store_error_text(&error)),
        error => format!("{name}: {error}"),
    })?;
    let paging = margay_pager::Options {
        bytes: options.memory_bytes,
        frames: u32::try_from(options.ram_bytes / PAGE_BYTES as u64).unwrap_or(u32::MAX).min(pages),
        scheme: options.scheme.parse().map_err(|error: <Scheme as FromStr>::Err| error.to_string())?,
        first_descriptor: descriptors::first(),
    };
    let failed = move |error: &margay_pager::PagerError| give_up(report, &error.to_string());
    let memory = PagedMemory::new(store, &paging, Some(Box::new(forks)), failed).map_err(|error| error.to_string())?;
    memory.descriptors().into_iter().for_each(descriptors::keep);
    Ok(Running { memory, store: of_report.into_raw_fd(), report, process: AtomicI32::new(std::process::id() as i32) })
}

/// Ends the process, with the reason in the report.
fn give_up(report: RawFd, error: &str) -> ! {
    report::error(report, error);
    // `margay vm run` says it of the program that it has started.
    if FIRST.load(Ordering::Relaxed) != std::process::id() {
        report::say(error);
    }
    loop {
        // SAFETY: ends the process without running what might need the heap.
        unsafe { libc::syscall(libc::SYS_exit_group, 71) };
    }
}

fn give_up_in(running: &Running, error: &str) -> ! {
    give_up(running.report, error)
}

/// Programs that this process starts run without the pager, and so does this one.
fn go_without() {
    for name in std::env::vars_os().map(|(name, _)| name).collect::<Vec<_>>() {
        if name == "LD_PRELOAD" || name.as_encoded_bytes().starts_with(b"MARGAY_VM_") {
            // SAFETY: no other thread of the program runs yet.
            unsafe { std::env::remove_var(name) };
        }
    }
}

/// The report, which every process appends to.
fn open_report() -> RawFd {
    let path = std::env::var_os("MARGAY_VM_REPORT").unwrap_or_default();
    let file = OpenOptions::new().append(true).open(path).or_else(|_| OpenOptions::new().write(true).open("/dev/null"));
    file.map_or(-1, |file| store::kept(file).into_raw_fd())
}

extern "C" fn begin() {
    if std::env::var_os("MARGAY_VM_STORE").is_none() {
        return;
    }
    let report = open_report();
    if is_first() {
        FIRST.store(std::process::id(), Ordering::Relaxed);
    }
    let options = match options() {
        Ok(options) => options,
        Err(error) => give_up(report, &error),
    };
    if !options.is_first && std::env::var_os("MARGAY_VM_NO_CHILDREN").is_some() {
        return go_without();
    }
    fork::prepare_libc();
    match start(&options, report) {
        Ok(running) => {
            let memory = &running.memory;
            let pager = memory.pager_thread().map_or(0, |thread| thread as usize);
            let (start, bytes) = (memory.start() as usize, memory.bytes());
            let _ = MEMORY.set(running);
            report::begin(report);
            heap::begin(start, bytes, pager);
            fork::register();
            // SAFETY: registers a function that lives as long as the process.
            unsafe { libc::atexit(report::end) };
        }
        Err(error) if options.is_first => give_up(report, &error),
        Err(error) => {
            // It may have given up the right to handle its faults. Its parent does not depend on where its heap is.
            report::plain(report, &error);
            go_without();
        }
    }
}

/// Runs before the program's own constructors and main.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
