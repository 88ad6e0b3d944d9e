//! Writing headers to flash in the right order.

use crate::{Fs, FsError, PageOwner};
use margay_format::{HolePage, Store};
use margay_log::{Client, Content, Hint, LogError};
use margay_policy::State;

/// The greatest number of header pages with new times and sizes that wait in memory.
const MAX_SOFT: usize = 64;
/// The greatest number of empty header pages that wait for a commit before they are given back.
const MAX_EMPTY: usize = 32;

impl<D: Store> Fs<D> {
    /// Called before any change: checks that the file system can be written, and writes header pages with new times if
    /// too many wait.
    pub(crate) fn begin(&mut self) -> Result<(), FsError> {
        self.check_writable()?;
        while self.index.soft.len() > MAX_SOFT && !self.index.single {
            let page = *self.index.soft.first().expect("it is not empty");
            self.write_headers(page)?;
        }
        if self.index.empty.len() > MAX_EMPTY { self.give_back_headers() } else { Ok(()) }
    }

    /// Gives back the header pages that hold no header any more. What they say, that there is none, is said by one page of
    /// holes for all of them.
    pub(crate) fn give_back_headers(&mut self) -> Result<(), FsError> {
        if !self.index.hole_pages {
            return Ok(());
        }
        while let Some(page) = self.index.empty.first().copied() {
            let group = page / HolePage::chunks(self.index.page_bytes);
            let (bits, given_back) = self.index.header_hole_bits(group);
            if given_back.is_empty() {
                break;
            }
            match self.write_hole_page(0, group, &bits) {
                Ok(()) => {}
                // They are given back when there is room.
                Err(FsError::NoSpace | FsError::Log(LogError::NoSpace { .. })) => break,
                Err(error) => return Err(error),
            }
            let now_us = self.now_us();
            for page in given_back {
                self.index.empty.remove(&page);
                if let Some(old) = self.index.pages[page as usize].at.take() {
                    self.log.trim(old, now_us);
                }
            }
        }
        Ok(())
    }

    /// Called before the names on a header page are changed: writes the other header page whose names have changed, if
    /// there is one.
    pub(crate) fn ready(&mut self, page: Option<u32>) -> Result<(), FsError> {
        match self.index.dirty.filter(|dirty| Some(*dirty) != page) {
            Some(dirty) => self.write_headers(dirty),
            None => Ok(()),
        }
    }

    /// Marks a header page whose names have changed. If the names on another page have changed, that page is written
    /// first; it must not have been changed by the same operation.
    pub(crate) fn touch(&mut self, page: u32, destructive: bool) -> Result<(), FsError> {
        self.ready_in_between(Some(page))?;
        self.index.dirty = Some(page);
        self.index.destructive |= destructive;
        if !self.index.single {
            return Ok(());
        }
        let result = self.write_headers(page);
        self.is_half_changed |= result.is_err();
        result
    }

    /// As [`Fs::ready`], after something was changed in memory already. After an error the file system can only be read
    /// until it is mounted again.
    pub(crate) fn ready_in_between(&mut self, page: Option<u32>) -> Result<(), FsError> {
        let result = self.ready(page);
        self.is_half_changed |= result.is_err();
        result
    }

    /// Called before the header of an object grows by `bytes`: if it has to move to another page, the page whose names
    /// have changed is written first.
    pub(crate) fn ready_to_grow(&mut self, object: u32, bytes: usize) -> Result<(), FsError> {
        let page = self.node(object)?.page;
        let fits = self.index.pages[page as usize].bytes as usize + bytes <= self.index.room_bytes();
        if fits { Ok(()) } else { self.ready(None) }
    }

    /// Marks the header page of an object whose header has changed. The header moves to another page if it no longer
    /// fits.
    pub(crate) fn touch_object(&mut self, object: u32) -> Result<(), FsError> {
        let left = self.index.resize(object);
        let page = self.node(object)?.page;
        self.touch(page, false)?;
        match left {
            Some(left) => self.touch(left, false),
            None => Ok(()),
        }
    }

    /// Marks an object of which only times or the size have changed; its header can wait.
    pub(crate) fn times_changed(&mut self, object: u32) {
        if let Some(node) = self.index.node(object) {
            self.index.soft.insert(node.page);
        }
    }

    /// Copies the allocator's state of an object to its node, so that it is written with the header.
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
            // The page holds no object any more, so it is removed instead of written.
            if let Some(old) = self.index.pages[page as usize].at.take() {
                self.log.trim(old, self.now_us());
                self.erase_if_empty(old)?;
            }
            self.index.headers_written(page);
            return Ok(());
        }
        if header.members.is_empty() && header.at.is_none() && self.index.hole_pages {
            // Nothing of it ever was on flash, or a page of holes says that it is gone.
            self.index.headers_written(page);
            return Ok(());
        }
        let object = header.members.last().copied().unwrap_or(0);
        let again = self.index.node(object).is_some_and(|node| node.opens > 0) || self.index.dirty == Some(page);
        let mut data = core::mem::take(&mut self.scratch);
        self.index.encode(page, self.log.seq(), &mut data);
        let (old, now_us) = (self.index.locate(owner), self.now_us());
        let content = Content::Headers { object, open: again };
        let result = self.log.write(&mut self.index, owner, content, &data, Hint::None, now_us);
        self.scratch = data;
        result?;
        self.counters.header_pages += 1;
        old.map_or(Ok(()), |old| self.erase_if_empty(old))
    }

    /// With eager erasing, erases a segment at once when it holds no valid page any more.
    pub(crate) fn erase_if_empty(&mut self, ppn: margay_flash::Ppn) -> Result<(), FsError> {
        if !self.eager {
            return Ok(());
        }
        let segment = self.log.device().geometry().segment_of(ppn);
        let segments = self.log.segments();
        if segments.valid[segment.index()] > 0 {
            return Ok(());
        }
        let is_sealed = segments.state[segment.index()] == State::Sealed;
        if is_sealed || self.log.seal_full(segment)? {
            self.log.clean_segment(&mut self.index, segment)?;
            self.counters.eager_erases += 1;
        }
        Ok(())
    }

    /// Writes everything that is still in memory: tails of files, and headers with new times and sizes. [`Fs::sync`]
    /// also waits until the device has it.
    pub fn commit(&mut self) -> Result<(), FsError> {
        if self.read_only {
            return Ok(());
        }
        self.check_writable()?;
        while let Some(object) = self.index.tails.first().copied() {
            self.flush_tail(object)?;
        }
        if let Some(page) = self.index.dirty {
            self.write_headers(page)?;
        }
        while let Some(page) = self.index.soft.first().copied() {
            self.write_headers(page)?;
        }
        self.give_back_headers()?;
        Ok(self.log.write_pending(&mut self.index)?)
    }

    /// Returns when all that was done to names so far survives a power cut.
    ///
    /// # Errors
    /// As [`Fs::sync`]; the names are changed in memory all the same.
    pub fn sync_names(&mut self) -> Result<(), FsError> {
        self.check_writable()?;
        // Names that were changed before it are on flash.
        if let Some(dirty) = self.index.dirty {
            self.write_headers(dirty)?;
        }
        self.log.write_pending(&mut self.index)?;
        Ok(self.log.sync()?)
    }

    /// Writes everything, and returns when all that was done so far survives a power cut.
    pub fn sync(&mut self) -> Result<(), FsError> {
        self.commit()?;
        if self.read_only {
            return Ok(());
        }
        Ok(self.log.sync()?)
    }

    /// Returns when the data of an object survives a power cut, and its attributes too. With `data_only` attributes
    /// that are not needed to find the data, such as times, may be left out.
    pub fn fsync(&mut self, object: u32, data_only: bool) -> Result<(), FsError> {
        if self.read_only {
            return Ok(());
        }
        self.check_writable()?;
        self.flush_tail(object)?;
        let node = self.node(object)?;
        let (page, resized) = (node.page, node.resized);
        // Names that it has by links are in headers of their own.
        let linked = node.links.iter().filter_map(|link| Some(self.index.node(*link)?.page));
        if let Some(dirty) = self.index.dirty.filter(|dirty| *dirty != page && linked.clone().any(|at| at == *dirty)) {
            self.write_headers(dirty)?;
        }
        let is_named = self.index.dirty != Some(page);
        if !is_named || resized || (!data_only && self.index.soft.contains(&page)) {
            // The directories of its path may be on another header page whose names have changed.
            if let Some(dirty) = self.index.dirty.filter(|dirty| *dirty != page) {
                self.write_headers(dirty)?;
            }
            self.write_headers(page)?;
        }
        self.log.write_pending(&mut self.index)?;
        Ok(self.log.sync()?)
    }

    /// One step of work for idle time: rewrites a page that the ECC had to correct, or cleans at most `budget_pages`
    /// pages. False if there was nothing to do.
    pub fn idle_step(&mut self, budget_pages: u32) -> Result<bool, FsError> {
        if self.check_writable().is_err() {
            return Ok(false);
        }
        Ok(self.log.idle_step(&mut self.index, budget_pages)?)
    }
}
