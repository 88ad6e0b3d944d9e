//! Attributes, kinds and times as FUSE has them.

use crate::{now, time_of};
use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use margay_fs::{Attributes, ObjectKind, Time};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Times that the operating system cannot hold become 1970.
fn system_time(time: Time) -> SystemTime {
    let whole = Duration::from_secs(time.secs.unsigned_abs());
    let second = if time.secs >= 0 { UNIX_EPOCH.checked_add(whole) } else { UNIX_EPOCH.checked_sub(whole) };
    second.and_then(|second| second.checked_add(Duration::from_nanos(time.nanos.into()))).unwrap_or(UNIX_EPOCH)
}

pub(crate) fn file_type(kind: ObjectKind) -> FileType {
    match kind {
        ObjectKind::File => FileType::RegularFile,
        ObjectKind::Directory => FileType::Directory,
        ObjectKind::Symlink => FileType::Symlink,
        ObjectKind::Fifo => FileType::NamedPipe,
        ObjectKind::Socket => FileType::Socket,
        ObjectKind::CharDevice => FileType::CharDevice,
        ObjectKind::BlockDevice => FileType::BlockDevice,
    }
}

pub(crate) fn file_attr(attributes: &Attributes, page_bytes: u32) -> FileAttr {
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

/// The attributes of a name that is not there.
pub(crate) const NOTHING: Attributes = {
    let time = Time { secs: 0, nanos: 0 };
    Attributes {
        object: 0,
        generation: 0,
        kind: ObjectKind::File,
        mode: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        links: 0,
        size: 0,
        pages: 0,
        atime: time,
        mtime: time,
        ctime: time,
    }
};

pub(crate) fn kind_of_mode(mode: u32) -> Option<ObjectKind> {
    Some(match mode & libc::S_IFMT {
        0 | libc::S_IFREG => ObjectKind::File,
        libc::S_IFIFO => ObjectKind::Fifo,
        libc::S_IFSOCK => ObjectKind::Socket,
        libc::S_IFCHR => ObjectKind::CharDevice,
        libc::S_IFBLK => ObjectKind::BlockDevice,
        _ => return None,
    })
}

pub(crate) fn chosen_time(time: TimeOrNow) -> Time {
    match time {
        TimeOrNow::SpecificTime(time) => time_of(time),
        TimeOrNow::Now => now(),
    }
}
