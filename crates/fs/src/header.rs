//! Header pages: the bytes of object headers (FORMAT.md, "Files").

use crate::node::{Kind, Node, Time};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use margay_log::{Numbers, put};

const MAGIC: &[u8; 4] = b"MGFH";
/// Bytes of a header page before the first header.
pub(crate) const PAGE_HEADER_BYTES: usize = 16;
pub(crate) const FIXED_BYTES: usize = 82;
const LINK: u8 = 0x40;
const ORPHAN: u8 = 1;

/// An object as it was found in its header.
#[derive(Debug)]
pub(crate) struct Found {
    pub object: u32,
    pub node: Node,
    /// Ranges of chunks that the file does not have.
    pub holes: Vec<(u32, u32)>,
}

/// Bytes that the header of a node takes, list of holes included.
pub(crate) fn header_bytes(node: &Node, page_bytes: u32) -> usize {
    let attributes: usize = node.attributes.iter().map(|(name, value)| 3 + name.len() + value.len()).sum();
    let holes = if node.kind == Kind::File { holes(node, page_bytes).len() } else { 0 };
    FIXED_BYTES + node.name.len() + node.target.len() + attributes + holes * 8
}

/// The ranges of chunks that a file does not have on flash.
pub(crate) fn holes(node: &Node, page_bytes: u32) -> Vec<(u32, u32)> {
    node.chunks.holes(node.size_on_flash().div_ceil(u64::from(page_bytes)) as u32)
}

fn put_time(bytes: &mut Vec<u8>, time: Time) {
    put(bytes, time.secs as u64, 8);
    put(bytes, time.nanos.into(), 4);
}

/// Encodes a header page, which holds the state of its objects after the program with sequence number `seq`. False if
/// the objects do not fit.
pub(crate) fn encode<'a>(seq: u64, members: impl Iterator<Item = (u32, &'a Node)>, page: &mut [u8]) -> bool {
    let mut bytes = Vec::with_capacity(page.len());
    bytes.extend_from_slice(MAGIC);
    put(&mut bytes, 0, 4);
    put(&mut bytes, seq, 8);
    let mut count = 0;
    for (object, node) in members {
        count += 1;
        encode_header(object, node, page.len() as u32, &mut bytes);
    }
    bytes[4..8].copy_from_slice(&u32::to_le_bytes(count));
    let fits = bytes.len() <= page.len();
    bytes.resize(page.len(), 0);
    page.copy_from_slice(&bytes);
    fits
}

fn encode_header(object: u32, node: &Node, page_bytes: u32, bytes: &mut Vec<u8>) {
    let start = bytes.len();
    put(bytes, 0, 2);
    put(bytes, object.into(), 4);
    put(bytes, u64::from(node.kind as u8 | if node.link_to.is_some() { LINK } else { 0 }), 1);
    put(bytes, u64::from(node.orphan), 1);
    put(bytes, node.heat.into(), 1);
    put(bytes, node.mode.into(), 2);
    for number in [node.uid, node.gid, node.parent, node.link_to.unwrap_or(node.rdev)] {
        put(bytes, number.into(), 4);
    }
    put(bytes, node.size_on_flash(), 8);
    for time in [node.atime, node.mtime, node.ctime] {
        put_time(bytes, time);
    }
    let holes = if node.kind == Kind::File && node.link_to.is_none() { holes(node, page_bytes) } else { Vec::new() };
    put(bytes, node.generation, 4);
    put(bytes, node.name.len() as u64, 1);
    put(bytes, node.target.len() as u64, 2);
    put(bytes, holes.len() as u64, 2);
    put(bytes, node.attributes.len() as u64, 2);
    bytes.extend_from_slice(&node.name);
    bytes.extend_from_slice(&node.target);
    for (first, end) in holes {
        put(bytes, first.into(), 4);
        put(bytes, end.into(), 4);
    }
    for (name, value) in &node.attributes {
        put(bytes, name.len() as u64, 1);
        put(bytes, value.len() as u64, 2);
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(value);
    }
    let len = (bytes.len() - start) as u16;
    bytes[start..start + 2].copy_from_slice(&len.to_le_bytes());
}

/// Decodes a header page: the sequence number of the program whose state it holds, and its objects. `None` if it is
/// damaged.
pub(crate) fn decode(page: &[u8]) -> Option<(u64, Vec<Found>)> {
    let mut numbers = Numbers(page);
    if numbers.take(4)? != MAGIC {
        return None;
    }
    let (count, seq) = (numbers.word()?, numbers.next(8)?);
    if count as usize > page.len() / FIXED_BYTES {
        return None;
    }
    let found: Option<Vec<_>> = (0..count).map(|_| decode_header(&mut numbers)).collect();
    Some((seq, found?))
}

fn time(numbers: &mut Numbers<'_>) -> Option<Time> {
    Some(Time { secs: numbers.next(8)? as i64, nanos: numbers.word()? })
}

fn decode_header(page: &mut Numbers<'_>) -> Option<Found> {
    let len = usize::from(u16::from_le_bytes(page.0.get(..2)?.try_into().ok()?));
    let mut numbers = Numbers(page.take(len)?);
    numbers.take(2)?;
    let (object, kind, flags) = (numbers.word()?, numbers.next(1)? as u8, numbers.next(1)? as u8);
    let (heat, mode) = (numbers.next(1)? as u8, numbers.next(2)?);
    let (uid, gid, parent, other) = (numbers.word()?, numbers.word()?, numbers.word()?, numbers.word()?);
    let size = numbers.next(8)?;
    let (atime, mtime, ctime) = (time(&mut numbers)?, time(&mut numbers)?, time(&mut numbers)?);
    let generation = numbers.next(4)?;
    let (name, target) = (numbers.next(1)? as usize, numbers.next(2)? as usize);
    let (holes, attributes) = (numbers.next(2)? as usize, numbers.next(2)? as usize);
    let mut node = Node::new(Kind::from_byte(kind & !LINK)?, mode as u16 & 0o7777, uid, gid, parent, &[], mtime);
    if kind & LINK != 0 {
        node.link_to = Some(other);
    } else {
        node.rdev = other;
    }
    node.name = numbers.take(name)?.into();
    node.target = numbers.take(target)?.into();
    let holes: Option<Vec<_>> = (0..holes).map(|_| Some((numbers.word()?, numbers.word()?))).collect();
    let mut set: BTreeMap<Box<[u8]>, Box<[u8]>> = BTreeMap::new();
    for _ in 0..attributes {
        let (name, value) = (numbers.next(1)? as usize, numbers.next(2)? as usize);
        set.insert(numbers.take(name)?.into(), numbers.take(value)?.into());
    }
    (node.attributes, node.orphan, node.size, node.heat) = (set, flags & ORPHAN != 0, size, heat);
    (node.atime, node.ctime, node.generation) = (atime, ctime, generation);
    node.header_bytes = len as u32;
    Some(Found { object, node, holes: holes? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_flash::Ppn;

    #[test]
    fn headers_are_read_as_written() {
        let now = Time { secs: -5, nanos: 999_999_999 };
        let mut file = Node::new(Kind::File, 0o4755, 1000, 7, 1, b"name", now);
        (file.size, file.generation) = (3 * 512 + 9, 77);
        file.chunks.set(2, Ppn(5));
        file.attributes.insert(b"user.a".as_slice().into(), b"value".as_slice().into());
        let mut link = Node::new(Kind::Symlink, 0o777, 0, 0, 1, b"to", now);
        link.target = b"../else/where".as_slice().into();
        let mut page = [0; 512];
        assert!(encode(1 << 40, [(9, &file), (10, &link)].into_iter(), &mut page));
        let (seq, found) = decode(&page).unwrap();
        assert_eq!((seq, found.len(), found[0].object), (1 << 40, 2, 9));
        assert_eq!(found[0].holes, [(0, 2), (3, 4)]);
        let node = &found[0].node;
        assert_eq!((&*node.name, node.mode, node.size, node.mtime), (b"name".as_slice(), 0o4755, 3 * 512 + 9, now));
        assert_eq!(node.attributes, file.attributes);
        assert_eq!(node.header_bytes as usize, header_bytes(&file, 512));
        assert_eq!(&*found[1].node.target, b"../else/where");
        assert_eq!(found[1].node.header_bytes as usize, header_bytes(&link, 512));
        assert!(decode(&[0xFF; 512]).is_none());
        assert!(!encode(1, (0..20).map(|object| (object, &file)), &mut page), "too many");
    }
}
