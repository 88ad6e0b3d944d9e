use crate::args::MountArgs;
use crate::commands::device::{Tables, Watched, max_segment_reads, open_flash};
use crate::commands::files::report_problems;
use crate::failure::{Failure, of_mount, of_volume};
use crate::logging::Log;
use margay_fuse::{MountOptions, mount};
use margay_volume::{AnyFlash, FilesOpenOptions, open_files};
use std::path::Path;

/// How files of metrics start.
const METRICS_START: &[u8] = b"# HELP margay_";

pub fn run(args: &MountArgs) -> Result<(), Failure> {
    let level = if args.verbose { tracing::Level::INFO } else { tracing::Level::WARN };
    let _log = Log::start(level)?;
    if let Some(path) = &args.metrics {
        check_metrics(path)?;
    }
    let device = open_flash(&args.image, args.read_only, args.no_sync)?;
    let geometry = *margay_flash::Flash::geometry(&device);
    let (device, progress) = Watched::checked(&args.image, device, Tables::Files)?;
    let policies = &args.policies;
    let options = FilesOpenOptions {
        read_only: args.read_only,
        selection: policies.selection,
        allocator: policies.allocator,
        leveling: policies.leveling,
        max_pages_per_write: policies.max_pages_per_write,
        max_segment_reads: max_segment_reads(args.read_limit, &args.image, &geometry, false),
        accept_losses: args.accept_losses,
    };
    let opened = open_files(Box::new(device) as AnyFlash, &options).map_err(|error| of_volume(&args.image, &error))?;
    drop(progress);
    report_problems(&opened);
    let fs = opened.files;
    let report = fs.mount_report();
    let how = if report.from_checkpoint { "from its checkpoint" } else { "by a mount scan" };
    tracing::info!("{}: mounted {how}, {} reads", args.image.display(), report.reads);
    let image = args.image.canonicalize().unwrap_or_else(|_| args.image.clone());
    let options = MountOptions {
        read_only: fs.is_read_only(),
        allow_other: args.allow_other,
        commit_s: args.commit,
        sync_names: args.sync_names,
        metrics: args.metrics.clone(),
        write_back: args.write_back,
        name: image.display().to_string(),
    };
    let ready = || {
        let (image, folder) = (args.image.display(), args.folder.display());
        eprintln!("{image} is mounted on {folder}  (stop with ctrl-C or fusermount3 -u {folder})");
    };
    let with_checkpoint = mount(fs, &args.folder, &options, ready).map_err(|error| of_mount(&args.image, &error))?;
    let how = if options.read_only || with_checkpoint {
        ""
    } else {
        "; there was no room for a checkpoint, so the next mount scans"
    };
    eprintln!("unmounted cleanly{how}");
    Ok(())
}

/// Refuses to write metrics over a file that holds something else.
fn check_metrics(path: &Path) -> Result<(), Failure> {
    match std::fs::read(path) {
        Ok(bytes) if !bytes.is_empty() && !bytes.starts_with(METRICS_START) => {
            let problem = "exists already and holds no metrics of margay; name another file, or remove it";
            Err(Failure::Usage(format!("--metrics {}: {problem}", path.display())))
        }
        _ => Ok(()),
    }
}
