//! A mounted file system under attack.

use super::common::{MARGAY, has_fuse, run};
use super::disk::Attack;
use super::shim::Random;
use super::{Bench, seeds};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const FILES: u64 = 6;
const MAX_PAGES: u64 = 12;

struct Mount {
    child: Child,
    folder: PathBuf,
}

impl Mount {
    /// Mounts; `None` if the process ends at once, as it may when a call fails while it opens the image.
    fn new(image: &Path, attack: &Attack, options: &[&str]) -> Option<Self> {
        let folder = image.with_extension("mnt");
        let _ = std::fs::create_dir(&folder);
        let mut command = Command::new(MARGAY);
        command.arg("mount").arg(image).arg(&folder).args(options).stdout(Stdio::null()).stderr(Stdio::null());
        attack.arm(&mut command, image);
        let mut child = command.spawn().unwrap();
        let name = folder.display().to_string();
        let started = Instant::now();
        while !std::fs::read_to_string("/proc/mounts").unwrap().contains(&name) {
            if child.try_wait().unwrap().is_some() {
                return None;
            }
            assert!(started.elapsed() < Duration::from_secs(60), "the mount does not come up");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(Self { child, folder })
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn unmount(mut self) {
        let started = Instant::now();
        // The kernel may still be closing a file.
        while !Command::new("fusermount3").arg("-u").arg(&self.folder).output().unwrap().status.success() {
            assert!(started.elapsed() < Duration::from_secs(60), "{} cannot be unmounted", self.folder.display());
            std::thread::sleep(Duration::from_millis(20));
        }
        self.child.wait().unwrap();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = Command::new("fusermount3").arg("-uz").arg(&self.folder).output();
    }
}

/// What a program knows of one file: everything that it tried to write since the last fsync that succeeded, that first.
struct Known {
    versions: Vec<Vec<u8>>,
    /// The last thing it tried failed, so that the file may be anything of these: it is written whole the next time.
    is_unsure: bool,
}

fn name(file: u64) -> String {
    format!("file-{file}")
}

/// Writes a part of a file, or makes it longer, and syncs it.
fn write_and_sync(folder: &Path, file: u64, at: u64, data: &[u8]) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(folder.join(name(file)))?;
    file.write_all_at(data, at)?;
    file.sync_all()
}

/// Writes to files, and syncs each. A program that has an error writes the whole file again, `retries` times.
fn use_files(folder: &Path, files: &mut [Known], steps: u32, retries: u32, random: &mut Random) {
    for step in 0..steps {
        let file = random.below(FILES);
        let known = &mut files[file as usize];
        let page = random.below(MAX_PAGES);
        let data: Vec<u8> =
            (0..PAGE * (1 + random.below(6) as usize)).map(|i| (step as usize * 31 + i / 7) as u8 | 1).collect();
        let mut content = known.versions.last().unwrap().clone();
        let at = page as usize * PAGE;
        content.resize(content.len().max(at + data.len()), 0);
        content[at..at + data.len()].copy_from_slice(&data);
        known.versions.push(content.clone());
        let mut result = match known.is_unsure {
            true => write_and_sync(folder, file, 0, &content),
            false => write_and_sync(folder, file, at as u64, &data),
        };
        for _ in 0..retries {
            if result.is_ok() {
                break;
            }
            result = write_and_sync(folder, file, 0, &content);
        }
        known.is_unsure = result.is_err();
        if result.is_ok() {
            known.versions.drain(..known.versions.len() - 1);
        }
    }
}

/// Compares every file.
fn check(folder: &Path, files: &[Known], what: &str) {
    for (file, known) in (0..).zip(files) {
        let path = folder.join(name(file));
        let content = match File::open(&path) {
            Ok(_) => {
                std::fs::read(&path).unwrap_or_else(|error| panic!("{what}: {} cannot be read: {error}", name(file)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => panic!("{what}: {} cannot be opened: {error}", name(file)),
        };
        let sizes: Vec<_> = known.versions.iter().map(Vec::len).collect();
        assert!(
            sizes.contains(&content.len()),
            "{what}: {} has {} bytes, not one of {sizes:?}",
            name(file),
            content.len()
        );
        for (page, bytes) in content.chunks(PAGE).enumerate() {
            let same = |version: &&Vec<u8>| {
                (0..bytes.len()).all(|i| version.get(page * PAGE + i).copied().unwrap_or(0) == bytes[i])
            };
            let is_zero = bytes.iter().all(|byte| *byte == 0);
            assert!(
                known.versions.iter().any(|version| same(&version)),
                "{what}: page {page} of {} holds what it never held{}",
                name(file),
                if is_zero { ": zeros" } else { "" }
            );
        }
    }
}

#[test]
fn synced_files_survive_a_write_that_fails_for_a_moment() {
    if !has_fuse() {
        return;
    }
    let Some(bench) = Bench::new() else { return };
    for seed in seeds(6) {
        let mut random = Random::new(seed ^ 0xF11E);
        let image = bench.path("files.img");
        let _ = std::fs::remove_file(&image);
        let options: &[&str] = if seed % 3 == 2 { &["--nor"] } else { &[] };
        let format = ["fs", "format", image.to_str().unwrap(), "--size", "4M", "--pages-per-segment", "16"];
        run(MARGAY, &[&format[..], options].concat());
        let mut files: Vec<_> = (0..FILES).map(|_| Known { versions: vec![Vec::new()], is_unsure: false }).collect();
        let burst = [1, 1, 2, 5][random.below(4) as usize];
        let (errno, effect) = ([28, 5][random.below(2) as usize], ["none", "half", "all"][random.below(3) as usize]);
        let fail = format!("write {} {burst} {errno} {effect}", random.below(250));
        let what = format!("trial {seed}, {fail}");
        let attack = bench.attack(Some(fail));
        let retries = [0, 3][random.below(2) as usize];
        let options: &[&str] = if seed % 2 == 1 { &["--write-back"] } else { &[] };
        let what = format!("{what} {options:?}");
        if let Some(mount) = Mount::new(&image, &attack, options) {
            use_files(&mount.folder, &mut files, 120, retries, &mut random);
            if random.below(2) == 0 { mount.kill() } else { mount.unmount() }
        }
        let _ = Command::new("fusermount3").arg("-uz").arg(image.with_extension("mnt")).output();
        let mount = Mount::new(&image, &Attack::default(), &[]).unwrap_or_else(|| panic!("{what}: it is not mounted"));
        check(&mount.folder, &files, &what);
        mount.unmount();
    }
}
