//! Formatting, and finding everything again.

use crate::checkpoint;
use crate::header::{FIXED_BYTES, Found, decode};
use crate::index::{HeaderPage, Index, ROOT, decode_bad};
use crate::node::{Kind, Node};
use crate::owner::{MAX_CHUNKS, MAX_OBJECTS, OWNERS, Owned, PageOwner};
use crate::{Fs, FsError, Problem};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::{vec, vec::Vec};
use core::fmt;
use margay_flash::{Flash, FlashError, Ppn, SegmentId};
use margay_format::{
    Anchor, ClientKind, FindError, Formatted, FoundPage, Layout, Record, SegmentInfo, Store, Superblock,
    find_superblock,
};
use margay_log::{
    Census, Config, Content, Kept, Log, LogError, MountReport, Policies, Restored, StopRecord, Survey, SurveyError,
    Suspect, is_outdated,
};
use margay_policy::State;

/// Number of owners of pages there can be: it gives the layout on flash.
pub const fn owners() -> u64 {
    OWNERS
}

/// Why there is no file system to be had of a device.
#[derive(Clone, Debug, PartialEq)]
pub enum FsMountError {
    /// No superblock was found.
    Find(FindError),
    /// The device holds a disk.
    NotAFileSystem,
    /// The device could not be looked into.
    Survey(SurveyError),
    /// The log or the file system failed.
    Fs(FsError),
}

impl From<FindError> for FsMountError {
    fn from(error: FindError) -> Self {
        Self::Find(error)
    }
}

impl From<SurveyError> for FsMountError {
    fn from(error: SurveyError) -> Self {
        Self::Survey(error)
    }
}

impl From<FlashError> for FsMountError {
    fn from(error: FlashError) -> Self {
        Self::Fs(FsError::Log(error.into()))
    }
}

impl From<LogError> for FsMountError {
    fn from(error: LogError) -> Self {
        Self::Fs(error.into())
    }
}

impl From<FsError> for FsMountError {
    fn from(error: FsError) -> Self {
        Self::Fs(error)
    }
}

impl fmt::Display for FsMountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Find(error) => error.fmt(f),
            Self::NotAFileSystem => {
                f.write_str("the device holds a disk (serve it instead) or a paging store, no file system")
            }
            Self::Survey(error) => error.fmt(f),
            Self::Fs(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for FsMountError {}

/// The superblock of a device that holds a file system.
pub fn find<F: Flash>(device: &mut F) -> Result<Superblock, FsMountError> {
    let superblock = find_superblock(device, |_| (0, OWNERS))?;
    match superblock.client {
        ClientKind::FileSystem => Ok(superblock),
        ClientKind::Disk | ClientKind::Hybrid => Err(FsMountError::NotAFileSystem),
    }
}

/// By owner, the place and sequence number of its latest page.
#[derive(Debug, Default)]
pub(crate) struct Latest(pub BTreeMap<PageOwner, (u64, Ppn)>);

impl Census for Latest {
    fn found(&mut self, page: &FoundPage) -> bool {
        let owner = PageOwner::from_u64(page.owner);
        if owner.what() == Owned::Unknown {
            return false;
        }
        match self.0.entry(owner) {
            Entry::Vacant(entry) => {
                entry.insert((page.seq, page.ppn));
            }
            Entry::Occupied(mut entry) if entry.get().0 <= page.seq => {
                entry.insert((page.seq, page.ppn));
            }
            Entry::Occupied(_) => {}
        }
        true
    }
}

/// What was found on a device.
#[derive(Debug)]
pub struct FoundFs {
    pub(crate) index: Index,
    restored: Restored<PageOwner>,
    suspect: Option<Suspect>,
    stop: StopRecord,
    /// Header pages that hold what must not be found again.
    repair: Vec<u32>,
    /// What was found and cannot be.
    pub problems: Vec<Problem>,
    /// What it found and cost.
    pub report: MountReport,
}

/// What was found of an object, with the program after which it was so.
struct Candidate {
    seq: u64,
    page: u32,
    found: Found,
}

impl FoundFs {
    /// Finds out what a device holds, with `by_checkpoint` from the checkpoint of a clean stop if there is one.
    pub fn load<F: Flash>(
        device: &mut Formatted<F>,
        superblock: &Superblock,
        by_checkpoint: bool,
    ) -> Result<Self, FsMountError> {
        let mut stop = StopRecord::find(device)?;
        if let Some(at) = stop.checkpoint.take().filter(|_| by_checkpoint) {
            let (bytes, reads) = device.read_checkpoint(&at)?;
            stop.reads += reads;
            if let Some(mut thawed) = bytes.and_then(|bytes| checkpoint::decode(&bytes, &at, superblock, device)) {
                let (is_outdated, reads) = is_outdated(device, &at, &thawed.survey.segments, &thawed.survey.free)?;
                stop.reads += reads;
                if !is_outdated {
                    let last = u64::from(device.checkpoint_pages(at.len_bytes as usize));
                    thawed.survey.seq = thawed.survey.seq.max(at.seq + last);
                    thawed.survey.report.reads = stop.reads;
                    stop.checkpoint = Some(at);
                    return Self::build(device, thawed.survey, Some(thawed.bad), stop);
                }
            }
        }
        let mut survey = Survey::run(device, Latest::default)?;
        survey.report.reads += stop.reads;
        Self::build(device, survey, None, stop)
    }

    fn build<F: Flash>(
        device: &mut Formatted<F>,
        mut survey: Survey<Latest>,
        bad: Option<Vec<SegmentId>>,
        stop: StopRecord,
    ) -> Result<Self, FsMountError> {
        let all_live = bad.is_some();
        let mut index = Index::new(device.geometry().page_bytes(), false);
        let latest = core::mem::take(&mut survey.census.0);
        let mut problems = Vec::new();
        let candidates = read_headers(device, &mut survey, &latest, &mut index, &mut problems)?;
        let (found, mut repair) = newest(candidates);
        let as_of = plant(&mut index, found, &mut repair, &mut problems, device.geometry().pages());
        let mut page = vec![0; device.geometry().page_bytes() as usize];
        let mut bad_list = bad.unwrap_or_default();
        for (owner, (seq, ppn)) in &latest {
            match owner.what() {
                Owned::Superblock => index.set_place(*owner, *ppn),
                Owned::Retired => {
                    index.set_place(*owner, *ppn);
                    if !all_live && survey.read(device, *ppn, PageOwner::RETIRED_U64, &mut page)? {
                        bad_list = decode_bad(&page, device.geometry().segments()).unwrap_or_default();
                    }
                }
                Owned::Headers(_) => {}
                Owned::Chunk(object, chunk) => {
                    let Some((since, holes)) = as_of.get(&object) else { continue };
                    let Some(node) = index.node(object).filter(|node| node.kind == Kind::File) else { continue };
                    let chunks = node.size.div_ceil(u64::from(index.page_bytes));
                    let is_hole = holes.iter().any(|(first, end)| (*first..*end).contains(&chunk));
                    let is_live = u64::from(chunk) < chunks && (all_live || seq > since || !is_hole);
                    if is_live {
                        index.set_place(*owner, *ppn);
                    }
                }
                Owned::Unknown => {}
            }
        }
        // What grew into a hole after the header was written.
        let files: Vec<_> = index.iter().filter(|(_, node)| node.kind == Kind::File).map(|(id, _)| id).collect();
        for object in files {
            if let Some(page) = index.resize(object) {
                repair.push(page);
                repair.push(index.node(object).expect("in use").page);
            }
        }
        index.restored();
        let pages: Vec<_> = live_pages(&index, &latest);
        index.bad = survey.retire(device, bad_list, pages.iter().map(|(ppn, ..)| *ppn));
        let suspect = survey.suspect.filter(|suspect| pages.iter().any(|(ppn, ..)| *ppn == suspect.ppn));
        let (segments, now, seq, free) = (survey.segments, survey.now, survey.seq, survey.free);
        let restored = Restored { segments, pages, now, seq, free };
        Ok(Self { index, restored, suspect, stop, repair, problems, report: survey.report })
    }
}

/// Every valid page with its owner.
fn live_pages(index: &Index, latest: &BTreeMap<PageOwner, (u64, Ppn)>) -> Vec<(Ppn, PageOwner, Kept)> {
    use margay_log::Client;
    let live = latest.iter().filter(|(owner, (_, ppn))| index.locate(**owner) == Some(*ppn));
    live.map(|(owner, (_, ppn))| {
        let headers = |object| Content::Headers { object, open: false };
        let content = match owner.what() {
            Owned::Chunk(object, chunk) => Content::Chunk { object, chunk, whole: true },
            Owned::Headers(page) => headers(index.pages[page as usize].members.last().copied().unwrap_or(0)),
            _ => headers(0),
        };
        (*ppn, *owner, Kept::Content(content))
    })
    .collect()
}

/// Reads every header page.
fn read_headers<F: Flash>(
    device: &mut Formatted<F>,
    survey: &mut Survey<Latest>,
    latest: &BTreeMap<PageOwner, (u64, Ppn)>,
    index: &mut Index,
    problems: &mut Vec<Problem>,
) -> Result<Vec<Candidate>, FsMountError> {
    use margay_log::Owner;
    let mut data = vec![0; device.geometry().page_bytes() as usize];
    let mut candidates = Vec::new();
    let headers = latest.range(PageOwner::headers(0)..PageOwner::chunk(1, 0));
    for (owner, (_, ppn)) in headers {
        let Owned::Headers(page) = owner.what() else { continue };
        // There are never more of them than pages.
        if page >= device.geometry().pages() {
            problems.push(Problem::Headers { page, ppn: *ppn });
            continue;
        }
        if index.pages.len() <= page as usize {
            index.pages.resize(page as usize + 1, HeaderPage::default());
        }
        let found = match survey.read(device, *ppn, owner.to_u64(), &mut data)? {
            true => decode(&data),
            false => None,
        };
        // One that cannot be read stays where it is until another takes its place.
        index.pages[page as usize].at = Some(*ppn);
        match found {
            Some((seq, found)) => candidates.extend(found.into_iter().map(|found| Candidate { seq, page, found })),
            None => problems.push(Problem::Headers { page, ppn: *ppn }),
        }
    }
    Ok(candidates)
}

/// Of several headers of an object the newest counts; pages with others are to be written again.
fn newest(candidates: Vec<Candidate>) -> (BTreeMap<u32, Candidate>, Vec<u32>) {
    let mut found: BTreeMap<u32, Candidate> = BTreeMap::new();
    let mut repair = Vec::new();
    for candidate in candidates {
        match found.entry(candidate.found.object) {
            Entry::Vacant(entry) => {
                entry.insert(candidate);
            }
            Entry::Occupied(mut entry) => {
                let loser = if entry.get().seq < candidate.seq { entry.insert(candidate) } else { candidate };
                repair.push(loser.page);
            }
        }
    }
    (found, repair)
}

/// Whether bytes can be the name of an object.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
}

type AsOf = BTreeMap<u32, (u64, Vec<(u32, u32)>)>;

/// Makes the tree of what was found: of two objects with one name the newer keeps it, and what has no place in the
/// tree gets one under the root. Says of each object after which program its header holds, and its holes then.
fn plant(
    index: &mut Index,
    mut found: BTreeMap<u32, Candidate>,
    repair: &mut Vec<u32>,
    problems: &mut Vec<Problem>,
    most_pages: u32,
) -> AsOf {
    // Numbers are used again, so none is larger than all headers together would need.
    let most = (u64::from(most_pages) * u64::from(index.page_bytes / FIXED_BYTES as u32)).min(MAX_OBJECTS.into());
    found.retain(|object, candidate| {
        let node = &candidate.found.node;
        let fits = (1..most).contains(&u64::from(*object))
            && (*object == ROOT || is_name(&node.name))
            && node.size <= u64::from(MAX_CHUNKS) * u64::from(index.page_bytes)
            && (*object != ROOT || (node.kind == Kind::Directory && node.link_to.is_none()));
        if !fits {
            problems.push(Problem::Object { object: *object });
            repair.push(candidate.page);
        }
        fits
    });
    // Orphans were only kept for those that had them open; links need what they stand for.
    let is_gone = |found: &BTreeMap<u32, Candidate>, candidate: &Candidate| {
        let node = &candidate.found.node;
        let target = node.link_to.map(|target| found.get(&target).map(|target| &target.found.node));
        node.orphan
            || target.is_some_and(|target| {
                target.is_none_or(|target| target.orphan || target.link_to.is_some() || target.kind == Kind::Directory)
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
        let node = &candidate.found.node;
        if *object == ROOT {
            continue;
        }
        match names.entry((node.parent, node.name.clone())) {
            Entry::Vacant(entry) => {
                entry.insert(*object);
            }
            Entry::Occupied(mut entry) => {
                let other = *entry.get();
                let loser = if found[&other].seq < candidate.seq { entry.insert(*object) } else { *object };
                losers.push(loser);
            }
        }
    }
    for loser in losers {
        // Another name of it takes the place of the one that it lost.
        let heir = found.iter().find(|(_, other)| other.found.node.link_to == Some(loser)).map(|(id, _)| *id);
        repair.push(found[&loser].page);
        if let Some(heir) = heir {
            let link = found.remove(&heir).expect("it was just found");
            repair.push(link.page);
            names.insert((link.found.node.parent, link.found.node.name.clone()), loser);
            let node = &mut found.get_mut(&loser).expect("it is a loser").found.node;
            (node.parent, node.name) = (link.found.node.parent, link.found.node.name);
        } else {
            found.remove(&loser);
        }
    }
    let mut as_of = AsOf::new();
    if !found.contains_key(&ROOT) {
        problems.push(Problem::Object { object: ROOT });
        index.pages.push(HeaderPage::default());
        let page = index.pages.len() as u32 - 1;
        let mut node = Node::new(Kind::Directory, 0o755, 0, 0, ROOT, b"", crate::Time::default());
        node.header_bytes = crate::header::header_bytes(&node, index.page_bytes) as u32;
        index.restore(ROOT, node, page);
        repair.push(page);
    }
    for (object, Candidate { seq, page, found }) in found {
        as_of.insert(object, (seq, found.holes));
        index.restore(object, found.node, page);
    }
    hang(index, repair, problems);
    as_of
}

/// Enters every object in its directory.
fn hang(index: &mut Index, repair: &mut Vec<u32>, problems: &mut Vec<Problem>) {
    let objects: Vec<u32> = index.iter().map(|(object, _)| object).filter(|object| *object != ROOT).collect();
    for object in &objects {
        let node = index.node(*object).expect("in use");
        let limit = objects.len() + 2;
        let parent_is_directory = index.node(node.parent).is_some_and(|parent| parent.kind == Kind::Directory);
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
        directory.subdirectories += u32::from(kind == Kind::Directory);
        if let Some(target) = link_to.and_then(|target| index.node_mut(target)) {
            target.links.push(object);
            let kind = target.kind;
            index.node_mut(object).expect("in use").kind = kind;
        }
    }
}

impl<F: Flash> Fs<Formatted<F>> {
    /// Formats a device: all that is on it is lost. Segments that cannot be erased are retired.
    pub fn format(
        mut device: Formatted<F>,
        superblock: &Superblock,
        config: Config,
        policies: Policies,
    ) -> Result<Self, FsMountError> {
        let geometry = superblock.geometry;
        let reserved = device.layout().reserved_segments;
        for segment in reserved..geometry.segments() {
            match device.erase(SegmentId(segment), SegmentInfo { erases: 1, ..SegmentInfo::default() }) {
                // They fail again when they are to be used, and are retired then.
                Ok(()) | Err(FlashError::EraseFailed { .. } | FlashError::ProgramFailed { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut anchor = Anchor::default();
        device.write_anchor(&mut anchor, superblock, &Record::InUse)?;
        let mut index = Index::new(geometry.page_bytes(), false);
        let log = Log::new(device, config, policies, superblock.exported_pages, &mut index)?;
        let mut fs = Self::on(log, index, superblock.exported_pages.into());
        fs.anchor = anchor;
        fs.superblock = Some(Box::new(superblock.clone()));
        let mut page = vec![0; geometry.page_bytes() as usize];
        let bytes = superblock.encode().map_err(FindError::Superblock)?;
        page[..bytes.len()].copy_from_slice(&bytes);
        fs.log.write_own(&mut fs.index, PageOwner::SUPERBLOCK, &page)?;
        fs.make_root(0o755)?;
        fs.sync()?;
        Ok(fs)
    }

    /// Mounts a device as it was found. Without `read_only`, makes what a power cut left safe first.
    pub fn mount(
        device: Formatted<F>,
        superblock: &Superblock,
        config: Config,
        policies: Policies,
        found: FoundFs,
        read_only: bool,
    ) -> Result<Self, FsMountError> {
        let FoundFs { index, restored, suspect, mut stop, repair, report, .. } = found;
        let pages = superblock.exported_pages;
        let log = Log::restore(device, config, policies, pages, &restored).map_err(LogError::from)?;
        let mut fs = Self::on(log, index, pages.into());
        fs.superblock = Some(Box::new(superblock.clone()));
        for (object, node) in fs.index.iter() {
            fs.log.placement_mut().recall_file(object, node.heat);
        }
        (fs.read_only, fs.report) = (read_only, report);
        if !read_only {
            fs.log.start(&mut fs.index, superblock, &restored, &mut stop, suspect)?;
            for page in repair {
                fs.write_headers(page)?;
            }
        }
        fs.anchor = stop.anchor;
        Ok(fs)
    }

    /// Stops cleanly: everything is written, and a checkpoint if there is room for one, so that the next mount is
    /// fast. The file system must not be used any more.
    pub fn stop(&mut self) -> Result<bool, FsError> {
        let orphans: Vec<u32> = self.index.iter().filter(|(_, node)| node.orphan).map(|(object, _)| object).collect();
        for object in orphans {
            self.destroy(object)?;
        }
        self.sync()?;
        let Some(superblock) = self.superblock.clone().filter(|_| !self.read_only) else { return Ok(false) };
        let encode = |log: &_, index: &Index| checkpoint::encode(log, index, &superblock);
        Ok(self.log.stop(&mut self.index, &mut self.anchor, &superblock, encode)?)
    }

    /// Where everything lies on the device.
    pub fn layout(&self) -> &Layout {
        self.log.device().layout()
    }

    /// Segments that were retired.
    pub fn retired_segments(&self) -> usize {
        self.log.segments().state.iter().filter(|state| **state == State::Bad).count()
    }
}
