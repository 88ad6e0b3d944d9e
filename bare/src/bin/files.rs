//! A file system on a chip: files are made, overwritten, renamed and removed; stopped and mounted, cut off and mounted,
//! and read each time.
#![no_std]
#![no_main]
extern crate alloc;

use alloc::string::String;
use alloc::{format, vec};
use margay_bare::chip::{self, Chip};
use margay_bare::{Random, Row, text};
use margay_flash::Flash;
use margay_format::{ClientKind, Formatted, Layout};
use margay_fs::{FoundFs, Fs, NewObject, ROOT, RenameFlags, find, owners};
use margay_micro::{config, policies, superblock};

margay_bare::entry!(run);

/// Directories, and files in each for a MiB of the chip.
const DIRECTORIES: u32 = 8;
const FILES: u32 = 8;
const FILE_BYTES: usize = 6000;

type Files<'a, 'b> = Fs<Formatted<&'a mut Chip<'b>>>;

fn format<'a, 'b>(chip: &'a mut Chip<'b>) -> Result<Files<'a, 'b>, String> {
    let geometry = *chip.geometry();
    let config = config(&Layout::new(&geometry, owners()).map_err(text)?);
    let limit_pages = config.limit_pages(&geometry, 1).map_err(text)?;
    let superblock = superblock(&geometry, ClientKind::FileSystem, limit_pages, *b"margay-bare-demo");
    let store = Formatted::new(chip, owners(), superblock.encode().map_err(text)?).map_err(text)?;
    Fs::format(store, &superblock, config, policies(&superblock, &config)).map_err(text)
}

/// Fails unless it is mounted from a checkpoint, or by looking into every segment, as it should be.
fn mount<'a, 'b>(chip: &'a mut Chip<'b>, from_checkpoint: bool) -> Result<Files<'a, 'b>, String> {
    let superblock = find(chip).map_err(text)?;
    let config = config(&Layout::new(&superblock.geometry, owners()).map_err(text)?);
    let mut store = Formatted::new(chip, owners(), superblock.encode().map_err(text)?).map_err(text)?;
    let found = FoundFs::load(&mut store, &superblock, true).map_err(text)?;
    if found.report.from_checkpoint != from_checkpoint || !found.problems.is_empty() {
        let problems = found.problems.len();
        return Err(format!("mounted from a checkpoint: {}, with {problems} problems", found.report.from_checkpoint));
    }
    Fs::mount(store, &superblock, config, policies(&superblock, &config), found, false).map_err(text)
}

fn content(file: u32, version: u16) -> [u8; FILE_BYTES] {
    let mut bytes = [0; FILE_BYTES];
    Random::new(file << 16 ^ u32::from(version)).fill(&mut bytes);
    bytes
}

fn path(file: u32) -> String {
    format!("directory-{}/file-{file}", file % DIRECTORIES)
}

/// Writes each file anew under another name and renames it over the old one, as editors do.
fn save_all(fs: &mut Files<'_, '_>, versions: &mut [u16]) -> Result<(), String> {
    for (file, version) in (0..).zip(versions) {
        *version += 1;
        let directory = fs.resolve(format!("directory-{}", file % DIRECTORIES).as_bytes()).map_err(text)?.object;
        let new = fs.create(directory, b"new", &NewObject::FILE).map_err(text)?.object;
        fs.open(new).map_err(text)?;
        fs.write(new, 0, &content(file, *version)).map_err(text)?;
        fs.close(new).map_err(text)?;
        let name = format!("file-{file}");
        fs.rename(directory, b"new", directory, name.as_bytes(), RenameFlags::default()).map_err(text)?;
    }
    fs.sync().map_err(text)
}

fn check(fs: &mut Files<'_, '_>, versions: &[u16]) -> Result<(), String> {
    let mut bytes = [0; FILE_BYTES + 1];
    for (file, version) in (0..).zip(versions) {
        let object = fs.resolve(path(file).as_bytes()).map_err(text)?.object;
        let len = fs.read(object, 0, &mut bytes).map_err(text)?;
        if bytes[..len] != content(file, *version) {
            return Err(format!("{} does not hold its version {version}", path(file)));
        }
    }
    let names = fs.list(ROOT).map_err(text)?.len();
    if names != DIRECTORIES as usize {
        return Err(format!("{names} names in the root directory, expected {DIRECTORIES}"));
    }
    fs.audit().map_err(text)
}

fn run() -> Result<(), String> {
    let memory = chip::take().expect("nobody else asks for the memory");
    for mib in [1, 16] {
        let chip = &mut Chip::new(memory, mib);
        let mut versions = vec![0; (DIRECTORIES * FILES * mib) as usize];
        let mut row = Row::start();
        let mut fs = format(chip)?;
        for directory in 0..DIRECTORIES {
            let name = format!("directory-{directory}");
            fs.create(ROOT, name.as_bytes(), &NewObject::DIRECTORY).map_err(text)?;
        }
        for _ in 0..4 {
            save_all(&mut fs, &mut versions)?;
            check(&mut fs, &versions)?;
        }
        row.end(0);
        fs.stop().map_err(text)?;
        row.end(1);
        drop(fs);
        let mut fs = mount(chip, true)?;
        row.end(2);
        check(&mut fs, &versions)?;
        save_all(&mut fs, &mut versions)?;
        // The power is cut.
        drop(fs);
        row.end(3);
        let mut fs = mount(chip, false)?;
        row.end(3);
        check(&mut fs, &versions)?;
        row.print("files", mib);
    }
    Ok(())
}
