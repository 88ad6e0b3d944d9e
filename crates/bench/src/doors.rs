//! What a request costs at the doors: instructions of `margay serve` and `margay mount` under callgrind, by difference of two runs
//! that differ only in the number of requests.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

type Error = Box<dyn std::error::Error>;

const PAGE_BYTES: usize = 4096;
/// What both runs do, and what one does more.
const FEW: u64 = 2000;
const MORE: u64 = 4000;
/// Valgrind starts a server slowly on a busy machine.
const MAX_WAIT: Duration = Duration::from_secs(120);

/// Of the protocol text of NBD (doc/proto.md), apart from the server's own constants.
const CLIENT_FLAGS: u32 = 3;
const EXPORT_NAME: u32 = 1;
const REQUEST_MAGIC: u32 = 0x2560_9513;

/// A way of asking a door for one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// Writes over NBD, one after the other.
    ServedWrite,
    /// Reads over NBD, one after the other.
    ServedRead,
    /// Writes of pages of a mounted file.
    MountedWrite,
}

impl Door {
    /// Why it cannot be tried here; `None` if it can.
    pub fn missing(self) -> Option<String> {
        let fuse = || OpenOptions::new().read(true).write(true).open("/dev/fuse").err();
        let error = if self == Self::MountedWrite { fuse() } else { None };
        error.map(|error| format!("/dev/fuse: {error}"))
    }

    /// Instructions of the server for each request of 4 KiB, at random pages of a disk or file that was filled before.
    ///
    /// # Errors
    /// `margay` beside this program, or valgrind, cannot be run; a mount takes root and /dev/fuse.
    pub fn instructions(self) -> Result<f64, String> {
        let count = |requests| self.total(requests).map_err(|error| format!("{self:?}: {error}"));
        let (few, many) = (count(FEW)?, count(FEW + MORE)?);
        Ok((many as f64 - few as f64) / MORE as f64)
    }

    fn total(self, requests: u64) -> Result<u64, Error> {
        let folder = tempfile::tempdir()?;
        let (image, at) = (folder.path().join("flash.img"), folder.path().join("at"));
        let margay = std::env::current_exe()?.with_file_name("margay");
        let format: &[&str] = if self == Self::MountedWrite { &["fs", "format"] } else { &["format"] };
        let done = Command::new(&margay).args(format).arg(&image).args(["--size", "16M"]).output()?;
        if !done.status.success() {
            return Err(String::from_utf8_lossy(&done.stderr).into_owned().into());
        }
        let mut server = Command::new("valgrind");
        server.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(&margay);
        if self == Self::MountedWrite {
            std::fs::create_dir(&at)?;
            server.arg("mount").args([&image, &at]);
        } else {
            server.arg("serve").arg(&image).arg("--unix").arg(&at).arg("--no-sync");
        }
        let log = folder.path().join("log");
        let server = server.stdout(Stdio::null()).stderr(std::fs::File::create(&log)?).spawn()?;
        let asked = match self {
            Self::MountedWrite => mounted(&at, requests),
            _ => served(&at, requests, self == Self::ServedWrite),
        };
        end(server)?;
        let log = std::fs::read_to_string(&log)?;
        asked.map_err(|error| format!("{error}; the server said: {log}"))?;
        let number = |text: &str| text.trim().replace(',', "").parse().ok();
        log.lines()
            .find_map(|line| number(line.split_once("refs:")?.1))
            .ok_or_else(|| format!("callgrind printed no count: {log}").into())
    }
}

/// Ends the server, whether it ever served or not.
fn end(mut server: Child) -> Result<(), Error> {
    Command::new("kill").arg(server.id().to_string()).status()?;
    server.wait()?;
    Ok(())
}

/// Tries again and again until the server is there.
fn wait_for<T>(mut attempt: impl FnMut() -> Option<T>) -> Result<T, Error> {
    const STEP: Duration = Duration::from_millis(50);
    for _ in 0..MAX_WAIT.as_millis() / STEP.as_millis() {
        if let Some(found) = attempt() {
            return Ok(found);
        }
        std::thread::sleep(STEP);
    }
    Err(format!("the server did not start within {} s", MAX_WAIT.as_secs()).into())
}

fn mounted(folder: &Path, requests: u64) -> Result<(), Error> {
    let wanted = format!(" {} fuse", folder.display());
    wait_for(|| std::fs::read_to_string("/proc/mounts").ok().filter(|mounts| mounts.contains(&wanted)))?;
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(folder.join("file"))?;
    let pages = 2048;
    let page = [0x5A; PAGE_BYTES];
    for number in 0..pages {
        file.write_all_at(&page, number * PAGE_BYTES as u64)?;
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    for _ in 0..requests {
        file.write_all_at(&page, random.next_u64() % pages * PAGE_BYTES as u64)?;
    }
    Ok(())
}

fn served(socket: &Path, requests: u64, writes: bool) -> Result<(), Error> {
    let mut stream = wait_for(|| UnixStream::connect(socket).ok())?;
    let pages = open_export(&mut stream)? / PAGE_BYTES as u64;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    for number in 0..pages {
        ask(&mut stream, number, true)?;
    }
    for _ in 0..requests {
        ask(&mut stream, random.next_u64() % pages, writes)?;
    }
    // Disconnect.
    Ok(stream.write_all(&request(2, 0, 0))?)
}

/// The handshake of NBD by the option EXPORT_NAME; returns the bytes of the disk.
fn open_export(stream: &mut UnixStream) -> Result<u64, Error> {
    stream.read_exact(&mut [0; 18])?;
    stream.write_all(&CLIENT_FLAGS.to_be_bytes())?;
    let option = [b"IHAVEOPT".as_slice(), &EXPORT_NAME.to_be_bytes(), &[0; 4]].concat();
    stream.write_all(&option)?;
    let mut export = [0; 10];
    stream.read_exact(&mut export)?;
    Ok(u64::from_be_bytes(export[..8].try_into()?))
}

fn request(kind: u16, page: u64, len: u32) -> Vec<u8> {
    let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
    bytes.extend([0; 2]);
    bytes.extend(kind.to_be_bytes());
    bytes.extend(page.to_be_bytes());
    bytes.extend((page * PAGE_BYTES as u64).to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

/// One request for a page, and its reply.
fn ask(stream: &mut UnixStream, page: u64, writes: bool) -> Result<(), Error> {
    let mut bytes = request(u16::from(writes), page, PAGE_BYTES as u32);
    bytes.resize(bytes.len() + if writes { PAGE_BYTES } else { 0 }, page as u8);
    stream.write_all(&bytes)?;
    let mut reply = vec![0; 16 + if writes { 0 } else { PAGE_BYTES }];
    stream.read_exact(&mut reply)?;
    match reply[4..8] {
        [0, 0, 0, 0] => Ok(()),
        _ => Err(format!("page {page}: the reply is the error {:?}", &reply[4..8]).into()),
    }
}
