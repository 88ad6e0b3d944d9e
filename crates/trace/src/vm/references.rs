use super::{VmHeader, VmReader};
use crate::TraceError;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::path::Path;

/// How pages of the address space are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PageMap {
    /// In chunks of one block each, numbered as they are first touched.
    Chunks,
    /// One by one as they are first touched.
    Dense,
}

/// How references are loaded.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// Binary logarithm of the bytes in a page; not below that of the trace.
    pub page_shift: u8,
    /// Pages in a chunk.
    pub chunk_pages: u32,
    /// How pages are numbered.
    pub map: PageMap,
    /// Leave out pages that the program never writes: they come from files.
    pub only_written: bool,
}

/// The references of a program, ready for replay: 4 bytes each.
#[derive(Clone, Debug)]
pub struct References {
    /// Page number and, in bit 0, whether it is written.
    references: Vec<u32>,
    /// Pages that the numbering spans.
    pages: u32,
    distinct: u32,
    header: VmHeader,
}

/// Multiplies and folds: page numbers are no keys of an adversary.
#[derive(Default)]
struct Folded(u64);

impl Hasher for Folded {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }
    fn write_u64(&mut self, value: u64) {
        let product = u128::from(self.0 ^ value) * 0x9E37_79B9_7F4A_7C15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

type Numbers = HashMap<u64, u32, BuildHasherDefault<Folded>>;

impl References {
    /// Reads a trace.
    pub fn load(path: &Path, options: &LoadOptions) -> Result<Self, TraceError> {
        let reader = VmReader::open(path, VmHeader { page_shift: options.page_shift.min(11), ..VmHeader::DEFAULT })?;
        let header = reader.header();
        let name = path.display().to_string();
        let bad =
            |line, problem: String| TraceError::BadLine { path: name.clone(), line, problem, text: String::new() };
        let Some(shift) = options.page_shift.checked_sub(header.page_shift) else {
            let problem = format!("its pages of {} bytes are larger than those asked for", 1u64 << header.page_shift);
            return Err(bad(0, problem));
        };
        let chunk = match options.map {
            PageMap::Chunks => u64::from(options.chunk_pages),
            PageMap::Dense => 1,
        };
        let mut numbers = Numbers::default();
        let mut references = Vec::new();
        let (mut last_chunk, mut number) = (u64::MAX, 0);
        let mut last = u32::MAX;
        for (line, reference) in (1..).zip(reader) {
            let reference = reference?;
            let page = reference.page >> shift;
            if page / chunk != last_chunk {
                last_chunk = page / chunk;
                let next = numbers.len() as u32;
                number = *numbers.entry(last_chunk).or_insert(next);
            }
            let lpn = u64::from(number) * chunk + page % chunk;
            if lpn >= 1 << 31 {
                return Err(bad(line, "more than 2^31 pages are touched".into()));
            }
            let value = (lpn as u32) << 1 | u32::from(reference.write);
            // With larger pages records of halves of a page come to repeat it.
            if value != last && value | 1 != last {
                references.push(value);
                last = value;
            }
        }
        if references.is_empty() {
            return Err(TraceError::Empty { path: name, lines: 0 });
        }
        let pages = (numbers.len() as u64 * chunk) as u32;
        Ok(Self::numbered(references, pages, options.only_written, header))
    }

    fn numbered(mut references: Vec<u32>, pages: u32, only_written: bool, header: VmHeader) -> Self {
        let mut seen = vec![0u8; pages as usize];
        for value in &references {
            seen[(value >> 1) as usize] |= 1 << (value & 1);
        }
        if only_written {
            references.retain(|value| seen[(value >> 1) as usize] & 2 != 0);
        }
        let counts = |seen: u8| if only_written { seen & 2 != 0 } else { seen != 0 };
        let distinct = seen.iter().filter(|seen| counts(**seen)).count() as u32;
        Self { references, pages, distinct, header }
    }

    /// The references in parts of so many: the page's number shifted left by one and, in bit 0, whether it is written.
    pub fn chunks(&self, size: usize) -> impl Iterator<Item = &[u32]> {
        self.references.chunks(size)
    }

    /// References.
    pub fn len(&self) -> usize {
        self.references.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.references.is_empty()
    }

    /// Pages that the numbering spans.
    pub const fn pages(&self) -> u32 {
        self.pages
    }

    /// Different pages referenced.
    pub const fn distinct_pages(&self) -> u32 {
        self.distinct
    }

    /// What the trace was made with.
    pub const fn header(&self) -> VmHeader {
        self.header
    }
}
