use crate::args::ServeArgs;
use crate::commands::device::{Tables, Watched, max_segment_reads, open_flash};
use crate::failure::{Failure, of_volume};
use crate::logging::Log;
use margay_serve::{Limits, Listen, Offer, Options, Outcome, Recording, Stopped};
use margay_trace::{RecordingWriter, Totals};
use margay_volume::{OpenOptions, Volume};
use std::path::Path;
use std::time::Duration;

pub fn run(args: ServeArgs) -> Result<(), Failure> {
    let level = if args.verbose { tracing::Level::INFO } else { tracing::Level::WARN };
    let log = Log::start(level)?;
    let limits = Limits {
        max_connections: args.max_connections as usize,
        max_requests: args.max_requests as usize,
        max_memory_bytes: args.max_memory,
        max_connection_memory_bytes: args.max_connection_memory,
        handshake_timeout: Duration::from_secs(args.handshake_timeout),
        client_timeout: Duration::from_secs(args.client_timeout),
        ..Limits::default()
    };
    let options_of_memory = "(--max-memory, --max-connection-memory, --max-connections)";
    limits.check().map_err(|error| Failure::Usage(format!("{error} {options_of_memory}")))?;
    let mut record = match &args.record {
        Some(path) if args.append && !path.exists() => {
            let text = format!("{}: there is no recording to go on with; leave out --append", path.display());
            return Err(Failure::Usage(text));
        }
        Some(path) if args.append => Some(RecordingWriter::go_on_with(path)?),
        Some(path) => Some(RecordingWriter::create(path, args.force.existing())?),
        None => None,
    };
    let default = args.image.iter().map(|image| (String::new(), image.clone()));
    let mut offers = Vec::new();
    for (name, image) in default.chain(args.export.iter().cloned()) {
        let (volume, record) = open(&args, &image, record.take())?;
        let description = format!("margay disk on {}", image.display());
        offers.push(Offer { name, description, volume, record, cleans_idle: !args.no_idle_cleaning });
    }
    // Holds the socket for --run, so it is kept until the server has stopped.
    let folder = match (&args.run, &args.unix) {
        (Some(_), None) => Some(tempfile::tempdir()?),
        _ => None,
    };
    let listen = match (&folder, &args.unix) {
        (Some(folder), _) => Listen::Unix(folder.path().join("nbd.sock")),
        (None, Some(path)) => Listen::Unix(path.clone()),
        (None, None) if args.systemd => Listen::Systemd,
        (None, None) => Listen::Tcp(args.listen.clone().unwrap_or_else(|| "127.0.0.1:10809".into())),
    };
    let options = Options {
        listen,
        tls: args.tls.clone(),
        requires_tls: args.tls_required,
        verify_clients: args.tls_verify_clients,
        run: args.run.clone(),
        limits,
    };
    let ready = |uri: &str| {
        if args.run.is_none() {
            log.say(format!("serving {uri}  (stop with ctrl-C)"));
        }
    };
    let outcome = margay_serve::serve(offers, &options, ready).map_err(|error| Failure::Run(error.to_string()))?;
    drop(folder);
    report(&args, outcome, &log)
}

fn open(
    args: &ServeArgs,
    image: &Path,
    record: Option<RecordingWriter>,
) -> Result<(Volume, Option<Recording>), Failure> {
    let device = open_flash(image, args.read_only, args.no_sync)?;
    let geometry = *margay_flash::Flash::geometry(&device);
    let policies = &args.policies;
    let options = OpenOptions {
        read_only: args.read_only,
        selection: policies.selection,
        placement: policies.placement,
        leveling: policies.leveling,
        max_pages_per_write: policies.max_pages_per_write,
        max_segment_reads: max_segment_reads(args.read_limit, image, &geometry, args.record.is_some()),
        read_only_ranges: policies.page_ranges(geometry.page_bytes()),
    };
    let (device, progress) = Watched::checked(image, device, Tables::Disk)?;
    let opened = match record {
        Some(record) => Recording::open(device, &options, record).map(|(volume, record)| (volume, Some(record))),
        None => Volume::open(device, &options).map(|volume| (volume, None)),
    };
    let (volume, record) = opened.map_err(|error| of_volume(image, &error))?;
    drop(progress);
    let report = volume.mount_report();
    let how = if report.from_checkpoint { "from its checkpoint" } else { "by a mount scan" };
    tracing::info!("{}: opened {how}, {} reads", image.display(), report.reads);
    if report.damaged.len() > 1 {
        tracing::warn!("{}: {} damaged pages; `margay check` names them", image.display(), report.damaged.len());
    }
    Ok((volume, record))
}

fn report(args: &ServeArgs, outcome: Outcome, log: &Log) -> Result<(), Failure> {
    let mut not_recorded = None;
    for stopped in &outcome.stopped {
        let how = if args.read_only || stopped.with_checkpoint {
            ""
        } else {
            "; there was no room for a checkpoint, so the next start scans"
        };
        if args.run.is_none() {
            let Stopped { host_writes, copies, metadata_pages, erases, idle_copies, idle_erases, since_format, .. } =
                stopped;
            log.say(format!(
                "stopped cleanly: {host_writes} pages written, {copies} copied, {metadata_pages} metadata pages, {erases} segments erased; of that while idle {idle_copies} pages copied, {idle_erases} segments erased{how}"
            ));
            let Totals { host_writes, programs, erases } = since_format;
            let wa = if *host_writes > 0 {
                format!(", write amplification {:.3}", *programs as f64 / *host_writes as f64)
            } else {
                String::new()
            };
            log.say(format!(
                "since it was formatted: {host_writes} pages written, {programs} programmed, {erases} segments erased{wa}"
            ));
        }
        match &stopped.recorded {
            Some(Ok(requests)) => {
                let path = args.record.as_deref().unwrap_or(Path::new("")).display();
                log.say(format!("{path}: {requests} requests recorded"));
            }
            Some(Err(error)) => not_recorded = Some(format!("nothing was recorded: {error}")),
            None => {}
        }
    }
    match outcome.command {
        Some(status) if !status.success() => Err(Failure::Run(format!("the command ended with {status}"))),
        _ => not_recorded.map_or(Ok(()), |message| Err(Failure::Run(message))),
    }
}
