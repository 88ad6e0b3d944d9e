//! Objects in memory as headers on flash, and back.

use crate::MAX_NAME_BYTES;
use crate::node::{Node, ObjectKind};
use alloc::vec::Vec;
use margay_format::ObjectHeader;

/// The header of an object.
pub(crate) fn header_of(object: u32, node: &Node, page_bytes: u32) -> ObjectHeader<'_> {
    let has_chunks = node.kind == ObjectKind::File && node.link_to.is_none();
    ObjectHeader {
        object,
        kind: node.kind,
        link_to: node.link_to,
        orphan: node.orphan,
        heat: node.heat,
        mode: node.mode,
        uid: node.uid,
        gid: node.gid,
        parent: node.parent,
        rdev: node.rdev,
        size: node.size_on_flash(),
        atime: node.atime,
        mtime: node.mtime,
        ctime: node.ctime,
        generation: node.generation as u32,
        name: &node.name,
        target: &node.target,
        holes: if has_chunks { holes(node, page_bytes) } else { Vec::new() },
        attributes: node.attributes.iter().map(|(name, value)| (&**name, &**value)).collect(),
    }
}

/// The object that a header describes, without its chunks.
pub(crate) fn node_of(header: &ObjectHeader<'_>) -> Node {
    let ObjectHeader { kind, mode, uid, gid, parent, name, mtime, .. } = *header;
    let mut node = Node::new(kind, mode, uid, gid, parent, name, mtime);
    (node.link_to, node.rdev, node.orphan, node.heat) = (header.link_to, header.rdev, header.orphan, header.heat);
    (node.size, node.generation) = (header.size, header.generation.into());
    (node.atime, node.ctime) = (header.atime, header.ctime);
    node.target = header.target.into();
    node.attributes = header.attributes.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    node.header_bytes = header.len_bytes() as u32;
    node
}

/// Bytes that the header of an object takes.
pub(crate) fn header_bytes(node: &Node, page_bytes: u32) -> usize {
    header_of(0, node, page_bytes).len_bytes()
}

/// The ranges of chunks that a file does not have on flash and that no page of holes covers, and which pages there are.
fn holes(node: &Node, page_bytes: u32) -> Vec<(u32, u32)> {
    node.chunks.holes(node.chunks_on_flash(page_bytes))
}

/// How many ranges of holes the header of a file may list, beside the groups that have pages of holes.
pub(crate) fn max_holes(node: &Node, page_bytes: u32, room_bytes: usize) -> usize {
    let without = ObjectHeader { holes: Vec::new(), ..header_of(0, node, page_bytes) }.len_bytes();
    (room_bytes / 32).min(room_bytes.saturating_sub(without + MAX_NAME_BYTES + 8) / 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Time;
    use margay_flash::Ppn;
    use margay_format::HeaderPage;

    #[test]
    fn objects_are_recovered_from_their_headers() {
        let now = Time { secs: -5, nanos: 999_999_999 };
        let mut file = Node::new(ObjectKind::File, 0o4755, 1000, 7, 1, b"name", now);
        (file.size, file.generation) = (3 * 512 + 9, 77);
        file.chunks.set(2, Ppn(5));
        file.chunks.grow(0, 4, 512);
        file.attributes.insert(b"user.a".as_slice().into(), b"value".as_slice().into());
        let mut link = Node::new(ObjectKind::Symlink, 0o777, 0, 0, 1, b"to", now);
        link.target = b"../else/where".as_slice().into();
        let mut page = [0; 512];
        let headers = [(9, &file), (10, &link)].map(|(object, node)| header_of(object, node, 512));
        assert!(HeaderPage::encode(1 << 40, headers.into_iter(), &mut page));
        let found = HeaderPage::decode(&page).unwrap();
        assert_eq!((found.seq, found.headers.len(), found.headers[0].object), (1 << 40, 2, 9));
        assert_eq!(found.headers[0].holes, [(0, 2), (3, 4)]);
        let node = node_of(&found.headers[0]);
        assert_eq!((&*node.name, node.mode, node.size, node.mtime), (b"name".as_slice(), 0o4755, 3 * 512 + 9, now));
        assert_eq!(node.attributes, file.attributes);
        assert_eq!(node.header_bytes as usize, header_bytes(&file, 512));
        let node = node_of(&found.headers[1]);
        assert_eq!(&*node.target, b"../else/where");
        assert_eq!(node.header_bytes as usize, header_bytes(&link, 512));
    }
}
