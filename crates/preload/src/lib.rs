//! The heap of a program on flash. `margay vm run` preloads this library; it makes a [`margay_pager::PagedMemory`] before the
//! program starts, and takes the place of malloc and its kin.
//!
//! What is not heap stays in ordinary memory: code, stacks, files that are mapped. A process that the program makes
//! with fork(2) would not see the heap, so fork fails; programs that start others with vfork(2) or posix_spawn(3) go on.

mod heap;
mod interpose;

use margay_flash::Geometry;
use margay_hybrid::{FormatOptions, Mapping, OpenError, Persistence};
use margay_media::ImageFlash;
use margay_pager::{PAGE_BYTES, PagedMemory, store_error_text};
use margay_vm::Scheme;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::OnceLock;

#[global_allocator]
static HEAP: heap::Own = heap::Own;

/// The options that `margay vm run` passes in the environment.
struct Options {
    /// The file for the heap, or the folder for one without a name.
    store: PathBuf,
    keep: bool,
    report: PathBuf,
    memory_bytes: u64,
    ram_bytes: u64,
    log_blocks: u32,
    scheme: String,
}

static MEMORY: OnceLock<Running> = OnceLock::new();

/// What the report at the end needs.
struct Running {
    memory: PagedMemory,
    store: File,
    report: PathBuf,
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
        report: text("MARGAY_VM_REPORT")?.into(),
        memory_bytes: number("MARGAY_VM_MEMORY")?,
        ram_bytes: number("MARGAY_VM_RAM")?,
        log_blocks: number("MARGAY_VM_LOG_BLOCKS")? as u32,
        scheme: text("MARGAY_VM_SCHEME")?.to_string_lossy().into_owned(),
    })
}

const PAGES_PER_BLOCK: u32 = 64;
/// Segments beyond what is needed, for those that go bad.
const SPARE_SEGMENTS: u32 = 4;

/// A file that only its owner can open. It has no name from now on, unless it is to be kept: however the process ends, its
/// memory is not left behind.
fn new_file(store: &Path, keep: bool) -> std::io::Result<File> {
    let mut private = OpenOptions::new();
    private.read(true).write(true).mode(0o600);
    if !store.is_dir() {
        let file = private.create_new(true).open(store)?;
        if !keep {
            std::fs::remove_file(store)?;
        }
        return Ok(file);
    }
    if let Ok(file) = private.clone().custom_flags(libc::O_TMPFILE).open(store) {
        return Ok(file);
    }
    // Not every file system knows files without a name.
    let name = store.join(format!(".margay-heap-{}", std::process::id()));
    let file = private.create_new(true).open(&name)?;
    std::fs::remove_file(&name)?;
    Ok(file)
}

fn start(options: &Options) -> Result<(PagedMemory, File), String> {
    let pages =
        u32::try_from(options.memory_bytes.div_ceil(PAGE_BYTES as u64)).map_err(|_| "more than 16 TiB of memory")?;
    let segments = pages.div_ceil(PAGES_PER_BLOCK) + options.log_blocks + 2 + SPARE_SEGMENTS;
    let geometry = Geometry::new(segments, PAGES_PER_BLOCK, PAGE_BYTES as u32).map_err(|error| error.to_string())?;
    let name = options.store.display();
    let file = new_file(&options.store, options.keep).map_err(|error| format!("{name}: {error}"))?;
    let of_report = file.try_clone().map_err(|error| format!("{name}: {error}"))?;
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
    };
    let report = options.report.clone();
    let failed = move |error: &margay_pager::PagerError| give_up(&report, &error.to_string());
    let memory = PagedMemory::new(store, &paging, failed).map_err(|error| error.to_string())?;
    Ok((memory, of_report))
}

/// Ends the process, with the reason in the report.
fn give_up(report: &Path, error: &str) -> ! {
    let _ = std::fs::write(report, format!("error={error}\n"));
    // SAFETY: ends the process without running what might need the heap.
    unsafe { libc::_exit(71) }
}

extern "C" fn report() {
    let Some(Running { memory, store, report }) = MEMORY.get() else { return };
    // In units of 512 bytes, on every file system.
    let store_bytes = store.metadata().map_or(0, |found| found.blocks() * 512);
    let stats = memory.stats();
    let cache = &stats.cache;
    let mut text = Vec::new();
    let lines: [(&str, u64); 17] = [
        ("heap_bytes", heap::used_bytes() as u64),
        ("faults", stats.faults),
        ("write_faults", stats.write_faults),
        ("late_faults", stats.late_faults),
        ("lru_hits", cache.lru_hits),
        ("misses", cache.misses),
        ("swap_ins", cache.swap_ins),
        ("dirty_evictions", cache.dirty_evictions),
        ("clean_evictions", cache.clean_evictions),
        ("merges", cache.gc().count),
        ("copies", cache.gc().copies),
        ("cache_writes", cache.gc().cache_writes),
        ("drops", cache.gc().drops),
        ("flash_reads", stats.reads),
        ("flash_programs", stats.programs),
        ("flash_erases", stats.erases),
        ("store_bytes", store_bytes),
    ];
    for (name, value) in lines {
        // Writing to memory cannot fail.
        let _ = writeln!(text, "{name}={value}");
    }
    let _ = std::fs::write(report, text);
}

extern "C" fn begin() {
    if std::env::var_os("MARGAY_VM_STORE").is_none() {
        return;
    }
    let options = match options() {
        Ok(options) => options,
        Err(error) => give_up(Path::new("/dev/stderr"), &error),
    };
    // Programs that this one starts run without the pager.
    for name in ["LD_PRELOAD", "STORE", "REPORT", "MEMORY", "RAM", "LOG_BLOCKS", "SCHEME", "KEEP"] {
        let name = if name == "LD_PRELOAD" { name.to_string() } else { format!("MARGAY_VM_{name}") };
        // SAFETY: no other thread of the program runs yet.
        unsafe { std::env::remove_var(name) };
    }
    match start(&options) {
        Ok((memory, store)) => {
            let pager = memory.pager_thread().map_or(0, |thread| thread as usize);
            heap::begin(memory.start() as usize, memory.bytes(), pager);
            let _ = MEMORY.set(Running { memory, store, report: options.report });
            // SAFETY: registers a function that lives as long as the process.
            unsafe { libc::atexit(report) };
        }
        Err(error) => give_up(&options.report, &error),
    }
}

/// Runs before the program's own constructors and main.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
