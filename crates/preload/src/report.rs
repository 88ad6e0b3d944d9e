//! What `margay vm run` is told: lines in a file that all processes append to.

use crate::{MEMORY, Running, heap};
use std::fmt::Write;
use std::sync::atomic::{AtomicI32, Ordering};

/// The process that has said that it ends.
static ENDED: AtomicI32 = AtomicI32::new(0);

fn process() -> i32 {
    // SAFETY: asks for a number.
    unsafe { libc::getpid() }
}

/// Text without a heap: the process may end in a signal handler, in the middle of an allocation.
struct Text {
    bytes: [u8; 2048],
    len: usize,
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let to = self.bytes.get_mut(self.len..self.len + text.len()).ok_or(std::fmt::Error)?;
        to.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

impl Text {
    const fn new() -> Self {
        Self { bytes: [0; 2048], len: 0 }
    }

    fn write_to(&self, fd: i32) {
        // SAFETY: writes bytes of this value.
        unsafe { libc::syscall(libc::SYS_write, fd, self.bytes.as_ptr(), self.len) };
    }
}

/// Name of the program that the process runs.
fn name() -> String {
    let program = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    program.file_name().unwrap_or_default().to_string_lossy().replace([' ', '\n'], "_")
}

fn append(text: std::fmt::Arguments<'_>, report: i32) {
    let mut line = Text::new();
    if line.write_fmt(text).is_ok() {
        line.write_to(report);
    }
}

/// The process runs with its heap on flash from now on.
pub fn begin(report: i32) {
    append(format_args!("begin {} {}\n", process(), name()), report);
}

/// The process runs without.
pub fn plain(report: i32, why: &str) {
    append(format_args!("plain {} {} {why}\n", process(), name()), report);
}

/// The process ends because of an error.
pub fn error(report: i32, why: &str) {
    append(format_args!("error {} {} {why}\n", process(), name()), report);
}

/// A line on the error output, with the name of the program.
pub fn say(what: &str) {
    append(format_args!("margay: {} (process {}): {what}\n", name(), process()), 2);
}

/// Maximum resident size of the process in bytes.
fn peak_resident_bytes() -> u64 {
    let mut bytes = [0; 4096];
    // SAFETY: a file is opened, read into a local, and closed, without an allocation.
    let read = unsafe {
        let fd = libc::open(c"/proc/self/status".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return 0;
        }
        let read = libc::read(fd, bytes.as_mut_ptr().cast(), bytes.len());
        libc::syscall(libc::SYS_close, fd);
        read.max(0) as usize
    };
    let text = std::str::from_utf8(&bytes[..read]).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

fn write_end(text: &mut Text, running: &Running) -> std::fmt::Result {
    let mut stats = None;
    for _ in 0..100 {
        stats = stats.or_else(|| running.memory.try_stats());
        if stats.is_some() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let stats = stats.unwrap_or_default();
    let cache = &stats.cache;
    // SAFETY: all zeros are such a struct, and the call fills it.
    let store_bytes = unsafe {
        let mut found: libc::stat64 = std::mem::zeroed();
        libc::fstat64(running.store, &mut found);
        // In units of 512 bytes, on every file system.
        found.st_blocks as u64 * 512
    };
    write!(text, "end {}", process())?;
    let numbers: [(&str, u64); 21] = [
        ("heap_bytes", heap::used_bytes().unwrap_or(0) as u64),
        ("peak_resident_bytes", peak_resident_bytes()),
        ("faults", stats.faults),
        ("write_faults", stats.write_faults),
        ("late_faults", stats.late_faults),
        ("ahead", stats.ahead),
        ("left_pages", stats.left_pages),
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
        ("processes", 1),
    ];
    numbers.iter().try_for_each(|(name, value)| write!(text, " {name}={value}"))?;
    writeln!(text)
}

/// The process ends, whatever way it takes. Says what it took, once.
pub extern "C" fn end() {
    let Some(running) = MEMORY.get() else { return };
    // A child of vfork(2) shares the memory, and is not the process that it is of.
    if running.process.load(Ordering::Relaxed) != process() || ENDED.swap(process(), Ordering::Relaxed) == process() {
        return;
    }
    let mut text = Text::new();
    if write_end(&mut text, running).is_ok() {
        text.write_to(running.report);
    }
}
