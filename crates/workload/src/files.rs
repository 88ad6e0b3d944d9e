//! File benchmarks: how programs of small devices use their files. The same for the same seed.
//!
//! The MODA paper (Baek et al. 2007, sec. 6) names seven of them. Their sizes were fitted to its Table 1
//! (docs/reproduction.md).

use crate::WorkloadError;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::fmt;
use std::str::FromStr;

/// A step of a program. Files and directories are numbered in the order of their creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOp {
    /// Makes a directory.
    Mkdir {
        /// Its number.
        directory: u32,
        /// The directory that it is in; none for the root.
        parent: Option<u32>,
    },
    /// Creates a file and opens it.
    Create {
        /// Its number.
        file: u32,
        /// The directory that it is in; none for the root.
        parent: Option<u32>,
    },
    /// Opens a file.
    Open {
        /// The file.
        file: u32,
    },
    /// Writes at the end of an open file.
    Append {
        /// The file.
        file: u32,
        /// Length, in bytes.
        bytes: u32,
    },
    /// Writes at the start of an open file.
    Overwrite {
        /// The file.
        file: u32,
        /// Length, in bytes.
        bytes: u32,
    },
    /// Makes durable what was written to an open file.
    Sync {
        /// The file.
        file: u32,
    },
    /// Closes a file.
    Close {
        /// The file.
        file: u32,
    },
    /// Reads a whole file.
    Read {
        /// The file.
        file: u32,
    },
    /// Removes a closed file.
    Delete {
        /// The file.
        file: u32,
    },
}

/// A benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum FileBenchmark {
    Camera,
    Movie,
    Phone,
    Recorder,
    Fax,
    Postmark,
    Andrew,
    PostmarkStock,
    MovieShort,
}

impl FileBenchmark {
    /// The benchmarks of the paper's Table 1, in its order.
    pub const ALL: [Self; 7] =
        [Self::Camera, Self::Movie, Self::Phone, Self::Recorder, Self::Fax, Self::Postmark, Self::Andrew];

    /// Those that no line of the table is fitted to: Postmark as its author ships it, and a Movie that leaves room for
    /// other programs.
    pub const OTHERS: [Self; 2] = [Self::PostmarkStock, Self::MovieShort];

    /// Its name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Camera => "camera",
            Self::Movie => "movie",
            Self::Phone => "phone",
            Self::Recorder => "recorder",
            Self::Fax => "fax",
            Self::Postmark => "postmark",
            Self::Andrew => "andrew",
            Self::PostmarkStock => "postmark-stock",
            Self::MovieShort => "movie-short",
        }
    }

    /// Its steps in a line.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::Camera => "11 x 6 pictures of 200 to 400 KiB; some are looked at, at last some deleted",
            Self::Movie => "10 films of 5.7 MiB, each then played",
            Self::Phone => "6 files; 13,000 sessions append two records of 119 bytes, each synced",
            Self::Recorder => "10,000 sessions append 32 bytes; one in 16 rewrites a parameter file of 256 bytes",
            Self::Fax => "250 faxes of 4 pages of 51,300 bytes, with a history of 200 bytes each",
            Self::Postmark => "780 files of 500 to 10,004 bytes, then 500 reads or appends",
            Self::Andrew => "14 trees of 45 directories and 70 files of 200 to 8,800 bytes",
            Self::PostmarkStock => {
                "500 files of 500 to 10,004 bytes, then 500 times a read or an append and a creation or a deletion"
            }
            Self::MovieShort => "4 films of 5.7 MiB, each then played",
        }
    }

    /// The steps of the benchmark, which depend on the seed alone.
    pub fn steps(self, seed: u64) -> Vec<FileOp> {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x000F_11E5);
        let mut script = Script { steps: Vec::new(), files: 0, directories: 0, random };
        match self {
            Self::Camera => camera(&mut script),
            Self::Movie => movie(&mut script, 10),
            Self::Phone => phone(&mut script),
            Self::Recorder => recorder(&mut script),
            Self::Fax => fax(&mut script),
            Self::Postmark => postmark(&mut script),
            Self::Andrew => andrew(&mut script),
            Self::PostmarkStock => postmark_stock(&mut script),
            Self::MovieShort => movie(&mut script, 4),
        }
        script.steps
    }
}

/// One benchmark, or several that run at the same time and take turns. As text: their names with `+` between, and
/// `/16` at the end if a turn has 16 operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileMix {
    /// The benchmarks.
    pub benchmarks: Vec<FileBenchmark>,
    /// Operations of a turn. The turns of each benchmark are spread evenly over the whole run, so that all end together.
    pub turn: u32,
}

impl From<FileBenchmark> for FileMix {
    fn from(benchmark: FileBenchmark) -> Self {
        Self { benchmarks: vec![benchmark], turn: 1 }
    }
}

impl fmt::Display for FileMix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.benchmarks.iter().map(|benchmark| benchmark.name()).collect();
        f.write_str(&names.join("+"))?;
        if self.turn == 1 { Ok(()) } else { write!(f, "/{}", self.turn) }
    }
}

impl FromStr for FileMix {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let find = |name: &str| {
            let all = || FileBenchmark::ALL.into_iter().chain(FileBenchmark::OTHERS);
            let known: Vec<_> = all().map(FileBenchmark::name).collect();
            let found = all().find(|benchmark| benchmark.name() == name.trim());
            found.ok_or_else(|| WorkloadError::value("benchmark", name, format!("one of {}", known.join(", "))))
        };
        let (names, turn) = match text.split_once('/') {
            None => (text, 1),
            Some((names, turn)) => {
                let turn: Option<u32> = turn.trim().parse().ok().filter(|turn| *turn > 0);
                (names, turn.ok_or_else(|| WorkloadError::value("operations of a turn", text, "1 or more"))?)
            }
        };
        Ok(Self { benchmarks: names.split('+').map(find).collect::<Result<_, _>>()?, turn })
    }
}

impl FileMix {
    /// The steps of all benchmarks. Each is cut into turns, which are spread evenly over the whole run; within a turn
    /// nothing else runs.
    pub fn steps(&self, seed: u64) -> Vec<FileOp> {
        let mut all = Vec::new();
        let (mut files, mut directories) = (0, 0);
        for (index, benchmark) in self.benchmarks.iter().enumerate() {
            let steps = benchmark.steps(seed.wrapping_add(index as u64 * 7919));
            let count = steps.len() as f64;
            let (mut new_files, mut new_directories) = (0, 0);
            for (i, step) in steps.into_iter().enumerate() {
                if let FileOp::Create { file, .. } = step {
                    new_files = new_files.max(file + 1);
                }
                if let FileOp::Mkdir { directory, .. } = step {
                    new_directories = new_directories.max(directory + 1);
                }
                let turn = i - i % self.turn as usize;
                all.push((turn as f64 / count, index, step.shifted(files, directories)));
            }
            files += new_files;
            directories += new_directories;
        }
        // The sort keeps the order of the steps of a turn.
        all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        all.into_iter().map(|(.., step)| step).collect()
    }
}

impl FileOp {
    /// The same step with `files` and `directories` added to its numbers.
    fn shifted(self, files: u32, directories: u32) -> Self {
        let parent = |parent: Option<u32>| parent.map(|parent| parent + directories);
        match self {
            Self::Mkdir { directory, parent: up } => {
                Self::Mkdir { directory: directory + directories, parent: parent(up) }
            }
            Self::Create { file, parent: up } => Self::Create { file: file + files, parent: parent(up) },
            Self::Open { file } => Self::Open { file: file + files },
            Self::Append { file, bytes } => Self::Append { file: file + files, bytes },
            Self::Overwrite { file, bytes } => Self::Overwrite { file: file + files, bytes },
            Self::Sync { file } => Self::Sync { file: file + files },
            Self::Close { file } => Self::Close { file: file + files },
            Self::Read { file } => Self::Read { file: file + files },
            Self::Delete { file } => Self::Delete { file: file + files },
        }
    }
}

struct Script {
    steps: Vec<FileOp>,
    files: u32,
    directories: u32,
    random: Xoshiro256PlusPlus,
}

/// Bytes that a program writes at a time.
const WRITE_BYTES: u32 = 4096;

impl Script {
    /// Draws a number from `low` to `high`, both included.
    fn between(&mut self, low: u32, high: u32) -> u32 {
        let span = u64::from(high - low) + 1;
        // The bias is below one part in 2^32.
        low + ((u128::from(self.random.next_u64()) * u128::from(span)) >> 64) as u32
    }

    fn mkdir(&mut self, parent: Option<u32>) -> u32 {
        self.steps.push(FileOp::Mkdir { directory: self.directories, parent });
        self.directories += 1;
        self.directories - 1
    }

    fn create(&mut self, parent: Option<u32>) -> u32 {
        self.steps.push(FileOp::Create { file: self.files, parent });
        self.files += 1;
        self.files - 1
    }

    fn append(&mut self, file: u32, bytes: u32) {
        let mut left = bytes;
        while left > 0 {
            let bytes = left.min(WRITE_BYTES);
            self.steps.push(FileOp::Append { file, bytes });
            left -= bytes;
        }
    }

    fn close(&mut self, file: u32) {
        self.steps.push(FileOp::Close { file });
    }

    /// Creates a file of this length and closes it.
    fn file(&mut self, parent: Option<u32>, bytes: u32) -> u32 {
        let file = self.create(parent);
        self.append(file, bytes);
        self.close(file);
        file
    }
}

fn camera(script: &mut Script) {
    let mut pictures = Vec::new();
    for transaction in 1..=11 {
        for _ in 0..6 {
            let bytes = script.between(200 * 1024, 400 * 1024);
            pictures.push(script.file(None, bytes));
        }
        for _ in 0..3 {
            let at = script.between(0, pictures.len() as u32 - 1) as usize;
            script.steps.push(FileOp::Read { file: pictures[at] });
        }
        if transaction >= 6 {
            let at = script.between(0, pictures.len() as u32 - 1) as usize;
            let file = pictures.swap_remove(at);
            script.steps.push(FileOp::Delete { file });
        }
    }
}

fn movie(script: &mut Script, films: u32) {
    for _ in 0..films {
        let file = script.file(None, 11_758 * 512);
        script.steps.push(FileOp::Read { file });
    }
}

fn phone(script: &mut Script) {
    let files: Vec<u32> = (0..6).map(|_| script.file(None, 0)).collect();
    for _ in 0..13_000 {
        let file = files[script.between(0, 5) as usize];
        script.steps.push(FileOp::Open { file });
        for _ in 0..2 {
            script.append(file, 119);
            script.steps.push(FileOp::Sync { file });
        }
        script.close(file);
    }
}

fn recorder(script: &mut Script) {
    let record = script.file(None, 0);
    let parameters = script.file(None, 256);
    for _ in 0..10_000 {
        script.steps.push(FileOp::Open { file: record });
        script.append(record, 32);
        script.close(record);
        if script.between(1, 16) == 1 {
            script.steps.push(FileOp::Open { file: parameters });
            script.steps.push(FileOp::Overwrite { file: parameters, bytes: 256 });
            script.close(parameters);
        }
    }
}

fn fax(script: &mut Script) {
    script.file(None, 32 * 1024);
    let history = script.create(None);
    for _ in 0..250 {
        for _ in 0..4 {
            script.file(None, 51_300);
        }
        script.append(history, 200);
    }
    script.close(history);
}

/// Reads a random file, or appends to it until it has up to `max_bytes`. `files` holds files and their sizes.
fn read_or_append(script: &mut Script, files: &mut [(u32, u32)], max_bytes: u32) {
    let at = script.between(0, files.len() as u32 - 1) as usize;
    let (file, bytes) = files[at];
    if script.between(0, 1) == 0 {
        script.steps.push(FileOp::Read { file });
    } else if bytes < max_bytes {
        let more = script.between(1, max_bytes - bytes);
        script.steps.push(FileOp::Open { file });
        script.append(file, more);
        script.close(file);
        files[at].1 += more;
    }
}

/// Postmark's largest file: 9.77 KiB.
const POSTMARK_MAX_BYTES: u32 = 10_004;

fn postmark(script: &mut Script) {
    let mut files = Vec::new();
    for _ in 0..780 {
        let bytes = script.between(500, POSTMARK_MAX_BYTES);
        files.push((script.file(None, bytes), bytes));
    }
    for _ in 0..500 {
        read_or_append(script, &mut files, POSTMARK_MAX_BYTES);
    }
}

/// Postmark with its default settings (Katcher 1997), without the final deletion of all files.
fn postmark_stock(script: &mut Script) {
    let create = |script: &mut Script| {
        let bytes = script.between(500, POSTMARK_MAX_BYTES);
        (script.file(None, bytes), bytes)
    };
    let mut files: Vec<(u32, u32)> = (0..500).map(|_| create(script)).collect();
    for _ in 0..500 {
        read_or_append(script, &mut files, POSTMARK_MAX_BYTES);
        if script.between(0, 1) == 0 {
            let new = create(script);
            files.push(new);
        } else if files.len() > 1 {
            let at = script.between(0, files.len() as u32 - 1) as usize;
            let (file, _) = files.swap_remove(at);
            script.steps.push(FileOp::Delete { file });
        }
    }
}

fn andrew(script: &mut Script) {
    for _ in 0..14 {
        let tree = script.mkdir(None);
        let directories: Vec<u32> = core::iter::once(tree).chain((1..45).map(|_| script.mkdir(Some(tree)))).collect();
        for i in 0..70 {
            let bytes = script.between(200, 8_800);
            script.file(Some(directories[i % directories.len()]), bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benchmarks_have_the_sizes_of_the_specification_and_repeat_under_a_seed() {
        let count = |benchmark: FileBenchmark, which: fn(&FileOp) -> bool| {
            benchmark.steps(1).iter().filter(|step| which(step)).count()
        };
        assert_eq!(count(FileBenchmark::Phone, |step| matches!(step, FileOp::Sync { .. })), 26_000);
        assert_eq!(count(FileBenchmark::Andrew, |step| matches!(step, FileOp::Mkdir { .. })), 14 * 45);
        assert_eq!(count(FileBenchmark::Camera, |step| matches!(step, FileOp::Delete { .. })), 6);
        for benchmark in FileBenchmark::ALL {
            assert_eq!(benchmark.steps(3), benchmark.steps(3));
        }
    }

    #[test]
    fn the_largest_file_of_postmark_has_10004_bytes() {
        for benchmark in [FileBenchmark::Postmark, FileBenchmark::PostmarkStock] {
            let mut largest = 0;
            for seed in 1..=20 {
                let mut sizes = Vec::new();
                for step in benchmark.steps(seed) {
                    match step {
                        FileOp::Create { .. } => sizes.push(0),
                        FileOp::Append { file, bytes } => sizes[file as usize] += bytes,
                        _ => {}
                    }
                }
                largest = largest.max(sizes.into_iter().max().unwrap());
            }
            assert!((9_950..=10_004).contains(&largest), "{}: {largest}", benchmark.name());
        }
    }

    #[test]
    fn the_turns_of_a_mix_have_as_many_operations_as_it_says_and_all_benchmarks_end_together() {
        let mix: FileMix = "phone+recorder/16".parse().unwrap();
        assert_eq!(mix.to_string(), "phone+recorder/16");
        let is_phone = |step: &FileOp| match step {
            FileOp::Create { file, .. } | FileOp::Open { file } | FileOp::Append { file, .. } => *file < 6,
            FileOp::Overwrite { file, .. } | FileOp::Sync { file } | FileOp::Close { file } => *file < 6,
            _ => unreachable!("neither reads, deletes or makes directories"),
        };
        let steps: Vec<bool> = mix.steps(1).iter().map(is_phone).collect();
        let turns: Vec<_> = steps.chunk_by(|a, b| a == b).map(<[_]>::len).collect();
        let parts = turns.iter().filter(|operations| *operations % 16 != 0).count();
        assert!(parts <= 3, "only the last turns of the two are shorter: {parts}");
        assert!(turns.iter().filter(|operations| **operations == 16).count() > 1000);
        let tail = &steps[steps.len() - 100..];
        assert!(tail.iter().any(|phone| *phone) && tail.iter().any(|phone| !*phone));
        for wrong in ["phone/0", "phone/x", "phone/-1"] {
            assert!(wrong.parse::<FileMix>().unwrap_err().to_string().contains("turn"), "{wrong}");
        }
    }

    #[test]
    fn a_mix_holds_the_steps_of_all_with_numbers_of_their_own() {
        let mix: FileMix = "camera+phone".parse().unwrap();
        let steps = mix.steps(1);
        let parts = FileBenchmark::Camera.steps(1).len() + FileBenchmark::Phone.steps(1).len();
        assert_eq!(steps.len(), parts);
        let mut created: Vec<_> = steps
            .iter()
            .filter_map(|step| if let FileOp::Create { file, .. } = step { Some(*file) } else { None })
            .collect();
        created.sort_unstable();
        assert_eq!(created, (0..72).collect::<Vec<_>>());
        assert!("camera+disco".parse::<FileMix>().unwrap_err().to_string().contains("postmark"));
    }
}
