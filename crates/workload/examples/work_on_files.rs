//! Writes files in a directory, the same for the same seed, and says later whether they are as they were synced. With it
//! `scripts/flash-peers.sh` compares file systems on raw flash.
//!
//! ```text
//! work_on_files fill|work|tail|check FOLDER SEED DATA_BYTES WRITE_BYTES SYNC_EVERY random|half
//! ```
//!
//! * `fill` creates files of 4 to 128 KiB in eight directories until they hold `DATA_BYTES`.
//! * `work` writes `WRITE_BYTES` more: three operations of four overwrite one to eight pages of 4 KiB of a file, by four of
//!   five one of the first fifth of the files; the fourth removes a file and creates another one of its size. After every
//!   `SYNC_EVERY` operations all files and directories that were touched are synced (fsync).
//! * `tail` does 40 operations more, of which nothing is synced.
//! * `check` compares all files that `tail` did not touch. It exits with 1 if one of them differs.
//!
//! Each step is started by itself; it repeats what came before it in memory. `random` is content that cannot be compressed;
//! of `half` the second half of each page is zeros.

// A program says what it did.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const PAGE_BYTES: usize = 4096;
const DIRECTORIES: usize = 8;
const TAIL_OPERATIONS: u32 = 40;

/// A file as it should be: its number, and how often each of its pages was written.
struct Kept {
    number: u32,
    versions: Vec<u32>,
    doubtful: bool,
}

struct Work {
    folder: PathBuf,
    random: Xoshiro256PlusPlus,
    files: Vec<Kept>,
    created: u32,
    written: u64,
    operations: u64,
    syncs: u64,
    sync_every: u64,
    half: bool,
    /// Whether files are written, or only remembered.
    real: bool,
    to_sync: BTreeSet<u32>,
}

impl Work {
    fn path(&self, number: u32) -> PathBuf {
        self.folder.join(format!("d{}/f{number}", number as usize % DIRECTORIES))
    }

    fn content(&self, number: u32, page: usize, version: u32) -> Vec<u8> {
        let seed = u64::from(number) << 40 ^ (page as u64) << 24 ^ u64::from(version);
        let mut bytes = vec![0; PAGE_BYTES];
        let random = if self.half { PAGE_BYTES / 2 } else { PAGE_BYTES };
        Xoshiro256PlusPlus::seed_from_u64(seed).fill_bytes(&mut bytes[..random]);
        bytes
    }

    fn create(&mut self, pages: usize) -> Result<Kept, Error> {
        let kept = Kept { number: self.created, versions: vec![0; pages], doubtful: false };
        self.created += 1;
        self.put(&kept, 0, pages)?;
        Ok(kept)
    }

    fn put(&mut self, kept: &Kept, first: usize, pages: usize) -> Result<(), Error> {
        self.written += (pages * PAGE_BYTES) as u64;
        self.to_sync.insert(kept.number);
        if !self.real {
            return Ok(());
        }
        let content = (first..first + pages).map(|page| self.content(kept.number, page, kept.versions[page]));
        let content: Vec<u8> = content.flatten().collect();
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(self.path(kept.number))?;
        file.write_all_at(&content, (first * PAGE_BYTES) as u64)
    }

    fn fill(&mut self, bytes: u64) -> Result<(), Error> {
        if self.real {
            (0..DIRECTORIES).try_for_each(|number| fs::create_dir(self.folder.join(format!("d{number}"))))?;
        }
        while self.written < bytes {
            let pages = 1 << self.random.random_range(0..6);
            let kept = self.create(pages)?;
            self.files.push(kept);
            self.operations += 1;
            self.operation_done()?;
        }
        self.sync()
    }

    fn operation(&mut self) -> Result<(), Error> {
        let hot = self.random.random_range(0..5) != 0;
        let overwrites = self.random.random_range(0..4) != 0;
        let among = if hot && overwrites { self.files.len().div_ceil(5) } else { self.files.len() };
        let place = self.random.random_range(0..among);
        let pages = self.files[place].versions.len();
        if overwrites {
            let first = self.random.random_range(0..pages);
            let count = self.random.random_range(1..=8).min(pages - first);
            let versions = &mut self.files[place].versions[first..first + count];
            versions.iter_mut().for_each(|version| *version += 1);
            let kept = self.files.swap_remove(place);
            let put = self.put(&kept, first, count);
            self.put_back(place, kept);
            put
        } else {
            let number = self.files[place].number;
            self.to_sync.remove(&number);
            if self.real {
                fs::remove_file(self.path(number))?;
            }
            self.files[place] = self.create(pages)?;
            Ok(())
        }?;
        self.operations += 1;
        Ok(())
    }

    fn put_back(&mut self, place: usize, kept: Kept) {
        self.files.push(kept);
        let last = self.files.len() - 1;
        self.files.swap(place, last);
    }

    fn operation_done(&mut self) -> Result<(), Error> {
        if self.operations.is_multiple_of(self.sync_every) { self.sync() } else { Ok(()) }
    }

    fn sync(&mut self) -> Result<(), Error> {
        let numbers = std::mem::take(&mut self.to_sync);
        self.syncs += 1;
        if !self.real {
            return Ok(());
        }
        let directories: BTreeSet<_> = numbers.iter().map(|number| *number as usize % DIRECTORIES).collect();
        for number in numbers {
            File::open(self.path(number))?.sync_all()?;
        }
        directories.iter().try_for_each(|number| File::open(self.folder.join(format!("d{number}")))?.sync_all())
    }

    fn work(&mut self, bytes: u64) -> Result<(), Error> {
        let end = self.written + bytes;
        while self.written < end {
            self.operation()?;
            self.operation_done()?;
        }
        self.sync()
    }

    fn tail(&mut self) -> Result<(), Error> {
        for _ in 0..TAIL_OPERATIONS {
            self.operation()?;
        }
        // What was touched is in any state after a power cut, and so is a name that came in place of another.
        for place in 0..self.files.len() {
            self.files[place].doubtful = self.to_sync.contains(&self.files[place].number);
        }
        Ok(())
    }

    /// The files that are not as they were synced, with the reason.
    fn differing(&self) -> Vec<String> {
        let sure = self.files.iter().filter(|kept| !kept.doubtful);
        let compare = |kept: &Kept| {
            let pages = kept.versions.iter().enumerate();
            let due: Vec<u8> = pages.flat_map(|(page, version)| self.content(kept.number, page, *version)).collect();
            let path = self.path(kept.number);
            match fs::read(&path) {
                Ok(found) if found == due => None,
                Ok(found) => Some(format!("{}: {} bytes, not as they were synced", path.display(), found.len())),
                Err(error) => Some(format!("{}: {error}", path.display())),
            }
        };
        sure.filter_map(compare).collect()
    }
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let usage = "work_on_files fill|work|tail|check FOLDER SEED DATA_BYTES WRITE_BYTES SYNC_EVERY random|half";
    let usage = || Error::new(ErrorKind::InvalidInput, usage);
    let [step, folder, seed, data, writes, sync_every, content] = arguments.as_slice() else { return Err(usage()) };
    let number = |text: &String| text.parse::<u64>().map_err(|_| usage());
    let last = ["fill", "work", "tail", "check"].iter().position(|name| name == step).ok_or_else(usage)?;
    let mut work = Work {
        folder: folder.into(),
        random: Xoshiro256PlusPlus::seed_from_u64(number(seed)?),
        files: Vec::new(),
        created: 0,
        written: 0,
        operations: 0,
        syncs: 0,
        sync_every: number(sync_every)?.max(1),
        half: content == "half",
        real: false,
        to_sync: BTreeSet::new(),
    };
    for now in 0..=last.min(2) {
        work.real = now == last;
        (work.written, work.operations, work.syncs) = (0, 0, 0);
        match now {
            0 => work.fill(number(data)?),
            1 => work.work(number(writes)?),
            _ => work.tail(),
        }?;
    }
    if last < 3 {
        println!("{step} written={} operations={} syncs={}", work.written, work.operations, work.syncs);
        return Ok(());
    }
    let differing = work.differing();
    let doubtful = work.files.iter().filter(|kept| kept.doubtful).count();
    println!("check files={} doubtful={doubtful} differing={}", work.files.len(), differing.len());
    differing.iter().for_each(|what| eprintln!("{what}"));
    if differing.is_empty() { Ok(()) } else { Err(Error::other("files are not as they were synced")) }
}
