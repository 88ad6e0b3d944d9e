//! The options of a replay of page references, as those of the command.

use crate::settings::size_bytes;
use crate::{LabError, PagingSetup, PagingStore, PagingTrace};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use margay_policy::SpecError;
use margay_policy::spec::Row;
use margay_trace::vm::{LoadOptions, PageMap, References};
use margay_vm::{CacheConfig, LruRegion, Replacement, Scheme, Window, replacements, scheme_rows, schemes};
use std::path::PathBuf;
use std::str::FromStr;

/// How pages are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PageNumbers {
    /// In chunks of one block, in the order of their first access
    Chunks,
    /// One by one, in the order of their first access
    Dense,
}

/// What is replayed, and on what.
#[derive(Clone, Debug, Args)]
pub struct PagingArgs {
    /// The trace: VMT1 (see `margay trace capture`), or the text of valgrind --tool=lackey --trace-mem=yes; - is the standard
    /// input
    pub trace: PathBuf,
    /// How the store is cleaned (repeat the option; all schemes by default)
    #[arg(long, short = 's', ignore_case = true, value_parser = named::<Scheme>(scheme_rows()))]
    pub scheme: Vec<Scheme>,
    /// Size of the page cache
    #[arg(long, default_value = "4M")]
    pub cache: String,
    /// Number of log blocks
    #[arg(long, default_value_t = 32)]
    pub log_blocks: u32,
    /// The store below the cache: fast, fast:sequential=no, fast:open=yes, bast, or page (the page-mapped log)
    #[arg(long, default_value = "fast")]
    pub store: PagingStore,
    /// Bytes in a page: 2048 or 4096
    #[arg(long, default_value_t = 2048)]
    pub page_bytes: u32,
    /// Number of pages in a block
    #[arg(long, default_value_t = 64, value_name = "PAGES")]
    pub pages_per_block: u32,
    /// Size of the LRU region: adaptive, adaptive:LOW/HIGH in per cent, none, or a share of the cache in per cent
    #[arg(long, default_value = "adaptive")]
    pub lru_region: LruRegion,
    /// Which page leaves a full cache
    #[arg(long, default_value = "lru", value_parser = named::<Replacement>(replacements()))]
    pub replacement: Replacement,
    /// Log blocks that least-cost selection looks at: all, a number, adaptive or adaptive:START
    #[arg(long, default_value = "all")]
    pub window: Window,
    /// How pages are numbered
    #[arg(long, value_enum, default_value = "chunks")]
    pub pages: PageNumbers,
    /// Leave out pages that the program never writes
    #[arg(long)]
    pub only_written: bool,
    /// Merge the sequential log block as if there were no cache
    #[arg(long)]
    pub plain_sequential: bool,
    /// Write dirty pages of the LRU region in merges even if flash has no copy of them
    #[arg(long)]
    pub evict_unduplicated: bool,
    /// Let the cost equations assume that no page is written again
    #[arg(long)]
    pub ignore_updates: bool,
    /// Count the handing over of pages from the cache to flash in merges, 50 us for each, as I/O time
    #[arg(long)]
    pub count_handover: bool,
    /// Start with empty flash; by default flash holds every page that the trace references
    #[arg(long)]
    pub empty: bool,
    /// Number of times that the trace is replayed
    #[arg(long, default_value_t = 1)]
    pub passes: u32,
    /// Seed of the adaptive window
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// A value that is one of the rows of a table, each with its summary in the help.
fn named<T: FromStr<Err = SpecError> + Clone + Send + Sync + 'static>(
    rows: impl Iterator<Item = &'static Row<T>>,
) -> impl TypedValueParser<Value = T> {
    values(rows.map(|row| (row, true)))
}

/// The same, of which the help shows those that are marked.
pub fn values<T: FromStr<Err = SpecError> + Clone + Send + Sync + 'static>(
    rows: impl Iterator<Item = (&'static Row<T>, bool)>,
) -> impl TypedValueParser<Value = T> {
    let values = rows.map(|(row, is_shown)| PossibleValue::new(row.name).help(row.summary).hide(!is_shown));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<T>())
}

fn wrong(option: &str, value: &str, expected: &str) -> LabError {
    LabError::Setting { key: option.into(), value: value.into(), problem: format!("expected {expected}") }
}

impl PagingArgs {
    /// The schemes to replay under: all, if none is named.
    pub fn schemes(&self) -> Vec<Scheme> {
        if self.scheme.is_empty() { schemes().collect() } else { self.scheme.clone() }
    }

    fn load_options(&self) -> Result<LoadOptions, LabError> {
        if !matches!(self.page_bytes, 2048 | 4096) {
            return Err(wrong("--page-bytes", &self.page_bytes.to_string(), "2048 or 4096"));
        }
        if !(2..=1024).contains(&self.pages_per_block) {
            return Err(wrong("--pages-per-block", &self.pages_per_block.to_string(), "2 to 1024"));
        }
        let map = match self.pages {
            PageNumbers::Chunks => PageMap::Chunks,
            PageNumbers::Dense => PageMap::Dense,
        };
        Ok(LoadOptions {
            page_shift: self.page_bytes.trailing_zeros() as u8,
            chunk_pages: self.pages_per_block,
            map,
            only_written: self.only_written,
        })
    }

    /// Reads the trace.
    ///
    /// # Errors
    /// An option is impossible, or the trace cannot be read.
    pub fn load(&self) -> Result<PagingTrace, LabError> {
        let references = References::load(&self.trace, &self.load_options()?)?;
        Ok(PagingTrace {
            name: self.trace.file_name().map_or_else(String::new, |name| name.to_string_lossy().into()),
            xxh3: format!("{:016x}", references.file_hash()),
            only_written: self.only_written,
            page_map: self.pages.to_possible_value().map_or_else(String::new, |value| value.get_name().into()),
            references,
        })
    }

    /// The run under a scheme.
    ///
    /// # Errors
    /// An option is impossible.
    pub fn setup(&self, scheme: Scheme) -> Result<PagingSetup, LabError> {
        let frames = size_bytes("--cache", &self.cache)? / u64::from(self.page_bytes);
        let frames = u32::try_from(frames).ok().filter(|frames| *frames >= 16);
        let frames = frames.ok_or_else(|| wrong("--cache", &self.cache, "room for at least 16 pages"))?;
        let mut cache = CacheConfig::new(frames, scheme);
        cache.replacement = self.replacement;
        cache.lru_region = self.lru_region;
        cache.window = self.window;
        cache.rules_sequential = !self.plain_sequential;
        cache.evicts_unduplicated = self.evict_unduplicated;
        cache.ignores_updates = self.ignore_updates;
        cache.costs.pages_per_block = f64::from(self.pages_per_block);
        cache.seed = self.seed;
        if !(2..=1 << 20).contains(&self.log_blocks) {
            return Err(wrong("--log-blocks", &self.log_blocks.to_string(), "2 to 1048576"));
        }
        Ok(PagingSetup {
            page_bytes: self.page_bytes,
            pages_per_block: self.pages_per_block,
            log_blocks: self.log_blocks,
            store: self.store,
            cache,
            preload: !self.empty,
            passes: self.passes.max(1),
            counts_handover: self.count_handover,
        })
    }
}
