//! What a disk and a file system say of the life that is left, and devices that are no flash.

use std::path::Path;
use std::process::{Command, Output};

fn margay(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_margay")).args(args).current_dir(folder).output().unwrap()
}

fn works(folder: &Path, args: &[&str]) -> String {
    let output = margay(folder, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(folder: &Path, args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&works(folder, args)).unwrap()
}

#[test]
fn the_endurance_is_that_of_the_option_or_of_the_device_and_is_said_with_what_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    works(at, &["format", "a.img", "--size", "8M", "--pages-per-segment", "16", "--endurance", "3000"]);
    let info = works(at, &["info", "a.img"]);
    assert!(info.contains("of 3000 erases each") && info.contains("nothing was written yet"), "{info}");
    assert!(info.contains("more may fail before it can only be read"), "{info}");
    let health = &json(at, &["info", "a.img", "--json"])["health"];
    assert_eq!((health["endurance_erases"].as_u64(), health["bytes_left"].as_u64()), (Some(3000), None));
    assert!(health["reserve_segments"].as_u64().unwrap() > 0 && health["chip"].is_null());

    works(at, &["format", "b.img", "-d", "nand-slc-1gbit", "--size", "16M"]);
    assert_eq!(json(at, &["info", "b.img", "--json"])["health"]["endurance_erases"], 100_000);
    works(at, &["format", "c.img", "--size", "8M", "--pages-per-segment", "16"]);
    let info = works(at, &["info", "c.img"]);
    assert!(info.contains("formatted without --endurance") && !info.contains("life left"), "{info}");
}

#[test]
fn a_map_on_flash_is_said_and_takes_the_memory_that_it_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let formatted = works(at, &["format", "a.img", "--size", "16M", "--export", "75%", "--map-memory", "24K"]);
    assert!(formatted.contains("selection cost-benefit") && formatted.contains("placement sepgc"), "{formatted}");
    assert!(formatted.contains("the map on flash, 24576 bytes of memory for it"), "{formatted}");
    let info = works(at, &["info", "a.img"]);
    assert!(info.contains("on flash, 24576 bytes of memory for it"), "{info}");
    assert_eq!(json(at, &["info", "a.img", "--json"])["map_memory_bytes"], 24576);
    works(at, &["check", "a.img"]);
    works(at, &["format", "b.img", "--size", "16M"]);
    assert!(works(at, &["info", "b.img"]).contains("all of it in memory"));
    assert!(json(at, &["info", "b.img", "--json"])["map_memory_bytes"].is_null());
    let refused = margay(at, &["format", "c.img", "--size", "16M", "--export", "75%", "--map-memory", "1K"]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && error.contains("it needs at least"), "{error}");
    assert!(!at.join("c.img").exists());
}

#[test]
fn a_file_system_says_what_can_still_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    works(at, &["fs", "format", "f.img", "--size", "8M", "--pages-per-segment", "16", "--endurance", "3000"]);
    std::fs::write(at.join("data"), vec![7; 1 << 20]).unwrap();
    works(at, &["fs", "put", "f.img", "data"]);
    let stat = works(at, &["fs", "stat", "f.img"]);
    assert!(stat.contains("of 3000 erases each") && stat.contains("can still be written"), "{stat}");
    let health = &json(at, &["fs", "stat", "f.img", "--json"])["health"];
    let left = health["bytes_left"].as_u64().unwrap() as f64 / (3000.0 * 8.0 * f64::from(1 << 20));
    assert!((0.8..1.0).contains(&left), "{left} of what all segments endure");
    // A repaired copy is the same part.
    works(at, &["fs", "check", "f.img", "--repair", "g.img"]);
    assert_eq!(json(at, &["fs", "stat", "g.img", "--json"])["health"]["endurance_erases"], 3000);
}

#[test]
fn devices_that_are_no_raw_flash_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    for command in [&["info"][..], &["format"], &["fs", "format"], &["check"], &["fs", "stat"], &["serve"]] {
        let args: Vec<_> = command.iter().copied().chain(["/dev/null"]).collect();
        let output = margay(folder.path(), &args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{args:?}: {error}");
        assert!(error.contains("/dev/null: it is a device, but not the character device of raw flash"), "{error}");
    }
    // The shape of a device is its own, whichever it is.
    let output = margay(folder.path(), &["format", "/dev/null", "--size", "64M"]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn an_image_that_is_formatted_again_as_it_is_keeps_its_endurance_and_its_erases() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let health = |args: &[&str]| json(at, args)["health"].clone();
    works(at, &["format", "a.img", "--size", "8M", "--pages-per-segment", "16", "--endurance", "3000"]);
    let said = works(at, &["format", "a.img", "--force"]);
    assert!(said.contains("erases are counted on from those before"), "{said}");
    let again = health(&["info", "a.img", "--json"]);
    assert_eq!((again["endurance_erases"].as_u64(), again["min_erases"].as_u64()), (Some(3000), Some(1)), "{again}");
    works(at, &["fs", "format", "a.img", "--force"]);
    let again = health(&["fs", "stat", "a.img", "--json"]);
    assert_eq!((again["endurance_erases"].as_u64(), again["min_erases"].as_u64()), (Some(3000), Some(2)), "{again}");
    works(at, &["format", "a.img", "--force", "--endurance", "500"]);
    let said = works(at, &["info", "a.img"]);
    assert!(said.contains("of 500 erases each"), "{said}");
    // Of another shape it is another part.
    works(at, &["format", "a.img", "--force", "--size", "8M", "--pages-per-segment", "16"]);
    let other = health(&["info", "a.img", "--json"]);
    assert_eq!((other["endurance_erases"].as_u64(), other["max_erases"].as_u64()), (None, Some(0)), "{other}");
    // What cannot be read is said.
    let bytes = std::fs::read(at.join("a.img")).unwrap();
    let spoilt = [&bytes[..4096], &vec![0; bytes.len() - 4096]].concat();
    std::fs::write(at.join("a.img"), spoilt).unwrap();
    let said = works(at, &["format", "a.img", "--force"]);
    assert!(said.contains("erases are counted from 0, because those before cannot be read"), "{said}");
}

#[test]
fn an_image_too_small_for_its_segments_is_refused_with_options_that_work() {
    let folder = tempfile::tempdir().unwrap();
    let output = margay(folder.path(), &["format", "x.img", "--size", "8M"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    let options = error.trim().split("; give ").nth(1).unwrap_or_else(|| panic!("{error}"));
    let ways: Vec<&str> = options.split(" or ").collect();
    assert_eq!(ways.len(), 2, "{error}");
    for (number, way) in ways.into_iter().enumerate() {
        let image = format!("{number}.img");
        let way: Vec<&str> = way.split(' ').collect();
        works(folder.path(), &[&["format", &image, "--size", "8M"], &way[..]].concat());
    }
}

#[test]
fn format_says_the_policies_that_are_in_effect_where_a_small_device_has_fewer_streams() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let formatted = works(at, &["format", "a.img", "--size", "16M"]);
    let placement = json(at, &["info", "a.img", "--json"])["placement"].as_str().unwrap().to_string();
    assert!(formatted.contains(&format!("placement {placement};")), "{placement}: {formatted}");
    let formatted = works(at, &["fs", "format", "f.img", "--size", "16M"]);
    let allocator = json(at, &["fs", "stat", "f.img", "--json"])["allocator"].as_str().unwrap().to_string();
    assert!(formatted.contains(&format!("allocator {allocator};")), "{allocator}: {formatted}");
}
