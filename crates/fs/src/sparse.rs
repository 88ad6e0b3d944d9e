//! Holes of files: where they are, making them, and keeping them on flash.

use crate::header::max_holes;
use crate::{Fs, FsError, PageOwner};
use alloc::vec;
use alloc::vec::Vec;
use margay_flash::Ppn;
use margay_format::{HolePage, Store};
use margay_log::{Content, Hint};

impl<D: Store> Fs<D> {
    /// The first byte from `offset` on that is in a chunk with data, which may be zeros; `None` if there is none.
    ///
    /// # Errors
    /// The object is no file.
    pub fn seek_data(&self, object: u32, offset: u64) -> Result<Option<u64>, FsError> {
        let node = self.file(object)?;
        let page_bytes = u64::from(self.index.page_bytes);
        if offset >= node.size {
            return Ok(None);
        }
        let chunk = (offset / page_bytes) as u32;
        let tail = node.tail.as_ref().map(|tail| tail.chunk).filter(|tail| *tail >= chunk);
        let data = node.chunks.next_data(chunk).into_iter().chain(tail).min();
        Ok(data.map(|data| offset.max(u64::from(data) * page_bytes)).filter(|at| *at < node.size))
    }

    /// The first byte from `offset` on that is in a hole, or the end of the file; `None` if `offset` is not before that.
    ///
    /// # Errors
    /// The object is no file.
    pub fn seek_hole(&self, object: u32, offset: u64) -> Result<Option<u64>, FsError> {
        let node = self.file(object)?;
        let page_bytes = u64::from(self.index.page_bytes);
        if offset >= node.size {
            return Ok(None);
        }
        let mut hole = node.chunks.next_hole((offset / page_bytes) as u32);
        if node.tail.as_ref().is_some_and(|tail| tail.chunk == hole) {
            hole = node.chunks.next_hole(hole + 1);
        }
        Ok(Some(offset.max(u64::from(hole) * page_bytes).min(node.size)))
    }

    /// Sets bytes of a file to zero and gives back the room of every chunk that lies in the range as a whole. The size stays
    /// as it is; what is behind the end is left alone. Crash-safe as a write: a chunk is as before or a hole.
    ///
    /// # Errors
    /// The object is no file, or a chunk that has to be kept in part cannot be read or written.
    pub fn punch_hole(&mut self, object: u32, offset: u64, len: u64) -> Result<(), FsError> {
        self.begin()?;
        let (size, page_bytes) = (self.file(object)?.size, u64::from(self.index.page_bytes));
        let end = offset.saturating_add(len).min(size);
        if offset >= end {
            return Ok(());
        }
        if !self.index.hole_pages {
            self.want_hole(object)?;
        }
        self.before_change(object)?;
        let first = offset.div_ceil(page_bytes);
        // What is behind the end of the file in its last chunk says nothing.
        let last = if end == size { end.div_ceil(page_bytes) } else { end / page_bytes };
        if first > last {
            return self.zero_within(object, offset, end);
        }
        self.zero_within(object, offset, (first * page_bytes).min(end))?;
        self.zero_within(object, (last * page_bytes).min(end), end)?;
        self.punch_chunks(object, first as u32, last as u32)
    }

    /// Writes zeros to a part of one chunk that has data.
    fn zero_within(&mut self, object: u32, from: u64, end: u64) -> Result<(), FsError> {
        let page_bytes = u64::from(self.index.page_bytes);
        let chunk = (from / page_bytes) as u32;
        let node = self.node(object)?;
        let has_data = node.chunks.get(chunk).is_some() || node.tail.as_ref().is_some_and(|tail| tail.chunk == chunk);
        if from >= end || !has_data {
            return Ok(());
        }
        self.write(object, from, &vec![0; (end - from) as usize]).map(drop)
    }

    fn punch_chunks(&mut self, object: u32, first: u32, end: u32) -> Result<(), FsError> {
        let node = self.node(object)?;
        let is_tail_in = node.tail.as_ref().is_some_and(|tail| (first..end).contains(&tail.chunk));
        if !is_tail_in && node.chunks.next_data(first).is_none_or(|data| data >= end) {
            return Ok(());
        }
        if is_tail_in {
            // The header has to know the size that the chunk in memory brought.
            self.flush_tail(object)?;
        }
        // From here until the header page is marked as changed nothing may be programmed.
        let page = self.node(object)?.page;
        self.ready(Some(page))?;
        let (now, now_us, page_bytes) = (self.time, self.now_us(), self.index.page_bytes);
        let node = self.node_mut(object)?;
        let gone = node.chunks.punch(first, end, page_bytes);
        (node.mtime, node.ctime, node.modified) = (now, now, true);
        (node.resized, node.holes_changed) = (true, true);
        for ppn in &gone {
            self.log.trim(*ppn, now_us);
        }
        if self.index.single {
            self.times_changed(object);
        } else {
            // An older copy of a chunk would count if the segment of the one that was given up were erased first.
            self.touch(page, true)?;
        }
        self.after_trim(gone)?;
        self.update_holes(object)
    }

    /// With eager erasing, erases what became empty.
    pub(crate) fn after_trim(&mut self, gone: Vec<Ppn>) -> Result<(), FsError> {
        gone.into_iter().try_for_each(|ppn| self.erase_if_empty(ppn))
    }

    /// Pages that are needed if the list of holes in the header of a file becomes too long by one more change.
    fn pages_for_holes(&self, object: u32) -> u64 {
        let (page_bytes, room_bytes) = (self.index.page_bytes, self.index.room_bytes());
        let Some(node) = self.index.node(object) else { return 0 };
        let count = node.chunks.hole_count();
        // Counting the bytes of the rest takes longer.
        if count == 0 || count + 2 <= max_holes(node, page_bytes, room_bytes) {
            return 0;
        }
        if self.index.hole_pages {
            return 1;
        }
        let mut lens: Vec<u64> = node.chunks.holes(u32::MAX).iter().map(|(first, end)| (end - first).into()).collect();
        lens.sort_unstable();
        lens.iter().take(2).sum()
    }

    /// Fails with [`FsError::NoSpace`] unless there is room for one more chunk of a file, and for a page of holes if it
    /// needs one.
    pub(crate) fn want_chunk(&mut self, object: u32) -> Result<(), FsError> {
        self.want_room(1 + self.pages_for_holes(object))
    }

    /// Fails with [`FsError::NoSpace`] unless there is room for what one more hole needs.
    pub(crate) fn want_hole(&mut self, object: u32) -> Result<(), FsError> {
        match self.pages_for_holes(object) {
            0 => Ok(()),
            pages => self.want_room(pages),
        }
    }

    /// Updates the list of holes in the header of a file. What it has no room for goes to pages of holes.
    pub(crate) fn update_holes(&mut self, object: u32) -> Result<(), FsError> {
        let Some(node) = self.index.node_mut(object) else { return Ok(()) };
        if !core::mem::take(&mut node.holes_changed) {
            return Ok(());
        }
        let result = self.list_holes(object);
        if let Some(node) = self.index.node_mut(object) {
            node.holes_changed |= result.is_err();
        }
        result
    }

    /// After a mount: the headers of files with holes of which the list was lost list what they can.
    pub(crate) fn list_all_holes(&mut self) -> Result<(), FsError> {
        let (page_bytes, room_bytes) = (self.index.page_bytes, self.index.room_bytes());
        let files = self.index.iter().filter(|(_, node)| {
            let count = node.chunks.hole_count();
            count > 0 && count > max_holes(node, page_bytes, room_bytes)
        });
        let files: Vec<u32> = files.map(|(object, _)| object).collect();
        files.into_iter().try_for_each(|object| self.list_holes(object))
    }

    fn list_holes(&mut self, object: u32) -> Result<(), FsError> {
        let (page_bytes, room_bytes) = (self.index.page_bytes, self.index.room_bytes());
        if self.index.hole_pages {
            loop {
                let node = self.node(object)?;
                let count = node.chunks.hole_count();
                if count == 0 || count <= max_holes(node, page_bytes, room_bytes) {
                    break;
                }
                let Some(group) = node.chunks.crowded_group() else { break };
                self.write_holes(object, group)?;
            }
            self.drop_useless_maps(object)?;
        } else {
            self.fill_short_holes(object)?;
        }
        self.ready_to_grow(object, crate::data::HOLE_BYTES)?;
        match self.index.resize(object) {
            Some(left) => {
                let page = self.node(object)?.page;
                self.touch(page, false)?;
                self.touch(left, false)
            }
            None => Ok(()),
        }
    }

    /// Gives back the pages of holes of a file that has no hole any more.
    fn drop_useless_maps(&mut self, object: u32) -> Result<(), FsError> {
        let (now_us, page_bytes) = (self.now_us(), self.index.page_bytes);
        let node = self.node(object)?;
        if node.tail.is_some() || !node.chunks.has_useless_maps(node.chunks_on_flash(page_bytes)) {
            return Ok(());
        }
        let page = node.page;
        self.ready(Some(page))?;
        let gone = self.node_mut(object)?.chunks.take_maps();
        gone.iter().for_each(|ppn| self.log.trim(*ppn, now_us));
        // One that is erased by half must not be missed.
        self.touch(page, true)?;
        self.after_trim(gone)
    }

    /// Writes a page of holes: what it says need not be in the header any more.
    fn write_holes(&mut self, object: u32, group: u32) -> Result<(), FsError> {
        let page_bytes = self.index.page_bytes;
        // What was cut off may not be gone before the size says so.
        self.before_change(object)?;
        let bits = self.node(object)?.chunks.hole_bits(group, page_bytes);
        self.write_hole_page(object, group, &bits)?;
        self.node_mut(object)?.chunks.mapped(group, bits);
        Ok(())
    }

    pub(crate) fn write_hole_page(&mut self, object: u32, group: u32, bits: &[u8]) -> Result<(), FsError> {
        let mut data = core::mem::take(&mut self.scratch);
        HolePage { seq: self.log.seq(), bits }.encode(object, group, &mut data);
        let (owner, now_us) = (PageOwner::holes(object, group), self.now_us());
        let content = Content::Headers { object, open: false };
        let result = self.log.write(&mut self.index, owner, content, &data, Hint::None, now_us);
        self.scratch = data;
        result?;
        self.counters.header_pages += 1;
        Ok(())
    }

    /// On a device without pages of holes: the shortest holes are filled with zeros.
    fn fill_short_holes(&mut self, object: u32) -> Result<(), FsError> {
        let (page_bytes, room_bytes) = (self.index.page_bytes, self.index.room_bytes());
        let node = self.node(object)?;
        let mut holes = node.chunks.holes(node.chunks_on_flash(page_bytes));
        let max_holes = max_holes(node, page_bytes, room_bytes);
        if holes.len() <= max_holes {
            return Ok(());
        }
        holes.sort_by_key(|(first, end)| end - first);
        let zeros = vec![0; page_bytes as usize];
        for (first, end) in &holes[..holes.len() - max_holes] {
            for chunk in *first..*end {
                self.put_chunk(object, chunk, &zeros, true)?;
            }
        }
        self.node_mut(object)?.holes_changed = false;
        Ok(())
    }
}
