//! margay's disk and stores for microcontrollers on the same NOR flash in memory: 1 MiB, 4 KiB erased at a time. All keep 512
//! records of 512 bytes, which are overwritten at random, each durable once it is written.

mod nor;
mod peers;

use nor::{Counts, Nor};
use peers::{MAKERS, Maker, Peer};

pub const RECORDS: u32 = 512;
pub const RECORD_BYTES: usize = 512;
const OVERWRITES: u32 = 5_000;
const CUTS: u32 = 200;
/// All records are compared after so many power cuts, a few after the others.
const COMPARED_AFTER: u32 = 20;

/// Random numbers (Marsaglia 2003, "Xorshift RNGs").
struct Random(u32);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0 % limit
    }
}

fn content(record: u32, version: u32) -> [u8; RECORD_BYTES] {
    let mut random = Random(record * 7919 + version * 104_729 + 1);
    std::array::from_fn(|_| random.below(256) as u8)
}

/// What a call did to the flash.
fn since(before: Counts, after: Counts) -> Counts {
    Counts {
        programmed_bytes: after.programmed_bytes - before.programmed_bytes,
        programs: after.programs - before.programs,
        erases: after.erases - before.erases,
        reads: after.reads - before.reads,
        read_bytes: after.read_bytes - before.read_bytes,
    }
}

fn fill(peer: &mut dyn Peer, versions: &mut [u32]) -> Result<(), String> {
    for (record, version) in (0..).zip(versions) {
        *version = 1;
        peer.write(record, &content(record, 1))?;
    }
    Ok(())
}

fn compare(peer: &mut dyn Peer, versions: &[u32]) -> Result<(), String> {
    (0..RECORDS).try_for_each(|record| compare_one(peer, record, versions))
}

fn compare_one(peer: &mut dyn Peer, record: u32, versions: &[u32]) -> Result<(), String> {
    let is_it = peer.read(record)? == Some(content(record, versions[record as usize]));
    if is_it { Ok(()) } else { Err(format!("record {record} is not as it was written")) }
}

/// Power cuts after which all records were there, until one was not, and what was wrong then.
fn survived(maker: &Maker, flash: Nor) -> Result<(u32, String), String> {
    let mut peer = (maker.make)(flash.clone(), true)?;
    let (mut versions, mut random) = (vec![0; RECORDS as usize], Random(99));
    fill(&mut *peer, &mut versions)?;
    for cut in 0..CUTS {
        flash.cut_after(1 + random.below(60));
        let torn = loop {
            let record = random.below(RECORDS);
            let version = versions[record as usize] + 1;
            match peer.write(record, &content(record, version)) {
                Ok(()) => versions[record as usize] = version,
                Err(_) if flash.is_off() => break record,
                Err(error) => return Ok((cut, error)),
            }
        };
        drop(peer);
        flash.power_on();
        peer = match (maker.make)(flash.clone(), false) {
            Ok(peer) => peer,
            Err(error) => return Ok((cut, error)),
        };
        let version = versions[torn as usize];
        if peer.read(torn) == Ok(Some(content(torn, version + 1))) {
            versions[torn as usize] += 1;
        }
        let compared = match cut % COMPARED_AFTER {
            0 => compare(&mut *peer, &versions),
            _ => (0..8).try_for_each(|_| compare_one(&mut *peer, random.below(RECORDS), &versions)),
        };
        if let Err(error) = compared.and_then(|()| compare_one(&mut *peer, torn, &versions)) {
            return Ok((cut, error));
        }
    }
    Ok((CUTS, String::new()))
}

fn row(maker: &Maker) -> Result<String, String> {
    let flash = Nor::new();
    let mut peer = (maker.make)(flash.clone(), true)?;
    let (mut versions, mut random) = (vec![0; RECORDS as usize], Random(5));
    fill(&mut *peer, &mut versions)?;
    let start = flash.counts();
    let (mut worst_bytes, mut worst_erases) = (0, 0);
    for _ in 0..OVERWRITES {
        let record = random.below(RECORDS);
        versions[record as usize] += 1;
        let before = flash.counts();
        peer.write(record, &content(record, versions[record as usize]))?;
        let call = since(before, flash.counts());
        worst_bytes = worst_bytes.max(call.programmed_bytes);
        worst_erases = worst_erases.max(call.erases);
    }
    let all = since(start, flash.counts());
    let before = flash.counts();
    compare(&mut *peer, &versions)?;
    let reads = since(before, flash.counts());
    let memory = peer.memory_bytes();
    drop(peer);
    let before = flash.counts();
    let mut peer = (maker.make)(flash.clone(), false)?;
    // What a store looks for only when it is asked belongs to the mount, too.
    peer.read(0)?;
    let mount = since(before, flash.counts());
    compare(&mut *peer, &versions)?;
    let (torn, whole) = (Nor::new(), Nor::new());
    whole.keep_whole();
    let survived = [survived(maker, torn)?, survived(maker, whole)?].map(|(count, why)| match why.as_str() {
        "" => count.to_string(),
        why => format!("{count}, then: {why}"),
    });
    Ok(format!(
        "| {} | {:.1} | {:.2} | {:.3} | {:.1} | {} | {:.1} | {} | {:.0} | {} | {} |",
        maker.name,
        memory as f64 / 1024.0,
        all.programmed_bytes as f64 / f64::from(OVERWRITES) / RECORD_BYTES as f64,
        all.erases as f64 / f64::from(OVERWRITES),
        worst_bytes as f64 / 1024.0,
        worst_erases,
        reads.reads as f64 / f64::from(RECORDS),
        mount.reads,
        mount.read_bytes as f64 / 1024.0,
        survived[0],
        survived[1],
    ))
}

fn main() {
    println!(
        "| store | RAM, KiB | WA | erases of 4 KiB a write | worst write, KiB programmed | worst write, erases | reads of a read | reads of a mount | KiB of them | power cuts survived of {CUTS} | of cuts between operations |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for maker in &MAKERS {
        match row(maker) {
            Ok(row) => println!("{row}"),
            Err(error) => println!("| {} | {error} |", maker.name),
        }
    }
}
