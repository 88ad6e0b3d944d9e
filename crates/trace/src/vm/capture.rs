use super::lackey::{self, Line, MAX_ACCESS_BYTES};
use super::{Reducer, VmHeader, VmWriter};
use crate::TraceError;
use crate::lines::{Lines, NextLine};
use std::ffi::OsString;
use std::io::{BufReader, PipeReader};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Options of a capture.
#[derive(Clone, Copy, Debug)]
pub struct CaptureOptions {
    /// How accesses are reduced to records.
    pub header: VmHeader,
    /// The program is ended when this many records are written; 0 for never.
    pub max_records: u64,
}

/// Progress of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Memory accesses of the program so far.
    pub accesses: u64,
    /// Records written so far.
    pub records: u64,
}

/// The result of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Captured {
    /// Accesses and records at the end.
    pub progress: Progress,
    /// Lines of Valgrind that are no accesses.
    pub other_lines: u64,
    /// How the program ended.
    pub status: ExitStatus,
    /// Whether the program was ended early because there were enough records.
    pub was_ended: bool,
    /// Whether the program was ended early because the watcher asked for it.
    pub was_stopped: bool,
}

impl Captured {
    /// Whether the trace is what was asked for: the program ended by itself, or there were enough records.
    pub fn is_whole(&self) -> bool {
        self.was_ended || (!self.was_stopped && self.status.signal().is_none())
    }
}

/// Time between two calls of the watcher.
const WATCH_EVERY: Duration = Duration::from_millis(50);
/// Lines after which the watcher is shown the progress.
const PROGRESS_EVERY_LINES: u64 = 1 << 12;

/// What the thread that copies and the one that waits for the program tell each other.
#[derive(Default)]
struct Shared {
    accesses: AtomicU64,
    records: AtomicU64,
    /// The program is being ended, and nothing more is recorded.
    ends: AtomicBool,
}

impl Shared {
    fn progress(&self) -> Progress {
        Progress { accesses: self.accesses.load(Ordering::Relaxed), records: self.records.load(Ordering::Relaxed) }
    }

    fn show(&self, progress: Progress) {
        self.accesses.store(progress.accesses, Ordering::Relaxed);
        self.records.store(progress.records, Ordering::Relaxed);
    }

    /// Whether the program is to be ended by the caller: it was not asked to before.
    fn begin_end(&self) -> bool {
        !self.ends.swap(true, Ordering::Relaxed)
    }
}

/// Runs a program under Valgrind's lackey and writes its page references to a VMT1 trace while it runs. The trace has to
/// be started with the header of the options, and is given back to be finished. The program shares this process's
/// standard input, output and error. It is ended early when `watch`, which is called now and then with the progress,
/// returns false. Child processes of the program are not captured.
///
/// # Errors
/// Valgrind cannot be run, or the trace cannot be written.
pub fn capture(
    program: &[OsString],
    mut writer: VmWriter,
    options: &CaptureOptions,
    mut watch: impl FnMut(Progress) -> bool,
) -> Result<(Captured, VmWriter), TraceError> {
    let valgrind = |error| TraceError::io("valgrind", error);
    let (reader, log) = std::io::pipe().map_err(valgrind)?;
    // Valgrind opens the pipe by its name: the program's own descriptors stay as they are.
    let name = format!("--log-file=/proc/{}/fd/{}", std::process::id(), log.as_raw_fd());
    let mut command = Command::new("valgrind");
    command.args(["--tool=lackey", "--trace-mem=yes", "--basic-counts=no", "--child-silent-after-fork=yes", &name]);
    let mut child = command.arg("--").args(program).spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => TraceError::io(
            "valgrind",
            std::io::Error::new(error.kind(), "not found; programs are captured with it: install the package valgrind"),
        ),
        _ => valgrind(error),
    })?;
    // The reader sees the end of the pipe only when every writer has closed it, this process included.
    let shared = Shared::default();
    let (status, was_stopped, result) = std::thread::scope(|scope| {
        let (pid, shared) = (child.id(), &shared);
        let copying = scope.spawn(move || {
            let result = copy(reader, &mut writer, options, shared, || end(pid));
            (result, writer)
        });
        let mut was_stopped = false;
        let status = wait(&mut child, || {
            if !was_stopped && !watch(shared.progress()) {
                was_stopped = true;
                if shared.begin_end() {
                    end(pid);
                }
            }
        });
        drop(log);
        // A signal for both processes may have ended the program first.
        was_stopped |= !watch(shared.progress());
        (status, was_stopped, copying.join().expect("the copying thread does not panic"))
    });
    let (copied, writer) = result;
    let (progress, other_lines, was_ended) = copied?;
    let status = status.map_err(valgrind)?;
    Ok((Captured { progress, other_lines, status, was_ended, was_stopped }, writer))
}

/// Waits for the end of a process, and calls `each` now and then.
fn wait(child: &mut Child, mut each: impl FnMut()) -> std::io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        each();
        std::thread::sleep(WATCH_EVERY);
    }
}

fn end(pid: u32) {
    // SIGTERM, not SIGKILL: Valgrind passes it on to the program.
    let _ = Command::new("kill").arg(pid.to_string()).status();
}

fn copy(
    pipe: PipeReader,
    writer: &mut VmWriter,
    options: &CaptureOptions,
    shared: &Shared,
    end: impl Fn(),
) -> Result<(Progress, u64, bool), TraceError> {
    let mut text = Lines::new(BufReader::with_capacity(1 << 20, pipe));
    let mut reducer = Reducer::new(options.header.window);
    let (mut progress, mut other_lines) = (Progress::default(), 0);
    let (mut lines, mut was_ended) = (0u64, false);
    loop {
        let next = text.next().map_err(|error| TraceError::io("valgrind's output", error))?;
        if next == NextLine::End {
            return Ok((progress, other_lines, was_ended));
        }
        lines += 1;
        if lines.is_multiple_of(PROGRESS_EVERY_LINES) {
            shared.show(progress);
        }
        if shared.ends.load(Ordering::Relaxed) {
            continue;
        }
        match lackey::parse(text.line()) {
            Some(Line::Access { fetch: true, .. }) if !options.header.fetches => {}
            Some(Line::Access { address, bytes, write, .. }) => {
                progress.accesses += 1;
                for touch in lackey::pages(address, bytes.min(MAX_ACCESS_BYTES), write, options.header.page_shift) {
                    if reducer.keeps(touch) {
                        writer.write(touch)?;
                        progress.records += 1;
                    }
                }
                if options.max_records > 0 && progress.records >= options.max_records && shared.begin_end() {
                    was_ended = true;
                    end();
                }
            }
            // Lines are cut where a child of the program wrote at the same time; a long one is taken in parts.
            Some(Line::Other) | None => other_lines += 1,
        }
    }
}
