//! Reading pages, for the host and for the client itself.

use crate::log::Log;
use crate::{LogError, Owner};
use margay_flash::{Ppn, ReadStatus};
use margay_format::Store;

/// The maximum number of pages that are read in one go.
const MAX_READ_TOGETHER: usize = 64;

impl<D: Store, O: Owner> Log<D, O> {
    /// Reads a page for the host. One that the ECC had to correct is rewritten in idle time.
    pub fn read(&mut self, ppn: Ppn, data: &mut [u8]) -> Result<ReadStatus, LogError> {
        self.read_of(ppn, self.owners[ppn.index()], data)
    }

    /// As [`Log::read`], for a client that knows whose page it is.
    pub fn read_of(&mut self, ppn: Ppn, owner: O, data: &mut [u8]) -> Result<ReadStatus, LogError> {
        self.counters.host_reads += 1;
        self.note_reads(ppn, 1);
        let status = self.device.read(ppn, owner.to_u64(), data)?;
        if status == ReadStatus::Corrected {
            self.note_corrected(ppn);
        }
        Ok(status)
    }

    /// Reads pages that follow each other on flash for the host, together if the device has a way: `first`, and as many of
    /// `next` as follow it and have room in `data`, which has room for a page. Returns how many pages were read, 1 at
    /// least; the error is that of the first page that cannot be read.
    pub fn read_run(
        &mut self,
        first: Ppn,
        next: impl Iterator<Item = Option<Ppn>>,
        data: &mut [u8],
    ) -> Result<usize, LogError> {
        let owners = core::mem::take(&mut self.owners);
        let read = self.read_run_of(first, next, |at| owners[(first.0 + at) as usize], data);
        self.owners = owners;
        read
    }

    /// As [`Log::read_run`], for a client that knows whose pages they are: `owner` is that of the page so many behind the
    /// first.
    pub fn read_run_of(
        &mut self,
        first: Ppn,
        next: impl Iterator<Item = Option<Ppn>>,
        owner: impl Fn(u32) -> O,
        data: &mut [u8],
    ) -> Result<usize, LogError> {
        let page_bytes = self.geometry.page_bytes() as usize;
        let room = (data.len() / page_bytes).min(MAX_READ_TOGETHER);
        let follows = |(at, ppn): &(u32, Option<Ppn>)| *ppn == Some(Ppn(*at));
        let pages = 1 + (first.0 + 1..).zip(next.take(room.saturating_sub(1))).take_while(follows).count();
        let data = &mut data[..pages * page_bytes];
        let mut owners = (0..pages as u32).map(|at| owner(at).to_u64());
        if pages > 1 && self.device.read_run(first, &mut owners, data) {
            self.counters.host_reads += pages as u64;
            self.note_reads(first, pages as u32);
            return Ok(pages);
        }
        // One by one, each is told what it is.
        for (at, page) in (0..).zip(data.chunks_exact_mut(page_bytes)) {
            self.read_of(Ppn(first.0 + at), owner(at), page)?;
        }
        Ok(pages)
    }

    /// Reads a page of the client's own, which is no read of the host. One that the ECC had to correct is rewritten in idle
    /// time.
    ///
    /// # Errors
    /// Those of the device.
    pub fn read_own(&mut self, ppn: Ppn, owner: O, data: &mut [u8]) -> Result<(), LogError> {
        self.note_reads(ppn, 1);
        if self.device.read(ppn, owner.to_u64(), data)? == ReadStatus::Corrected {
            self.note_corrected(ppn);
        }
        Ok(())
    }
}
