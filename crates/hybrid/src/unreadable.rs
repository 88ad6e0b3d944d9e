//! Whose page it was that cannot be read with its tag. If nobody knew, an older copy would take its place unnoticed.

use crate::hybrid::Stream;
use crate::mount::Copy;
use crate::{Hybrid, OpenError};
use alloc::vec::Vec;
use margay_flash::{Flash, Lpn};
use margay_format::{Formatted, Tag};

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
    /// Nothing tells whose they were.
    pub unknown: u32,
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
        unreadable: &mut Unreadable,
    ) -> Result<(), OpenError> {
        let is_programmed = |position: &usize| seen[*position] != Seen::Nothing;
        for position in (0..seen.len()).filter(|position| seen[*position] == Seen::Unreadable) {
            let behind = (position + 1..seen.len()).find_map(|at| match seen[at] {
                Seen::Tag(tag) => Some((at, tag)),
                _ => None,
            });
            let logical_pages = u64::from(self.config.logical_pages);
            let copy = |owner: u64, seq: u64| {
                (owner < logical_pages).then_some(Copy {
                    lpn: Lpn(owner as u32),
                    seq,
                    version: unique_version(seq),
                    segment,
                    position: position as u32,
                })
            };
            if let Some((at, tag)) = behind {
                let distance = (position + 1..=at).filter(is_programmed).count();
                let latest = tag.page.seq.saturating_sub(distance as u64);
                let window = self.store.earlier_pages(self.ppn(segment, at as u32))?;
                let named = window.get(distance - 1).map(|earlier| (earlier.owner, earlier.seq.unwrap_or(latest)));
                let named = named.or_else(|| in_place(&tag, at, position, self.pages).map(|owner| (owner, latest)));
                match named.and_then(|(owner, seq)| copy(owner, seq)) {
                    Some(copy) if tag.segment.stream == Stream::Data as u8 => unreadable.in_target.push((copy, false)),
                    Some(copy) => unreadable.known.push(copy),
                    None => unreadable.unknown += 1,
                }
                continue;
            }
            let before = (0..position).rev().find_map(|at| match seen[at] {
                Seen::Tag(tag) if tag.segment.stream == Stream::Data as u8 => Some((at, tag)),
                _ => None,
            });
            let owner = before.and_then(|(at, tag)| Some((in_place(&tag, at, position, self.pages)?, tag.page.seq)));
            match owner.and_then(|(owner, seq)| copy(owner, seq + 1)) {
                Some(copy) => unreadable.in_target.push((copy, true)),
                None => unreadable.unknown += 1,
            }
        }
        Ok(())
    }
}

/// Whose page stands at a position of a segment that holds one block of so many pages in place, as another page of it
/// says.
fn in_place(tag: &Tag, at: usize, position: usize, pages: u32) -> Option<u64> {
    let is_in_place = tag.segment.stream != Stream::Random as u8 && tag.page.owner % u64::from(pages) == at as u64;
    is_in_place.then(|| tag.page.owner - at as u64).and_then(|first| first.checked_add(position as u64))
}
