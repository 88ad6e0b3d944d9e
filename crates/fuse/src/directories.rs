//! What open directories held when they were opened.

use fuser::FileHandle;
use margay_fs::{FsError, ObjectKind};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Entries of a directory: object, kind, name.
pub(crate) type Entries = Vec<(u32, ObjectKind, Box<[u8]>)>;

/// Open directories by their handles. A program that reads a directory in parts goes on where it was, whatever has changed
/// in between.
#[derive(Debug, Default)]
pub(crate) struct Directories {
    open: Mutex<HashMap<u64, Arc<Entries>>>,
    last_handle: AtomicU64,
}

impl Directories {
    /// A handle for a directory that is opened.
    pub(crate) fn enter(&self) -> FileHandle {
        FileHandle(self.last_handle.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// A directory is closed.
    pub(crate) fn leave(&self, handle: FileHandle) {
        self.open.lock().expect("nothing here panics").remove(&handle.0);
    }

    /// The entries of an open directory; `list` makes them if there are none yet, or if it is read from its start.
    pub(crate) fn entries(
        &self,
        handle: FileHandle,
        from_start: bool,
        list: impl FnOnce() -> Result<Entries, FsError>,
    ) -> Result<Arc<Entries>, FsError> {
        let known = self.open.lock().expect("nothing here panics").get(&handle.0).cloned();
        if let Some(entries) = known.filter(|_| !from_start) {
            return Ok(entries);
        }
        let entries = Arc::new(list()?);
        self.open.lock().expect("nothing here panics").insert(handle.0, entries.clone());
        Ok(entries)
    }
}
