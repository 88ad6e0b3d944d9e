use alloc::{vec, vec::Vec};
use margay_flash::{Lpn, Ppn};
use margay_format::OwnPages;
use margay_log::Client;

pub(crate) const UNMAPPED: u32 = u32::MAX;

/// The map from logical to physical pages, and which pages of the trim map are yet to be written.
#[derive(Debug)]
pub(crate) struct Map {
    pub pages: Vec<u32>,
    pub exported: u32,
    own: Option<Own>,
}

#[derive(Debug)]
struct Own {
    pages: OwnPages,
    /// Pages of the trim map that differ from what is on flash.
    dirty: Vec<u32>,
}

impl Map {
    /// A map without pages of its own: nothing survives.
    pub fn volatile(exported: u32) -> Self {
        Self { pages: vec![UNMAPPED; exported as usize], exported, own: None }
    }

    /// A map whose trims survive.
    pub fn durable(own: OwnPages, pages: Vec<u32>) -> Self {
        Self { pages, exported: own.exported(), own: Some(Own { pages: own, dirty: Vec::new() }) }
    }

    /// Makes room for all pages of the trim map to be written.
    pub fn reserve(&mut self) {
        if let Some(own) = &mut self.own {
            own.dirty.reserve_exact(own.pages.groups() as usize - own.dirty.len());
        }
    }

    /// A page was unmapped; says how many pages of the trim map are to be written.
    pub fn trimmed(&mut self, lpn: Lpn) -> usize {
        let Some(own) = &mut self.own else { return 0 };
        let group = own.pages.group_of(lpn);
        if !own.dirty.contains(&group) {
            own.dirty.push(group);
        }
        own.dirty.len()
    }
}

impl Client<Lpn> for Map {
    #[inline(always)]
    fn relocated(&mut self, owner: Lpn, to: Ppn) {
        self.pages[owner.index()] = to.0;
    }

    #[inline]
    fn locate(&self, owner: Lpn) -> Option<Ppn> {
        Some(self.pages[owner.index()]).filter(|page| *page != UNMAPPED).map(Ppn)
    }

    #[inline(always)]
    fn replace(&mut self, owner: Lpn, to: Ppn) -> Option<Ppn> {
        let old = core::mem::replace(&mut self.pages[owner.index()], to.0);
        (old != UNMAPPED).then_some(Ppn(old))
    }

    fn pending(&mut self, seq: u64, page: &mut [u8]) -> Option<Lpn> {
        let own = self.own.as_mut()?;
        let group = *own.dirty.last()?;
        own.pages.encode_trims(group, seq, |lpn| self.pages[lpn.index()] == UNMAPPED, page);
        Some(own.pages.trims(group))
    }

    fn pending_written(&mut self, owner: Lpn) {
        if let Some(own) = &mut self.own {
            own.dirty.retain(|group| own.pages.trims(*group) != owner);
        }
    }

    fn retired_list(&self) -> Option<Lpn> {
        self.own.as_ref().map(|own| own.pages.retired())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_of_the_trim_map_that_changed_is_pending_once() {
        let own = OwnPages::new(5000, 512);
        let mut map = Map::durable(own, vec![0; 5004]);
        for lpn in [3, 3967, 3968, 4999] {
            map.pages[lpn as usize] = UNMAPPED;
            map.trimmed(Lpn(lpn));
        }
        let mut page = [0; 512];
        assert_eq!(map.pending(10, &mut page), Some(own.trims(1)));
        let (seq, lpns) = own.decode_trims(1, &page).unwrap();
        assert_eq!((seq, lpns.collect::<Vec<_>>()), (10, vec![Lpn(3968), Lpn(4999)]));
        assert_eq!(map.pending(11, &mut page), Some(own.trims(1)), "it was not written");
        map.pending_written(own.trims(1));
        assert_eq!(map.pending(11, &mut page), Some(own.trims(0)));
        let (_, lpns) = own.decode_trims(0, &page).unwrap();
        assert_eq!(lpns.collect::<Vec<_>>(), [Lpn(3), Lpn(3967)]);
        map.pending_written(own.trims(0));
        assert_eq!(map.pending(12, &mut page), None);
    }
}
