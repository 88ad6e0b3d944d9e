//! The heap of a program on flash. `margay vm run` preloads this library; it makes a [`margay_pager::Region`] before the
//! program starts, and takes the place of malloc and its kin.
//!
//! What is not heap stays in ordinary memory: code, stacks, files that are mapped. A process that the program makes
//! with fork(2) would not see the heap, so fork fails; programs that start others with vfork(2) or posix_spawn(3) go on.

mod heap;
mod interpose;

use margay_flash::Geometry;
use margay_hybrid::{Duty, FormatOptions, Mapping, OpenError};
use margay_media::ImageFlash;
use margay_pager::{Options, PAGE_BYTES, Region, in_words};
use std::io::Write;
use std::path::PathBuf;
use std::sync::OnceLock;

#[global_allocator]
static HEAP: heap::Own = heap::Own;

/// What `margay vm run` says in the environment.
struct Asked {
    store: PathBuf,
    report: PathBuf,
    memory_bytes: u64,
    ram_bytes: u64,
    log_blocks: u32,
    scheme: String,
}

static REGION: OnceLock<(Region, PathBuf)> = OnceLock::new();

fn asked() -> Result<Asked, String> {
    let text = |name: &str| std::env::var_os(name).ok_or_else(|| format!("{name} is not set; use `margay vm run`"));
    let number = |name: &str| -> Result<u64, String> {
        let value = text(name)?;
        value.to_str().and_then(|value| value.parse().ok()).ok_or_else(|| format!("{name} is no number"))
    };
    Ok(Asked {
        store: text("MARGAY_VM_STORE")?.into(),
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

fn start(asked: &Asked) -> Result<Region, String> {
    let pages =
        u32::try_from(asked.memory_bytes.div_ceil(PAGE_BYTES as u64)).map_err(|_| "more than 16 TiB of memory")?;
    let segments = pages.div_ceil(PAGES_PER_BLOCK) + asked.log_blocks + 2 + SPARE_SEGMENTS;
    let geometry = Geometry::new(segments, PAGES_PER_BLOCK, PAGE_BYTES as u32).map_err(|error| error.to_string())?;
    let name = asked.store.display();
    match std::fs::remove_file(&asked.store) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(format!("{name}: {error}")),
    }
    // Nothing of it is needed after the process: it does not wait for the disk.
    let image =
        ImageFlash::create(&asked.store, geometry.with_spare(64)).map_err(|error| format!("{name}: {error}"))?;
    let options = FormatOptions {
        mapping: Mapping::Fast { sequential: true, leave_open: false },
        duty: Duty::Swap,
        log_blocks: asked.log_blocks,
        logical_pages: Some(pages),
        uuid: [0; 16],
        created_s: std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_secs()),
    };
    let store = margay_hybrid::format(image.without_sync(), &options).map_err(|error| match error {
        OpenError::Hybrid(error) => format!("{name}: {}", in_words(&error)),
        error => format!("{name}: {error}"),
    })?;
    let options = Options {
        bytes: asked.memory_bytes,
        frames: u32::try_from(asked.ram_bytes / PAGE_BYTES as u64).unwrap_or(u32::MAX).min(pages),
        scheme: asked.scheme.parse().map_err(|error: margay_vm::UnknownScheme| error.to_string())?,
    };
    let report = asked.report.clone();
    let failed = move |error: &margay_pager::PagerError| give_up(&report, &error.to_string());
    Region::new(store, &options, failed).map_err(|error| error.to_string())
}

/// The process cannot go on: the report says why.
fn give_up(report: &std::path::Path, error: &str) -> ! {
    let _ = std::fs::write(report, format!("error={error}\n"));
    // SAFETY: ends the process without running what might need the heap.
    unsafe { libc::_exit(71) }
}

extern "C" fn report() {
    let Some((region, path)) = REGION.get() else { return };
    let stats = region.stats();
    let cache = &stats.cache;
    let mut text = Vec::new();
    let lines: [(&str, u64); 16] = [
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
    ];
    for (name, value) in lines {
        // Memory does not refuse bytes.
        let _ = writeln!(text, "{name}={value}");
    }
    let _ = std::fs::write(path, text);
}

extern "C" fn begin() {
    if std::env::var_os("MARGAY_VM_STORE").is_none() {
        return;
    }
    let asked = match asked() {
        Ok(asked) => asked,
        Err(error) => give_up(std::path::Path::new("/dev/stderr"), &error),
    };
    // Programs that this one starts are their own.
    for name in ["LD_PRELOAD", "STORE", "REPORT", "MEMORY", "RAM", "LOG_BLOCKS", "SCHEME"] {
        let name = if name == "LD_PRELOAD" { name.to_string() } else { format!("MARGAY_VM_{name}") };
        // SAFETY: no other thread of the program runs yet.
        unsafe { std::env::remove_var(name) };
    }
    match start(&asked) {
        Ok(region) => {
            let pager = region.pager_thread().map_or(0, |thread| thread as usize);
            heap::begin(region.start() as usize, region.bytes(), pager);
            let _ = REGION.set((region, asked.report));
            // SAFETY: registers a function that lives as long as the process.
            unsafe { libc::atexit(report) };
        }
        Err(error) => give_up(&asked.report, &error),
    }
}

/// Runs before the program's own constructors and main.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
