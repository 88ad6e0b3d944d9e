#![no_main]
//! Whole images of hybrid-mapped disks, on every kind of flash and under every mapping: opening, reading and writing
//! must end in a result.

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/mutated/mod.rs"]
mod mutated;

fuzz_target!(|bytes: &[u8]| {
    let Some((which, changes)) = bytes.split_first() else { return };
    let bases = mutated::bases();
    let mut flash = bases[usize::from(*which) % bases.len()].clone();
    mutated::mutate(&mut flash, changes);
    mutated::exercise(&mut flash);
});
