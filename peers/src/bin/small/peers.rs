use crate::nor::{BYTES, ERASE_BYTES, Nor};
use crate::{RECORD_BYTES, RECORDS};
use ekv::{Config, Database, ReadError};
use embassy_sync::blocking_mutex::raw::NoopRawMutex;
use littlefs2::fs::{Allocation, Filesystem, OpenOptions};
use littlefs2::io::{SeekFrom, Write};
use littlefs2::path::PathBuf;
use margay_micro::{NorFlashDevice, SmallDisk, memory_bytes};
use sequential_storage::cache::Cache;
use sequential_storage::cache::key_pointers::ArrayKeyPointers;
use sequential_storage::cache::page_pointers::ArrayPagePointers;
use sequential_storage::cache::page_states::ArrayPageStates;
use sequential_storage::map::{MapConfig, MapStorage};
use std::fmt::Debug;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

/// A store of records of the same length, each of which is durable once it is written.
pub trait Peer {
    fn write(&mut self, record: u32, data: &[u8; RECORD_BYTES]) -> Result<(), String>;
    /// `None` if it was never written.
    fn read(&mut self, record: u32) -> Result<Option<[u8; RECORD_BYTES]>, String>;
    /// RAM beside code and stack, in bytes.
    fn memory_bytes(&self) -> u64;
}

pub struct Maker {
    pub name: &'static str,
    pub make: fn(Nor, is_new: bool) -> Result<Box<dyn Peer>, String>,
}

pub const MAKERS: [Maker; 4] = [
    Maker { name: "margay", make: Margay::make },
    Maker { name: "littlefs", make: Little::make },
    Maker { name: "sequential-storage", make: Sequential::make },
    Maker { name: "ekv", make: Ekv::make },
];

/// Runs what never waits.
fn now<T>(work: impl Future<Output = T>) -> T {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("the flash is in memory"),
    }
}

fn text(error: impl Debug) -> String {
    format!("{error:?}")
}

struct Margay(SmallDisk<NorFlashDevice<Nor>>);

impl Margay {
    fn make(flash: Nor, is_new: bool) -> Result<Box<dyn Peer>, String> {
        let device = NorFlashDevice::new(flash, RECORD_BYTES as u32, 4 * ERASE_BYTES as u32).map_err(text)?;
        let disk = if is_new { SmallDisk::format(device, RECORDS, [7; 16]) } else { SmallDisk::mount(device) };
        Ok(Box::new(Self(disk.map_err(text)?)))
    }
}

impl Peer for Margay {
    fn write(&mut self, record: u32, data: &[u8; RECORD_BYTES]) -> Result<(), String> {
        self.0.write(record, data).map_err(text)
    }
    fn read(&mut self, record: u32) -> Result<Option<[u8; RECORD_BYTES]>, String> {
        let mut data = [0; RECORD_BYTES];
        let found = self.0.read(record, &mut data).map_err(text)?;
        Ok(found.then_some(data))
    }
    fn memory_bytes(&self) -> u64 {
        memory_bytes(self.0.geometry()) + size_of_val(&self.0) as u64
    }
}

/// A file for each eight records, which is an erase unit long: files of single records need more than the flash has.
struct Little(Filesystem<'static, Nor>);

impl Little {
    fn make(flash: Nor, is_new: bool) -> Result<Box<dyn Peer>, String> {
        // What is mounted borrows both; a few hundred of them for a whole run may stay.
        let flash = Box::leak(Box::new(flash));
        if is_new {
            Filesystem::format(flash).map_err(code)?;
        }
        let allocation: &'static mut Allocation<Nor> = Box::leak(Box::new(Filesystem::allocate()));
        Ok(Box::new(Self(Filesystem::mount(allocation, flash).map_err(code)?)))
    }
}

/// The file of a record, and where it begins in that.
fn place(record: u32) -> (PathBuf, SeekFrom) {
    let file = PathBuf::try_from((record / 8).to_string().as_str()).expect("a short name");
    (file, SeekFrom::Start(record % 8 * RECORD_BYTES as u32))
}

fn code(error: littlefs2::io::Error) -> String {
    format!("littlefs: error {}", error.code())
}

impl Peer for Little {
    fn write(&mut self, record: u32, data: &[u8; RECORD_BYTES]) -> Result<(), String> {
        let (file, at) = place(record);
        let open = |options: &mut OpenOptions| {
            options.open_and_then(&self.0, &file, |opened| {
                opened.seek(at)?;
                opened.write_all(data)
            })
        };
        open(OpenOptions::new().read(true).write(true).create(true)).map_err(code)
    }
    fn read(&mut self, record: u32) -> Result<Option<[u8; RECORD_BYTES]>, String> {
        let (file, at) = place(record);
        let mut data = [0; RECORD_BYTES];
        let read = self.0.open_file_and_then(&file, |opened| {
            opened.seek(at)?;
            opened.read(&mut data)
        });
        Ok((read.map_err(code)? == RECORD_BYTES).then_some(data))
    }
    fn memory_bytes(&self) -> u64 {
        // Read and write cache, lookahead, and the cache of one open file are in it, or allocated with it.
        size_of::<Allocation<Nor>>() as u64 + 512
    }
}

const SECTORS: usize = BYTES / ERASE_BYTES;
type Pointers =
    Cache<ArrayPageStates<SECTORS>, ArrayPagePointers<SECTORS>, ArrayKeyPointers<u32, { RECORDS as usize }>, u32>;

/// With all of its caches: without them each write looks for what it supersedes in the whole flash.
struct Sequential {
    map: MapStorage<u32, Nor, Pointers>,
    buffer: [u8; RECORD_BYTES + 8],
}

impl Sequential {
    fn make(flash: Nor, is_new: bool) -> Result<Box<dyn Peer>, String> {
        let cache = Cache::new(ArrayPageStates::new(), ArrayPagePointers::new(), ArrayKeyPointers::new());
        let mut map = MapStorage::new(flash, MapConfig::new(0..BYTES as u32), cache);
        if is_new {
            now(map.erase_all()).map_err(text)?;
        }
        Ok(Box::new(Self { map, buffer: [0; RECORD_BYTES + 8] }))
    }
}

impl Peer for Sequential {
    fn write(&mut self, record: u32, data: &[u8; RECORD_BYTES]) -> Result<(), String> {
        now(self.map.store_item(&mut self.buffer, &record, &&data[..])).map_err(text)
    }
    fn read(&mut self, record: u32) -> Result<Option<[u8; RECORD_BYTES]>, String> {
        let found = now(self.map.fetch_item::<&[u8]>(&mut self.buffer, &record)).map_err(text)?;
        found.map(|data| data.try_into().map_err(text)).transpose()
    }
    fn memory_bytes(&self) -> u64 {
        size_of_val(self) as u64
    }
}

static SEED: AtomicU32 = AtomicU32::new(1);

/// A transaction for each record.
struct Ekv(Database<Nor, NoopRawMutex>);

impl Ekv {
    fn make(flash: Nor, is_new: bool) -> Result<Box<dyn Peer>, String> {
        let mut config = Config::default();
        // It asks for another one at each start.
        config.random_seed = SEED.fetch_add(0x9E37_79B9, Ordering::Relaxed);
        let database = Database::new(flash, config);
        if is_new {
            now(database.format()).map_err(text)?;
        }
        now(database.mount()).map_err(text)?;
        Ok(Box::new(Self(database)))
    }
}

impl Peer for Ekv {
    fn write(&mut self, record: u32, data: &[u8; RECORD_BYTES]) -> Result<(), String> {
        now(async {
            let mut transaction = self.0.write_transaction().await;
            transaction.write(&record.to_be_bytes(), data).await.map_err(text)?;
            transaction.commit().await.map_err(text)
        })
    }
    fn read(&mut self, record: u32) -> Result<Option<[u8; RECORD_BYTES]>, String> {
        let mut data = [0; RECORD_BYTES];
        now(async {
            let transaction = self.0.read_transaction().await;
            match transaction.read(&record.to_be_bytes(), &mut data).await {
                Ok(_) => Ok(Some(data)),
                Err(ReadError::KeyNotFound) => Ok(None),
                Err(error) => Err(text(error)),
            }
        })
    }
    fn memory_bytes(&self) -> u64 {
        size_of_val(self) as u64
    }
}
