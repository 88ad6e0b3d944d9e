//! `margay fs`: work on the file system of an image without mounting it.

use crate::args::FsCommand;
use crate::args::FsPolicyArgs;
use crate::commands::format::on_image;
use crate::failure::{Failure, of_image, of_volume};
use crate::output::print_bytes;
use margay_flash::Flash;
use margay_fs::{Attributes, FsError, Kind, NewObject, ROOT, Time};
use margay_fuse::{FileSystem, now};
use margay_media::{DeviceSpec, ImageFlash};
use margay_theory::cleaning_cost;
use margay_volume::{
    AnyFlash, FilesFormatOptions, FilesOpenOptions, Metrics, OpenedFiles, StoreOptions, check_files, format_files,
    open_files,
};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

type Files = FileSystem;

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
}

pub fn run(command: FsCommand) -> Result<(), Failure> {
    match command {
        FsCommand::Format { image, flash, low_water, high_water, policies } => {
            on_image(&image, &flash, |device| make(&image, device, &policies, low_water, high_water, flash.pair_pages))
        }
        FsCommand::Ls { image, path, recursive } => list(&image, &path, recursive),
        FsCommand::Get { image, path, to } => get(&image, &path, to.as_deref()),
        FsCommand::Put { image, from, path } => put(&image, &from, path),
        FsCommand::Mkdir { image, path } => changing(&image, |fs| {
            let (parent, name) = parent_of(fs, &image, &path)?;
            fs.create(parent, &name, &NewObject::DIRECTORY).map_err(|error| at(&image, &path, &error)).map(drop)
        }),
        FsCommand::Rm { image, path, recursive } => changing(&image, |fs| remove(fs, &image, &path, recursive)),
        FsCommand::Stat { image, path: Some(path), json } => stat(&image, &path, json),
        FsCommand::Stat { image, path: None, json } => state(&image, json),
        FsCommand::Check { image } => check_image(&image),
        FsCommand::Clean { image } => clean(&image),
        FsCommand::Model { u, i, p, device, segments } => model(u, i, p, &device, segments),
        FsCommand::Bench { benchmark, folder, seed, keep } => super::bench::run(&benchmark, &folder, seed, keep),
    }
}

fn at(image: &Path, path: &str, error: &FsError) -> Failure {
    Failure::Run(format!("{}: {path}: {error}", image.display()))
}

fn opened(image: &Path, read_only: bool) -> Result<Files, Failure> {
    let device = ImageFlash::open(image, read_only).map_err(|error| of_image(image, &error))?;
    let options = FilesOpenOptions { read_only, ..FilesOpenOptions::default() };
    let opened = open_files(Box::new(device) as AnyFlash, &options).map_err(|error| of_volume(image, &error))?;
    report_problems(&opened);
    let mut files = opened.files;
    files.set_time(now());
    Ok(files)
}

/// Makes a change to an image. The file system is stopped cleanly even if the change fails.
fn changing(image: &Path, change: impl FnOnce(&mut Files) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut fs = opened(image, false)?;
    let changed = change(&mut fs);
    let stopped = fs.stop().map_err(|error| Failure::Run(format!("{}: {error}", image.display())));
    changed.and(stopped.map(drop))
}

fn resolve(fs: &Files, image: &Path, path: &str) -> Result<Attributes, Failure> {
    fs.resolve(path.as_bytes()).map_err(|error| at(image, path, &error))
}

/// The directory that contains a path, and the last name of the path.
fn parent_of(fs: &Files, image: &Path, path: &str) -> Result<(u32, Vec<u8>), Failure> {
    let path = path.trim_end_matches('/');
    let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
    Ok((resolve(fs, image, parent)?.object, name.as_bytes().to_vec()))
}

fn make(
    image: &Path,
    device: ImageFlash,
    policies: &FsPolicyArgs,
    low_water: u32,
    high_water: Option<u32>,
    pair_pages: bool,
) -> Result<(), Failure> {
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
        pair_pages,
    };
    let options = FilesFormatOptions { store, allocator: policies.allocator.unwrap_or(defaults.allocator) };
    let mut fs = format_files(device, &options).map_err(|error| of_volume(image, &error))?;
    fs.set_time(now());
    let room = fs.room();
    let place = fs.layout().place.name();
    fs.stop().map_err(|error| Failure::Run(format!("{}: {error}", image.display())))?;
    let bytes = room.pages * u64::from(room.page_bytes);
    println!(
        "{}: {} segments of {} pages of {} bytes; a file system with room for {bytes} bytes ({:.1} % of the flash); selection {}, allocator {}; page tags in the {place}",
        image.display(),
        geometry.segments(),
        geometry.pages_per_segment(),
        geometry.page_bytes(),
        100.0 * bytes as f64 / geometry.bytes() as f64,
        options.store.selection,
        options.allocator,
    );
    println!("next: margay mount {} DIRECTORY", image.display());
    Ok(())
}

fn kind_letter(kind: Kind) -> char {
    match kind {
        Kind::File => '-',
        Kind::Directory => 'd',
        Kind::Symlink => 'l',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
        Kind::CharDevice => 'c',
        Kind::BlockDevice => 'b',
    }
}

fn mode_text(attributes: &Attributes) -> String {
    let mut text = String::from(kind_letter(attributes.kind));
    for shift in [6, 3, 0] {
        let bits = attributes.mode >> shift & 7;
        let special = attributes.mode >> (9 + shift / 3) & 1 == 1;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        let (with, without) = if shift == 0 { ('t', 'T') } else { ('s', 'S') };
        text.push(match (bits & 1 != 0, special) {
            (true, true) => with,
            (false, true) => without,
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// Seconds since 1970 as a date in UTC.
fn date(time: Time) -> String {
    let (days, secs) = (time.secs.div_euclid(86400), time.secs.rem_euclid(86400));
    // Days to a civil date, by eras of 400 years that start on the first of March.
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let (day, month) = (day_of_year - (153 * month_index + 2) / 5 + 1, (month_index + 2) % 12 + 1);
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", secs / 3600, secs / 60 % 60)
}

fn line(fs: &Files, name: &str, attributes: &Attributes) -> String {
    let target = match fs.read_link(attributes.object) {
        Ok(target) => format!(" -> {}", String::from_utf8_lossy(target)),
        Err(_) => String::new(),
    };
    format!(
        "{} {:>3} {:>5} {:>5} {:>12} {} {name}{target}\n",
        mode_text(attributes),
        attributes.links,
        attributes.uid,
        attributes.gid,
        attributes.size,
        date(attributes.mtime),
    )
}

fn list(image: &Path, path: &str, recursive: bool) -> Result<(), Failure> {
    let fs = opened(image, true)?;
    let attributes = resolve(&fs, image, path)?;
    let mut text = String::new();
    if attributes.kind != Kind::Directory {
        text += &line(&fs, path, &attributes);
        return print_bytes(text.as_bytes());
    }
    let mut folders = vec![(String::new(), attributes.object)];
    while let Some((prefix, object)) = folders.pop() {
        let names = fs.list(object).map_err(|error| at(image, path, &error))?;
        let mut below = Vec::new();
        for (name, attributes) in names {
            let name = format!("{prefix}{}", String::from_utf8_lossy(&name));
            text += &line(&fs, &name, &attributes);
            if recursive && attributes.kind == Kind::Directory {
                below.push((format!("{name}/"), attributes.object));
            }
        }
        folders.extend(below.into_iter().rev());
    }
    print_bytes(text.as_bytes())
}

/// Size of the buffer for copies, in bytes.
const COPY_BYTES: usize = 1 << 20;

fn get(image: &Path, path: &str, to: Option<&Path>) -> Result<(), Failure> {
    let mut fs = opened(image, true)?;
    let attributes = resolve(&fs, image, path)?;
    let name = to.map_or("standard output".to_string(), |to| to.display().to_string());
    let mut out: Box<dyn Write> = match to {
        Some(to) => Box::new(std::fs::File::create(to).map_err(|error| Failure::write(&name, error))?),
        None => Box::new(std::io::stdout().lock()),
    };
    let (mut buffer, mut offset) = (vec![0; COPY_BYTES], 0);
    loop {
        let len = fs.read(attributes.object, offset, &mut buffer).map_err(|error| at(image, path, &error))?;
        if len == 0 {
            return out.flush().map_err(|error| Failure::write(&name, error));
        }
        match out.write_all(&buffer[..len]) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Err(Failure::ClosedPipe),
            result => result.map_err(|error| Failure::write(&name, error))?,
        }
        offset += len as u64;
    }
}

fn put(image: &Path, from: &Path, path: Option<String>) -> Result<(), Failure> {
    let name = from.file_name().map(|name| name.to_string_lossy().into_owned());
    let path = match (path, name) {
        (Some(path), _) => path,
        (None, Some(name)) => name,
        (None, None) => {
            return Err(Failure::Usage(format!(
                "{}: this path has no name; give the path in the image as the third argument",
                from.display()
            )));
        }
    };
    changing(image, |fs| {
        let (parent, name) = parent_of(fs, image, &path)?;
        let (parent, name) = match fs.resolve(path.as_bytes()) {
            // An existing directory receives the file.
            Ok(found) if found.kind == Kind::Directory && from.is_file() => {
                (found.object, from.file_name().map(|name| name.as_bytes().to_vec()).unwrap_or(name))
            }
            _ => (parent, name),
        };
        put_one(fs, image, from, parent, &name)
    })
}

fn put_one(fs: &mut Files, image: &Path, from: &Path, parent: u32, name: &[u8]) -> Result<(), Failure> {
    let read = |error: std::io::Error| Failure::Input(format!("{}: {error}", from.display()));
    let shown = from.display().to_string();
    let meta = std::fs::symlink_metadata(from).map_err(read)?;
    let kind = match meta.file_type() {
        kind if kind.is_dir() => Kind::Directory,
        kind if kind.is_symlink() => Kind::Symlink,
        kind if kind.is_fifo() => Kind::Fifo,
        kind if kind.is_file() => Kind::File,
        _ => {
            eprintln!("{shown}: skipped, because it is a device or a socket");
            return Ok(());
        }
    };
    let target = if kind == Kind::Symlink { std::fs::read_link(from).map_err(read)? } else { PathBuf::new() };
    let new = NewObject {
        kind,
        mode: (meta.permissions().mode() & 0o7777) as u16,
        uid: meta.uid(),
        gid: meta.gid(),
        rdev: 0,
        target: target.as_os_str().as_bytes(),
    };
    let failed = |error: FsError| at(image, &shown, &error);
    let object = match fs.create(parent, name, &new) {
        Ok(attributes) => attributes.object,
        // A file replaces an existing one; files are added to an existing directory.
        Err(FsError::Exists) => {
            let there = fs.lookup(parent, name).map_err(failed)?;
            if there.kind != kind {
                return Err(failed(FsError::Exists));
            }
            if kind == Kind::File {
                fs.truncate(there.object, 0).map_err(failed)?;
            }
            there.object
        }
        Err(error) => return Err(failed(error)),
    };
    match kind {
        Kind::File => {
            let mut file = std::fs::File::open(from).map_err(read)?;
            let (mut buffer, mut offset) = (vec![0; COPY_BYTES], 0);
            loop {
                let len = file.read(&mut buffer).map_err(read)?;
                if len == 0 {
                    break;
                }
                let mut done = 0;
                while done < len {
                    done += fs.write(object, offset + done as u64, &buffer[done..len]).map_err(failed)?;
                }
                offset += len as u64;
            }
            fs.close(object).map_err(failed)?;
        }
        Kind::Directory => {
            let mut entries: Vec<_> = std::fs::read_dir(from).map_err(read)?.collect::<Result<_, _>>().map_err(read)?;
            entries.sort_by_key(std::fs::DirEntry::file_name);
            for entry in entries {
                put_one(fs, image, &entry.path(), object, entry.file_name().as_bytes())?;
            }
        }
        _ => {}
    }
    let mtime = Time { secs: meta.mtime(), nanos: meta.mtime_nsec() as u32 };
    let change = margay_fs::Change { atime: Some(mtime), mtime: Some(mtime), ..margay_fs::Change::default() };
    fs.change(object, &change).map_err(failed).map(drop)
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
    if attributes.kind != Kind::Directory {
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
    let extended: Vec<String> = fs
        .list_attributes(a.object)
        .map_err(|error| at(image, path, &error))?
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect();
    if json {
        let value = serde_json::json!({
            "object": a.object, "kind": format!("{:?}", a.kind).to_lowercase(), "mode": format!("{:o}", a.mode),
            "uid": a.uid, "gid": a.gid, "links": a.links, "size": a.size, "pages": a.pages,
            "mtime": a.mtime.secs, "attributes": extended,
        });
        return print_bytes(format!("{value:#}\n").as_bytes());
    }
    let mut text = line(&fs, path, &a);
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
    let fs = opened(image, true)?;
    let (m, room) = (Metrics::of(&fs), fs.room());
    let superblock = fs.superblock().expect("an image has one");
    let (geometry, report) = (superblock.geometry, fs.mount_report());
    let uuid = uuid::Uuid::from_bytes(superblock.uuid);
    if json {
        let value = serde_json::json!({
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
    let text = format!(
        "file system          {uuid}
flash                {} segments of {} pages of {} + {} bytes
policies             {} + {}, leveling {}
mounted              {how}: {} reads, {} damaged pages
objects              {} in {} header pages
room                 {} of {} bytes free
memory               {} bytes for objects, {} for the log
state                utilization {:.1} %, invalidity {:.1} %, uniformity {:.1} %
cost of cleaning all {:.0} erases, {:.0} copies (MODA paper, eq. 2)
erase counts         {} to {}
retired segments     {}
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
        fs.log().segments().erases.iter().min().unwrap_or(&0),
        m.max_erases,
        m.retired_segments,
    );
    print_bytes(text.as_bytes())
}

fn check_image(image: &Path) -> Result<(), Failure> {
    let device = ImageFlash::open(image, true).map_err(|error| of_image(image, &error))?;
    let found = check_files(device).map_err(|error| of_volume(image, &error))?;
    let how = if found.has_checkpoint { "; the checkpoint agrees" } else { "" };
    println!(
        "{}: {} files, {} directories, {} others, {} additional hard links; {} data pages read, {} reads for the scan of all segments",
        image.display(),
        found.files,
        found.directories,
        found.others,
        found.links,
        found.pages,
        found.scan.reads
    );
    // One is normal after a power cut.
    if found.scan.damaged.len() > 1 {
        println!("{} damaged pages that belong to no object", found.scan.damaged.len());
    }
    if found.problems.is_empty() {
        println!("clean{how}");
        return Ok(());
    }
    found.problems.iter().for_each(|problem| println!("{problem}"));
    Err(Failure::Run(format!("{}: {} problems", image.display(), found.problems.len())))
}

fn clean(image: &Path) -> Result<(), Failure> {
    changing(image, |fs| {
        let expected = Metrics::of(fs);
        let done = fs.clean_all().map_err(|error| Failure::Run(format!("{}: {error}", image.display())))?;
        println!(
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
    let device = DeviceSpec::load(device)?;
    let segments = segments.unwrap_or(device.segments);
    let pages = device.pages_per_segment - device.header_pages - device.summary_pages;
    let cost = cleaning_cost(u, i, p, segments.into(), pages.into())?;
    let timing = &device.timing;
    let seconds = (cost.erases * timing.erase_us + cost.copies * timing.copy_us()) * 1e-6;
    println!("{}, {segments} segments of {pages} data pages", device.name);
    println!("erases   {:.1}\ncopies   {:.1}\ntime     {seconds:.3} s", cost.erases, cost.copies);
    match &device.energy {
        Some(energy) => {
            let uj = cost.erases * energy.erase_uj + cost.copies * (energy.read_uj + energy.program_uj);
            println!("energy   {:.3} mJ", uj * 1e-3);
        }
        None => println!(
            "energy   {:.3} mJ (eq. 3 with the constants of the paper, because this device states none)",
            cost.energy_mj(device.page_bytes.into(), device.pages_per_segment.into())
        ),
    }
    Ok(())
}
