//! The finished points of a sweep, on disk: one line of JSON for each, written when it is finished.

use crate::LabError;
use crate::result::ResultRow;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The first line: which program wrote the others.
#[derive(Serialize, Deserialize)]
struct Header {
    margay_sweep: u32,
    margay_version: String,
}

#[derive(Serialize, Deserialize)]
struct Line<'a> {
    point: std::borrow::Cow<'a, str>,
    row: std::borrow::Cow<'a, ResultRow>,
}

/// What is lost to a power cut, and to nothing less.
const SYNC_AFTER: Duration = Duration::from_secs(1);

/// The finished points of a sweep. The file is locked while it is open.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// Bytes up to the end of the last whole line.
    end: u64,
    synced: Instant,
    /// The finished points by their keys.
    pub rows: HashMap<String, ResultRow>,
}

fn failed(path: &Path, error: impl ToString) -> LabError {
    LabError::Write { path: path.display().to_string(), error: error.to_string() }
}

impl Journal {
    /// Opens or starts a journal. A line that was not written to its end is dropped, so that its point is run again.
    ///
    /// # Errors
    /// Another process has it open, another version of margay wrote it, it is no journal, or it cannot be read or written.
    pub fn open(path: &Path, restart: bool) -> Result<Self, LabError> {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path);
        let mut file = file.map_err(|error| failed(path, error))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(failed(path, "another sweep is writing it; wait for its end")),
            // Some file systems know no locks.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        if restart {
            file.set_len(0).map_err(|error| failed(path, error))?;
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| failed(path, error))?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let mut journal =
            Self { path: path.into(), file, end: whole as u64, synced: Instant::now(), rows: HashMap::new() };
        journal.cut()?;
        let mut lines = bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        match lines.next() {
            None => {
                let header = Header { margay_sweep: 1, margay_version: env!("CARGO_PKG_VERSION").into() };
                journal.write(&header)?;
            }
            Some(first) => {
                let header: Header = serde_json::from_slice(first).map_err(|_| {
                    failed(
                        path,
                        "is not a file of finished points of a sweep, so it is not written; name another output",
                    )
                })?;
                if header.margay_version != env!("CARGO_PKG_VERSION") {
                    let version = header.margay_version;
                    let what = format!(
                        "holds points that margay {version} finished; go on with that version, or run all points anew with --restart"
                    );
                    return Err(failed(path, what));
                }
            }
        }
        // A line that a power cut has spoilt is a point that is not finished.
        for line in lines.filter_map(|line| serde_json::from_slice::<Line<'_>>(line).ok()) {
            journal.rows.insert(line.point.into_owned(), line.row.into_owned());
        }
        Ok(journal)
    }

    /// Removes what follows the last whole line.
    fn cut(&mut self) -> Result<(), LabError> {
        let cut = self.file.set_len(self.end).and_then(|()| self.file.seek(SeekFrom::End(0)));
        cut.map(drop).map_err(|error| failed(&self.path, error))
    }

    fn write(&mut self, line: &impl Serialize) -> Result<(), LabError> {
        let mut bytes = serde_json::to_vec(line).map_err(|error| failed(&self.path, error))?;
        bytes.push(b'\n');
        let mut result = self.file.write_all(&bytes);
        if result.is_ok() && self.synced.elapsed() >= SYNC_AFTER {
            result = self.file.sync_data();
            self.synced = Instant::now();
        }
        if let Err(error) = result {
            // As much of the line as got there is no line.
            let _ = self.cut();
            let kept = self.rows.len();
            let what = format!(
                "{error}; {kept} finished points are kept: free some room and run the same command again to go on"
            );
            return Err(failed(&self.path, what));
        }
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Adds a finished point.
    ///
    /// # Errors
    /// It cannot be written; the points before it are kept.
    pub fn add(&mut self, key: &str, row: &ResultRow) -> Result<(), LabError> {
        use std::borrow::Cow::Borrowed;
        self.write(&Line { point: Borrowed(key), row: Borrowed(row) })?;
        self.rows.insert(key.into(), row.clone());
        Ok(())
    }

    /// Makes sure that all is on disk.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn sync(&mut self) -> Result<(), LabError> {
        self.file.sync_data().map_err(|error| failed(&self.path, error))
    }
}
