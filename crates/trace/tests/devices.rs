//! Devices of a trace: their names, the choice of some, and what must not shift their numbers.

use margay_trace::{
    BadLines, CsvLayout, Format, IoKind, ReadOptions, Request, TraceError, TraceReader, TraceWriter, convert, info,
    open,
};
use std::collections::BTreeSet;
use std::io::Cursor;

const MSR: &str = "128166372003061629,usr,0,Read,7014609920,24576,41286\n\
                   128166372016382155,usr,1,Write,1317441536,8192,1963\n\
                   128166372016382156,hm,0,Write,4096,4096,1963\n\
                   128166372016382157,usr,0,Write,8192,4096,1963\n";

fn reader(text: &[u8], options: &ReadOptions) -> TraceReader {
    TraceReader::from_stream("t", Cursor::new(text.to_vec()), options).unwrap()
}

fn chosen(devices: &[&str]) -> ReadOptions {
    ReadOptions { devices: Some(devices.iter().map(ToString::to_string).collect()), ..ReadOptions::default() }
}

/// The devices of the requests that are handed out, by name.
fn names(text: &str, options: &ReadOptions) -> Result<Vec<String>, TraceError> {
    let mut reader = reader(text.as_bytes(), options);
    let mut names = Vec::new();
    while let Some(request) = reader.next() {
        let request: Request = request?;
        names.push(reader.device_name(request.device));
    }
    Ok(names)
}

#[test]
fn devices_have_the_names_that_the_trace_gives_them() {
    let all = ReadOptions::default();
    assert_eq!(names(MSR, &all).unwrap(), ["usr_0", "usr_1", "hm_0", "usr_0"]);
    let alibaba = "419,W,8192,4096,1577808000000046\n725,R,0,512,1577808000000100\n";
    assert_eq!(names(alibaba, &all).unwrap(), ["419", "725"]);
    let blkparse = "  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]\n";
    assert_eq!(names(blkparse, &all).unwrap(), ["8:0"]);
    let fio = "fio version 2 iolog\n/dev/a write 0 4096\n/dev/b write 0 4096\n";
    assert_eq!(names(fio, &all).unwrap(), ["/dev/a", "/dev/b"]);
    let mut blktrace = TraceReader::from_stream(
        "t",
        Cursor::new("blktrace".parse::<Format>().unwrap().example().bytes),
        &ReadOptions::default(),
    )
    .unwrap();
    let device = blktrace.next().unwrap().unwrap().device;
    assert_eq!(blktrace.device_name(device), "8:0");
    let info = info(reader(MSR.as_bytes(), &all), 4096).unwrap();
    let shown: Vec<_> = info.devices.values().map(|device| (device.name.as_str(), device.writes)).collect();
    assert_eq!(shown, [("usr_0", 1), ("usr_1", 1), ("hm_0", 1)]);
}

#[test]
fn devices_are_chosen_by_name_by_host_or_by_number() {
    assert_eq!(names(MSR, &chosen(&["usr_1"])).unwrap(), ["usr_1"]);
    assert_eq!(names(MSR, &chosen(&["USR"])).unwrap(), ["usr_0", "usr_1", "usr_0"]);
    assert_eq!(names(MSR, &chosen(&["hm", "usr_1"])).unwrap(), ["usr_1", "hm_0"]);
    assert_eq!(names(MSR, &chosen(&["2"])).unwrap(), ["hm_0"], "by the order of first appearance");
    // More lines than are near the end, where they are read another way.
    let many = MSR.repeat(1000);
    let mut reader = reader(many.as_bytes(), &chosen(&["hm_0"]));
    assert_eq!(reader.by_ref().map(Result::unwrap).count(), 1000);
    assert_eq!((reader.counts().other_devices, reader.counts().lines, reader.counts().writes), (3000, 4000, 1000));
}

#[test]
fn a_device_that_the_trace_does_not_have_is_an_error_that_names_those_it_has() {
    for devices in [&["prxy"][..], &["hm", "prxy"]] {
        let error = names(MSR, &chosen(devices)).unwrap_err().to_string();
        assert_eq!(error, "t: no request goes to a device 'prxy'; the trace has usr_0, usr_1, hm_0");
    }
}

#[test]
fn neither_a_mark_of_utf_8_nor_a_skipped_line_shifts_devices_or_counts() {
    let strays = ["device,host,lba,name,op,size,time\n", "8,0 stray line\n", "0.5,sdz,x\n", "1,write,stray,4096,x\n"];
    for format in Format::ALL.iter().filter(|format| !format.example().bytes.contains(&0)) {
        let example = format.example().bytes;
        let options = ReadOptions { format: Some(*format), ..ReadOptions::default() };
        let read = |bytes: &[u8], options: &ReadOptions| {
            let mut reader = reader(bytes, options);
            let requests: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
            let devices: BTreeSet<u32> = requests.iter().map(|request| request.device).collect();
            let names: Vec<_> = devices.into_iter().map(|device| reader.device_name(device)).collect();
            (requests, names)
        };
        let wanted = read(example, &options);
        assert_eq!(read(&[b"\xEF\xBB\xBF", example].concat(), &options), wanted, "{format}");
        // Behind the first line, which is a header for some.
        let first = example.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let skip = ReadOptions { bad_lines: BadLines::Skip { limit: None }, ..options.clone() };
        for stray in strays {
            let with_stray = [&example[..first], stray.as_bytes(), &example[first..]].concat();
            assert_eq!(read(&with_stray, &skip), wanted, "{format}: {stray}");
        }
    }
}

#[test]
fn a_header_that_a_layout_does_not_know_of_names_no_device() {
    let layout = CsvLayout::from_toml("device = 0\noffset = 1").unwrap();
    let options =
        ReadOptions { csv: Some(layout), bad_lines: BadLines::Skip { limit: Some(1) }, ..ReadOptions::default() };
    assert_eq!(names("volume,start\nweb,0\nmail,4096\n", &options).unwrap(), ["web", "mail"]);
    let mut reader = reader(b"volume,start\nweb,0\nmail,4096\n", &options);
    let devices: Vec<_> = reader.by_ref().map(|request| request.unwrap().device).collect();
    assert_eq!(devices, [0, 1]);
}

#[test]
fn numbers_and_names_of_devices_in_one_column_are_never_taken_for_each_other() {
    let layout = CsvLayout::from_toml("device = 0\noffset = 1").unwrap();
    let options = ReadOptions { csv: Some(layout), ..ReadOptions::default() };
    for text in ["0,0\nweb,0\n1,0\nmail,0\n0,0\nweb,0\n", "web,0\n0,0\nmail,0\n1,0\nweb,0\n0,0\n"] {
        let wanted: Vec<_> = text.lines().map(|line| line.split(',').next().unwrap()).collect();
        assert_eq!(names(text, &options).unwrap(), wanted);
        let devices: BTreeSet<u32> = reader(text.as_bytes(), &options).map(|request| request.unwrap().device).collect();
        assert_eq!(devices.len(), 4, "{devices:?}");
    }
    let kinds: Vec<_> = reader(b"7,0\n", &options).map(|request| request.unwrap()).collect();
    assert_eq!((kinds[0].device, kinds[0].kind), (7, IoKind::Write));
}

#[test]
fn names_of_devices_stay_when_a_trace_is_converted_to_text() {
    let folder = tempfile::tempdir().unwrap();
    let blkparse = "  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]\n";
    let numbered = "419,W,8192,4096,1577808000000046\n725,R,0,512,1577808000000100\n";
    for (from, to, wanted) in [
        (MSR, "csv", &["usr_0", "usr_1", "hm_0", "usr_0"][..]),
        (MSR, "msr", &["usr_0", "usr_1", "hm_0", "usr_0"]),
        (blkparse, "csv", &["8:0"]),
        (blkparse, "msr", &["8:0_0"]),
        (numbered, "csv", &["419", "725"]),
        (numbered, "msr", &["margay_419", "margay_725"]),
    ] {
        let path = folder.path().join(format!("{}-{}.{to}", wanted[0], wanted.len()));
        let writer = TraceWriter::create(&path, to.parse().unwrap()).unwrap();
        convert(reader(from.as_bytes(), &ReadOptions::default()), writer).unwrap();
        let mut back = open(&path, &ReadOptions::default()).unwrap();
        let mut names = Vec::new();
        while let Some(request) = back.next() {
            names.push(back.device_name(request.unwrap().device));
        }
        assert_eq!(names, wanted, "to {to}");
    }
}
