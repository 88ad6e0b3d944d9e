//! What the kernel keeps of a mounted file system, and what it leaves to margay: attributes, names, times, set-id bits, and
//! with `--write-back` the data.

use super::common::mounted::Image;
use super::common::{has, has_fuse, run};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// With what the kernel writes through, and with what it keeps writes for a while.
const MODES: [&[&str]; 2] = [&[], &["--write-back"]];

/// Prints the mode of a file after each of the changes that take set-id bits away, or do not.
const SET_ID_BITS: &str = r#"
as_user() { setpriv --reuid=65534 --regid=65534 --clear-groups -- sh -c "$1"; }
fresh() { rm -f f; echo text > f; chown 0:0 f; chmod $1 f; }
fresh 6777; as_user 'printf x | dd of=f conv=notrunc status=none'; stat -c 'write %a' f
fresh 6777; as_user 'exec 3<>f; printf x >&3; stat -c "while it is open %a" f; printf y >&3'; stat -c '%a' f
fresh 6777; printf x | dd of=f conv=notrunc status=none; stat -c 'write by root %a' f
has() { command -v "$1" >/dev/null; }
fresh 4755; if has setcap; then setcap cap_net_raw+ep f; getcap f; fi; echo x >> f; stat -c 'capabilities, write by root %a' f
if has getcap; then getcap f; fi
fresh 6777; as_user 'truncate -s 2 f'; stat -c 'truncate %a' f
fresh 6777; truncate -s 2 f; stat -c 'truncate by root %a' f
fresh 6777; as_user ': > f'; stat -c 'open with O_TRUNC %a' f
fresh 6777; chown 1:1 f; stat -c 'chown %a %u %g' f
fresh 6777; chgrp 1 f; stat -c 'chgrp %a %g' f
fresh 6777; touch f; chmod 4755 f; stat -c 'chmod %a' f
mkdir d; chmod 2775 d; chown 1:1 d; stat -c 'a directory %a' d
"#;

#[test]
fn set_id_bits_are_taken_away_as_by_the_file_system_of_the_host() {
    if !has_fuse() || !has("setpriv") {
        return;
    }
    for mode in MODES {
        let image = Image::new(&["--size", "16M"]);
        let mounted = image.mount(&[&["--allow-other"], mode].concat());
        let host = image.dir.path().join("host");
        fs::create_dir(&host).unwrap();
        run("chmod", &["755", &image.dir.path().display().to_string()]);
        for folder in [&host, &image.folder()] {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let wanted = run("sh", &["-ec", &format!("cd {} && {SET_ID_BITS}", host.display())]);
        assert_eq!(mounted.sh(SET_ID_BITS), wanted, "{mode:?}");
        assert!(wanted.contains("write 777\n") && wanted.contains("write by root 6777\n"), "{wanted}");
        mounted.unmount();
        image.check();
    }
}

#[test]
fn two_writers_that_append_overwrite_nothing() {
    if !has_fuse() {
        return;
    }
    for mode in MODES {
        let image = Image::new(&["--size", "16M"]);
        let mounted = image.mount(mode);
        let path = image.folder().join("log");
        let append = |name: char| {
            let mut file = OpenOptions::new().append(true).create(true).open(&path).unwrap();
            for number in 0..2000 {
                file.write_all(format!("{name}{number:05}\n").as_bytes()).unwrap();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| append('a'));
            scope.spawn(|| append('b'));
        });
        let check = || {
            let text = fs::read_to_string(&path).unwrap();
            for name in ['a', 'b'] {
                let lines = text.lines().filter(|line| line.starts_with(name));
                assert!(lines.eq((0..2000).map(|number| format!("{name}{number:05}"))), "{mode:?}");
            }
        };
        check();
        mounted.unmount();
        let mounted = image.mount(mode);
        check();
        mounted.unmount();
    }
}

#[test]
fn times_are_those_of_the_write_or_those_that_were_set() {
    if !has_fuse() {
        return;
    }
    for mode in MODES {
        let image = Image::new(&["--size", "16M"]);
        let mounted = image.mount(mode);
        let (written, set) = (image.folder().join("written"), image.folder().join("set"));
        let before = SystemTime::now() - Duration::from_millis(50);
        let mut file = File::create(&written).unwrap();
        file.write_all(&[1; 10_000]).unwrap();
        let at_once = file.metadata().unwrap().modified().unwrap();
        assert!(at_once >= before && at_once <= SystemTime::now(), "{mode:?}");
        // Data that the kernel keeps gets to margay later; that is no modification.
        std::thread::sleep(Duration::from_millis(100));
        file.sync_all().unwrap();
        drop(file);
        let long_ago = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
        let mut file = File::create(&set).unwrap();
        file.write_all(&[2; 10_000]).unwrap();
        file.set_modified(long_ago).unwrap();
        drop(file);
        let times = || [&written, &set].map(|path| fs::metadata(path).unwrap().modified().unwrap());
        assert_eq!(times(), [at_once, long_ago], "{mode:?}");
        let changed = fs::metadata(&set).unwrap().ctime();
        mounted.unmount();
        let mounted = image.mount(mode);
        assert_eq!(times(), [at_once, long_ago], "{mode:?}, mounted again");
        assert_eq!(fs::metadata(&set).unwrap().ctime(), changed, "{mode:?}");
        mounted.unmount();
    }
}

#[test]
fn a_directory_that_changes_while_it_is_read_shows_what_stays_once() {
    if !has_fuse() {
        return;
    }
    const NAMES: u32 = 10_000;
    let image = Image::new(&["--size", "32M"]);
    let mounted = image.mount(&[]);
    let folder = image.folder().join("many");
    fs::create_dir(&folder).unwrap();
    let name = |number: u32| format!("name-{number:05}");
    for number in 0..NAMES {
        File::create(folder.join(name(number))).unwrap();
    }
    let listed = |folder: &Path| -> BTreeSet<String> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let mut reading = fs::read_dir(&folder).unwrap();
    let mut seen: Vec<String> = Vec::new();
    let take = |reading: &mut fs::ReadDir, seen: &mut Vec<String>, count: usize| {
        for entry in reading.take(count) {
            let entry = entry.unwrap();
            // What programs such as ls do, so that the kernel asks for attributes with the names.
            let _ = entry.metadata();
            seen.push(entry.file_name().into_string().unwrap());
        }
    };
    take(&mut reading, &mut seen, 1500);
    // Every third goes, every seventh gets another name, and as many come.
    let mut stays: BTreeSet<String> = (0..NAMES).map(name).collect();
    for number in 0..NAMES {
        if number % 3 == 0 {
            fs::remove_file(folder.join(name(number))).unwrap();
        } else if number % 7 == 0 {
            fs::rename(folder.join(name(number)), folder.join(format!("new-{number}"))).unwrap();
        } else {
            continue;
        }
        stays.remove(&name(number));
        fs::write(folder.join(format!("another-{number}")), "x").unwrap();
    }
    take(&mut reading, &mut seen, usize::MAX);
    drop(reading);
    let mut once = BTreeSet::new();
    assert!(seen.iter().all(|name| once.insert(name.clone())), "a name is listed twice");
    assert!(stays.is_subset(&once), "a name that stayed is missing");
    // Nothing that was read late is remembered under a name that it no longer has.
    for number in 0..NAMES {
        let found = fs::metadata(folder.join(name(number)));
        assert_eq!(found.is_ok(), stays.contains(&name(number)), "{}", name(number));
    }
    let new = (0..NAMES).filter(|number| number % 3 == 0 || number % 7 == 0);
    stays.extend(new.flat_map(|number| {
        let renamed = (number % 3 != 0).then(|| format!("new-{number}"));
        renamed.into_iter().chain([format!("another-{number}")])
    }));
    assert_eq!(listed(&folder), stays);
    assert_eq!(fs::metadata(folder.join("another-9")).unwrap().len(), 1);
    mounted.unmount();
}

#[test]
fn names_and_attributes_that_the_kernel_keeps_are_those_of_now() {
    if !has_fuse() {
        return;
    }
    for mode in MODES {
        let image = Image::new(&["--size", "16M"]);
        let mounted = image.mount(mode);
        let path = |name: &str| image.folder().join(name);
        let links = |name: &str| fs::metadata(path(name)).unwrap().nlink();
        for name in ["a", "b", "c"] {
            assert!(fs::metadata(path(name)).is_err());
        }
        fs::write(path("a"), "1").unwrap();
        fs::write(path("c"), "123").unwrap();
        fs::hard_link(path("a"), path("b")).unwrap();
        assert_eq!((links("a"), links("b")), (2, 2));
        fs::rename(path("c"), path("b")).unwrap();
        assert!(fs::metadata(path("c")).is_err());
        assert_eq!((links("a"), fs::metadata(path("b")).unwrap().len()), (1, 3));
        fs::create_dir_all(path("d/e")).unwrap();
        assert_eq!(links("d"), 3);
        fs::rename(path("d/e"), path("c")).unwrap();
        assert_eq!((links("d"), links("c")), (2, 2));
        fs::remove_dir(path("c")).unwrap();
        assert!(fs::metadata(path("c")).is_err());
        fs::write(path("c"), "12").unwrap();
        assert_eq!(fs::metadata(path("c")).unwrap().len(), 2);
        let file = OpenOptions::new().write(true).open(path("c")).unwrap();
        file.write_all_at(b"x", 9).unwrap();
        assert_eq!(fs::metadata(path("c")).unwrap().len(), 10);
        file.set_len(4).unwrap();
        drop(file);
        assert_eq!(fs::read(path("c")).unwrap(), b"12\0\0");
        mounted.unmount();
    }
}

#[test]
fn a_small_file_takes_a_page_from_the_moment_it_is_closed() {
    if !has_fuse() {
        return;
    }
    for mode in MODES {
        let image = Image::new(&["--size", "16M"]);
        let mounted = image.mount(mode);
        // Programs take a file that has bytes and takes no room for one hole, and copy none of it.
        for number in 0..20 {
            let path = image.folder().join(format!("f{number}"));
            fs::write(&path, "text").unwrap();
            assert_eq!(fs::metadata(&path).unwrap().blocks(), 8, "{mode:?}");
        }
        mounted.unmount();
    }
}

#[test]
fn a_copy_of_a_file_that_is_being_written_has_what_was_written() {
    if !has_fuse() {
        return;
    }
    for mode in MODES {
        let image = Image::new(&["--size", "16M"]);
        let mounted = image.mount(mode);
        let file = File::create(image.folder().join("f")).unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_all_at(&[9; 4096], 400 * 1024).unwrap();
        // cp asks where the data is. What the kernel keeps counts as data, too.
        mounted.sh("cp --sparse=auto f copy");
        let mut wanted = vec![0; 1 << 20];
        wanted[400 * 1024..][..4096].fill(9);
        assert!(fs::read(image.folder().join("copy")).unwrap() == wanted, "{mode:?}");
        drop(file);
        mounted.unmount();
    }
}

#[test]
fn a_full_device_is_reported_by_fsync_and_by_close_if_the_kernel_keeps_writes() {
    if !has_fuse() {
        return;
    }
    let image = Image::new(&["--size", "4M", "--page-bytes", "2048", "--pages-per-segment", "16"]);
    let mounted = image.mount(&["--write-back"]);
    let folder = image.folder();
    fs::write(folder.join("before"), vec![3; 100_000]).unwrap();
    let mut file = File::create(folder.join("big")).unwrap();
    let written = file.write_all(&vec![7; 8 << 20]);
    let synced = written.and_then(|()| file.sync_all());
    assert_eq!(synced.unwrap_err().raw_os_error(), Some(28), "ENOSPC");
    drop(file);
    fs::remove_file(folder.join("big")).unwrap();
    let copied =
        mounted.sh("head -c 8000000 /dev/zero > ../source; cp ../source big 2>&1 || echo failed; rm big ../source");
    assert!(copied.contains("No space left") && copied.ends_with("failed\n"), "{copied}");
    fs::write(folder.join("after"), vec![4; 100_000]).unwrap();
    mounted.unmount();
    image.check();
    let mounted = image.mount(&[]);
    assert_eq!(fs::read(folder.join("before")).unwrap(), vec![3; 100_000]);
    assert_eq!(fs::read(folder.join("after")).unwrap(), vec![4; 100_000]);
    mounted.unmount();
}

#[test]
fn data_that_fits_in_part_is_no_success_if_the_kernel_keeps_writes() {
    if !has_fuse() {
        return;
    }
    let image = Image::new(&["--size", "4M", "--page-bytes", "4096", "--pages-per-segment", "16"]);
    let mounted = image.mount(&["--write-back"]);
    let free_pages: usize = mounted.sh("stat -f -c %a .").trim().parse().unwrap();
    fs::write(image.folder().join("ballast"), vec![1; (free_pages - 100) * 4096]).unwrap();
    // The kernel sends this in one request, of which the half fits.
    let mut file = File::create(image.folder().join("f")).unwrap();
    let synced = file.write_all(&vec![2; 200 * 4096]).and_then(|()| file.sync_all());
    assert_eq!(synced.unwrap_err().raw_os_error(), Some(28), "ENOSPC");
    drop(file);
    mounted.unmount();
    image.check();
}

#[test]
fn what_was_synced_is_there_after_kill_9_if_the_kernel_keeps_writes() {
    if !has_fuse() {
        return;
    }
    let image = Image::new(&["--size", "16M"]);
    let mounted = image.mount(&["--write-back"]);
    let path = image.folder().join("f");
    let file = File::create(&path).unwrap();
    let page = |fill: u8| [fill; 4096];
    for at in (0..200).rev() {
        file.write_all_at(&page(at as u8), at * 4096).unwrap();
    }
    file.sync_all().unwrap();
    // A file that was closed has left the kernel, so that a sync of everything covers it.
    fs::write(image.folder().join("closed"), vec![5; 100_000]).unwrap();
    File::open(image.folder()).unwrap().sync_all().unwrap();
    for at in (0..200).step_by(3) {
        file.write_all_at(&page(255), at * 4096).unwrap();
    }
    mounted.kill();
    drop(file);
    image.check();
    let mounted = image.mount(&["--write-back"]);
    assert_eq!(fs::read(image.folder().join("closed")).unwrap(), vec![5; 100_000]);
    let found = fs::read(&path).unwrap();
    assert_eq!(found.len(), 200 * 4096);
    for (at, data) in found.chunks(4096).enumerate() {
        assert!(data == page(at as u8) || at % 3 == 0 && data == page(255), "page {at}");
    }
    mounted.unmount();
}
