//! Getting headers to flash, in order.

use crate::owner::PageOwner;
use crate::{Fs, FsError};
use margay_format::Store;
use margay_log::{Client, Content, Hint};
use margay_policy::State;

/// Header pages that may wait with new times and sizes.
const MAX_SOFT: usize = 64;

impl<D: Store> Fs<D> {
    /// Before anything is changed: the file system can be written, and few header pages wait with new times.
    pub(crate) fn begin(&mut self) -> Result<(), FsError> {
        self.check_writable()?;
        while self.index.soft.len() > MAX_SOFT && !self.index.single {
            let page = *self.index.soft.first().expect("it is not empty");
            self.write_headers(page)?;
        }
        Ok(())
    }

    /// Before the names on a header page are changed: whatever other page has changed before is written.
    pub(crate) fn ready(&mut self, page: Option<u32>) -> Result<(), FsError> {
        match self.index.dirty.filter(|dirty| Some(*dirty) != page) {
            Some(dirty) => self.write_headers(dirty),
            None => Ok(()),
        }
    }

    /// The names on a header page have changed. What other page changed before is written first; it must not have
    /// been changed by the same operation.
    pub(crate) fn touch(&mut self, page: u32, destructive: bool) -> Result<(), FsError> {
        self.ready(Some(page))?;
        self.index.dirty = Some(page);
        self.index.destructive |= destructive;
        if self.index.single { self.write_headers(page) } else { Ok(()) }
    }

    /// Before an object's header grows by so many bytes: if it has to move to another page, nothing else waits.
    pub(crate) fn ready_to_grow(&mut self, object: u32, bytes: usize) -> Result<(), FsError> {
        let page = self.node(object)?.page;
        let fits = self.index.pages[page as usize].bytes as usize + bytes <= self.index.room_bytes();
        if fits { Ok(()) } else { self.ready(None) }
    }

    /// An object's header has changed and may have moved to another page.
    pub(crate) fn touch_object(&mut self, object: u32) -> Result<(), FsError> {
        let left = self.index.resize(object);
        let page = self.node(object)?.page;
        self.touch(page, false)?;
        match left {
            Some(left) => self.touch(left, false),
            None => Ok(()),
        }
    }

    /// Times or the size of an object have changed; its header can wait.
    pub(crate) fn soften(&mut self, object: u32) {
        if let Some(node) = self.index.node(object) {
            self.index.soft.insert(node.page);
        }
    }

    /// What the allocator knows of an object goes to flash with its header.
    pub(crate) fn keep_heat(&mut self, object: u32) {
        let heat = self.log.placement().remember_file(object);
        if let Some(node) = self.index.node_mut(object) {
            node.heat = heat;
        }
    }

    /// Writes a header page.
    pub(crate) fn write_headers(&mut self, page: u32) -> Result<(), FsError> {
        let owner = PageOwner::headers(page);
        let header = &self.index.pages[page as usize];
        if header.members.is_empty() && !D::KEEPS_INFO && !self.log.config().is_paced() {
            // Nobody will look for what is not there.
            if let Some(old) = self.index.pages[page as usize].at.take() {
                self.log.trim(old, self.now_us());
                self.erase_if_empty(old)?;
            }
            self.index.written(page);
            return Ok(());
        }
        let object = header.members.last().copied().unwrap_or(0);
        let again = self.index.node(object).is_some_and(|node| node.opens > 0) || self.index.dirty == Some(page);
        let mut data = core::mem::take(&mut self.scratch);
        self.index.encode(page, self.log.seq(), &mut data);
        // What is done meanwhile must not write it a second time.
        let destructive = core::mem::take(&mut self.index.destructive);
        let (old, now_us) = (self.index.locate(owner), self.now_us());
        let content = Content::Headers { object, open: again };
        let result = self.log.write(&mut self.index, owner, content, &data, Hint::None, now_us);
        self.scratch = data;
        if let Err(error) = result {
            self.index.destructive |= destructive;
            return Err(error.into());
        }
        self.index.written(page);
        self.counters.header_pages += 1;
        old.map_or(Ok(()), |old| self.erase_if_empty(old))
    }

    /// With eager erasing: a segment that holds nothing valid any more is erased at once.
    pub(crate) fn erase_if_empty(&mut self, ppn: margay_flash::Ppn) -> Result<(), FsError> {
        if !self.eager {
            return Ok(());
        }
        let segment = self.log.device().geometry().segment_of(ppn);
        let segments = self.log.segments();
        if segments.state[segment.index()] == State::Sealed && segments.valid[segment.index()] == 0 {
            self.log.clean_segment(&mut self.index, segment)?;
            self.counters.eager_erases += 1;
        }
        Ok(())
    }

    /// Everything that users know of is on its way to flash: tails, and headers with new times and sizes.
    pub fn commit(&mut self) -> Result<(), FsError> {
        if self.read_only {
            return Ok(());
        }
        while let Some(object) = self.index.tails.first().copied() {
            self.flush_tail(object)?;
        }
        if let Some(page) = self.index.dirty {
            self.write_headers(page)?;
        }
        while let Some(page) = self.index.soft.first().copied() {
            self.write_headers(page)?;
        }
        Ok(self.log.write_pending(&mut self.index)?)
    }

    /// Returns when everything done so far survives a power cut.
    pub fn sync(&mut self) -> Result<(), FsError> {
        self.commit()?;
        if self.read_only {
            return Ok(());
        }
        Ok(self.log.device_mut().sync().map_err(margay_log::LogError::from)?)
    }

    /// Returns when an object's data and, unless `data_only` and they are not needed to find the data, its times
    /// survive a power cut.
    pub fn fsync(&mut self, object: u32, data_only: bool) -> Result<(), FsError> {
        if self.read_only {
            return Ok(());
        }
        self.flush_tail(object)?;
        let node = self.node(object)?;
        let (page, resized) = (node.page, node.resized);
        let is_named = self.index.dirty != Some(page);
        if !is_named || resized || (!data_only && self.index.soft.contains(&page)) {
            // What it is named by may stand on another page that has changed since.
            if let Some(dirty) = self.index.dirty.filter(|dirty| *dirty != page) {
                self.write_headers(dirty)?;
            }
            self.write_headers(page)?;
        }
        self.log.write_pending(&mut self.index)?;
        Ok(self.log.device_mut().sync().map_err(margay_log::LogError::from)?)
    }

    /// Work for idle time: rewrites a page that was hard to read, or cleans ahead. False if there is none.
    pub fn idle_step(&mut self, budget_pages: u32) -> Result<bool, FsError> {
        if self.read_only {
            return Ok(false);
        }
        while let Some(ppn) = self.scrubs.pop() {
            // It may have been overwritten or moved since.
            if self.log.owner(ppn).is_some_and(|owner| self.index.locate(owner) == Some(ppn)) {
                self.log.rewrite(&mut self.index, ppn)?;
                return Ok(true);
            }
        }
        Ok(self.log.idle_step(&mut self.index, budget_pages)?)
    }
}
