//! A trace of many volumes as one trace of each.

use margay_trace::{Existing, Format, ReadOptions, Request, TraceError, open, open_while, split, split_while};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn requests(path: &Path) -> Vec<Request> {
    open(path, &ReadOptions::default()).unwrap().map(Result::unwrap).collect()
}

/// A trace in which 150 devices take turns, some more often than others.
fn many(path: &Path) {
    let line = |at: u64| {
        let device = (at ^ at >> 5) % 150;
        format!("{},host{device},{},Write,{},4096,1\n", 128_166_372_003_061_629 + at * 100, device % 3, at * 4096)
    };
    std::fs::write(path, (0..20_000).map(line).collect::<String>()).unwrap();
}

#[test]
fn the_parts_of_many_devices_are_together_the_whole_trace() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole.csv");
    many(&whole);
    let mut wanted: BTreeMap<u32, Vec<Request>> = BTreeMap::new();
    let mut reader = open(&whole, &ReadOptions::default()).unwrap();
    let mut names = BTreeMap::new();
    while let Some(request) = reader.next() {
        let request = request.unwrap();
        names.insert(request.device, reader.device_name(request.device));
        let requests = wanted.entry(request.device).or_default();
        requests.push(request);
    }
    for requests in wanted.values_mut() {
        let start_us = requests[0].time_us;
        requests.iter_mut().for_each(|request| request.time_us -= start_us);
    }
    for format in ["mgt", "csv"] {
        let to = folder.path().join(format);
        std::fs::create_dir(&to).unwrap();
        let format: Format = format.parse().unwrap();
        let parts = split(&whole, &ReadOptions::default(), &to, format, Existing::Refuse).unwrap();
        assert!(parts.len() > 64 && parts.len() == wanted.len(), "{}", parts.len());
        for (part, (device, requests_of)) in parts.iter().zip(&wanted) {
            assert_eq!((&part.device, part.requests), (&names[device], requests_of.len() as u64));
            let numbers_stay = format == Format::MGT;
            let wanted = requests_of
                .iter()
                .map(|request| Request { device: if numbers_stay { *device } else { 0 }, ..*request });
            assert_eq!(requests(&part.path), wanted.collect::<Vec<_>>(), "{}", part.path.display());
        }
        assert_eq!(std::fs::read_dir(&to).unwrap().count(), parts.len());
        let again = split(&whole, &ReadOptions::default(), &to, format, Existing::Refuse).unwrap_err();
        assert!(again.to_string().contains("host0_0"), "{again}");
    }
}

#[test]
fn one_device_of_a_trace_can_be_split_off() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole.csv");
    many(&whole);
    let options = ReadOptions { devices: Some(vec!["host4".into()]), ..ReadOptions::default() };
    let parts = split(&whole, &options, folder.path(), Format::MGT, Existing::Refuse).unwrap();
    let [part] = &parts[..] else { panic!("{parts:?}") };
    assert_eq!((part.device.as_str(), part.path.as_path()), ("host4_1", &*folder.path().join("host4_1.mgt")));
    assert_eq!(requests(&part.path).len() as u64, part.requests);
}

#[test]
fn devices_whose_names_differ_in_what_a_file_name_cannot_have_get_files_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole.log");
    let names = ["/dev/a", "_dev_a", "/DEV/A", "..", "__"];
    let lines = names.iter().map(|name| format!("{name} write 0 4096\n"));
    std::fs::write(&whole, "fio version 2 iolog\n".to_string() + &lines.collect::<String>()).unwrap();
    let to = folder.path().join("parts");
    std::fs::create_dir(&to).unwrap();
    let parts = split(&whole, &ReadOptions::default(), &to, Format::MGT, Existing::Refuse).unwrap();
    let devices: Vec<_> = parts.iter().map(|part| part.device.as_str()).collect();
    assert_eq!(devices, names);
    assert_eq!(std::fs::read_dir(&to).unwrap().count(), 5);
    assert!(parts.iter().all(|part| requests(&part.path).len() == 1 && part.path.parent() == Some(&to)));
}

#[test]
fn a_trace_that_nobody_wants_any_more_is_not_read_on_and_no_further_part_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole.csv");
    many(&whole);
    let looks = Arc::new(AtomicUsize::new(0));
    let counting = |limit: usize| {
        let looks = Arc::clone(&looks);
        looks.store(0, Ordering::Relaxed);
        move || looks.fetch_add(1, Ordering::Relaxed) < limit
    };
    let reader = open_while(&whole, &ReadOptions::default(), counting(usize::MAX)).unwrap();
    assert_eq!(reader.map(Result::unwrap).count(), 20_000);
    let all = looks.load(Ordering::Relaxed);
    assert!(all > 4, "{all}");

    let mut reader = open_while(&whole, &ReadOptions::default(), counting(all - 2)).unwrap();
    let error = reader.by_ref().find_map(Result::err);
    assert!(matches!(error, Some(TraceError::Io { .. })), "{error:?}");
    assert!(error.unwrap().to_string().contains("stopped by request"));
    assert!(reader.next().is_none());

    let to = folder.path().join("parts");
    std::fs::create_dir(&to).unwrap();
    let stopped = |limit: usize| {
        let options = ReadOptions::default();
        split_while(&whole, &options, &to, Format::MGT, Existing::Replace, counting(limit)).unwrap_err();
        std::fs::read_dir(&to).unwrap().count()
    };
    assert_eq!(stopped(all - 2), 0);
    // Of the parts that are written at the second reading there is none.
    assert_eq!(stopped(all + 2), 64);
}
