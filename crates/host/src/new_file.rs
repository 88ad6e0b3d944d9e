//! Files that come into being whole: the one way in which anything of margay writes a file that stays.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// What is done with a file that exists under the name of a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// It stays as it is, and the new file is an error.
    #[default]
    Refuse,
    /// The new file takes its place when it is complete.
    Replace,
    /// As [`Existing::Replace`], for a file whose lock the caller holds.
    ReplaceHeld,
}

/// A file that takes its name when [`NewFile::commit`] is called, and does not exist before. If it is dropped, or the
/// process is killed, what was under the name is as it was, and where the file system knows files without a name
/// (`O_TMPFILE`) nothing else is left either.
///
/// Character devices and pipes are written to directly.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    existing: Existing,
    content: Content,
    /// The file that will be replaced. Its lock is held, so that nobody begins to use it meanwhile.
    replaced: Option<File>,
}

#[derive(Debug)]
enum Content {
    /// Has no name yet.
    Unnamed(File),
    /// Has a temporary name, which is removed with it.
    Named(NamedTempFile),
    /// A device or a pipe.
    Device(File),
}

/// What is at a path where a file is to be written.
enum Found {
    Nothing,
    File,
    Device,
}

/// Descriptors have names, through which a file that was opened for writing is written.
fn is_descriptor(path: &Path) -> bool {
    let names = ["/dev/stdout", "/dev/stderr"].map(Path::new);
    names.contains(&path) || ["/dev/fd", "/proc/self/fd"].iter().any(|folder| path.starts_with(folder))
}

fn look(path: &Path, existing: Existing) -> io::Result<Found> {
    let kind = match fs::metadata(path) {
        Ok(found) => found.file_type(),
        // A link that leads nowhere has the name, too.
        Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::symlink_metadata(path) {
            Ok(found) => found.file_type(),
            Err(_) => return Ok(Found::Nothing),
        },
        Err(error) => return Err(error),
    };
    if is_descriptor(path) || kind.is_char_device() || kind.is_fifo() {
        return Ok(Found::Device);
    }
    if !kind.is_file() && !kind.is_symlink() {
        let why = "not a regular file, a character device or a pipe, so it is not written";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    match existing {
        Existing::Replace | Existing::ReplaceHeld => Ok(Found::File),
        Existing::Refuse => Err(exists()),
    }
}

/// Standard output and error are written on where they are: opened anew, a file there would be written from its start.
fn open_device(path: &Path) -> io::Result<File> {
    let duplicate = |descriptor: BorrowedFd<'_>| descriptor.try_clone_to_owned().map(File::from);
    match path.to_str() {
        Some("/dev/stdout" | "/dev/fd/1" | "/proc/self/fd/1") => duplicate(io::stdout().as_fd()),
        Some("/dev/stderr" | "/dev/fd/2" | "/proc/self/fd/2") => duplicate(io::stderr().as_fd()),
        _ => OpenOptions::new().append(true).open(path),
    }
}

fn exists() -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, "exists already; with --force it is replaced")
}

/// The file to be replaced, locked so that nobody else uses it.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = match File::open(path) {
        Ok(file) => file,
        // A link that leads nowhere.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => {
            Err(io::Error::new(io::ErrorKind::ResourceBusy, "another process uses it, so it is not replaced"))
        }
        // Some file systems know no locks.
        Err(TryLockError::Error(_)) => Ok(Some(file)),
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Permissions of any new file; the process's mask is taken off.
const MODE: u32 = 0o666;

fn temporary_name() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".margay-");
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(MODE));
    builder
}

#[cfg(target_os = "linux")]
fn unnamed(folder: &Path) -> Option<File> {
    use rustix::fs::{Mode, OFlags};
    // It gets its name by way of this folder.
    if !Path::new("/proc/self/fd").is_dir() {
        return None;
    }
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open(folder, flags, Mode::from_raw_mode(MODE)).ok().map(File::from)
}

#[cfg(not(target_os = "linux"))]
fn unnamed(_: &Path) -> Option<File> {
    None
}

/// Gives a name that nothing has to a file without one.
#[cfg(target_os = "linux")]
fn name(file: &File, path: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD};
    use std::os::fd::AsRawFd;
    let descriptor = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::linkat(CWD, descriptor, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

#[cfg(not(target_os = "linux"))]
fn name(_: &File, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

impl NewFile {
    /// Whether [`NewFile::create`] would refuse the name, for commands that take long before they write.
    ///
    /// # Errors
    /// Those of [`NewFile::create`] that can be known without writing.
    pub fn check(path: &Path, existing: Existing) -> io::Result<()> {
        match look(path, existing)? {
            Found::File if existing == Existing::Replace => lock(path).map(drop),
            _ => Ok(()),
        }
    }

    /// Starts a file that will have this name.
    ///
    /// # Errors
    /// The name is taken and `existing` refuses that, or is that of a folder, a socket or a disk, or of a file that
    /// another process has locked; no file can be made in the folder.
    pub fn create(path: &Path, existing: Existing) -> io::Result<Self> {
        let found = look(path, existing)?;
        if let Found::Device = found {
            let device = open_device(path)?;
            return Ok(Self { path: path.into(), existing, content: Content::Device(device), replaced: None });
        }
        // What a link leads to is replaced, not the link.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.into());
        let replaced = match (found, existing) {
            (Found::File, Existing::Replace) => lock(&path)?,
            (Found::File, Existing::ReplaceHeld) => File::open(&path).ok(),
            _ => None,
        };
        let folder = folder_of(&path);
        let content = match unnamed(folder) {
            Some(file) => Content::Unnamed(file),
            None => Content::Named(temporary_name().tempfile_in(folder)?),
        };
        let new = Self { path, existing, content, replaced };
        if let Some(old) = &new.replaced {
            new.as_file().set_permissions(old.metadata()?.permissions())?;
        }
        Ok(new)
    }

    /// The name that it will have.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes that can still be written to the disk on which the file is.
    ///
    /// # Errors
    /// The file system does not tell it.
    pub fn free_bytes(&self) -> io::Result<u64> {
        let disk = rustix::fs::fstatvfs(self.as_file())?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// Whether it takes the place of a file that exists.
    pub fn replaces(&self) -> bool {
        self.replaced.is_some()
    }

    /// The file. It can be read, too, unless it is a device.
    pub fn as_file(&self) -> &File {
        match &self.content {
            Content::Unnamed(file) | Content::Device(file) => file,
            Content::Named(file) => file.as_file(),
        }
    }

    /// Makes the file durable and gives it its name.
    ///
    /// # Errors
    /// It cannot be made durable, or the name was taken meanwhile and [`Existing::Refuse`] was asked for. Nothing is
    /// left of it then.
    pub fn commit(self) -> io::Result<()> {
        let path = self.path.clone();
        self.commit_as(&path)
    }

    /// As [`NewFile::commit`], with another name in the same folder.
    pub fn commit_as(mut self, path: &Path) -> io::Result<()> {
        if let Content::Device(device) = &mut self.content {
            return device.flush();
        }
        self.as_file().sync_all()?;
        match (self.content, self.existing) {
            (Content::Unnamed(file), Existing::Refuse) => name(&file, path).map_err(taken)?,
            (Content::Unnamed(file), _) => {
                // Only a file with a name can take the place of another.
                let named = temporary_name().make_in(folder_of(path), |temporary| name(&file, temporary))?;
                named.persist(path).map_err(|error| error.error)?;
            }
            (Content::Named(file), Existing::Refuse) => {
                file.persist_noclobber(path).map_err(|error| taken(error.error))?;
            }
            (Content::Named(file), _) => drop(file.persist(path).map_err(|error| error.error)?),
            (Content::Device(_), _) => {}
        }
        // The name is durable, too. Some file systems cannot sync a folder, and then there is nothing to be done.
        let _ = File::open(folder_of(path)).and_then(|folder| folder.sync_all());
        Ok(())
    }
}

fn taken(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::AlreadyExists { exists() } else { error }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.as_file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.as_file().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn entries(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn a_file_has_its_name_only_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut new = NewFile::create(&path, Existing::Refuse).unwrap();
        new.write_all(b"half").unwrap();
        drop(new);
        assert_eq!(entries(folder.path()), 0);
        let mut new = NewFile::create(&path, Existing::Refuse).unwrap();
        new.write_all(b"whole").unwrap();
        assert!(!path.exists());
        new.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(entries(folder.path()), 1);
    }

    #[test]
    fn what_exists_stays_unless_it_is_to_be_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut late = NewFile::create(&path, Existing::Refuse).unwrap();
        late.write_all(b"late").unwrap();
        fs::write(&path, b"mine").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(late.commit().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(NewFile::create(&path, Existing::Refuse).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(NewFile::check(&path, Existing::Refuse).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("a", &link).unwrap();
        let mut new = NewFile::create(&link, Existing::Replace).unwrap();
        new.write_all(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        new.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(link.is_symlink());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "private files stay private");
        assert_eq!(entries(folder.path()), 2);
    }

    #[test]
    fn links_that_lead_nowhere_folders_and_files_in_use_are_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let (link, file) = (folder.path().join("link"), folder.path().join("file"));
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        assert_eq!(NewFile::create(&link, Existing::Refuse).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(NewFile::create(folder.path(), Existing::Replace).is_err());
        fs::write(&file, b"used").unwrap();
        let user = File::open(&file).unwrap();
        user.lock_shared().unwrap();
        let error = NewFile::create(&file, Existing::Replace).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{error}");
        drop(user);
        NewFile::create(&file, Existing::Replace).unwrap();
        let mut null = NewFile::create(Path::new("/dev/null"), Existing::Refuse).unwrap();
        null.write_all(b"gone").unwrap();
        null.commit().unwrap();
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    }
}
