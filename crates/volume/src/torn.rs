//! Telling pages that a power cut can have torn from pages that were damaged.

use alloc::vec::Vec;
use margay_flash::{Flash, FlashError, Ppn, SegmentId};
use margay_format::{Formatted, FoundSegment, Store};

/// Pages that a power cut can have torn while they were programmed; what they held was never flushed.
///
/// A device that is cached has a mark, which says what was flushed: they are those that the mount finds behind it. On any
/// other device they are those of the damaged pages that are the last in their segments, if nothing was opened after that
/// segment in its stream, or if pages behind it are erased: only a power cut closes a segment before it is full.
pub(crate) fn torn_pages<F: Flash>(store: &mut Formatted<F>, damaged: &[Ppn]) -> Result<Vec<Ppn>, FlashError> {
    let mark = store.mark()?;
    if mark.is_some() {
        let mut torn = Vec::new();
        for segment in (store.layout().reserved_segments..store.geometry().segments()).map(SegmentId) {
            torn.append(&mut store.scan_segment(segment, mark)?.torn);
        }
        return Ok(torn);
    }
    let geometry = *store.geometry();
    let summary_pages = store.layout().summary_pages;
    let mut torn = Vec::new();
    for ppn in damaged.iter().copied() {
        let segment = geometry.segment_of(ppn);
        let found = store.scan_segment(segment, None)?;
        if found.next.0 != ppn.0 + 1 {
            continue;
        }
        let end = geometry.first_page(segment).0 + geometry.pages_per_segment() - summary_pages;
        if found.next.0 < end || is_newest(store, segment, &found)? {
            torn.push(ppn);
        }
    }
    Ok(torn)
}

fn last_seq(found: &FoundSegment) -> u64 {
    found.pages.first().map_or(0, |page| page.seq)
}

/// Whether no segment of the same stream has later pages.
fn is_newest<F: Flash>(store: &mut Formatted<F>, segment: SegmentId, found: &FoundSegment) -> Result<bool, FlashError> {
    let stream = |found: &FoundSegment| found.info.map(|info| info.stream);
    for other in (0..store.geometry().segments()).map(SegmentId).filter(|other| *other != segment) {
        let other = store.scan_segment(other, None)?;
        if stream(&other) == stream(found) && last_seq(&other) > last_seq(found) {
            return Ok(false);
        }
    }
    Ok(true)
}
