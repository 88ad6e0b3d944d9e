//! Repairing a store: what can be read of it is written to a newly formatted device of the same shape.

use crate::disk::{Disk, find};
use crate::salvage::{Part, note_range, read_parts};
use crate::{
    FilesFormatOptions, FilesOpenOptions, FormatOptions, MapOnFlash, StoreOptions, VolumeError, format_files,
    open_files,
};
use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::{vec, vec::Vec};
use core::ops::Range;
use margay_flash::{Flash, Lpn};
use margay_format::{Formatted, Store, Superblock};
use margay_fs::{Attributes, Change, Fs, FsError, NewObject, ObjectKind, Problem, ROOT, Time};
use margay_log::Hint;

/// The options of a superblock that disks and file systems have alike.
fn store_options(superblock: &Superblock) -> Result<StoreOptions, VolumeError> {
    Ok(StoreOptions {
        selection: superblock.selection.parse()?,
        leveling: superblock.leveling.parse()?,
        max_pages_per_write: superblock.max_pages_per_write,
        low_water: superblock.low_water,
        high_water: superblock.high_water,
        uuid: superblock.uuid,
        created_s: superblock.created_s,
        // A device that was formatted so once is formatted so again.
        pair_pages: !superblock.has_summaries(),
        endurance_erases: superblock.endurance_erases,
        erases: Vec::new(),
    })
}

/// What the repair of a disk did.
#[derive(Debug)]
pub struct DiskRepair<F> {
    /// The device that was written, as a clean stop left it.
    pub device: F,
    /// Pages that were copied.
    pub copied_pages: u64,
    /// Pages that could not be read, and why. They read as zeros now.
    pub lost_pages: Vec<(Lpn, String)>,
}

/// Copies a disk, page by page, to another device of the same shape, which is formatted as the first was, but for erase
/// counts. All that is on the second is lost.
///
/// ```
/// use margay_media::RamFlash;
/// use margay_volume::flash::Geometry;
/// use margay_volume::{Disk, FormatOptions, Hint, repair_disk};
///
/// let blank = RamFlash::new(Geometry::new(64, 32, 2048)?.with_spare(64));
/// let mut chip = blank.clone();
/// let mut disk = Disk::format(&mut chip, &FormatOptions::default())?;
/// disk.write(7, &[1; 2048], Hint::None, 0)?;
/// disk.flush()?;
/// drop(disk);
/// let repaired = repair_disk(&mut chip, blank)?;
/// assert!(repaired.lost_pages.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The first device holds no disk that can be opened; the second is too small or fails.
pub fn repair_disk<F: Flash, T: Flash>(mut from: F, to: T) -> Result<DiskRepair<T>, VolumeError> {
    let superblock = find(&mut from)?;
    let options = FormatOptions {
        store: store_options(&superblock)?,
        placement: superblock.placement.parse()?,
        exported_pages: Some(superblock.exported_pages),
        read_only_ranges: superblock.read_only_ranges.clone(),
        map: MapOnFlash::of(&superblock),
    };
    let mut page = vec![0; superblock.geometry.page_bytes() as usize];
    let exported_pages = superblock.exported_pages;
    let mut source = Disk::open_as(from, superblock, true, true)?;
    let mut target = Disk::format(to, &options)?;
    let (mut copied_pages, mut lost_pages) = (0, Vec::new());
    for lpn in 0..exported_pages {
        match source.read(lpn, &mut page) {
            Ok(true) => {
                target.write(lpn, &page, Hint::None, 0)?;
                copied_pages += 1;
            }
            Ok(false) => {}
            Err(error) => lost_pages.push((Lpn(lpn), error.to_string())),
        }
    }
    target.flush()?;
    Ok(DiskRepair { device: target.stop()?.0, copied_pages, lost_pages })
}

/// What could not be copied of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LostFile {
    /// Bytes of a file that cannot be read. They read as zeros now.
    Bytes {
        /// The path of the file.
        path: Vec<u8>,
        /// The ranges, ascending.
        ranges: Vec<Range<u64>>,
        /// Size of the file in bytes.
        size: u64,
    },
    /// An object that is not in the copy.
    Object {
        /// Its path.
        path: Vec<u8>,
        /// Why.
        error: FsError,
    },
}

/// What the repair of a file system did.
#[derive(Debug)]
pub struct FilesRepair<T: Flash> {
    /// The device that was written, as a clean stop left it.
    pub device: T,
    /// Names that were copied, those of directories included.
    pub copied_names: u64,
    /// What was found to be wrong when the file system was opened: header pages among it are given up.
    pub problems: Vec<Problem>,
    /// What could not be copied.
    pub lost: Vec<LostFile>,
}

/// Copies a file system, name by name, to another device of the same shape, which is formatted as the first was, but for
/// erase counts. All that is on the second is lost. Objects that are in no directory are copied as `/lost-N`.
///
/// # Errors
/// The first device holds no file system that can be opened; the second fails or has no room.
pub fn repair_files<F: Flash, T: Flash>(mut from: F, to: T, now: Time) -> Result<FilesRepair<T>, VolumeError> {
    let superblock = margay_fs::find(&mut from)?;
    let options = FilesFormatOptions { store: store_options(&superblock)?, allocator: superblock.placement.parse()? };
    let reading = FilesOpenOptions { read_only: true, accept_losses: true, ..FilesOpenOptions::default() };
    let opened = open_files(from, &reading)?;
    let mut target = format_files(to, &options)?;
    target.set_time(now);
    let mut copy = Copy { from: opened.files, to: &mut target, linked: BTreeMap::new(), names: 0, lost: Vec::new() };
    copy.all()?;
    let (copied_names, lost) = (copy.names, copy.lost);
    target.sync()?;
    target.stop()?;
    Ok(FilesRepair { device: target.into_device().into_device(), copied_names, problems: opened.problems, lost })
}

struct Copy<'a, F: Flash, T: Flash> {
    from: Fs<Formatted<F>>,
    to: &'a mut Fs<Formatted<T>>,
    /// Objects with several names that were copied, and their copies.
    linked: BTreeMap<u32, u32>,
    names: u64,
    lost: Vec<LostFile>,
}

impl<F: Flash, T: Flash> Copy<'_, F, T> {
    fn all(&mut self) -> Result<(), FsError> {
        let mut folders = vec![(ROOT, ROOT, Vec::new())];
        // Their times change while something is created in them, so they are set at the end.
        let mut copied_folders = Vec::new();
        while let Some((source, copy, path)) = folders.pop() {
            copied_folders.push((source, copy));
            let names = match self.from.list(source) {
                Ok(names) => names,
                Err(error) => {
                    self.lost.push(LostFile::Object { path, error });
                    continue;
                }
            };
            for (name, attributes) in names {
                let path = [&path[..], b"/", &name].concat();
                let object = self.one(copy, &name, &attributes, &path)?;
                if attributes.kind == ObjectKind::Directory {
                    folders.push((attributes.object, object, path));
                }
            }
        }
        for (source, copy) in copied_folders {
            let attributes = self.from.attributes(source)?;
            self.describe(&attributes, copy)?;
        }
        Ok(())
    }

    /// Copies a name and, unless it is a directory, what it stands for.
    fn one(&mut self, folder: u32, name: &[u8], found: &Attributes, path: &[u8]) -> Result<u32, FsError> {
        self.names += 1;
        if let Some(copy) = self.linked.get(&found.object) {
            return self.to.link(*copy, folder, name).map(|_| *copy);
        }
        let target = self.from.read_link(found.object).map_or_else(|_| Vec::new(), <[u8]>::to_owned);
        let Attributes { kind, mode, uid, gid, rdev, .. } = *found;
        let object = self.to.create(folder, name, &NewObject { kind, mode, uid, gid, rdev, target: &target })?.object;
        if kind == ObjectKind::Directory {
            return Ok(object);
        }
        if kind == ObjectKind::File {
            self.content(found, object, path)?;
        }
        self.describe(found, object)?;
        if found.links > 1 {
            self.linked.insert(found.object, object);
        }
        Ok(object)
    }

    fn content(&mut self, found: &Attributes, object: u32, path: &[u8]) -> Result<(), FsError> {
        let page_bytes = self.to.room().page_bytes as usize;
        let (to, mut ranges) = (&mut *self.to, Vec::new());
        read_parts(&mut self.from, found.object, found.size, |Part { offset, bytes }| {
            match bytes {
                Err((len, _)) => note_range(&mut ranges, offset, len),
                Ok(bytes) => {
                    for (at, page) in (offset..).step_by(page_bytes).zip(bytes.chunks(page_bytes)) {
                        // Holes stay holes.
                        if page.iter().any(|byte| *byte != 0) {
                            write_all(to, object, at, page)?;
                        }
                    }
                }
            }
            Ok::<(), FsError>(())
        })?;
        to.truncate(object, found.size)?;
        to.close(object)?;
        if !ranges.is_empty() {
            self.lost.push(LostFile::Bytes { path: path.to_owned(), ranges, size: found.size });
        }
        Ok(())
    }

    /// Gives a copy the extended attributes, the owner, the permissions and the times of its original.
    fn describe(&mut self, found: &Attributes, object: u32) -> Result<(), FsError> {
        let names: Vec<Vec<u8>> = self.from.list_attributes(found.object)?.map(<[u8]>::to_owned).collect();
        for name in names {
            self.to.set_attribute(object, &name, self.from.get_attribute(found.object, &name)?)?;
        }
        let change = Change {
            mode: Some(found.mode),
            uid: Some(found.uid),
            gid: Some(found.gid),
            atime: Some(found.atime),
            mtime: Some(found.mtime),
            ctime: None,
        };
        self.to.change(object, &change).map(drop)
    }
}

fn write_all<D: Store>(fs: &mut Fs<D>, object: u32, offset: u64, bytes: &[u8]) -> Result<(), FsError> {
    let mut done = 0;
    while done < bytes.len() {
        done += fs.write(object, offset + done as u64, &bytes[done..])?;
    }
    Ok(())
}
