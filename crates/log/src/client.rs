use crate::{LogError, OwnReader};
use alloc::vec::Vec;
use core::fmt;
use margay_flash::{Lpn, Ppn, SegmentId};
use margay_format::PageOwner;
use margay_policy::Segments;

/// The owner tag of a page, as it is kept on flash.
pub trait Owner: Copy + Default + fmt::Debug {
    /// As a number.
    fn to_u64(self) -> u64;

    /// From the number that is on flash; `None` if there is no such owner.
    fn from_u64(number: u64) -> Option<Self>;
}

impl Owner for PageOwner {
    #[inline(always)]
    fn to_u64(self) -> u64 {
        Self::to_u64(self)
    }

    fn from_u64(number: u64) -> Option<Self> {
        Some(Self::from_u64(number))
    }
}

impl Owner for Lpn {
    #[inline(always)]
    fn to_u64(self) -> u64 {
        self.0.into()
    }

    fn from_u64(number: u64) -> Option<Self> {
        u32::try_from(number).ok().map(Self)
    }
}

/// Who maps owners to pages.
pub trait Client<O> {
    /// Whether [`Client::gives_up`] and [`Client::victim`] are asked.
    const GIVES_UP: bool = false;

    /// The page of `owner` lives at `to` from now on.
    fn relocated(&mut self, owner: O, to: Ppn);

    /// Where the page of `owner` lives.
    fn locate(&self, owner: O) -> Option<Ppn>;

    /// Keeps those of the pages, which may come back in another order, that their owners live at. Asked of a client whose map is
    /// not all in memory; `reader` reads what of it is on flash.
    ///
    /// # Errors
    /// [`LogError::OwnerUnknown`] if a page of the client's own cannot be read, and errors of the device.
    fn keep_current(&mut self, pages: &mut Vec<(O, Ppn)>, _reader: &mut dyn OwnReader<O>) -> Result<(), LogError>
    where
        O: Copy,
    {
        pages.retain(|(owner, ppn)| self.locate(*owner) == Some(*ppn));
        Ok(())
    }

    /// The page of `owner` lives at `to` from now on. Where it lived before.
    #[inline(always)]
    fn replace(&mut self, owner: O, to: Ppn) -> Option<Ppn>
    where
        O: Copy,
    {
        let old = self.locate(owner);
        self.relocated(owner, to);
        old
    }

    /// The next page of the client's own that must be on flash before another segment is erased and before a
    /// flush is answered: fills `page` and returns its owner. `seq` is the sequence number of the last
    /// program; what the page says holds for all that was programmed so far. It stays the next one until
    /// [`Client::pending_written`] is called for it.
    fn pending(&mut self, _seq: u64, _page: &mut [u8]) -> Option<O> {
        None
    }

    /// The page of the client's own that [`crate::Log::write_own_in_step`] is to write: fills `page` and returns its owner.
    /// `seq` is as in [`Client::pending`].
    fn own_page(&mut self, _seq: u64, _page: &mut [u8]) -> Option<O> {
        None
    }

    /// The page that [`Client::pending`] or [`Client::own_page`] filled last was programmed.
    fn pending_written(&mut self, _owner: O) {}

    /// The page of `owner` that [`crate::Log::write`] writes is on flash. If anything is to be cleaned to keep pace, that
    /// comes after this.
    #[inline(always)]
    fn written(&mut self, _owner: O) {}

    /// Whose the page is that lists the retired segments; `None` if the list does not survive. The log writes it.
    fn retired_list(&self) -> Option<O> {
        None
    }

    /// Whether the client gives up the page of `owner`, which lies in a victim, because it holds it elsewhere; it is
    /// mapped no more then.
    fn gives_up(&mut self, _owner: O) -> bool {
        false
    }

    /// The sealed segment that the client wants cleaned next, since it knows what it would give up and the selection
    /// counts that as valid; `None` leaves the choice to the selection. Asked only if [`Client::GIVES_UP`].
    fn victim(&self, _segments: &Segments) -> Option<SegmentId> {
        None
    }
}
