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

    /// The latest version that was tried for a page.
    pub fn newest(&self, lpn: u32) -> Option<u64> {
        self.versions[lpn as usize].last().copied().flatten()
    }

    /// A page has gone back to an older version, and the disk said that one may have.
    pub fn went_back(&mut self, lpn: u32, to: Option<u64>) {
        assert!(to < self.newest(lpn), "page {lpn} went back to {to:?}");
        self.versions[lpn as usize] = vec![to];
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
        let unreadable = self.check_readable_pages(page_bytes, |lpn, page| match read(lpn, page) {
            Ok(found) => Ok(Some(found)),
            Err(error) => Err(format!("page {lpn} cannot be read: {error}")),
        })?;
        assert!(unreadable.is_empty(), "a page that cannot be read was an error above");
        Ok(())
    }

    /// The same where pages may be lost: reading such a page gives `None`. Returns the pages that are lost; what they
    /// may hold stays as it was.
    pub fn check_readable_pages(
        &mut self,
        page_bytes: usize,
        mut read: impl FnMut(Lpn, &mut [u8]) -> Result<Option<bool>, String>,
    ) -> Result<Vec<u32>, String> {
        let mut lost = Vec::new();
        let (mut page, mut expected) = (vec![0; page_bytes], vec![0; page_bytes]);
        for (lpn, versions) in (0..).zip(&mut self.versions) {
            let found = match read(Lpn(lpn), &mut page)? {
                Some(true) => {
                    let version = u64::from_le_bytes(page[..8].try_into().expect("8 bytes"));
                    content(lpn, version, &mut expected);
                    if page != expected {
                        return Err(format!("page {lpn} holds what was never written to it"));
                    }
                    Some(version)
                }
                Some(false) => None,
                None => {
                    lost.push(lpn);
                    continue;
                }
            };
            let Some(at) = versions.iter().position(|version| *version == found) else {
                return Err(format!("page {lpn} holds {found:?}, allowed is {versions:?}"));
            };
            *versions = vec![versions[at]];
        }
        Ok(lost)
    }
}
