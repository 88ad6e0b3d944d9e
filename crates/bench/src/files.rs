//! `margay-bench files [MARGAY]`: a mounted file system, with and without `--write-back`, beside ext4 on a loop device, and beside
//! a program that passes every call through FUSE to that ext4. They take turns; each figure is the median of five rounds, with the
//! least and the greatest.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;
const MIB: usize = 1 << 20;
const IMAGE_MIB: u32 = 1024;
/// A file that stays, so that the devices are filled in part.
const BALLAST_MIB: usize = 256;
const FILE_MIB: usize = 256;
const RANDOM_WRITES: u32 = 16_384;
const PAGE_BYTES: usize = 4096;
const SMALL_FILES: u32 = 10_000;
const SMALL_BYTES: usize = 1000;

type Error = Box<dyn std::error::Error>;

const ROWS: [&str; 6] = [
    "write 256 MiB and fsync, s",
    "read 256 MiB, cold, s",
    "random write of 4 KiB, us",
    "the same with an fsync at the end, us",
    "create 10,000 files of 1 KB, s",
    "ls -lR of them, cold, s",
];

/// A mounted file system under test; it is unmounted at the end.
struct Mounted {
    name: &'static str,
    folder: PathBuf,
    process: Option<Child>,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.folder).status();
        if let Some(process) = &mut self.process {
            let _ = process.wait();
        }
    }
}

/// Runs a command to its end; its output is part of the error if it fails.
fn command(program: &str, args: &[&str]) -> Result<(), Error> {
    let output = Command::new(program).args(args).output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program} {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim()).into())
}

fn path_text(path: &Path) -> Result<&str, Error> {
    path.to_str().ok_or_else(|| format!("{}: the path is not UTF-8", path.display()).into())
}

/// Starts a program that serves a mount in the foreground, and waits until it is there.
fn serve(name: &'static str, program: &str, args: &[&str], folder: &Path) -> Result<Mounted, Error> {
    let mut process = Command::new(program)
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("{program}: {error}"))?;
    let wanted = format!(" {} fuse", path_text(folder)?);
    for _ in 0..500 {
        if fs::read_to_string("/proc/mounts")?.contains(&wanted) {
            return Ok(Mounted { name, folder: folder.into(), process: Some(process) });
        }
        if let Some(status) = process.try_wait()? {
            return Err(
                format!("{program} {}: it ended with {status} before the mount was there", args.join(" ")).into()
            );
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    process.kill()?;
    Err(format!("{program}: the mount is not there after 10 s").into())
}

/// libfuse's own example of a file system that passes every call through, if the package with its source is there, else bindfs.
fn pass_through(base: &Path, below: &str, folder: &Path) -> Result<Mounted, Error> {
    let (source, program) = ("/usr/share/doc/libfuse3-dev/examples/passthrough_ll.c", base.join("passthrough_ll"));
    let built = path_text(&program)?;
    let flags = ["-O2", "-D_FILE_OFFSET_BITS=64", "-I/usr/include/fuse3", "-o", built, source, "-lfuse3", "-lpthread"];
    if Path::new(source).exists() && command("cc", &flags).is_ok() {
        let options = format!("source={below}");
        return serve("passthrough_ll", built, &["-f", "-o", &options, path_text(folder)?], folder);
    }
    serve("bindfs", "bindfs", &["-f", below, path_text(folder)?], folder)
        .map_err(|error| format!("{error}. Install libfuse3-dev and a C compiler, or bindfs").into())
}

fn mount_all(margay: &str, base: &Path) -> Result<Vec<Mounted>, Error> {
    let folder = |name: &str| -> Result<PathBuf, Error> {
        let folder = base.join(name);
        fs::create_dir_all(&folder)?;
        Ok(folder)
    };
    // What depends on others comes first, so that it is unmounted first.
    let mut mounts = Vec::new();
    // Twice as large, because it holds the files of two.
    let image = base.join("ext4.img");
    File::create(&image)?.set_len(u64::from(2 * IMAGE_MIB) << 20)?;
    command("mkfs.ext4", &["-q", path_text(&image)?])?;
    let ext4 = folder("ext4")?;
    command("mount", &["-o", "loop,noatime", path_text(&image)?, path_text(&ext4)?])?;
    mounts.insert(0, Mounted { name: "ext4", folder: ext4.clone(), process: None });
    let (below, through) = (folder("ext4/below")?, folder("through")?);
    mounts.insert(0, pass_through(base, path_text(&below)?, &through)?);
    let size = format!("{IMAGE_MIB}M");
    let help = Command::new(margay).args(["mount", "--help"]).output().map_err(|error| format!("{margay}: {error}"))?;
    // Builds before 0.1 do not have it.
    let has_write_back = String::from_utf8_lossy(&help.stdout).contains("--write-back");
    let kinds = [("margay --write-back", "kept", &["--write-back"][..]), ("margay", "margay", &[])];
    for (name, folder_name, options) in kinds.into_iter().skip(usize::from(!has_write_back)) {
        let (image, mounted) = (base.join(folder_name).with_extension("img"), folder(folder_name)?);
        command(margay, &["fs", "format", path_text(&image)?, "--size", &size])?;
        let args = [&["mount", path_text(&image)?, path_text(&mounted)?], options].concat();
        mounts.insert(0, serve(name, margay, &args, &mounted)?);
    }
    Ok(mounts)
}

/// Makes the kernel forget what is clean.
fn forget_caches() -> Result<(), Error> {
    command("sync", &[])?;
    fs::write("/proc/sys/vm/drop_caches", "3")
        .map_err(|error| format!("/proc/sys/vm/drop_caches: {error}; be root"))?;
    Ok(())
}

fn write_file(path: &Path, mib: usize, fill: u8) -> Result<(), Error> {
    let mut data = vec![fill; MIB];
    let mut file = File::create(path)?;
    for number in 0..mib {
        data[..8].copy_from_slice(&number.to_le_bytes());
        file.write_all(&data)?;
    }
    Ok(file.sync_all()?)
}

/// The figures of one round, in the order of [`ROWS`].
fn round(folder: &Path, number: usize) -> Result<[f64; ROWS.len()], Error> {
    let (big, small) = (folder.join("big"), folder.join("small"));
    let _ = fs::remove_file(&big);
    let _ = fs::remove_dir_all(&small);
    command("sync", &[])?;
    std::thread::sleep(Duration::from_millis(500));

    let start = Instant::now();
    write_file(&big, FILE_MIB, number as u8)?;
    let write = start.elapsed();

    forget_caches()?;
    let mut data = vec![0; MIB];
    let start = Instant::now();
    let mut file = File::open(&big)?;
    let mut read_bytes = 0;
    loop {
        match file.read(&mut data)? {
            0 => break,
            count => read_bytes += count,
        }
    }
    let read = start.elapsed();
    if read_bytes != FILE_MIB * MIB {
        return Err(format!("{}: {read_bytes} bytes were read", big.display()).into());
    }

    let mut random = Xoshiro256PlusPlus::seed_from_u64(number as u64);
    let file = OpenOptions::new().write(true).open(&big)?;
    let start = Instant::now();
    for _ in 0..RANDOM_WRITES {
        let page = random.next_u64() % (FILE_MIB * MIB / PAGE_BYTES) as u64;
        file.write_all_at(&data[..PAGE_BYTES], page * PAGE_BYTES as u64)?;
    }
    let random_writes = start.elapsed();
    file.sync_all()?;
    let random_synced = start.elapsed();
    drop(file);

    fs::create_dir(&small)?;
    let start = Instant::now();
    for number in 0..SMALL_FILES {
        fs::write(small.join(format!("file-{number}")), &data[..SMALL_BYTES])?;
    }
    let create = start.elapsed();

    forget_caches()?;
    let start = Instant::now();
    let listing = Command::new("ls").arg("-lR").arg(&small).output()?;
    let list = start.elapsed();
    let lines = listing.stdout.iter().filter(|byte| **byte == b'\n').count();
    if lines < SMALL_FILES as usize {
        return Err(format!("{}: ls names {lines} files only", small.display()).into());
    }
    let per_write = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(RANDOM_WRITES);
    Ok([
        write.as_secs_f64(),
        read.as_secs_f64(),
        per_write(random_writes),
        per_write(random_synced),
        create.as_secs_f64(),
        list.as_secs_f64(),
    ])
}

fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("?").to_owned()
}

fn measure(margay: &str) -> Result<(), Error> {
    let base = tempfile::Builder::new().prefix("margay-bench-").tempdir()?;
    let mounts = mount_all(margay, base.path())?;
    let folders: Vec<PathBuf> = mounts
        .iter()
        .map(|mount| if mount.name == "ext4" { mount.folder.join("own") } else { mount.folder.clone() })
        .collect();
    for folder in &folders {
        fs::create_dir_all(folder)?;
        write_file(&folder.join("ballast"), BALLAST_MIB, 7)?;
    }
    let mut results = vec![Vec::new(); mounts.len()];
    let mut loads = vec![load()];
    for number in 0..ROUNDS {
        for (folder, results) in folders.iter().zip(&mut results) {
            results.push(round(folder, number)?);
        }
        loads.push(load());
    }
    println!(
        "images of {IMAGE_MIB} MiB, {} MiB of it in use; median of {ROUNDS} rounds, least to greatest; load before and after each round: {}",
        BALLAST_MIB + FILE_MIB,
        loads.join(" ")
    );
    print!("{:<38}", "");
    mounts.iter().for_each(|mount| print!(" | {:<22}", mount.name));
    println!();
    for (row, title) in ROWS.iter().enumerate() {
        print!("{title:<38}");
        for results in &results {
            let mut figures: Vec<f64> = results.iter().map(|figures| figures[row]).collect();
            figures.sort_by(f64::total_cmp);
            let digits = if title.ends_with("us") { 1 } else { 2 };
            let (median, least, greatest) = (figures[ROUNDS / 2], figures[0], figures[ROUNDS - 1]);
            print!(" | {:<22}", format!("{median:.digits$} ({least:.digits$} to {greatest:.digits$})"));
        }
        println!();
    }
    Ok(())
}

pub fn run(args: &[String]) -> Result<(), String> {
    let beside = std::env::current_exe().map_err(|error| error.to_string())?.with_file_name("margay");
    let margay = args.first().cloned().unwrap_or_else(|| beside.display().to_string());
    measure(&margay).map_err(|error| error.to_string())
}
