//! Traces of page references: written and read, damaged, numbered.

mod skip;

use margay_host::Existing;
use margay_trace::vm::{
    CaptureOptions, LoadOptions, MAX_PAGES, PageMap, Reference, References, VmFormat, VmHeader, VmReader, VmWriter,
    capture, info,
};
use margay_trace::{AnyTrace, ReadOptions, TraceError, hash_file, open_any};
use proptest::prelude::*;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

fn read(path: &Path) -> Result<Vec<Reference>, TraceError> {
    VmReader::open(path, VmHeader::DEFAULT)?.collect()
}

fn write(path: &Path, references: &[Reference]) {
    let mut writer = VmWriter::create_with(path, VmHeader::DEFAULT, Existing::Replace).unwrap();
    references.iter().for_each(|reference| writer.write(*reference).unwrap());
    writer.finish().unwrap();
}

proptest! {
    #[test]
    fn what_is_written_is_read(records in proptest::collection::vec((0..1u64 << 53, any::<bool>()), 1..500), zst in any::<bool>()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(if zst { "a.vmt.zst" } else { "a.vmt" });
        let records: Vec<_> = records.into_iter().map(|(page, write)| Reference { page, write }).collect();
        write(&path, &records);
        let opened = open_any(&path, &ReadOptions::default(), VmHeader::DEFAULT).unwrap();
        prop_assert!(matches!(opened, AnyTrace::References(_)));
        prop_assert_eq!(read(&path).unwrap(), records);
    }

    #[test]
    fn damaged_bytes_are_records_or_an_error(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.vmt");
        bytes.splice(0..0, *b"VMT1\x0b\x01\x40\0\0\0\0\0\0\0\0\0");
        std::fs::write(&path, &bytes).unwrap();
        // Any end of the file is one of a record or says that it is not.
        if let Err(error) = read(&path) {
            prop_assert!(error.to_string().contains("record"), "{}", error);
        }
    }
}

#[test]
fn a_page_number_that_the_format_has_no_room_for_is_an_error_and_not_another_page() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.vmt");
    let mut writer = VmWriter::create(&path, VmHeader::DEFAULT).unwrap();
    let last = Reference { page: (1 << 61) - 1, write: true };
    writer.write(last).unwrap();
    for page in [1 << 61, 1 << 62, u64::MAX] {
        let error = writer.write(Reference { page, write: false }).unwrap_err().to_string();
        assert!(error.contains("a.vmt") && error.contains("of record 2 is not below 2^61"), "{error}");
    }
    writer.write(Reference { page: 0, write: false }).unwrap();
    writer.finish().unwrap();
    assert_eq!(read(&path).unwrap(), [last, Reference { page: 0, write: false }]);
}

const LACKEY: &str = "==7== Lackey, an example Valgrind tool\nI  04001000,3\n L 1ffeffe7e,2\n S 1ffefffff,2\n M 04001000,8\nI  04001003,3\n";

#[test]
fn the_text_of_lackey_becomes_pages() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lackey.txt");
    std::fs::write(&path, LACKEY).unwrap();
    let reader = VmReader::open(&path, VmHeader::DEFAULT).unwrap();
    assert_eq!(reader.format().name(), "lackey");
    let pages = |references: Vec<Reference>| -> Vec<(u64, bool)> {
        references.into_iter().map(|reference| (reference.page, reference.write)).collect()
    };
    // The store crosses a page; the second fetch is left out, its page having been written shortly before.
    let expected = vec![(0x8002, false), (0x3f_fdff, false), (0x3f_fdff, true), (0x3f_fe00, true), (0x8002, true)];
    assert_eq!(pages(read(&path).unwrap()), expected);
    let no_fetches = VmHeader { fetches: false, ..VmHeader::DEFAULT };
    let without: Result<Vec<_>, _> = VmReader::open(&path, no_fetches).unwrap().collect();
    assert_eq!(without.unwrap().len(), 4);
    std::fs::write(&path, format!("{LACKEY} L nonsense\n")).unwrap();
    let error = read(&path).unwrap_err().to_string();
    assert!(error.contains("lackey.txt:7") && error.contains("L nonsense"), "{error}");
}

#[test]
fn other_files_and_headers_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    for (bytes, message) in [
        (&b"hello, this is no trace"[..], "VMT1"),
        (b"VMT1", "cut short"),
        (b"VMT1\x3f\0\0\0\0\0\0\0\0\0\0\0", "2^63"),
        (b"VMT1\x0b\0\0\0\0\0\0\0\0\0\0\0\x80", "cut short"),
        (b"VMT1\x0b\0\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "64 bits"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn every_format_recognizes_its_example_alone_and_reads_it_whole() {
    let names: std::collections::BTreeSet<_> = VmFormat::ALL.iter().map(|format| format.name()).collect();
    assert_eq!(names.len(), VmFormat::ALL.len());
    for format in VmFormat::ALL {
        assert!(!format.summary().is_empty() && !format.source().is_empty());
        let example = format.example();
        let reader = VmReader::from_stream(example.file_name, Cursor::new(example.bytes), VmHeader::DEFAULT).unwrap();
        assert_eq!(reader.format(), *format);
        assert_eq!(reader.map(Result::unwrap).count() as u64, example.requests, "{format:?}");
        // Cut anywhere it is another trace or an error.
        for end in 0..example.bytes.len() {
            let cut = Cursor::new(&example.bytes[..end]);
            let records: Result<Vec<_>, _> =
                VmReader::from_stream("cut", cut, VmHeader::DEFAULT).and_then(|reader| reader.collect());
            assert!(records.map_or(0, |records| records.len()) as u64 <= example.requests, "{format:?} cut at {end}");
        }
        let mut garbage = example.bytes.to_vec();
        garbage.extend([0xff; 30]);
        let reader = VmReader::from_stream("garbage", Cursor::new(garbage), VmHeader::DEFAULT).unwrap();
        let error = reader.collect::<Result<Vec<_>, _>>().unwrap_err();
        assert!(matches!(error, TraceError::BadLine { line, .. } if line > example.requests), "{error}");
    }
}

#[test]
fn a_line_without_end_is_an_error_with_its_number() {
    let endless = Cursor::new(LACKEY).chain(std::io::repeat(b' '));
    let reader = VmReader::from_stream("endless", BufReader::new(endless), VmHeader::DEFAULT).unwrap();
    let error = reader.collect::<Result<Vec<_>, _>>().unwrap_err().to_string();
    assert!(error.starts_with("endless:7: the line is longer than 65536 bytes"), "{error}");
}

#[test]
fn pages_are_numbered_by_chunk_or_one_by_one_and_those_never_written_can_be_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.vmt");
    let records = [(1000, false), (5, true), (1001, true), (5, false), (6, false)];
    write(&path, &records.map(|(page, write)| Reference { page, write }));
    let load = |page_shift, map, only_written| {
        let options = LoadOptions { page_shift, chunk_pages: 4, map, only_written };
        References::load(&path, &options).unwrap()
    };
    let values = |references: &References| -> Vec<(u32, bool)> {
        references.chunks(2).flatten().map(|value| (value >> 1, value & 1 != 0)).collect()
    };
    let chunks = load(11, PageMap::Chunks, false);
    assert_eq!(values(&chunks), [(0, false), (5, true), (1, true), (5, false), (6, false)]);
    assert_eq!((chunks.pages(), chunks.distinct_pages()), (8, 4));
    let dense = load(11, PageMap::Dense, false);
    assert_eq!(values(&dense), [(0, false), (1, true), (2, true), (1, false), (3, false)]);
    let is_referenced: Vec<u32> = (0..9).filter(|page| chunks.is_referenced(*page)).collect();
    assert_eq!(is_referenced, [0, 1, 5, 6]);
    assert_eq!(chunks.ranks(), [0, 1, 2, 2, 2, 2, 3, 4]);
    // Pages of 4 KiB hold two of them; a repeat says nothing.
    let large = load(12, PageMap::Dense, false);
    assert_eq!(values(&large), [(0, false), (1, true), (0, true), (1, false), (2, false)]);
}

#[test]
fn pages_that_are_left_out_take_no_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.vmt");
    // Chunks of four: the first is only read, of the second one page is written, the third is written before it is read.
    let records = [8, 9, 21, 122, 133, 22, 33, 8, 33].map(|value| Reference { page: value % 100, write: value > 99 });
    write(&path, &records);
    let load = |map| {
        let options = LoadOptions { page_shift: 11, chunk_pages: 4, map, only_written: true };
        References::load(&path, &options).unwrap()
    };
    let values = |references: &References| -> Vec<(u32, bool)> {
        references.chunks(2).flatten().map(|value| (value >> 1, value & 1 != 0)).collect()
    };
    let chunks = load(PageMap::Chunks);
    // The last one says nothing once what lies between is left out.
    assert_eq!(values(&chunks), [(2, true), (5, true), (2, false), (5, false)]);
    assert_eq!((chunks.pages(), chunks.distinct_pages()), (8, 2));
    assert!((0..8).all(|page| chunks.is_referenced(page) == [2, 5].contains(&page)));
    let dense = load(PageMap::Dense);
    assert_eq!(values(&dense), [(0, true), (1, true), (0, false), (1, false)]);
    assert_eq!((dense.pages(), dense.distinct_pages()), (2, 2));
    write(&path, &[Reference { page: 3, write: false }]);
    let options = LoadOptions { page_shift: 11, chunk_pages: 4, map: PageMap::Chunks, only_written: true };
    assert!(References::load(&path, &options).unwrap_err().to_string().contains("no page is ever written"));
}

#[test]
fn info_counts_records_and_pages() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.vmt");
    let records = [(1000, false), (5, true), (5, true), (1001, true), (5, false)];
    write(&path, &records.map(|(page, write)| Reference { page, write }));
    let info = info(&mut VmReader::open(&path, VmHeader::DEFAULT).unwrap()).unwrap();
    assert_eq!((info.records, info.writes, info.pages, info.written_pages), (5, 3, 3, 2));
    assert_eq!((info.format.name(), info.header), ("vmt", VmHeader::DEFAULT));
}

/// Each byte is a read of the next page: a small compressed file that names more pages than memory holds.
#[test]
fn a_small_file_that_touches_too_many_pages_is_an_error_at_the_bound() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bomb.vmt.zst");
    let mut bytes = b"VMT1\x0b\x01\x40\0\0\0\0\0\0\0\0\0".to_vec();
    bytes.push(0);
    bytes.resize(16 + MAX_PAGES as usize + 1000, 4);
    let compressed = zstd::encode_all(&bytes[..], 1).unwrap();
    assert!(compressed.len() < 34_000, "{}", compressed.len());
    std::fs::write(&path, compressed).unwrap();
    let place = format!("bomb.vmt.zst:{}: more than {MAX_PAGES} pages are touched", MAX_PAGES + 1);
    for map in [PageMap::Chunks, PageMap::Dense] {
        let options = LoadOptions { page_shift: 11, chunk_pages: 64, map, only_written: false };
        let error = References::load(&path, &options).unwrap_err().to_string();
        assert!(error.contains(&place), "{error}");
    }
    let error = info(&mut VmReader::open(&path, VmHeader::DEFAULT).unwrap()).unwrap_err().to_string();
    assert!(error.contains(&place), "{error}");
    let options = LoadOptions { page_shift: 11, chunk_pages: 0, map: PageMap::Chunks, only_written: false };
    assert!(References::load(&path, &options).unwrap_err().to_string().contains("chunks of 0 pages"));
}

#[test]
fn chunks_larger_than_any_trace_are_an_error_and_take_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.vmt");
    write(&path, &[Reference { page: 1 << 40, write: true }]);
    let load = |chunk_pages| {
        let options = LoadOptions { page_shift: 11, chunk_pages, map: PageMap::Chunks, only_written: false };
        References::load(&path, &options)
    };
    assert!(load(u32::MAX).unwrap_err().to_string().contains("chunks of 4294967295 pages; the max is 16777216"));
    let largest = load(1 << 24).unwrap();
    assert_eq!((largest.pages(), largest.len()), (1 << 24, 1));
    assert_eq!(largest.file_hash(), hash_file(&path).unwrap());
}

#[test]
fn a_program_is_captured_while_it_runs() {
    if !skip::has("valgrind") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("true.vmt.zst");
    let options = CaptureOptions { header: VmHeader::DEFAULT, max_records: 0 };
    let create = |existing| VmWriter::create_with(&path, options.header, existing).unwrap();
    let (captured, writer) = capture(&["true".into()], create(Existing::Refuse), &options, |_| true).unwrap();
    assert!(captured.status.success() && !captured.was_ended && captured.is_whole());
    assert!(!path.exists(), "the trace has its name before it is whole");
    writer.finish().unwrap();
    assert_eq!(read(&path).unwrap().len() as u64, captured.progress.records);
    assert!(captured.progress.accesses > 10_000, "{captured:?}");
    let few = CaptureOptions { max_records: 100, ..options };
    let sleep = |time: &str| ["sleep".into(), time.into()];
    let (captured, _) = capture(&sleep("0.1"), create(Existing::Replace), &few, |_| true).unwrap();
    assert!(captured.was_ended && (100..110).contains(&captured.progress.records), "{captured:?}");
    assert!(captured.is_whole());
    // A program that does nothing is ended, too.
    let mut watched = 0;
    let watch = |_| {
        watched += 1;
        watched < 40
    };
    let (captured, _) = capture(&sleep("600"), create(Existing::Replace), &options, watch).unwrap();
    assert!(captured.was_stopped && !captured.was_ended && !captured.is_whole(), "{captured:?}");
}
