//! What every format of the table has to keep, on the example in its row. A new format is tested here without a line
//! of code.

use margay_trace::{BadLines, Format, IoKind, ReadOptions, Request, TraceError, TraceReader, TraceWriter, open};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::io::Cursor;

fn read(name: &str, bytes: &[u8], options: &ReadOptions) -> Result<(Format, Vec<Request>), TraceError> {
    let reader = TraceReader::from_stream(name, Cursor::new(bytes.to_vec()), options)?;
    let format = reader.format();
    Ok((format, reader.collect::<Result<_, _>>()?))
}

fn read_example(format: Format) -> Vec<Request> {
    let example = format.example();
    let (found, requests) = read(example.file_name, example.bytes, &ReadOptions::default()).unwrap();
    assert_eq!(found, format);
    requests
}

fn options(format: Format) -> ReadOptions {
    ReadOptions { format: Some(format), ..ReadOptions::default() }
}

/// Whether a format is binary: then its reader stops at the first bad record even if bad lines are to be skipped.
fn is_binary(format: Format) -> bool {
    format.example().bytes.contains(&0)
}

#[test]
fn every_row_says_what_it_is_under_a_name_of_its_own() {
    let names: BTreeSet<_> = Format::ALL.iter().map(|format| format.name()).collect();
    assert_eq!(names.len(), Format::ALL.len());
    for format in Format::ALL {
        let name = format.name();
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'), "{name}");
        assert_eq!(name.parse::<Format>().unwrap(), *format);
        assert!(!format.summary().is_empty() && !format.source().is_empty(), "{name}");
        assert!(format.detected_by().starts_with("the first") || format.detected_by().starts_with("a file name"));
        if let Some(writer) = format.writer() {
            assert!(writer.kinds.contains(&IoKind::Write) && writer.time_unit_us > 0, "{name}");
        }
    }
}

#[test]
fn every_example_is_recognized_as_its_format_and_read_whole() {
    for format in Format::ALL {
        let requests = read_example(*format);
        assert_eq!(requests.len() as u64, format.example().requests, "{format}");
        assert_eq!(requests[0].time_us, 0, "{format}: times count from the first request");
        assert!(requests.iter().any(|request| request.len_bytes > 0), "{format}");
        let named = read("-", format.example().bytes, &options(*format)).unwrap();
        assert_eq!(named, (*format, requests), "{format}: named instead of detected");
    }
}

#[test]
fn every_example_is_read_compressed() {
    let folder = tempfile::tempdir().unwrap();
    for format in Format::ALL {
        let example = format.example();
        let path = folder.path().join(format!("{}.zst", example.file_name));
        std::fs::write(&path, zstd::encode_all(example.bytes, 1).unwrap()).unwrap();
        let reader = open(&path, &ReadOptions::default()).unwrap();
        assert_eq!(reader.format(), *format);
        assert_eq!(reader.map(Result::unwrap).collect::<Vec<_>>(), read_example(*format), "{format}");
    }
}

#[test]
fn a_line_of_garbage_is_an_error_with_its_number_in_every_text_format() {
    for format in Format::ALL.iter().filter(|format| !is_binary(**format)) {
        let example = format.example();
        let mut bytes = example.bytes.to_vec();
        bytes.extend(b"not; a line of anything\n");
        let line = bytes.iter().filter(|byte| **byte == b'\n').count();
        for options in [ReadOptions::default(), options(*format)] {
            let error = read(example.file_name, &bytes, &options).unwrap_err().to_string();
            let place = format!("{}:{line}: ", example.file_name);
            // One bad line among few is too many for detection; then the error names the formats.
            let unknown = options.format.is_none() && error.contains("the format is not recognized");
            assert!(unknown || (error.starts_with(&place) && error.contains("not; a line")), "{format}: {error}");
        }
        let skip = ReadOptions { bad_lines: BadLines::Skip { limit: None }, ..options(*format) };
        let skipped = read(example.file_name, &bytes, &skip).unwrap().1;
        assert_eq!(skipped.len() as u64, example.requests, "{format}");
    }
}

#[test]
fn a_trace_cut_anywhere_never_panics_and_a_cut_record_is_an_error() {
    for format in Format::ALL {
        let example = format.example();
        for end in 0..example.bytes.len() {
            for options in [ReadOptions::default(), options(*format)] {
                let result = read(example.file_name, &example.bytes[..end], &options);
                if is_binary(*format) && end + 1 == example.bytes.len() {
                    assert!(result.is_err(), "{format}: the last byte is missing");
                }
                if let Ok((_, requests)) = result {
                    assert!(!requests.is_empty() && requests.len() as u64 <= example.requests, "{format} cut at {end}");
                }
            }
        }
    }
}

#[test]
fn no_example_makes_the_reader_of_another_format_panic() {
    for (of, format) in Format::ALL.iter().flat_map(|of| Format::ALL.iter().map(move |format| (of, format))) {
        for bad_lines in [BadLines::Stop, BadLines::Skip { limit: None }] {
            let options = ReadOptions { bad_lines, ..options(*format) };
            let requests = read("-", of.example().bytes, &options).map_or(0, |(_, requests)| requests.len());
            assert!(requests <= of.example().bytes.len(), "{of} as {format}");
        }
    }
}

#[test]
fn garbage_is_an_error_in_every_format_and_never_taken_for_one() {
    // Of formats whose records may hold anything, the last record is cut.
    let binary: Vec<u8> = (0..5001u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    assert!(binary.contains(&0));
    let error = read("garbage", &binary, &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("it is binary and starts as no known format does"), "{error}");
    for format in Format::ALL {
        assert!(read("garbage", &binary, &options(*format)).is_err(), "{format}");
    }
}

#[test]
fn formats_without_a_writer_refuse_and_name_those_that_have_one() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(Format::writable_names(), "msr, fio, csv, mgt");
    for format in Format::ALL.iter().filter(|format| format.writer().is_none()) {
        let error = TraceWriter::create(&folder.path().join("t"), *format).unwrap_err().to_string();
        assert!(error.ends_with("cannot be written; one of msr, fio, csv, mgt can"), "{error}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Devices by their order of first appearance: formats that name devices number them so.
fn renumbered(requests: &[Request]) -> Vec<Request> {
    let mut order: Vec<u32> = Vec::new();
    let mut number = |device: u32| {
        order.iter().position(|known| *known == device).unwrap_or_else(|| {
            order.push(device);
            order.len() - 1
        }) as u32
    };
    requests.iter().map(|request| Request { device: number(request.device), ..*request }).collect()
}

fn round_trip(format: Format, extension: &str, requests: &[Request]) -> (Vec<Request>, Vec<Request>) {
    let writer = format.writer().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("trace{extension}"));
    let mut out = TraceWriter::create(&path, format).unwrap();
    requests.iter().for_each(|request| out.write(request).unwrap());
    out.finish().unwrap();
    let reader = open(&path, &ReadOptions::default()).unwrap();
    assert_eq!(reader.format(), format);
    let read: Vec<_> = reader.map(Result::unwrap).collect();
    let kept: Vec<_> = requests.iter().filter(|request| writer.kinds.contains(&request.kind)).copied().collect();
    let unit_us = writer.time_unit_us;
    // Times are those of the file, from its first request on.
    let start_us = kept[0].time_us / unit_us * unit_us;
    let kept = kept
        .into_iter()
        .map(|request| Request { time_us: request.time_us / unit_us * unit_us - start_us, ..request })
        .collect::<Vec<_>>();
    (renumbered(&read), renumbered(&kept))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_format_with_a_writer_gives_back_what_was_written(
        steps in prop::collection::vec((0u64..1 << 40, 0usize..4, 0u32..3, 0u64..1 << 45, 1u64..1 << 30), 0..60),
        extension in prop::sample::select(vec!["", ".gz", ".zst"]),
    ) {
        let mut requests = vec![Request { time_us: 0, kind: IoKind::Write, device: 2, offset_bytes: 0, len_bytes: 512, stream: None }];
        for (gap_us, kind, device, offset_bytes, len) in steps {
            let kind = [IoKind::Read, IoKind::Write, IoKind::Trim, IoKind::Flush][kind];
            let time_us = requests.last().map_or(0, |request| request.time_us) + gap_us;
            let (offset_bytes, len_bytes) = if kind == IoKind::Flush { (0, 0) } else { (offset_bytes, len) };
            requests.push(Request { time_us, kind, device, offset_bytes, len_bytes, stream: None });
        }
        for format in Format::ALL.iter().filter(|format| format.writer().is_some()) {
            let (read, written) = round_trip(*format, extension, &requests);
            prop_assert_eq!(read, written, "{}", format);
        }
    }
}
