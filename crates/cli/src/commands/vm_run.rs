//! `margay vm run`: runs a program with its heap on flash, by preloading a library (crates/preload).

use crate::args::VmRunArgs;
use crate::args::bytes;
use crate::failure::Failure;
use crate::output::{check_new, write_file};
use margay_host::NewFile;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

const LIBRARY: &str = "libmargay_preload.so";

/// The path of the library: beside the command, where cargo builds it, or in ../lib/margay, where packages install it.
fn library() -> Result<PathBuf, Failure> {
    if let Some(path) = std::env::var_os("MARGAY_PRELOAD") {
        return Ok(path.into());
    }
    let command = std::env::current_exe()?;
    let folder = command.parent().unwrap_or(Path::new("."));
    let places = [folder.join(LIBRARY), folder.join("../lib/margay").join(LIBRARY)];
    places.iter().find(|path| path.is_file()).cloned().ok_or_else(|| {
        Failure::Run(format!(
            "{LIBRARY} is not beside {}: build it with `cargo build --release -p margay-preload`, or set MARGAY_PRELOAD to its path",
            command.display()
        ))
    })
}

pub fn run(args: &VmRunArgs) -> Result<(), Failure> {
    let (ram, memory) = (bytes("--ram", &args.ram)?, bytes("--memory", &args.memory)?);
    let scheme = args.scheme;
    if !(2..=4096).contains(&args.log_blocks) {
        return Err(Failure::Usage(format!("--log-blocks {}: expected 2 to 4096", args.log_blocks)));
    }
    let store = store(args)?;
    check_new(args.json.as_deref(), args.force.existing())?;
    let report = tempfile::NamedTempFile::new()?;
    let start = Instant::now();
    let mut command = Command::new(&args.program[0]);
    if args.keep {
        command.env("MARGAY_VM_KEEP", "1");
    }
    if args.no_children {
        command.env("MARGAY_VM_NO_CHILDREN", "1");
    }
    let mut child = command
        .args(&args.program[1..])
        .env("LD_PRELOAD", library()?)
        .env("MARGAY_VM_STORE", &store)
        .env("MARGAY_VM_REPORT", report.path())
        .env("MARGAY_VM_PARENT", std::process::id().to_string())
        .env("MARGAY_VM_RAM", ram.to_string())
        .env("MARGAY_VM_MEMORY", memory.to_string())
        .env("MARGAY_VM_LOG_BLOCKS", args.log_blocks.to_string())
        .env("MARGAY_VM_SCHEME", scheme.name)
        .spawn()
        .map_err(|error| Failure::Usage(format!("{}: {error}", args.program[0].display())))?;
    let status = child.wait()?;
    let seconds = start.elapsed().as_secs_f64();
    let report = Report::read(&std::fs::read_to_string(report.path())?, child.id());
    if let Some(error) = &report.first_error {
        return Err(Failure::Run(error.clone()));
    }
    let number = |name: &str| report.number(name);
    if report.ended > 0 {
        if !args.quiet {
            eprint!("{}", text_of(scheme.name, ram, seconds, number));
            eprintln!("margay: {}", room_of(args, &store, number("store_bytes")));
        }
        if let Some(path) = &args.json {
            let numbers = report.sums.iter().map(|(name, value)| (name.clone(), (*value).into()));
            let mut object: serde_json::Map<String, serde_json::Value> = numbers.collect();
            object.insert("margay_version".into(), env!("CARGO_PKG_VERSION").into());
            object.insert("scheme".into(), scheme.name.into());
            object.insert("ram_bytes".into(), ram.into());
            object.insert("seconds".into(), seconds.into());
            let bytes = serde_json::to_vec_pretty(&object).map_err(|error| Failure::Run(error.to_string()))?;
            write_file(path, &bytes, args.force.existing())?;
        }
    }
    if !args.quiet {
        report.notes(&args.program[0]).iter().for_each(|note| eprintln!("margay: {note}"));
    }
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => Err(Failure::Program(code as u8)),
        (None, signal) => {
            Err(Failure::Run(format!("{} was ended by signal {}", args.program[0].display(), signal.unwrap_or(0))))
        }
    }
}

/// Where the heap goes: the file that the user named, or a folder, in which the file gets no name.
fn store(args: &VmRunArgs) -> Result<PathBuf, Failure> {
    let Some(path) = &args.store else {
        // /tmp is in RAM on many systems.
        let folder = std::env::var_os("TMPDIR").map(PathBuf::from).unwrap_or_else(|| "/var/tmp".into());
        return Ok(if folder.is_dir() { folder } else { std::env::temp_dir() });
    };
    let failed = |error: &std::io::Error| Failure::new_file(path, error);
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(Failure::Usage(format!("--store {}: expected the name of a file", path.display())));
    }
    // It is of no use before the program runs, so what it replaces can go at once.
    drop(NewFile::create(path, args.force.existing()).map_err(|error| failed(&error))?);
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(&error)),
        _ => Ok(path.clone()),
    }
}

/// What the processes of the program said, one line for each event.
#[derive(Default)]
struct Report {
    /// By name, the sum over all processes that have ended; of the peak of resident memory, the maximum.
    sums: BTreeMap<String, u64>,
    /// Number of processes that ended with a report.
    ended: u64,
    /// Why the first program could not run, or ended.
    first_error: Option<String>,
    /// Names of programs that began with a heap on flash, by process; the last of each process.
    running: BTreeMap<String, String>,
    began: bool,
    /// Programs that run in ordinary memory, with the reason.
    plain: Vec<String>,
}

impl Report {
    /// What `text` says, of a program that was started as the process `first`.
    fn read(text: &str, first: u32) -> Self {
        let mut report = Self::default();
        for line in text.lines() {
            let mut words = line.splitn(3, ' ');
            let (Some(event), Some(process)) = (words.next(), words.next()) else { continue };
            let rest = words.next().unwrap_or("");
            match event {
                "begin" => {
                    report.began = true;
                    report.running.insert(process.into(), rest.into());
                }
                "error" => {
                    report.running.remove(process);
                    let (name, error) = rest.split_once(' ').unwrap_or((rest, ""));
                    if process == first.to_string() {
                        report.first_error = Some(format!("{name}: {error}"));
                    }
                }
                "plain" => report.plain.push(rest.replacen(' ', ": ", 1)),
                "end" => {
                    report.ended += 1;
                    report.running.remove(process);
                    report.add(rest);
                }
                _ => {}
            }
        }
        report
    }

    fn add(&mut self, numbers: &str) {
        let pairs = numbers.split(' ').filter_map(|pair| pair.split_once('='));
        for (name, value) in pairs.filter_map(|(name, value)| Some((name, value.parse::<u64>().ok()?))) {
            let sum = self.sums.entry(name.into()).or_default();
            *sum = if name == "peak_resident_bytes" { (*sum).max(value) } else { *sum + value };
        }
    }

    fn number(&self, name: &str) -> u64 {
        self.sums.get(name).copied().unwrap_or(0)
    }

    /// What a user would not expect.
    fn notes(&self, program: &OsStr) -> Vec<String> {
        let mut notes: Vec<String> =
            self.plain.iter().map(|plain| format!("{plain}; it ran in ordinary memory")).collect();
        if !self.began {
            let program = program.display();
            notes.push(format!(
                "{program} did not use the heap on flash: it is linked statically, runs with other rights than the user's, or \
                 its environment was cleared; nothing of it was paged"
            ));
        }
        if !self.running.is_empty() {
            let names: BTreeSet<&str> = self.running.values().map(String::as_str).collect();
            let names = names.into_iter().collect::<Vec<_>>().join(", ");
            notes.push(format!(
                "without a report, because they were killed, still run, or became programs that are not paged: {names}"
            ));
        }
        notes
    }
}

fn room_of(args: &VmRunArgs, store: &Path, bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    let what_of_it = if args.keep { "kept" } else { "given back" };
    let place = if args.store.is_some() { "" } else { "in " };
    format!("disk: {mib:.1} MiB, {place}{}, {what_of_it}", store.display())
}

fn text_of(scheme: &str, ram: u64, seconds: f64, number: impl Fn(&str) -> u64) -> String {
    let mib = |pages: u64| pages as f64 * 4096.0 / f64::from(1 << 20);
    let processes = match number("processes") {
        1 => String::new(),
        processes => format!(" each, {processes} processes together"),
    };
    format!(
        "margay: heap of {:.1} MiB in {:.1} MiB of RAM{processes}, {scheme}, {seconds:.2} s\n\
         margay: {} faults: {} pages brought in ({} from flash), {} returned from the LRU region, {} first writes\n\
         margay: {} pages evicted dirty, {} clean; {} merges copied {} pages, wrote {} from the cache, dropped {}\n\
         margay: flash: {:.1} MiB read, {:.1} MiB programmed, {} segments erased\n",
        number("heap_bytes") as f64 / f64::from(1 << 20),
        ram as f64 / f64::from(1 << 20),
        number("faults"),
        number("misses"),
        number("swap_ins"),
        number("lru_hits"),
        number("write_faults"),
        number("dirty_evictions"),
        number("clean_evictions"),
        number("merges"),
        number("copies"),
        number("cache_writes"),
        number("drops"),
        mib(number("flash_reads")),
        mib(number("flash_programs")),
        number("flash_erases"),
    )
}
