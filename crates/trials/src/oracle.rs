use margay_flash::{Flash, Lpn};
use margay_volume::Disk;

/// What every page may hold: all that was attempted since the last that is durable.
#[derive(Clone, Debug)]
pub struct Oracle {
    /// By page, its versions from the durable one on; `None` is trimmed or never written.
    versions: Vec<Vec<Option<u64>>>,
    /// By page, how many of the last versions were refused: they may be there all the same.
    refused: Vec<usize>,
    next: u64,
    /// What is written is durable after a flush only.
    is_cached: bool,
    /// All that was tried since the last flush, in order, if what is found must be the state after some of it.
    history: Option<Vec<(u32, Option<u64>)>>,
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
        let (versions, refused) = (vec![vec![None]; pages as usize], vec![0; pages as usize]);
        Self { versions, refused, next: 1, is_cached: false, history: None }
    }

    /// The same for a device that [`Flash::is_cached`] or is not.
    #[must_use]
    pub fn cached(mut self, is_cached: bool) -> Self {
        self.is_cached = is_cached;
        self
    }

    /// The same for a disk that is recovered as it was at some moment since the last flush, and not page by page.
    #[must_use]
    pub fn in_order(mut self) -> Self {
        self.history = Some(Vec::new());
        self
    }

    /// The same without that demand, from now on.
    #[must_use]
    pub fn in_any_order(mut self) -> Self {
        self.history = None;
        self
    }

    /// Number of pages.
    pub fn pages(&self) -> u32 {
        self.versions.len() as u32
    }

    /// A write is going to be tried; its version.
    pub fn attempt(&mut self, lpn: u32) -> u64 {
        let version = self.next;
        self.next += 1;
        self.attempt_version(lpn, Some(version));
        version
    }

    fn attempt_version(&mut self, lpn: u32, version: Option<u64>) {
        self.versions[lpn as usize].push(version);
        self.history.iter_mut().for_each(|history| history.push((lpn, version)));
    }

    /// A trim is going to be tried.
    pub fn attempt_trim(&mut self, lpn: u32) {
        self.attempt_version(lpn, None);
    }

    /// The trim of a page that was tried last has returned without an error.
    pub fn trimmed(&mut self, lpn: u32) {
        self.refused[lpn as usize] = 0;
    }

    /// The write of a page that was tried last has returned without an error.
    pub fn written(&mut self, lpn: u32) {
        self.refused[lpn as usize] = 0;
        if !self.is_cached {
            self.durable(lpn);
        }
    }

    /// What was tried last for a page has returned with an error.
    pub fn refused(&mut self, lpn: u32) {
        self.refused[lpn as usize] += 1;
    }

    /// All that was tried for a page is durable; what was refused may be.
    fn durable(&mut self, lpn: u32) {
        let versions = &mut self.versions[lpn as usize];
        versions.drain(..versions.len() - 1 - self.refused[lpn as usize].min(versions.len() - 1));
    }

    /// All that was tried is durable.
    pub fn all_durable(&mut self) {
        (0..self.pages()).for_each(|lpn| self.durable(lpn));
        self.history.iter_mut().for_each(Vec::clear);
    }

    /// Compares a page that was read while nothing was lost (`None`: it was never written, or trimmed): it is as last
    /// written, or as refused since.
    pub fn check_live(&self, lpn: u32, page: Option<&[u8]>) -> Result<(), String> {
        let versions = &self.versions[lpn as usize];
        let newest = &versions[versions.len().saturating_sub(1 + self.refused[lpn as usize])..];
        let found = page.map(|page| u64::from_le_bytes(page[..8].try_into().expect("8 bytes")));
        let mut expected = vec![0; page.map_or(0, <[u8]>::len)];
        content(lpn, found.unwrap_or_default(), &mut expected);
        if !newest.contains(&found) || page.is_some_and(|page| page != expected) {
            let silent = if found.is_none() { "zeros, without an error; " } else { "" };
            return Err(format!("page {lpn} holds {found:?} while the store lives: {silent}allowed is {newest:?}"));
        }
        Ok(())
    }

    /// The latest version that was tried for a page.
    pub fn newest(&self, lpn: u32) -> Option<u64> {
        self.versions[lpn as usize].last().copied().flatten()
    }

    /// A page has gone back to an older version, and the disk said that one may have.
    pub fn went_back(&mut self, lpn: u32, to: Option<u64>) {
        assert!(to < self.newest(lpn), "page {lpn} went back to {to:?}");
        self.versions[lpn as usize] = vec![to];
        self.refused[lpn as usize] = 0;
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
        let mut all = Vec::new();
        let (mut page, mut expected) = (vec![0; page_bytes], vec![0; page_bytes]);
        for (lpn, versions) in (0..).zip(&self.versions) {
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
                    all.push(None);
                    continue;
                }
            };
            if !versions.contains(&found) {
                let silent = if found.is_none() { "zeros, without an error; " } else { "" };
                return Err(format!("page {lpn} holds {found:?}: {silent}allowed is {versions:?}"));
            }
            all.push(Some(found));
        }
        if lost.is_empty() {
            self.check_order(&all)?;
            self.history.iter_mut().for_each(Vec::clear);
        }
        for ((versions, refused), found) in self.versions.iter_mut().zip(&mut self.refused).zip(all) {
            if let Some(found) = found {
                (*versions, *refused) = (vec![found], 0);
            }
        }
        Ok(lost)
    }

    /// Whether what was found is the state after some of what was tried, and nothing of what came after that. A trim
    /// may be undone until a flush.
    fn check_order(&self, found: &[Option<Option<u64>>]) -> Result<(), String> {
        let Some(history) = &self.history else { return Ok(()) };
        // By page, its last version and whether it was trimmed since.
        let mut state: Vec<_> = self.versions.iter().map(|versions| (versions[0], false)).collect();
        let is_wrong = |lpn: usize, (version, is_trimmed): (Option<u64>, bool)| match found[lpn] {
            Some(None) if is_trimmed => false,
            found => found != Some(version),
        };
        let mut wrong = (0..state.len()).filter(|lpn| is_wrong(*lpn, state[*lpn])).count();
        for (lpn, version) in history {
            let lpn = *lpn as usize;
            if wrong == 0 {
                break;
            }
            wrong -= usize::from(is_wrong(lpn, state[lpn]));
            state[lpn] = if version.is_none() { (state[lpn].0, true) } else { (*version, false) };
            wrong += usize::from(is_wrong(lpn, state[lpn]));
        }
        if wrong == 0 {
            return Ok(());
        }
        let newest = found.iter().flatten().flatten().max();
        Err(format!("the pages are not as they were at any moment since the last flush (the newest holds {newest:?})"))
    }
}
