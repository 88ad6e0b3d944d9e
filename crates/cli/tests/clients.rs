//! Real clients against the real server: libnbd, qemu, fio, e2fsprogs. `scripts/test.sh` installs them; without one
//! its tests say that they were skipped, and in CI that is a failure.
#![allow(clippy::print_stderr)]

mod common;

use common::{MARGAY, has, has_fuse, run, skip, text};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

struct Disk {
    dir: TempDir,
}

impl Disk {
    fn new(args: &[&str]) -> Self {
        let disk = Self { dir: tempfile::tempdir().unwrap() };
        run(MARGAY, &[&["format", &disk.image()], args].concat());
        disk
    }

    fn image(&self) -> String {
        self.dir.path().join("flash.img").display().to_string()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs a shell command on the export; `$uri` is its URI.
    fn with(&self, options: &[&str], command: &str) -> String {
        let image = self.image();
        run(MARGAY, &[&["serve", &image, "--no-sync", "--run", command], options].concat())
    }

    fn python(&self, options: &[&str], script: &str) -> String {
        let file = self.path("script.py");
        std::fs::write(&file, format!("import nbd, os\nh = nbd.NBD()\nh.add_meta_context('base:allocation')\nh.connect_uri(os.environ['uri'])\n{script}\n")).unwrap();
        self.with(options, &format!("/usr/bin/python3 {}", file.display()))
    }

    fn check(&self) {
        let report = run(MARGAY, &["check", &self.image()]);
        assert!(report.ends_with("clean\n"), "{report}");
    }

    /// A server on a Unix socket, to be killed.
    fn serve(&self) -> Server {
        let socket = self.path("nbd.sock");
        // A server that was killed leaves its socket behind.
        let _ = std::fs::remove_file(&socket);
        let socket = socket.display().to_string();
        let child = Command::new(MARGAY)
            .args(["serve", &self.image(), "--no-sync", "--unix", &socket])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let started = Instant::now();
        while !Path::new(&socket).exists() {
            assert!(started.elapsed() < Duration::from_secs(20), "the server does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        Server { child, uri: format!("nbd+unix:///?socket={socket}") }
    }
}

struct Server {
    child: Child,
    uri: String,
}

impl Server {
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn terminate(mut self) {
        run("kill", &["-TERM", &self.child.id().to_string()]);
        assert!(self.child.wait().unwrap().success());
    }
}

impl Server {
    /// The most memory that it had so far, in bytes.
    fn peak_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const SMALL: [&str; 4] = ["--size", "24M", "--pages-per-segment", "32"];

#[test]
fn nbdinfo_sees_every_capability() {
    if !has("nbdinfo") {
        return;
    }
    let disk = Disk::new(&SMALL);
    let info = disk.with(&[], "nbdinfo $uri");
    for line in [
        "protocol: newstyle-fixed without TLS, using structured packets",
        "export-size: 22646784",
        "base:allocation",
        "is_read_only: false",
        "can_cache: true",
        "can_df: true",
        "can_fast_zero: true",
        "can_flush: true",
        "can_fua: true",
        "can_multi_conn: true",
        "can_trim: true",
        "can_zero: true",
        "block_size_preferred: 4096",
    ] {
        assert!(info.contains(line), "{line} is not in {info}");
    }
    assert!(disk.with(&["--read-only"], "nbdinfo $uri").contains("is_read_only: true"));
    let other = Disk::new(&SMALL);
    let list = disk.with(&["--export", &format!("second={}", other.image())], "nbdinfo --list $uri");
    assert!(list.contains("export=\"\":") && list.contains("export=\"second\":"), "{list}");
}

#[test]
fn odd_requests_are_answered_as_the_protocol_says() {
    if !has("nbdinfo") {
        return;
    }
    let disk = Disk::new(&SMALL);
    let out = disk.python(
        &[],
        r#"
def fails(what, call):
    try:
        call()
        print(what, 'succeeded')
    except nbd.Error as error:
        print(what, error.errno)
h.set_strict_mode(0)
size = h.get_size()
h.pwrite(b'unaligned', 4095)
print(h.pread(11, 4094))
h.pwrite(b'\xaa' * 12288, 8192)
h.trim(4096, 12288)
print(h.pread(4096, 12288) == bytes(4096), h.pread(1, 12287), h.pread(1, 16384))
h.zero(6, 16383)
print(h.pread(8, 16382))
extents = []
h.block_status(65536, 0, lambda context, offset, entries, error: extents.append(entries))
print(extents)
h.pwrite(b'durable', 100, nbd.CMD_FLAG_FUA)
h.zero(8192, 65536, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FUA)
h.cache(4096, 0)
h.flush()
fails('past the end', lambda: h.pread(2, size - 1))
fails('write past the end', lambda: h.pwrite(b'xx', size - 1))
fails('trim past the end', lambda: h.trim(8192, size - 4096))
fails('huge read', lambda: h.pread(64 << 20, 0))
fails('far away', lambda: h.pread(1, (1 << 63) - 1))
h.pwrite(b'', 0)
print(h.pread(7, 100), h.pread(0, 0))
"#,
    );
    let expected = "bytearray(b'\\x00unaligned\\x00')
True bytearray(b'\\xaa') bytearray(b'\\xaa')
bytearray(b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\xaa')
[[12288, 0, 4096, 3, 4096, 0, 45056, 3]]
";
    assert!(out.contains(expected), "{out}");
    for line in
        ["past the end EINVAL", "write past the end", "trim past the end EINVAL", "huge read", "far away EINVAL"]
    {
        assert!(out.contains(line), "{line}: {out}");
    }
    assert!(!out.contains("succeeded"), "{out}");
    assert!(out.contains("bytearray(b'durable')"), "{out}");
    disk.check();
}

#[test]
fn a_client_that_speaks_nonsense_is_sent_away_and_others_are_served() {
    if !has("nbdinfo") {
        return;
    }
    let disk = Disk::new(&SMALL);
    let server = disk.serve();
    let path = server.uri.split("socket=").nth(1).unwrap();
    for junk in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xFF; 4096], &[0, 0, 0, 3, 1, 2, 3], &[]] {
        use std::io::{Read, Write};
        let mut socket = std::os::unix::net::UnixStream::connect(path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut greeting = [0; 18];
        socket.read_exact(&mut greeting).unwrap();
        // The server may close before all of it is written.
        let _ = socket.write_all(junk);
    }
    assert!(run("nbdinfo", &["--size", &server.uri]).trim() == "22646784");
    server.terminate();
    disk.check();
}

#[test]
fn nbdcopy_and_qemu_bring_data_and_holes_back() {
    if !has("nbdcopy") || !has("qemu-img") {
        return;
    }
    let disk = Disk::new(&SMALL);
    let mut content = vec![0u8; 22_646_784];
    for (i, byte) in content.iter_mut().enumerate().filter(|(i, _)| i / 100_000 % 3 != 1) {
        *byte = ((i * 31) >> 3) as u8;
    }
    let (source, back) = (disk.path("source.raw"), disk.path("back.raw"));
    std::fs::write(&source, &content).unwrap();
    let (source, back) = (source.display(), back.display());
    disk.with(&[], &format!("nbdcopy {source} $uri && nbdcopy $uri {back} && cmp {source} {back}"));
    disk.with(&[], &format!("qemu-img compare -f raw -F raw {source} $uri"));
    let map = disk.with(&[], "nbdinfo --map $uri");
    assert!(map.contains("hole,zero") && map.contains("data"), "{map}");
    disk.with(
        &[],
        &format!("qemu-img convert -n -f raw -O raw {source} $uri && qemu-img compare -f raw -F raw {source} $uri"),
    );
    let io = "qemu-io -f raw -c 'write -P 0x5a 8192 65536' -c 'discard 12288 8192' -c 'read -P 0 12288 8192' \
              -c 'read -P 0x5a 20480 4096' -c 'write -z 8192 4096' -c 'read -P 0 8192 4096' -c flush $uri";
    let out = disk.with(&[], io);
    assert!(!out.contains("verification failed") && !out.contains("rror"), "{out}");
    disk.check();
}

#[test]
fn fio_verifies_what_it_wrote() {
    if !has("fio") {
        return;
    }
    let disk = Disk::new(&SMALL);
    let folder = disk.dir.path().display();
    for seed in 1..=3 {
        let job = format!(
            "cd {folder} && fio --name=v --ioengine=nbd --uri=$uri --rw=randwrite --bs=4k --size=20m --iodepth=16 \
             --verify=crc32c --do_verify=1 --verify_fatal=1 --randseed={seed} --fsync=64 --output-format=terse >/dev/null"
        );
        disk.with(&[], &job);
    }
    disk.check();
    let info = run(MARGAY, &["info", &disk.image()]);
    assert!(info.contains("write amplification") && info.contains("clean stop"), "{info}");
}

#[test]
fn a_disk_of_twelve_tebibytes_is_served_in_less_than_64_mebibytes() {
    if !has("nbdinfo") {
        return;
    }
    let shape = ["--size", "12T", "--page-bytes", "16384", "--pages-per-segment", "4096"];
    let disk = Disk::new(&[&shape[..], &["--sparse", "--map-memory", "24M"]].concat());
    let script = disk.path("client.py");
    std::fs::write(
        &script,
        r#"
import nbd, sys, random
h = nbd.NBD(); h.connect_uri(sys.argv[1])
size = h.get_size() // 16384
random.seed(1)
pages = random.sample(range(size), 4000)
for stamp, page in enumerate(pages):
    wanted = stamp.to_bytes(8, 'little') * 2048
    if sys.argv[2] == 'write':
        h.pwrite(wanted, page * 16384)
    elif h.pread(16384, page * 16384) != wanted:
        sys.exit(f'page {page} is not what was written')
h.flush()
print(size * 16384)
"#,
    )
    .unwrap();
    let client = |server: &Server, what: &str| run("/usr/bin/python3", &[script.to_str().unwrap(), &server.uri, what]);
    let server = disk.serve();
    assert!(client(&server, "write").trim().parse::<u64>().unwrap() > 10 << 40);
    client(&server, "read");
    let mut peaks = vec![server.peak_bytes()];
    server.kill();
    let server = disk.serve();
    client(&server, "read");
    peaks.push(server.peak_bytes());
    server.terminate();
    assert!(peaks.iter().all(|bytes| *bytes < 64 << 20), "{peaks:?} bytes, written and after a kill");
}

#[test]
fn what_was_flushed_survives_sigkill() {
    if !has("nbdinfo") {
        return;
    }
    let disk = Disk::new(&SMALL);
    let log = disk.path("acknowledged");
    let script = disk.path("writer.py");
    std::fs::write(
        &script,
        r#"
import nbd, sys, random
h = nbd.NBD(); h.connect_uri(sys.argv[1])
log = open(sys.argv[2], 'a')
random.seed(int(sys.argv[3]))
round = int(sys.argv[3])
for i in range(1 << 30):
    page = random.randrange(5000)
    stamp = round * 1000000 + i
    h.pwrite(stamp.to_bytes(8, 'little') * 512, page * 4096)
    if i % 7 == 0:
        h.flush()
        log.write('F\n')
    log.write(f'{page} {stamp}\n')
    log.flush()
"#,
    )
    .unwrap();
    for round in 1..=5 {
        let server = disk.serve();
        let mut writer = Command::new("/usr/bin/python3")
            .args([script.as_os_str(), server.uri.as_ref(), log.as_os_str(), round.to_string().as_ref()])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(400 + 150 * round));
        server.kill();
        // It ends with its connection.
        assert!(!writer.wait().unwrap().success());
    }
    let lines = std::fs::read_to_string(&log).unwrap();
    let mut newest: Vec<u64> = vec![0; 5000];
    for line in lines.lines().filter(|line| *line != "F") {
        let (page, stamp) = line.split_once(' ').unwrap();
        newest[page.parse::<usize>().unwrap()] = stamp.parse().unwrap();
    }
    let expected = disk.path("expected");
    let listing: String = newest.iter().map(|stamp| format!("{stamp}\n")).collect();
    std::fs::write(&expected, listing).unwrap();
    // A write that was answered is on flash even before the flush; the one in flight may be there too.
    let out = disk.python(
        &[],
        &format!(
            "wrong = 0\nfor page, stamp in enumerate(open('{}')):\n    data = h.pread(4096, page * 4096)\n    found = int.from_bytes(data[:8], 'little')\n    if found < int(stamp) or data != data[:8] * 512:\n        wrong += 1\n        print('page', page, 'holds', found, 'wanted', stamp)\nprint('wrong pages:', wrong)",
            expected.display()
        ),
    );
    assert!(out.contains("wrong pages: 0"), "{out}");
    assert!(newest.iter().filter(|stamp| **stamp > 0).count() > 300, "too little was written to say anything");
    disk.check();
}

#[test]
fn ext4_with_sqlite_and_git_on_it_is_clean_after_sigkill() {
    if !has("nbdfuse") || !has("mkfs.ext4") || !has_fuse() {
        return;
    }
    let disk = Disk::new(&["--size", "64M"]);
    let (mount, tree) = (disk.path("m"), disk.path("tree"));
    std::fs::create_dir_all(&mount).unwrap();
    std::fs::create_dir_all(&tree).unwrap();
    std::fs::write(tree.join("hello"), "hello, flash\n").unwrap();
    let file = mount.join("disk").display().to_string();
    let attach = |server: &Server| {
        let fuse = Command::new("nbdfuse").args([file.as_str(), &server.uri]).stderr(Stdio::null()).spawn().unwrap();
        let started = Instant::now();
        while !Path::new(&file).exists() {
            assert!(started.elapsed() < Duration::from_secs(20), "nbdfuse does not mount");
            std::thread::sleep(Duration::from_millis(20));
        }
        fuse
    };
    let detach = |mut fuse: Child| {
        // A mount whose server was killed needs more than one try.
        let _ = Command::new("fusermount3").args(["-u", "-z", &mount.display().to_string()]).output();
        let _ = Command::new("umount").args(["-l", &mount.display().to_string()]).output();
        let _ = fuse.kill();
        let _ = fuse.wait();
    };
    let server = disk.serve();
    let fuse = attach(&server);
    run("mkfs.ext4", &["-q", "-F", "-d", &tree.display().to_string(), &file]);
    run("e2fsck", &["-f", "-n", &file]);
    let work = disk.path("work");
    std::fs::create_dir_all(&work).unwrap();
    let can_mount = Command::new("mount").args(["-o", "loop", &file, &work.display().to_string()]).output().unwrap();
    if !can_mount.status.success() {
        skip(format_args!("loop mounts do not work ({}); ext4 is written by its tools only", text(&can_mount).trim()));
        run("debugfs", &["-w", "-R", &format!("write {} again", tree.join("hello").display()), &file]);
        detach(fuse);
        server.kill();
    } else {
        let database = work.join("x.db").display().to_string();
        let sql = "import sqlite3,sys\nc=sqlite3.connect(sys.argv[1])\nc.execute('create table t(a,b)')\nfor i in range(200):\n  c.execute('insert into t values(?,?)',(i,'x'*200)); c.commit()\n";
        run("/usr/bin/python3", &["-c", sql, &database]);
        let repository = work.join("r").display().to_string();
        let git = format!(
            "git init -q {repository} && cd {repository} && for i in 1 2 3 4 5; do echo $i > f$i; git add . && git -c user.name=a -c user.email=a@b commit -qm $i; done && sync"
        );
        run("sh", &["-c", &git]);
        let mut busy = Command::new("sh")
            .args(["-c", &format!("while :; do echo x >> {}/busy; sync; done", work.display())])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(700));
        server.kill();
        busy.kill().unwrap();
        busy.wait().unwrap();
        let _ = Command::new("umount").args(["-l", &work.display().to_string()]).output();
        detach(fuse);
    }
    let server = disk.serve();
    let fuse = attach(&server);
    // The journal is replayed; after that everything must be in order.
    let replay = Command::new("e2fsck").args(["-p", &file]).output().unwrap();
    assert!(replay.status.code().is_some_and(|code| code <= 1), "{}", text(&replay));
    run("e2fsck", &["-f", "-n", &file]);
    let hello = run("debugfs", &["-R", "cat hello", &file]);
    assert!(hello.contains("hello, flash"), "{hello}");
    if can_mount.status.success() {
        let out = disk.path("x.db").display().to_string();
        run("debugfs", &["-R", &format!("dump x.db {out}"), &file]);
        let sql = "import sqlite3,sys\nc=sqlite3.connect(sys.argv[1])\nprint(c.execute('pragma integrity_check').fetchone()[0], c.execute('select count(*) from t').fetchone()[0])";
        let found = run("/usr/bin/python3", &["-c", sql, &out]);
        assert_eq!(found.trim(), "ok 200");
    }
    detach(fuse);
    server.terminate();
    disk.check();
}

#[test]
fn tls_is_offered_and_can_be_required() {
    if !has("nbdinfo") || !has("openssl") {
        return;
    }
    let disk = Disk::new(&SMALL);
    let folder = disk.path("tls");
    std::fs::create_dir(&folder).unwrap();
    let at = |name: &str| folder.join(name).display().to_string();
    run(
        "openssl",
        &[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
            "-keyout",
            &at("server-key.pem"),
            "-out",
            &at("server-cert.pem"),
        ],
    );
    std::fs::copy(folder.join("server-cert.pem"), folder.join("ca-cert.pem")).unwrap();
    let folder = folder.display().to_string();
    let mut child = Command::new(MARGAY)
        .args(["serve", &disk.image(), "--listen", "127.0.0.1:0", "--tls", &folder, "--tls-required"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stderr.as_mut().unwrap()), &mut line).unwrap();
    let uri = line.split_whitespace().nth(1).unwrap().to_string();
    let plain = Command::new("nbdinfo").arg(&uri).output().unwrap();
    assert!(!plain.status.success(), "a client without TLS was served");
    let secure = format!("{}?tls-certificates={folder}", uri.replace("nbd://127.0.0.1", "nbds://localhost"));
    let info = Command::new("nbdinfo").arg(&secure).output().unwrap();
    run("kill", &[&child.id().to_string()]);
    child.wait().unwrap();
    assert!(text(&info).contains("with TLS"), "{}", text(&info));
}

#[test]
fn a_recorded_trace_can_be_replayed() {
    if !has("fio") {
        return;
    }
    let disk = Disk::new(&SMALL);
    let trace = disk.path("host.mgt").display().to_string();
    let job =
        "fio --name=v --ioengine=nbd --uri=$uri --rw=randwrite --bs=4k --size=8m --output-format=terse >/dev/null";
    disk.with(&["--record", &trace], job);
    let info = run(MARGAY, &["trace", "info", &trace]);
    assert!(info.contains("2048") || info.contains("2,048"), "{info}");
    run(MARGAY, &["replay", &trace, "--device", "spi-nand-24mb"]);
}

/// Serves a disk, on a socket in a folder of its own, while fio writes to it, and returns what the server said last: the line
/// that begins so.
fn served_by_fio(disk: &Disk, options: &[&str], kib: u32) -> String {
    let socket = disk.path("day.sock").display().to_string();
    let mut child = Command::new(MARGAY)
        .args([&["serve", &disk.image(), "--no-sync", "--unix", &socket], options].concat())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    let job = ["--name=v", "--ioengine=nbd", "--rw=randwrite", "--bs=4k", "--size=12m", "--fsync=64"];
    let (uri, size) = (format!("--uri=nbd+unix:///?socket={socket}"), format!("--io_size={kib}k"));
    run("fio", &[&job[..], &[&uri, &size, "--output-format=terse"]].concat());
    // It cleans in advance meanwhile.
    std::thread::sleep(Duration::from_millis(100));
    run("kill", &["-TERM", &child.id().to_string()]);
    let lines = std::io::read_to_string(said).unwrap();
    assert!(child.wait().unwrap().success(), "{lines}");
    lines.lines().find(|line| line.starts_with("since it was formatted: ")).unwrap_or_else(|| panic!("{lines}")).into()
}

#[test]
fn the_server_info_and_the_day_done_again_agree_on_what_a_disk_has_done() {
    if !has("fio") {
        return;
    }
    let disk = Disk::new(&["--size", "24M", "--pages-per-segment", "32", "--export", "14M"]);
    let day = disk.path("day.mgt").display().to_string();
    for options in [&["--record", &day][..], &["--record", &day, "--append", "-p", "dac"]] {
        let last = served_by_fio(&disk, options, 40 << 10);
        let info: serde_json::Value = serde_json::from_str(&run(MARGAY, &["info", "--json", &disk.image()])).unwrap();
        let number = |key: &str| info[key].as_u64().unwrap_or_else(|| panic!("{key}: {info}"));
        let said = format!(
            "since it was formatted: {} pages written, {} programmed, {} segments erased, write amplification {:.3}",
            number("host_writes"),
            number("programs"),
            number("total_erases"),
            info["write_amplification"].as_f64().unwrap()
        );
        assert_eq!(last, said);
        let erases: u64 = info["erases"].as_array().unwrap().iter().map(|erases| erases.as_u64().unwrap()).sum();
        assert_eq!(
            (number("total_erases"), number("copies_and_metadata_pages")),
            (erases, number("programs") - number("host_writes"))
        );
        assert!(erases > 50, "{info}");
        let again = run(MARGAY, &["replay", &day, "--as-served"]);
        assert!(again.lines().any(|line| line == said) && !again.contains("NOT as recorded"), "{again}");
    }
}
