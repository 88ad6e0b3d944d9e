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

/// How a journal begins.
const BEGINNING: &[u8] = b"{\"margay_sweep\":";

/// Whether a file is empty, or begins as a journal does: one that was being begun may end within its first line.
fn begins_as_journal(bytes: &[u8]) -> bool {
    let shared = bytes.len().min(BEGINNING.len());
    bytes[..shared] == BEGINNING[..shared]
}

fn no_journal(path: &Path) -> LabError {
    failed(path, "is not a file of finished points of a sweep, and is left as it is; name another")
}

/// The bytes up to the end of the last whole line.
fn whole_lines(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)]
}

/// The finished points that lines hold; none if there is no line.
fn parsed(path: &Path, lines: &[u8]) -> Result<Option<HashMap<String, ResultRow>>, LabError> {
    let mut lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let Some(first) = lines.next() else { return Ok(None) };
    let header: Header = serde_json::from_slice(first).map_err(|_| no_journal(path))?;
    if header.margay_version != env!("CARGO_PKG_VERSION") {
        let version = header.margay_version;
        let what = format!(
            "holds points that margay {version} finished; go on with that version, name another file, or remove this one, and all points are run anew"
        );
        return Err(failed(path, what));
    }
    // A line that a power cut has spoilt is a point that is not finished.
    let points = lines.filter_map(|line| serde_json::from_slice::<Line<'_>>(line).ok());
    Ok(Some(points.map(|line| (line.point.into_owned(), line.row.into_owned())).collect()))
}

impl Journal {
    /// Opens or starts a journal. A line that was not written to its end is dropped, so that its point is run again.
    ///
    /// # Errors
    /// Another process has it open, another version of margay wrote it, it is no journal or no file, or it cannot be read or
    /// written.
    pub fn open(path: &Path, restart: bool) -> Result<Self, LabError> {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path);
        let mut file = file.map_err(|error| failed(path, error))?;
        // A device may have no end.
        if !file.metadata().map_err(|error| failed(path, error))?.is_file() {
            return Err(failed(path, "is no regular file, so finished points cannot be kept in it; name another"));
        }
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(failed(path, "another sweep is writing it; wait for its end")),
            // Some file systems know no locks.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| failed(path, error))?;
        // Nothing is cut off a file that is somebody else's.
        if !begins_as_journal(&bytes) {
            return Err(no_journal(path));
        }
        let whole = if restart { &[] } else { whole_lines(&bytes) };
        let rows = parsed(path, whole)?;
        let mut journal =
            Self { path: path.into(), file, end: whole.len() as u64, synced: Instant::now(), rows: HashMap::new() };
        journal.cut()?;
        match rows {
            None => {
                let header = Header { margay_sweep: 1, margay_version: env!("CARGO_PKG_VERSION").into() };
                journal.write(&header)?;
            }
            Some(rows) => journal.rows = rows,
        }
        Ok(journal)
    }

    /// The finished points of a journal by their keys. It is only read, also while another process writes it.
    ///
    /// # Errors
    /// It cannot be read, it is no journal, or another version of margay wrote it.
    pub fn read(path: &Path) -> Result<HashMap<String, ResultRow>, LabError> {
        let bytes = std::fs::read(path).map_err(|error| failed(path, error))?;
        Ok(parsed(path, whole_lines(&bytes))?.unwrap_or_default())
    }

    /// A journal in a temporary file without a name, for a sweep of which nothing is to be kept.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn without_name() -> Result<Self, LabError> {
        let path = std::env::temp_dir();
        let file = tempfile::tempfile().map_err(|error| failed(&path, error))?;
        Ok(Self { path, file, end: 0, synced: Instant::now(), rows: HashMap::new() })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::Sources;
    use crate::sweep::{Point, gather, left, points, run_point};
    use margay_trace::{Existing, Format, IoKind, Request, TraceWriter};

    /// A trace whose writes depend on the number.
    fn write_trace(path: &Path, number: u64) {
        let mut writer = TraceWriter::create_with(path, Format::MGT, Existing::Replace).unwrap();
        for at in 0..2000 {
            let offset_bytes = (at * at * number % 97) * 4096;
            let request =
                Request { time_us: at, kind: IoKind::Write, device: 0, offset_bytes, len_bytes: 4096, stream: None };
            writer.write(&request).unwrap();
        }
        writer.finish().unwrap();
    }

    fn add_all(points: &[Point], journal: &mut Journal) {
        for point in points {
            journal.add(&point.key, &run_point(point, &Sources::default(), &mut |_| true).unwrap()).unwrap();
        }
    }

    #[test]
    fn a_journal_is_read_while_another_writes_it_and_rows_of_other_traces_are_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        write_trace(&path("trace.mgt"), 7);
        let mut table = toml::Table::new();
        table.insert("source".into(), path("trace.mgt").display().to_string().into());
        table.insert("selection".into(), toml::Value::Array(vec!["greedy".into(), "fifo".into()]));
        let points = points(table, None).unwrap();
        assert_eq!(points.len(), 2);

        let mut first = Journal::open(&path("first"), false).unwrap();
        add_all(&points[..1], &mut first);
        assert!(Journal::open(&path("first"), false).is_err());
        assert_eq!(Journal::read(&path("first")).unwrap(), first.rows);
        // A line that is being written is no line.
        let mut cut = std::fs::read(path("first")).unwrap();
        cut.truncate(cut.len() - 1);
        std::fs::write(path("cut"), &cut).unwrap();
        assert!(Journal::read(&path("cut")).unwrap().is_empty());
        assert_eq!(std::fs::read(path("cut")).unwrap(), cut);
        assert!(Journal::read(&path("none")).is_err());

        let mut all = Journal::without_name().unwrap();
        gather(&points, &mut all, &[path("cut"), path("first")]).unwrap();
        assert_eq!(all.rows, first.rows);

        // The trace changes, and a part of another number of tasks holds what is left of the old one.
        write_trace(&path("trace.mgt"), 5);
        let mut second = Journal::open(&path("second"), false).unwrap();
        add_all(&points, &mut second);
        gather(&points, &mut all, &[path("first"), path("second")]).unwrap();
        assert_eq!(all.rows, second.rows);
        assert!(left(&points, &mut all).is_empty());
        assert_eq!(left(&points, &mut first), [0, 1]);
    }

    #[test]
    fn what_has_no_end_is_not_read_for_finished_points() {
        let error = Journal::open(Path::new("/dev/zero"), false).unwrap_err().to_string();
        assert!(error.contains("/dev/zero") && error.contains("no regular file"), "{error}");
    }

    #[test]
    fn a_file_that_is_no_journal_is_left_as_it_is_to_the_last_byte() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        for text in ["two lines\nof which one has no end", "no line has an end", "{\"margay\":1}\n", "\n\n"] {
            std::fs::write(&path, text).unwrap();
            for restart in [false, true] {
                let error = Journal::open(&path, restart).unwrap_err().to_string();
                assert!(error.contains("left as it is"), "{error}");
                assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
            }
        }
    }

    #[test]
    fn a_journal_that_ends_within_its_first_line_or_is_of_another_version_is_begun_anew_when_asked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("points");
        let header = serde_json::to_vec(&Header { margay_sweep: 1, margay_version: "0.0.7".into() }).unwrap();
        assert!(header.starts_with(BEGINNING));
        for cut in [0, 1, BEGINNING.len(), header.len()] {
            std::fs::write(&path, &header[..cut]).unwrap();
            assert!(Journal::open(&path, false).unwrap().rows.is_empty());
        }
        let of_another_version = [header.as_slice(), b"\n"].concat();
        std::fs::write(&path, &of_another_version).unwrap();
        assert!(Journal::open(&path, false).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), of_another_version);
        assert!(Journal::open(&path, true).unwrap().rows.is_empty());
        assert!(Journal::open(&path, false).is_ok());
    }

    #[test]
    fn points_of_another_version_are_refused_with_what_every_caller_can_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old.points");
        std::fs::write(&path, "{\"margay_sweep\":1,\"margay_version\":\"0.0.7\"}\n").unwrap();
        let error = Journal::open(&path, false).unwrap_err().to_string();
        assert!(error.contains("0.0.7") && error.contains("name another file"), "{error}");
    }
}
