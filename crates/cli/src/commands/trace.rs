use super::progress::interrupt_flag;
use crate::args::TraceCommand;
use crate::failure::Failure;
use crate::output::{check_new, print_bytes, report, shown};
use indicatif::ProgressBar;
use margay_host::Existing;
use margay_trace::vm::{self, CaptureOptions, Reference, VmHeader, VmReader, VmWriter, capture};
use margay_trace::{
    AnyTrace, DevicePart, Format, Request, TraceError, TraceWriter, convert, info, open, open_any, split,
};
use serde::Serialize;
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

pub fn run(command: TraceCommand) -> Result<(), Failure> {
    match command {
        TraceCommand::Info { files, page_bytes, json, reading } => {
            if page_bytes == 0 {
                return Err(Failure::Usage("--page-bytes 0: expected at least 1".into()));
            }
            let options = reading.options()?;
            for file in &files {
                let text = match open_any(file, &options, VmHeader::DEFAULT)? {
                    AnyTrace::References(reader) => references_info(reader, json)?,
                    AnyTrace::Requests(reader) => {
                        let info = info(*reader, page_bytes)?;
                        if json { to_json(&info)? } else { report::trace_info(&file.display().to_string(), &info) }
                    }
                };
                print_bytes(text.as_bytes())?;
            }
            Ok(())
        }
        TraceCommand::Convert { from, to, to_format, force, reading } => {
            let options = reading.options()?;
            let reader = if to.to_string_lossy().trim_end_matches(".zst").ends_with(".vmt") {
                match open_any(&from, &options, VmHeader::DEFAULT)? {
                    AnyTrace::References(reader) => return convert_references(reader, &to, force.existing()),
                    AnyTrace::Requests(reader) => *reader,
                }
            } else {
                open(&from, &options)?
            };
            let format: Format = to_format.parse()?;
            let writer = TraceWriter::create_with(&to, format, force.existing())?;
            let counts = convert(reader, writer)?;
            say!("{}: {} requests, {} bad lines skipped", to.display(), counts.requests, counts.bad_lines);
            for bad in &counts.first_bad {
                say!("  {bad}");
            }
            Ok(())
        }
        TraceCommand::Split { from, folder, to_format, force, reading } => {
            let (options, format) = (reading.options()?, to_format.parse()?);
            std::fs::create_dir_all(&folder).map_err(|error| Failure::new_file(&folder, &error))?;
            for DevicePart { device, path, requests, .. } in split(&from, &options, &folder, format, force.existing())?
            {
                say!("{}: {requests} requests to {}", path.display(), shown(device.as_bytes()));
            }
            Ok(())
        }
        TraceCommand::Capture { output, force, page_bytes, no_fetches, reduce, records, quiet, program } => {
            if !matches!(page_bytes, 2048 | 4096) {
                return Err(Failure::Usage(format!("--page-bytes {page_bytes}: expected 2048 or 4096")));
            }
            let page_shift = page_bytes.trailing_zeros() as u8;
            let header = VmHeader { page_shift, fetches: !no_fetches, window: reduce };
            let options = CaptureOptions { header, max_records: records };
            capture_program(&program, &output, force.existing(), &options, quiet)
        }
        TraceCommand::Head { file, count, reading } => {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            match open_any(&file, &reading.options()?, VmHeader::DEFAULT)? {
                AnyTrace::References(reader) => {
                    let line = |Reference { page, write }| {
                        format!("{page:>16x} {:>6}\n", if write { "write" } else { "read" })
                    };
                    print_lines(
                        format!("{:>16} {:>6}\n", "page", "kind"),
                        reader.take(count).map(|reference| reference.map(line)),
                    )
                }
                AnyTrace::Requests(mut reader) => {
                    let lines = std::iter::from_fn(|| {
                        let request = reader.next()?;
                        Some(request.map(|Request { time_us, kind, device, offset_bytes, len_bytes, .. }| {
                            let (kind, device) = (format!("{kind:?}").to_lowercase(), reader.device_name(device));
                            let device = shown(device.as_bytes());
                            format!("{time_us:>14} {kind:>6} {device:>10} {offset_bytes:>18} {len_bytes:>10}\n")
                        }))
                    });
                    let [time, kind, device, offset, bytes] = ["time us", "kind", "device", "offset bytes", "bytes"];
                    print_lines(
                        format!("{time:>14} {kind:>6} {device:>10} {offset:>18} {bytes:>10}\n"),
                        lines.take(count),
                    )
                }
            }
        }
    }
}

/// Prints lines as they are read: there may be more than memory holds, and those before a bad one are shown.
fn print_lines(heading: String, lines: impl Iterator<Item = Result<String, TraceError>>) -> Result<(), Failure> {
    let mut text = heading;
    for line in lines {
        match line {
            Ok(line) => text += &line,
            Err(error) => {
                print_bytes(text.as_bytes())?;
                return Err(error.into());
            }
        }
        if text.len() > 1 << 16 {
            print_bytes(text.as_bytes())?;
            text.clear();
        }
    }
    print_bytes(text.as_bytes())
}

fn to_json(value: &impl Serialize) -> Result<String, Failure> {
    Ok(serde_json::to_string_pretty(value).map_err(|error| Failure::Run(error.to_string()))? + "\n")
}

/// The statistics of a trace of page references, as text or JSON.
fn references_info(mut reader: VmReader, as_json: bool) -> Result<String, Failure> {
    let vm::VmInfo { format, header, records, writes, pages, written_pages } = vm::info(&mut reader)?;
    let format = format.name();
    let page_bytes = 1u64 << header.page_shift;
    if as_json {
        let xxh3 = reader.file_hash()?.map_or_else(String::new, |hash| format!("{hash:016x}"));
        return to_json(&json!({
            "file": reader.path(), "format": format, "xxh3": xxh3,
            "page_bytes": page_bytes, "instruction_fetches": header.fetches, "reduction_window": header.window,
            "records": records, "writes": writes, "pages": pages, "written_pages": written_pages,
        }));
    }
    let mib = |pages: u64| pages as f64 * page_bytes as f64 / f64::from(1 << 20);
    Ok(format!(
        "{}: page references, {format}\n  records        {records}, {:.1} % of them writes\n  pages          {} of {page_bytes} bytes, {:.1} MiB\n  ever written   {written_pages}, {:.1} MiB\n  fetches        {}\n  reduction      {}\n",
        reader.path(),
        100.0 * writes as f64 / (records as f64).max(1.0),
        pages,
        mib(pages),
        mib(written_pages),
        if header.fetches { "included, as reads" } else { "not recorded" },
        match header.window {
            0 => "none".to_string(),
            window => format!("an access is recorded only if its page is not among the {window} records before it"),
        },
    ))
}

fn convert_references(reader: VmReader, to: &Path, existing: Existing) -> Result<(), Failure> {
    let mut writer = VmWriter::create_with(to, reader.header(), existing)?;
    for reference in reader {
        writer.write(reference?)?;
    }
    let records = writer.records();
    writer.finish()?;
    say!("{}: {records} records", to.display());
    Ok(())
}

/// The name of a trace whose program did not come to its end.
fn partial(to: &Path) -> PathBuf {
    let mut name = to.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

fn capture_program(
    program: &[OsString],
    to: &Path,
    existing: Existing,
    options: &CaptureOptions,
    quiet: bool,
) -> Result<(), Failure> {
    let partial = partial(to);
    check_new(Some(&partial), existing)?;
    let writer = VmWriter::create_with(to, options.header, existing)?;
    let stop = interrupt_flag();
    let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    bar.enable_steady_tick(Duration::from_millis(200));
    let (captured, writer) = capture(program, writer, options, |progress| {
        bar.set_message(format!("{} accesses, {} records", progress.accesses, progress.records));
        !stop.load(Ordering::Relaxed)
    })?;
    bar.finish_and_clear();
    let (records, accesses) = (captured.progress.records, captured.progress.accesses);
    if records == 0 {
        return Err(Failure::Run(format!("no access was recorded: {}", captured.status)));
    }
    if !captured.is_whole() {
        writer.finish_as(&partial)?;
        let how = if captured.was_stopped { "was stopped" } else { "was ended by a signal" };
        let text = format!(
            "the program {how}, so {} was not written; {} has the {records} records until then",
            to.display(),
            partial.display()
        );
        return Err(if captured.was_stopped { Failure::Interrupted(text) } else { Failure::Run(text) });
    }
    writer.finish()?;
    say!(
        "{}: {records} records of {accesses} accesses; {}",
        to.display(),
        if captured.was_ended { "the program was stopped early".to_string() } else { captured.status.to_string() }
    );
    Ok(())
}
