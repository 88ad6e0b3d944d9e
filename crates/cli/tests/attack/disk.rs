//! A served disk under attack, and what its client knows of it.

use super::client::{self, Client, FLUSH};
use super::common::MARGAY;
use super::shim::Random;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const PAGE: usize = 4096;

/// How a server is attacked.
#[derive(Clone, Debug, Default)]
pub struct Attack {
    pub shim: Option<PathBuf>,
    pub log: Option<PathBuf>,
    pub fail: Option<String>,
}

impl Attack {
    /// The environment of the attacked process.
    pub fn arm(&self, command: &mut Command, file: &Path) {
        let Some(shim) = &self.shim else { return };
        command.env("LD_PRELOAD", shim).env("ATTACK_FILE", file);
        if let Some(log) = &self.log {
            command.env("ATTACK_LOG", log);
        }
        if let Some(fail) = &self.fail {
            command.env("ATTACK_FAIL", fail);
        }
    }

    pub fn log_len(&self) -> usize {
        self.log.as_ref().and_then(|log| std::fs::metadata(log).ok()).map_or(0, |found| found.len() as usize)
    }
}

/// A server of one image on a socket beside it.
pub struct Server {
    child: Child,
    socket: PathBuf,
}

impl Server {
    /// Starts it; `None` if it ends at once, as it may when a call fails while it opens the image.
    pub fn start(image: &Path, attack: &Attack) -> Option<Self> {
        let socket = image.with_extension("sock");
        // A server that was killed leaves its socket behind.
        let _ = std::fs::remove_file(&socket);
        let mut command = Command::new(MARGAY);
        command.arg("serve").arg(image).arg("--unix").arg(&socket).stdout(Stdio::null()).stderr(Stdio::null());
        attack.arm(&mut command, image);
        let mut child = command.spawn().unwrap();
        let started = Instant::now();
        while UnixStream::connect(&socket).is_err() {
            if child.try_wait().unwrap().is_some() {
                return None;
            }
            assert!(started.elapsed() < Duration::from_secs(60), "the server does not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(Self { child, socket })
    }

    /// A new connection, and the pages of the export.
    pub fn connect(&self) -> (Client<UnixStream>, u32) {
        let mut client = Client::connect(&self.socket);
        let (bytes, _) = client.go("").unwrap();
        (client, (bytes / PAGE as u64) as u32)
    }

    /// Ends it as kill -9 does.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to stop, and says whether it says that all went well.
    pub fn stop(mut self) -> bool {
        super::common::run("kill", &["-TERM", &self.child.id().to_string()]);
        self.child.wait().unwrap().success()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a version of a page holds.
fn content(page: u32, version: u64) -> Vec<u8> {
    let words = (0..PAGE as u64 / 8).map(|i| match i {
        0 => version,
        1 => u64::from(page),
        _ => (version << 20 | u64::from(page)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(i as u32 % 64),
    });
    words.flat_map(u64::to_le_bytes).collect()
}

/// What the client knows.
pub struct Knowledge {
    /// By page, the versions it tried to write, each with the length of the log before the first try. Version 0: zeros.
    versions: Vec<Vec<(usize, u64)>>,
    /// By page, the version that was written last without an error.
    written: Vec<u64>,
    /// After each flush that succeeded: the length of the log, and the version that each page has at least.
    flushed: Vec<(usize, Vec<u64>)>,
    next: u64,
    /// Writes and flushes that failed.
    pub errors: u32,
    has_failed_flush: bool,
}

impl Knowledge {
    pub fn new(pages: u32) -> Self {
        let zeros = vec![0; pages as usize];
        let versions = vec![vec![(0, 0)]; pages as usize];
        Self {
            versions,
            written: zeros.clone(),
            flushed: vec![(0, zeros)],
            next: 1,
            errors: 0,
            has_failed_flush: false,
        }
    }

    /// Writes `count` pages or a few more, half of them to a tenth of the disk, and flushes now and then: pages alone,
    /// several in one request, and several requests at once. What fails is tried again, `retries` times.
    pub fn write(&mut self, client: &mut Client<UnixStream>, attack: &Attack, count: u32, retries: u32, seed: u64) {
        let mut random = Random::new(seed);
        let pages = self.versions.len() as u64;
        let mut left = u64::from(count);
        while left > 0 {
            let hot = random.below(2) == 0;
            let first = random.below(if hot { pages.div_ceil(10) } else { pages });
            let together = if random.below(2) == 0 { 1 } else { 2 + random.below(22) };
            // One request of pages that follow each other, or one for each of several pages.
            let is_long = random.below(2) == 0;
            let stride = if is_long { 1 } else { 1 + random.below(pages / 30) };
            let touched = (0..together).map(|number| first + number * stride).filter(|page| *page < pages);
            let versions: Vec<_> = touched.map(|page| self.attempt(page as u32, attack)).collect();
            let failed = if is_long { self.put(client, versions) } else { self.put_each(client, versions) };
            left = left.saturating_sub(together);
            for (page, version) in failed {
                for _ in 0..retries {
                    if self.put(client, vec![(page, version)]).is_empty() {
                        break;
                    }
                }
            }
            if random.below(12) == 0 {
                self.flush(client, attack, retries);
            }
        }
        self.flush(client, attack, retries);
    }

    /// A new version of a page, which may be found from now on.
    fn attempt(&mut self, page: u32, attack: &Attack) -> (u32, u64) {
        let version = self.next;
        self.next += 1;
        self.versions[page as usize].push((attack.log_len(), version));
        (page, version)
    }

    /// Writes versions of pages that follow each other in one request. Returns them if that failed.
    fn put(&mut self, client: &mut Client<UnixStream>, versions: Vec<(u32, u64)>) -> Vec<(u32, u64)> {
        let bytes: Vec<u8> = versions.iter().flat_map(|(page, version)| content(*page, *version)).collect();
        if client.write(0, u64::from(versions[0].0) * PAGE as u64, &bytes).is_err() {
            self.errors += 1;
            return versions;
        }
        versions.into_iter().for_each(|(page, version)| self.written[page as usize] = version);
        Vec::new()
    }

    /// Writes versions of different pages, a request for each, and waits for the replies then. Returns those that failed.
    fn put_each(&mut self, client: &mut Client<UnixStream>, versions: Vec<(u32, u64)>) -> Vec<(u32, u64)> {
        let request = |(page, version): &(u32, u64)| {
            let head = client::header(client::WRITE, 0, *version, u64::from(*page) * PAGE as u64, PAGE as u32);
            [head, content(*page, *version)].concat()
        };
        client.stream.write_all(&versions.iter().flat_map(request).collect::<Vec<_>>()).unwrap();
        let failed: Vec<u64> =
            versions.iter().map(|_| client.reply()).filter(|reply| reply.1 != 0).map(|reply| reply.0).collect();
        self.errors += failed.len() as u32;
        let (failed, written): (Vec<_>, Vec<_>) =
            versions.into_iter().partition(|(_, version)| failed.contains(version));
        written.into_iter().for_each(|(page, version)| self.written[page as usize] = version);
        failed
    }

    /// The image is served anew.
    pub fn forget_failures(&mut self) {
        (self.errors, self.has_failed_flush) = (0, false);
    }

    /// Flushes.
    pub fn flush(&mut self, client: &mut Client<UnixStream>, attack: &Attack, retries: u32) {
        for _ in 0..=retries {
            if client.call(FLUSH, 0, 0, 0).is_ok() {
                let sync_fails = attack.fail.as_ref().is_some_and(|fail| fail.starts_with("sync"));
                assert!(!(sync_fails && self.has_failed_flush), "{attack:?}: a flush succeeded after one had failed");
                self.flushed.push((attack.log_len(), self.written.clone()));
                return;
            }
            self.errors += 1;
            self.has_failed_flush = true;
        }
    }

    /// Compares every page of the disk with what it may hold after the first `cut` bytes of the log. Returns what was
    /// found.
    pub fn check(&self, client: &mut Client<UnixStream>, cut: usize, what: &str) -> Vec<u64> {
        let (_, durable) = self.flushed.iter().rfind(|(at, _)| *at <= cut).unwrap();
        let mut wrong = Vec::new();
        let mut found = Vec::new();
        for (page, versions) in (0..).zip(&self.versions) {
            let at_least = durable[page as usize];
            let may = |version: u64| versions.iter().any(|(at, v)| *v == version && version >= at_least && *at <= cut);
            found.push(u64::MAX);
            match client.read(u64::from(page) * PAGE as u64, PAGE as u32) {
                Err(error) => wrong.push(format!("page {page}: error {error}")),
                Ok(bytes) => {
                    let version = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                    let is_whole = bytes == if version == 0 { vec![0; PAGE] } else { content(page, version) };
                    if !is_whole {
                        wrong.push(format!("page {page}: bytes that were never written"));
                    } else if !may(version) {
                        wrong.push(format!("page {page}: version {version}, at least {at_least} was flushed"));
                    }
                    found[page as usize] = version;
                }
            }
        }
        assert!(wrong.is_empty(), "{what}: {} of {} pages are wrong: {wrong:?}", wrong.len(), found.len());
        found
    }
}
