use crate::format::{Detection, Entry, Opening, Reader};
use crate::lines::{MAX_LINE_BYTES, Sample};
use crate::{Format, TraceError};
use std::cmp::Reverse;

/// How strongly a file speaks for a format; a later variant is stronger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Evidence {
    LastResort,
    /// With so many of the first lines rejected.
    Lines(Reverse<usize>),
    FirstLine,
    Records,
    FileName,
    Magic,
}

/// Whether, and how strongly, a file speaks for a format.
fn evidence(format: Format, sample: &Sample<'_>) -> Result<Option<Evidence>, TraceError> {
    Ok(match &format.0.detection {
        Detection::Magic(magic) => sample.head.starts_with(magic).then_some(Evidence::Magic),
        Detection::Records(test) => (sample.is_binary() && test(sample.head)).then_some(Evidence::Records),
        Detection::FileName(part) => sample.path.to_ascii_lowercase().contains(part).then_some(Evidence::FileName),
        Detection::FirstLine(test) => sample.first_line().is_some_and(test).then_some(Evidence::FirstLine),
        Detection::Lines(test) if test(sample) => {
            rejected_lines(format, sample)?.map(|bad| Evidence::Lines(Reverse(bad)))
        }
        Detection::LastResort(test) if test(sample) => rejected_lines(format, sample)?.map(|_| Evidence::LastResort),
        Detection::Lines(_) | Detection::LastResort(_) => None,
    })
}

/// How many of the first lines the format's reader rejects; `None` if it finds no request or rejects over a tenth.
fn rejected_lines(format: Format, sample: &Sample<'_>) -> Result<Option<usize>, TraceError> {
    let Reader::Lines(open) = &format.0.reader else { return Ok(None) };
    let mut reader = open(&Opening { head: sample.head, csv: None })?;
    let (mut requests, mut bad) = (0, 0);
    for line in &sample.lines {
        match reader.line(line) {
            Ok(Entry::Request(_)) => requests += 1,
            Ok(Entry::Ignored(_)) => {}
            Err(_) => bad += 1,
        }
    }
    Ok((requests > 0 && bad * 10 <= sample.lines.len()).then_some(bad))
}

/// The format of a file, by its name and its first bytes; an error if none or several formats fit.
pub(crate) fn detect(sample: &Sample<'_>) -> Result<Format, TraceError> {
    let mut best: Vec<Format> = Vec::new();
    let mut strongest = None;
    for format in Format::ALL.iter().copied() {
        let found = evidence(format, sample)?;
        if found > strongest {
            strongest = found;
            best.clear();
        }
        if found.is_some() && found == strongest {
            best.push(format);
        }
    }
    let why = match best.as_slice() {
        [format] => return Ok(*format),
        [] if sample.is_binary() => "it is binary and starts as no known format does".into(),
        [] if sample.lines.is_empty() => "it holds empty lines only".into(),
        [] if sample.first_line().is_some_and(|line| line.len() > MAX_LINE_BYTES) => {
            format!("its first line is longer than {MAX_LINE_BYTES} bytes")
        }
        [] => format!("no reader understands its first {} lines", sample.lines.len()),
        several => {
            let names: Vec<_> = several.iter().map(|format| format.name()).collect();
            format!("it could be {}", names.join(" or "))
        }
    };
    Err(TraceError::UnknownFormat { path: sample.path.into(), why, known: Format::names() })
}
