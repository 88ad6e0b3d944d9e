//! What a checkpoint says of the file system (FORMAT.md, "Checkpoint"): where every page is. Headers are read from
//! their pages.

use crate::index::Index;
use crate::mount::Latest;
use crate::owner::{Owned, PageOwner};
use alloc::vec::Vec;
use margay_flash::{Flash, Ppn, SegmentId};
use margay_format::{CheckpointAt, Formatted, Superblock};
use margay_log::{Client, Log, Numbers, Owner, Survey, Thawed, put, thaw_clocks};

const MAGIC: &[u8; 4] = b"MGCF";
const VERSION: u32 = 1;

/// Everything that a mount needs and the header pages do not say.
pub(crate) fn encode<F: Flash>(log: &Log<Formatted<F>, PageOwner>, index: &Index, superblock: &Superblock) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(log.segments().total_valid as usize * 10);
    bytes.extend_from_slice(MAGIC);
    put(&mut bytes, VERSION.into(), 4);
    bytes.extend_from_slice(&superblock.uuid);
    let now = log.now();
    for number in [log.seq(), now.us, now.writes] {
        put(&mut bytes, number, 8);
    }
    put(&mut bytes, log.segments().len().into(), 4);
    log.freeze_segments(&index.bad, &mut bytes);
    let own = [PageOwner::SUPERBLOCK, PageOwner::RETIRED].into_iter();
    let owners = own.chain((0..index.pages.len() as u32).map(PageOwner::headers));
    let pages = owners.filter_map(|owner| Some((owner, index.locate(owner)?)));
    let chunks = index
        .iter()
        .flat_map(|(object, node)| node.chunks.iter().map(move |(chunk, ppn)| (PageOwner::chunk(object, chunk), ppn)));
    let at = bytes.len();
    put(&mut bytes, 0, 4);
    let mut count = 0u32;
    for (owner, ppn) in pages.chain(chunks) {
        put(&mut bytes, owner.to_u64(), 6);
        put(&mut bytes, ppn.0.into(), 4);
        count += 1;
    }
    bytes[at..at + 4].copy_from_slice(&count.to_le_bytes());
    bytes
}

/// What a checkpoint says.
pub(crate) struct ThawedFs {
    pub survey: Survey<Latest>,
    pub bad: Vec<SegmentId>,
}

/// What the checkpoint `at` says; `None` if it is another device's or makes no sense.
pub(crate) fn decode<F: Flash>(
    bytes: &[u8],
    at: &CheckpointAt,
    superblock: &Superblock,
    device: &mut Formatted<F>,
) -> Option<ThawedFs> {
    let mut numbers = Numbers(bytes);
    if numbers.take(4)? != MAGIC || numbers.word()? != VERSION || numbers.take(16)? != superblock.uuid {
        return None;
    }
    let (seq, now) = thaw_clocks(&mut numbers)?;
    if numbers.word()? != superblock.geometry.segments() {
        return None;
    }
    let mut thawed = Thawed::read(&mut numbers, device)?;
    let mut latest = Latest::default();
    for _ in 0..numbers.word().filter(|count| *count <= superblock.geometry.pages())? {
        let (owner, ppn) = (PageOwner::from_u64(numbers.next(6)?), Ppn(numbers.word()?));
        if owner.what() == Owned::Unknown || !thawed.claim(device, ppn) {
            return None;
        }
        latest.0.insert(owner, (seq, ppn));
    }
    thawed.give_back(at);
    let Thawed { segments, free, bad, .. } = thawed;
    Some(ThawedFs { survey: Survey::thawed(latest, segments, free, seq, now), bad })
}
