use super::lackey::{self, Line};
use super::{Reducer, VmHeader, VmWriter};
use crate::TraceError;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, PipeReader};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, ExitStatus};

/// How a program is captured.
#[derive(Clone, Copy, Debug)]
pub struct CaptureOptions {
    /// What the trace is made with.
    pub header: VmHeader,
    /// The program is ended when so many records are written; 0 for never.
    pub most_records: u64,
}

/// How far a capture is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Accesses of the program.
    pub accesses: u64,
    /// Records written.
    pub records: u64,
}

/// What was captured.
#[derive(Clone, Copy, Debug)]
pub struct Captured {
    /// Accesses and records.
    pub progress: Progress,
    /// Lines of Valgrind that are no accesses.
    pub other_lines: u64,
    /// How the program ended.
    pub status: ExitStatus,
    /// It was ended because there were enough records, or because it was told to.
    pub was_ended: bool,
}

/// Lines between two calls of the watcher.
const LOOK_EVERY: u64 = 1 << 16;

/// Runs a program under Valgrind's lackey and writes its page references while it runs. The program has this process's
/// standard input, output and error. `watch` says false to end it; what was captured until then is kept. Processes
/// that it starts are not followed.
pub fn capture(
    program: &[OsString],
    to: &Path,
    options: &CaptureOptions,
    mut watch: impl FnMut(Progress) -> bool + Send,
) -> Result<Captured, TraceError> {
    let valgrind = |error| TraceError::io("valgrind", error);
    let mut writer = VmWriter::create(to, options.header)?;
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
    // The pipe ends when the last writer closes it: this process's end must go when the program has ended.
    let (status, result) = std::thread::scope(|scope| {
        let pid = child.id();
        let copying = scope.spawn(move || {
            let result = copy(reader, &mut writer, options, &mut watch, || end(pid));
            (result, writer)
        });
        let status = child.wait();
        drop(log);
        (status, copying.join().expect("the copying thread does not panic"))
    });
    let (copied, writer) = result;
    let (progress, other_lines, was_ended) = copied?;
    let status = status.map_err(valgrind)?;
    writer.finish()?;
    Ok(Captured { progress, other_lines, status, was_ended })
}

fn end(pid: u32) {
    // Asked, not killed: Valgrind hands the signal to the program.
    let _ = Command::new("kill").arg(pid.to_string()).status();
}

fn copy(
    pipe: PipeReader,
    writer: &mut VmWriter,
    options: &CaptureOptions,
    watch: &mut impl FnMut(Progress) -> bool,
    end: impl Fn(),
) -> Result<(Progress, u64, bool), TraceError> {
    let mut pipe = BufReader::with_capacity(1 << 20, pipe);
    let mut reducer = Reducer::new(options.header.window);
    let (mut line, mut progress, mut other_lines) = (Vec::new(), Progress::default(), 0);
    let (mut lines, mut was_ended) = (0u64, false);
    loop {
        line.clear();
        if pipe.read_until(b'\n', &mut line).map_err(|error| TraceError::io("valgrind's output", error))? == 0 {
            return Ok((progress, other_lines, was_ended));
        }
        lines += 1;
        if lines.is_multiple_of(LOOK_EVERY) && !was_ended && !watch(progress) {
            was_ended = true;
            end();
        }
        if was_ended {
            continue;
        }
        match lackey::parse(&line) {
            Some(Line::Access { fetch: true, .. }) if !options.header.fetches => {}
            Some(Line::Access { address, bytes, write, .. }) => {
                progress.accesses += 1;
                for touch in lackey::pages(address, bytes.min(1 << 20), write, options.header.page_shift) {
                    if reducer.keeps(touch) {
                        writer.write(touch)?;
                        progress.records += 1;
                    }
                }
                if options.most_records > 0 && progress.records >= options.most_records {
                    was_ended = true;
                    end();
                }
            }
            // A line may be cut where a child of the program wrote too.
            Some(Line::Other) | None => other_lines += 1,
        }
    }
}
