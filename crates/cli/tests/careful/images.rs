//! Images in use, names that control terminals, copies into and out of images.

use crate::common::{MARGAY, fails, run, text, works};
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn an_image_in_use_is_left_alone_and_the_message_says_who_uses_it() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img").display().to_string();
    works(&["format", &image, "--size", "16M"]);
    let served = |options: &[&str], command: &str| {
        let command = format!("{MARGAY} {command} {image}");
        let output = Command::new(MARGAY).args(["serve", &image, "--run", &command]).args(options).output().unwrap();
        (output.status.success(), text(&output))
    };
    for command in ["info", "check", "dump", "format --force --size 16M", "serve --read-only --run true"] {
        let (done, said) = served(&[], command);
        assert!(!done && said.contains("margay serve") && said.contains("stop it"), "{command}: {said}");
        assert!(said.contains("process "), "{command}: {said}");
    }
    // Who only reads does not keep others from reading.
    for command in ["info", "check", "dump", "serve --read-only --run true"] {
        let (done, said) = served(&["--read-only"], command);
        assert!(done, "{command}: {said}");
    }
    let (done, said) = served(&["--read-only"], "format --force --size 16M");
    assert!(!done && said.contains("uses it"), "{said}");
    works(&["check", &image]);
}

/// An image of files with a folder `d`, a file `f` of some pages in it, and a name that would colour a terminal.
fn files(folder: &Path) -> String {
    let image = folder.join("files.img").display().to_string();
    works(&["fs", "format", &image, "--size", "2M"]);
    works(&["fs", "mkdir", &image, "d"]);
    let content: Vec<u8> = (0..40_000u32).map(|at| (at.wrapping_mul(0x9E37_79B9) >> 20) as u8).collect();
    fs::write(folder.join("f"), content).unwrap();
    works(&["fs", "put", &image, &folder.join("f").display().to_string(), "d/f"]);
    image
}

#[test]
fn a_file_is_never_copied_over_the_image_that_holds_it() {
    let folder = tempfile::tempdir().unwrap();
    let image = files(folder.path());
    let before = fs::read(&image).unwrap();
    let link = folder.path().join("link");
    let hard = folder.path().join("hard");
    std::os::unix::fs::symlink(&image, &link).unwrap();
    fs::hard_link(&image, &hard).unwrap();
    for target in [Path::new(&image), &link, &hard] {
        for force in [&[][..], &["--force"]] {
            let args = [&["fs", "get", &image, "d/f", target.to_str().unwrap()], force].concat();
            fails(&args, 2, "this is the image itself");
            assert!(fs::read(&image).unwrap() == before, "{args:?} changed the image");
        }
    }
}

/// Damages the page of an image that holds these bytes.
fn damage(image: &str, content: &[u8]) {
    let mut bytes = fs::read(image).unwrap();
    let stored: Vec<u8> = content.iter().map(|byte| !byte).collect();
    let at = bytes.windows(stored.len()).position(|window| window == stored).expect("the page is in the image");
    bytes[at..at + 64].fill(0x55);
    fs::write(image, bytes).unwrap();
}

#[test]
fn a_damaged_file_leaves_the_target_as_it_was_and_the_message_names_the_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let image = files(folder.path());
    let content = fs::read(folder.path().join("f")).unwrap();
    damage(&image, &content[8192..8192 + 512]);
    damage(&image, &content[12288..12288 + 512]);
    let target = folder.path().join("target").display().to_string();
    fs::write(&target, "what was there").unwrap();
    let args = ["fs", "get", &image, "d/f", &target, "--force"];
    fails(&args, 1, "bytes 8192 to 16383 of 40000 cannot be read");
    assert_eq!(fs::read_to_string(&target).unwrap(), "what was there");
    // Of what goes to a pipe only what is before the damage is printed.
    let output = Command::new(MARGAY).args(["fs", "get", &image, "d/f"]).output().unwrap();
    assert!(!output.status.success() && output.stdout == content[..8192]);
    fails(&["fs", "get", &image, "d", &target, "--force"], 1, "is a directory");
    assert_eq!(fs::read_to_string(&target).unwrap(), "what was there");
}

#[test]
fn a_file_that_does_not_fit_leaves_its_predecessor_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let image = files(folder.path());
    let old = fs::read(folder.path().join("f")).unwrap();
    let large = folder.path().join("large").display().to_string();
    fs::write(&large, vec![7; 4 << 20]).unwrap();
    fails(&["fs", "put", &image, &large, "d/f"], 1, "no space left");
    let got = folder.path().join("got").display().to_string();
    works(&["fs", "get", &image, "d/f", &got]);
    assert!(fs::read(&got).unwrap() == old);
    assert_eq!(works(&["fs", "ls", "-R", &image]).lines().count(), 2, "{}", works(&["fs", "ls", "-R", &image]));
    let small = folder.path().join("small").display().to_string();
    fs::write(&small, "new").unwrap();
    works(&["fs", "put", &image, &small, "d/f"]);
    assert_eq!(works(&["fs", "get", &image, "d/f"]), "new");
    assert!(works(&["fs", "check", &image]).contains("\nclean"));
}

#[test]
fn names_do_not_control_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let image = files(folder.path());
    let name = "\x1b]0;title\x07 a\nb \\ \u{202e}gpj.exe \u{e9}";
    works(&["fs", "mkdir", &image, name]);
    let source = folder.path().join("link");
    std::os::unix::fs::symlink("\x1b[2J", &source).unwrap();
    works(&["fs", "put", &image, source.to_str().unwrap()]);
    let listed = works(&["fs", "ls", "-R", &image]);
    assert!(!listed.contains('\x1b') && listed.lines().count() == 4, "{listed:?}");
    assert!(listed.contains("\\x1b]0;title\\x07 a\\nb \\\\ \\u{202e}gpj.exe \u{e9}"), "{listed}");
    assert!(listed.contains("link -> \\x1b[2J"), "{listed}");
    let raw = run(MARGAY, &["fs", "ls", "--raw", &image]);
    assert!(raw.contains(name) && raw.contains("-> \x1b[2J"), "{raw:?}");
}
