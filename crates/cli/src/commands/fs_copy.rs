//! `margay fs get` and `margay fs put`: copying out of an image and into it.

use super::files::{Files, at, changing, opened, parent_of, resolve};
use super::repair::text_of;
use crate::failure::Failure;
use margay_fs::{FsError, NewObject, ObjectKind, RenameFlags, Time};
use margay_host::{Existing, NewFile};
use margay_volume::{Part, note_range, read_parts};
use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Whether two paths lead to the same file.
fn is_same(one: &Path, other: &Path) -> bool {
    let id = |path| std::fs::metadata(path).map(|found| (found.dev(), found.ino()));
    matches!((id(one), id(other)), (Ok(one), Ok(other)) if one == other)
}

/// Copies a file out of an image. A file that cannot be read as a whole leaves the target as it was.
pub fn get(image: &Path, path: &str, to: Option<&Path>, existing: Existing) -> Result<(), Failure> {
    if let Some(to) = to.filter(|to| is_same(image, to)) {
        let text = "this is the image itself, which is not overwritten with one of its files";
        return Err(Failure::Usage(format!("{}: {text}", to.display())));
    }
    let mut fs = opened(image, true)?;
    let found = resolve(&fs, image, path)?;
    match found.kind {
        ObjectKind::File => {}
        ObjectKind::Directory => return Err(at(image, path, &FsError::IsADirectory)),
        _ => return Err(at(image, path, &FsError::NotPermitted)),
    }
    let mut target = match to {
        Some(to) => Some(NewFile::create(to, existing).map_err(|error| Failure::new_file(to, &error))?),
        None => None,
    };
    let mut stdout = std::io::stdout().lock();
    let mut damaged: Vec<Range<u64>> = Vec::new();
    read_parts(&mut fs, found.object, found.size, |Part { offset, bytes }| {
        match bytes {
            Err((len, _)) => note_range(&mut damaged, offset, len),
            Ok(bytes) => match &mut target {
                Some(target) => target.write_all(bytes).map_err(|error| Failure::new_file(target.path(), &error))?,
                // What comes behind a gap would be taken for what belongs there.
                None if damaged.is_empty() => stdout.write_all(bytes)?,
                None => {}
            },
        }
        Ok::<(), Failure>(())
    })?;
    if !damaged.is_empty() {
        let kept = match to {
            Some(to) => format!("{} was not written", to.display()),
            None => format!("only the {} bytes before were printed", damaged[0].start),
        };
        let (image, ranges) = (image.display(), text_of(&damaged));
        let advice = format!("`margay fs check {image} --repair OUT` copies what can be read");
        return Err(Failure::Run(format!(
            "{image}: {path}: bytes {ranges} of {} cannot be read, so {kept}; {advice}",
            found.size
        )));
    }
    match target {
        Some(target) => {
            let path = target.path().to_path_buf();
            target.commit().map_err(|error| Failure::new_file(&path, &error))
        }
        None => Ok(stdout.flush()?),
    }
}

/// Copies a file or a directory into an image.
pub fn put(image: &Path, from: &Path, path: Option<String>) -> Result<(), Failure> {
    let name = from.file_name().map(|name| name.to_string_lossy().into_owned());
    let path = match (path, name) {
        (Some(path), _) => path,
        (None, Some(name)) => name,
        (None, None) => {
            return Err(Failure::Usage(format!(
                "{}: this path has no name; give the path in the image as the third argument",
                from.display()
            )));
        }
    };
    changing(image, |fs| {
        let (parent, name) = parent_of(fs, image, &path)?;
        let (parent, name) = match fs.resolve(path.as_bytes()) {
            // An existing directory receives the file.
            Ok(found) if found.kind == ObjectKind::Directory && from.is_file() => {
                (found.object, from.file_name().map(|name| name.as_bytes().to_vec()).unwrap_or(name))
            }
            _ => (parent, name),
        };
        put_one(fs, image, from, parent, &name)
    })
}

/// The first name of this form that is free in a directory: a file is copied under it, and then takes its own name.
fn temporary_name(fs: &Files, parent: u32) -> Vec<u8> {
    let names = (0u32..).map(|number| format!(".margay-put-{number}").into_bytes());
    names.into_iter().find(|name| fs.lookup(parent, name).is_err()).unwrap_or_default()
}

fn put_one(fs: &mut Files, image: &Path, from: &Path, parent: u32, name: &[u8]) -> Result<(), Failure> {
    let read = |error: std::io::Error| Failure::Input(format!("{}: {error}", from.display()));
    let shown = from.display().to_string();
    let meta = std::fs::symlink_metadata(from).map_err(read)?;
    let kind = match meta.file_type() {
        kind if kind.is_dir() => ObjectKind::Directory,
        kind if kind.is_symlink() => ObjectKind::Symlink,
        kind if kind.is_fifo() => ObjectKind::Fifo,
        kind if kind.is_file() => ObjectKind::File,
        _ => {
            eprintln!("{shown}: skipped, because it is a device or a socket");
            return Ok(());
        }
    };
    let target = if kind == ObjectKind::Symlink { std::fs::read_link(from).map_err(read)? } else { PathBuf::new() };
    let new = NewObject {
        kind,
        mode: (meta.permissions().mode() & 0o7777) as u16,
        uid: meta.uid(),
        gid: meta.gid(),
        rdev: 0,
        target: target.as_os_str().as_bytes(),
    };
    let failed = |error: FsError| at(image, &shown, &error);
    let there = fs.lookup(parent, name).ok();
    if there.as_ref().is_some_and(|there| there.kind != kind) {
        return Err(failed(FsError::Exists));
    }
    let mtime = Time { secs: meta.mtime(), nanos: meta.mtime_nsec() as u32 };
    let change = margay_fs::Change { atime: Some(mtime), mtime: Some(mtime), ..margay_fs::Change::default() };
    if kind == ObjectKind::Directory {
        // Files are added to an existing directory.
        let object = match there {
            Some(there) => there.object,
            None => fs.create(parent, name, &new).map_err(failed)?.object,
        };
        let mut entries: Vec<_> = std::fs::read_dir(from).map_err(read)?.collect::<Result<_, _>>().map_err(read)?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            put_one(fs, image, &entry.path(), object, entry.file_name().as_bytes())?;
        }
        return fs.change(object, &change).map_err(failed).map(drop);
    }
    // What has the name stays as it is until all of its successor is on flash.
    let temporary = temporary_name(fs, parent);
    let object = fs.create(parent, &temporary, &new).map_err(failed)?.object;
    let copied = (|| {
        if kind == ObjectKind::File {
            copy_in(fs, from, object, &failed)?;
        }
        fs.change(object, &change).map_err(failed)?;
        fs.fsync(object, false).map_err(failed)?;
        fs.rename(parent, &temporary, parent, name, RenameFlags::default()).map_err(failed)
    })();
    if copied.is_err() {
        // Best effort: the error to report is why it was not copied.
        let _ = fs.unlink(parent, &temporary);
    }
    copied
}

/// Copies the bytes of a file of the host into an empty file.
fn copy_in(fs: &mut Files, from: &Path, object: u32, failed: &impl Fn(FsError) -> Failure) -> Result<(), Failure> {
    let read = |error: std::io::Error| Failure::Input(format!("{}: {error}", from.display()));
    let mut file = std::fs::File::open(from).map_err(read)?;
    let (mut buffer, mut offset) = (vec![0; COPY_BYTES], 0);
    loop {
        let len = file.read(&mut buffer).map_err(read)?;
        if len == 0 {
            return fs.close(object).map_err(failed);
        }
        let mut done = 0;
        while done < len {
            done += fs.write(object, offset + done as u64, &buffer[done..len]).map_err(failed)?;
        }
        offset += len as u64;
    }
}

/// Size of the buffer for copies, in bytes.
const COPY_BYTES: usize = 1 << 20;
