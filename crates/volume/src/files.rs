use crate::options::{USUAL, config, formatted, override_policies, policies};
use crate::torn::torn_pages;
use crate::{FilesFormatOptions, FilesOpenOptions, VolumeError};
use alloc::format;
use alloc::vec::Vec;
use margay_flash::{Flash, Geometry};
use margay_format::{ClientKind, Formatted, Layout, Superblock};
use margay_fs::{AllocatorSpec, FoundFs, Fs, FsCheck, Problem, find, owners};

/// Streams for which room is kept, so that the allocator can be changed later.
const MIN_STREAMS: u32 = 5;
/// The greatest part of a device that a stream more than these may take.
const PARTS: u32 = 128;

/// A file system on a device.
///
/// ```
/// use margay_media::RamFlash;
/// use margay_volume::flash::Geometry;
/// use margay_volume::fs::{NewObject, ROOT, RenameFlags};
/// use margay_volume::{FilesFormatOptions, format_files};
///
/// let chip = RamFlash::new(Geometry::new(64, 32, 2048)?.with_spare(64));
/// let mut files = format_files(chip, &FilesFormatOptions::default())?;
/// let file = files.create(ROOT, b"settings.new", &NewObject::FILE)?.object;
/// files.write(file, 0, b"volume = 11")?;
/// files.rename(ROOT, b"settings.new", ROOT, b"settings", RenameFlags::default())?;
/// files.sync()?;
/// assert_eq!(files.resolve(b"settings")?.size, 11);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Files<F> = Fs<Formatted<F>>;

/// A file system that was opened, and what was found to be wrong with it.
#[derive(Debug)]
pub struct OpenedFiles<F> {
    /// The file system.
    pub files: Files<F>,
    /// What cannot be read or makes no sense.
    pub problems: Vec<Problem>,
    /// It was opened for reading only although writing was asked for, so that nothing more is lost.
    pub has_losses: bool,
    /// Whether it was opened for reading only because the device is worn out: no segment can be erased for what a mount
    /// has to write.
    pub is_worn_out: bool,
}

/// The allocator that a device of this shape is formatted with: `lifetime` without parameters takes no room beyond that of
/// [`MIN_STREAMS`] from a device of which another segment is more than one part in [`PARTS`].
fn allocator(geometry: &Geometry, options: &FilesFormatOptions) -> AllocatorSpec {
    match options.allocator == AllocatorSpec::known(USUAL) && geometry.segments() < PARTS {
        true => AllocatorSpec::known(&format!("{USUAL}:streams={MIN_STREAMS}")),
        false => options.allocator,
    }
}

fn superblock(geometry: &Geometry, options: &FilesFormatOptions) -> Result<Superblock, VolumeError> {
    let layout = Layout::new(geometry, owners())?;
    let allocator = allocator(geometry, options);
    let superblock = options.store.superblock(geometry, ClientKind::FileSystem, &allocator);
    let streams = MIN_STREAMS.max(allocator.streams().into());
    let exported_pages = config(&superblock, &layout)?.limit_pages(geometry, streams)?;
    Ok(Superblock { exported_pages, ..superblock })
}

/// Formats a device with a file system: all that is on it is lost. Fails, with the device as it was, if the options do not
/// fit it.
pub fn format_files<F: Flash>(device: F, options: &FilesFormatOptions) -> Result<Files<F>, VolumeError> {
    let superblock = superblock(&options.store.geometry(device.geometry())?, options)?;
    let store = formatted(device, &superblock, owners())?.used_before(options.store.erases.clone());
    let config = config(&superblock, store.layout())?;
    let policies = policies(&superblock, &config)?;
    Ok(Fs::format(store, &superblock, config, policies)?)
}

/// Opens a file system on a device that was formatted before.
///
/// ```
/// use margay_media::RamFlash;
/// use margay_volume::flash::Geometry;
/// use margay_volume::fs::{NewObject, ROOT};
/// use margay_volume::{FilesFormatOptions, FilesOpenOptions, format_files, open_files};
///
/// let mut chip = RamFlash::new(Geometry::new(64, 32, 2048)?.with_spare(64));
/// let mut files = format_files(&mut chip, &FilesFormatOptions::default())?;
/// files.create(ROOT, b"a", &NewObject::FILE)?;
/// files.sync()?;
/// drop(files);
///
/// let opened = open_files(&mut chip, &FilesOpenOptions::default())?;
/// assert!(opened.problems.is_empty() && !opened.has_losses);
/// assert_eq!(opened.files.resolve(b"a")?.size, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The device holds no file system, one of a newer version, or fails.
pub fn open_files<F: Flash>(mut device: F, options: &FilesOpenOptions) -> Result<OpenedFiles<F>, VolumeError> {
    let mut superblock = find(&mut device)?;
    let allocator = options.allocator.as_ref().map(|allocator| allocator as _);
    let max = options.max_pages_per_write;
    override_policies(&mut superblock, options.selection, allocator, options.leveling, max);
    let mut store = formatted(device, &superblock, owners())?;
    let config = config(&superblock, store.layout())?;
    let found = FoundFs::load(&mut store, &superblock, true)?;
    let problems = found.problems.clone();
    let is_damaged = !problems.is_empty() && !options.accept_losses;
    let read_only = options.read_only || is_damaged || superblock.is_read_only_to_us();
    let policies = policies(&superblock, &config)?;
    let mut files = Fs::mount(store, &superblock, config, policies, found, read_only)?;
    files.limit_reads(options.max_segment_reads);
    let is_worn_out = files.is_read_only() && !read_only;
    Ok(OpenedFiles { files, problems, has_losses: is_damaged && !options.read_only, is_worn_out })
}

/// Looks into every segment and reads every page in use of a file system. Changes nothing.
pub fn check_files<F: Flash>(mut device: F) -> Result<FsCheck, VolumeError> {
    let superblock = find(&mut device)?;
    let mut store = formatted(device, &superblock, owners())?;
    let mut check = FsCheck::run(&mut store, &superblock)?;
    check.torn_pages = torn_pages(&mut store, &check.scan.damaged)?;
    Ok(check)
}
