//! Telling pages that a power cut can have torn from pages that were damaged.

use alloc::vec::Vec;
use margay_flash::{Flash, FlashError, Ppn, SegmentId};
use margay_format::{Formatted, FoundSegment, Store};

/// Those of the damaged pages that a power cut can have torn while they were programmed: each is the last that was
/// programmed in its segment, and nothing was opened after that segment in its stream, or pages behind it are erased: only a
/// power cut closes a segment before it is full. What such a page held was never flushed.
pub(crate) fn torn_pages<F: Flash>(store: &mut Formatted<F>, damaged: &[Ppn]) -> Result<Vec<Ppn>, FlashError> {
    if store.mark()?.is_some() {
        // What a power cut left is not among them: it came after the mark.
        return Ok(Vec::new());
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
