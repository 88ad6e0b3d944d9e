//! A store on a chip that is read, programmed and erased by functions of C: what it takes to mount it, and to write and read a
//! record. The flash has 256 units of 4 KiB, as in the table of docs/microcontrollers.md.
#![no_std]

use core::panic::PanicInfo;
use core::pin::pin;
use core::task::{Context, Poll, Waker};

pub const RECORD_BYTES: usize = 512;
pub const ERASE_BYTES: usize = 4096;
pub const UNITS: usize = 256;

unsafe extern "C" {
    fn chip_read(at: u32, bytes: *mut u8, len: usize) -> i32;
    fn chip_program(at: u32, bytes: *const u8, len: usize) -> i32;
    fn chip_erase(at: u32) -> i32;
    fn abort() -> !;
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    // SAFETY: it has no conditions.
    unsafe { abort() }
}

/// The chip.
pub struct Chip;

#[derive(Debug)]
pub struct Failed;

fn done(status: i32) -> Result<(), Failed> {
    if status == 0 { Ok(()) } else { Err(Failed) }
}

impl Chip {
    fn read_at(&self, at: u32, bytes: &mut [u8]) -> Result<(), Failed> {
        // SAFETY: the buffer is there for the call.
        done(unsafe { chip_read(at, bytes.as_mut_ptr(), bytes.len()) })
    }
    fn program_at(&self, at: u32, bytes: &[u8]) -> Result<(), Failed> {
        // SAFETY: likewise.
        done(unsafe { chip_program(at, bytes.as_ptr(), bytes.len()) })
    }
    fn erase_at(&self, at: u32) -> Result<(), Failed> {
        // SAFETY: it has no conditions.
        done(unsafe { chip_erase(at) })
    }
}

/// Runs what never waits.
pub fn now<T>(work: impl Future<Output = T>) -> Option<T> {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

#[cfg(feature = "sequential-storage")]
mod peer {
    use super::*;
    use embedded_storage_async::nor_flash::{ErrorType, NorFlash, NorFlashError, NorFlashErrorKind, ReadNorFlash};
    use sequential_storage::cache::Cache;
    use sequential_storage::cache::key_pointers::ArrayKeyPointers;
    use sequential_storage::cache::page_pointers::ArrayPagePointers;
    use sequential_storage::cache::page_states::ArrayPageStates;
    use sequential_storage::map::{MapConfig, MapStorage};

    impl NorFlashError for Failed {
        fn kind(&self) -> NorFlashErrorKind {
            NorFlashErrorKind::Other
        }
    }

    impl ErrorType for Chip {
        type Error = Failed;
    }

    impl ReadNorFlash for Chip {
        const READ_SIZE: usize = 4;
        async fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), Failed> {
            self.read_at(offset, bytes)
        }
        fn capacity(&self) -> usize {
            UNITS * ERASE_BYTES
        }
    }

    impl NorFlash for Chip {
        const WRITE_SIZE: usize = 4;
        const ERASE_SIZE: usize = ERASE_BYTES;
        async fn erase(&mut self, from: u32, to: u32) -> Result<(), Failed> {
            (from..to).step_by(ERASE_BYTES).try_for_each(|at| self.erase_at(at))
        }
        async fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), Failed> {
            self.program_at(offset, bytes)
        }
    }

    type Pointers = Cache<ArrayPageStates<UNITS>, ArrayPagePointers<UNITS>, ArrayKeyPointers<u32, 512>, u32>;
    pub struct Store(MapStorage<u32, Chip, Pointers>, [u8; RECORD_BYTES + 8]);

    pub fn mount(_: u32) -> Option<Store> {
        let cache = Cache::new(ArrayPageStates::new(), ArrayPagePointers::new(), ArrayKeyPointers::new());
        let map = MapStorage::new(Chip, MapConfig::new(0..(UNITS * ERASE_BYTES) as u32), cache);
        Some(Store(map, [0; RECORD_BYTES + 8]))
    }
    pub fn format(store: &mut Store) -> bool {
        matches!(now(store.0.erase_all()), Some(Ok(())))
    }
    pub fn write(store: &mut Store, record: u32, data: &[u8; RECORD_BYTES]) -> bool {
        matches!(now(store.0.store_item(&mut store.1, &record, &&data[..])), Some(Ok(())))
    }
    pub fn read(store: &mut Store, record: u32, data: &mut [u8; RECORD_BYTES]) -> bool {
        match now(store.0.fetch_item::<&[u8]>(&mut store.1, &record)) {
            Some(Ok(Some(found))) if found.len() == data.len() => {
                data.copy_from_slice(found);
                true
            }
            _ => false,
        }
    }
}

#[cfg(feature = "ekv")]
mod peer {
    use super::*;
    use ekv::flash::{Flash, PageID};
    use ekv::{Config, Database};
    use embassy_sync::blocking_mutex::raw::NoopRawMutex;

    impl Flash for Chip {
        type Error = Failed;
        fn page_count(&self) -> usize {
            UNITS
        }
        async fn erase(&mut self, page: PageID) -> Result<(), Failed> {
            self.erase_at((page.index() * ERASE_BYTES) as u32)
        }
        async fn read(&mut self, page: PageID, offset: usize, data: &mut [u8]) -> Result<(), Failed> {
            self.read_at((page.index() * ERASE_BYTES + offset) as u32, data)
        }
        async fn write(&mut self, page: PageID, offset: usize, data: &[u8]) -> Result<(), Failed> {
            self.program_at((page.index() * ERASE_BYTES + offset) as u32, data)
        }
    }

    pub struct Store(Database<Chip, NoopRawMutex>);

    pub fn mount(seed: u32) -> Option<Store> {
        let mut config = Config::default();
        config.random_seed = seed;
        let database = Database::new(Chip, config);
        now(database.mount())?.ok()?;
        Some(Store(database))
    }
    pub fn format(store: &mut Store) -> bool {
        matches!(now(store.0.format()), Some(Ok(())))
    }
    pub fn write(store: &mut Store, record: u32, data: &[u8; RECORD_BYTES]) -> bool {
        let written = now(async {
            let mut transaction = store.0.write_transaction().await;
            transaction.write(&record.to_be_bytes(), data).await.is_ok() && transaction.commit().await.is_ok()
        });
        written == Some(true)
    }
    pub fn read(store: &mut Store, record: u32, data: &mut [u8; RECORD_BYTES]) -> bool {
        let read = now(async { store.0.read_transaction().await.read(&record.to_be_bytes(), data).await.is_ok() });
        read == Some(true)
    }
}

/// # Safety
/// `store` has room for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn store_mount(store: *mut peer::Store, seed: u32) -> bool {
    match peer::mount(seed) {
        Some(mounted) => {
            // SAFETY: the caller vouches for it.
            unsafe { store.write(mounted) };
            true
        }
        None => false,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn store_format(store: &mut peer::Store) -> bool {
    peer::format(store)
}

#[unsafe(no_mangle)]
pub extern "C" fn store_write(store: &mut peer::Store, record: u32, data: &[u8; RECORD_BYTES]) -> bool {
    peer::write(store, record, data)
}

#[unsafe(no_mangle)]
pub extern "C" fn store_read(store: &mut peer::Store, record: u32, data: &mut [u8; RECORD_BYTES]) -> bool {
    peer::read(store, record, data)
}
