//! Whose page it was that cannot be read with its tag. If nobody knew, an older copy would take its place unnoticed.

use crate::copies::Copy;
use crate::hybrid::Stream;
use crate::{Hybrid, OpenError};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use margay_flash::{Flash, Lpn, Ppn};
use margay_format::{Earlier, Formatted, Tag};

/// What a position of a segment shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// A page with its tag.
    Tag(Tag),
    /// Nothing was programmed, or nothing of ours.
    Nothing,
    /// Something was programmed that cannot be read.
    Unreadable,
}

/// Pages that cannot be read, by how sure their owner is.
#[derive(Debug, Default)]
pub(crate) struct Unreadable {
    /// A later page of a log block proves that it was programmed as a whole, and tells whose it was.
    pub known: Vec<Copy>,
    /// Pages of targets of merges, each with whether no page behind it can be read. They need not count: an erase of
    /// the target may have been interrupted, or the last program, and what it was made of is still there then.
    pub in_target: Vec<(Copy, bool)>,
    /// Nothing tells whose they were. Each with whether a page behind it was programmed before the mark of the device, so
    /// that it was too.
    pub unknown: Vec<(Ppn, bool)>,
}

/// A version that no other copy has: whose data it was is not known.
fn unique_version(seq: u64) -> u64 {
    u64::MAX - seq
}

impl<F: Flash> Hybrid<Formatted<F>> {
    /// Looks at the pages of a segment that cannot be read.
    pub(crate) fn attribute(
        &mut self,
        segment: u32,
        seen: &[Seen],
        mark: Option<u64>,
        unreadable: &mut Unreadable,
    ) -> Result<(), OpenError> {
        let is_list = |seen: &Seen| matches!(seen, Seen::Tag(tag) if tag.segment.stream == Stream::RetiredList as u8);
        if seen.iter().any(is_list) {
            // Each list stands for itself.
            return Ok(());
        }
        let mut behind = None;
        let mut is_before_old = false;
        // Pages that the window of the page behind names and that cannot be read, the latest first.
        let mut named: VecDeque<Earlier> = VecDeque::new();
        for position in (0..seen.len()).rev() {
            let copy = |owner: u64, seq: u64, of: &Tag| {
                let (position, version, erases) = (position as u32, unique_version(seq), of.segment.erases);
                let is_target = of.segment.stream == Stream::Data as u8;
                let lpn = u32::try_from(owner).ok().filter(|lpn| *lpn < self.config.logical_pages).map(Lpn)?;
                Some(Copy { lpn, seq, version, segment, position, erases, is_target })
            };
            let unknown = (self.ppn(segment, position as u32), is_before_old);
            match (seen[position], behind) {
                (Seen::Nothing, _) => {}
                (Seen::Tag(tag), _) => {
                    behind = Some((position, tag));
                    is_before_old |= mark.is_some_and(|mark| tag.page.seq <= mark);
                    let is_needed = seen[..position].contains(&Seen::Unreadable);
                    let window = if is_needed { self.named(segment, position)? } else { Vec::new() };
                    let is_named =
                        |earlier: &Earlier| !is_given_up(earlier) && !is_readable(earlier, &seen[..position]);
                    named = window.into_iter().filter(is_named).collect();
                }
                (Seen::Unreadable, Some((at, tag))) => {
                    let latest = tag.page.seq.saturating_sub(1);
                    let by_window = named.pop_front().map(|page| (page.owner, page.seq.unwrap_or(latest)));
                    // A window that is not full names all pages before the one it stands in.
                    let may_be_unnamed = tag.window == self.store.layout().window;
                    let place = || in_place(&tag, at, position, self.pages).filter(|_| may_be_unnamed);
                    let by_place = || place().map(|owner| (owner, latest));
                    match by_window.or_else(by_place).and_then(|(owner, seq)| copy(owner, seq, &tag)) {
                        Some(copy) if copy.is_target => unreadable.in_target.push((copy, false)),
                        Some(copy) => unreadable.known.push(copy),
                        None => unreadable.unknown.push(unknown),
                    }
                }
                (Seen::Unreadable, None) => {
                    let before = (0..position).rev().find_map(|at| match seen[at] {
                        Seen::Tag(tag) if tag.segment.stream == Stream::Data as u8 => Some((at, tag)),
                        _ => None,
                    });
                    let place = before.and_then(|(at, tag)| Some((in_place(&tag, at, position, self.pages)?, tag)));
                    match place.and_then(|(owner, tag)| copy(owner, tag.page.seq + 1, &tag)) {
                        Some(copy) => unreadable.in_target.push((copy, true)),
                        None => unreadable.unknown.push(unknown),
                    }
                }
            }
        }
        Ok(())
    }

    fn named(&mut self, segment: u32, position: usize) -> Result<Vec<Earlier>, OpenError> {
        Ok(self.store.earlier_pages(self.ppn(segment, position as u32))?)
    }
}

/// Whether a window says of a page that its program failed, so that it is nobody's.
fn is_given_up(earlier: &Earlier) -> bool {
    earlier.owner == 0 && earlier.seq.is_none()
}

/// Whether a page that a window names is among those that can be read.
fn is_readable(earlier: &Earlier, seen: &[Seen]) -> bool {
    seen.iter().any(|seen| match seen {
        Seen::Tag(tag) => tag.page.owner == earlier.owner && earlier.seq.is_none_or(|seq| seq == tag.page.seq),
        _ => false,
    })
}

/// Whose page stands at a position of a segment that holds one block of so many pages in place, as another page of it
/// says.
fn in_place(tag: &Tag, at: usize, position: usize, pages: u32) -> Option<u64> {
    let is_in_place = tag.segment.stream != Stream::Random as u8 && tag.page.owner % u64::from(pages) == at as u64;
    is_in_place.then(|| tag.page.owner - at as u64).and_then(|first| first.checked_add(position as u64))
}
