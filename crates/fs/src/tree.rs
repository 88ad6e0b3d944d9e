//! Building the tree of objects from the headers that a mount found.

use crate::header::header_bytes;
use crate::index::{HeaderPage, Index, ROOT};
use crate::node::{Node, ObjectKind, Time, is_name};
use crate::{MAX_CHUNKS, MAX_OBJECTS, Problem};
use alloc::boxed::Box;
use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;
use margay_format::ObjectHeader;

/// What the header of an object says, with the program after which it was so.
#[derive(Debug)]
pub(crate) struct Candidate {
    /// That program, and the place of the header on its page: one that moved there stands behind the others. The greater is
    /// the newer.
    pub age: (u64, u32),
    /// The header page.
    pub page: u32,
    pub node: Node,
    /// Chunks that the file does not have.
    pub holes: Vec<(u32, u32)>,
}

/// Of several headers of an object the newest counts; pages with others are to be written again.
pub(crate) fn newest(candidates: Vec<(u32, Candidate)>) -> (BTreeMap<u32, Candidate>, Vec<u32>) {
    let mut found: BTreeMap<u32, Candidate> = BTreeMap::new();
    let mut repair = Vec::new();
    for (object, candidate) in candidates {
        match found.entry(object) {
            Entry::Vacant(entry) => {
                entry.insert(candidate);
            }
            Entry::Occupied(mut entry) => {
                let loser = if entry.get().age < candidate.age { entry.insert(candidate) } else { candidate };
                repair.push(loser.page);
            }
        }
    }
    (found, repair)
}

/// By object, the program after which its header holds, and the holes of the file then.
pub(crate) type AsOf = BTreeMap<u32, (u64, Vec<(u32, u32)>)>;

/// Makes the tree of the objects whose headers were found: of two objects with one name the newer keeps it, and what
/// has no place in the tree gets one under the root.
pub(crate) fn build(
    index: &mut Index,
    mut found: BTreeMap<u32, Candidate>,
    repair: &mut Vec<u32>,
    problems: &mut Vec<Problem>,
    max_pages: u32,
) -> AsOf {
    // Numbers are used again, so none is larger than all headers together would need.
    let max_objects =
        (u64::from(max_pages) * u64::from(index.page_bytes / ObjectHeader::FIXED_BYTES as u32)).min(MAX_OBJECTS.into());
    found.retain(|object, candidate| {
        let node = &candidate.node;
        let fits = (1..max_objects).contains(&u64::from(*object))
            && (*object == ROOT || is_name(&node.name))
            && node.size <= u64::from(MAX_CHUNKS) * u64::from(index.page_bytes)
            && (*object != ROOT || (node.kind == ObjectKind::Directory && node.link_to.is_none()));
        if !fits {
            problems.push(Problem::Object { object: *object });
            repair.push(candidate.page);
        }
        fits
    });
    // Orphans were only kept for those that had them open; links need what they stand for.
    let is_gone = |found: &BTreeMap<u32, Candidate>, candidate: &Candidate| {
        let node = &candidate.node;
        let target = node.link_to.map(|target| found.get(&target).map(|target| &target.node));
        node.orphan
            || target.is_some_and(|target| {
                target.is_none_or(|target| {
                    target.orphan || target.link_to.is_some() || target.kind == ObjectKind::Directory
                })
            })
    };
    let gone: Vec<u32> =
        found.iter().filter(|(_, candidate)| is_gone(&found, candidate)).map(|(object, _)| *object).collect();
    for object in gone {
        repair.extend(found.remove(&object).map(|candidate| candidate.page));
    }
    // Names: the newer of two keeps it.
    let mut names: BTreeMap<(u32, Box<[u8]>), u32> = BTreeMap::new();
    let mut losers = Vec::new();
    for (object, candidate) in &found {
        let node = &candidate.node;
        if *object == ROOT {
            continue;
        }
        match names.entry((node.parent, node.name.clone())) {
            Entry::Vacant(entry) => {
                entry.insert(*object);
            }
            Entry::Occupied(mut entry) => {
                let other = *entry.get();
                let loser = if found[&other].age < candidate.age { entry.insert(*object) } else { *object };
                losers.push(loser);
            }
        }
    }
    for loser in losers {
        // Another name of it, if that is not lost too, takes the place of the one that it lost.
        let is_kept = |id: u32, node: &Node| names.get(&(node.parent, node.name.clone())) == Some(&id);
        let heir = found
            .iter()
            .find(|(id, other)| other.node.link_to == Some(loser) && is_kept(**id, &other.node))
            .map(|(id, _)| *id);
        repair.push(found[&loser].page);
        if let Some(heir) = heir {
            let link = found.remove(&heir).expect("it was just found");
            repair.push(link.page);
            names.insert((link.node.parent, link.node.name.clone()), loser);
            let node = &mut found.get_mut(&loser).expect("it is a loser").node;
            (node.parent, node.name) = (link.node.parent, link.node.name);
        } else {
            found.remove(&loser);
        }
    }
    let mut as_of = AsOf::new();
    if !found.contains_key(&ROOT) {
        problems.push(Problem::Object { object: ROOT });
        index.pages.push(HeaderPage::default());
        let page = index.pages.len() as u32 - 1;
        let mut node = Node::new(ObjectKind::Directory, 0o755, 0, 0, ROOT, b"", Time::default());
        node.header_bytes = header_bytes(&node, index.page_bytes) as u32;
        index.restore(ROOT, node, page);
        repair.push(page);
    }
    for (object, Candidate { age: (seq, _), page, node, holes }) in found {
        as_of.insert(object, (seq, holes));
        index.restore(object, node, page);
    }
    enter_in_directories(index, repair, problems);
    as_of
}

/// Enters every object in its directory.
fn enter_in_directories(index: &mut Index, repair: &mut Vec<u32>, problems: &mut Vec<Problem>) {
    let objects: Vec<u32> = index.iter().map(|(object, _)| object).filter(|object| *object != ROOT).collect();
    let in_root = index.iter().filter(|(object, node)| *object != ROOT && node.parent == ROOT);
    let mut taken: BTreeSet<Box<[u8]>> = in_root.map(|(_, node)| node.name.clone()).collect();
    for object in &objects {
        let node = index.node(*object).expect("in use");
        let limit = objects.len() + 2;
        let parent_is_directory = index.node(node.parent).is_some_and(|parent| parent.kind == ObjectKind::Directory);
        let reaches_root = index.ancestors(node.parent).take(limit).any(|ancestor| ancestor == ROOT);
        if !parent_is_directory || !reaches_root {
            problems.push(Problem::Unreachable { object: *object });
            repair.push(node.page);
            let numbered = (2..).map(|number: u64| format!("lost-{object}-{number}"));
            let mut names = core::iter::once(format!("lost-{object}")).chain(numbered);
            let name = names.find(|name| !taken.contains(name.as_bytes())).expect("some number is not taken");
            let node = index.node_mut(*object).expect("in use");
            (node.parent, node.name) = (ROOT, name.as_bytes().into());
            taken.insert(node.name.clone());
        }
    }
    for object in objects {
        let node = index.node(object).expect("in use");
        let (parent, name, link_to, kind) = (node.parent, node.name.clone(), node.link_to, node.kind);
        let directory = index.node_mut(parent).expect("every parent is a directory");
        directory.children.insert(name, object);
        directory.subdirectories += u32::from(kind == ObjectKind::Directory);
        if let Some(target) = link_to.and_then(|target| index.node_mut(target)) {
            target.links.push(object);
            let kind = target.kind;
            index.node_mut(object).expect("in use").kind = kind;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(seq: u64, parent: u32, name: &[u8]) -> Candidate {
        let node = Node::new(ObjectKind::File, 0o644, 0, 0, parent, name, Time::default());
        Candidate { age: (seq, 0), page: 0, node, holes: Vec::new() }
    }

    fn link(seq: u64, name: &[u8], to: u32) -> Candidate {
        let mut link = file(seq, ROOT, name);
        link.node.link_to = Some(to);
        link
    }

    /// What the tree of these objects has in its root.
    fn root_of(objects: Vec<(u32, Candidate)>) -> Vec<(Vec<u8>, u32)> {
        let mut index = Index::new(4096, false);
        index.pages.push(HeaderPage::default());
        let mut found: BTreeMap<_, _> = objects.into_iter().collect();
        let root = Node::new(ObjectKind::Directory, 0o755, 0, 0, ROOT, b"", Time::default());
        found.insert(ROOT, Candidate { age: (0, 0), page: 0, node: root, holes: Vec::new() });
        build(&mut index, found, &mut Vec::new(), &mut Vec::new(), 1000);
        let entries: Vec<_> =
            index.node(ROOT).unwrap().children.iter().map(|(name, at)| (name.to_vec(), *at)).collect();
        assert_eq!(entries.len() + 1, index.iter().count(), "each object has a name");
        entries
    }

    #[test]
    fn a_file_that_loses_its_name_keeps_only_a_link_that_has_not_lost_its_own() {
        let named_twice = || {
            let newer = [(3, file(5, ROOT, b"a")), (5, file(6, ROOT, b"h"))];
            [(2, file(1, ROOT, b"a")), (4, link(2, b"h", 2))].into_iter().chain(newer).collect::<Vec<_>>()
        };
        let newer = [(b"a".to_vec(), 3), (b"h".to_vec(), 5)];
        assert_eq!(root_of(named_twice()), newer);
        let mut with_link = named_twice();
        with_link.push((6, link(3, b"k", 2)));
        assert_eq!(root_of(with_link), [&newer[..], &[(b"k".to_vec(), 2)]].concat());
    }

    #[test]
    fn what_has_lost_its_directory_gets_a_name_that_nothing_else_has() {
        let lost = [(2, file(1, 77, b"x")), (3, file(2, ROOT, b"lost-2")), (4, file(3, ROOT, b"lost-2-2"))];
        let names = [("lost-2", 3), ("lost-2-2", 4), ("lost-2-3", 2)];
        assert_eq!(root_of(lost.into()), names.map(|(name, object)| (name.as_bytes().to_vec(), object)));
    }
}
