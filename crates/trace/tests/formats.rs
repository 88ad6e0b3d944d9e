//! Every format on small samples of its documented layout, bad input, compression, round trips.

use margay_trace::{
    BadLines, Compression, CsvLayout, Format, IoKind, MAX_LINE_BYTES, ReadOptions, Request, TraceError, TraceReader,
    TraceWriter, convert, info, open,
};
use proptest::prelude::*;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

fn file(folder: &tempfile::TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn read(path: &Path, options: &ReadOptions) -> Result<(Format, Vec<Request>), TraceError> {
    let reader = open(path, options)?;
    let format = reader.format();
    Ok((format, reader.collect::<Result<_, _>>()?))
}

fn named(name: &str) -> Format {
    name.parse().unwrap()
}

fn detect(text: &str) -> (Format, Vec<Request>) {
    let folder = tempfile::tempdir().unwrap();
    read(&file(&folder, "trace", text.as_bytes()), &ReadOptions::default()).unwrap()
}

fn request(time_us: u64, kind: IoKind, device: u32, offset_bytes: u64, len_bytes: u64) -> Request {
    Request { time_us, kind, device, offset_bytes, len_bytes, stream: None }
}

#[test]
fn msr_ticks_are_100_ns_and_host_and_disk_name_a_device() {
    let text =
        "128166372003061629,usr,0,Read,7014609920,24576,41286\n128166372016382155,usr,1,Write,1317441536,8192,1963\n";
    let wanted = vec![
        request(0, IoKind::Read, 0, 7_014_609_920, 24_576),
        request(1_332_052, IoKind::Write, 1, 1_317_441_536, 8192),
    ];
    assert_eq!(detect(text), (named("msr"), wanted));
}

#[test]
fn alibaba_is_in_bytes_and_microseconds_and_tencent_in_sectors_and_seconds() {
    let text = "419,W,8192,4096,1577808000000046\n725,R,0,512,1577808000000100\n";
    let wanted = vec![request(0, IoKind::Write, 419, 8192, 4096), request(54, IoKind::Read, 725, 0, 512)];
    assert_eq!(detect(text), (named("alibaba"), wanted));
    let text = "1538323200,12910952,128,0,1063\n1538323201,6265,8,1,1063\n";
    let wanted = vec![
        request(0, IoKind::Read, 1063, 12_910_952 * 512, 128 * 512),
        request(1_000_000, IoKind::Write, 1063, 6265 * 512, 4096),
    ];
    assert_eq!(detect(text), (named("tencent"), wanted));
}

#[test]
fn systor17_is_in_seconds_and_bytes_and_a_request_without_response_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let example = named("systor17").example();
    let path = file(&folder, example.file_name, example.bytes);
    let mut reader = open(&path, &ReadOptions::default()).unwrap();
    let requests: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
    let wanted =
        [request(0, IoKind::Read, 4, 899_056_122_368, 131_072), request(100_000, IoKind::Write, 4, 8192, 4096)];
    assert_eq!((reader.format(), &requests[..]), (named("systor17"), &wanted[..]));
    let ignored: Vec<_> = reader.counts().ignored.values().collect();
    assert_eq!((reader.counts().lines, ignored), (4, vec![&1, &1]), "the header and the request of unknown type");
}

#[test]
fn arc_is_in_sectors_without_times_and_recognized_only_if_its_requests_are_counted() {
    let text = "110765 64 0 0\n110829 64 0 1\n8 1 0 2\n";
    let wanted = [(110_765 * 512, 64 * 512), (110_829 * 512, 64 * 512), (4096, 512)];
    let wanted: Vec<_> = wanted.map(|(offset, len)| request(0, IoKind::Write, 0, offset, len)).into();
    assert_eq!(detect(text), (named("arc"), wanted));
    let folder = tempfile::tempdir().unwrap();
    let other = file(&folder, "t", b"10 64 0 7\n20 64 0 7\n");
    assert!(read(&other, &ReadOptions::default()).unwrap_err().to_string().contains("no reader understands"));
    let options = ReadOptions { format: Some(named("arc")), ..ReadOptions::default() };
    assert_eq!(read(&other, &options).unwrap().1.len(), 2, "but it can be named");
}

#[test]
fn spc_disksim_and_mqsim_are_told_apart() {
    let (format, requests) = detect("0,20941264,8192,W,0.551706\n0,20939840,8192,R,0.554041\n");
    assert_eq!((format, requests[1]), (named("spc"), request(2335, IoKind::Read, 0, 20_939_840 * 512, 8192)));
    let (format, requests) = detect("0.000000 0 110656 8 0\n1.500000 0 110816 48 1\n");
    assert_eq!((format, requests[1]), (named("disksim"), request(1500, IoKind::Read, 0, 110_816 * 512, 48 * 512)));
    let (format, requests) = detect("1000 4 264 16 0\n2000000 3 197 16 1\n");
    assert_eq!((format, requests[1]), (named("mqsim"), request(1999, IoKind::Read, 3, 197 * 512, 8192)));
}

#[test]
fn fio_logs_of_both_versions_are_read() {
    let two = "fio version 2 iolog\n/dev/a add\n/dev/a open\n/dev/a write 0 4096\n/dev/a wait 250\n/dev/a trim 8192 4096\n/dev/a sync 0 0\n/dev/a close\n";
    let wanted = vec![
        request(0, IoKind::Write, 0, 0, 4096),
        request(250, IoKind::Trim, 0, 8192, 4096),
        request(250, IoKind::Flush, 0, 0, 0),
    ];
    assert_eq!(detect(two), (named("fio"), wanted));
    let three = "fio version 3 iolog\n10 /dev/a add\n10 /dev/a open\n12 /dev/a read 4096 512\n15 /dev/b write 0 512\n";
    assert_eq!(detect(three).1, vec![request(0, IoKind::Read, 0, 4096, 512), request(3000, IoKind::Write, 1, 0, 512)]);
}

#[test]
fn of_blkparse_one_action_is_counted_and_the_summary_is_passed_over() {
    let text = "  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]\n\
                \x20 8,0    3        2     0.000001829   697  G   W 223490 + 8 [kjournald]\n\
                \x20 8,0    3        3     0.000100000   697  D   W 223490 + 8 [kjournald]\n\
                \x20 8,0    3        4     0.000200000   697  Q   D 8 + 16 [x]\n\
                \x20 8,0    3        5     0.000300000   697  Q  FN [x]\n\
                CPU0 (8,0):\n Reads Queued:           0,        0KiB\n";
    let wanted = vec![
        request(0, IoKind::Write, 0, 223_490 * 512, 4096),
        request(200, IoKind::Trim, 0, 4096, 8192),
        request(300, IoKind::Flush, 0, 0, 0),
    ];
    assert_eq!(detect(text), (named("blkparse"), wanted));
}

#[test]
fn objects_of_cache_traces_get_room_in_the_order_of_first_appearance() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = Vec::new();
    for (time, object, size) in [(1u32, 77u64, 100u32), (2, 5, 5000), (3, 77, 100)] {
        bytes.extend(time.to_le_bytes());
        bytes.extend(object.to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes.extend((-1i64).to_le_bytes());
    }
    let path = file(&folder, "x.oracleGeneral.bin", &bytes);
    let wanted = vec![
        request(0, IoKind::Write, 0, 0, 100),
        request(1_000_000, IoKind::Write, 0, 4096, 5000),
        request(2_000_000, IoKind::Write, 0, 0, 100),
    ];
    assert_eq!(read(&path, &ReadOptions::default()).unwrap(), (named("oracle-general"), wanted.clone()));
    let csv = file(&folder, "x.csv", b"time,obj_id,obj_size,op\n1,77,100,set\n2,5,5000,set\n3,77,100,set\n");
    let options = ReadOptions { format: Some(named("libcachesim-csv")), ..ReadOptions::default() };
    assert_eq!(read(&csv, &options).unwrap().1, wanted);
    bytes.pop();
    let cut = file(&folder, "cut.oracleGeneral.bin", &bytes);
    assert!(read(&cut, &ReadOptions::default()).unwrap_err().to_string().contains("inside a record"));
}

#[test]
fn columns_can_be_named() {
    let layout = "delimiter = ';'\nheader = true\ntime = 'when'\ntime_unit = 'ms'\nop = 'what'\noffset = 'sector'\noffset_bytes = 512\nsize = 'kb'\nsize_bytes = 1024\nwrites = ['put']";
    let options = ReadOptions { csv: Some(CsvLayout::from_toml(layout).unwrap()), ..ReadOptions::default() };
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "t.csv", b"what;when;kb;sector\r\nput;5;4;8\r\nread;6.5;1;2");
    let wanted = vec![request(0, IoKind::Write, 0, 4096, 4096), request(1500, IoKind::Read, 0, 1024, 1024)];
    assert_eq!(read(&path, &options).unwrap(), (Format::CSV, wanted));
    let missing = CsvLayout::from_toml("header = true\noffset = 'lba'").unwrap();
    let error = read(&path, &ReadOptions { csv: Some(missing), ..ReadOptions::default() }).unwrap_err();
    assert!(error.to_string().contains("no column is named 'lba'"), "{error}");
}

#[test]
fn a_bad_line_names_file_line_and_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "t.csv", b"1,W,0,4096,10\n1,W,zero,4096,11\n1,W,0,4096,12\n");
    let options = ReadOptions { format: Some(named("alibaba")), ..ReadOptions::default() };
    let error = read(&path, &options).unwrap_err().to_string();
    assert!(error.contains("t.csv:2: the offset is not a number, or too large: '1,W,zero,4096,11'"), "{error}");
    let skip = ReadOptions { bad_lines: BadLines::Skip { limit: None }, ..options.clone() };
    let mut reader = open(&path, &skip).unwrap();
    assert_eq!(reader.by_ref().map(Result::unwrap).count(), 2);
    assert_eq!((reader.counts().bad_lines, reader.counts().first_bad.len()), (1, 1));
    let none = ReadOptions { bad_lines: BadLines::Skip { limit: Some(0) }, ..options };
    assert!(matches!(read(&path, &none), Err(TraceError::TooManyBadLines { .. })));
}

#[test]
fn empty_unknown_and_ambiguous_files_are_errors_that_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let message = |bytes: &[u8]| read(&file(&folder, "t", bytes), &ReadOptions::default()).unwrap_err().to_string();
    assert!(message(b"").contains("holds no request"));
    assert!(message(b"\n\n").contains("empty lines only"));
    assert!(message(b"hello\nworld\n").contains("name it with --trace-format"));
    assert!(message(b"\0\0\0\0").contains("binary"));
    assert!("blktrac".parse::<Format>().unwrap_err().to_string().contains("the known ones are msr, alibaba"));
    let huge = ReadOptions { format: Some(named("alibaba")), ..ReadOptions::default() };
    let path = file(&folder, "huge", b"1,W,18446744073709551615,4096,1\n");
    assert!(read(&path, &huge).unwrap_err().to_string().contains("past 2^64"));
    assert!(open(Path::new("/nonexistent/x"), &ReadOptions::default()).is_err());
}

#[test]
fn a_line_without_end_is_an_error_with_its_number_in_every_text_format() {
    let text = |format: &&Format| !format.example().bytes.contains(&0);
    for format in Format::ALL.iter().filter(text) {
        for bad_lines in [BadLines::Stop, BadLines::Skip { limit: None }] {
            let example = format.example();
            let lines = example.bytes.iter().filter(|byte| **byte == b'\n').count();
            let endless = std::io::Cursor::new(example.bytes).chain(std::io::repeat(b'7'));
            let options = ReadOptions { format: Some(*format), bad_lines, ..ReadOptions::default() };
            let reader = TraceReader::from_stream("endless", std::io::BufReader::new(endless), &options).unwrap();
            let error = reader.collect::<Result<Vec<_>, _>>().unwrap_err().to_string();
            let wanted = format!("endless:{}: the line is longer than {MAX_LINE_BYTES} bytes", lines + 1);
            assert!(error.starts_with(&wanted), "{format}: {error}");
            assert!(error.len() < 300, "the line is not repeated in the error: {error}");
        }
    }
    let endless = std::io::BufReader::new(std::io::repeat(b'7'));
    let error = TraceReader::from_stream("endless", endless, &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("its first line is longer than 65536 bytes"), "{error}");
}

#[test]
fn an_endless_line_in_a_small_compressed_file_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = TEXT.as_bytes().to_vec();
    bytes.resize(100 << 20, b'7');
    let path = file(&folder, "bomb.csv.zst", &zstd::encode_all(&bytes[..], 1).unwrap());
    let error = read(&path, &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("bomb.csv.zst:3: the line is longer than"), "{error}");
}

const TEXT: &str = "1,W,0,4096,10\n1,W,4096,4096,20\n";

fn compress(compression: Compression, bytes: &[u8]) -> Vec<u8> {
    match compression {
        Compression::Plain => bytes.to_vec(),
        Compression::Gzip => {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            out.write_all(bytes).unwrap();
            out.finish().unwrap()
        }
        Compression::Zstd => zstd::encode_all(bytes, 1).unwrap(),
        Compression::Xz => {
            let mut out = liblzma::write::XzEncoder::new(Vec::new(), 1);
            out.write_all(bytes).unwrap();
            out.finish().unwrap()
        }
    }
}

#[test]
fn compressed_files_of_several_members_are_read_to_the_end_and_truncated_ones_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    for compression in [Compression::Gzip, Compression::Zstd, Compression::Xz] {
        let mut two = compress(compression, TEXT.as_bytes());
        two.extend(compress(compression, TEXT.as_bytes()));
        let path = file(&folder, "two", &two);
        assert_eq!(read(&path, &ReadOptions::default()).unwrap().1.len(), 4, "{compression:?}");
        let long = TEXT.repeat(50_000);
        let whole = compress(compression, long.as_bytes());
        for cut in [whole.len() - 1, whole.len() / 2] {
            let path = file(&folder, "cut", &whole[..cut]);
            let error = read(&path, &ReadOptions::default()).unwrap_err();
            assert!(matches!(error, TraceError::Compressed { .. }), "{compression:?} cut at {cut}: {error}");
        }
    }
}

#[test]
fn a_damaged_native_trace_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let text = file(&folder, "t", TEXT.repeat(2000).as_bytes());
    let path = folder.path().join("t.mgt");
    let reader = open(&text, &ReadOptions::default()).unwrap();
    convert(reader, TraceWriter::create(&path, Format::MGT).unwrap()).unwrap();
    let whole = std::fs::read(&path).unwrap();
    assert_eq!(read(&path, &ReadOptions::default()).unwrap().1.len(), 4000);
    for cut in [16, whole.len() / 2, whole.len() - 1] {
        assert!(read(&file(&folder, "cut.mgt", &whole[..cut]), &ReadOptions::default()).is_err(), "cut at {cut}");
    }
    for at in 15..whole.len() {
        let mut bad = whole.clone();
        bad[at] ^= 0x20;
        if let Ok((_, requests)) = read(&file(&folder, "bad.mgt", &bad), &ReadOptions::default()) {
            // Some bits of a zstd frame carry no data.
            assert_eq!(requests.len(), 4000, "byte {at}");
        }
    }
}

#[test]
fn an_unfinished_trace_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.mgt");
    let mut writer = TraceWriter::create(&path, Format::MGT).unwrap();
    writer.write(&request(0, IoKind::Write, 0, 0, 4096)).unwrap();
    drop(writer);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    assert!(matches!(TraceWriter::create(&path, named("spc")), Err(TraceError::NotWritable { .. })));
}

#[test]
fn info_counts_pages_rewrites_and_skew() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = String::new();
    (0..90).for_each(|time| text += &format!("1,W,0,4096,{time}\n"));
    (0..10).for_each(|page| text += &format!("1,W,{},4096,{}\n", page * 4096, 100 + page));
    text += "1,R,1000000,1,200\n";
    let info = info(open(&file(&folder, "t", text.as_bytes()), &ReadOptions::default()).unwrap(), 4096).unwrap();
    assert_eq!((info.page_writes, info.pages_written, info.pages_touched), (100, 10, 11));
    assert_eq!((info.rewrites, info.aligned, info.hottest[1]), (10.0, 1.0, 0.91));
}

fn requests(kinds: &'static [IoKind]) -> impl Strategy<Value = Vec<Request>> {
    let one = (0u64..1 << 40, prop::sample::select(kinds), 0u32..3, 0u64..1 << 45, 1u64..1 << 30);
    prop::collection::vec(one, 1..60).prop_map(|steps| {
        let mut time_us = 0;
        let first = steps[0].0;
        steps
            .into_iter()
            .enumerate()
            .map(|(number, (gap, kind, device, offset_bytes, len))| {
                // The first request defines time 0.
                time_us += if number == 0 { 0 } else { gap.abs_diff(first) % (1 << 30) * 1000 };
                let (offset_bytes, len_bytes) = if kind == IoKind::Flush { (0, 0) } else { (offset_bytes, len) };
                Request { time_us, kind, device, offset_bytes, len_bytes, stream: None }
            })
            .collect()
    })
}

const ALL: &[IoKind] = &[IoKind::Read, IoKind::Write, IoKind::Trim, IoKind::Flush];

fn round_trip(format: Format, name: &str, requests: &[Request]) -> Vec<Request> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let mut writer = TraceWriter::create(&path, format).unwrap();
    requests.iter().for_each(|request| writer.write(request).unwrap());
    writer.finish().unwrap();
    let (found, read) = read(&path, &ReadOptions::default()).unwrap();
    assert_eq!(found, format);
    read
}

/// Devices are numbered anew, in the order of first appearance, by formats that name them.
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

proptest! {
    #[test]
    fn native_traces_come_back_as_they_were(requests in requests(ALL)) {
        prop_assert_eq!(round_trip(Format::MGT, "t.mgt", &requests), requests);
    }

    #[test]
    fn csv_traces_come_back_as_they_were(requests in requests(&[IoKind::Read, IoKind::Write, IoKind::Trim])) {
        prop_assert_eq!(round_trip(Format::CSV, "t.csv.zst", &requests), requests);
    }

    #[test]
    fn fio_traces_come_back_with_devices_renumbered(requests in requests(ALL)) {
        prop_assert_eq!(round_trip(named("fio"), "t.log.gz", &requests), renumbered(&requests));
    }

    #[test]
    fn msr_traces_come_back_with_devices_renumbered(requests in requests(&[IoKind::Read, IoKind::Write])) {
        prop_assert_eq!(round_trip(named("msr"), "t.csv", &requests), renumbered(&requests));
    }

    #[test]
    fn no_bytes_make_a_reader_panic(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..400),
            "[0-9,.;RWD \n+a-z-]{0,400}".prop_map(String::into_bytes),
        ],
        choice in 0..=Format::ALL.len(),
        skip in any::<bool>(),
        magic in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let format = Format::ALL.get(choice).copied();
        let mut content = if magic { b"$$TR_IOREC-1.3\x0c".to_vec() } else { Vec::new() };
        content.extend(bytes);
        let bad_lines = if skip { BadLines::Skip { limit: None } } else { BadLines::Stop };
        let options = ReadOptions { format, bad_lines, ..ReadOptions::default() };
        if let Ok(reader) = open(&file(&folder, "t", &content), &options) {
            reader.take(10_000).for_each(drop);
        }
    }
}

#[test]
fn a_mark_of_utf_8_at_the_start_of_a_text_is_no_part_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let csv = "time_us,op,device,offset_bytes,len_bytes\n0,write,0,0,4096\n";
    let msr = "128166372003061629,usr,0,Write,0,4096,30123\n";
    for (text, name) in [(csv, "csv"), (msr, "msr")] {
        let marked = [b"\xEF\xBB\xBF", text.as_bytes()].concat();
        let (format, requests) = read(&file(&folder, "marked", &marked), &ReadOptions::default()).unwrap();
        assert_eq!((format, &requests), (named(name), &detect(text).1));
    }
}

#[test]
fn a_column_names_the_stream_of_the_host_and_may_be_empty() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("streams.csv");
    let lines =
        "0,write,0,4096,4096,1\n1,write,0,8192,4096,255\n2,write,0,0,4096,\n3,write,0,0,4096,256\n4,write,0,0,4096,x\n";
    std::fs::write(&path, format!("time_us,op,device,offset_bytes,len_bytes,stream\n{lines}")).unwrap();
    let streams = margay_trace::open(&path, &ReadOptions::default()).unwrap().map(|request| match request {
        Ok(request) => Ok(request.stream),
        Err(error) => Err(error.to_string()),
    });
    let found: Vec<_> = streams.collect();
    assert_eq!(found[..3], [Ok(Some(1)), Ok(Some(255)), Ok(None)]);
    let error = found[3].clone().unwrap_err();
    assert!(error.contains("'256' is no stream: expected a number from 0 to 255") && error.contains('5'), "{error}");
}
