//! Messages on standard error that hold up nobody. A thread of its own writes them; while nobody reads them they wait, and
//! when many wait, further ones are dropped and counted. Of messages of the same kind, only so many are written per second.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::callsite::Identifier;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Messages that can wait to be written.
const MAX_WAITING: usize = 1000;
/// Messages of a kind (those of one place in the program) that are written in an interval.
const MAX_OF_A_KIND: u64 = 10;
const INTERVAL: Duration = Duration::from_secs(1);
/// When the program ends, it waits this long for what is still to be written.
const END_TIMEOUT: Duration = Duration::from_millis(300);

/// The messages of a command. When it is dropped, what waits is written, unless nobody reads it.
pub struct Log {
    lines: SyncSender<Message>,
    kinds: Kinds,
    thread: JoinHandle<()>,
}

enum Message {
    Line(Vec<u8>),
    End,
}

type Kinds = Arc<Mutex<Counts>>;

#[derive(Default)]
struct Counts {
    kinds: HashMap<Identifier, Kind>,
    /// Messages that found no place among those that wait.
    dropped: u64,
}

/// Messages of a kind in the present interval.
#[derive(Default)]
struct Kind {
    count: u64,
    /// The first of them.
    example: String,
}

fn lock(kinds: &Kinds) -> MutexGuard<'_, Counts> {
    kinds.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Log {
    /// Sends what the program traces, up to this level, to standard error.
    ///
    /// # Errors
    /// There is no standard error, or no thread can be started.
    pub fn start(level: Level) -> io::Result<Self> {
        // A file of its own: who waits in writing to it holds no lock.
        let output = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        let (lines, received) = sync_channel(MAX_WAITING);
        let kinds = Kinds::default();
        let counts = kinds.clone();
        let thread = std::thread::Builder::new().name("log".into()).spawn(move || write(output, &received, &counts))?;
        let writer = Lines { lines: lines.clone(), kinds: kinds.clone() };
        tracing_subscriber::fmt().with_writer(writer).with_max_level(level).with_target(false).init();
        Ok(Self { lines, kinds, thread })
    }

    /// Says something that is no event of tracing.
    pub fn say(&self, text: String) {
        send(&self.lines, &self.kinds, (text + "\n").into_bytes());
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let started = Instant::now();
        // While nobody reads, there is no place for this message either.
        while started.elapsed() < END_TIMEOUT && self.lines.try_send(Message::End).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        while started.elapsed() < END_TIMEOUT && !self.thread.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn send(lines: &SyncSender<Message>, kinds: &Kinds, line: Vec<u8>) {
    if lines.try_send(Message::Line(line)).is_err() {
        lock(kinds).dropped += 1;
    }
}

/// Writes lines as they come, and at the end of each interval what was left out in it.
fn write(mut output: File, received: &Receiver<Message>, kinds: &Kinds) {
    let mut interval_ends = Instant::now() + INTERVAL;
    loop {
        let message = received.recv_timeout(interval_ends.saturating_duration_since(Instant::now()));
        let is_end = matches!(message, Ok(Message::End) | Err(RecvTimeoutError::Disconnected));
        let mut text = match message {
            Ok(Message::Line(line)) => line,
            Ok(Message::End) | Err(_) => Vec::new(),
        };
        if is_end || Instant::now() >= interval_ends {
            interval_ends = Instant::now() + INTERVAL;
            text.extend(lock(kinds).left_out().into_bytes());
        }
        // If standard error cannot be written to, there is nobody to be told.
        let _ = output.write_all(&text);
        if is_end {
            return;
        }
    }
}

impl Counts {
    /// What was left out in the interval that ends now, in words.
    fn left_out(&mut self) -> String {
        let mut text = String::new();
        for kind in std::mem::take(&mut self.kinds).into_values().filter(|kind| kind.count > MAX_OF_A_KIND) {
            let (more, example) = (kind.count - MAX_OF_A_KIND, kind.example.trim_end());
            text += &format!("{more} more messages like this one were suppressed: {example}\n");
        }
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            text += &format!("{dropped} messages were dropped because nobody read standard error\n");
        }
        text
    }
}

/// Takes the lines of tracing.
struct Lines {
    lines: SyncSender<Message>,
    kinds: Kinds,
}

/// Takes one message.
struct Line<'a> {
    lines: &'a Lines,
    kind: Option<Identifier>,
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { lines: self, kind: None }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Line<'a> {
        Line { lines: self, kind: Some(metadata.callsite()) }
    }
}

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(kind) = &self.kind {
            let mut counts = lock(&self.lines.kinds);
            let kind = counts.kinds.entry(kind.clone()).or_default();
            kind.count += 1;
            if kind.count == 1 {
                kind.example = String::from_utf8_lossy(line).into_owned();
            }
            if kind.count > MAX_OF_A_KIND {
                return Ok(line.len());
            }
        }
        send(&self.lines.lines, &self.lines.kinds, line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
