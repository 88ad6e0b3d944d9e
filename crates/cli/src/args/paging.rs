//! `margay vm`.

use super::{OutputFormat, bytes};
use crate::failure::Failure;
use clap::{Args, Subcommand, ValueEnum};
use margay_lab::{PagingSetup, Store};
use margay_trace::vm::{LoadOptions, PageMap};
use margay_vm::{CacheConfig, Replacement, SCHEMES, Scheme, Sizing, Window};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum VmCommand {
    /// Replay page references through a page cache over flash, under one or more cleaning schemes
    Replay(VmReplayArgs),
    /// Run a program with its heap on flash: part of it is cached in RAM, the rest is paged to a flash image
    Run(VmRunArgs),
}

#[derive(Debug, Args)]
pub struct VmRunArgs {
    /// How much of the heap is kept in RAM
    #[arg(long, default_value = "16M", value_name = "SIZE")]
    pub ram: String,
    /// Maximum size of the heap; the flash image is a little larger
    #[arg(long, default_value = "1G", value_name = "SIZE")]
    pub memory: String,
    /// The flash image to page to; it is overwritten, and holds nothing of use afterwards
    #[arg(long, default_value = "swap.img", value_name = "FILE")]
    pub store: PathBuf,
    /// Number of log blocks
    #[arg(long, default_value_t = 32)]
    pub log_blocks: u32,
    /// Cleaning scheme: du-gc, da-gc, or lda-gc1 to lda-gc5
    #[arg(long, short = 's', default_value = "lda-gc5")]
    pub scheme: String,
    /// Write the statistics of the run to this file, as a JSON object
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Print no statistics when the program ends
    #[arg(long, short = 'q')]
    pub quiet: bool,
    /// The program and its arguments, after --
    #[arg(last = true, required = true)]
    pub program: Vec<std::ffi::OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pages {
    /// In chunks of one block, in the order of their first access
    Chunks,
    /// One by one, in the order of their first access
    Dense,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReplacementName {
    /// The least recently used page
    Lru,
    /// A clean page of the LRU region if there is one (CFLRU)
    CleanFirst,
}

#[derive(Debug, Args)]
pub struct VmReplayArgs {
    /// The trace: VMT1 (see `margay trace capture`), or the text of valgrind --tool=lackey --trace-mem=yes
    pub trace: PathBuf,
    /// A cleaning scheme: du-gc, da-gc, lda-gc1 to lda-gc5 or ba-gc; may be repeated [default: all of them]
    #[arg(long, short = 's')]
    pub scheme: Vec<String>,
    /// Size of the page cache
    #[arg(long, default_value = "4M", value_name = "SIZE")]
    pub cache: String,
    /// Number of log blocks
    #[arg(long, default_value_t = 32)]
    pub log_blocks: u32,
    /// The store below the cache: fast, fast:sequential=no, fast:open=yes, bast, or page (the page-mapped log)
    #[arg(long, default_value = "fast")]
    pub store: String,
    /// Page size in bytes: 2048 or 4096
    #[arg(long, default_value_t = 2048, value_name = "BYTES")]
    pub page_bytes: u32,
    /// Number of pages in a block
    #[arg(long, default_value_t = 64, value_name = "PAGES")]
    pub pages_per_block: u32,
    /// Size of the LRU region: adaptive, adaptive:LOW/HIGH in per cent, none, or a share of the cache in per cent
    #[arg(long, default_value = "adaptive")]
    pub lru_region: String,
    /// Which page is evicted from a full cache
    #[arg(long, value_enum, default_value = "lru")]
    pub replacement: ReplacementName,
    /// Number of log blocks among which the one of least cost is selected: all, a number, adaptive or adaptive:START
    #[arg(long, default_value = "all")]
    pub window: String,
    /// How the pages of the program are numbered
    #[arg(long, value_enum, default_value = "chunks")]
    pub pages: Pages,
    /// Leave out pages that the program never writes
    #[arg(long)]
    pub only_written: bool,
    /// Merge the sequential log block without looking at the cache
    #[arg(long)]
    pub plain_sequential: bool,
    /// Let a merge write dirty pages of the LRU region even if flash has no copy of them
    #[arg(long)]
    pub evict_unduplicated: bool,
    /// In the cost equations, take the probability that a page is written again as 0
    #[arg(long)]
    pub ignore_updates: bool,
    /// Start with empty flash, instead of with a copy of every page on it
    #[arg(long)]
    pub empty: bool,
    /// How many times the trace is replayed
    #[arg(long, default_value_t = 1)]
    pub passes: u32,
    /// Seed of the adaptive window
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Format of the result
    #[arg(long, short = 'f', value_enum, default_value_t)]
    pub format: OutputFormat,
    /// Write the result to this file instead of standard output
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Show no progress bar
    #[arg(long, short = 'q')]
    pub quiet: bool,
}

fn wrong(option: &str, value: &str, expected: &str) -> Failure {
    Failure::Usage(format!("{option} {value}: expected {expected}"))
}

fn percent(text: &str) -> Option<f64> {
    let value: f64 = text.trim_end_matches('%').parse().ok()?;
    (value > 0.0 && value < 100.0).then_some(value / 100.0)
}

pub fn sizing(text: &str) -> Result<Sizing, Failure> {
    let expected = "adaptive, adaptive:10/20, none, or a share in per cent between 0 and 100";
    let failed = || wrong("--lru-region", text, expected);
    Ok(match text.split_once(':') {
        Some(("adaptive", thresholds)) => {
            let (low, high) = thresholds.split_once('/').ok_or_else(failed)?;
            let (low, high) = (percent(low).ok_or_else(failed)?, percent(high).ok_or_else(failed)?);
            Sizing::Adaptive { low, high }
        }
        Some(_) => return Err(failed()),
        None => match text {
            "adaptive" => Sizing::Adaptive { low: 0.10, high: 0.20 },
            "none" => Sizing::None,
            share => Sizing::Fixed(percent(share).ok_or_else(failed)?),
        },
    })
}

pub fn window(text: &str) -> Result<Window, Failure> {
    let failed = || wrong("--window", text, "all, a number of log blocks from 1 on, adaptive or adaptive:START");
    let number = |text: &str| text.parse().ok().filter(|number| *number > 0).ok_or_else(failed);
    Ok(match text.split_once(':') {
        Some(("adaptive", start)) => Window::Adaptive { start: number(start)? },
        Some(_) => return Err(failed()),
        None => match text {
            "all" => Window::All,
            "adaptive" => Window::Adaptive { start: 1 },
            count => Window::Static(number(count)?),
        },
    })
}

impl VmReplayArgs {
    pub fn schemes(&self) -> Result<Vec<Scheme>, Failure> {
        if self.scheme.is_empty() {
            return Ok(SCHEMES.to_vec());
        }
        self.scheme.iter().map(|name| Ok(name.parse::<Scheme>()?)).collect()
    }

    pub fn load_options(&self) -> Result<LoadOptions, Failure> {
        if !matches!(self.page_bytes, 2048 | 4096) {
            return Err(wrong("--page-bytes", &self.page_bytes.to_string(), "2048 or 4096"));
        }
        if !(2..=1024).contains(&self.pages_per_block) {
            return Err(wrong("--pages-per-block", &self.pages_per_block.to_string(), "2 to 1024"));
        }
        let map = match self.pages {
            Pages::Chunks => PageMap::Chunks,
            Pages::Dense => PageMap::Dense,
        };
        Ok(LoadOptions {
            page_shift: self.page_bytes.trailing_zeros() as u8,
            chunk_pages: self.pages_per_block,
            map,
            only_written: self.only_written,
        })
    }

    pub fn setup(&self, scheme: Scheme) -> Result<PagingSetup, Failure> {
        let frames = bytes(&self.cache)? / u64::from(self.page_bytes);
        let frames = u32::try_from(frames).ok().filter(|frames| *frames >= 16);
        let frames = frames.ok_or_else(|| wrong("--cache", &self.cache, "room for at least 16 pages"))?;
        let mut cache = CacheConfig::new(frames, scheme);
        cache.replacement = match self.replacement {
            ReplacementName::Lru => Replacement::Lru,
            ReplacementName::CleanFirst => Replacement::CleanFirst,
        };
        cache.sizing = sizing(&self.lru_region)?;
        cache.window = window(&self.window)?;
        cache.rules_sequential = !self.plain_sequential;
        cache.evicts_unduplicated = self.evict_unduplicated;
        cache.ignores_updates = self.ignore_updates;
        cache.costs.pages_per_block = f64::from(self.pages_per_block);
        cache.seed = self.seed;
        if !(2..=1 << 20).contains(&self.log_blocks) {
            return Err(wrong("--log-blocks", &self.log_blocks.to_string(), "2 to 1048576"));
        }
        let store = match self.store.as_str() {
            "page" => Store::PageLevel,
            mapping => Store::Hybrid(mapping.parse()?),
        };
        Ok(PagingSetup {
            page_bytes: self.page_bytes,
            pages_per_block: self.pages_per_block,
            log_blocks: self.log_blocks,
            store,
            cache,
            preload: !self.empty,
            passes: self.passes.max(1),
        })
    }
}
