use crate::header::{header_bytes, header_of};
use crate::node::{Node, ObjectKind};
use crate::{MAX_CHUNKS, MAX_DATA_CHUNKS, MAX_OBJECTS, Owned, PageOwner};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::{vec, vec::Vec};
use margay_flash::Ppn;
use margay_format::HolePage;
use margay_log::Client;

/// Number of the root directory.
pub const ROOT: u32 = 1;

/// A page of object headers.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeaderPage {
    pub at: Option<Ppn>,
    pub members: Vec<u32>,
    pub bytes: u32,
    /// Objects that are on it on flash and no more: their numbers are free once it is written.
    pub removed: Vec<u32>,
}

/// Everything that the file system knows, and where it is.
///
/// At most one header page, `dirty`, differs from flash in what names mean; before another one comes to differ it
/// is written. So what is on flash is always the state after some operation, and none before it is missing.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    pub page_bytes: u32,
    /// Header pages hold one object each, as in the MODA paper.
    pub single: bool,
    nodes: Vec<Option<Box<Node>>>,
    free: Vec<u32>,
    pub pages: Vec<HeaderPage>,
    /// Header pages with room, other than the one that is being filled.
    roomy: Vec<u32>,
    filling: u32,
    pub dirty: Option<u32>,
    /// What the dirty page says makes pages invalid that its version on flash needs.
    pub destructive: bool,
    /// Header pages that differ in times and sizes.
    pub soft: BTreeSet<u32>,
    /// Objects with a tail in memory.
    pub tails: BTreeSet<u32>,
    /// Whether there may be pages of holes; without them short holes are filled with zeros, and header pages are never
    /// given back.
    pub hole_pages: bool,
    /// Pages that say which header pages there are not, by group.
    header_holes: BTreeMap<u32, Ppn>,
    /// Header pages on flash that hold no header; they can be given back.
    pub empty: BTreeSet<u32>,
    pub superblock: Option<Ppn>,
    retired_at: Option<Ppn>,
    pub generation: u64,
    pub objects: u32,
}

impl Index {
    pub fn new(page_bytes: u32, single: bool) -> Self {
        Self {
            page_bytes,
            single,
            nodes: vec![None],
            free: Vec::new(),
            pages: Vec::new(),
            roomy: Vec::new(),
            filling: u32::MAX,
            dirty: None,
            destructive: false,
            soft: BTreeSet::new(),
            tails: BTreeSet::new(),
            hole_pages: false,
            header_holes: BTreeMap::new(),
            empty: BTreeSet::new(),
            superblock: None,
            retired_at: None,
            generation: 0,
            objects: 0,
        }
    }

    pub fn node(&self, object: u32) -> Option<&Node> {
        self.nodes.get(object as usize)?.as_deref()
    }

    pub fn node_mut(&mut self, object: u32) -> Option<&mut Node> {
        self.nodes.get_mut(object as usize)?.as_deref_mut()
    }

    /// Number of chunks that a file can have.
    pub fn max_chunks(&self) -> u32 {
        if self.hole_pages { MAX_DATA_CHUNKS } else { MAX_CHUNKS }
    }

    /// Objects in use, by number.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Node)> + '_ {
        (0..).zip(&self.nodes).filter_map(|(object, node)| Some((object, node.as_deref()?)))
    }

    /// Puts a node where it was on flash.
    pub fn restore(&mut self, object: u32, node: Node, page: u32) {
        if self.nodes.len() <= object as usize {
            self.nodes.resize(object as usize + 1, None);
        }
        self.generation = self.generation.max(node.generation);
        let mut node = Box::new(node);
        node.page = page;
        let header = &mut self.pages[page as usize];
        header.members.push(object);
        header.bytes += node.header_bytes;
        self.nodes[object as usize] = Some(node);
        self.objects += 1;
    }

    /// After everything was restored: which numbers are free, and which pages have room.
    pub fn restored(&mut self) {
        let unused = (1..self.nodes.len()).rev().filter(|object| self.nodes[*object].is_none());
        self.free = unused.map(|object| object as u32).collect();
        self.roomy = (0..self.pages.len() as u32).rev().filter(|page| self.has_much_room(*page)).collect();
    }

    fn has_much_room(&self, page: u32) -> bool {
        let header = &self.pages[page as usize];
        if self.single { header.members.is_empty() } else { header.bytes + self.page_bytes / 4 <= self.page_bytes }
    }

    /// Room for headers on a header page, a new hole left free.
    pub fn room_bytes(&self) -> usize {
        self.page_bytes as usize - margay_format::HeaderPage::START_BYTES - crate::data::HOLE_BYTES
    }

    /// Adds an object; its number, or `None` if there are too many.
    pub fn add(&mut self, mut node: Node) -> Option<u32> {
        let object = match self.free.pop() {
            Some(object) => object,
            None if self.nodes.len() < MAX_OBJECTS as usize => {
                self.nodes.push(None);
                self.nodes.len() as u32 - 1
            }
            None => return None,
        };
        self.generation += 1;
        node.generation = self.generation & 0xFFFF_FFFF;
        node.header_bytes = header_bytes(&node, self.page_bytes) as u32;
        node.page = self.page_for(node.header_bytes);
        self.enter(object, node.page, node.header_bytes);
        self.nodes[object as usize] = Some(Box::new(node));
        self.objects += 1;
        Some(object)
    }

    fn enter(&mut self, object: u32, page: u32, bytes: u32) {
        let header = &mut self.pages[page as usize];
        header.members.push(object);
        header.bytes += bytes;
        self.empty.remove(&page);
    }

    fn leave(&mut self, object: u32, page: u32, bytes: u32) {
        let had_room = self.has_much_room(page);
        let header = &mut self.pages[page as usize];
        header.members.retain(|member| *member != object);
        header.bytes -= bytes;
        if !had_room && page != self.filling && self.has_much_room(page) {
            self.roomy.push(page);
        }
    }

    /// A header page with room for so many bytes.
    pub fn page_for(&mut self, bytes: u32) -> u32 {
        let room = self.room_bytes() as u32;
        let fits = |page: &HeaderPage| if self.single { page.members.is_empty() } else { page.bytes + bytes <= room };
        if let Some(page) = self.pages.get(self.filling as usize)
            && fits(page)
        {
            return self.filling;
        }
        while let Some(page) = self.roomy.pop() {
            if fits(&self.pages[page as usize]) {
                self.filling = page;
                return page;
            }
        }
        self.pages.push(HeaderPage::default());
        self.filling = self.pages.len() as u32 - 1;
        self.filling
    }

    /// Takes an object out. Its number is used again once its header page is written.
    pub fn remove(&mut self, object: u32) -> Box<Node> {
        let node = self.nodes[object as usize].take().expect("only objects in use are removed");
        self.leave(object, node.page, node.header_bytes);
        self.pages[node.page as usize].removed.push(object);
        self.tails.remove(&object);
        self.objects -= 1;
        node
    }

    /// An object's header has changed: counts its bytes anew and moves it to another page if it has outgrown its
    /// own. Says which page it was on if it moved.
    pub fn resize(&mut self, object: u32) -> Option<u32> {
        let page_bytes = self.page_bytes;
        let node = self.node_mut(object).expect("the object is in use");
        let (old, page) = (node.header_bytes, node.page);
        let new = header_bytes(node, page_bytes) as u32;
        node.header_bytes = new;
        let header = &mut self.pages[page as usize];
        header.bytes = header.bytes - old + new;
        if header.bytes as usize <= self.room_bytes() {
            return None;
        }
        self.leave(object, page, new);
        let to = self.page_for(new);
        self.enter(object, to, new);
        self.node_mut(object).expect("the object is in use").page = to;
        Some(page)
    }

    /// Counts the bytes of all headers anew, and moves headers from pages that have become too full, the largest first, to
    /// pages of which nothing is on flash. Says which pages have changed, in the order in which they have to be written: what
    /// moved is on its new page before it leaves the old one.
    pub fn resize_all(&mut self) -> Vec<u32> {
        let page_bytes = self.page_bytes;
        self.pages.iter_mut().for_each(|page| page.bytes = 0);
        for node in self.nodes.iter_mut().flatten() {
            node.header_bytes = header_bytes(node, page_bytes) as u32;
            self.pages[node.page as usize].bytes += node.header_bytes;
        }
        let (first_new, room) = (self.pages.len() as u32, self.room_bytes() as u32);
        let mut left = Vec::new();
        for page in 0..first_new {
            while self.pages[page as usize].bytes > room && self.pages[page as usize].members.len() > 1 {
                let bytes = |object: &u32| self.node(*object).map_or(0, |node| node.header_bytes);
                let members = self.pages[page as usize].members.iter();
                let Some(object) = members.copied().max_by_key(bytes) else { break };
                let bytes = bytes(&object);
                self.leave(object, page, bytes);
                let last = self.pages.len() as u32 - 1;
                if last < first_new || self.pages[last as usize].bytes + bytes > room {
                    self.pages.push(HeaderPage::default());
                }
                let to = self.pages.len() as u32 - 1;
                self.enter(object, to, bytes);
                self.node_mut(object).expect("the object is in use").page = to;
                left.push(page);
            }
        }
        left.dedup();
        (first_new..self.pages.len() as u32).chain(left).collect()
    }

    /// Writes the header page `page` as it is after the program `seq` into `data`.
    pub fn encode(&self, page: u32, seq: u64, data: &mut [u8]) {
        let members = &self.pages[page as usize].members;
        let header = |object: &u32| header_of(*object, self.node(*object).expect("in use"), self.page_bytes);
        let fits = margay_format::HeaderPage::encode(seq, members.iter().map(header), data);
        debug_assert!(fits, "header page {page} is too full");
    }

    /// A header page is on flash as it is in memory.
    pub fn headers_written(&mut self, page: u32) {
        let header = &mut self.pages[page as usize];
        self.free.append(&mut header.removed);
        // Taken out for the loop: the nodes are borrowed with the rest.
        let members = core::mem::take(&mut header.members);
        for object in &members {
            let node = self.node_mut(*object).expect("in use");
            (node.resized, node.shrunk) = (false, false);
        }
        self.pages[page as usize].members = members;
        self.soft.remove(&page);
        if self.pages[page as usize].members.is_empty() && self.pages[page as usize].at.is_some() {
            self.empty.insert(page);
        }
        if self.dirty == Some(page) {
            (self.dirty, self.destructive) = (None, false);
        }
    }

    /// Directories from one up to the root, itself first.
    pub fn ancestors(&self, object: u32) -> impl Iterator<Item = u32> + '_ {
        let mut at = Some(object);
        core::iter::from_fn(move || {
            let object = at?;
            at = (object != ROOT).then(|| self.node(object).map(|node| node.parent)).flatten();
            Some(object)
        })
    }

    /// Finds a name; the object, of a hard link the one it stands for.
    pub fn lookup(&self, parent: u32, name: &[u8]) -> Option<u32> {
        let node = self.node(parent).filter(|node| node.kind == ObjectKind::Directory)?;
        node.children.get(name).copied()
    }

    /// What an object stands for: itself, or what it is a hard link to.
    pub fn resolve(&self, object: u32) -> u32 {
        self.node(object).and_then(|node| node.link_to).unwrap_or(object)
    }

    /// What the page of an owner is on this device.
    pub fn what(&self, owner: PageOwner) -> Owned {
        match owner.what() {
            Owned::Holes(object, group) if !self.hole_pages => Owned::Chunk(object, MAX_DATA_CHUNKS + group),
            what => what,
        }
    }

    pub fn set_place(&mut self, owner: PageOwner, to: Ppn) {
        match self.what(owner) {
            Owned::Superblock => self.superblock = Some(to),
            Owned::Retired => self.retired_at = Some(to),
            Owned::Headers(page) => self.pages[page as usize].at = Some(to),
            Owned::Chunk(object, chunk) => {
                if let Some(node) = self.node_mut(object) {
                    node.chunks.set(chunk, to);
                }
            }
            Owned::Holes(0, group) => drop(self.header_holes.insert(group, to)),
            Owned::Holes(object, group) => {
                let page_bytes = self.page_bytes;
                if let Some(node) = self.node_mut(object) {
                    node.chunks.move_map(group, to, page_bytes);
                }
            }
            Owned::Unknown => {}
        }
    }

    /// Bits of the page of holes for a group of header pages, when those that are empty are given back: all that are not on
    /// flash. And which are given back.
    pub fn header_hole_bits(&self, group: u32) -> (Box<[u8]>, Vec<u32>) {
        let count = HolePage::chunks(self.page_bytes);
        let mut bits = vec![0xFF; count as usize / 8].into_boxed_slice();
        let pages = (0..count).zip(self.pages.iter().skip((group * count) as usize));
        let mut given_back = Vec::new();
        for (at, page) in pages.filter(|(_, page)| page.at.is_some()) {
            let number = group * count + at;
            if page.members.is_empty() && self.empty.contains(&number) && self.dirty != Some(number) {
                given_back.push(number);
            } else {
                bits[at as usize / 8] &= !(1 << (at % 8));
            }
        }
        (bits, given_back)
    }

    /// Number of valid pages that can be given back.
    pub fn reclaimable(&self) -> u64 {
        let costs = u64::from(self.header_holes.is_empty());
        if self.hole_pages { (self.empty.len() as u64).saturating_sub(costs) } else { 0 }
    }

    /// Every valid page with its owner: the file system's own, header pages, then data.
    pub fn pages(&self) -> impl Iterator<Item = (PageOwner, Ppn)> + '_ {
        let own = [PageOwner::SUPERBLOCK, PageOwner::RETIRED].into_iter();
        let own = own.chain(self.header_holes.keys().map(|group| PageOwner::holes(0, *group)));
        let owners = own.chain((0..self.pages.len() as u32).map(PageOwner::headers));
        let pages = owners.filter_map(|owner| Some((owner, self.locate(owner)?)));
        let chunks = self.iter().flat_map(|(object, node)| {
            node.chunks.iter().map(move |(chunk, ppn)| (PageOwner::chunk(object, chunk), ppn))
        });
        let holes = self.iter().flat_map(|(object, node)| {
            node.chunks.maps().map(move |(group, map)| (PageOwner::holes(object, group), map.at))
        });
        pages.chain(chunks).chain(holes)
    }

    pub fn memory_bytes(&self) -> u64 {
        let nodes: usize = self.iter().map(|(_, node)| node.memory_bytes()).sum();
        let members: usize =
            self.pages.iter().map(|page| (page.members.capacity() + page.removed.capacity()) * 4).sum();
        let tables =
            self.nodes.capacity() * size_of::<Option<Box<Node>>>() + self.pages.capacity() * size_of::<HeaderPage>();
        (nodes + members + tables) as u64
    }
}

impl Client<PageOwner> for Index {
    #[inline]
    fn relocated(&mut self, owner: PageOwner, to: Ppn) {
        self.set_place(owner, to);
    }

    fn locate(&self, owner: PageOwner) -> Option<Ppn> {
        match self.what(owner) {
            Owned::Superblock => self.superblock,
            Owned::Retired => self.retired_at,
            Owned::Headers(page) => self.pages.get(page as usize)?.at,
            Owned::Chunk(object, chunk) => self.node(object)?.chunks.get(chunk),
            Owned::Holes(0, group) => self.header_holes.get(&group).copied(),
            Owned::Holes(object, group) => self.node(object)?.chunks.map_at(group),
            Owned::Unknown => None,
        }
    }

    fn pending(&mut self, seq: u64, page: &mut [u8]) -> Option<PageOwner> {
        let dirty = self.dirty.filter(|_| self.destructive)?;
        self.encode(dirty, seq, page);
        Some(PageOwner::headers(dirty))
    }

    fn pending_written(&mut self, owner: PageOwner) {
        self.written(owner);
    }

    fn written(&mut self, owner: PageOwner) {
        if let Owned::Headers(page) = owner.what() {
            self.headers_written(page);
        }
    }

    fn retired_list(&self) -> Option<PageOwner> {
        Some(PageOwner::RETIRED)
    }
}
