//! What a program does with files, and what a file system may hold after it.

use super::{FileSystem, PAGE_BYTES};
use margay_flash::Flash;
use margay_fs::{FsError, NewObject, ObjectKind, ROOT, RenameFlags};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;

/// What a program does with files. Directories and names by number; directory 0 is the root, the others are in it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Create(u8, u8),
    Mkdir(u8),
    Write(u8, u8, u32, u32),
    Append(u8, u8, u32),
    Truncate(u8, u8, u32),
    /// Punches a hole of so many bytes.
    Punch(u8, u8, u32, u32),
    /// Writes a byte to each of so many chunks, with a chunk between two of them.
    Scatter(u8, u8, u32),
    Unlink(u8, u8),
    Rmdir(u8),
    Rename(u8, u8, u8, u8),
    RenameDirectory(u8, u8),
    Link(u8, u8, u8, u8),
    Fsync(u8, u8),
    Sync,
    Idle,
}

pub(super) fn script(len: usize, seed: u64) -> Vec<Step> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut below = |limit: u32| (random.next_u64() % u64::from(limit)) as u32;
    (0..len)
        .map(|_| {
            let (d, n, e, m) = (below(3) as u8, below(4) as u8, below(3) as u8, below(4) as u8);
            match below(108) {
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
                100..105 => Step::Punch(d, n, below(4000), 1 + below(6000)),
                105..108 => Step::Scatter(d, n, 3 + below(20)),
                _ => Step::Idle,
            }
        })
        .collect()
}

/// Names with what they stand for: the user number that each object was made with, and whether it is a directory.
pub(super) type Tree = BTreeMap<Vec<u8>, (bool, u32)>;

/// What the device may hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Oracle {
    /// The names after each operation since those that are durable, with the operation's number.
    pub trees: Vec<(u64, Tree)>,
    /// By file, what it held since what is durable.
    pub files: BTreeMap<u32, Vec<Vec<u8>>>,
    /// By file, the operation that named it last.
    named: BTreeMap<u32, u64>,
    pub operations: u64,
    next_id: u32,
}

/// How many versions of the names and of each file a step has tried.
#[derive(Clone, Debug)]
pub(super) struct Tried {
    trees: usize,
    files: BTreeMap<u32, usize>,
}

impl Tried {
    /// All versions together.
    pub fn len(&self) -> usize {
        self.trees + self.files.values().sum::<usize>()
    }
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
    pub fn new() -> Self {
        Self { trees: vec![(0, Tree::new())], next_id: 1, ..Self::default() }
    }

    pub fn tree(&self) -> &Tree {
        &self.trees.last().expect("there is always one").1
    }

    pub fn file(&self, path: &[u8]) -> Option<u32> {
        self.tree().get(path).filter(|(is_directory, _)| !is_directory).map(|(_, id)| *id)
    }

    pub fn content(&self, id: u32) -> &Vec<u8> {
        self.files[&id].last().expect("there is always one")
    }

    /// Names are going to be so.
    fn attempt(&mut self, tree: Tree) {
        self.operations += 1;
        self.trees.push((self.operations, tree));
    }

    pub fn all_durable(&mut self) {
        self.trees.drain(..self.trees.len() - 1);
        self.files.values_mut().for_each(|versions| drop(versions.drain(..versions.len() - 1)));
    }

    /// How much was tried since `before`, by the step that failed last.
    pub fn tried_since(&self, before: &Self) -> Tried {
        // A sync that was done leaves fewer.
        let trees = self.trees.len().saturating_sub(before.trees.len());
        let tried = |(id, versions): (&u32, &Vec<_>)| {
            (*id, versions.len().saturating_sub(before.files.get(id).map_or(0, Vec::len)))
        };
        Tried { trees, files: self.files.iter().map(tried).collect() }
    }

    /// All is durable, but it is open what became of the last step, which failed: what was before it may be there, too.
    pub fn all_durable_but(&mut self, last: &Tried) {
        let old = |len: usize, tried: usize| len - len.min(tried + 1);
        self.trees.drain(..old(self.trees.len(), last.trees));
        for (id, versions) in &mut self.files {
            versions.drain(..old(versions.len(), last.files[id]));
        }
    }

    fn file_durable(&mut self, id: u32) {
        let since = self.named.get(&id).copied().unwrap_or(0);
        self.trees.retain(|(operation, _)| *operation >= since);
        let versions = self.files.get_mut(&id).expect("files that are synced are known");
        versions.drain(..versions.len() - 1);
    }

    /// Compares, and takes what is there for what must be there from now on.
    pub fn check(&mut self, fs: &mut FileSystem<'_, impl Flash>) -> Result<(), String> {
        let mut tree = Tree::new();
        let mut objects = BTreeMap::new();
        let mut directories = vec![(Vec::new(), ROOT)];
        while let Some((prefix, object)) = directories.pop() {
            for (name, attributes) in fs.list(object).map_err(|error| error.to_string())? {
                let mut path = prefix.clone();
                path.push(b'/');
                path.extend_from_slice(&name);
                let is_directory = attributes.kind == ObjectKind::Directory;
                if tree.insert(path.clone(), (is_directory, attributes.uid)).is_some() {
                    return Err(format!("the name {} is there twice", String::from_utf8_lossy(&path)));
                }
                if is_directory {
                    directories.push((path, attributes.object));
                } else {
                    objects.insert(attributes.uid, attributes.object);
                }
            }
        }
        let Some(at) = self.trees.iter().rposition(|(_, allowed)| *allowed == tree) else {
            let differing = |allowed: &Tree| -> Vec<String> {
                let show = |sign: char, (path, (_, id)): (&Vec<u8>, &(bool, u32))| {
                    format!("{sign}{}={id}", String::from_utf8_lossy(path).replace("xxxxxxxxxx", ""))
                };
                let more = tree.iter().filter(|(path, entry)| allowed.get(*path) != Some(entry));
                let fewer = allowed.iter().filter(|(path, entry)| tree.get(*path) != Some(entry));
                more.map(|entry| show('+', entry)).chain(fewer.map(|entry| show('-', entry))).collect()
            };
            let nearest = self.trees.iter().map(|(_, allowed)| differing(allowed)).min_by_key(Vec::len);
            let (nearest, trees) = (nearest.unwrap_or_default().join(" "), self.trees.len());
            return Err(format!("names are none of the {trees} that they may be; from the nearest: {nearest}"));
        };
        self.trees = vec![self.trees.swap_remove(at)];
        // Names that were given later are lost.
        let found = self.trees[0].0;
        self.named.values_mut().for_each(|named| *named = found.min(*named));
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
pub(super) fn run(fs: &mut FileSystem<'_, impl Flash>, oracle: &mut Oracle, steps: &[Step]) -> Result<(), FsError> {
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

pub(super) fn object(fs: &FileSystem<'_, impl Flash>, path: &[u8]) -> u32 {
    fs.resolve(path).expect("the oracle knows the names").object
}

pub(super) fn apply(fs: &mut FileSystem<'_, impl Flash>, oracle: &mut Oracle, step: Step) -> Result<(), FsError> {
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
            let kind = if is_directory { ObjectKind::Directory } else { ObjectKind::File };
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
        Step::Punch(d, n, at, len) => {
            let path = path(d, n);
            let Some(id) = oracle.file(&path) else { return Ok(()) };
            let mut content = oracle.content(id).clone();
            let (first, end) = ((at as usize).min(content.len()), ((at + len) as usize).min(content.len()));
            content[first..end].fill(0);
            oracle.files.get_mut(&id).expect("known").push(content);
            fs.punch_hole(object(fs, &path), at.into(), len.into())
        }
        Step::Scatter(d, n, count) => {
            let path = path(d, n);
            let Some(id) = oracle.file(&path) else { return Ok(()) };
            let object = object(fs, &path);
            let byte = fill(id, oracle.operations, 1);
            for at in (0..count as usize).map(|i| i * 2 * PAGE_BYTES) {
                let mut content = oracle.content(id).clone();
                content.resize(content.len().max(at + 1), 0);
                content[at] = byte[0];
                oracle.files.get_mut(&id).expect("known").push(content);
                match fs.write(object, at as u64, &byte) {
                    Ok(_) => {}
                    Err(FsError::NoSpace) => {
                        oracle.files.get_mut(&id).expect("known").pop();
                        return Ok(());
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(())
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
