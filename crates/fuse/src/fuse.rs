//! The FUSE adapter: translates requests of the kernel.

use crate::session::{Guard, Shared};
use crate::{now, sparse, time_of};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, OpenFlags,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use margay_fs::{Attributes, Change, FsError, Kind, MAX_NAME_BYTES, MAX_OBJECTS, NewObject, Time};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The kernel may keep what it was told for so long.
const TTL: Duration = Duration::from_secs(1);
/// Entries of a directory: object, kind, name.
type Entries = Vec<(u32, Kind, Box<[u8]>)>;

pub(crate) struct Adapter {
    shared: Arc<Shared>,
    /// Names of open directories, as they were when they were opened or read from the start again.
    directories: Mutex<HashMap<u64, Entries>>,
    next_handle: AtomicU64,
}

pub(crate) fn errno(error: &FsError) -> Errno {
    if let FsError::Log(error) = error {
        tracing::error!("{error}");
    }
    Errno::from_i32(error.errno())
}

fn object(ino: INodeNo) -> u32 {
    // Objects have 24 bits; no other number was ever given out.
    u64::from(ino).min(u32::MAX.into()) as u32
}

/// Times that the operating system cannot hold become 1970.
fn system_time(time: Time) -> SystemTime {
    let whole = Duration::from_secs(time.secs.unsigned_abs());
    let second = if time.secs >= 0 { UNIX_EPOCH.checked_add(whole) } else { UNIX_EPOCH.checked_sub(whole) };
    second.and_then(|second| second.checked_add(Duration::from_nanos(time.nanos.into()))).unwrap_or(UNIX_EPOCH)
}

fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
    }
}

fn file_attr(attributes: &Attributes, page_bytes: u32) -> FileAttr {
    let mtime = system_time(attributes.mtime);
    FileAttr {
        ino: INodeNo(attributes.object.into()),
        size: attributes.size,
        blocks: attributes.pages * u64::from(page_bytes) / 512,
        atime: system_time(attributes.atime),
        mtime,
        ctime: system_time(attributes.ctime),
        crtime: mtime,
        kind: file_type(attributes.kind),
        perm: attributes.mode,
        nlink: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: attributes.rdev,
        blksize: page_bytes,
        flags: 0,
    }
}

impl Adapter {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, directories: Mutex::default(), next_handle: AtomicU64::new(1) }
    }

    fn fs(&self) -> Guard<'_> {
        self.shared.lock_for_request()
    }

    fn entry(&self, result: Result<Attributes, FsError>, page_bytes: u32, reply: ReplyEntry) {
        match result {
            Ok(attributes) => {
                reply.entry(&TTL, &file_attr(&attributes, page_bytes), Generation(attributes.generation));
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn create_object(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new: NewObject<'_>,
    ) -> (Result<Attributes, FsError>, u32) {
        let mut fs = self.fs();
        let page_bytes = fs.room().page_bytes;
        let result = fs.attributes(object(parent)).and_then(|parent| {
            let mut new = NewObject { uid: request.uid(), gid: request.gid(), ..new };
            // A set-group-id directory hands its group on, and to directories the bit too.
            if parent.mode & 0o2000 != 0 {
                new.gid = parent.gid;
                if new.kind == Kind::Directory {
                    new.mode |= 0o2000;
                }
            }
            fs.create(parent.object, name.as_bytes(), &new)
        });
        (self.named(&mut fs, result), page_bytes)
    }

    /// What is answered to an operation on names: with `--sync-names` only once it is durable. One that is done and could
    /// not be made durable is an error.
    fn named<T>(&self, fs: &mut Guard<'_>, result: Result<T, FsError>) -> Result<T, FsError> {
        if result.is_ok() && self.shared.syncs_names() {
            fs.sync_names()?;
        }
        result
    }

    fn empty(result: Result<(), FsError>, reply: ReplyEmpty) {
        match result {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn list(&self, directory: u32) -> Result<Entries, FsError> {
        let fs = self.fs();
        let parent = fs.parent(directory)?;
        let names = fs.list(directory)?;
        let own =
            [(directory, Kind::Directory, b".".as_slice().into()), (parent, Kind::Directory, b"..".as_slice().into())];
        let rest = names.into_iter().map(|(name, attributes)| (attributes.object, attributes.kind, name));
        Ok(own.into_iter().chain(rest).collect())
    }
}

fn kind_of_mode(mode: u32) -> Option<Kind> {
    Some(match mode & libc::S_IFMT {
        0 | libc::S_IFREG => Kind::File,
        libc::S_IFIFO => Kind::Fifo,
        libc::S_IFSOCK => Kind::Socket,
        libc::S_IFCHR => Kind::CharDevice,
        libc::S_IFBLK => Kind::BlockDevice,
        _ => return None,
    })
}

fn chosen_time(time: TimeOrNow) -> Time {
    match time {
        TimeOrNow::SpecificTime(time) => time_of(time),
        TimeOrNow::Now => now(),
    }
}

impl Filesystem for Adapter {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let fs = self.fs();
        self.entry(fs.lookup(object(parent), name.as_bytes()), fs.room().page_bytes, reply);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let fs = self.fs();
        match fs.attributes(object(ino)) {
            Ok(attributes) => reply.attr(&TTL, &file_attr(&attributes, fs.room().page_bytes)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut fs = self.fs();
        let object = object(ino);
        let change = Change {
            mode: mode.map(|mode| (mode & 0o7777) as u16),
            uid,
            gid,
            atime: atime.map(chosen_time),
            mtime: mtime.map(chosen_time),
        };
        let truncated = size.map_or(Ok(()), |size| fs.truncate(object, size));
        match truncated.and_then(|()| fs.change(object, &change)) {
            Ok(attributes) => reply.attr(&TTL, &file_attr(&attributes, fs.room().page_bytes)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match self.fs().read_link(object(ino)) {
            Ok(target) => reply.data(target),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn mknod(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, rdev: u32, reply: ReplyEntry) {
        let Some(kind) = kind_of_mode(mode) else {
            reply.error(Errno::EINVAL);
            return;
        };
        let new = NewObject { kind, mode: (mode & 0o7777) as u16, rdev, ..NewObject::FILE };
        let (result, page_bytes) = self.create_object(request, parent, name, new);
        self.entry(result, page_bytes, reply);
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        let new = NewObject { mode: (mode & 0o7777) as u16, ..NewObject::DIRECTORY };
        let (result, page_bytes) = self.create_object(request, parent, name, new);
        self.entry(result, page_bytes, reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut fs = self.fs();
        let result = fs.unlink(object(parent), name.as_bytes());
        Self::empty(self.named(&mut fs, result), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut fs = self.fs();
        let result = fs.rmdir(object(parent), name.as_bytes());
        Self::empty(self.named(&mut fs, result), reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes();
        let new = NewObject { kind: Kind::Symlink, mode: 0o777, target, ..NewObject::FILE };
        let (result, page_bytes) = self.create_object(request, parent, name, new);
        self.entry(result, page_bytes, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        // An exchange would have to change two header pages at once.
        if !(flags - RenameFlags::RENAME_NOREPLACE).is_empty() {
            reply.error(Errno::EINVAL);
            return;
        }
        let flags = margay_fs::RenameFlags { no_replace: flags.contains(RenameFlags::RENAME_NOREPLACE) };
        let (from, to) = (object(parent), object(to));
        let mut fs = self.fs();
        let result = fs.rename(from, name.as_bytes(), to, new_name.as_bytes(), flags);
        Self::empty(self.named(&mut fs, result), reply);
    }

    fn link(&self, _: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut fs = self.fs();
        let result = fs.link(object(ino), object(parent), name.as_bytes());
        let result = self.named(&mut fs, result);
        self.entry(result, fs.room().page_bytes, reply);
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.fs().open(object(ino)) {
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut data = vec![0; size as usize];
        match self.fs().read(object(ino), offset, &mut data) {
            Ok(len) => reply.data(&data[..len]),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.fs().write(object(ino), offset, data) {
            Ok(len) => reply.written(len as u32),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn flush(&self, _: &Request, ino: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        let result = match self.fs().flush_data(object(ino)) {
            Err(FsError::ReadOnly) => Ok(()),
            result => result,
        };
        Self::empty(result, reply);
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        Self::empty(self.fs().close(object(ino)), reply);
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, data_only: bool, reply: ReplyEmpty) {
        Self::empty(self.fs().fsync(object(ino), data_only), reply);
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.fs().open(object(ino)) {
            Ok(()) => reply.opened(FileHandle(self.next_handle.fetch_add(1, Ordering::Relaxed)), FopenFlags::empty()),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn readdir(&self, _: &Request, ino: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let mut directories = self.directories.lock().expect("nothing here panics");
        if offset == 0 || !directories.contains_key(&handle.0) {
            match self.list(object(ino)) {
                Ok(entries) => drop(directories.insert(handle.0, entries)),
                Err(error) => {
                    reply.error(errno(&error));
                    return;
                }
            }
        }
        let entries = &directories[&handle.0];
        let rest = (1..).zip(entries).skip(usize::try_from(offset).unwrap_or(usize::MAX));
        for (next, (object, kind, name)) in rest {
            if reply.add(INodeNo((*object).into()), next, file_type(*kind), OsStr::from_bytes(name)) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, ino: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.directories.lock().expect("nothing here panics").remove(&handle.0);
        Self::empty(self.fs().close(object(ino)), reply);
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        // The names in a directory are in the headers of what they stand for.
        Self::empty(self.fs().sync(), reply);
    }

    fn lseek(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        match sparse::seek(&self.fs(), object(ino), offset, whence) {
            Ok(offset) => reply.offset(offset),
            Err(error) => reply.error(error),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        match sparse::allocate(&mut self.fs(), object(ino), offset, length, mode) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let room = self.fs().room();
        let (objects, max_objects) = (u64::from(room.objects), u64::from(MAX_OBJECTS));
        let (free, bytes) = (room.free_pages, room.page_bytes);
        reply.statfs(room.pages, free, free, max_objects, max_objects - objects, bytes, MAX_NAME_BYTES as u32, bytes);
    }

    fn setxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, value: &[u8], flags: i32, _: u32, reply: ReplyEmpty) {
        if name.as_bytes().starts_with(b"system.") {
            reply.error(Errno::EOPNOTSUPP);
            return;
        }
        let mut fs = self.fs();
        let exists = fs.get_attribute(object(ino), name.as_bytes()).is_ok();
        if exists && flags & libc::XATTR_CREATE != 0 {
            reply.error(Errno::EEXIST);
        } else if !exists && flags & libc::XATTR_REPLACE != 0 {
            reply.error(Errno::ENODATA);
        } else {
            Self::empty(fs.set_attribute(object(ino), name.as_bytes(), value), reply);
        }
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        match self.fs().get_attribute(object(ino), name.as_bytes()) {
            Ok(value) => sized(value, size, reply),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let fs = self.fs();
        match fs.list_attributes(object(ino)) {
            Ok(names) => {
                let list: Vec<u8> = names.flat_map(|name| name.iter().copied().chain([0])).collect();
                sized(&list, size, reply);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn removexattr(&self, _: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        Self::empty(self.fs().remove_attribute(object(ino), name.as_bytes()), reply);
    }

    fn create(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, _: i32, reply: ReplyCreate) {
        let new = NewObject { mode: (mode & 0o7777) as u16, ..NewObject::FILE };
        let (result, page_bytes) = self.create_object(request, parent, name, new);
        match result.and_then(|attributes| self.fs().open(attributes.object).map(|()| attributes)) {
            Ok(attributes) => {
                let attr = file_attr(&attributes, page_bytes);
                let generation = Generation(attributes.generation);
                reply.created(&TTL, &attr, generation, FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }
}

/// Answers with a value, or with its size if that is asked for.
fn sized(value: &[u8], size: u32, reply: ReplyXattr) {
    if size == 0 {
        reply.size(value.len() as u32);
    } else if value.len() > size as usize {
        reply.error(Errno::ERANGE);
    } else {
        reply.data(value);
    }
}
