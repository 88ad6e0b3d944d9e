//! The operations of a trace, read once and kept for all runs: in memory if they are few, in a temporary file otherwise.
//!
//! Operations of one kind, time and stream on pages side by side are one run: a byte with the kind (bits 0 and 1), whether the time
//! differs from the run before (bit 2), whether there are several pages (bit 3), whether it belongs to a stream of the host (bit 4),
//! then LEB128 numbers: the microseconds since the run before, the zigzag distance of the first page from the end of the run
//! before, the number of pages, the stream.

use crate::LabError;
use margay_trace::leb128;
use margay_workload::{OpKind, PageOp};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes that are read or written at once. No run crosses the border of two of them.
const PART_BYTES: usize = 1 << 20;
const MAX_RUN_BYTES: usize = 1 + 4 * leb128::MAX_BYTES;
/// What is kept in memory; with more, everything goes to a file.
const MAX_MEMORY_PARTS: usize = 256;

const KINDS: [OpKind; 3] = [OpKind::Write, OpKind::Trim, OpKind::Read];
const OTHER_TIME: u8 = 4;
const SEVERAL: u8 = 8;
const OF_A_STREAM: u8 = 16;

/// A number of operations, in order.
#[derive(Debug)]
pub(crate) struct PackedOps(Parts);

#[derive(Debug)]
enum Parts {
    Memory(Vec<Vec<u8>>),
    /// A file without a name, and the bytes of each part in it, which start at multiples of [`PART_BYTES`].
    File(File, Vec<u32>),
}

/// Operations side by side.
#[derive(Clone, Copy, Debug)]
struct Run {
    time_us: u64,
    kind: OpKind,
    lpn: u32,
    pages: u32,
    stream: Option<u8>,
}

/// Where a run starts from: what was before it.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    time_us: u64,
    end_lpn: u32,
}

/// Where temporary files of any size belong.
fn temporary_folder() -> PathBuf {
    let large = PathBuf::from("/var/tmp");
    if std::env::var_os("TMPDIR").is_none() && large.is_dir() { large } else { std::env::temp_dir() }
}

fn file_error(error: io::Error) -> LabError {
    let path = temporary_folder().display().to_string();
    let advice = "a long trace is kept there while it is replayed; set TMPDIR to a folder with more room";
    LabError::File { path, error: format!("a temporary file cannot be written or read: {error}; {advice}") }
}

/// Collects operations.
#[derive(Debug)]
pub(crate) struct Packer {
    parts: Parts,
    /// The part being filled.
    part: Vec<u8>,
    open: Option<Run>,
    before: Before,
    max_memory_parts: usize,
}

impl Packer {
    pub fn new() -> Self {
        Self::with_memory(MAX_MEMORY_PARTS)
    }

    fn with_memory(max_memory_parts: usize) -> Self {
        let (part, parts) = (Vec::new(), Parts::Memory(Vec::new()));
        Self { parts, part, open: None, before: Before::default(), max_memory_parts }
    }

    /// Appends an operation. Times never go back.
    #[inline]
    pub fn push(&mut self, op: PageOp) -> Result<(), LabError> {
        if let Some(run) = &mut self.open
            && (run.time_us, run.kind, run.lpn.wrapping_add(run.pages)) == (op.time_us, op.kind, op.lpn)
            && run.stream == op.stream
            && run.pages < u32::MAX
        {
            run.pages += 1;
            return Ok(());
        }
        let run = Run { time_us: op.time_us, kind: op.kind, lpn: op.lpn, pages: 1, stream: op.stream };
        match self.open.replace(run) {
            Some(before) => self.put(before),
            None => Ok(()),
        }
    }

    fn put(&mut self, run: Run) -> Result<(), LabError> {
        if self.part.len() + MAX_RUN_BYTES > PART_BYTES {
            self.end_part()?;
        }
        let out = &mut self.part;
        if out.capacity() == 0 {
            out.reserve_exact(PART_BYTES);
        }
        let elapsed_us = run.time_us.wrapping_sub(self.before.time_us);
        let kind = KINDS.iter().position(|kind| *kind == run.kind).unwrap_or(0) as u8;
        let other_time = if elapsed_us == 0 { 0 } else { OTHER_TIME };
        let of_a_stream = if run.stream.is_some() { OF_A_STREAM } else { 0 };
        out.push(kind | other_time | of_a_stream | if run.pages == 1 { 0 } else { SEVERAL });
        if elapsed_us != 0 {
            leb128::put(out, elapsed_us);
        }
        leb128::put(out, leb128::zigzag(i64::from(run.lpn) - i64::from(self.before.end_lpn)));
        if run.pages != 1 {
            leb128::put(out, run.pages.into());
        }
        if let Some(stream) = run.stream {
            leb128::put(out, stream.into());
        }
        self.before = Before { time_us: run.time_us, end_lpn: run.lpn.wrapping_add(run.pages) };
        Ok(())
    }

    fn end_part(&mut self) -> Result<(), LabError> {
        let part = std::mem::take(&mut self.part);
        if let Parts::Memory(parts) = &mut self.parts {
            let mut spare = Vec::<u8>::new();
            if parts.len() < self.max_memory_parts && spare.try_reserve_exact(PART_BYTES).is_ok() {
                parts.push(part);
                self.part = spare;
                return Ok(());
            }
            let (mut file, mut lens) = (tempfile::tempfile_in(temporary_folder()).map_err(file_error)?, Vec::new());
            for part in parts.iter_mut().map(std::mem::take) {
                append(&mut file, &mut lens, part)?;
            }
            self.parts = Parts::File(file, lens);
        }
        if let Parts::File(file, lens) = &mut self.parts {
            self.part = append(file, lens, part)?;
        }
        Ok(())
    }

    /// All operations that were pushed.
    pub fn finish(mut self) -> Result<PackedOps, LabError> {
        if let Some(run) = self.open.take() {
            self.put(run)?;
        }
        if let Parts::Memory(parts) = &mut self.parts {
            self.part.shrink_to_fit();
            parts.push(self.part);
        } else {
            self.end_part()?;
        }
        Ok(PackedOps(self.parts))
    }
}

/// Writes a part behind the others and returns it empty.
fn append(file: &mut File, lens: &mut Vec<u32>, mut part: Vec<u8>) -> Result<Vec<u8>, LabError> {
    lens.push(part.len() as u32);
    part.resize(PART_BYTES, 0);
    file.write_all(&part).map_err(file_error)?;
    part.clear();
    Ok(part)
}

/// Hands out operations from the first to the last, as often as asked.
#[derive(Debug)]
pub(crate) struct Unpacker {
    ops: Arc<PackedOps>,
    /// The part that is read, and where in it.
    part: usize,
    at: usize,
    /// The part, if it is from a file.
    loaded: Vec<u8>,
    before: Before,
    run: Option<Run>,
}

impl Unpacker {
    pub fn new(ops: Arc<PackedOps>) -> Self {
        Self { ops, part: 0, at: 0, loaded: Vec::new(), before: Before::default(), run: None }
    }

    /// Goes back to the first operation.
    pub fn start_over(&mut self) {
        (self.part, self.at, self.before, self.run) = (0, 0, Before::default(), None);
        self.loaded.clear();
    }

    /// Appends the next operations, `max` of them if there are so many left.
    pub fn next_batch(&mut self, out: &mut Vec<PageOp>, max: usize) -> Result<(), LabError> {
        let end = out.len() + max;
        while out.len() < end {
            let run = match self.run.take() {
                Some(run) => run,
                None => match self.next_run()? {
                    Some(run) => run,
                    None => break,
                },
            };
            let Run { time_us, kind, lpn, pages, stream } = run;
            let now = pages.min((end - out.len()).min(u32::MAX as usize) as u32);
            out.extend((0..now).map(|page| PageOp { time_us, lpn: lpn + page, kind, stream }));
            if now < pages {
                self.run = Some(Run { lpn: lpn + now, pages: pages - now, ..run });
            }
        }
        Ok(())
    }

    fn next_run(&mut self) -> Result<Option<Run>, LabError> {
        loop {
            let part = match &self.ops.0 {
                Parts::Memory(parts) => match parts.get(self.part) {
                    Some(part) => part,
                    None => return Ok(None),
                },
                Parts::File(file, lens) => {
                    let Some(len) = lens.get(self.part) else { return Ok(None) };
                    if self.loaded.is_empty() {
                        self.loaded.resize(*len as usize, 0);
                        let start = self.part as u64 * PART_BYTES as u64;
                        file.read_exact_at(&mut self.loaded, start).map_err(file_error)?;
                    }
                    &self.loaded
                }
            };
            let mut bytes = part.get(self.at..).unwrap_or_default();
            if bytes.is_empty() {
                (self.part, self.at) = (self.part + 1, 0);
                self.loaded.clear();
                continue;
            }
            let run = decode(&mut bytes, self.before).map_err(file_error)?;
            self.at = part.len() - bytes.len();
            self.before = Before { time_us: run.time_us, end_lpn: run.lpn.wrapping_add(run.pages) };
            return Ok(Some(run));
        }
    }
}

/// Takes a run off the start of a part.
#[inline]
fn decode(bytes: &mut &[u8], before: Before) -> io::Result<Run> {
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "it is not as it was written");
    let Some((&head, rest)) = bytes.split_first() else { return Err(damaged()) };
    *bytes = rest;
    let mut number = || leb128::take(bytes)?.ok_or_else(damaged);
    let elapsed_us = if head & OTHER_TIME == 0 { 0 } else { number()? };
    let lpn = i64::from(before.end_lpn) + leb128::unzigzag(number()?).clamp(-i64::from(u32::MAX), u32::MAX.into());
    let pages = if head & SEVERAL == 0 { 1 } else { number()? };
    let stream = if head & OF_A_STREAM == 0 { None } else { Some(number()? as u8) };
    let (Ok(lpn), Ok(pages)) = (u32::try_from(lpn), u32::try_from(pages)) else { return Err(damaged()) };
    let kind = *KINDS.get(usize::from(head & 3)).ok_or_else(damaged)?;
    lpn.checked_add(pages).ok_or_else(damaged)?;
    Ok(Run { time_us: before.time_us.wrapping_add(elapsed_us), kind, lpn, pages, stream })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operations that look random: runs, jumps over the whole range, pauses.
    fn some_ops(count: usize) -> Vec<PageOp> {
        let mut state = 9u64;
        let mut below = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 20) % limit
        };
        let (mut ops, mut time_us) = (Vec::new(), 0);
        while ops.len() < count {
            time_us += [0, 1, 1 << 40][below(3) as usize];
            let lpn = [below(1000), below(u64::from(u32::MAX) - 300)][below(2) as usize] as u32;
            let (kind, pages) = (KINDS[below(3) as usize], [1, 1 + below(8) as u32][below(2) as usize]);
            let stream = [None, Some(0), Some(255)][below(3) as usize];
            ops.extend((lpn..lpn + pages).map(|lpn| PageOp { time_us, lpn, kind, stream }));
        }
        ops
    }

    #[test]
    fn operations_come_back_from_memory_and_from_a_file_in_any_batches_and_again() {
        let ops = some_ops(2_000_000);
        for max_memory_parts in [0, 1, usize::MAX] {
            let mut packer = Packer::with_memory(max_memory_parts);
            ops.iter().for_each(|op| packer.push(*op).unwrap());
            let packed = Arc::new(packer.finish().unwrap());
            assert_eq!(matches!(packed.0, Parts::File(..)), max_memory_parts < 2, "{max_memory_parts}");
            let mut unpacker = Unpacker::new(Arc::clone(&packed));
            for max in [4096, 1, 7, 100_000] {
                let (mut found, mut batch) = (0, Vec::new());
                while found < ops.len() {
                    batch.clear();
                    unpacker.next_batch(&mut batch, max).unwrap();
                    assert!(batch[..] == ops[found..ops.len().min(found + max)], "at {found}, {max} at once");
                    found += batch.len();
                }
                batch.clear();
                unpacker.next_batch(&mut batch, max).unwrap();
                assert!(batch.is_empty());
                unpacker.start_over();
            }
        }
    }

    #[test]
    fn no_operations_are_none() {
        for max_memory_parts in [0, 1] {
            let packed = Packer::with_memory(max_memory_parts).finish().unwrap();
            let mut batch = Vec::new();
            Unpacker::new(Arc::new(packed)).next_batch(&mut batch, 10).unwrap();
            assert!(batch.is_empty());
        }
    }

    #[test]
    fn bytes_that_were_not_written_so_are_an_error() {
        let mut state = 1u64;
        for _ in 0..100_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bytes = (state ^ state >> 29).to_le_bytes();
            let mut left = &bytes[..];
            while !left.is_empty() && decode(&mut left, Before::default()).is_ok() {}
        }
    }
}
