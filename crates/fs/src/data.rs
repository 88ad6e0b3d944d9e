//! Reading and writing the data of files.

use crate::node::{ObjectKind, Tail};
use crate::{Fs, FsError, PageOwner};
use alloc::vec;
use margay_flash::Ppn;
use margay_format::Store;
use margay_log::{Content, Hint};

/// The greatest number of bytes that one operation adds to the list of holes in a header. Header pages keep this much
/// free.
pub(crate) const HOLE_BYTES: usize = 16;

impl<D: Store> Fs<D> {
    /// Bytes of the largest file.
    pub fn max_file_bytes(&self) -> u64 {
        u64::from(self.index.max_chunks()) * u64::from(self.index.page_bytes)
    }

    pub(crate) fn file(&self, object: u32) -> Result<&crate::node::Node, FsError> {
        let node = self.node(object)?;
        match node.kind {
            ObjectKind::File => Ok(node),
            ObjectKind::Directory => Err(FsError::IsADirectory),
            _ => Err(FsError::NotPermitted),
        }
    }

    /// Reads bytes from `offset` on and returns how many: fewer than `buffer` holds only at the end of the file. Holes
    /// read as zeros.
    pub fn read(&mut self, object: u32, offset: u64, buffer: &mut [u8]) -> Result<usize, FsError> {
        let size = self.file(object)?.size;
        let len = (buffer.len() as u64).min(size.saturating_sub(offset)) as usize;
        let page_bytes = self.index.page_bytes as usize;
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let (chunk, within) = ((at / page_bytes as u64) as u32, (at % page_bytes as u64) as usize);
            let count = (page_bytes - within).min(len - done);
            let node = self.index.node(object).expect("it was found above");
            let target = &mut buffer[done..done + count];
            match (&node.tail, node.chunks.get(chunk)) {
                (Some(tail), _) if tail.chunk == chunk => target.copy_from_slice(&tail.data[within..within + count]),
                (_, None) => target.fill(0),
                (_, Some(ppn)) if count == page_bytes => {
                    let next = (chunk + 1..).map(|chunk| node.place_on_flash(chunk));
                    done += self.log.read_run(ppn, next, &mut buffer[done..len])? * page_bytes;
                    continue;
                }
                (_, Some(ppn)) => {
                    self.log.read(ppn, &mut self.scratch)?;
                    target.copy_from_slice(&self.scratch[within..within + count]);
                }
            }
            done += count;
        }
        self.counters.bytes_read += len as u64;
        Ok(len)
    }

    /// The page that holds a chunk of a file; `None` if it is a hole or still in memory.
    pub fn place(&self, object: u32, chunk: u32) -> Option<Ppn> {
        self.index.node(object)?.chunks.get(chunk)
    }

    /// Writes bytes. Whole chunks go to flash at once; of the rest one chunk per file waits in memory for a sync,
    /// the end of the session, or a write to another chunk.
    pub fn write(&mut self, object: u32, offset: u64, data: &[u8]) -> Result<usize, FsError> {
        if data.len() <= self.index.page_bytes as usize {
            return self.write_chunks(object, offset, data);
        }
        // They reach the device together.
        let held = |fs: &mut Self, on| fs.log.device_mut().hold(on).map_err(margay_log::LogError::from);
        held(self, true)?;
        let written = self.write_chunks(object, offset, data);
        held(self, false)?;
        written
    }

    fn write_chunks(&mut self, object: u32, offset: u64, data: &[u8]) -> Result<usize, FsError> {
        self.begin()?;
        self.file(object)?;
        let end = offset.checked_add(data.len() as u64).ok_or(FsError::FileTooLarge)?;
        if end > self.max_file_bytes() {
            return Err(FsError::FileTooLarge);
        }
        if data.is_empty() {
            return Ok(0);
        }
        self.before_change(object)?;
        let page_bytes = self.index.page_bytes as usize;
        if offset > self.node(object)?.size {
            self.zero_end(object)?;
            self.node_mut(object)?.holes_changed = true;
        }
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let (chunk, within) = ((at / page_bytes as u64) as u32, (at % page_bytes as u64) as usize);
            let count = (page_bytes - within).min(data.len() - done);
            let part = &data[done..done + count];
            let node = self.index.node(object).expect("it was found above");
            if node.tail.as_ref().is_some_and(|tail| tail.chunk != chunk) {
                self.flush_tail(object)?;
            }
            let result = if count == page_bytes {
                self.put_whole(object, chunk, part)
            } else {
                self.put_part(object, chunk, within, part, at + count as u64)
            };
            if let Err(error) = result {
                if done == 0 {
                    return Err(error);
                }
                break;
            }
            done += count;
            let node = self.index.node_mut(object).expect("it was found above");
            node.grow(at + count as u64, page_bytes as u32);
        }
        let now = self.time;
        let node = self.node_mut(object)?;
        (node.mtime, node.ctime, node.modified) = (now, now, true);
        self.counters.bytes_written += done as u64;
        self.times_changed(object);
        self.update_holes(object)?;
        Ok(done)
    }

    /// The truncation must be on flash first: otherwise bytes that were cut off could come back together with the bytes
    /// written now.
    pub(crate) fn before_change(&mut self, object: u32) -> Result<(), FsError> {
        match self.index.node(object) {
            Some(node) if node.shrunk && !self.index.single => {
                let page = node.page;
                self.write_headers(page)
            }
            _ => Ok(()),
        }
    }

    fn put_whole(&mut self, object: u32, chunk: u32, data: &[u8]) -> Result<(), FsError> {
        let node = self.index.node(object).expect("the caller found it");
        if node.chunks.get(chunk).is_none() {
            self.want_chunk(object)?;
        }
        self.put_chunk(object, chunk, data, true)?;
        // The whole chunk was overwritten, so its old content in memory is not needed.
        self.drop_tail(object);
        Ok(())
    }

    fn put_part(&mut self, object: u32, chunk: u32, within: usize, data: &[u8], end: u64) -> Result<(), FsError> {
        self.load_tail(object, chunk)?;
        let page_bytes = self.index.page_bytes as usize;
        let node = self.index.node_mut(object).expect("the caller found it");
        let grows = end > node.size;
        let tail = node.tail.as_mut().expect("it was just loaded");
        tail.data[within..within + data.len()].copy_from_slice(data);
        // A chunk that is complete does not wait in memory.
        if within + data.len() == page_bytes && grows {
            node.grow(end, page_bytes as u32);
            return self.flush_tail(object);
        }
        Ok(())
    }

    /// Makes `chunk` the tail of a file: writes another tail out and reads the chunk.
    fn load_tail(&mut self, object: u32, chunk: u32) -> Result<(), FsError> {
        let page_bytes = self.index.page_bytes as usize;
        let node = self.index.node(object).expect("the caller found it");
        if node.tail.is_some() {
            return Ok(());
        }
        let (old, size) = (node.chunks.get(chunk), node.size);
        if old.is_none() {
            self.want_chunk(object)?;
        }
        let mut data = vec![0; page_bytes].into_boxed_slice();
        if let Some(ppn) = old {
            self.log.read(ppn, &mut data)?;
            // Behind the end of the file the page may still hold bytes that were cut off.
            let held = size.saturating_sub(u64::from(chunk) * page_bytes as u64).min(page_bytes as u64);
            data[held as usize..].fill(0);
        }
        self.index.node_mut(object).expect("it was found above").tail = Some(Tail { chunk, data, size_before: size });
        self.index.tails.insert(object);
        Ok(())
    }

    pub(crate) fn drop_tail(&mut self, object: u32) {
        if let Some(node) = self.index.node_mut(object)
            && node.tail.take().is_some()
        {
            // Holes before it come to be in the header.
            node.holes_changed |= node.chunks.hole_count() > 0;
            self.index.tails.remove(&object);
        }
    }

    /// Writes the chunk of a file that waits in memory; the header is not written.
    pub fn flush_data(&mut self, object: u32) -> Result<(), FsError> {
        self.begin()?;
        self.flush_tail(object)
    }

    /// Writes the chunk of a file that waits in memory.
    pub(crate) fn flush_tail(&mut self, object: u32) -> Result<(), FsError> {
        let page_bytes = u64::from(self.index.page_bytes);
        let Some(node) = self.index.node_mut(object) else { return Ok(()) };
        let size = node.size;
        let Some(tail) = &mut node.tail else { return Ok(()) };
        let (chunk, data) = (tail.chunk, core::mem::take(&mut tail.data));
        let whole = size >= (u64::from(chunk) + 1) * page_bytes;
        let result = self.put_chunk(object, chunk, &data, whole);
        let node = self.index.node_mut(object).expect("it was found above");
        match result {
            Ok(()) => {
                self.drop_tail(object);
                self.times_changed(object);
                self.update_holes(object)
            }
            Err(error) => {
                node.tail.as_mut().expect("it was found above").data = data;
                Err(error)
            }
        }
    }

    /// Programs a chunk. `whole` says that no byte will be added to it, because it is full or the file has ended.
    pub(crate) fn put_chunk(&mut self, object: u32, chunk: u32, data: &[u8], whole: bool) -> Result<(), FsError> {
        let (page_bytes, now_us) = (u64::from(self.index.page_bytes), self.now_us());
        let node = self.index.node_mut(object).expect("the caller found it");
        let old = node.chunks.get(chunk);
        let fills_hole = old.is_none() && u64::from(chunk) * page_bytes < node.size_on_flash();
        node.resized |= fills_hole;
        let holes = node.chunks.hole_count();
        let content = Content::Chunk { object, chunk, whole };
        self.log.write(&mut self.index, PageOwner::chunk(object, chunk), content, data, Hint::None, now_us)?;
        self.counters.data_pages += 1;
        if fills_hole && let Some(node) = self.index.node_mut(object) {
            // One that only became shorter takes as much room in the header as before.
            node.holes_changed |= node.chunks.hole_count() != holes || node.chunks.maps().next().is_some();
        }
        old.map_or(Ok(()), |old| self.erase_if_empty(old))
    }

    /// Sets the bytes of the last chunk behind the end of the file to zero, because the file is about to become longer.
    fn zero_end(&mut self, object: u32) -> Result<(), FsError> {
        let page_bytes = u64::from(self.index.page_bytes);
        let node = self.node(object)?;
        let chunk = (node.size / page_bytes) as u32;
        if node.size % page_bytes == 0 || node.chunks.get(chunk).is_none() {
            return self.flush_tail(object);
        }
        if node.tail.as_ref().is_some_and(|tail| tail.chunk != chunk) {
            self.flush_tail(object)?;
        }
        self.load_tail(object, chunk)?;
        self.flush_tail(object)
    }

    /// Sets the size of a file. Bytes beyond it are removed; bytes that the file gains are zero.
    pub fn truncate(&mut self, object: u32, size: u64) -> Result<(), FsError> {
        self.begin()?;
        let old = self.file(object)?.size;
        if size > self.max_file_bytes() {
            return Err(FsError::FileTooLarge);
        }
        let page_bytes = u64::from(self.index.page_bytes);
        if size > old {
            self.before_change(object)?;
            self.zero_end(object)?;
            self.want_hole(object)?;
        }
        // From here until the header page is marked as changed nothing may be programmed.
        let page = self.node(object)?.page;
        self.ready(Some(page))?;
        let keep = size.div_ceil(page_bytes) as u32;
        let now = self.time;
        let node = self.node_mut(object)?;
        if node.tail.as_ref().is_some_and(|tail| tail.chunk >= keep) {
            self.drop_tail(object);
        }
        let node = self.node_mut(object)?;
        if let Some(tail) = &mut node.tail {
            let held = size.saturating_sub(u64::from(tail.chunk) * page_bytes).min(page_bytes);
            tail.data[held as usize..].fill(0);
            tail.size_before = tail.size_before.min(size);
        }
        let gone = node.chunks.truncate(keep);
        node.grow(size, page_bytes as u32);
        (node.size, node.mtime, node.ctime, node.modified) = (size, now, now, true);
        node.resized |= size != old;
        node.holes_changed |= size != old;
        node.shrunk |= size < old;
        for ppn in &gone {
            self.log.trim(*ppn, self.now_us());
        }
        if size < old && !self.index.single {
            self.touch(page, true)?;
        } else {
            self.times_changed(object);
        }
        for ppn in gone {
            self.erase_if_empty(ppn)?;
        }
        self.update_holes(object)
    }

    /// A user opens an object.
    pub fn open(&mut self, object: u32) -> Result<(), FsError> {
        self.node_mut(object)?.opens += 1;
        Ok(())
    }

    /// A user's session with an object ends.
    pub fn close(&mut self, object: u32) -> Result<(), FsError> {
        let Some(node) = self.index.node_mut(object) else { return Ok(()) };
        node.opens = node.opens.saturating_sub(1);
        let (orphan, open) = (node.orphan, node.opens > 0);
        if orphan {
            return if open || self.read_only { Ok(()) } else { self.destroy(object) };
        }
        if self.read_only {
            return Ok(());
        }
        let modified = core::mem::take(&mut node.modified);
        self.flush_tail(object)?;
        if modified {
            // The allocator counts this session only from the next write on.
            if self.index.single {
                let page = self.node(object)?.page;
                self.write_headers(page)?;
            }
            self.log.placement_mut().file_modified(object);
            self.keep_heat(object);
        }
        Ok(())
    }
}
