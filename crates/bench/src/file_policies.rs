//! `margay-bench file-policies [FULL...] [WORKLOAD...] [SELECTION+ALLOCATOR...] [seeds=N] [segments=N]`: write amplification of
//! file systems in memory under pairs of policies, all metadata counted. FULL is the share of the device that is in use.

use margay_flash::Geometry;
use margay_media::SparseFlash;
use margay_volume::fs::{NewObject, ROOT, Time};
use margay_volume::{Files, FilesFormatOptions, StoreOptions, format_files};
use margay_workload::Zipf;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const PAGES_PER_SEGMENT: u32 = 64;
const PAGE_BYTES: u32 = 4096;
/// How often the device is written; the second half counts.
const DEVICE_WRITES: u64 = 8;
const PAIRS: [&str; 5] =
    ["cost-benefit+predictive", "greedy+moda", "lifetime+predictive", "lifetime+sepbit", "lifetime+lifetime"];

type Error = Box<dyn std::error::Error>;
type Step = fn(&mut World) -> Result<(), Error>;

/// A file of the workload.
#[derive(Clone, Copy, Debug)]
struct File {
    object: u32,
    bytes: u64,
}

/// A file system, and what a workload keeps of its files.
struct World {
    files: Files<SparseFlash>,
    random: Xoshiro256PlusPlus,
    zipf: Zipf,
    set: Vec<File>,
    /// A file that lies beside the set, and the place where it is written next.
    large: File,
    at: u64,
    names: u64,
    sizes: (u64, u64),
    /// What was in use at first.
    most_valid: u64,
    zeros: Vec<u8>,
}

/// Name, summary, share of what is in use that is one large file and that is files which nothing changes, and sizes of the
/// others in bytes.
struct Workload {
    name: &'static str,
    summary: &'static str,
    large: f64,
    still: f64,
    sizes: (u64, u64),
    step: Step,
}

const SMALL: u64 = 4 << 10;
const WORKLOADS: &[Workload] = &[
    Workload {
        name: "popular",
        summary: "files of 4 KiB to 1 MiB removed and written anew, by popularity (Zipf 0.9)",
        large: 0.0,
        still: 0.0,
        sizes: (SMALL, 1 << 20),
        step: |world| {
            let at = world.popular();
            world.replace(at)
        },
    },
    Workload {
        name: "random",
        summary: "the same with every file as often",
        large: 0.0,
        still: 0.0,
        sizes: (SMALL, 1 << 20),
        step: |world| {
            let at = world.any();
            world.replace(at)
        },
    },
    Workload {
        name: "small",
        summary: "files of 500 bytes to 10 KB, half of the steps an append of 1.5 KB and half a removal and a new one (Postmark)",
        large: 0.0,
        still: 0.0,
        sizes: (500, 10_000),
        step: |world| {
            let at = world.any();
            if world.below(2) == 0 { world.renew(at) } else { world.append_within(at, 1500, 10_000) }
        },
    },
    Workload {
        name: "appends",
        summary: "1.5 KB at a time to files that begin anew at 128 KiB, popular ones more often; three of ten steps replace a file",
        large: 0.0,
        still: 0.2,
        sizes: (SMALL, 128 << 10),
        step: |world| {
            let at = world.popular();
            if world.below(10) < 3 { world.renew(at) } else { world.append_within(at, 1500, 128 << 10) }
        },
    },
    Workload {
        name: "database",
        summary: "16 pages at a time in a file of 70 %, eight of ten in a fifth of it, each time synced",
        large: 0.7,
        still: 0.3,
        sizes: (SMALL, 1 << 20),
        step: |world| {
            for _ in 0..16 {
                world.overwrite_page()?;
            }
            Ok(world.files.fsync(world.large.object, true)?)
        },
    },
    Workload {
        name: "sqlite-wal",
        summary: "pages of a database of 40 %, first to a log of 1,000 pages, then in order to the database; files beside it",
        large: 0.4,
        still: 0.4,
        sizes: (SMALL, 1 << 20),
        step: World::write_ahead,
    },
    Workload {
        name: "log",
        summary: "a file of 30 % written round and round, and as much to files by popularity",
        large: 0.3,
        still: 0.0,
        sizes: (SMALL, 1 << 20),
        step: |world| {
            let at = world.popular();
            let bytes = world.set[at].bytes;
            world.replace(at)?;
            world.go_round(bytes)
        },
    },
    Workload {
        name: "queue",
        summary: "files of 64 KiB to 1 MiB, of which the oldest is removed for a new one, beside files that stay",
        large: 0.0,
        still: 0.5,
        sizes: (64 << 10, 1 << 20),
        step: |world| {
            let at = world.at as usize % world.set.len();
            world.at += 1;
            world.replace(at)
        },
    },
    Workload {
        name: "build",
        summary: "200 files of 4 to 64 KiB that are removed when they are all there, then one that stays is replaced; and again",
        large: 0.0,
        still: 0.6,
        sizes: (SMALL, 64 << 10),
        step: |world| {
            let mut gone = Vec::new();
            for _ in 0..200 {
                let bytes = world.size(SMALL, 64 << 10);
                gone.push(world.create(bytes)?);
            }
            gone.iter().try_for_each(|file| world.remove(file.object))?;
            for _ in 0..8 {
                let at = world.any();
                world.replace(at)?;
            }
            Ok(())
        },
    },
    Workload {
        name: "mixed",
        summary: "the programs above by turns: popular files, small overwrites in a database of 30 %, appends",
        large: 0.3,
        still: 0.2,
        sizes: (SMALL, 256 << 10),
        step: |world| match world.below(3) {
            0 => {
                let at = world.popular();
                world.renew(at)
            }
            1 => (0..16).try_for_each(|_| world.overwrite_page()),
            _ => (0..8).try_for_each(|_| {
                let at = world.popular();
                world.append_within(at, 1500, 256 << 10)
            }),
        },
    },
];

impl World {
    fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.random.next_u64()) * u128::from(limit)) >> 64) as u64
    }

    fn any(&mut self) -> usize {
        self.below(self.set.len() as u64) as usize
    }

    fn popular(&mut self) -> usize {
        let rank = self.zipf.sample(&mut self.random) as usize;
        // The popular ones are anywhere among those written first.
        rank * 7919 % self.set.len()
    }

    /// As many sizes between each power of two and the next.
    fn size(&mut self, min: u64, max: u64) -> u64 {
        let share = self.below(1 << 32) as f64 / (1u64 << 32) as f64;
        (min as f64 * (max as f64 / min as f64).powf(share)) as u64
    }

    fn create(&mut self, bytes: u64) -> Result<File, Error> {
        self.names += 1;
        let name = self.names.to_string();
        self.files.set_time(Time { secs: (self.names / 1000) as i64, nanos: (self.names % 1000) as u32 * 1_000_000 });
        let object = self.files.create(ROOT, name.as_bytes(), &NewObject::FILE)?.object;
        self.files.open(object)?;
        self.write(object, 0, bytes)?;
        self.files.close(object)?;
        Ok(File { object, bytes })
    }

    fn write(&mut self, object: u32, mut at: u64, bytes: u64) -> Result<(), Error> {
        let end = at + bytes;
        while at < end {
            let len = (end - at).min(self.zeros.len() as u64);
            at += self.files.write(object, at, &self.zeros[..len as usize])? as u64;
        }
        Ok(())
    }

    fn remove(&mut self, object: u32) -> Result<(), Error> {
        Ok(self.files.remove(object)?)
    }

    fn replace(&mut self, at: usize) -> Result<(), Error> {
        let File { object, bytes } = self.set[at];
        self.remove(object)?;
        self.set[at] = self.create(bytes)?;
        Ok(())
    }

    /// Removes a file for a new one, a small one where more is in use than there was at first.
    fn renew(&mut self, at: usize) -> Result<(), Error> {
        let (min, max) = self.sizes;
        self.remove(self.set[at].object)?;
        let is_over = self.files.log().segments().total_valid > self.most_valid;
        let bytes = if is_over { min } else { self.size(min, max) };
        self.set[at] = self.create(bytes)?;
        Ok(())
    }

    /// One session that appends to a file; one that would become longer than `max` begins anew.
    fn append_within(&mut self, at: usize, bytes: u64, max: u64) -> Result<(), Error> {
        let file = self.set[at];
        if file.bytes + bytes > max {
            return self.renew(at);
        }
        self.files.open(file.object)?;
        self.write(file.object, file.bytes, bytes)?;
        self.files.close(file.object)?;
        self.set[at].bytes += bytes;
        Ok(())
    }

    fn page_of_database(&mut self) -> u64 {
        let pages = self.large.bytes / u64::from(PAGE_BYTES);
        let hot = pages / 5;
        let page = if self.below(10) < 8 { self.below(hot) } else { hot + self.below(pages - hot) };
        page * 7919 % pages
    }

    fn overwrite_page(&mut self) -> Result<(), Error> {
        let page = self.page_of_database();
        self.write(self.large.object, page * u64::from(PAGE_BYTES), PAGE_BYTES.into())
    }

    /// 1,000 pages in transactions of 4 to the file that the set begins with, then to the database.
    fn write_ahead(&mut self) -> Result<(), Error> {
        let (log, mut pages) = (self.set[0].object, Vec::new());
        for _ in 0..250 {
            for _ in 0..4 {
                self.write(log, pages.len() as u64 * u64::from(PAGE_BYTES), PAGE_BYTES.into())?;
                pages.push(self.page_of_database());
            }
            self.files.fsync(log, true)?;
        }
        pages.sort_unstable();
        pages.dedup();
        for page in pages {
            self.write(self.large.object, page * u64::from(PAGE_BYTES), PAGE_BYTES.into())?;
        }
        self.files.fsync(self.large.object, true)?;
        match self.set.len() as u64 {
            1 => Ok(()),
            files => {
                let at = 1 + self.below(files - 1) as usize;
                self.replace(at)
            }
        }
    }

    fn go_round(&mut self, bytes: u64) -> Result<(), Error> {
        let bytes = bytes.div_ceil(PAGE_BYTES.into()) * u64::from(PAGE_BYTES);
        for _ in 0..bytes / u64::from(PAGE_BYTES) {
            self.write(self.large.object, self.at, PAGE_BYTES.into())?;
            self.at = (self.at + u64::from(PAGE_BYTES)) % self.large.bytes;
        }
        Ok(())
    }
}

/// One run.
struct Run<'a> {
    workload: &'a Workload,
    full: f64,
    segments: u32,
    seed: u64,
}

impl Run<'_> {
    /// Write amplification, and the most pages programmed for one write.
    fn run(&self, pair: &str) -> Result<(f64, u64), Error> {
        let (selection, allocator) = pair.split_once('+').ok_or("a pair is SELECTION+ALLOCATOR")?;
        let geometry = Geometry::new(self.segments, PAGES_PER_SEGMENT, PAGE_BYTES)?.with_spare(128);
        let defaults = FilesFormatOptions::default();
        let store = StoreOptions { selection: selection.parse()?, ..defaults.store };
        let files =
            format_files(SparseFlash::new(geometry), &FilesFormatOptions { store, allocator: allocator.parse()? })?;
        let mut world = World {
            files,
            random: Xoshiro256PlusPlus::seed_from_u64(self.seed),
            zipf: Zipf::new(1, 0.9),
            set: Vec::new(),
            large: File { object: ROOT, bytes: 0 },
            at: 0,
            names: 0,
            sizes: self.workload.sizes,
            most_valid: 0,
            zeros: vec![0; 64 << 10],
        };
        self.fill(&mut world)?;
        let pages = u64::from(geometry.pages());
        let written = |world: &World| world.files.log().counters().host_writes;
        let begun = written(&world);
        let go_on = |world: &mut World, until: u64| -> Result<(), Error> {
            while written(world) < until {
                (self.workload.step)(world)?;
            }
            Ok(())
        };
        go_on(&mut world, begun + DEVICE_WRITES * pages / 2)?;
        let before = world.files.log().counters().clone();
        go_on(&mut world, begun + DEVICE_WRITES * pages)?;
        world.files.audit().map_err(|error| error.to_string())?;
        let counters = world.files.log().counters();
        let wa = counters.since(&before).write_amplification().ok_or("nothing was written")?;
        Ok((wa, counters.max_pages_of_a_write))
    }

    /// Writes files until so much of the device is in use.
    fn fill(&self, world: &mut World) -> Result<(), Error> {
        let Workload { large, still, sizes: (min, max), .. } = *self.workload;
        let page_bytes = u64::from(PAGE_BYTES);
        let pages = f64::from(self.segments * PAGES_PER_SEGMENT) * self.full;
        let valid = |world: &World| world.files.log().segments().total_valid as f64;
        if large > 0.0 {
            world.large = world.create((pages * large) as u64 * page_bytes)?;
        }
        while valid(world) < pages * (large + still) {
            let bytes = world.size(SMALL, 1 << 20);
            world.create(bytes)?;
        }
        while valid(world) < pages {
            let bytes = if self.workload.name == "sqlite-wal" && world.set.is_empty() {
                1000 * page_bytes
            } else {
                world.size(min, max)
            };
            let file = world.create(bytes)?;
            world.set.push(file);
        }
        world.zipf = Zipf::new(world.set.len() as u32, 0.9);
        world.most_valid = world.files.log().segments().total_valid;
        Ok(world.files.sync()?)
    }
}

pub fn run(args: &[String]) -> Result<(), String> {
    let (mut full, mut pairs, mut names) = (Vec::new(), Vec::new(), Vec::new());
    let (mut seeds, mut segments) = (2, 1024);
    for arg in args {
        if let Some((name, value)) = arg.split_once('=').filter(|(name, _)| ["seeds", "segments"].contains(name)) {
            let value: u32 = value.parse().map_err(|_| format!("{arg}: a number is wanted"))?;
            *(if name == "seeds" { &mut seeds } else { &mut segments }) = value;
        } else if let Ok(share) = arg.parse::<f64>() {
            full.push(share);
        } else if arg.contains('+') {
            pairs.push(arg.as_str());
        } else {
            names.push(arg.as_str());
        }
    }
    if let Some(unknown) = names.iter().find(|name| WORKLOADS.iter().all(|workload| workload.name != **name)) {
        return Err(format!("unknown workload {unknown}"));
    }
    if full.is_empty() {
        full = vec![0.7, 0.8, 0.9];
    }
    if pairs.is_empty() {
        pairs = PAIRS.to_vec();
    }
    let chosen = || WORKLOADS.iter().filter(|workload| names.is_empty() || names.contains(&workload.name));
    println!(
        "{segments} segments of {PAGES_PER_SEGMENT} pages of 4 KiB in memory; pages programmed per page written in the second half of {DEVICE_WRITES} device writes;"
    );
    println!("the mean over {seeds} seeds and half the range; behind it the most pages programmed for a write");
    chosen().for_each(|workload| println!("  {}: {}", workload.name, workload.summary));
    println!("\n| workload | full |{}", pairs.iter().map(|pair| format!(" {pair} |")).collect::<String>());
    println!("|---|---|{}", "---|".repeat(pairs.len()));
    let mut logs = vec![0.0; pairs.len()];
    let mut rows = 0.0;
    for workload in chosen() {
        for full in &full {
            print!("| {} | {:.0} % |", workload.name, full * 100.0);
            rows += 1.0;
            for (number, pair) in pairs.iter().enumerate() {
                let runs = (1..=u64::from(seeds)).map(|seed| {
                    let run = Run { workload, full: *full, segments, seed };
                    run.run(pair).map_err(|error| format!("{}, {full}, {pair}, seed {seed}: {error}", workload.name))
                });
                let runs = runs.collect::<Result<Vec<_>, _>>()?;
                let was = || runs.iter().map(|(wa, _)| *wa);
                let (mean, worst) = (was().sum::<f64>() / runs.len() as f64, runs.iter().map(|run| run.1).max());
                let half = (was().fold(0.0, f64::max) - was().fold(f64::INFINITY, f64::min)) / 2.0;
                print!(" {mean:.3} +-{half:.3} ({}) |", worst.unwrap_or(0));
                // So that a WA of 1 has a logarithm.
                logs[number] += f64::ln(mean - 1.0 + 0.002);
                let _ = std::io::Write::flush(&mut std::io::stdout());
            }
            println!();
        }
    }
    print!("| geometric mean of WA - 1 | |");
    logs.iter().for_each(|log| print!(" {:.3} |", f64::exp(log / rows)));
    println!();
    Ok(())
}
