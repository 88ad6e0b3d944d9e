use crate::args::TraceCommand;
use crate::failure::Failure;
use crate::output::report;
use margay_trace::{Format, convert, info, open};

pub fn run(command: TraceCommand) -> Result<(), Failure> {
    match command {
        TraceCommand::Info { files, page_bytes, json, reading } => {
            if page_bytes == 0 {
                return Err(Failure::Usage("--page-bytes 0: expected at least 1".into()));
            }
            let options = reading.options()?;
            for file in &files {
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
        TraceCommand::Convert { from, to, to_format, reading } => {
            let format: Format = to_format.parse()?;
            let counts = convert(&from, &reading.options()?, &to, format)?;
            println!("{}: {} requests, {} bad lines skipped", to.display(), counts.requests, counts.bad_lines);
            counts.first_bad.iter().for_each(|bad| println!("  {bad}"));
            Ok(())
        }
        TraceCommand::Head { file, count, reading } => {
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
