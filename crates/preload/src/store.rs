//! The file for the heap, and how forked children get one of their own.

use crate::descriptors::Kept;
use margay_pager::StoreForks;
use std::fs::{File, OpenOptions};
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

/// A file without a name in a folder, that only its owner could open.
fn nameless(folder: &Path) -> Result<File> {
    let mut private = OpenOptions::new();
    private.read(true).write(true).mode(0o600);
    if let Ok(file) = private.clone().custom_flags(libc::O_TMPFILE).open(folder) {
        return Ok(file);
    }
    // Not every file system knows files without a name.
    let name = folder.join(format!(".margay-heap-{}", std::process::id()));
    let file = private.create_new(true).open(&name)?;
    std::fs::remove_file(&name)?;
    Ok(file)
}

fn folder_of(store: &Path) -> PathBuf {
    if store.is_dir() {
        return store.into();
    }
    let folder = store.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.map_or_else(|| ".".into(), Path::to_path_buf)
}

/// A file that only its owner can open. It has no name from now on, unless it is to be kept: however the process ends, its
/// memory is not left behind. A name is for the program that was started, and not for those that it starts.
pub fn new_file(store: &Path, keep: bool, is_first: bool) -> Result<File> {
    if store.is_dir() || !is_first {
        return nameless(&folder_of(store));
    }
    // A file of that name is the heap of what this process was before it called exec.
    let _ = std::fs::remove_file(store);
    let file = OpenOptions::new().read(true).write(true).mode(0o600).create_new(true).open(store)?;
    if !keep {
        std::fs::remove_file(store)?;
    }
    Ok(file)
}

/// What the word of a [`Copy`] says; it begins with zero.
const COPIED: u32 = 1;
const FAILED: u32 = 2;

/// A word that parent and child share.
struct Shared(*mut AtomicU32);

// SAFETY: the word is atomic, and mapped as long as the value lives.
unsafe impl Send for Shared {}

impl Shared {
    fn new() -> Result<Self> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping touches nothing that exists.
        let word = unsafe { libc::syscall(libc::SYS_mmap, null_mut::<u8>(), 4096, protection, flags, -1, 0) };
        if word == -1 { Err(Error::last_os_error()) } else { Ok(Self(word as *mut AtomicU32)) }
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: it is mapped, zeroed, and only used as an atomic.
        unsafe { &*self.0 }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        unsafe { libc::syscall(libc::SYS_munmap, self.0, 4096) };
    }
}

/// One child's copy of the file: empty until the child needs it, or its parent is about to change the file.
struct Copy {
    file: Kept,
    state: Shared,
    /// The child has the other end until it has its copy, ends, or becomes another program.
    needs_it: Option<Kept>,
    child: Option<Kept>,
}

impl Copy {
    fn new(folder: &Path) -> Result<Self> {
        let mut ends = [0; 2];
        // SAFETY: two new descriptors go to a local.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: both are new and nobody else's.
        let [needs_it, child] = ends.map(|fd| Some(Kept::new(unsafe { OwnedFd::from_raw_fd(fd) })));
        Ok(Self { file: Kept::new(nameless(folder)?.into()), state: Shared::new()?, needs_it, child })
    }

    fn is_needed(&self) -> bool {
        let Some(end) = &self.needs_it else { return true };
        let mut wait = libc::pollfd { fd: end.number(), events: 0, revents: 0 };
        // SAFETY: one entry that lives as long as the call.
        unsafe { libc::poll(&mut wait, 1, 0) };
        wait.revents & libc::POLLHUP == 0
    }

    /// Copies the file, unless parent or child have done it before.
    fn make(&self, image: RawFd) -> Result<()> {
        // The lock is given up when the process ends: if it ends in the middle, nobody changes the file any more.
        let _lock = Lock::new(self.file.number())?;
        match self.state.word().load(Ordering::Acquire) {
            COPIED => return Ok(()),
            FAILED => return Err(Error::other("its parent could not copy its heap: is the disk full?")),
            _ => {}
        }
        let copied = copy(image, self.file.number());
        self.state.word().store(if copied.is_ok() { COPIED } else { FAILED }, Ordering::Release);
        copied
    }
}

/// Maximum number of children that wait for their copy; beyond it they get one before they need it.
const MAX_WAITING: usize = 16;

/// A lock on a file that other processes wait for.
struct Lock(RawFd);

impl Lock {
    fn set(&self, kind: i32) -> Result<()> {
        // SAFETY: all zeros are a lock.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind as i16;
        // SAFETY: the struct lives as long as the call.
        while unsafe { libc::fcntl(self.0, libc::F_SETLKW, &lock) } < 0 {
            let error = Error::last_os_error();
            if error.kind() != std::io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        Ok(())
    }

    fn new(fd: RawFd) -> Result<Self> {
        let lock = Self(fd);
        lock.set(libc::F_WRLCK)?;
        Ok(lock)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.set(libc::F_UNLCK);
    }
}

fn checked(result: i64) -> Result<i64> {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(result) }
}

fn is_zero(bytes: &[u8]) -> bool {
    // Each byte is as the one before it, which the C library compares faster than a loop over them.
    bytes.first().is_none_or(|first| *first == 0) && bytes.get(1..) == bytes.get(..bytes.len().max(1) - 1)
}

/// Copies a file with its holes, by sharing its extents where the file system can.
fn copy(from: RawFd, to: RawFd) -> Result<()> {
    let mut chunk = vec![0; 64 << 10];
    // SAFETY: calls on two open files that pass no memory but locals of the sizes that they are told.
    unsafe {
        if libc::ioctl(to, 0x4004_9409, from) == 0 {
            return Ok(());
        }
        let mut found: libc::stat64 = std::mem::zeroed();
        checked(libc::fstat64(from, &mut found).into())?;
        checked(libc::ftruncate64(to, found.st_size).into())?;
        let mut at = 0;
        while at < found.st_size {
            let start = libc::lseek64(from, at, libc::SEEK_DATA);
            if start < 0 && Error::last_os_error().raw_os_error() == Some(libc::ENXIO) {
                return Ok(());
            }
            let mut from_at = checked(start)?;
            at = checked(libc::lseek64(from, from_at, libc::SEEK_HOLE))?;
            while from_at < at {
                let wanted = chunk.len().min((at - from_at) as usize);
                let read = checked(libc::pread64(from, chunk.as_mut_ptr().cast(), wanted, from_at) as i64)?;
                if read == 0 {
                    break;
                }
                // Erased flash is zeros in the file, and nearly all of it after a while.
                if !is_zero(&chunk[..read as usize]) {
                    let mut done = 0;
                    while done < read {
                        let rest = chunk[done as usize..read as usize].as_ptr();
                        done +=
                            checked(libc::pwrite64(to, rest.cast(), (read - done) as usize, from_at + done) as i64)?;
                    }
                }
                from_at += read;
            }
        }
    }
    Ok(())
}

/// The file of a process that forks.
pub struct Forks {
    folder: PathBuf,
    /// Its descriptors, which mean the process's own file once it has one.
    image: [RawFd; 2],
    /// What the process has instead of its own file until it needs one.
    own: Option<Copy>,
    prepared: Option<Copy>,
    children: Vec<Copy>,
}

impl Forks {
    /// For a file that is open under two numbers, and copies in the same folder.
    pub fn new(store: &Path, image: [RawFd; 2]) -> Self {
        Self { folder: folder_of(store), image, own: None, prepared: None, children: Vec::new() }
    }

    fn adopt(&mut self) -> Result<()> {
        let Some(own) = &self.own else { return Ok(()) };
        own.make(self.image[0])?;
        for number in self.image {
            // SAFETY: the numbers are this library's own; the file stays open under them.
            checked(unsafe { libc::syscall(libc::SYS_dup3, own.file.number(), number, libc::O_CLOEXEC) })?;
        }
        self.own = None;
        Ok(())
    }
}

impl StoreForks for Forks {
    fn prepare(&mut self) -> Result<()> {
        self.adopt()?;
        self.children.retain(Copy::is_needed);
        // Each takes descriptors of the program.
        while self.children.len() >= MAX_WAITING {
            let _ = self.children.remove(0).make(self.image[0]);
        }
        self.prepared = Some(Copy::new(&self.folder)?);
        Ok(())
    }

    fn in_parent(&mut self) {
        if let Some(mut copy) = self.prepared.take() {
            copy.child = None;
            self.children.push(copy);
        }
    }

    fn in_child(&mut self) {
        // Those of brothers and sisters.
        self.children.clear();
        self.own = self.prepared.take();
        if let Some(own) = &mut self.own {
            own.needs_it = None;
        }
    }

    fn before_use(&mut self, change: bool) -> Result<()> {
        self.adopt()?;
        if change {
            for child in self.children.drain(..).filter(Copy::is_needed) {
                // The child learns that it failed when it needs its copy.
                let _ = child.make(self.image[0]);
            }
        }
        Ok(())
    }
}

/// The number of a file that the library keeps.
pub fn kept(file: File) -> File {
    let high = Kept::new(file.into());
    let number = high.number();
    std::mem::forget(high);
    // SAFETY: the number is nobody else's: its owner was forgotten.
    let file = unsafe { File::from_raw_fd(number) };
    debug_assert_eq!(file.as_raw_fd(), number);
    file
}
