//! What a file system adds to the recovery of its device: the header pages, and which pages of data count.

use crate::chunks::FoundMap;
use crate::header::node_of;
use crate::holes::bit;
use crate::index::{HeaderPage, Index};
use crate::node::ObjectKind;
use crate::tree::{AsOf, Candidate, build, newest};
use crate::{Owned, PageOwner, Problem};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::{vec, vec::Vec};
use margay_flash::{Flash, FlashError, Ppn};
use margay_format::{
    FoundPage, HOLE_PAGES, HeaderPage as Headers, HolePage, Layout, LogState, MAX_DATA_CHUNKS, Superblock,
    decode_files_checkpoint,
};
use margay_log::{Client, Content, Kept, OwnerMap, PageReader, ValidPages};

/// Sequence number and place of the latest page of each owner.
type Latest = BTreeMap<PageOwner, (u64, Ppn)>;

/// A page of holes as it is on flash: the program up to which it says something, and what.
#[derive(Debug)]
struct ReadHoles {
    seq: u64,
    bits: Box<[u8]>,
}

/// Pages of holes by object and group.
type AllHoles = BTreeMap<(u32, u32), ReadHoles>;

/// What is found of a file system.
#[derive(Debug)]
pub(crate) struct FilesMap {
    latest: Latest,
    pub index: Index,
    /// Header pages that are to be written again, because they hold headers that do not count.
    pub repair: Vec<u32>,
    pub problems: Vec<Problem>,
}

/// Whether a page of holes says that what was programmed so early for a chunk is not its data.
fn is_hole(holes: &AllHoles, object: u32, chunk: u32, seq: u64, page_bytes: u32) -> bool {
    let count = HolePage::chunks(page_bytes);
    let page = holes.get(&(object, chunk / count));
    page.is_some_and(|page| seq <= page.seq && bit(&page.bits, chunk % count))
}

impl FilesMap {
    /// Reads the pages of holes of an object of which `counts` says that they are its own, by group and sequence number.
    fn read_holes<F: Flash>(
        &mut self,
        object: u32,
        latest: &Latest,
        reader: &mut PageReader<'_, F>,
        holes: &mut AllHoles,
        counts: impl Fn(u32, u64) -> bool,
    ) -> Result<(), FlashError> {
        let mut data = Vec::new();
        for (owner, (seq, ppn)) in latest.range(PageOwner::holes(object, 0)..PageOwner::chunk(object + 1, 0)) {
            let Owned::Holes(_, group) = owner.what() else { continue };
            if !counts(group, *seq) {
                continue;
            }
            data.resize(reader.geometry().page_bytes() as usize, 0);
            let is_readable = reader.read(*ppn, *owner, &mut data)?;
            match HolePage::decode(object, group, &data).filter(|_| is_readable) {
                Some(HolePage { seq, bits }) => {
                    self.index.set_place(*owner, *ppn);
                    holes.insert((object, group), ReadHoles { seq, bits: bits.into() });
                }
                None => self.problems.push(Problem::Holes { object, group, ppn: *ppn }),
            }
        }
        Ok(())
    }

    /// Reads the pages of holes of all files.
    fn read_all_holes<F: Flash>(
        &mut self,
        latest: &Latest,
        as_of: &AsOf,
        reader: &mut PageReader<'_, F>,
        holes: &mut AllHoles,
    ) -> Result<(), FlashError> {
        let owners = latest.keys().filter_map(|owner| match owner.what() {
            Owned::Holes(object, _) if object > 0 => Some(object),
            _ => None,
        });
        let mut objects: Vec<u32> = owners.collect();
        objects.dedup();
        for object in objects {
            let is_file =
                self.index.node(object).is_some_and(|node| node.kind == ObjectKind::File && node.link_to.is_none());
            let Some((since, listed)) = as_of.get(&object).filter(|_| is_file) else { continue };
            self.read_holes(object, latest, reader, holes, |group, seq| {
                let number = MAX_DATA_CHUNKS + group;
                seq > *since || listed.iter().any(|(first, end)| (*first..*end).contains(&number))
            })?;
        }
        Ok(())
    }

    /// What every file does not have.
    fn settle_holes(&mut self, as_of: &AsOf, mut holes: AllHoles) {
        let page_bytes = self.index.page_bytes;
        let files = self.index.iter().filter(|(_, node)| node.kind == ObjectKind::File && node.link_to.is_none());
        let files: Vec<u32> = files.map(|(object, _)| object).collect();
        for object in files {
            let Some((since, listed)) = as_of.get(&object) else { continue };
            let node = self.index.node_mut(object).expect("in use");
            let groups: Vec<(u32, Ppn)> = node.chunks.maps().map(|(group, map)| (group, map.at)).collect();
            let found = groups.into_iter().filter_map(|(group, at)| {
                let ReadHoles { seq, bits } = holes.remove(&(object, group))?;
                Some(FoundMap { group, at, bits, is_older: seq < *since })
            });
            let (found, len) = (found.collect(), node.chunks_on_flash(page_bytes));
            node.chunks.settle(len, page_bytes, listed, found);
        }
    }

    /// Reads every header page that counts.
    fn read_headers<F: Flash>(
        &mut self,
        latest: &Latest,
        reader: &mut PageReader<'_, F>,
        holes: &AllHoles,
    ) -> Result<Vec<(u32, Candidate)>, FlashError> {
        let geometry = reader.geometry();
        let mut data = vec![0; geometry.page_bytes() as usize];
        let mut candidates = Vec::new();
        for (owner, (seq, ppn)) in latest.range(PageOwner::headers(0)..PageOwner::chunk(1, 0)) {
            let Owned::Headers(page) = owner.what() else { continue };
            if !reader.is_from_checkpoint() && is_hole(holes, 0, page, *seq, geometry.page_bytes()) {
                continue;
            }
            // There are never more of them than pages.
            if page >= geometry.pages() {
                self.problems.push(Problem::Headers { page, ppn: *ppn });
                continue;
            }
            let pages = &mut self.index.pages;
            if pages.len() <= page as usize {
                pages.resize(page as usize + 1, HeaderPage::default());
            }
            // One that cannot be read stays where it is until another takes its place.
            pages[page as usize].at = Some(*ppn);
            let is_readable = reader.read(*ppn, *owner, &mut data)?;
            match Headers::decode(&data).filter(|_| is_readable) {
                Some(Headers { headers, .. }) if headers.is_empty() => drop(self.index.empty.insert(page)),
                Some(Headers { seq, headers }) => candidates.extend((0..).zip(headers).map(|(at, header)| {
                    let node = node_of(&header);
                    (header.object, Candidate { age: (seq, at), page, node, holes: header.holes })
                })),
                None => self.problems.push(Problem::Headers { page, ppn: *ppn }),
            }
        }
        Ok(candidates)
    }

    /// Enters the places of the pages that count; by the checkpoint all do.
    fn place_pages(&mut self, latest: &Latest, as_of: &AsOf, all_holes: &AllHoles, is_from_checkpoint: bool) {
        let page_bytes = self.index.page_bytes;
        for (owner, (seq, ppn)) in latest {
            match self.index.what(*owner) {
                Owned::Superblock | Owned::Retired => self.index.set_place(*owner, *ppn),
                Owned::Chunk(object, chunk) => {
                    let Some((since, holes)) = as_of.get(&object) else { continue };
                    let node = self.index.node(object).filter(|node| node.kind == ObjectKind::File);
                    let Some(node) = node else { continue };
                    let chunks = node.size.div_ceil(u64::from(self.index.page_bytes));
                    let is_listed = holes.iter().any(|(first, end)| (*first..*end).contains(&chunk));
                    let counts = || (seq > since || !is_listed) && !is_hole(all_holes, object, chunk, *seq, page_bytes);
                    if u64::from(chunk) < chunks && (is_from_checkpoint || counts()) {
                        self.index.set_place(*owner, *ppn);
                    }
                }
                Owned::Headers(_) | Owned::Holes(..) | Owned::Unknown => {}
            }
        }
    }
}

impl OwnerMap for FilesMap {
    type Owner = PageOwner;

    fn empty(superblock: &Superblock) -> Self {
        let mut index = Index::new(superblock.geometry.page_bytes(), false);
        index.hole_pages = superblock.incompatible & HOLE_PAGES != 0;
        Self { latest: Latest::new(), index, repair: Vec::new(), problems: Vec::new() }
    }

    fn found(&mut self, page: &FoundPage) -> bool {
        let owner = PageOwner::from_u64(page.owner);
        if owner.what() == Owned::Unknown {
            return false;
        }
        let latest = self.latest.entry(owner).or_insert((page.seq, page.ppn));
        if latest.0 <= page.seq {
            *latest = (page.seq, page.ppn);
        }
        true
    }

    fn decode_checkpoint(bytes: &[u8], superblock: &Superblock, layout: &Layout) -> Option<(LogState, Self)> {
        let (log, pages) = decode_files_checkpoint(bytes, superblock, layout)?;
        let mut map = Self::empty(superblock);
        for page in pages {
            let (owner, ppn) = page?;
            if map.latest.insert(owner, (log.seq, ppn)).is_some() {
                return None;
            }
        }
        Some((log, map))
    }

    fn places(&self) -> impl Iterator<Item = Ppn> + '_ {
        self.latest.values().map(|(_, ppn)| *ppn)
    }

    fn retired_list(&self) -> Option<(Ppn, PageOwner)> {
        self.latest.get(&PageOwner::RETIRED).map(|(_, ppn)| (*ppn, PageOwner::RETIRED))
    }

    fn settle<F: Flash>(&mut self, reader: &mut PageReader<'_, F>) -> Result<(), FlashError> {
        let latest = core::mem::take(&mut self.latest);
        let mut holes = AllHoles::new();
        if self.index.hole_pages {
            self.read_holes(0, &latest, reader, &mut holes, |_, _| true)?;
        }
        let candidates = self.read_headers(&latest, reader, &holes)?;
        let (found, outdated) = newest(candidates);
        self.repair = outdated;
        let max_pages = reader.geometry().pages();
        let as_of = build(&mut self.index, found, &mut self.repair, &mut self.problems, max_pages);
        if self.index.hole_pages {
            self.read_all_holes(&latest, &as_of, reader, &mut holes)?;
        }
        self.place_pages(&latest, &as_of, &holes, reader.is_from_checkpoint());
        self.settle_holes(&as_of, holes);
        // Headers of files that grew into a hole after they were written take other room than before.
        let moved = self.index.resize_all();
        self.repair.splice(..0, moved);
        self.index.restored();
        self.latest = latest;
        Ok(())
    }

    fn take_pages(&mut self) -> ValidPages<PageOwner> {
        let latest = core::mem::take(&mut self.latest);
        let headers = |object| Content::Headers { object, open: false };
        let valid = latest.into_iter().filter(|(owner, (_, ppn))| self.index.locate(*owner) == Some(*ppn));
        let places: Vec<_> = valid.map(|(owner, (_, ppn))| (ppn, owner)).collect();
        let kept = (0..).zip(&places).map(|(at, (_, owner))| {
            let content = match owner.what() {
                Owned::Chunk(object, chunk) => Content::Chunk { object, chunk, whole: true },
                Owned::Headers(page) => headers(self.index.pages[page as usize].members.last().copied().unwrap_or(0)),
                _ => headers(0),
            };
            (at, Kept::Content(content))
        });
        let kept = kept.collect();
        ValidPages { places, kept, counts: Vec::new() }
    }
}
