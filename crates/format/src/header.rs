//! Header pages: the headers of a file system's objects (FORMAT.md, "Files").

use crate::bytes::{PutBytes, Reader};
use alloc::vec::Vec;

const MAGIC: &[u8; 4] = b"MGFH";
/// Bit of the kind: the object is a hard link.
const LINK: u8 = 0x40;
/// Flag: the object has no name and lives while it is open.
const ORPHAN: u8 = 1;
const MODE_BITS: u16 = 0o7777;

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ObjectKind {
    /// A regular file.
    File = 1,
    /// A directory.
    Directory = 2,
    /// A symbolic link.
    Symlink = 3,
    /// A named pipe.
    Fifo = 4,
    /// A socket.
    Socket = 5,
    /// A character device.
    CharDevice = 6,
    /// A block device.
    BlockDevice = 7,
}

impl ObjectKind {
    const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::File,
            2 => Self::Directory,
            3 => Self::Symlink,
            4 => Self::Fifo,
            5 => Self::Socket,
            6 => Self::CharDevice,
            7 => Self::BlockDevice,
            _ => return None,
        })
    }
}

/// A point in time: seconds since 1970 and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds.
    pub secs: i64,
    /// Nanoseconds, under 10^9.
    pub nanos: u32,
}

/// The header of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectHeader<'a> {
    /// Number of the object.
    pub object: u32,
    /// What it is.
    pub kind: ObjectKind,
    /// The object that a hard link is another name of.
    pub link_to: Option<u32>,
    /// It has no name any more and lives while it is open.
    pub orphan: bool,
    /// What the allocator keeps.
    pub heat: u8,
    /// Permission bits, 12 of them.
    pub mode: u16,
    /// User that it belongs to.
    pub uid: u32,
    /// Group that it belongs to.
    pub gid: u32,
    /// The directory that it is in.
    pub parent: u32,
    /// Device number, of devices; 0 for hard links.
    pub rdev: u32,
    /// Bytes of a file.
    pub size: u64,
    /// Last access.
    pub atime: Time,
    /// Last modification of the data.
    pub mtime: Time,
    /// Last change of the object.
    pub ctime: Time,
    /// Tells it from earlier objects of the same number.
    pub generation: u32,
    /// Its name, at most 255 bytes.
    pub name: &'a [u8],
    /// What a symbolic link points to.
    pub target: &'a [u8],
    /// Chunks that a file does not have: the first and the one behind the last.
    pub holes: Vec<(u32, u32)>,
    /// Extended attributes: name and value.
    pub attributes: Vec<(&'a [u8], &'a [u8])>,
}

impl<'a> ObjectHeader<'a> {
    /// Bytes of a header without name, target, holes and attributes.
    pub const FIXED_BYTES: usize = 82;

    /// Bytes that it takes.
    pub fn len_bytes(&self) -> usize {
        let attributes: usize = self.attributes.iter().map(|(name, value)| 3 + name.len() + value.len()).sum();
        Self::FIXED_BYTES + self.name.len() + self.target.len() + self.holes.len() * 8 + attributes
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.put_uint(self.len_bytes() as u64, 2);
        bytes.put_u32(self.object);
        let link = if self.link_to.is_some() { LINK } else { 0 };
        bytes.put(&[self.kind as u8 | link, if self.orphan { ORPHAN } else { 0 }, self.heat]);
        bytes.put_uint(self.mode.into(), 2);
        for number in [self.uid, self.gid, self.parent, self.link_to.unwrap_or(self.rdev)] {
            bytes.put_u32(number);
        }
        bytes.put_uint(self.size, 8);
        for time in [self.atime, self.mtime, self.ctime] {
            bytes.put_uint(time.secs as u64, 8);
            bytes.put_u32(time.nanos);
        }
        bytes.put_u32(self.generation);
        bytes.put(&[self.name.len() as u8]);
        for count in [self.target.len(), self.holes.len(), self.attributes.len()] {
            bytes.put_uint(count as u64, 2);
        }
        bytes.put(self.name);
        bytes.put(self.target);
        for (first, end) in &self.holes {
            bytes.put_u32(*first);
            bytes.put_u32(*end);
        }
        for (name, value) in &self.attributes {
            bytes.put(&[name.len() as u8]);
            bytes.put_uint(value.len() as u64, 2);
            bytes.put(name);
            bytes.put(value);
        }
    }

    fn decode(page: &mut Reader<'a>) -> Option<Self> {
        let len = usize::from(Reader::new(page.rest()).u16()?);
        let mut reader = Reader::new(page.take(len)?);
        reader.take(2)?;
        let (object, kind, flags, heat) = (reader.u32()?, reader.u8()?, reader.u8()?, reader.u8()?);
        let mode = reader.u16()? & MODE_BITS;
        let (uid, gid, parent, other) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
        let size = reader.u64()?;
        let mut time = || Some(Time { secs: reader.u64()? as i64, nanos: reader.u32()? });
        let (atime, mtime, ctime) = (time()?, time()?, time()?);
        let generation = reader.u32()?;
        let (name, target) = (reader.u8()?, reader.u16()?);
        let (holes, attributes) = (reader.u16()?, reader.u16()?);
        let (name, target) = (reader.take(name.into())?, reader.take(target.into())?);
        let holes: Option<_> = (0..holes).map(|_| Some((reader.u32()?, reader.u32()?))).collect();
        let mut attribute = || {
            let (name, value) = (reader.u8()?, reader.u16()?);
            Some((reader.take(name.into())?, reader.take(value.into())?))
        };
        let attributes: Option<_> = (0..attributes).map(|_| attribute()).collect();
        let is_link = kind & LINK != 0;
        Some(Self {
            object,
            kind: ObjectKind::from_byte(kind & !LINK)?,
            link_to: is_link.then_some(other),
            orphan: flags & ORPHAN != 0,
            heat,
            mode,
            uid,
            gid,
            parent,
            rdev: if is_link { 0 } else { other },
            size,
            atime,
            mtime,
            ctime,
            generation,
            name,
            target,
            holes: holes?,
            attributes: attributes?,
        })
    }
}

/// A page of object headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderPage<'a> {
    /// The headers say how their objects are after this program.
    pub seq: u64,
    /// The headers, in order.
    pub headers: Vec<ObjectHeader<'a>>,
}

impl<'a> HeaderPage<'a> {
    /// Bytes of a page before its headers.
    pub const START_BYTES: usize = 16;

    /// Writes headers, which say how their objects are after the program `seq`, into a page. False if they do not fit;
    /// what does is written then.
    pub fn encode<'b>(seq: u64, headers: impl Iterator<Item = ObjectHeader<'b>>, page: &mut [u8]) -> bool {
        let mut bytes = Vec::with_capacity(page.len());
        bytes.put(MAGIC);
        bytes.put_u32(0); // the count's place
        bytes.put_uint(seq, 8);
        let mut count = 0;
        for header in headers {
            count += 1;
            header.encode(&mut bytes);
        }
        bytes[4..8].copy_from_slice(&u32::to_le_bytes(count));
        let fits = bytes.len() <= page.len();
        bytes.resize(page.len(), 0);
        page.copy_from_slice(&bytes);
        fits
    }

    /// Reads a page of headers; `None` if it makes no sense.
    pub fn decode(page: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(page);
        if reader.take(4)? != MAGIC {
            return None;
        }
        let (count, seq) = (reader.u32()?, reader.u64()?);
        if count as usize > page.len() / ObjectHeader::FIXED_BYTES {
            return None;
        }
        let headers: Option<_> = (0..count).map(|_| ObjectHeader::decode(&mut reader)).collect();
        Some(Self { seq, headers: headers? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> ObjectHeader<'static> {
        let time = |secs| Time { secs, nanos: 999_999_999 };
        ObjectHeader {
            object: 9,
            kind: ObjectKind::File,
            link_to: None,
            orphan: true,
            heat: 3,
            mode: 0o4755,
            uid: 1000,
            gid: 7,
            parent: 1,
            rdev: 0,
            size: 3 * 512 + 9,
            atime: time(-5),
            mtime: time(6),
            ctime: time(i64::MAX),
            generation: 77,
            name: b"name",
            target: b"",
            holes: alloc::vec![(0, 2), (3, 4)],
            attributes: alloc::vec![(b"user.a", b"value"), (b"user.b", b"")],
        }
    }

    #[test]
    fn headers_are_read_as_written() {
        let link = ObjectHeader { object: 10, link_to: Some(9), holes: Vec::new(), ..file() };
        let symlink = ObjectHeader {
            object: 11,
            kind: ObjectKind::Symlink,
            target: b"../else/where",
            attributes: Vec::new(),
            ..file()
        };
        let headers = alloc::vec![file(), link, symlink];
        let mut page = [0; 512];
        assert!(HeaderPage::encode(1 << 40, headers.iter().cloned(), &mut page));
        let len: usize = headers.iter().map(ObjectHeader::len_bytes).sum();
        assert!(page[HeaderPage::START_BYTES + len..].iter().all(|byte| *byte == 0));
        assert_eq!(HeaderPage::decode(&page), Some(HeaderPage { seq: 1 << 40, headers }));
        for cut in 0..HeaderPage::START_BYTES + len {
            assert_eq!(HeaderPage::decode(&page[..cut]), None, "cut at {cut}");
        }
        assert_eq!(HeaderPage::decode(&[0xFF; 512]), None);
        let too_many = core::iter::repeat_with(file).take(20);
        assert!(!HeaderPage::encode(1, too_many, &mut page));
    }
}
