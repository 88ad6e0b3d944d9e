use crate::{Counts, PAGE_BYTES, PAGES, Peer, SEGMENTS};
use littlefs2::driver::Storage;
use littlefs2::fs::{Allocation, Filesystem, OpenOptions};
use littlefs2::io::{Result as LfsResult, SeekFrom, Write};
use littlefs2::path::PathBuf;
use std::cell::RefCell;
use std::rc::Rc;

/// A device of blocks of `BLOCK` bytes in memory.
pub struct Flash<const BLOCK: usize> {
    bytes: Vec<u8>,
    counts: Rc<RefCell<Counts>>,
}

const BYTES: usize = SEGMENTS as usize * PAGES as usize * PAGE_BYTES;

impl<const BLOCK: usize> Storage for Flash<BLOCK> {
    const READ_SIZE: usize = PAGE_BYTES;
    const WRITE_SIZE: usize = PAGE_BYTES;
    const BLOCK_SIZE: usize = BLOCK;
    const BLOCK_COUNT: usize = BYTES / BLOCK;
    const BLOCK_CYCLES: isize = 500;
    type CACHE_SIZE = generic_array::typenum::U4096;
    type LOOKAHEAD_SIZE = generic_array::typenum::U96;

    fn read(&mut self, offset: usize, buffer: &mut [u8]) -> LfsResult<usize> {
        self.counts.borrow_mut().read_bytes += buffer.len() as u64;
        buffer.copy_from_slice(&self.bytes[offset..offset + buffer.len()]);
        Ok(buffer.len())
    }

    fn write(&mut self, offset: usize, data: &[u8]) -> LfsResult<usize> {
        self.counts.borrow_mut().programmed_bytes += data.len() as u64;
        self.bytes[offset..offset + data.len()].copy_from_slice(data);
        Ok(data.len())
    }

    fn erase(&mut self, offset: usize, len: usize) -> LfsResult<usize> {
        self.bytes[offset..offset + len].fill(0xFF);
        let mut counts = self.counts.borrow_mut();
        (offset / BLOCK..(offset + len) / BLOCK).for_each(|block| counts.erases[block] += 1);
        Ok(len)
    }
}

pub struct Little<const BLOCK: usize> {
    fs: Option<Filesystem<'static, Flash<BLOCK>>>,
    counts: Rc<RefCell<Counts>>,
}

fn make<const BLOCK: usize>() -> Box<dyn Peer> {
    let counts = Rc::new(RefCell::new(Counts { erases: vec![0; BYTES / BLOCK], ..Counts::default() }));
    // A mounted file system borrows both; a few of them for a whole run may stay.
    let flash = Box::leak(Box::new(Flash::<BLOCK> { bytes: vec![0xFF; BYTES], counts: counts.clone() }));
    Filesystem::format(flash).expect("the device is sound");
    let allocation: &'static mut Allocation<Flash<BLOCK>> = Box::leak(Box::new(Filesystem::allocate()));
    let fs = Filesystem::mount(allocation, flash).expect("it was just formatted");
    Box::new(Little { fs: Some(fs), counts })
}

/// Blocks as large as the segments.
pub fn make_128k() -> Box<dyn Peer> {
    make::<131_072>()
}

/// Blocks of a page, as if each could be erased alone.
pub fn make_4k() -> Box<dyn Peer> {
    make::<4096>()
}

fn text(error: littlefs2::io::Error) -> String {
    format!("{error:?}")
}

fn path(file: u32) -> PathBuf {
    PathBuf::try_from(file.to_string().as_str()).expect("a short name")
}

impl<const BLOCK: usize> Little<BLOCK> {
    fn with<R>(&mut self, work: impl FnOnce(&Filesystem<'_, Flash<BLOCK>>) -> LfsResult<R>) -> Result<R, String> {
        work(self.fs.as_ref().expect("it is mounted")).map_err(text)
    }
}

impl<const BLOCK: usize> Peer for Little<BLOCK> {
    fn name(&self) -> String {
        format!("littlefs, {} KiB blocks", BLOCK / 1024)
    }

    fn create(&mut self, file: u32) -> Result<(), String> {
        self.with(|fs| fs.create_file_and_then(&path(file), |_| Ok(())))
    }

    fn write(&mut self, file: u32, offset: u64, data: &[u8], _: bool) -> Result<(), String> {
        self.with(|fs| {
            OpenOptions::new().read(true).write(true).open_and_then(fs, &path(file), |opened| {
                opened.seek(SeekFrom::Start(offset as u32))?;
                opened.write_all(data)
            })
        })
    }

    fn read(&mut self, file: u32, data: &mut [u8]) -> Result<usize, String> {
        self.with(|fs| fs.open_file_and_then(&path(file), |opened| opened.read(data)))
    }

    fn remove(&mut self, file: u32) -> Result<(), String> {
        self.with(|fs| fs.remove(&path(file)))
    }

    fn sync(&mut self) -> Result<(), String> {
        // Every write closes its file, which makes it durable.
        Ok(())
    }

    fn counts(&self) -> Counts {
        self.counts.borrow().clone()
    }

    fn mount_reads(&mut self) -> Result<f64, String> {
        let (allocation, flash) = self.fs.take().expect("it is mounted").into_inner();
        let before = self.counts.borrow().read_bytes;
        self.fs = Some(Filesystem::mount(allocation, flash).map_err(text)?);
        Ok((self.counts.borrow().read_bytes - before) as f64 / PAGE_BYTES as f64)
    }

    fn memory_bytes(&self) -> u64 {
        // Read and write cache, one cache of an open file, lookahead.
        3 * PAGE_BYTES as u64 + 96 * 8
    }
}
