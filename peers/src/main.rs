//! margay's file system and littlefs on the same 24 MiB device in memory: segments of 32 pages of 4 KiB, pages
//! programmed whole and in order.

mod little;
mod ours;

use margay_workload::{FileBenchmark, FileOp};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

pub const SEGMENTS: u32 = 192;
pub const PAGES: u32 = 32;
pub const PAGE_BYTES: usize = 4096;

/// A file system under test. Files and directories are known by number; parents are left out.
pub trait Peer {
    fn name(&self) -> String;
    fn create(&mut self, file: u32) -> Result<(), String>;
    /// Writes and closes; with `sync` it is durable after that.
    fn write(&mut self, file: u32, offset: u64, data: &[u8], sync: bool) -> Result<(), String>;
    fn read(&mut self, file: u32, data: &mut [u8]) -> Result<usize, String>;
    fn remove(&mut self, file: u32) -> Result<(), String>;
    /// Everything is durable.
    fn sync(&mut self) -> Result<(), String>;
    fn counts(&self) -> Counts;
    /// Mounts again as after a power loss; pages read by that.
    fn mount_reads(&mut self) -> Result<f64, String>;
    /// Bytes of memory beside code: caches, maps, objects.
    fn memory_bytes(&self) -> u64;
}

#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub programmed_bytes: u64,
    pub read_bytes: u64,
    pub erases: Vec<u32>,
}

struct Tally {
    written: u64,
    operations: u64,
}

type Work = fn(&mut dyn Peer) -> Result<Tally, String>;

fn below(random: &mut Xoshiro256PlusPlus, limit: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(limit)) >> 64) as u64
}

fn small_files(peer: &mut dyn Peer) -> Result<Tally, String> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut tally = Tally { written: 0, operations: 0 };
    for file in 0..500 {
        let len = 500 + below(&mut random, 9_500) as usize;
        peer.create(file)?;
        peer.write(file, 0, &vec![file as u8; len], false)?;
        tally.written += len as u64;
        tally.operations += 1;
    }
    peer.sync()?;
    Ok(tally)
}

fn appends(peer: &mut dyn Peer) -> Result<Tally, String> {
    for file in 0..6 {
        peer.create(file)?;
    }
    let mut tally = Tally { written: 0, operations: 0 };
    for round in 0..2000u64 {
        let file = (round * 7 % 6) as u32;
        peer.write(file, round / 6 * 119, &[round as u8; 119], true)?;
        tally.written += 119;
        tally.operations += 1;
    }
    Ok(tally)
}

/// 4 KiB overwrites in a file that takes so much of the device.
fn overwrites(peer: &mut dyn Peer, percent: u64, count: u64, sync: bool) -> Result<Tally, String> {
    let pages = u64::from(SEGMENTS * PAGES) * percent / 100;
    peer.create(0)?;
    let data = vec![0x5A; 32 * PAGE_BYTES];
    for at in (0..pages).step_by(32) {
        peer.write(0, at * PAGE_BYTES as u64, &data[..(pages - at).min(32) as usize * PAGE_BYTES], false)?;
    }
    peer.sync()?;
    FILLED.with(|filled| filled.replace(Some(peer.counts())));
    let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
    for number in 0..count {
        let page = below(&mut random, pages);
        peer.write(0, page * PAGE_BYTES as u64, &vec![number as u8; PAGE_BYTES], sync)?;
    }
    peer.sync()?;
    Ok(Tally { written: count * PAGE_BYTES as u64, operations: count })
}

thread_local! {
    /// What was counted when the work proper began.
    static FILLED: std::cell::RefCell<Option<Counts>> = const { std::cell::RefCell::new(None) };
}

fn postmark(peer: &mut dyn Peer) -> Result<Tally, String> {
    let mut sizes = Vec::new();
    let mut tally = Tally { written: 0, operations: 0 };
    for step in FileBenchmark::PostmarkStock.steps(1) {
        match step {
            FileOp::Create { file, .. } => {
                peer.create(file)?;
                sizes.resize((file as usize + 1).max(sizes.len()), 0u64);
            }
            FileOp::Append { file, bytes } => {
                peer.write(file, sizes[file as usize], &vec![file as u8; bytes as usize], false)?;
                sizes[file as usize] += u64::from(bytes);
                tally.written += u64::from(bytes);
            }
            FileOp::Read { file } => {
                let mut data = vec![0; sizes[file as usize] as usize];
                peer.read(file, &mut data)?;
            }
            FileOp::Delete { file } => peer.remove(file)?,
            _ => continue,
        }
        tally.operations += 1;
    }
    peer.sync()?;
    Ok(tally)
}

/// How many files of 4 KiB fit, as a share of the raw capacity.
fn fill(peer: &mut dyn Peer) -> u32 {
    for file in 0.. {
        if peer.create(file).is_err() || peer.write(file, 0, &[7; PAGE_BYTES], false).is_err() {
            return file;
        }
    }
    unreachable!("the device is finite")
}

/// Enough for a steady state; littlefs takes the whole device for a few dozen.
fn many(peer: &mut dyn Peer) -> u64 {
    if peer.name().starts_with("littlefs") { 20 } else { 49_152 }
}

fn main() {
    if let [which, count] = &std::env::args().skip(1).collect::<Vec<_>>()[..] {
        let mut peer = if which == "margay" { ours::make() } else { little::make_128k() };
        overwrites(&mut *peer, 40, count.parse().expect("a number of overwrites"), true).expect("it runs");
        return;
    }
    let works: [(&str, Work); 7] = [
        ("500 new files of 0.5 to 10 KB", small_files),
        ("2,000 appends of 119 bytes to 6 files, each synced", appends),
        ("4 KiB overwrites in a file of 75 %", |peer| {
            let count = many(peer);
            overwrites(peer, 75, count, false)
        }),
        ("the same, each synced", |peer| {
            let count = many(peer);
            overwrites(peer, 75, count, true)
        }),
        ("4 KiB overwrites in a file of 40 %", |peer| {
            let count = many(peer);
            overwrites(peer, 40, count, false)
        }),
        ("the same, each synced", |peer| {
            let count = many(peer);
            overwrites(peer, 40, count, true)
        }),
        ("Postmark (500 files, 500 transactions)", postmark),
    ];
    println!("24 MiB, segments of 32 pages of 4 KiB; programmed bytes without spare areas");
    println!(
        "{:<52} {:<22} {:>9} {:>8} {:>9} {:>10} {:>11} {:>9}",
        "work", "file system", "WA", "erases", "spread", "reads/op", "mount reads", "memory"
    );
    for (name, work) in works {
        for make in [ours::make as fn() -> Box<dyn Peer>, ours::make_greedy, little::make_128k, little::make_4k] {
            let mut peer = make();
            FILLED.with(|filled| filled.replace(None));
            let started = peer.counts();
            let label = peer.name();
            match work(&mut *peer) {
                Err(error) => println!("{name:<52} {label:<22} {error}"),
                Ok(tally) => {
                    let before = FILLED.with(|filled| filled.take()).unwrap_or(started);
                    let after = peer.counts();
                    let (least, most) = (after.erases.iter().min().unwrap(), after.erases.iter().max().unwrap());
                    let erases = |counts: &Counts| counts.erases.iter().map(|count| u64::from(*count)).sum::<u64>();
                    let memory = peer.memory_bytes();
                    println!(
                        "{name:<52} {label:<22} {:>9.2} {:>8} {:>4}..{:<4} {:>9.2} {:>11.0} {:>7} K",
                        (after.programmed_bytes - before.programmed_bytes) as f64 / tally.written as f64,
                        erases(&after) - erases(&before),
                        least,
                        most,
                        (after.read_bytes - before.read_bytes) as f64 / PAGE_BYTES as f64 / tally.operations as f64,
                        peer.mount_reads().unwrap_or(f64::NAN),
                        memory / 1024,
                    );
                }
            }
        }
    }
    for make in [ours::make as fn() -> Box<dyn Peer>, little::make_128k, little::make_4k] {
        let mut peer = make();
        let files = fill(&mut *peer);
        println!(
            "files of 4 KiB that fit: {:<22} {files} = {:.1} % of the raw capacity",
            peer.name(),
            100.0 * f64::from(files) / f64::from(SEGMENTS * PAGES)
        );
    }
}
