//! Pages of the client's own that it writes as often as the host's: each is paced as a host write is.

use crate::log::Log;
use crate::{Client, LogError, Owner};
use margay_flash::Ppn;
use margay_format::Store;

impl<D: Store, O: Owner> Log<D, O> {
    /// What is programmed from now on counts as work of the next host write.
    pub fn begin_work(&mut self) {
        self.work_began = Some(self.counters.programs());
    }

    /// Pages programmed since [`Log::begin_work`].
    pub fn work_pages(&self) -> u64 {
        self.work_began.map_or(0, |began| self.counters.programs() - began)
    }

    /// Programs the page of [`Client::own_page`], in the stream for its own pages, and cleans as much as is due, as
    /// long as fewer than half of the pages are programmed that a host write may cause. Returns false if there is none,
    /// perhaps because it was written to make room.
    ///
    /// # Errors
    /// As [`Log::write`].
    pub fn write_own_in_step<C: Client<O>>(&mut self, client: &mut C) -> Result<bool, LogError> {
        self.programs_before_write = self.work_began.unwrap_or_else(|| self.counters.programs());
        let wanted = self.own_stream.unwrap_or(0);
        loop {
            let mut stream = wanted;
            if self.heads[stream as usize].is_full() {
                stream = self.room_for_write(client, stream)?;
            }
            // Only now, because making room moves pages.
            let mut data = core::mem::take(&mut self.scratch);
            let Some(owner) = client.own_page(self.seq, &mut data) else {
                self.scratch = data;
                return Ok(false);
            };
            let to = Ppn(self.heads[stream as usize].next);
            let page = self.own_page_info(owner);
            let programmed = self.program(to, &data, page);
            self.scratch = data;
            if let Err(error) = programmed {
                self.after_failed_program(stream, error)?;
                continue;
            }
            self.heads[stream as usize].next += 1;
            self.counters.metadata_pages += 1;
            self.note_owner(to, owner);
            self.placement.clear(to, 1);
            self.supersede(client, owner);
            client.relocated(owner, to);
            client.pending_written(owner);
            self.keep_pace(client, self.config.max_pages_per_write / 2)?;
            return Ok(true);
        }
    }
}
