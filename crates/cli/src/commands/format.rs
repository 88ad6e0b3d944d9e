use super::device::{Tables, Watched, check_memory, size};
use crate::args::{FormatArgs, GeometryArgs, bytes, exported_pages};
use crate::failure::{Failure, of_chip, of_image, of_volume};
use margay_flash::{Flash, Geometry};
use margay_host::{Existing, NewFile};
use margay_media::{DeviceSpec, ImageFlash, MtdFlash};
use margay_volume::{
    AnyFlash, FormatOptions, History, MapOnFlash, StoreOptions, Volume, VolumeError, history, limit_pages,
    usual_low_water,
};
use std::path::Path;

pub fn run(args: &FormatArgs) -> Result<(), Failure> {
    let map = map(args)?;
    let tables = map.map_or(Tables::Disk, |map| Tables::DiskWithMapOnFlash(map.memory_bytes, 0));
    on_image(&args.image, &args.flash, tables, |device, history| format(args, device, history, map))
}

/// Formats a new image, or with `--force` puts a new one in the place of an existing one. The image has its name only when
/// `format` is done, so that one whose formatting was interrupted is never opened. Prints what `format` says of it.
pub fn on_image(
    image: &Path,
    flash: &GeometryArgs,
    tables: Tables,
    format: impl FnOnce(Watched, History) -> Result<String, Failure>,
) -> Result<(), Failure> {
    if MtdFlash::is_device(image) {
        return on_chip(image, flash, tables, format);
    }
    let exists = image.symlink_metadata().is_ok();
    if exists && !flash.force {
        let problem = "exists already; with --force a flash image is formatted again, and all data on it is lost";
        return Err(Failure::Usage(format!("{}: {problem}", image.display())));
    }
    let failed = |error: &std::io::Error| Failure::new_file(image, error);
    let (geometry, existing, before) = if exists {
        // Opening fails for a file that is no flash image, so that none is ever overwritten.
        let old = ImageFlash::open(image, false).map_err(|error| of_image(image, &error))?;
        if flash.is_given() {
            // Another part comes in its place.
            (geometry(flash)?, Existing::Replace, Before::default())
        } else {
            let shape = *old.geometry();
            (shape, Existing::Replace, Before::read(image, Box::new(old), tables)?.1)
        }
    } else {
        (geometry(flash)?, Existing::Refuse, Before::default())
    };
    check_memory(image, &geometry, tables)?;
    let new = NewFile::create(image, existing).map_err(|error| failed(&error))?;
    if !flash.sparse {
        let way_out = "; with --sparse it is made all the same, and takes room as it is written";
        check_room(image, &new, ImageFlash::file_bytes(&geometry), way_out)?;
    }
    let file = new.as_file().try_clone().map_err(|error| failed(&error))?;
    // It is durable when it gets its name.
    let device = ImageFlash::create_in(file, geometry).map_err(|error| of_image(image, &error))?.without_sync();
    let (device, progress) = Watched::new(Box::new(device), format!("formatting {}", image.display()));
    let text = format(device, before.history)?;
    new.commit().map_err(|error| failed(&error))?;
    drop(progress);
    if let Some(said) = before.said {
        say!("{}: {said}", image.display());
    }
    say!("{text}");
    Ok(())
}

/// Formats a chip where it is; one that is not new only with `--force`.
fn on_chip(
    path: &Path,
    flash: &GeometryArgs,
    tables: Tables,
    format: impl FnOnce(Watched, History) -> Result<String, Failure>,
) -> Result<(), Failure> {
    let usage = |problem: &str| Err(Failure::Usage(format!("{}: {problem}", path.display())));
    if flash.is_given() || flash.sparse {
        return usage("a chip has a shape of its own: only --pair-pages, --endurance and --force can be given for it");
    }
    let mut chip = MtdFlash::open(path, false).map_err(|error| of_chip(path, &error))?;
    check_memory(path, chip.geometry(), tables)?;
    let is_used = chip.is_used().map_err(|error| Failure::Run(format!("{}: {error}", path.display())))?;
    if is_used && !flash.force {
        return usage("the chip is not erased; with --force it is formatted all the same, and all data on it is lost");
    }
    let bad = chip.bad_segments().count();
    let mut device: AnyFlash = Box::new(chip);
    let mut before = Before::default();
    if is_used {
        (device, before) = Before::read(path, device, tables)?;
    }
    let (device, progress) = Watched::new(device, format!("formatting {}", path.display()));
    let text = format(device, before.history)?;
    drop(progress);
    if let Some(said) = before.said {
        say!("{}: {said}", path.display());
    }
    if bad > 0 {
        say!("{}: {bad} segments are marked bad and are not used", path.display());
    }
    say!("{text}");
    Ok(())
}

/// What a device has behind it that is formatted again, and what is said of that.
#[derive(Default)]
struct Before {
    history: History,
    said: Option<String>,
}

impl Before {
    fn read(path: &Path, device: AnyFlash, tables: Tables) -> Result<(AnyFlash, Self), Failure> {
        let (mut device, progress) = Watched::checked(path, device, tables)?;
        let read = history(&mut device);
        drop(progress);
        let (history, said) = match read {
            Ok(history) => {
                let (min, max) = (history.erases.iter().min(), history.erases.iter().max());
                let range =
                    min.zip(max).map_or_else(String::new, |(min, max)| format!(" ({min} to {max} of a segment)"));
                (history, format!("erases are counted on from those before{range}"))
            }
            Err(error) => {
                let text = format!("erases are counted from 0, because those before cannot be read: {error}");
                (History::default(), text)
            }
        };
        Ok((device.into_device(), Self { history, said: Some(said) }))
    }
}

/// An image takes room as it is written, so that a disk that has less room than the image can come to need is known before
/// anything relies on it. `way_out` ends the text of the error.
pub fn check_room(image: &Path, new: &NewFile, needed: u64, way_out: &str) -> Result<(), Failure> {
    let Ok(free) = new.free_bytes() else { return Ok(()) };
    if needed <= free {
        return Ok(());
    }
    let advice = if new.replaces() { "; the old image keeps its room until the new one is complete" } else { "" };
    Err(Failure::Run(format!(
        "{}: the image can come to take {} ({needed} bytes), and the disk that it is to be on has {} free{advice}{way_out}",
        image.display(),
        size(needed),
        size(free)
    )))
}

/// The number of erases that a segment endures; 0 if that is not known.
pub fn endurance(args: &GeometryArgs, history: &History) -> Result<u32, Failure> {
    match (args.endurance, &args.device) {
        (Some(erases), _) => Ok(erases),
        (None, Some(name)) => Ok(DeviceSpec::load(name)?.endurance_erases),
        (None, None) => Ok(history.endurance_erases),
    }
}

fn geometry(args: &GeometryArgs) -> Result<Geometry, Failure> {
    let size = args.size.as_deref().map(|size| bytes("--size", size)).transpose()?;
    if let Some(name) = &args.device {
        let mut device = DeviceSpec::load(name)?;
        if let Some(size) = size {
            device = device.with_bytes(size)?;
        }
        return Ok(device.geometry()?);
    }
    let (pages, page_bytes) = (args.pages_per_segment.unwrap_or(64), args.page_bytes.unwrap_or(4096));
    let segment_bytes = u64::from(pages) * u64::from(page_bytes);
    let segments = size.unwrap_or(64 << 20).div_ceil(segment_bytes.max(1));
    let segments = u32::try_from(segments).map_err(|_| {
        Failure::Usage("--size: the device would have more than 2^32 segments; choose larger pages or segments".into())
    })?;
    let geometry = Geometry::new(segments, pages, page_bytes).map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(if args.nor { geometry.byte_programmable() } else { geometry.with_spare(args.spare_bytes.unwrap_or(256)) })
}

/// What to do about a disk that is too large for its flash, of which `percent` % can be exported: export less, or where the shape
/// is a choice, smaller segments, of which those that are open and kept free hold less back.
fn way_out(args: &FormatArgs, geometry: &Geometry, options: &FormatOptions, percent: f64) -> String {
    let mut ways = Vec::new();
    if percent >= 1.0 {
        ways.push(format!("--export {}%", percent.floor()));
    }
    if args.flash.device.is_none() && !MtdFlash::is_device(&args.image) {
        let wanted = options.exported_pages.unwrap_or((u64::from(geometry.pages()) * 9 / 10) as u32);
        let fits = |pages: &u32| {
            let segments = geometry.pages().div_ceil(*pages);
            let smaller = Geometry::new(segments, *pages, geometry.page_bytes()).map(|smaller| {
                if geometry.is_byte_programmable() {
                    smaller.byte_programmable()
                } else {
                    smaller.with_spare(geometry.spare_bytes())
                }
            });
            smaller.is_ok_and(|smaller| limit_pages(&smaller, options).is_ok_and(|limit| wanted <= limit))
        };
        let halves = std::iter::successors(Some(geometry.pages_per_segment() / 2), |pages| Some(pages / 2));
        if let Some(pages) = halves.take_while(|pages| *pages >= 2).find(fits) {
            ways.push(format!("--pages-per-segment {pages}"));
        }
    }
    if ways.is_empty() { String::new() } else { format!("; give {}", ways.join(" or ")) }
}

fn map(args: &FormatArgs) -> Result<Option<MapOnFlash>, Failure> {
    Ok(args.map_memory.as_deref().map(|memory| bytes("--map-memory", memory)).transpose()?.map(MapOnFlash::new))
}

fn format(args: &FormatArgs, device: Watched, history: History, map: Option<MapOnFlash>) -> Result<String, Failure> {
    let geometry = *device.geometry();
    let defaults = map.map_or_else(FormatOptions::default, FormatOptions::with_map);
    let policies = &args.policies;
    let share = |text: &String| exported_pages(text, geometry.bytes(), geometry.page_bytes());
    let mut options = FormatOptions {
        store: StoreOptions {
            selection: policies.selection.unwrap_or(defaults.store.selection),
            leveling: policies.leveling.unwrap_or(defaults.store.leveling),
            max_pages_per_write: policies.max_pages_per_write.unwrap_or(defaults.store.max_pages_per_write),
            uuid: *uuid::Uuid::new_v4().as_bytes(),
            pair_pages: args.flash.pair_pages,
            endurance_erases: endurance(&args.flash, &history)?,
            erases: history.erases,
            ..defaults.store
        },
        exported_pages: args.export.as_ref().map(share).transpose()?,
        placement: policies.placement.unwrap_or(defaults.placement),
        read_only_ranges: policies.page_ranges(geometry.page_bytes()),
        map,
    };
    let low_water = match (args.low_water, args.high_water) {
        (Some(low_water), _) => low_water,
        (None, high_water) => {
            let usual = usual_low_water(&geometry, &options).map_err(|error| of_volume(&args.image, &error))?;
            usual.min(high_water.unwrap_or(usual))
        }
    };
    options.store.low_water = low_water;
    options.store.high_water = args.high_water.unwrap_or(low_water);
    let volume = Volume::format(device, &options).map_err(|error| match error {
        VolumeError::TooLarge { percent, .. } => {
            Failure::Usage(format!("{}: {error}{}", args.image.display(), way_out(args, &geometry, &options, percent)))
        }
        error => of_volume(&args.image, &error),
    })?;
    let (capacity, place) = (volume.capacity_bytes(), volume.status().layout.tags_text());
    // On a small device usual policies have fewer streams.
    let formatted = volume.status().superblock.clone();
    volume.stop().map_err(|error| of_volume(&args.image, &error))?;
    let image = args.image.display();
    let map =
        map.map_or_else(String::new, |map| format!("; the map on flash, {} bytes of memory for it", map.memory_bytes));
    Ok(format!(
        "{image}: {} segments of {} pages of {} bytes; a disk of {capacity} bytes ({:.1} % of the flash); selection {}, placement {}; page tags {place}{map}\nnext: margay serve {image}",
        geometry.segments(),
        geometry.pages_per_segment(),
        geometry.page_bytes(),
        100.0 * capacity as f64 / geometry.bytes() as f64,
        formatted.selection,
        formatted.placement,
    ))
}
