//! Programs that are kept in memory for a moment, so that pages which follow each other are written to the file together.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// At most this much is kept; it is to stay in the processor's cache until it is written.
const MAX_BYTES: usize = 256 << 10;

/// What was programmed and is not in the file yet, in runs.
#[derive(Debug, Default)]
pub(super) struct Held {
    runs: Vec<Run>,
    bytes: usize,
    /// Buffers of runs that were written.
    unused: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct Run {
    /// Where it begins in the file.
    at: u64,
    /// As they will be in the file.
    bytes: Vec<u8>,
}

impl Run {
    fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }
}

impl Held {
    /// Whether more has to wait until what is there was written.
    pub fn is_full(&self) -> bool {
        self.bytes >= MAX_BYTES
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Takes a page of `stride` bytes: its data and its spare area, and what is erased between and behind them.
    pub fn put(&mut self, at: u64, data: &[u8], spare: &[u8], page_bytes: usize, stride: usize) {
        let index = self.runs.iter().position(|run| run.end() == at).unwrap_or_else(|| {
            let bytes = self.unused.pop().unwrap_or_default();
            self.runs.push(Run { at, bytes });
            self.runs.len() - 1
        });
        let bytes = &mut self.runs[index].bytes;
        let start = bytes.len();
        for (part, end) in [(data, page_bytes), (spare, stride)] {
            bytes.extend(part.iter().map(|byte| !byte));
            bytes.resize(start + end, 0);
        }
        self.bytes += stride;
    }

    /// The bytes of a page, if it is kept here.
    pub fn get(&self, at: u64, stride: usize) -> Option<&[u8]> {
        let run = self.runs.iter().find(|run| run.at <= at && at < run.end())?;
        run.bytes.get((at - run.at) as usize..)?.get(..stride)
    }

    /// Whether anything between two places of the file is kept here.
    pub fn overlaps(&self, start: u64, end: u64) -> bool {
        self.runs.iter().any(|run| run.at < end && start < run.end())
    }

    /// The end in the file of what is kept.
    pub fn end(&self) -> u64 {
        self.runs.iter().map(Run::end).max().unwrap_or(0)
    }

    /// Writes everything; after an error what is not known to be in the file stays.
    pub fn write(&mut self, file: &File) -> io::Result<()> {
        while let Some(run) = self.runs.first() {
            file.write_all_at(&run.bytes, run.at)?;
            self.bytes -= run.bytes.len();
            let mut bytes = self.runs.remove(0).bytes;
            bytes.clear();
            self.unused.push(bytes);
        }
        Ok(())
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        (self.bytes, self.runs) = (0, Vec::new());
    }
}
