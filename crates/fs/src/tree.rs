//! Building the tree of objects from the headers that a mount found.

use crate::header::header_bytes;
use crate::index::{HeaderPage, Index, ROOT};
use crate::node::{Node, ObjectKind, Time, is_name};
use crate::{MAX_CHUNKS, MAX_OBJECTS, Problem};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
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
        // Another name of it takes the place of the one that it lost.
        let heir = found.iter().find(|(_, other)| other.node.link_to == Some(loser)).map(|(id, _)| *id);
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
    for object in &objects {
        let node = index.node(*object).expect("in use");
        let limit = objects.len() + 2;
        let parent_is_directory = index.node(node.parent).is_some_and(|parent| parent.kind == ObjectKind::Directory);
        let reaches_root = index.ancestors(node.parent).take(limit).any(|ancestor| ancestor == ROOT);
        if !parent_is_directory || !reaches_root {
            problems.push(Problem::Unreachable { object: *object });
            repair.push(node.page);
            let name = alloc::format!("lost-{object}");
            let node = index.node_mut(*object).expect("in use");
            (node.parent, node.name) = (ROOT, name.as_bytes().into());
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
