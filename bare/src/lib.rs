//! margay without std: what the programs in `bin` share. A chip in memory, an allocator that counts, and what is
//! asked of the machine. Runs on a Cortex-M4 and, to show that nothing needs std, on the host.
#![no_std]
extern crate alloc;

pub mod chip;
pub mod heap;
pub mod platform;

// Nothing here uses these two; a std in them would be a second one to `platform`, and refused.
use {margay_hybrid as _, margay_vm as _};

use core::fmt::Display;
use margay_flash::Geometry;
use margay_format::{ClientKind, Layout, LayoutError, Superblock};
use margay_log::{Config, Policies};
use margay_policy::placement::{Sequential, WithPages};
use margay_policy::selection::Greedy;
use margay_policy::{LevelingSpec, Sizing};

/// Policies named one by one, so that the others are not linked: greedy selection, everything to one segment.
pub fn policies(superblock: &Superblock, config: &Config) -> Policies {
    let sizing = Sizing {
        segments: superblock.geometry.segments(),
        data_pages: config.data_pages(&superblock.geometry),
        exported_pages: superblock.exported_pages,
        seed: 1,
    };
    let selection = alloc::boxed::Box::new(Greedy::new(sizing));
    Policies { selection, placement: WithPages::boxed(Sequential) }
}

/// How the log uses a device whose pages have `owners` different owners.
pub fn config(geometry: &Geometry, owners: u64) -> Result<Config, LayoutError> {
    let layout = Layout::new(geometry, owners)?;
    Ok(Config {
        header_pages: layout.header_pages,
        summary_pages: layout.summary_pages,
        reserved_segments: layout.reserved_segments,
        max_pages_per_write: 8,
        low_water: 2,
        high_water: 2,
        read_only_stream: false,
        leveling: LevelingSpec::default(),
    })
}

/// What is on flash of the choices above.
pub fn superblock(geometry: &Geometry, client: ClientKind, exported_pages: u32) -> Superblock {
    Superblock {
        geometry: *geometry,
        client,
        exported_pages,
        uuid: *b"margay-bare-demo",
        created_s: 0,
        compatible: 0,
        read_only_compatible: 0,
        incompatible: 0,
        low_water: 2,
        high_water: 2,
        max_pages_per_write: 8,
        selection: "greedy".into(),
        placement: "m1".into(),
        leveling: "none".into(),
        read_only_ranges: alloc::vec::Vec::new(),
    }
}

/// Random numbers (Marsaglia 2003, "Xorshift RNGs").
#[derive(Clone, Copy, Debug)]
pub struct Random(u32);

impl Random {
    /// A sequence of its own for each seed.
    pub const fn new(seed: u32) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9) | 1)
    }

    /// The next number below `limit`.
    pub fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0 % limit
    }

    /// Fills `bytes`.
    pub fn fill(mut self, bytes: &mut [u8]) {
        bytes.iter_mut().for_each(|byte| *byte = self.below(256) as u8);
    }
}

/// An error as text: the programs only print it.
pub fn text(error: impl Display) -> alloc::string::String {
    alloc::format!("{error}")
}

/// The most bytes of heap that were in use in each phase: a row of the table in README.md.
#[derive(Debug, Default)]
pub struct Row([usize; 4]);

impl Row {
    /// What was allocated until now is not counted.
    pub fn start() -> Self {
        heap::start_counting();
        Self::default()
    }

    /// The phase of this number ends, and whatever comes next begins.
    pub fn end(&mut self, phase: usize) {
        self.0[phase] = heap::max_bytes();
    }

    fn kib(&self, phase: usize) -> usize {
        self.0[phase].div_ceil(1024)
    }

    /// Prints the row, in KiB.
    pub fn print(&self, program: &str, chip_mib: u32) {
        println!(
            "| {program} | {chip_mib} MiB | {} | {} | {} | {} |",
            self.kib(0),
            self.kib(1),
            self.kib(2),
            self.kib(3)
        );
    }
}
