//! What a checkpoint says (FORMAT.md, "Checkpoint").

use crate::map::{Map, OwnPages, UNMAPPED};
use crate::mount::Loaded;
use alloc::{vec, vec::Vec};
use margay_flash::{Flash, Lpn, Ppn};
use margay_format::{CheckpointAt, Formatted, Superblock};
use margay_log::{Kept, Log, Numbers, Restored, Thawed, put, thaw_clocks};

const MAGIC: &[u8; 4] = b"MGCK";
const VERSION: u32 = 1;

/// Everything that a mount needs, as bytes.
pub(crate) fn encode<F: Flash>(log: &Log<Formatted<F>, Lpn>, map: &Map, superblock: &Superblock) -> Vec<u8> {
    let segments = log.segments();
    let has_info = log.placement().keeps_pages();
    let mut bytes = Vec::with_capacity(map.pages.len() * if has_info { 16 } else { 4 } + segments.len() as usize * 40);
    bytes.extend_from_slice(MAGIC);
    put(&mut bytes, VERSION.into(), 4);
    bytes.extend_from_slice(&superblock.uuid);
    let now = log.now();
    for (value, count) in [(log.seq(), 8), (now.us, 8), (now.writes, 8), (segments.len().into(), 4)] {
        put(&mut bytes, value, count);
    }
    put(&mut bytes, map.pages.len() as u64, 4);
    put(&mut bytes, u64::from(has_info), 1);
    put(&mut bytes, superblock.placement.len() as u64, 1);
    bytes.extend_from_slice(superblock.placement.as_bytes());
    log.freeze_segments(map.bad(), &mut bytes);
    for page in &map.pages {
        put(&mut bytes, (*page).into(), 4);
        if has_info && *page != UNMAPPED {
            let (value, count) = log.encode_page(Ppn(*page));
            put(&mut bytes, value, 8);
            put(&mut bytes, count.into(), 4);
        }
    }
    bytes
}

/// What the checkpoint `at` says; `None` if it is another device's or makes no sense.
pub(crate) fn decode<F: Flash>(
    bytes: &[u8],
    at: &CheckpointAt,
    superblock: &Superblock,
    own: OwnPages,
    device: &mut Formatted<F>,
) -> Option<Loaded> {
    let mut numbers = Numbers(bytes);
    if numbers.take(4)? != MAGIC || numbers.word()? != VERSION || numbers.take(16)? != superblock.uuid {
        return None;
    }
    let (seq, now) = thaw_clocks(&mut numbers)?;
    if numbers.word()? != superblock.geometry.segments() || numbers.word()? != own.owners() {
        return None;
    }
    let has_info = numbers.next(1)? == 1;
    let placement_bytes = numbers.next(1)? as usize;
    let same_placement = numbers.take(placement_bytes)? == superblock.placement.as_bytes();
    let mut thawed = Thawed::read(&mut numbers, device)?;
    let mut map = vec![UNMAPPED; own.owners() as usize];
    let mut pages = Vec::with_capacity(map.len());
    for (owner, slot) in (0..).zip(&mut map) {
        let page = numbers.word()?;
        if page == UNMAPPED {
            continue;
        }
        let mut kept = Kept::Nothing;
        if has_info {
            let (value, count) = (numbers.next(8)?, numbers.word()?);
            if same_placement {
                kept = Kept::Encoded(value, count);
            }
        }
        if !thawed.claim(device, Ppn(page)) {
            return None;
        }
        *slot = page;
        pages.push((Ppn(page), Lpn(owner), kept));
    }
    thawed.give_back(at);
    let Thawed { segments, free, bad, .. } = thawed;
    let restored = Restored { segments, pages, now, seq, free };
    Some(Loaded::from_checkpoint(restored, map, bad))
}
