use super::device::{DISK_MEMORY, Watched, check_memory, size};
use crate::args::{FormatArgs, GeometryArgs, bytes, exported_pages};
use crate::failure::{Failure, of_image, of_volume};
use margay_flash::{Flash, Geometry};
use margay_host::{Existing, NewFile};
use margay_media::{DeviceSpec, ImageFlash};
use margay_volume::{FormatOptions, StoreOptions, Volume};
use std::path::Path;

pub fn run(args: &FormatArgs) -> Result<(), Failure> {
    on_image(&args.image, &args.flash, DISK_MEMORY, |device| format(args, device))
}

/// Formats a new image, or with `--force` puts a new one in the place of an existing one. The image has its name only when
/// `format` is done, so that one whose formatting was interrupted is never opened. Prints what `format` says of it.
pub fn on_image(
    image: &Path,
    flash: &GeometryArgs,
    bytes_per_page: u64,
    format: impl FnOnce(Watched) -> Result<String, Failure>,
) -> Result<(), Failure> {
    let exists = image.symlink_metadata().is_ok();
    if exists && !flash.force {
        let problem = "exists already; with --force a flash image is formatted again, and all data on it is lost";
        return Err(Failure::Usage(format!("{}: {problem}", image.display())));
    }
    let failed = |error: &std::io::Error| Failure::new_file(image, error);
    let (geometry, existing) = if exists {
        // Opening fails for a file that is no flash image, so that none is ever overwritten.
        let old = ImageFlash::open(image, false).map_err(|error| of_image(image, &error))?;
        (if flash.is_given() { geometry(flash)? } else { *old.geometry() }, Existing::Replace)
    } else {
        (geometry(flash)?, Existing::Refuse)
    };
    check_memory(image, &geometry, bytes_per_page)?;
    let new = NewFile::create(image, existing).map_err(|error| failed(&error))?;
    if !flash.sparse {
        let way_out = "; with --sparse it is made all the same, and takes room as it is written";
        check_room(image, &new, ImageFlash::file_bytes(&geometry), way_out)?;
    }
    let file = new.as_file().try_clone().map_err(|error| failed(&error))?;
    // It is durable when it gets its name.
    let device = ImageFlash::create_in(file, geometry).map_err(|error| of_image(image, &error))?.without_sync();
    let (device, progress) = Watched::new(device, format!("formatting {}", image.display()));
    let text = format(device)?;
    new.commit().map_err(|error| failed(&error))?;
    drop(progress);
    say!("{text}");
    Ok(())
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

fn geometry(args: &GeometryArgs) -> Result<Geometry, Failure> {
    let size = args.size.as_deref().map(bytes).transpose()?;
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

fn format(args: &FormatArgs, device: Watched) -> Result<String, Failure> {
    let geometry = *device.geometry();
    let defaults = FormatOptions::default();
    let policies = &args.policies;
    let share = |text: &String| exported_pages(text, geometry.bytes(), geometry.page_bytes());
    let options = FormatOptions {
        store: StoreOptions {
            selection: policies.selection.unwrap_or(defaults.store.selection),
            leveling: policies.leveling.unwrap_or(defaults.store.leveling),
            max_pages_per_write: policies.max_pages_per_write.unwrap_or(defaults.store.max_pages_per_write),
            low_water: args.low_water,
            high_water: args.high_water.unwrap_or(args.low_water),
            uuid: *uuid::Uuid::new_v4().as_bytes(),
            pair_pages: args.flash.pair_pages,
            ..defaults.store
        },
        exported_pages: args.export.as_ref().map(share).transpose()?,
        placement: policies.placement.unwrap_or(defaults.placement),
        read_only_ranges: policies.page_ranges(geometry.page_bytes()),
    };
    let volume = Volume::format(device, &options).map_err(|error| of_volume(&args.image, &error))?;
    let (capacity, place) = (volume.capacity_bytes(), volume.status().layout.place.name());
    volume.stop().map_err(|error| of_volume(&args.image, &error))?;
    let image = args.image.display();
    Ok(format!(
        "{image}: {} segments of {} pages of {} bytes; a disk of {capacity} bytes ({:.1} % of the flash); selection {}, placement {}; page tags in the {place}\nnext: margay serve {image}",
        geometry.segments(),
        geometry.pages_per_segment(),
        geometry.page_bytes(),
        100.0 * capacity as f64 / geometry.bytes() as f64,
        options.store.selection,
        options.placement,
    ))
}
