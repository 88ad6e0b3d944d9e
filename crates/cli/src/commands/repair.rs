//! The image that a repair writes, and what is said of what it gave up.

use super::format::check_room;
use super::inspect::really_damaged;
use crate::args::RepairArgs;
use crate::failure::{Failure, of_image, of_volume};
use crate::output::shown;
use margay_flash::{Flash, Geometry};
use margay_fuse::now;
use margay_host::{Existing, NewFile};
use margay_media::{ImageFlash, MtdFlash};
use margay_volume::{CheckReport, LostFile, check, check_files, repair_disk, repair_files};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Damaged ranges of a file that are named in a message.
const MAX_RANGES: usize = 20;

/// Ranges as text: `4096 to 8191`, the first and the last byte of each.
pub fn text_of(ranges: &[Range<u64>]) -> String {
    let shown = ranges.iter().take(MAX_RANGES).map(|range| format!("{} to {}", range.start, range.end - 1));
    let more = ranges.len().saturating_sub(MAX_RANGES);
    let more = (more > 0).then(|| format!("and {more} more ranges"));
    shown.chain(more).collect::<Vec<_>>().join(", ")
}

/// The image that is being written.
pub struct Repaired {
    path: PathBuf,
    new: NewFile,
    device: ImageFlash,
}

impl Repaired {
    /// Starts the image that was asked for, if one was. For a repair in place the image has to be open for writing.
    pub fn start(image: &Path, geometry: &Geometry, args: &RepairArgs) -> Result<Option<Self>, Failure> {
        let (path, existing) = match &args.repair {
            Some(path) => (path.as_path(), args.force.existing()),
            None if args.repair_in_place && MtdFlash::is_device(image) => {
                let problem =
                    "a chip cannot be replaced; write an image (--repair OUT), format the chip and copy the data back";
                return Err(Failure::Usage(format!("{}: {problem}", image.display())));
            }
            None if args.repair_in_place => (image, Existing::ReplaceHeld),
            None => return Ok(None),
        };
        let failed = |error: std::io::Error| Failure::new_file(path, &error);
        let new = NewFile::create(path, existing).map_err(failed)?;
        // A copy takes no more than what the image has come to take.
        let whole = ImageFlash::file_bytes(geometry);
        let taken = image.metadata().map_or(0, |metadata| metadata.blocks() * 512);
        check_room(path, &new, if MtdFlash::is_device(image) { whole } else { taken.min(whole) }, "")?;
        let file = new.as_file().try_clone().map_err(failed)?;
        let device = ImageFlash::create_in(file, *geometry).map_err(|error| of_image(path, &error))?.without_sync();
        Ok(Some(Self { path: path.into(), new, device }))
    }

    /// Repairs a disk, of which this was found out.
    pub fn disk<F: Flash>(self, image: &Path, from: F, report: &CheckReport, page_bytes: u64) -> Result<(), Failure> {
        let Self { path, new, device } = self;
        let name = path.display();
        let mut repaired = repair_disk(from, device).map_err(|error| of_volume(image, &error))?;
        for (lpn, error) in &repaired.lost_pages {
            let range = u64::from(lpn.0) * page_bytes..(u64::from(lpn.0) + 1) * page_bytes;
            let bytes = text_of(std::slice::from_ref(&range));
            say!("given up: page {lpn} of the disk (bytes {bytes}): {error}; it reads as zeros in {name}");
        }
        let unknown: Vec<_> = really_damaged(&report.scan.damaged, &report.torn_pages).collect();
        for ppn in &unknown {
            say!(
                "given up: what was on page {ppn} of the flash; a page of the disk may be as it was before, or untrimmed"
            );
        }
        let again = check(&mut repaired.device).map_err(|error| of_volume(&path, &error))?;
        let copied = format!("pages of the disk copied: {}", repaired.copied_pages);
        finish(&path, new, again.problems(), &copied, repaired.lost_pages.len() + unknown.len())
    }

    /// Repairs a file system.
    pub fn files<F: Flash>(self, image: &Path, from: F) -> Result<(), Failure> {
        let Self { path, new, device } = self;
        let name = path.display();
        let mut repaired = repair_files(from, device, now()).map_err(|error| of_volume(image, &error))?;
        for problem in &repaired.problems {
            say!("given up: {problem}");
        }
        for lost in &repaired.lost {
            match lost {
                LostFile::Bytes { path, ranges, size } => {
                    let (path, ranges) = (shown(path), text_of(ranges));
                    say!("given up: {path}: bytes {ranges} of {size}; they read as zeros in {name}");
                }
                LostFile::Object { path, error } => say!("given up: {}: {error}", shown(path)),
            }
        }
        let again = check_files(&mut repaired.device).map_err(|error| of_volume(&path, &error))?;
        let copied = format!("names copied: {}", repaired.copied_names);
        finish(&path, new, again.problems.len(), &copied, repaired.problems.len() + repaired.lost.len())
    }
}

/// Gives the image its name, if it is sound.
fn finish(path: &Path, new: NewFile, problems: usize, copied: &str, given_up: usize) -> Result<(), Failure> {
    let name = path.display();
    if problems > 0 {
        return Err(Failure::Run(format!(
            "{name}: the repaired image has {problems} problems itself, so it was not kept"
        )));
    }
    new.commit().map_err(|error| Failure::new_file(path, &error))?;
    say!("{name}: {copied}; checked: clean");
    match given_up {
        0 => Ok(()),
        1 => Err(Failure::Run(format!("{name}: 1 thing was given up (see above)"))),
        count => Err(Failure::Run(format!("{name}: {count} things were given up (see above)"))),
    }
}
