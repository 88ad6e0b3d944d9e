//! `margay fs`: work on the file system of an image without mounting it.

use crate::args::FsCommand;
use crate::args::{FsPolicyArgs, GeometryArgs, RepairArgs};
use crate::commands::device::{Tables, Watched, open_with_stats};
use crate::commands::format::{endurance, on_image};
use crate::commands::health;
use crate::commands::inspect::{print_damaged, problems, really_damaged};
use crate::commands::repair::Repaired;
use crate::commands::{fs_copy as copying, fs_list as listing};
use crate::failure::{Failure, of_volume};
use crate::output::{print_bytes, shown};
use margay_flash::Flash;
use margay_fs::{Attributes, FsError, NewObject, ObjectKind, ROOT};
use margay_fuse::{FileSystem, now};
use margay_lab::cleaning_estimate;
use margay_media::{ChipStats, DeviceSpec};
use margay_volume::{
    AnyFlash, FilesFormatOptions, FilesOpenOptions, Health, History, Metrics, OpenedFiles, StoreOptions, check_files,
    format_files, open_files,
};
use std::fmt::Write as _;
use std::path::Path;

pub(super) type Files = FileSystem;

/// Problems that are logged one by one when a file system is opened.
const MAX_PROBLEMS: usize = 5;

/// Logs what opening a file system found to be wrong with it.
pub fn report_problems(opened: &OpenedFiles<AnyFlash>) {
    for problem in opened.problems.iter().take(MAX_PROBLEMS) {
        tracing::error!("{problem}");
    }
    if opened.problems.len() > MAX_PROBLEMS {
        tracing::error!("and {} more; margay fs check names them all", opened.problems.len() - MAX_PROBLEMS);
    }
    if opened.has_losses {
        tracing::error!("some of it is lost: opened for reading only, so that nothing more is; see --accept-losses");
    }
    if opened.is_worn_out {
        tracing::error!(
            "the device is worn out: {} segments are retired and nothing can be written any more; opened for reading only, \
             so copy its files to another",
            opened.files.retired_segments()
        );
    }
}

pub fn run(command: FsCommand) -> Result<(), Failure> {
    match command {
        FsCommand::Format { image, flash, low_water, high_water, policies } => {
            on_image(&image, &flash, Tables::Files, |device, history| {
                make(&image, (device, history), &policies, (low_water, high_water), &flash)
            })
        }
        FsCommand::Ls { image, path, recursive, raw } => listing::list(&image, &path, recursive, raw),
        FsCommand::Get { image, path, to, force } => copying::get(&image, &path, to.as_deref(), force.existing()),
        FsCommand::Put { image, from, path } => copying::put(&image, &from, path),
        FsCommand::Mkdir { image, path } => changing(&image, |fs| {
            let (parent, name) = parent_of(fs, &image, &path)?;
            fs.create(parent, &name, &NewObject::DIRECTORY).map_err(|error| at(&image, &path, &error)).map(drop)
        }),
        FsCommand::Rm { image, path, recursive } => changing(&image, |fs| remove(fs, &image, &path, recursive)),
        FsCommand::Stat { image, path: Some(path), json } => stat(&image, &path, json),
        FsCommand::Stat { image, path: None, json } => state(&image, json),
        FsCommand::Check { image, repair } => check_image(&image, &repair),
        FsCommand::Clean { image } => clean(&image),
        FsCommand::Model { u, i, p, device, segments } => model(u, i, p, &device, segments),
        FsCommand::Bench { benchmark, folder, seed, keep } => super::bench::run(&benchmark, &folder, seed, keep),
    }
}

pub(super) fn at(image: &Path, path: &str, error: &FsError) -> Failure {
    Failure::Run(format!("{}: {path}: {error}", image.display()))
}

pub(super) fn opened(image: &Path, read_only: bool) -> Result<Files, Failure> {
    Ok(opened_with_stats(image, read_only)?.0)
}

fn opened_with_stats(image: &Path, read_only: bool) -> Result<(Files, Option<ChipStats>), Failure> {
    let (device, stats) = open_with_stats(image, read_only, false)?;
    let (device, _progress) = Watched::checked(image, device, Tables::Files)?;
    let options = FilesOpenOptions { read_only, ..FilesOpenOptions::default() };
    let opened = open_files(Box::new(device) as AnyFlash, &options).map_err(|error| of_volume(image, &error))?;
    report_problems(&opened);
    let mut files = opened.files;
    files.set_time(now());
    Ok((files, stats))
}

/// Makes a change to an image. The file system is stopped cleanly even if the change fails.
pub(super) fn changing(image: &Path, change: impl FnOnce(&mut Files) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut fs = opened(image, false)?;
    let changed = change(&mut fs);
    let stopped = fs.stop().map_err(|error| Failure::Run(format!("{}: {error}", image.display())));
    changed.and(stopped.map(drop))
}

pub(super) fn resolve(fs: &Files, image: &Path, path: &str) -> Result<Attributes, Failure> {
    fs.resolve(path.as_bytes()).map_err(|error| at(image, path, &error))
}

/// The directory that contains a path, and the last name of the path.
pub(super) fn parent_of(fs: &Files, image: &Path, path: &str) -> Result<(u32, Vec<u8>), Failure> {
    let path = path.trim_end_matches('/');
    let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
    Ok((resolve(fs, image, parent)?.object, name.as_bytes().to_vec()))
}

fn make(
    image: &Path,
    (device, history): (Watched, History),
    policies: &FsPolicyArgs,
    (low_water, high_water): (u32, Option<u32>),
    flash: &GeometryArgs,
) -> Result<String, Failure> {
    let geometry = *device.geometry();
    let defaults = FilesFormatOptions::default();
    let store = StoreOptions {
        selection: policies.selection.unwrap_or(defaults.store.selection),
        leveling: policies.leveling.unwrap_or(defaults.store.leveling),
        max_pages_per_write: policies.max_pages_per_write.unwrap_or(defaults.store.max_pages_per_write),
        low_water,
        high_water: high_water.unwrap_or(low_water),
        uuid: *uuid::Uuid::new_v4().as_bytes(),
        created_s: u64::try_from(now().secs).unwrap_or(0),
        pair_pages: flash.pair_pages,
        endurance_erases: endurance(flash, &history)?,
        erases: history.erases,
    };
    let options = FilesFormatOptions { store, allocator: policies.allocator.unwrap_or(defaults.allocator) };
    let mut fs = format_files(device, &options).map_err(|error| of_volume(image, &error))?;
    fs.set_time(now());
    let room = fs.room();
    let (place, formatted) = (fs.layout().tags_text(), fs.superblock().expect("an image has one").clone());
    fs.stop().map_err(|error| Failure::Run(format!("{}: {error}", image.display())))?;
    let bytes = room.pages * u64::from(room.page_bytes);
    let image = image.display();
    Ok(format!(
        "{image}: {} segments of {} pages of {} bytes; a file system with room for {bytes} bytes ({:.1} % of the flash); selection {}, allocator {}; page tags {place}\nnext: margay mount {image} DIRECTORY",
        geometry.segments(),
        geometry.pages_per_segment(),
        geometry.page_bytes(),
        100.0 * bytes as f64 / geometry.bytes() as f64,
        formatted.selection,
        formatted.placement,
    ))
}

fn remove(fs: &mut Files, image: &Path, path: &str, recursive: bool) -> Result<(), Failure> {
    let attributes = resolve(fs, image, path)?;
    if attributes.object == ROOT {
        return Err(Failure::Usage("the root directory cannot be removed".into()));
    }
    let (parent, name) = parent_of(fs, image, path)?;
    remove_one(fs, parent, &name, recursive).map_err(|error| at(image, path, &error))
}

fn remove_one(fs: &mut Files, parent: u32, name: &[u8], recursive: bool) -> Result<(), FsError> {
    let attributes = fs.lookup(parent, name)?;
    if attributes.kind != ObjectKind::Directory {
        return fs.unlink(parent, name);
    }
    if recursive {
        for (name, _) in fs.list(attributes.object)? {
            remove_one(fs, attributes.object, &name, true)?;
        }
    }
    fs.rmdir(parent, name)
}

fn stat(image: &Path, path: &str, json: bool) -> Result<(), Failure> {
    let fs = opened(image, true)?;
    let a = resolve(&fs, image, path)?;
    let extended: Vec<String> =
        fs.list_attributes(a.object).map_err(|error| at(image, path, &error))?.map(shown).collect();
    if json {
        let value = serde_json::json!({
            "object": a.object, "kind": format!("{:?}", a.kind).to_lowercase(), "mode": format!("{:o}", a.mode),
            "uid": a.uid, "gid": a.gid, "links": a.links, "size": a.size, "pages": a.pages,
            "mtime": a.mtime.secs, "attributes": extended,
        });
        return print_bytes(format!("{value:#}\n").as_bytes());
    }
    let mut text = listing::line(&fs, path, &a);
    let _ = writeln!(text, "object {}, {} pages of {} bytes", a.object, a.pages, fs.room().page_bytes);
    if let Some(class) = fs.class_of_file(a.object) {
        let _ = writeln!(text, "class {class}");
    }
    for name in extended {
        let _ = writeln!(text, "attribute {name}");
    }
    print_bytes(text.as_bytes())
}

fn state(image: &Path, json: bool) -> Result<(), Failure> {
    let (fs, stats) = opened_with_stats(image, true)?;
    let (m, room) = (Metrics::of(&fs), fs.room());
    let superblock = fs.superblock().expect("an image has one");
    let (geometry, report) = (superblock.geometry, fs.mount_report());
    let uuid = uuid::Uuid::from_bytes(superblock.uuid);
    let (log, now_s) = (fs.log(), u64::try_from(now().secs).unwrap_or(0));
    let life = Health::new(superblock, log.segments(), log.now().writes, log.seq(), now_s);
    let age_s = (superblock.created_s > 0).then(|| now_s.saturating_sub(superblock.created_s));
    if json {
        let value = serde_json::json!({
            "health": health::json(&life, None, stats.as_ref()),
            "uuid": uuid.to_string(), "segments": geometry.segments(), "pages_per_segment": geometry.pages_per_segment(),
            "page_bytes": geometry.page_bytes(), "selection": superblock.selection, "allocator": superblock.placement,
            "leveling": superblock.leveling, "from_checkpoint": report.from_checkpoint, "mount_reads": report.reads,
            "objects": m.objects, "pages": m.pages, "free_pages": m.free_pages, "utilization": m.utilization,
            "invalidity": m.invalidity, "uniformity": m.uniformity, "clean_all_erases": m.to_clean.erases,
            "clean_all_copies": m.to_clean.copies, "erases": fs.log().segments().erases, "header_pages": fs.header_pages(),
            "object_memory_bytes": m.object_memory_bytes, "log_memory_bytes": m.log_memory_bytes,
            "retired_segments": m.retired_segments,
        });
        return print_bytes(format!("{value:#}\n").as_bytes());
    }
    let page = u64::from(room.page_bytes);
    let how = if report.from_checkpoint { "from the checkpoint of a clean stop" } else { "no clean stop: mount scan" };
    let mut text = format!(
        "file system          {uuid}
flash                {} segments of {} pages of {} + {} bytes
policies             {} + {}, leveling {}
mounted              {how}: {} reads, {} damaged pages
objects              {} in {} header pages
room                 {} of {} bytes free
memory               {} bytes for objects, {} for the log
state                utilization {:.1} %, invalidity {:.1} %, uniformity {:.1} %
cost of cleaning all {:.0} erases, {:.0} copies (MODA paper, eq. 2)
",
        geometry.segments(),
        geometry.pages_per_segment(),
        geometry.page_bytes(),
        geometry.spare_bytes(),
        superblock.selection,
        superblock.placement,
        superblock.leveling,
        report.reads,
        report.damaged.len(),
        m.objects,
        fs.header_pages(),
        m.free_pages * page,
        m.pages * page,
        m.object_memory_bytes,
        m.log_memory_bytes,
        100.0 * m.utilization,
        100.0 * m.invalidity,
        100.0 * m.uniformity,
        m.to_clean.erases,
        m.to_clean.copies,
    );
    for (name, said) in health::lines(&life, None, age_s, stats.as_ref()) {
        let _ = writeln!(text, "{name:<20} {said}");
    }
    print_bytes(text.as_bytes())
}

fn check_image(image: &Path, repair: &RepairArgs) -> Result<(), Failure> {
    let (mut device, progress) = Watched::open(image, !repair.repair_in_place, Tables::Files)?;
    let repaired = Repaired::start(image, device.geometry(), repair)?;
    let found = check_files(&mut device).map_err(|error| of_volume(image, &error))?;
    drop(progress);
    let how = if found.has_checkpoint { "; the checkpoint agrees" } else { "" };
    say!(
        "{}: {} files, {} directories, {} others, {} additional hard links; {} data pages read, {} reads for the scan of all segments",
        image.display(),
        found.files,
        found.directories,
        found.others,
        found.links,
        found.pages,
        found.scan.reads
    );
    print_damaged(&found.scan.damaged, &found.torn_pages)?;
    for problem in &found.problems {
        say!("{problem}");
    }
    let damaged = really_damaged(&found.scan.damaged, &found.torn_pages).count();
    let count = found.problems.len() + damaged;
    if count == 0 {
        say!("clean{how}");
    }
    match repaired {
        Some(_) if count == 0 && repair.repair_in_place => {
            say!("there is nothing to repair");
            Ok(())
        }
        Some(repaired) => repaired.files(image, device),
        None if count == 0 => Ok(()),
        None => Err(problems(image, count, "fs check")),
    }
}

fn clean(image: &Path) -> Result<(), Failure> {
    changing(image, |fs| {
        let expected = Metrics::of(fs);
        let done = fs.clean_all().map_err(|error| Failure::Run(format!("{}: {error}", image.display())))?;
        say!(
            "utilization {:.4}, invalidity {:.4}, uniformity {:.4}\nestimated (eq. 2)  {:>8.0} erases {:>8.0} copies\nmeasured           {:>8} erases {:>8} copies",
            expected.utilization,
            expected.invalidity,
            expected.uniformity,
            expected.to_clean.erases,
            expected.to_clean.copies,
            done.erases,
            done.copies
        );
        Ok(())
    })
}

fn model(u: f64, i: f64, p: f64, device: &str, segments: Option<u32>) -> Result<(), Failure> {
    let cost = cleaning_estimate([u, i, p], &DeviceSpec::load(device)?, segments)?;
    say!("{}, {} segments of {} data pages", cost.device, cost.segments, cost.data_pages_per_segment);
    say!("erases   {:.1}\ncopies   {:.1}\ntime     {:.3} s", cost.erases, cost.copies, cost.time_s);
    let note =
        if cost.has_energy { "" } else { " (eq. 3 with the constants of the paper, because this device states none)" };
    say!("energy   {:.3} mJ{note}", cost.energy_mj);
    Ok(())
}
