//! A mounted image under test.

use super::{MARGAY, run};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// An image with a file system, in a folder of its own.
pub struct Image {
    pub dir: TempDir,
}

/// A mounted image.
pub struct Mounted<'a> {
    image: &'a Image,
    pub child: Child,
}

impl Image {
    pub fn new(args: &[&str]) -> Self {
        let image = Self { dir: tempfile::tempdir().unwrap() };
        run(MARGAY, &[&["fs", "format", &image.path()], args].concat());
        std::fs::create_dir(image.folder()).unwrap();
        image
    }

    pub fn path(&self) -> String {
        self.dir.path().join("flash.img").display().to_string()
    }

    pub fn folder(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    pub fn mount(&self, args: &[&str]) -> Mounted<'_> {
        let path = self.path();
        let folder = self.folder().display().to_string();
        let child = Command::new(MARGAY)
            .args([&["mount", &path, &folder, "--no-sync"], args].concat())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let started = Instant::now();
        while !std::fs::read_to_string("/proc/mounts").unwrap().contains(&folder) {
            assert!(started.elapsed() < Duration::from_secs(20), "the mount does not come up");
            std::thread::sleep(Duration::from_millis(20));
        }
        Mounted { image: self, child }
    }

    pub fn check(&self) {
        let report = run(MARGAY, &["fs", "check", &self.path()]);
        assert!(report.contains("\nclean"), "{report}");
    }
}

impl Mounted<'_> {
    /// A shell command in the mounted directory.
    pub fn sh(&self, command: &str) -> String {
        run("sh", &["-ec", &format!("cd {} && {command}", self.image.folder().display())])
    }

    /// Unmounts as a user does.
    pub fn unmount(mut self) {
        let folder = self.image.folder().display().to_string();
        run("fusermount3", &["-u", &folder]);
        assert!(self.child.wait().unwrap().success());
    }

    /// Ends the process as a power cut does, and takes away what is left of the mount.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let _ = Command::new("fusermount3").args(["-uz", &self.image.folder().display().to_string()]).output();
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = Command::new("fusermount3").args(["-uz", &self.image.folder().display().to_string()]).output();
    }
}
