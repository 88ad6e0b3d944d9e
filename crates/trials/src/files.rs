//! Power cuts under a file system.

use crate::enumerate::{Cuts, Device, TrialTarget, enumerate};
use crate::power::is_power_lost;
use crate::setup::store_options;
use crate::{Chip, Tally};
use margay_flash::{Flash, FlashError, Geometry};
use margay_fs::{AllocatorSpec, FsError, Kind, NewObject, ROOT, RenameFlags};
use margay_log::LogError;
use margay_media::{Faults, PowerCut, RamFlash, Strict};
use margay_volume::{Files, FilesFormatOptions, FilesOpenOptions, VolumeError, format_files, open_files};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;

/// Bits that the ECC of the trials corrects.
const ECC_BITS: u32 = 4;
/// Bytes of a page of the device.
const PAGE_BYTES: usize = 512;

/// Cuts the power at every `stride`-th program and erase of a script of file operations, in every way, and for every
/// `second_stride`-th of these at every operation of the recovery. After each, the names must be those after some
/// operation since the last sync, with what was synced by then, and every page of every file must hold what it held
/// at some time since it was synced.
pub fn file_power_cuts(
    chip: Chip,
    allocator: AllocatorSpec,
    seed: u64,
    len: usize,
    stride: u64,
    second_stride: u64,
) -> Tally {
    let subject = Trial { setup: Setup::new(chip, allocator), seed, len };
    enumerate(&subject, Cuts { seed, stride, second_stride })
}

struct Setup {
    chip: Chip,
    allocator: AllocatorSpec,
    geometry: Geometry,
}

type FileSystem<'d, D> = Files<&'d mut D>;

impl Setup {
    fn new(chip: Chip, allocator: AllocatorSpec) -> Self {
        Self { chip, allocator, geometry: chip.geometry(22, 8) }
    }

    fn format<'d, D: Flash>(&self, device: &'d mut D) -> Result<FileSystem<'d, D>, VolumeError> {
        let store = store_options("greedy", "none");
        format_files(device, &FilesFormatOptions { store, allocator: self.allocator })
    }

    fn mount<'d, D: Flash>(&self, device: &'d mut D) -> Result<FileSystem<'d, D>, VolumeError> {
        let opened = open_files(device, &FilesOpenOptions::default())?;
        if let Some(problem) = opened.problems.first() {
            panic!("the mount found a problem: {problem}");
        }
        Ok(opened.files)
    }
}

const LOST: FsError = FsError::Log(LogError::Flash(FlashError::PowerLost));

/// What a program does with files. Directories and names by number; directory 0 is the root, the others are in it.
#[derive(Clone, Copy, Debug)]
enum Step {
    Create(u8, u8),
    Mkdir(u8),
    Write(u8, u8, u32, u32),
    Append(u8, u8, u32),
    Truncate(u8, u8, u32),
    Unlink(u8, u8),
    Rmdir(u8),
    Rename(u8, u8, u8, u8),
    RenameDirectory(u8, u8),
    Link(u8, u8, u8, u8),
    Fsync(u8, u8),
    Sync,
    Idle,
}

fn script(len: usize, seed: u64) -> Vec<Step> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut below = |limit: u32| (random.next_u64() % u64::from(limit)) as u32;
    (0..len)
        .map(|_| {
            let (d, n, e, m) = (below(3) as u8, below(4) as u8, below(3) as u8, below(4) as u8);
            match below(100) {
                0..14 => Step::Create(d, n),
                14..19 => Step::Mkdir(d),
                19..40 => Step::Write(d, n, below(6), 1 + below(3)),
                40..52 => Step::Append(d, n, 1 + below(900)),
                52..58 => Step::Truncate(d, n, below(3000)),
                58..66 => Step::Unlink(d, n),
                66..69 => Step::Rmdir(d),
                69..80 => Step::Rename(d, n, e, m),
                80..83 => Step::RenameDirectory(d, e),
                83..88 => Step::Link(d, n, e, m),
                88..94 => Step::Fsync(d, n),
                94..97 => Step::Sync,
                _ => Step::Idle,
            }
        })
        .collect()
}

/// Names with what they stand for: the user number that each object was made with, and whether it is a directory.
type Tree = BTreeMap<Vec<u8>, (bool, u32)>;

/// What the device may hold.
#[derive(Clone, Debug, Default)]
struct Oracle {
    /// The names after each operation since those that are durable, with the operation's number.
    trees: Vec<(u64, Tree)>,
    /// By file, what it held since what is durable.
    files: BTreeMap<u32, Vec<Vec<u8>>>,
    /// By file, the operation that named it last.
    named: BTreeMap<u32, u64>,
    operations: u64,
    next_id: u32,
}

fn path(d: u8, n: u8) -> Vec<u8> {
    let mut path = if d == 0 { Vec::new() } else { vec![b'/', b'C' + d] };
    path.extend([b'/', b'a' + n]);
    // Long enough to move headers between pages.
    if n == 3 {
        path.extend([b'x'; 150]);
    }
    path
}

fn directory(d: u8) -> Vec<u8> {
    vec![b'/', b'C' + d]
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let at = path.iter().rposition(|byte| *byte == b'/').expect("paths are absolute");
    (&path[..at], &path[at + 1..])
}

fn fill(id: u32, operation: u64, len: usize) -> Vec<u8> {
    let start = (u64::from(id) << 32 | operation).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (0..len as u64).map(|i| (start.wrapping_add(i.wrapping_mul(0x1234_5677)) >> 24) as u8 | 1).collect()
}

impl Oracle {
    fn new() -> Self {
        Self { trees: vec![(0, Tree::new())], next_id: 1, ..Self::default() }
    }

    fn tree(&self) -> &Tree {
        &self.trees.last().expect("there is always one").1
    }

    fn file(&self, path: &[u8]) -> Option<u32> {
        self.tree().get(path).filter(|(is_directory, _)| !is_directory).map(|(_, id)| *id)
    }

    fn content(&self, id: u32) -> &Vec<u8> {
        self.files[&id].last().expect("there is always one")
    }

    /// Names are going to be so.
    fn attempt(&mut self, tree: Tree) {
        self.operations += 1;
        self.trees.push((self.operations, tree));
    }

    fn all_durable(&mut self) {
        self.trees.drain(..self.trees.len() - 1);
        self.files.values_mut().for_each(|versions| drop(versions.drain(..versions.len() - 1)));
    }

    fn file_durable(&mut self, id: u32) {
        let since = self.named.get(&id).copied().unwrap_or(0);
        self.trees.retain(|(operation, _)| *operation >= since);
        let versions = self.files.get_mut(&id).expect("files that are synced are known");
        versions.drain(..versions.len() - 1);
    }

    /// Compares, and takes what is there for what must be there from now on.
    fn check(&mut self, fs: &mut FileSystem<'_, impl Flash>) -> Result<(), String> {
        let mut tree = Tree::new();
        let mut objects = BTreeMap::new();
        let mut directories = vec![(Vec::new(), ROOT)];
        while let Some((prefix, object)) = directories.pop() {
            for (name, attributes) in fs.list(object).map_err(|error| error.to_string())? {
                let mut path = prefix.clone();
                path.push(b'/');
                path.extend_from_slice(&name);
                let is_directory = attributes.kind == Kind::Directory;
                tree.insert(path.clone(), (is_directory, attributes.uid));
                if is_directory {
                    directories.push((path, attributes.object));
                } else {
                    objects.insert(attributes.uid, attributes.object);
                }
            }
        }
        let Some(at) = self.trees.iter().rposition(|(_, allowed)| *allowed == tree) else {
            let show = |tree: &Tree| {
                let names = tree.iter().map(|(path, (_, id))| format!("{}={id}", String::from_utf8_lossy(path)));
                names.collect::<Vec<_>>().join(" ")
            };
            let allowed: Vec<_> = self.trees.iter().map(|(_, tree)| format!("[{}]", show(tree))).collect();
            return Err(format!("names are [{}], allowed are {}", show(&tree), allowed.join(", ")));
        };
        self.trees = vec![self.trees.swap_remove(at)];
        let mut files = BTreeMap::new();
        for (id, object) in objects {
            let versions = &self.files[&id];
            let size = fs.attributes(object).map_err(|error| error.to_string())?.size as usize;
            let mut data = vec![0; size];
            fs.read(object, 0, &mut data).map_err(|error| format!("file {id} cannot be read: {error}"))?;
            if !versions.iter().any(|version| version.len() == size) {
                let sizes: Vec<_> = versions.iter().map(Vec::len).collect();
                return Err(format!("file {id} has {size} bytes, allowed are {sizes:?}"));
            }
            for (chunk, bytes) in data.chunks(PAGE_BYTES).enumerate() {
                let same = |version: &Vec<u8>| {
                    (0..bytes.len()).all(|i| version.get(chunk * PAGE_BYTES + i).copied().unwrap_or(0) == bytes[i])
                };
                if !versions.iter().any(same) {
                    return Err(format!("chunk {chunk} of file {id} holds what it never held"));
                }
            }
            files.insert(id, vec![data]);
        }
        self.files = files;
        Ok(())
    }
}

/// Carries out steps, and tells the oracle.
fn run(fs: &mut FileSystem<'_, impl Flash>, oracle: &mut Oracle, steps: &[Step]) -> Result<(), FsError> {
    for step in steps {
        oracle.operations += 1;
        match apply(fs, oracle, *step) {
            // Refused: nothing may have changed.
            Ok(()) | Err(FsError::NoSpace) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn object(fs: &FileSystem<'_, impl Flash>, path: &[u8]) -> u32 {
    fs.resolve(path).expect("the oracle knows the names").object
}

fn apply(fs: &mut FileSystem<'_, impl Flash>, oracle: &mut Oracle, step: Step) -> Result<(), FsError> {
    let mut tree = oracle.tree().clone();
    let has_parent = |tree: &Tree, path: &[u8]| split(path).0.is_empty() || tree.contains_key(split(path).0);
    match step {
        Step::Create(..) | Step::Mkdir(_) => {
            let (path, is_directory) = match step {
                Step::Create(d, n) => (path(d, n), false),
                Step::Mkdir(d) => (directory(d), true),
                _ => unreachable!(),
            };
            if tree.contains_key(&path) || !has_parent(&tree, &path) {
                return Ok(());
            }
            let id = oracle.next_id;
            oracle.next_id += 1;
            let (parent, name) = split(&path);
            let parent = object(fs, parent);
            let kind = if is_directory { Kind::Directory } else { Kind::File };
            tree.insert(path.clone(), (is_directory, id));
            let before = oracle.trees.len();
            oracle.attempt(tree);
            oracle.named.insert(id, oracle.operations);
            oracle.files.insert(id, vec![Vec::new()]);
            let result = fs.create(parent, name, &NewObject { kind, uid: id, ..NewObject::FILE });
            if result == Err(FsError::NoSpace) {
                oracle.trees.truncate(before);
            }
            result.map(drop)
        }
        Step::Write(d, n, ..) | Step::Append(d, n, _) => {
            let path = path(d, n);
            let Some(id) = oracle.file(&path) else { return Ok(()) };
            let mut content = oracle.content(id).clone();
            let (at, len) = match step {
                Step::Write(_, _, chunk, count) => (chunk as usize * PAGE_BYTES, count as usize * PAGE_BYTES),
                Step::Append(_, _, len) => (content.len(), len as usize),
                _ => unreachable!(),
            };
            let object = object(fs, &path);
            let data = fill(id, oracle.operations, len);
            // Page by page: each is there or not.
            let mut done = 0;
            while done < len {
                let count = (PAGE_BYTES - (at + done) % PAGE_BYTES).min(len - done);
                let end = at + done + count;
                content.resize(content.len().max(end), 0);
                content[at + done..end].copy_from_slice(&data[done..done + count]);
                oracle.files.get_mut(&id).expect("known").push(content.clone());
                match fs.write(object, (at + done) as u64, &data[done..done + count]) {
                    Ok(_) => {}
                    Err(FsError::NoSpace) => {
                        oracle.files.get_mut(&id).expect("known").pop();
                        return Ok(());
                    }
                    Err(error) => return Err(error),
                }
                done += count;
            }
            fs.close(object)
        }
        Step::Truncate(d, n, size) => {
            let path = path(d, n);
            let Some(id) = oracle.file(&path) else { return Ok(()) };
            let mut content = oracle.content(id).clone();
            content.resize(size as usize, 0);
            oracle.files.get_mut(&id).expect("known").push(content);
            let object = object(fs, &path);
            let result = fs.truncate(object, size.into());
            if result == Err(FsError::NoSpace) {
                oracle.files.get_mut(&id).expect("known").pop();
            }
            result
        }
        Step::Unlink(d, n) => {
            let path = path(d, n);
            if tree.remove(&path).is_none() {
                return Ok(());
            }
            oracle.attempt(tree);
            let (parent, name) = split(&path);
            fs.unlink(object(fs, parent), name)
        }
        Step::Rmdir(d) => {
            let path = directory(d);
            let inside = [path.as_slice(), b"/"].concat();
            if !tree.contains_key(&path) || tree.keys().any(|other| other.starts_with(&inside)) {
                return Ok(());
            }
            tree.remove(&path);
            oracle.attempt(tree);
            fs.rmdir(ROOT, &path[1..])
        }
        Step::Rename(d, n, e, m) => {
            let (from, to) = (path(d, n), path(e, m));
            let Some(id) = oracle.file(&from) else { return Ok(()) };
            if !has_parent(&tree, &to) || oracle.file(&to) == Some(id) {
                return Ok(());
            }
            let entry = tree.remove(&from).expect("it is there");
            tree.insert(to.clone(), entry);
            rename(fs, oracle, tree, id, &from, &to)
        }
        Step::RenameDirectory(d, e) => {
            let (from, to) = (directory(d), directory(e));
            let Some((_, id)) = tree.get(&from).copied() else { return Ok(()) };
            if tree.contains_key(&to) {
                return Ok(());
            }
            let moved: Vec<_> = tree.keys().filter(|path| path.starts_with(&from)).cloned().collect();
            for old in moved {
                let entry = tree.remove(&old).expect("it is there");
                tree.insert([&to, &old[from.len()..]].concat(), entry);
            }
            rename(fs, oracle, tree, id, &from, &to)
        }
        Step::Link(d, n, e, m) => {
            let (from, to) = (path(d, n), path(e, m));
            let Some(id) = oracle.file(&from) else { return Ok(()) };
            if tree.contains_key(&to) || !has_parent(&tree, &to) {
                return Ok(());
            }
            tree.insert(to.clone(), (false, id));
            let before = oracle.trees.len();
            oracle.attempt(tree);
            let (parent, name) = split(&to);
            let result = fs.link(object(fs, &from), object(fs, parent), name);
            if result == Err(FsError::NoSpace) {
                oracle.trees.truncate(before);
            }
            result.map(drop)
        }
        Step::Fsync(d, n) => {
            let path = path(d, n);
            let Some(id) = oracle.file(&path) else { return Ok(()) };
            fs.fsync(object(fs, &path), false)?;
            oracle.file_durable(id);
            Ok(())
        }
        Step::Sync => {
            fs.sync()?;
            oracle.all_durable();
            Ok(())
        }
        Step::Idle => {
            while fs.idle_step(3)? {}
            Ok(())
        }
    }
}

fn rename(
    fs: &mut FileSystem<'_, impl Flash>,
    oracle: &mut Oracle,
    tree: Tree,
    id: u32,
    from: &[u8],
    to: &[u8],
) -> Result<(), FsError> {
    let before = oracle.trees.len();
    let named = oracle.named.get(&id).copied();
    oracle.attempt(tree);
    oracle.named.insert(id, oracle.operations);
    let ((from, name), (to, new)) = (split(from), split(to));
    let result = fs.rename(object(fs, from), name, object(fs, to), new, RenameFlags::default());
    if result == Err(FsError::NoSpace) {
        oracle.trees.truncate(before);
        oracle.named.extend(named.map(|named| (id, named)));
    }
    result
}

struct Trial {
    setup: Setup,
    seed: u64,
    len: usize,
}

impl Trial {
    fn mounted<'d>(&self, device: &'d mut Device) -> Result<Option<FileSystem<'d, Device>>, String> {
        match self.setup.mount(device) {
            Ok(fs) => Ok(Some(fs)),
            Err(error) if is_power_lost(&error) => Ok(None),
            Err(error) => Err(format!("mount: {error}")),
        }
    }
}

impl TrialTarget for Trial {
    type Oracle = Oracle;

    fn name(&self) -> String {
        format!("files, {:?} {}", self.setup.chip, self.setup.allocator)
    }

    fn base(&self, clean: bool) -> (Device, Oracle) {
        let setup = &self.setup;
        let mut device = PowerCut::new(Strict::new(RamFlash::new(setup.geometry)));
        let mut oracle = Oracle::new();
        let mut fs = setup.format(&mut device).expect("format");
        let mut steps = script(400, self.seed ^ 0xBA5E);
        steps.push(Step::Sync);
        run(&mut fs, &mut oracle, &steps).expect("filling");
        if clean {
            fs.stop().expect("stop");
        }
        drop(fs);
        device.power_on();
        (device, oracle)
    }

    fn run(&self, device: &mut Device, oracle: &mut Oracle) -> Result<bool, String> {
        let Some(mut fs) = self.mounted(device)? else { return Ok(false) };
        let steps = script(self.len, self.seed);
        match run(&mut fs, oracle, &steps).and_then(|()| fs.stop()) {
            Ok(_) => Ok(true),
            Err(LOST) => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    fn mount(&self, device: &mut Device) -> Result<bool, String> {
        let lasted = self.mounted(device)?.is_some();
        Ok(lasted && !device.is_off())
    }

    fn recover(&self, mut device: Device, mut oracle: Oracle) -> Result<(), String> {
        let on = "the power is on and was lost";
        let Some(mut fs) = self.mounted(&mut device)? else { return Err(on.into()) };
        oracle.check(&mut fs).map_err(|error| format!("after recovery, {error}"))?;
        fs.audit().map_err(|error| format!("after recovery, {error}"))?;
        let more = script(150, self.seed ^ 0x0DD);
        run(&mut fs, &mut oracle, &more).map_err(|error| format!("going on: {error}"))?;
        fs.audit().map_err(|error| format!("after going on, {error}"))?;
        fs.sync().map_err(|error| format!("the last sync: {error}"))?;
        oracle.all_durable();
        oracle.check(&mut fs).map_err(|error| format!("after going on, {error}"))?;
        drop(fs);
        device.power_on();
        let Some(mut fs) = self.mounted(&mut device)? else { return Err(on.into()) };
        oracle.check(&mut fs).map_err(|error| format!("after the second mount, {error}"))
    }
}

/// Lets every `stride`-th program and erase of a script of file operations fail, and a second one soon after: the file
/// system must go on, and hold everything after a clean stop and without one.
pub fn file_bad_segments(chip: Chip, allocator: AllocatorSpec, seed: u64, len: usize, stride: u64) -> Tally {
    let setup = Setup::new(chip, allocator);
    let mut tally = Tally::default();
    let (programs, erases) = match bad_segments_trial(&setup, seed, len, |_| {}) {
        Ok(operations) => operations,
        Err(error) => {
            tally.count(Err(error), || format!("files, {chip:?} {allocator} without a fault"));
            return tally;
        }
    };
    for second in [0, 1, 5] {
        for (kind, count, stride) in [("program", programs, stride), ("erase", erases, stride.div_ceil(4))] {
            for at in (0..count).step_by(stride as usize) {
                let result = bad_segments_trial(&setup, seed, len, |device| {
                    let fail = if kind == "program" { Chips::fail_program } else { Chips::fail_erase };
                    fail(device, at);
                    fail(device, at + second);
                });
                let name = || format!("files, {chip:?} {allocator} {kind} {at} fails, and one {second} later");
                tally.count(result.map(drop), name);
            }
        }
    }
    tally
}

type Chips = Faults<Strict<RamFlash>>;

fn bad_segments_trial(setup: &Setup, seed: u64, len: usize, fail: impl Fn(&mut Chips)) -> Result<(u64, u64), String> {
    let mut device: Chips = Faults::new(Strict::new(RamFlash::new(setup.geometry)), ECC_BITS);
    fail(&mut device);
    let mut oracle = Oracle::new();
    let text = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
    let mut fs = setup.format(&mut device).map_err(|error| text("format", &error))?;
    for (round, what) in ["after the format", "after a clean stop", "without a stop"].into_iter().enumerate() {
        if round > 0 {
            fs = setup.mount(&mut device).map_err(|error| text(what, &error))?;
            oracle.check(&mut fs).map_err(|error| text(what, &error))?;
        }
        run(&mut fs, &mut oracle, &script(len, seed + round as u64)).map_err(|error| text(what, &error))?;
        fs.sync().map_err(|error| text(what, &error))?;
        fs.audit().map_err(|error| text(what, &error))?;
        oracle.all_durable();
        oracle.check(&mut fs).map_err(|error| text(what, &error))?;
        if round == 0 {
            fs.stop().map_err(|error| text(what, &error))?;
        }
    }
    drop(fs);
    Ok(device.operations())
}

/// Flips as many bits as the ECC corrects in every page of every file: they must be read, and be rewritten in idle time.
/// Then one bit more in one page after the other: that page must be an error, and every other must be read.
pub fn file_bit_errors(chip: Chip, allocator: AllocatorSpec, seed: u64) -> Tally {
    let setup = Setup::new(chip, allocator);
    let mut tally = Tally::default();
    let name = |what: String| move || format!("files, {chip:?} {allocator} {what}");
    if let Err(error) = bit_errors_trials(&setup, seed, &mut |what, result| tally.count(result, name(what))) {
        tally.count(Err(error), name("setup".into()));
    }
    tally
}

fn bit_errors_trials(
    setup: &Setup,
    seed: u64,
    count: &mut dyn FnMut(String, Result<(), String>),
) -> Result<(), String> {
    let text = |error: FsError| error.to_string();
    let mut device: Chips = Faults::new(Strict::new(RamFlash::new(setup.geometry)), ECC_BITS);
    let mut oracle = Oracle::new();
    let mut fs = setup.format(&mut device).map_err(|error| error.to_string())?;
    run(&mut fs, &mut oracle, &script(200, seed)).and_then(|()| fs.sync()).map_err(text)?;
    let files: Vec<(u32, u32)> = oracle
        .tree()
        .iter()
        .filter(|(_, (is_directory, _))| !is_directory)
        .map(|(path, (_, id))| (object(&fs, path), *id))
        .collect();
    let mut page = [0; PAGE_BYTES];
    for (file, id) in &files {
        let content = oracle.content(*id).clone();
        for (chunk, bytes) in (0..).zip(content.chunks(PAGE_BYTES)) {
            let Some(ppn) = fs.place(*file, chunk) else { continue };
            let at = u64::from(chunk) * PAGE_BYTES as u64;
            fs.device_mut().device_mut().flip_bits(setup.chip.data_page(ppn), ECC_BITS);
            let read = fs.read(*file, at, &mut page).map_err(text);
            let whole = read.and_then(|len| if page[..len] == *bytes { Ok(()) } else { Err("other bytes".into()) });
            let mut result = whole;
            while result.is_ok() && fs.place(*file, chunk) == Some(ppn) {
                match fs.idle_step(8) {
                    Ok(true) => {}
                    Ok(false) => result = Err("the page was not rewritten".into()),
                    Err(error) => result = Err(text(error)),
                }
            }
            count(format!("chunk {chunk} of {id}, corrected"), result);
            let Some(ppn) = fs.place(*file, chunk) else { continue };
            fs.device_mut().device_mut().flip_bits(setup.chip.data_page(ppn), ECC_BITS + 1);
            let lost = match fs.read(*file, at, &mut page) {
                Err(FsError::Log(LogError::Flash(FlashError::Uncorrectable { .. }))) => Ok(()),
                other => Err(format!("reading gave {other:?}")),
            };
            count(format!("chunk {chunk} of {id}, lost"), lost);
            // Writing it anew makes it whole.
            let mut whole = bytes.to_vec();
            whole.resize(PAGE_BYTES.min(content.len() - at as usize), 0);
            fs.device_mut().device_mut().flip_bits(setup.chip.data_page(ppn), 0);
            fs.write(*file, at, &whole).and_then(|_| fs.close(*file)).map_err(text)?;
        }
    }
    oracle.all_durable();
    fs.sync().map_err(text)?;
    count("everything after that".into(), oracle.check(&mut fs));
    count("audit".into(), fs.audit().map_err(|error| error.to_string()));
    Ok(())
}
