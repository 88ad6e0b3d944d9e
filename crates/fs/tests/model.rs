//! The file system does what a tree of maps does, over remounts.

use margay_flash::Geometry;
use margay_format::{ClientKind, Formatted, Layout, Superblock};
use margay_fs::{
    AllocatorSpec, Attributes, Change, FoundFs, Fs, FsCheck, FsError, NewObject, ObjectKind, ROOT, RenameFlags, Time,
    owners,
};
use margay_log::{Config, Policies};
use margay_media::{RamFlash, Strict};
use margay_policy::{SelectionSpec, Sizing};
use proptest::prelude::*;
use std::collections::BTreeMap;

type Device = Strict<RamFlash>;
type TestFs = Fs<Formatted<Device>>;

struct Setup {
    config: Config,
    superblock: Superblock,
    allocator: AllocatorSpec,
}

impl Setup {
    fn new(geometry: Geometry, allocator: AllocatorSpec) -> Self {
        let layout = Layout::new(&geometry, owners()).unwrap();
        let config = Config {
            header_pages: layout.header_pages,
            reserved_segments: layout.reserved_segments,
            max_pages_per_write: 8,
            low_water: 2,
            high_water: 2,
            ..Config::default()
        };
        let exported_pages = config.limit_pages(&geometry, u32::from(allocator.streams()).max(5)).unwrap();
        let superblock = Superblock {
            uuid: [3; 16],
            placement: allocator.to_string(),
            ..Superblock::new(geometry, ClientKind::FileSystem, exported_pages)
        };
        Self { config, superblock, allocator }
    }

    /// As earlier versions formatted: without pages of holes.
    fn of_old(mut self) -> Self {
        self.superblock.incompatible = 0;
        self
    }

    fn device(&self, device: Device) -> Formatted<Device> {
        Formatted::new(device, owners(), self.superblock.encode().unwrap()).unwrap()
    }

    fn policies(&self) -> Policies {
        let (geometry, exported_pages) = (&self.superblock.geometry, self.superblock.exported_pages);
        let data_pages = self.config.data_pages(geometry);
        let sizing = Sizing { segments: geometry.segments(), data_pages, exported_pages, seed: 0 };
        Policies::for_files(SelectionSpec::default(), self.allocator, sizing)
    }

    fn format(&self) -> TestFs {
        let device = self.device(Strict::new(RamFlash::new(self.superblock.geometry)));
        Fs::format(device, &self.superblock, self.config, self.policies()).unwrap()
    }

    fn mount(&self, device: Device) -> TestFs {
        let mut device = self.device(device);
        let found = FoundFs::load(&mut device, &self.superblock, true).unwrap();
        assert_eq!(found.problems, []);
        Fs::mount(device, &self.superblock, self.config, self.policies(), found, false).unwrap()
    }

    fn remount(&self, mut fs: TestFs, clean: bool) -> TestFs {
        if clean {
            fs.stop().unwrap();
        } else {
            fs.sync().unwrap();
        }
        fs.audit().unwrap();
        let mut device = fs.into_device();
        let check = FsCheck::run(&mut device, &self.superblock).unwrap();
        assert_eq!(check.problems, []);
        self.mount(device.into_device())
    }
}

fn nand() -> Geometry {
    Geometry::new(40, 16, 512).unwrap().with_spare(128)
}

#[derive(Clone, Debug)]
enum Op {
    Create(u8, u8),
    Mkdir(u8, u8),
    Write(u8, u8, u32, u16),
    /// Single bytes so far from each other.
    Scatter(u8, u8, u32),
    Punch(u8, u8, u32, u32),
    Truncate(u8, u8, u32),
    Unlink(u8, u8),
    Rmdir(u8, u8),
    Rename(u8, u8, u8, u8),
    Link(u8, u8, u8, u8),
    Attribute(u8, u8, u8),
    Sync,
    Remount(bool),
}

fn op() -> impl Strategy<Value = Op> {
    let place = || (0..4u8, 0..6u8);
    prop_oneof![
        3 => place().prop_map(|(d, n)| Op::Create(d, n)),
        1 => place().prop_map(|(d, n)| Op::Mkdir(d, n)),
        6 => (place(), 0..9000u32, 1..3000u16).prop_map(|((d, n), at, len)| Op::Write(d, n, at, len)),
        2 => (place(), 0..9000u32).prop_map(|((d, n), size)| Op::Truncate(d, n, size)),
        1 => (place(), 500..9000u32).prop_map(|((d, n), step)| Op::Scatter(d, n, step)),
        2 => (place(), 0..30_000u32, 1..20_000u32).prop_map(|((d, n), at, len)| Op::Punch(d, n, at, len)),
        2 => place().prop_map(|(d, n)| Op::Unlink(d, n)),
        1 => place().prop_map(|(d, n)| Op::Rmdir(d, n)),
        3 => (place(), place()).prop_map(|((a, b), (c, d))| Op::Rename(a, b, c, d)),
        2 => (place(), place()).prop_map(|((a, b), (c, d))| Op::Link(a, b, c, d)),
        1 => (place(), any::<u8>()).prop_map(|((d, n), value)| Op::Attribute(d, n, value)),
        1 => Just(Op::Sync),
        1 => any::<bool>().prop_map(Op::Remount),
    ]
}

#[derive(Clone, Debug, PartialEq)]
enum Entry {
    File(usize),
    Directory(usize),
}

type Names = BTreeMap<Vec<u8>, Entry>;
type Extended = BTreeMap<Vec<u8>, Vec<u8>>;

/// Directories by number with the one they are in, 0 is the root; files by number with their attributes.
#[derive(Default)]
struct Model {
    directories: Vec<Option<(Names, usize)>>,
    files: Vec<(Vec<u8>, Extended)>,
}

fn name(n: u8) -> Vec<u8> {
    // One long enough to move headers between pages.
    if n == 5 { vec![b'x'; 200] } else { vec![b'a' + n] }
}

fn fill(seed: u32, len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (seed.wrapping_mul(31).wrapping_add(i * 7) >> 3) as u8 | 1).collect()
}

impl Model {
    /// The `d`-th directory of the model that exists, and its path.
    fn directory(&self, d: u8) -> usize {
        let live: Vec<_> = (0..self.directories.len()).filter(|i| self.directories[*i].is_some()).collect();
        live[usize::from(d) % live.len()]
    }

    fn names(&mut self, directory: usize) -> &mut Names {
        &mut self.directories[directory].as_mut().unwrap().0
    }

    fn is_below(&self, mut directory: usize, ancestor: usize) -> bool {
        loop {
            if directory == ancestor {
                return true;
            }
            if directory == 0 {
                return false;
            }
            directory = self.directories[directory].as_ref().unwrap().1;
        }
    }
}

struct Both {
    model: Model,
    /// Objects of the model's directories and files.
    directories: Vec<u32>,
    files: Vec<u32>,
}

impl Both {
    fn apply(&mut self, fs: &mut TestFs, op: &Op, step: u32) {
        fs.set_time(Time { secs: i64::from(step), nanos: 5 });
        let full = |result: Result<(), FsError>| match result {
            Ok(()) => true,
            Err(FsError::NoSpace) => false,
            Err(error) => panic!("{op:?}: {error}"),
        };
        match *op {
            Op::Create(d, n) | Op::Mkdir(d, n) => {
                let (d, n) = (self.model.directory(d), name(n));
                let is_directory = matches!(op, Op::Mkdir(..));
                let new = if is_directory { NewObject::DIRECTORY } else { NewObject::FILE };
                let result = fs.create(self.directories[d], &n, &new);
                if self.model.names(d).contains_key(&n) {
                    assert_eq!(result, Err(FsError::Exists));
                } else if let Ok(attributes) = result {
                    let entry = if is_directory {
                        self.model.directories.push(Some((BTreeMap::new(), d)));
                        self.directories.push(attributes.object);
                        Entry::Directory(self.directories.len() - 1)
                    } else {
                        self.model.files.push(Default::default());
                        self.files.push(attributes.object);
                        Entry::File(self.files.len() - 1)
                    };
                    self.model.names(d).insert(n, entry);
                } else {
                    assert_eq!(result, Err(FsError::NoSpace));
                }
            }
            Op::Write(d, n, at, len) => {
                let d = self.model.directory(d);
                let Some(Entry::File(file)) = self.model.names(d).get(&name(n)).cloned() else { return };
                self.write(fs, file, at, &fill(step, len.into()));
            }
            Op::Scatter(d, n, distance) => {
                let d = self.model.directory(d);
                let Some(Entry::File(file)) = self.model.names(d).get(&name(n)).cloned() else { return };
                (0..24).for_each(|i| self.write(fs, file, i * distance, &fill(step + i, 1)));
            }
            Op::Punch(d, n, at, len) => {
                let d = self.model.directory(d);
                let Some(Entry::File(file)) = self.model.names(d).get(&name(n)).cloned() else { return };
                let punched = fs.punch_hole(self.files[file], at.into(), len.into());
                if fs.superblock().unwrap().incompatible == 0 && punched == Err(FsError::NoSpace) {
                    return;
                }
                punched.unwrap();
                let content = &mut self.model.files[file].0;
                let (at, end) = ((at as usize).min(content.len()), ((at + len) as usize).min(content.len()));
                content[at..end].fill(0);
            }
            Op::Truncate(d, n, size) => {
                let d = self.model.directory(d);
                let Some(Entry::File(file)) = self.model.names(d).get(&name(n)).cloned() else { return };
                if full(fs.truncate(self.files[file], size.into())) {
                    self.model.files[file].0.resize(size as usize, 0);
                }
            }
            Op::Unlink(d, n) => {
                let (d, n) = (self.model.directory(d), name(n));
                let result = fs.unlink(self.directories[d], &n);
                match self.model.names(d).get(&n) {
                    None => assert_eq!(result, Err(FsError::NotFound)),
                    Some(Entry::Directory(_)) => assert_eq!(result, Err(FsError::IsADirectory)),
                    Some(Entry::File(_)) => {
                        result.unwrap();
                        self.model.names(d).remove(&n);
                    }
                }
            }
            Op::Rmdir(d, n) => {
                let (d, n) = (self.model.directory(d), name(n));
                let result = fs.rmdir(self.directories[d], &n);
                match self.model.names(d).get(&n).cloned() {
                    None => assert_eq!(result, Err(FsError::NotFound)),
                    Some(Entry::File(_)) => assert_eq!(result, Err(FsError::NotADirectory)),
                    Some(Entry::Directory(child)) if !self.model.names(child).is_empty() => {
                        assert_eq!(result, Err(FsError::NotEmpty));
                    }
                    Some(Entry::Directory(child)) => {
                        result.unwrap();
                        self.model.names(d).remove(&n);
                        self.model.directories[child] = None;
                    }
                }
            }
            Op::Rename(d, n, to, new) => self.rename(fs, d, n, to, new),
            Op::Link(d, n, to, new) => {
                let (d, to, n, new) = (self.model.directory(d), self.model.directory(to), name(n), name(new));
                let Some(Entry::File(file)) = self.model.names(d).get(&n).cloned() else { return };
                let result = fs.link(self.files[file], self.directories[to], &new).map(drop);
                let is_new = !self.model.names(to).contains_key(&new);
                assert!(is_new || result == Err(FsError::Exists));
                if is_new && full(result) {
                    self.model.names(to).insert(new, Entry::File(file));
                }
            }
            Op::Attribute(d, n, value) => {
                let d = self.model.directory(d);
                let Some(Entry::File(file)) = self.model.names(d).get(&name(n)).cloned() else { return };
                let key = vec![b'k', value % 3];
                let result = fs.set_attribute(self.files[file], &key, &[value; 20]);
                let is_too_large = result == Err(FsError::AttributeTooLarge);
                if !is_too_large && full(result) {
                    self.model.files[file].1.insert(key, vec![value; 20]);
                }
            }
            Op::Sync => fs.sync().unwrap(),
            Op::Remount(_) => unreachable!("the caller remounts"),
        }
    }

    fn write(&mut self, fs: &mut TestFs, file: usize, at: u32, data: &[u8]) {
        let done = match fs.write(self.files[file], at.into(), data) {
            Ok(done) => done,
            Err(FsError::NoSpace) => 0,
            Err(error) => panic!("{error}"),
        };
        if done > 0 {
            let content = &mut self.model.files[file].0;
            content.resize(content.len().max(at as usize + done), 0);
            content[at as usize..at as usize + done].copy_from_slice(&data[..done]);
        }
    }

    fn rename(&mut self, fs: &mut TestFs, d: u8, n: u8, to: u8, new: u8) {
        let (d, to, n, new) = (self.model.directory(d), self.model.directory(to), name(n), name(new));
        let result = fs.rename(self.directories[d], &n, self.directories[to], &new, RenameFlags::default());
        let Some(entry) = self.model.names(d).get(&n).cloned() else {
            assert_eq!(result, Err(FsError::NotFound));
            return;
        };
        let over = self.model.names(to).get(&new).cloned();
        let into_itself = matches!(entry, Entry::Directory(child) if self.model.is_below(to, child));
        let expected = match (&entry, &over) {
            _ if into_itself => Err(FsError::Invalid),
            (Entry::Directory(_), Some(Entry::File(_))) => Err(FsError::NotADirectory),
            (Entry::File(_), Some(Entry::Directory(_))) => Err(FsError::IsADirectory),
            (Entry::Directory(a), Some(Entry::Directory(b))) if a != b && !self.model.names(*b).is_empty() => {
                Err(FsError::NotEmpty)
            }
            _ => Ok(()),
        };
        if result == Err(FsError::NoSpace) {
            return;
        }
        assert_eq!(result, expected, "{n:?} to {new:?}");
        if result.is_err() || over.as_ref() == Some(&entry) {
            return;
        }
        if let Some(Entry::Directory(b)) = over {
            self.model.directories[b] = None;
        }
        self.model.names(d).remove(&n);
        if let Entry::Directory(child) = entry {
            self.model.directories[child].as_mut().unwrap().1 = to;
        }
        self.model.names(to).insert(new, entry);
    }

    fn compare(&mut self, fs: &mut TestFs) {
        let mut links = vec![0; self.files.len()];
        for (i, directory) in self.model.directories.iter().enumerate() {
            let Some((names, parent)) = directory.as_ref() else { continue };
            let listed = fs.list(self.directories[i]).unwrap();
            assert_eq!(listed.len(), names.len());
            assert_eq!(fs.parent(self.directories[i]).unwrap(), self.directories[*parent]);
            let children = names.values().filter(|entry| matches!(entry, Entry::Directory(_))).count();
            assert_eq!(fs.attributes(self.directories[i]).unwrap().links, 2 + children as u32);
            for ((found, attributes), (name, entry)) in listed.iter().zip(names) {
                assert_eq!(&**found, &**name);
                match entry {
                    Entry::Directory(child) => assert_eq!(attributes.kind, ObjectKind::Directory, "{child}"),
                    Entry::File(file) => {
                        links[*file] += 1;
                        self.files[*file] = attributes.object;
                    }
                }
            }
        }
        for (file, count) in links.into_iter().enumerate().filter(|(_, count)| *count > 0) {
            let (content, attributes) = &self.model.files[file];
            let found: Attributes = fs.attributes(self.files[file]).unwrap();
            assert_eq!((found.size, found.links), (content.len() as u64, count));
            let mut data = vec![0xEE; content.len() + 7];
            assert_eq!(fs.read(self.files[file], 0, &mut data).unwrap(), content.len());
            assert!(data[..content.len()] == content[..], "content of file {file}");
            check_holes(fs, self.files[file], content);
            for (name, value) in attributes {
                assert_eq!(fs.get_attribute(self.files[file], name).unwrap(), &value[..]);
            }
        }
    }
}

/// Data and holes take turns from the start to the end, and holes are zeros.
fn check_holes(fs: &TestFs, object: u32, content: &[u8]) {
    let (mut at, size) = (0, content.len() as u64);
    while at < size {
        let data = fs.seek_data(object, at).unwrap().unwrap_or(size);
        assert!(data >= at && content[at as usize..data as usize].iter().all(|byte| *byte == 0));
        at = fs.seek_hole(object, data).unwrap().unwrap_or(size);
        assert!(at > data || data == size);
    }
}

fn run(setup: &Setup, ops: &[Op]) {
    let mut fs = setup.format();
    let mut both = Both { model: Model::default(), directories: vec![ROOT], files: Vec::new() };
    both.model.directories.push(Some((BTreeMap::new(), 0)));
    for (step, op) in (1..).zip(ops) {
        if let Op::Remount(clean) = op {
            fs = setup.remount(fs, *clean);
            both.compare(&mut fs);
        } else {
            both.apply(&mut fs, op, step);
        }
    }
    both.compare(&mut fs);
    fs.audit().unwrap();
    fs = setup.remount(fs, false);
    both.compare(&mut fs);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 3000, ..ProptestConfig::default() })]

    #[test]
    fn it_does_what_a_tree_of_maps_does(ops in prop::collection::vec(op(), 1..250), which in 0..AllocatorSpec::all().count()) {
        let spec = AllocatorSpec::all().nth(which).unwrap();
        run(&Setup::new(nand(), spec), &ops);
    }

    #[test]
    fn it_does_so_without_pages_of_holes(ops in prop::collection::vec(op(), 1..120)) {
        run(&Setup::new(nand(), AllocatorSpec::known("predictive")).of_old(), &ops);
    }

    #[test]
    fn it_does_so_on_nor(ops in prop::collection::vec(op(), 1..120)) {
        let geometry = Geometry::new(40, 18, 512).unwrap().byte_programmable();
        run(&Setup::new(geometry, AllocatorSpec::known("predictive")), &ops);
    }
}

#[test]
fn an_open_file_lives_on_without_a_name_and_is_gone_after_a_power_cut() {
    let setup = Setup::new(nand(), AllocatorSpec::known("sequential"));
    let mut fs = setup.format();
    let file = fs.create(ROOT, b"a", &NewObject::FILE).unwrap().object;
    fs.open(file).unwrap();
    fs.write(file, 0, &[7; 2000]).unwrap();
    fs.unlink(ROOT, b"a").unwrap();
    assert_eq!(fs.attributes(file).unwrap().links, 0);
    fs.write(file, 2000, b"more").unwrap();
    let mut data = [0; 4];
    assert_eq!(fs.read(file, 2000, &mut data), Ok(4));
    assert_eq!(&data, b"more");
    fs.sync().unwrap();
    let objects = fs.room().objects;
    let mut fs = setup.mount(fs.into_device().into_device());
    assert_eq!(fs.room().objects, objects - 1);
    assert_eq!(fs.attributes(file), Err(FsError::NotFound));
    fs.create(ROOT, b"a", &NewObject::FILE).unwrap();
    fs.audit().unwrap();
}

#[test]
fn a_full_device_says_so_and_removing_makes_room() {
    let setup = Setup::new(nand(), AllocatorSpec::known("predictive"));
    let mut fs = setup.format();
    let chunk = [3; 5000];
    let mut files = 0u32;
    let error = loop {
        let name = files.to_string();
        let file = match fs.create(ROOT, name.as_bytes(), &NewObject::FILE) {
            Ok(attributes) => attributes.object,
            Err(error) => break error,
        };
        files += 1;
        match fs.write(file, 0, &chunk) {
            Ok(_) => fs.close(file).unwrap(),
            Err(error) => break error,
        }
    };
    assert_eq!(error, FsError::NoSpace);
    // Headers may take a page more than before.
    fs.unlink(ROOT, (files - 1).to_string().as_bytes()).unwrap();
    fs.sync().unwrap();
    for round in 0..200u32 {
        let name = (round % (files - 1)).to_string();
        fs.unlink(ROOT, name.as_bytes()).unwrap();
        let file = fs.create(ROOT, name.as_bytes(), &NewObject::FILE).unwrap().object;
        assert_eq!(fs.write(file, 0, &chunk), Ok(5000));
        fs.sync().unwrap();
    }
    fs.audit().unwrap();
    let fs = setup.remount(fs, true);
    assert!(fs.mount_report().from_checkpoint);
}

#[test]
fn attributes_and_times_survive() {
    let setup = Setup::new(nand(), AllocatorSpec::known("dac"));
    let mut fs = setup.format();
    let new = NewObject { mode: 0o4711, uid: 1000, gid: 50, ..NewObject::FILE };
    let file = fs.create(ROOT, b"f", &new).unwrap().object;
    let times = Time { secs: -17, nanos: 123_456_789 };
    fs.change(file, &Change { atime: Some(times), mtime: Some(times), uid: Some(7), ..Change::default() }).unwrap();
    let link = NewObject { kind: ObjectKind::Symlink, target: b"to/where", ..NewObject::FILE };
    fs.create(ROOT, b"link", &link).unwrap();
    let device = NewObject { kind: ObjectKind::CharDevice, rdev: 0x0501, ..NewObject::FILE };
    fs.create(ROOT, b"dev", &device).unwrap();
    let before = fs.list(ROOT).unwrap();
    let fs = setup.remount(fs, false);
    assert_eq!(fs.list(ROOT).unwrap(), before);
    let found = fs.resolve(b"/f").unwrap();
    assert_eq!((found.mode, found.uid, found.gid, found.atime, found.mtime), (0o4711, 7, 50, times, times));
    assert_eq!(fs.read_link(fs.resolve(b"link").unwrap().object).unwrap(), b"to/where");
    assert_eq!(fs.resolve(b"dev").unwrap().rdev, 0x0501);
}
