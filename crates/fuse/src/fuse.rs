//! The FUSE adapter: translates requests of the kernel.

use crate::attributes::{NOTHING, chosen_time, file_attr, file_type, kind_of_mode};
use crate::directories::{Directories, Entries};
use crate::session::{Guard, Shared};
use crate::{sparse, time_of};
use fuser::{
    Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use margay_fs::{Attributes, Change, FsError, MAX_NAME_BYTES, MAX_OBJECTS, NewObject, ObjectKind};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

/// The extended attribute that SELinux uses, and that ls asks every file for.
const LABEL: &[u8] = b"security.selinux";
/// The kernel may keep what it was told for so long. Whatever changes has come through the kernel, so it knows.
const TTL: Duration = Duration::from_secs(24 * 3600);
/// What every kernel that has it is asked for: who writes a file takes its set-user-id bit away without a request of its
/// own, and a directory is read with the attributes of what is in it when these are wanted.
const WANTED: [InitFlags; 4] = [
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_DO_READDIRPLUS.union(InitFlags::FUSE_READDIRPLUS_AUTO),
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_CACHE_SYMLINKS,
];

thread_local! {
    /// What is read on its way to the kernel.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

pub(crate) struct Adapter {
    shared: Arc<Shared>,
    directories: Directories,
    /// Whether any object may have a label of SELinux. As long as there is none, the answer is that there cannot be one.
    has_labels: AtomicBool,
    /// Whether the kernel may keep what is written for a while; it then owns sizes and times of files.
    is_write_back: bool,
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

impl Adapter {
    /// With `is_write_back` the kernel may keep what is written for a while.
    pub(crate) fn new(shared: Arc<Shared>, is_write_back: bool) -> Self {
        let has_labels = AtomicBool::new(shared.lock_for_request().has_attribute(LABEL));
        Self { shared, directories: Directories::default(), has_labels, is_write_back }
    }

    fn fs(&self) -> Guard<'_> {
        self.shared.lock_for_request()
    }

    fn entry(result: Result<Attributes, FsError>, page_bytes: u32, reply: ReplyEntry) {
        match result {
            Ok(attributes) => {
                reply.entry(&TTL, &file_attr(&attributes, page_bytes), Generation(attributes.generation));
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn create_object(
        &self,
        fs: &mut Guard<'_>,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new: NewObject<'_>,
    ) -> Result<Attributes, FsError> {
        let parent = fs.attributes(object(parent))?;
        let mut new = NewObject { uid: request.uid(), gid: request.gid(), ..new };
        // A set-group-id directory hands its group on, and to directories the bit too.
        if parent.mode & 0o2000 != 0 {
            new.gid = parent.gid;
            if new.kind == ObjectKind::Directory {
                new.mode |= 0o2000;
            }
        }
        let created = fs.create(parent.object, name.as_bytes(), &new);
        self.named(fs, created)
    }

    /// What is answered to an operation on names: with `--sync-names` only once it is durable. One that is done and could
    /// not be made durable is an error.
    fn named<T>(&self, fs: &mut Guard<'_>, result: Result<T, FsError>) -> Result<T, FsError> {
        if result.is_ok() && self.shared.syncs_names() {
            fs.sync_names()?;
        }
        result
    }

    fn reply_created(&self, request: &Request, parent: INodeNo, name: &OsStr, new: NewObject<'_>, reply: ReplyEntry) {
        let mut fs = self.fs();
        let result = self.create_object(&mut fs, request, parent, name, new);
        Self::entry(result, fs.room().page_bytes, reply);
    }

    fn empty(result: Result<(), FsError>, reply: ReplyEmpty) {
        match result {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Writes data. With `FUSE_WRITE_KILL_SUIDGID` the file loses what lends its owner's rights. With `FUSE_WRITE_CACHE` a program
    /// has written it to the kernel some time ago, or to mapped memory.
    fn write_data(&self, object: u32, offset: u64, data: &[u8], flags: WriteFlags) -> Result<usize, FsError> {
        let mut fs = self.fs();
        fs.drop_privileges(object, flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID))?;
        let before = fs.attributes(object)?;
        let mut written = fs.write(object, offset, data)?;
        if !flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
            return Ok(written);
        }
        // The kernel takes a part for all of it, so what prevents the rest has to be the answer.
        while written < data.len() {
            written += fs.write(object, offset + written as u64, &data[written..])?;
        }
        if self.is_write_back {
            // The kernel knows when it was written, and tells it with the times of the file.
            let change = Change { mtime: Some(before.mtime), ctime: Some(before.ctime), ..Change::default() };
            fs.change(object, &change)?;
        }
        Ok(written)
    }

    /// What an open directory held when it was opened, or read from its start again.
    fn entries(&self, directory: u32, handle: FileHandle, offset: u64) -> Result<Arc<Entries>, FsError> {
        self.directories.entries(handle, offset == 0, || {
            let fs = self.fs();
            let parent = fs.parent(directory)?;
            let own = [
                (directory, ObjectKind::Directory, b".".as_slice()),
                (parent, ObjectKind::Directory, b"..".as_slice()),
            ];
            let rest = fs.kinds(directory)?.map(|(name, object, kind)| (object, kind, name));
            Ok(own.into_iter().chain(rest).map(|(object, kind, name)| (object, kind, name.into())).collect())
        })
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        for flags in WANTED {
            // A kernel that does not have it does without.
            let _ = config.add_capabilities(flags);
        }
        if self.is_write_back && config.add_capabilities(InitFlags::FUSE_WRITEBACK_CACHE).is_err() {
            tracing::warn!("the kernel cannot keep what is written; --write-back is ignored");
            self.is_write_back = false;
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let fs = self.fs();
        let page_bytes = fs.room().page_bytes;
        match fs.lookup(object(parent), name.as_bytes()) {
            // The number 0 says that there is no such name, and that the kernel may remember it.
            Err(FsError::NotFound) if fs.attributes(object(parent)).is_ok() => {
                reply.entry(&TTL, &file_attr(&NOTHING, page_bytes), Generation(0));
            }
            result => Self::entry(result, page_bytes, reply),
        }
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
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
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
            ctime: ctime.map(time_of),
        };
        // Of these the kernel says nothing more: a new owner must not get programs that act as the old one, and who is not root
        // must not change such a program, be it by a new size or by a write, before which comes a request to set nothing.
        let is_owner_new = uid.is_some() || gid.is_some();
        let is_empty = size.is_none() && change.atime.or(change.mtime).is_none();
        let is_by_user = request.uid() != 0 && (size.is_some() || is_empty);
        let drops = mode.is_none() && (is_owner_new || is_by_user);
        let result = size.map_or(Ok(()), |size| fs.truncate(object, size));
        let result =
            result.and_then(|()| if drops || size.is_some() { fs.drop_privileges(object, drops) } else { Ok(()) });
        match result.and_then(|()| fs.change(object, &change)) {
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
        self.reply_created(request, parent, name, new, reply);
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        let new = NewObject { mode: (mode & 0o7777) as u16, ..NewObject::DIRECTORY };
        self.reply_created(request, parent, name, new, reply);
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
        let new = NewObject { kind: ObjectKind::Symlink, mode: 0o777, target, ..NewObject::FILE };
        self.reply_created(request, parent, name, new, reply);
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
        Self::entry(result, fs.room().page_bytes, reply);
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
        BUFFER.with_borrow_mut(|buffer| {
            let size = size as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            // The lock is gone before the kernel copies what was read.
            let result = self.fs().read(object(ino), offset, &mut buffer[..size]);
            match result {
                Ok(len) => reply.data(&buffer[..len]),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.write_data(object(ino), offset, data, flags) {
            Ok(len) => reply.written(len as u32),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // The kernel does not ask again. The last bytes of a file are written when its last user has closed it.
        reply.error(Errno::ENOSYS);
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
        let result = self.fs().close(object(ino));
        if let Err(error) = &result {
            // Nobody waits for this answer. What could not be written is tried again at the next commit.
            tracing::error!("writing the last bytes of a file that was closed: {error}");
        }
        Self::empty(result, reply);
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, data_only: bool, reply: ReplyEmpty) {
        Self::empty(self.fs().fsync(object(ino), data_only), reply);
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.fs().open(object(ino)) {
            Ok(()) => reply.opened(self.directories.enter(), FopenFlags::empty()),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn readdir(&self, _: &Request, ino: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        match self.entries(object(ino), handle, offset) {
            Ok(entries) => {
                for (next, (object, kind, name)) in rest(&entries, offset) {
                    if reply.add(INodeNo((*object).into()), next, file_type(*kind), OsStr::from_bytes(name)) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn readdirplus(&self, _: &Request, ino: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        let directory = object(ino);
        let entries = match self.entries(directory, handle, offset) {
            Ok(entries) => entries,
            Err(error) => {
                reply.error(errno(&error));
                return;
            }
        };
        let fs = self.fs();
        let page_bytes = fs.room().page_bytes;
        for (next, (_, _, name)) in rest(&entries, offset) {
            // The kernel remembers what it is told here, so a name that has been removed since must not be among it, and one
            // that stands for something else by now with what it is now.
            let Ok(attributes) = fs.lookup(directory, name) else { continue };
            let (attr, generation) = (file_attr(&attributes, page_bytes), Generation(attributes.generation));
            if reply.add(attr.ino, next, OsStr::from_bytes(name), &TTL, &attr, generation) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, ino: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.directories.leave(handle);
        Self::empty(self.fs().close(object(ino)), reply);
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        // The names in a directory are in the headers of what they stand for.
        Self::empty(self.fs().sync(), reply);
    }

    fn lseek(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        if self.is_write_back {
            // What the kernel holds is not here yet, and would be taken for a hole. The kernel then takes all for data.
            return reply.error(Errno::ENOSYS);
        }
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
        if name.as_bytes() == LABEL {
            self.has_labels.store(true, Ordering::Relaxed);
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
        // As setting it: programs such as ls then know that there are no access control lists, and stop asking.
        if name.as_bytes().starts_with(b"system.") {
            reply.error(Errno::EOPNOTSUPP);
            return;
        }
        if name.as_bytes() == LABEL && !self.has_labels.load(Ordering::Relaxed) {
            reply.error(Errno::EOPNOTSUPP);
            return;
        }
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
        let mut fs = self.fs();
        let result = self.create_object(&mut fs, request, parent, name, new);
        match result.and_then(|attributes| fs.open(attributes.object).map(|()| attributes)) {
            Ok(attributes) => {
                let attr = file_attr(&attributes, fs.room().page_bytes);
                let generation = Generation(attributes.generation);
                reply.created(&TTL, &attr, generation, FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }
}

/// The entries behind `offset`, each with the offset behind itself.
fn rest(entries: &Entries, offset: u64) -> impl Iterator<Item = (u64, &(u32, ObjectKind, Box<[u8]>))> {
    (1..).zip(entries).skip(usize::try_from(offset).unwrap_or(usize::MAX))
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
