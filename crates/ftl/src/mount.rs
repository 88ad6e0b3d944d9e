//! Finding everything again: from a checkpoint after a clean stop, else by looking into every segment.

use crate::map::{Map, OwnPages, UNMAPPED, decode_bad, decode_trims};
use crate::{Ftl, FtlError, checkpoint};
use alloc::{vec, vec::Vec};
use core::fmt;
use margay_flash::{Flash, FlashError, Lpn, Ppn, SegmentId};
use margay_format::{Anchor, Formatted, FoundPage, PageInfo, Store, Superblock};
use margay_log::{
    Census, Config, Kept, Log, LogError, MountReport, Policies, Restored, StopRecord, Survey, SurveyError, Suspect,
    is_outdated,
};

/// Why a device could not be mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountError {
    /// It could not be looked into.
    Survey(SurveyError),
    /// The log failed.
    Ftl(FtlError),
}

impl From<SurveyError> for MountError {
    fn from(error: SurveyError) -> Self {
        match error {
            SurveyError::Flash(error) => error.into(),
            SurveyError::Newer { .. } => Self::Survey(error),
        }
    }
}

impl From<FlashError> for MountError {
    fn from(error: FlashError) -> Self {
        Self::Ftl(LogError::from(error).into())
    }
}

impl From<LogError> for MountError {
    fn from(error: LogError) -> Self {
        Self::Ftl(error.into())
    }
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Survey(error) => error.fmt(f),
            Self::Ftl(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for MountError {}

/// What was found on a device.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub(crate) restored: Restored<Lpn>,
    pub(crate) map: Vec<u32>,
    pub(crate) bad: Vec<SegmentId>,
    suspect: Option<Suspect>,
    stop: StopRecord,
    /// What it found and cost.
    pub report: MountReport,
}

/// Finds out what a device holds, with `by_checkpoint` from the checkpoint of a clean stop if there is one.
pub fn load<F: Flash>(
    device: &mut Formatted<F>,
    superblock: &Superblock,
    by_checkpoint: bool,
) -> Result<Loaded, MountError> {
    let own = OwnPages::new(superblock.exported_pages, superblock.geometry.page_bytes());
    let mut stop = StopRecord::find(device)?;
    if let Some(at) = stop.checkpoint.take().filter(|_| by_checkpoint) {
        let (bytes, reads) = device.read_checkpoint(&at)?;
        stop.reads += reads;
        if let Some(mut loaded) = bytes.and_then(|bytes| checkpoint::decode(&bytes, &at, superblock, own, device)) {
            let (is_outdated, reads) = is_outdated(device, &at, &loaded.restored.segments, &loaded.restored.free)?;
            stop.reads += reads;
            if !is_outdated {
                let last = u64::from(device.checkpoint_pages(at.len_bytes as usize));
                loaded.restored.seq = loaded.restored.seq.max(at.seq + last);
                loaded.report.reads = stop.reads;
                stop.checkpoint = Some(at);
                loaded.stop = stop;
                return Ok(loaded);
            }
        }
    }
    let mut survey = Survey::run(device, || Latest::new(own))?;
    survey.report.reads += stop.reads;
    apply_trims(&mut survey, own, device)?;
    let bad = read_bad(&mut survey, own, device)?;
    let mapped = survey.census.map.clone();
    let bad = survey.retire(device, bad, mapped.iter().filter(|page| **page != UNMAPPED).map(|page| Ppn(*page)));
    Ok(Loaded::from_survey(survey, bad, stop))
}

/// By owner, the place and sequence number of its latest page, and what is kept of it.
struct Latest {
    own: OwnPages,
    map: Vec<u32>,
    seqs: Vec<u64>,
    infos: Vec<Option<PageInfo>>,
}

impl Latest {
    fn new(own: OwnPages) -> Self {
        let owners = own.owners() as usize;
        Self { own, map: vec![UNMAPPED; owners], seqs: vec![0; owners], infos: vec![None; owners] }
    }
}

impl Census for Latest {
    fn found(&mut self, page: &FoundPage) -> bool {
        let Some(owner) = usize::try_from(page.owner).ok().filter(|owner| *owner < self.own.owners() as usize) else {
            return false;
        };
        if self.seqs[owner] <= page.seq {
            self.seqs[owner] = page.seq;
            self.map[owner] = page.ppn.0;
            self.infos[owner] = page.info;
        }
        true
    }
}

/// Reads a page of the disk's own.
fn read_own<F: Flash>(
    survey: &mut Survey<Latest>,
    device: &mut Formatted<F>,
    owner: Lpn,
    page: &mut [u8],
) -> Result<bool, MountError> {
    match survey.census.map[owner.index()] {
        UNMAPPED => Ok(false),
        at => Ok(survey.read(device, Ppn(at), owner.0.into(), page)?),
    }
}

fn apply_trims<F: Flash>(
    survey: &mut Survey<Latest>,
    own: OwnPages,
    device: &mut Formatted<F>,
) -> Result<(), MountError> {
    let mut page = vec![0; device.geometry().page_bytes() as usize];
    for group in 0..own.groups() {
        let owner = own.trims(group);
        if !read_own(survey, device, owner, &mut page)? {
            let at = survey.census.map[owner.index()];
            survey.report.damaged.extend((at != UNMAPPED).then_some(Ppn(at)));
            continue;
        }
        let Some((seq, unmapped)) = decode_trims(&own, group, &page) else { continue };
        for lpn in unmapped.map(Lpn::index) {
            if survey.census.seqs[lpn] <= seq {
                survey.census.map[lpn] = UNMAPPED;
            }
        }
    }
    Ok(())
}

fn read_bad<F: Flash>(
    survey: &mut Survey<Latest>,
    own: OwnPages,
    device: &mut Formatted<F>,
) -> Result<Vec<SegmentId>, MountError> {
    let mut page = vec![0; device.geometry().page_bytes() as usize];
    if !read_own(survey, device, own.bad(), &mut page)? {
        return Ok(Vec::new());
    }
    Ok(decode_bad(&page, device.geometry().segments()).unwrap_or_default())
}

impl Loaded {
    /// Where a page lives.
    pub fn place(&self, lpn: Lpn) -> Option<Ppn> {
        self.map.get(lpn.index()).copied().filter(|page| *page != UNMAPPED).map(Ppn)
    }

    /// From a checkpoint.
    pub(crate) fn from_checkpoint(restored: Restored<Lpn>, map: Vec<u32>, bad: Vec<SegmentId>) -> Self {
        let report =
            MountReport { from_checkpoint: true, retired_segments: bad.len() as u32, ..MountReport::default() };
        Self { restored, map, bad, suspect: None, stop: StopRecord::default(), report }
    }

    fn from_survey(survey: Survey<Latest>, bad: Vec<SegmentId>, stop: StopRecord) -> Self {
        let Latest { map, infos, .. } = survey.census;
        let mapped = map.iter().enumerate().filter(|(_, page)| **page != UNMAPPED);
        let pages = mapped.map(|(owner, page)| {
            let kept = infos[owner].map_or(Kept::Nothing, Kept::OnFlash);
            (Ppn(*page), Lpn(owner as u32), kept)
        });
        let pages = pages.collect();
        let suspect = survey.suspect.filter(|suspect| map.contains(&suspect.ppn.0));
        let (segments, now, seq, free) = (survey.segments, survey.now, survey.seq, survey.free);
        let restored = Restored { segments, pages, now, seq, free };
        Self { restored, map, bad, suspect, stop, report: survey.report }
    }
}

impl<F: Flash> Ftl<Formatted<F>> {
    /// Mounts a device as it was found. Without `read_only`, makes what a power cut left safe first; see
    /// [`Log::start`].
    pub fn mount(
        device: Formatted<F>,
        superblock: &Superblock,
        config: Config,
        policies: Policies,
        loaded: Loaded,
        read_only: bool,
    ) -> Result<(Self, Anchor), MountError> {
        let own = OwnPages::new(superblock.exported_pages, superblock.geometry.page_bytes());
        let Loaded { restored, map, bad, suspect, mut stop, .. } = loaded;
        let mut log = Log::restore(device, config, policies, own.owners(), &restored)
            .map_err(|error| MountError::Ftl(LogError::from(error).into()))?;
        let mut map = Map::durable(own, map, bad);
        if !read_only {
            log.start(&mut map, superblock, &restored, &mut stop, suspect)?;
        }
        Ok((Self { log, map, scrubs: Vec::new() }, stop.anchor))
    }

    /// Stops cleanly: writes all that is pending and a checkpoint, if there is room for one, so that the next
    /// mount is fast. The disk must not be used any more.
    pub fn stop(&mut self, anchor: &mut Anchor, superblock: &Superblock) -> Result<bool, FtlError> {
        self.flush()?;
        Ok(self.log.stop(&mut self.map, anchor, superblock, |log, map| checkpoint::encode(log, map, superblock))?)
    }
}
