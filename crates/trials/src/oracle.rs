use margay_flash::{Flash, Lpn};
use margay_volume::Disk;

/// What every page may hold: all that was attempted since the last that is durable.
#[derive(Clone, Debug)]
pub struct Oracle {
    /// By page, its versions from the durable one on; `None` is trimmed or never written.
    versions: Vec<Vec<Option<u64>>>,
    next: u64,
}

/// The content of a version of a page.
pub fn content(lpn: u32, version: u64, page: &mut [u8]) {
    for (i, word) in page.chunks_exact_mut(8).enumerate() {
        let value = match i {
            0 => version,
            1 => u64::from(lpn),
            _ => version.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(i as u32 % 64) ^ u64::from(lpn),
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
}

impl Oracle {
    /// Nothing was written.
    pub fn new(pages: u32) -> Self {
        Self { versions: vec![vec![None]; pages as usize], next: 1 }
    }

    /// Number of pages.
    pub fn pages(&self) -> u32 {
        self.versions.len() as u32
    }

    /// A write is going to be tried; its version.
    pub fn attempt(&mut self, lpn: u32) -> u64 {
        let version = self.next;
        self.next += 1;
        self.versions[lpn as usize].push(Some(version));
        version
    }

    /// A trim is going to be tried.
    pub fn attempt_trim(&mut self, lpn: u32) {
        self.versions[lpn as usize].push(None);
    }

    /// All that was tried for a page is durable.
    pub fn durable(&mut self, lpn: u32) {
        let versions = &mut self.versions[lpn as usize];
        versions.drain(..versions.len() - 1);
    }

    /// All that was tried is durable.
    pub fn all_durable(&mut self) {
        (0..self.pages()).for_each(|lpn| self.durable(lpn));
    }

    /// Reads every page of a disk. What it holds now it must hold from now on.
    pub fn check<F: Flash>(&mut self, disk: &mut Disk<F>) -> Result<(), String> {
        let page_bytes = disk.superblock().geometry.page_bytes() as usize;
        self.check_pages(page_bytes, |lpn, page| disk.read(lpn.0, page).map_err(|error| error.to_string()))
    }

    /// The same of anything that says whether it holds a page, and reads it.
    pub fn check_pages(
        &mut self,
        page_bytes: usize,
        mut read: impl FnMut(Lpn, &mut [u8]) -> Result<bool, String>,
    ) -> Result<(), String> {
        let (mut page, mut expected) = (vec![0; page_bytes], vec![0; page_bytes]);
        for (lpn, versions) in (0..).zip(&mut self.versions) {
            let found = match read(Lpn(lpn), &mut page) {
                Ok(true) => {
                    let version = u64::from_le_bytes(page[..8].try_into().expect("8 bytes"));
                    content(lpn, version, &mut expected);
                    if page != expected {
                        return Err(format!("page {lpn} holds what was never written to it"));
                    }
                    Some(version)
                }
                Ok(false) => None,
                Err(error) => return Err(format!("page {lpn} cannot be read: {error}")),
            };
            let Some(at) = versions.iter().position(|version| *version == found) else {
                return Err(format!("page {lpn} holds {found:?}, allowed is {versions:?}"));
            };
            *versions = vec![versions[at]];
        }
        Ok(())
    }
}
