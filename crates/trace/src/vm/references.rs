use super::{VmHeader, VmReader};
use crate::TraceError;
use crate::hash::FastMap;
use std::path::Path;

/// How pages of the address space are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PageMap {
    /// Aligned chunks of pages are numbered in the order of first touch; pages keep their place in the chunk.
    Chunks,
    /// Pages are numbered one by one in the order of first touch.
    Dense,
}

/// Options of [`References::load`].
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// Binary logarithm of the bytes in a page; at least that of the trace.
    pub page_shift: u8,
    /// Pages in a chunk, at least 1.
    pub chunk_pages: u32,
    /// How pages are numbered.
    pub map: PageMap,
    /// Whether pages that the program never writes are left out: those come from files.
    pub only_written: bool,
}

/// The references of a program in memory, ready for replay: 4 bytes each.
#[derive(Clone, Debug)]
pub struct References {
    /// Page number, shifted left by one, and in bit 0 whether the page is written.
    references: Vec<u32>,
    /// Pages that the numbering spans.
    pages: u32,
    /// By page, one bit: it is referenced.
    referenced: Vec<u64>,
    header: VmHeader,
    file_hash: u64,
}

/// The largest number of different pages in a trace: 32 GiB of 2-KiB pages, more than programs touch that a tracer can
/// follow. Memory for page numbers is bounded by it, however a trace is compressed.
pub const MAX_PAGES: u64 = 1 << 24;

/// The largest number of references that are loaded, of 4 bytes each. A trace of some bytes can unpack to any number.
const MAX_REFERENCES: usize = 1 << 30;

/// The problem of a trace with more than [`MAX_PAGES`].
pub(super) fn too_many_pages() -> String {
    format!("more than {MAX_PAGES} pages are touched, which no captured program does")
}

/// Whether a reference says nothing after `last`: it is to the same page, and not the first of them to write.
const fn says_nothing(next: u32, last: u32) -> bool {
    next == last || next | 1 == last
}

/// Leaves out pages that are never written, and numbers the chunks of the others anew in the order of their first reference.
/// Returns the number of chunks that are left.
fn leave_out_unwritten(references: &mut Vec<u32>, chunks: u32, chunk_pages: u32) -> u32 {
    let mut written = vec![0u64; (chunks as usize * chunk_pages as usize).div_ceil(64)];
    for value in references.iter().filter(|value| **value & 1 != 0) {
        written[(value >> 7) as usize] |= 1 << (value >> 1 & 63);
    }
    references.retain(|value| written[(value >> 7) as usize] >> (value >> 1 & 63) & 1 != 0);
    references.dedup_by(|next, last| says_nothing(*next, *last));
    let mut numbers = vec![u32::MAX; chunks as usize];
    let mut left = 0;
    for value in references.iter_mut() {
        let (page, write) = (*value >> 1, *value & 1);
        let number = &mut numbers[(page / chunk_pages) as usize];
        if *number == u32::MAX {
            *number = left;
            left += 1;
        }
        *value = (*number * chunk_pages + page % chunk_pages) << 1 | write;
    }
    left
}

impl References {
    /// Reads a whole trace. It is an error if the trace is empty, damaged, has larger pages than `options` ask for,
    /// touches more than [`MAX_PAGES`], or has no written page and `options` ask for no other.
    pub fn load(path: &Path, options: &LoadOptions) -> Result<Self, TraceError> {
        let mut reader =
            VmReader::open(path, VmHeader { page_shift: options.page_shift.min(11), ..VmHeader::DEFAULT })?;
        let header = reader.header();
        let name = path.display().to_string();
        let bad =
            |line, problem: String| TraceError::BadLine { path: name.clone(), line, problem, text: String::new() };
        let Some(shift) = options.page_shift.checked_sub(header.page_shift) else {
            let (pages, wanted) = (1u64 << header.page_shift, 1u64 << options.page_shift);
            let problem = format!("the trace has pages of {pages} bytes, larger than the {wanted} that are asked for");
            return Err(bad(0, problem));
        };
        let chunk = match options.map {
            PageMap::Chunks if options.chunk_pages == 0 => return Err(bad(0, "chunks of 0 pages".into())),
            PageMap::Chunks if u64::from(options.chunk_pages) > MAX_PAGES => {
                return Err(bad(0, format!("chunks of {} pages; the max is {MAX_PAGES}", options.chunk_pages)));
            }
            PageMap::Chunks => u64::from(options.chunk_pages),
            PageMap::Dense => 1,
        };
        let out_of_memory =
            |line, references: usize| bad(line, format!("not enough memory after {references} references"));
        let mut numbers: FastMap<u64, u32> = FastMap::default();
        let mut references = Vec::new();
        let (mut last_chunk, mut number) = (u64::MAX, 0);
        let mut last = u32::MAX;
        for (line, reference) in (1..).zip(reader.by_ref()) {
            let reference = reference?;
            let page = reference.page >> shift;
            if page / chunk != last_chunk {
                last_chunk = page / chunk;
                let next = numbers.len() as u32;
                numbers.try_reserve(1).map_err(|_| out_of_memory(line, references.len()))?;
                number = *numbers.entry(last_chunk).or_insert(next);
            }
            let lpn = u64::from(number) * chunk + page % chunk;
            if lpn >= MAX_PAGES {
                return Err(bad(line, too_many_pages()));
            }
            let value = (lpn as u32) << 1 | u32::from(reference.write);
            // With pages larger than those of the trace, consecutive records can fall on the same page.
            if !says_nothing(value, last) {
                if references.len() == MAX_REFERENCES {
                    return Err(bad(line, format!("more than {MAX_REFERENCES} references do not fit into memory")));
                }
                if references.len() == references.capacity() && references.try_reserve(1).is_err() {
                    return Err(out_of_memory(line, references.len()));
                }
                references.push(value);
                last = value;
            }
        }
        if references.is_empty() {
            return Err(TraceError::Empty { path: name, lines: 0 });
        }
        let mut chunks = numbers.len() as u32;
        if options.only_written {
            chunks = leave_out_unwritten(&mut references, chunks, chunk as u32);
            if references.is_empty() {
                return Err(bad(
                    0,
                    "no page is ever written, so with only those that are written nothing is left".into(),
                ));
            }
        }
        let pages = chunks * chunk as u32;
        let mut referenced = vec![0; pages.div_ceil(64) as usize];
        for value in &references {
            referenced[(value >> 7) as usize] |= 1 << (value >> 1 & 63);
        }
        let file_hash = reader.file_hash()?.unwrap_or_default();
        Ok(Self { references, pages, referenced, header, file_hash })
    }

    /// The references in slices of up to `size`. Each is the page's number shifted left by one, and in bit 0 whether
    /// the page is written.
    pub fn chunks(&self, size: usize) -> impl Iterator<Item = &[u32]> {
        self.references.chunks(size)
    }

    /// The number of references.
    pub fn len(&self) -> usize {
        self.references.len()
    }

    /// Whether there are no references; a loaded trace has at least one.
    pub fn is_empty(&self) -> bool {
        self.references.is_empty()
    }

    /// The number of pages that the numbering spans, those of partly touched chunks included.
    pub const fn pages(&self) -> u32 {
        self.pages
    }

    /// Whether a page of the numbering is referenced at all; a chunk may have pages that are not.
    pub fn is_referenced(&self, page: u32) -> bool {
        self.referenced.get(page as usize / 64).is_some_and(|word| word >> (page % 64) & 1 != 0)
    }

    /// By page of the numbering, how many pages below it are referenced: numbers without gaps, in the same order.
    pub fn ranks(&self) -> Vec<u32> {
        let mut rank = 0;
        let next = |page| {
            let below = rank;
            rank += u32::from(self.is_referenced(page));
            below
        };
        (0..self.pages).map(next).collect()
    }

    /// The number of different pages that are referenced.
    pub fn distinct_pages(&self) -> u32 {
        self.referenced.iter().map(|word| word.count_ones()).sum()
    }

    /// The hash of the trace's file, as [`VmReader::file_hash`] gives it.
    pub const fn file_hash(&self) -> u64 {
        self.file_hash
    }

    /// How the trace was made.
    pub const fn header(&self) -> VmHeader {
        self.header
    }
}
