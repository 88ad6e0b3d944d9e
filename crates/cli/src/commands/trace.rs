use super::progress::interrupt_flag;
use crate::args::TraceCommand;
use crate::failure::Failure;
use crate::output::{check_new, report};
use indicatif::ProgressBar;
use margay_trace::vm::{self, CaptureOptions, VmHeader, VmReader, VmWriter, capture, is_vm_trace};
use margay_trace::{Existing, Format, TraceWriter, convert, hash_file, info, open};
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
                if options.format.is_none() && is_vm_trace(file)? {
                    crate::output::print_bytes(&references_info(file, json)?)?;
                    continue;
                }
                let info = info(file, &options, page_bytes)?;
                let text = if json {
                    serde_json::to_string_pretty(&info).map_err(|error| Failure::Run(error.to_string()))? + "\n"
                } else {
                    report::trace_info(&file.display().to_string(), &info)
                };
                crate::output::print_bytes(text.as_bytes())?;
            }
            Ok(())
        }
        TraceCommand::Convert { from, to, to_format, force, reading } => {
            if to.to_string_lossy().trim_end_matches(".zst").ends_with(".vmt") && is_vm_trace(&from)? {
                return convert_references(&from, &to, force.existing());
            }
            let format: Format = to_format.parse()?;
            let writer = TraceWriter::create_with(&to, format, force.existing())?;
            let counts = convert(&from, &reading.options()?, writer)?;
            say!("{}: {} requests, {} bad lines skipped", to.display(), counts.requests, counts.bad_lines);
            for bad in &counts.first_bad {
                say!("  {bad}");
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
            if reading.trace_format.is_none() && is_vm_trace(&file)? {
                let mut text = format!("{:>16} {:>6}\n", "page", "kind");
                for reference in VmReader::open(&file, VmHeader::DEFAULT)?.take(count as usize) {
                    let reference = reference?;
                    text += &format!("{:>16x} {:>6}\n", reference.page, if reference.write { "write" } else { "read" });
                }
                return crate::output::print_bytes(text.as_bytes());
            }
            let mut reader = open(&file, &reading.options()?)?;
            let mut text =
                format!("{:>14} {:>6} {:>6} {:>18} {:>10}\n", "time us", "kind", "device", "offset bytes", "bytes");
            for request in reader.by_ref().take(usize::try_from(count).unwrap_or(usize::MAX)) {
                let r = request?;
                let kind = format!("{:?}", r.kind).to_lowercase();
                text += &format!(
                    "{:>14} {kind:>6} {:>6} {:>18} {:>10}\n",
                    r.time_us, r.device, r.offset_bytes, r.len_bytes
                );
            }
            crate::output::print_bytes(text.as_bytes())
        }
    }
}

/// The statistics of a trace of page references, as text or JSON.
fn references_info(file: &Path, as_json: bool) -> Result<Vec<u8>, Failure> {
    let vm::VmInfo { format, header, records, writes, pages, written_pages } = vm::info(file, VmHeader::DEFAULT)?;
    let format = format.name();
    let page_bytes = 1u64 << header.page_shift;
    if as_json {
        let object = json!({
            "file": file.display().to_string(), "format": format, "xxh3": format!("{:016x}", hash_file(file)?),
            "page_bytes": page_bytes, "instruction_fetches": header.fetches, "reduction_window": header.window,
            "records": records, "writes": writes, "pages": pages, "written_pages": written_pages,
        });
        let mut bytes = serde_json::to_vec_pretty(&object).map_err(|error| Failure::Run(error.to_string()))?;
        bytes.push(b'\n');
        return Ok(bytes);
    }
    let mib = |pages: u64| pages as f64 * page_bytes as f64 / f64::from(1 << 20);
    let text = format!(
        "{}: page references, {format}\n  records        {records}, {:.1} % of them writes\n  pages          {} of {page_bytes} bytes, {:.1} MiB\n  ever written   {written_pages}, {:.1} MiB\n  fetches        {}\n  reduction      {}\n",
        file.display(),
        100.0 * writes as f64 / (records as f64).max(1.0),
        pages,
        mib(pages),
        mib(written_pages),
        if header.fetches { "included, as reads" } else { "not recorded" },
        match header.window {
            0 => "none".to_string(),
            window => format!("an access is recorded only if its page is not among the {window} records before it"),
        },
    );
    Ok(text.into_bytes())
}

fn convert_references(from: &Path, to: &Path, existing: Existing) -> Result<(), Failure> {
    let reader = VmReader::open(from, VmHeader::DEFAULT)?;
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
