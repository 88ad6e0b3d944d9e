use crate::formats::blkparse::Blkparse;
use crate::formats::csv::Csv;
use crate::formats::fio::Fio;
use crate::formats::simple::{Alibaba, FiveWords, Msr, Spc, Tencent};
use crate::formats::{Line, LineFormat, hp_srt, mgt};
use crate::layout::CsvLayout;
use crate::{Format, TraceError};

const DISKSIM_NS: u64 = 1_000_000;
const MQSIM_NS: u64 = 1;

/// A text format for the file that starts with `head`, or none for a binary one.
pub(crate) fn text_format(
    format: Format,
    head: &[u8],
    csv: Option<&CsvLayout>,
) -> Result<Option<Box<dyn LineFormat>>, TraceError> {
    let boxed: Box<dyn LineFormat> = match format {
        Format::Msr => Box::new(Msr::default()),
        Format::Alibaba => Box::new(Alibaba),
        Format::Tencent => Box::new(Tencent),
        Format::Fio => Box::new(Fio::default()),
        Format::Blkparse => Box::new(Blkparse::new(head)),
        Format::Spc => Box::new(Spc),
        Format::DiskSim => Box::new(FiveWords { unit_ns: DISKSIM_NS }),
        Format::Mqsim => Box::new(FiveWords { unit_ns: MQSIM_NS }),
        Format::CloudPhysics => Box::new(Csv::new(CsvLayout::cloudphysics())?),
        Format::LibCacheSimCsv => {
            let first = first_lines(head).next().unwrap_or_default();
            let header = !first.first().is_some_and(u8::is_ascii_digit);
            let columns = first.split(|byte| *byte == b',').count();
            Box::new(Csv::new(CsvLayout::libcachesim(columns, header))?)
        }
        Format::Csv => {
            let layout = csv.cloned().or_else(|| recognized_layout(head)).ok_or_else(|| {
                let why = "csv needs a layout (--csv-layout FILE.toml), and this file has none of the recognized ones";
                TraceError::Layout(why.into())
            })?;
            Box::new(Csv::new(layout)?)
        }
        Format::HpSrt | Format::OracleGeneral | Format::Mgt => return Ok(None),
    };
    Ok(Some(boxed))
}

fn first_lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty())
}

/// The layouts of CSV files that are known without being told.
fn recognized_layout(head: &[u8]) -> Option<CsvLayout> {
    let line = first_lines(head).next()?;
    if line == b"time_us,op,device,offset_bytes,len_bytes" {
        return Some(CsvLayout::own());
    }
    let fields: Vec<_> = line.split(|byte| *byte == b',').collect();
    let second_is_op = matches!(fields.get(1), Some(&b"R" | &b"W"));
    match (second_is_op, fields.len()) {
        (true, 5) if fields[0].contains(&b'.') => Some(CsvLayout::seconds_op_disk_sector_bytes()),
        (true, 4) => Some(CsvLayout::us_op_offset_bytes()),
        _ => None,
    }
}

/// The format of a file by its name and its first bytes.
pub(crate) fn detect(path: &str, head: &[u8], is_whole: bool) -> Result<Format, TraceError> {
    if head.starts_with(mgt::MAGIC) {
        return Ok(Format::Mgt);
    }
    if head.starts_with(hp_srt::MAGIC) {
        return Ok(Format::HpSrt);
    }
    if path.to_ascii_lowercase().contains("oraclegeneral") {
        return Ok(Format::OracleGeneral);
    }
    let unknown = |why: &str| TraceError::UnknownFormat { path: path.into(), why: why.into(), known: Format::names() };
    if head.is_empty() {
        return Err(TraceError::Empty { path: path.into(), lines: 0 });
    }
    if head.contains(&0) {
        return Err(unknown("it is binary and starts with no known magic"));
    }
    // The last line may be cut.
    let end = if is_whole { head.len() } else { head.iter().rposition(|byte| *byte == b'\n').unwrap_or(head.len()) };
    let lines: Vec<&[u8]> = first_lines(&head[..end]).take(64).collect();
    let first = *lines.first().ok_or_else(|| unknown("it holds empty lines only"))?;
    if first == b"version,time,op,size,lbn" {
        return Ok(Format::CloudPhysics);
    }
    if recognized_layout(head).is_some() {
        return Ok(Format::Csv);
    }
    let has_point =
        lines.iter().any(|line| line.split(u8::is_ascii_whitespace).next().is_some_and(|w| w.contains(&b'.')));
    let candidates = [
        Format::Fio,
        Format::Msr,
        Format::Alibaba,
        Format::Spc,
        Format::Tencent,
        if has_point { Format::DiskSim } else { Format::Mqsim },
        Format::Blkparse,
    ];
    let fits = |format: Format| -> Result<Option<usize>, TraceError> {
        let Some(mut reader) = text_format(format, head, None)? else { return Ok(None) };
        let (mut requests, mut bad) = (0, 0);
        for line in &lines {
            match reader.line(line) {
                Ok(Line::Request(_)) => requests += 1,
                Ok(Line::Ignored(_)) => {}
                Err(_) => bad += 1,
            }
        }
        Ok((requests > 0 && bad * 10 <= lines.len()).then_some(bad))
    };
    let mut fitting = Vec::new();
    for format in candidates {
        fitting.extend(fits(format)?.map(|bad| (bad, format)));
    }
    // Three or four numbers fit much, so objects are the last thing that is thought of.
    if fitting.is_empty() && (3..=4).contains(&first.split(|byte| *byte == b',').count()) {
        fitting.extend(fits(Format::LibCacheSimCsv)?.map(|bad| (bad, Format::LibCacheSimCsv)));
    }
    fitting.sort_by_key(|(bad, _)| *bad);
    match fitting.as_slice() {
        [] => Err(unknown(&format!("no reader understands its first {} lines", lines.len()))),
        [(_, format)] => Ok(*format),
        [(best, format), (next, _), ..] if best < next => Ok(*format),
        several => {
            let names: Vec<_> = several.iter().map(|(_, format)| format.name()).collect();
            Err(unknown(&format!("it could be {}", names.join(" or "))))
        }
    }
}
