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

/// Fails if anything was allocated since [`heap::allocations`] said `before`.
pub fn check_nothing_allocated(before: usize, what: &str) -> Result<(), alloc::string::String> {
    match heap::allocations() - before {
        0 => Ok(()),
        count => Err(alloc::format!("{what} allocated {count} times")),
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

    /// What happened since the last phase ended is no part of one.
    pub fn resume(&self) {
        heap::max_bytes();
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
