//! What a file system adds to the recovery of its device: the header pages, and which pages of data count.

use crate::header::node_of;
use crate::index::{HeaderPage, Index};
use crate::node::Kind;
use crate::tree::{AsOf, Candidate, build, newest};
use crate::{Owned, PageOwner, Problem};
use alloc::collections::BTreeMap;
use alloc::{vec, vec::Vec};
use margay_flash::{Flash, FlashError, Ppn};
use margay_format::{FoundPage, HeaderPage as Headers, Layout, LogState, Superblock, decode_files_checkpoint};
use margay_log::{Client, Content, Kept, OwnerMap, PageReader};

/// Sequence number and place of the latest page of each owner.
type Latest = BTreeMap<PageOwner, (u64, Ppn)>;

/// What is found of a file system.
#[derive(Debug)]
pub(crate) struct FilesMap {
    latest: Latest,
    pub index: Index,
    /// Header pages that are to be written again, because they hold headers that do not count.
    pub repair: Vec<u32>,
    pub problems: Vec<Problem>,
}

impl FilesMap {
    /// Reads every header page.
    fn read_headers<F: Flash>(
        &mut self,
        latest: &Latest,
        reader: &mut PageReader<'_, F>,
    ) -> Result<Vec<(u32, Candidate)>, FlashError> {
        let geometry = reader.geometry();
        let mut data = vec![0; geometry.page_bytes() as usize];
        let mut candidates = Vec::new();
        for (owner, (_, ppn)) in latest.range(PageOwner::headers(0)..PageOwner::chunk(1, 0)) {
            let Owned::Headers(page) = owner.what() else { continue };
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
                Some(Headers { seq, headers }) => candidates.extend(headers.into_iter().map(|header| {
                    let node = node_of(&header);
                    (header.object, Candidate { seq, page, node, holes: header.holes })
                })),
                None => self.problems.push(Problem::Headers { page, ppn: *ppn }),
            }
        }
        Ok(candidates)
    }

    /// Enters the places of the pages that count; by the checkpoint all do.
    fn place_pages(&mut self, latest: &Latest, as_of: &AsOf, is_from_checkpoint: bool) {
        for (owner, (seq, ppn)) in latest {
            match owner.what() {
                Owned::Superblock | Owned::Retired => self.index.set_place(*owner, *ppn),
                Owned::Chunk(object, chunk) => {
                    let Some((since, holes)) = as_of.get(&object) else { continue };
                    let node = self.index.node(object).filter(|node| node.kind == Kind::File);
                    let Some(node) = node else { continue };
                    let chunks = node.size.div_ceil(u64::from(self.index.page_bytes));
                    let is_hole = holes.iter().any(|(first, end)| (*first..*end).contains(&chunk));
                    if u64::from(chunk) < chunks && (is_from_checkpoint || seq > since || !is_hole) {
                        self.index.set_place(*owner, *ppn);
                    }
                }
                Owned::Headers(_) | Owned::Unknown => {}
            }
        }
    }

    /// Headers of files that grew into a hole after they were written take other room than before.
    fn resize_headers(&mut self) {
        let files = self.index.iter().filter(|(_, node)| node.kind == Kind::File);
        let files: Vec<_> = files.map(|(object, _)| object).collect();
        for object in files {
            if let Some(page) = self.index.resize(object) {
                self.repair.push(page);
                self.repair.push(self.index.node(object).expect("in use").page);
            }
        }
    }
}

impl OwnerMap for FilesMap {
    type Owner = PageOwner;

    fn empty(superblock: &Superblock) -> Self {
        let index = Index::new(superblock.geometry.page_bytes(), false);
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
        let candidates = self.read_headers(&latest, reader)?;
        let (found, outdated) = newest(candidates);
        self.repair = outdated;
        let max_pages = reader.geometry().pages();
        let as_of = build(&mut self.index, found, &mut self.repair, &mut self.problems, max_pages);
        self.place_pages(&latest, &as_of, reader.is_from_checkpoint());
        self.resize_headers();
        self.index.restored();
        self.latest = latest;
        Ok(())
    }

    fn take_pages(&mut self) -> Vec<(Ppn, PageOwner, Kept)> {
        let latest = core::mem::take(&mut self.latest);
        let headers = |object| Content::Headers { object, open: false };
        let valid = latest.into_iter().filter(|(owner, (_, ppn))| self.index.locate(*owner) == Some(*ppn));
        let pages = valid.map(|(owner, (_, ppn))| {
            let content = match owner.what() {
                Owned::Chunk(object, chunk) => Content::Chunk { object, chunk, whole: true },
                Owned::Headers(page) => headers(self.index.pages[page as usize].members.last().copied().unwrap_or(0)),
                _ => headers(0),
            };
            (ppn, owner, Kept::Content(content))
        });
        pages.collect()
    }
}
