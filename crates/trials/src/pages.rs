//! Disks, page-mapped and hybrid-mapped, on devices whose calls fail for a moment.

use crate::device::{Host, draw};
use crate::oracle::content;
use crate::setup::holds;
use crate::trouble::{Manners, Refusal, Watch, insist};
use crate::{Oracle, Step};
use margay_flash::Lpn;
use margay_format::Formatted;
use margay_hybrid::{Hybrid, HybridError};
use margay_log::Hint;
use margay_volume::{Disk, VolumeError};

/// A disk as its host uses it.
pub(crate) trait PageStore {
    fn page_bytes(&self) -> usize;
    fn write(&mut self, lpn: u32, page: &[u8], time_us: u64) -> Result<(), Refusal>;
    fn trim(&mut self, lpn: u32, time_us: u64) -> Result<(), Refusal>;
    fn flush(&mut self) -> Result<(), Refusal>;
    fn idle(&mut self) -> Result<(), Refusal>;
    /// Pages may be kept in memory from now on, or not any more.
    fn hold(&mut self, on: bool) -> Result<(), Refusal>;
    /// Reads a page; false if it was never written or was trimmed.
    fn read(&mut self, lpn: u32, page: &mut [u8]) -> Result<bool, Refusal>;
    fn audit(&mut self) -> Result<(), String>;
    fn host(&mut self) -> &mut Host;
}

pub(crate) fn refused(error: VolumeError) -> Refusal {
    let is_worn_out = matches!(error, VolumeError::Ftl(margay_ftl::FtlError::WornOut { .. }));
    let is_read_only = error.is_read_only() && !is_worn_out;
    Refusal { device: error.of_device(), is_read_only, text: error.to_string() }
}

fn hybrid_refused(error: HybridError) -> Refusal {
    let device = if let HybridError::Flash(error) = error { Some(error) } else { None };
    Refusal { device, is_read_only: false, text: error.to_string() }
}

impl PageStore for Disk<&mut Host> {
    fn page_bytes(&self) -> usize {
        self.superblock().geometry.page_bytes() as usize
    }

    fn write(&mut self, lpn: u32, page: &[u8], time_us: u64) -> Result<(), Refusal> {
        Self::write(self, lpn, page, Hint::None, time_us).map_err(refused)
    }

    fn trim(&mut self, lpn: u32, time_us: u64) -> Result<(), Refusal> {
        Self::trim(self, lpn, time_us).map_err(refused)
    }

    fn flush(&mut self) -> Result<(), Refusal> {
        Self::flush(self).map_err(refused)
    }

    fn idle(&mut self) -> Result<(), Refusal> {
        while Self::idle(self, 3).map_err(refused)? {}
        Ok(())
    }

    fn hold(&mut self, on: bool) -> Result<(), Refusal> {
        Self::hold(self, on).map_err(refused)
    }

    fn read(&mut self, lpn: u32, page: &mut [u8]) -> Result<bool, Refusal> {
        Self::read(self, lpn, page).map_err(refused)
    }

    fn audit(&mut self) -> Result<(), String> {
        Self::audit(self).map_err(|error| error.to_string())
    }

    fn host(&mut self) -> &mut Host {
        self.device_mut()
    }
}

impl PageStore for Hybrid<Formatted<&mut Host>> {
    fn page_bytes(&self) -> usize {
        crate::hybrid::PAGE_BYTES
    }

    fn write(&mut self, lpn: u32, page: &[u8], _: u64) -> Result<(), Refusal> {
        self.write_alone(Lpn(lpn), page).map_err(hybrid_refused)
    }

    fn trim(&mut self, _: u32, _: u64) -> Result<(), Refusal> {
        unreachable!("the scripts of hybrid-mapped disks have no trims")
    }

    fn flush(&mut self) -> Result<(), Refusal> {
        self.sync().map_err(hybrid_refused)
    }

    fn idle(&mut self) -> Result<(), Refusal> {
        Ok(())
    }

    fn hold(&mut self, _: bool) -> Result<(), Refusal> {
        Ok(())
    }

    fn read(&mut self, lpn: u32, page: &mut [u8]) -> Result<bool, Refusal> {
        Self::read(self, Lpn(lpn), page).map(|found| found.is_some()).map_err(hybrid_refused)
    }

    fn audit(&mut self) -> Result<(), String> {
        Self::audit(self).map_err(|error| error.to_string())
    }

    fn host(&mut self) -> &mut Host {
        self.store_mut().device_mut()
    }
}

/// Runs the script while calls fail, and flushes; then none fails any more: reads everything, flushes again and goes on
/// writing for a while.
pub(crate) fn suffer<S: PageStore>(
    store: &mut S,
    oracle: &mut Oracle,
    steps: &[Step],
    watch: &mut Watch,
    manners: Manners,
) -> Result<(), String> {
    take(store, oracle, steps, watch, manners.retries)?;
    take(store, oracle, &[Step::Flush], watch, manners.retries)?;
    store.host().inner_mut().inner_mut().heal();
    let mut page = vec![0; store.page_bytes()];
    for lpn in 0..oracle.pages() {
        let found = store.read(lpn, &mut page);
        let found =
            found.map_err(|refusal| format!("page {lpn} cannot be read while the store lives: {}", refusal.text))?;
        oracle.check_live(lpn, found.then_some(&page))?;
    }
    store.audit().map_err(|error| format!("while the store lives, {error}"))?;
    let more: Vec<_> = (0..oracle.pages()).step_by(2).map(|lpn| Step::Write(lpn, false)).collect();
    take(store, oracle, &[Step::Flush], watch, 0)?;
    take(store, oracle, &more, watch, 0).map_err(|error| format!("going on, {error}"))?;
    take(store, oracle, &[Step::Flush], watch, 0)
}

/// Carries out steps, reads a page after each, and tells the oracle.
fn take<S: PageStore>(
    store: &mut S,
    oracle: &mut Oracle,
    steps: &[Step],
    watch: &mut Watch,
    retries: u32,
) -> Result<(), String> {
    let mut page = vec![0; store.page_bytes()];
    for (number, step) in (0..).zip(steps) {
        let time_us = number * 1000;
        if let Some(on) = holds(number) {
            insist(store, watch, retries, S::host, |store| store.hold(on))?;
        }
        match *step {
            Step::Write(lpn, _) => {
                let version = oracle.attempt(lpn);
                content(lpn, version, &mut page);
                match insist(store, watch, retries, S::host, |store| store.write(lpn, &page, time_us))? {
                    Some(()) => oracle.written(lpn),
                    None => oracle.refused(lpn),
                }
            }
            Step::Trim(first, end) => {
                for lpn in first..end {
                    oracle.attempt_trim(lpn);
                    match insist(store, watch, retries, S::host, |store| store.trim(lpn, time_us))? {
                        Some(()) => oracle.trimmed(lpn),
                        None => oracle.refused(lpn),
                    }
                }
            }
            Step::Flush => {
                if insist(store, watch, retries, S::host, S::flush)?.is_some() {
                    watch.flushed(store.host())?;
                    oracle.all_durable();
                }
            }
            Step::Idle => drop(insist(store, watch, retries, S::host, S::idle)?),
        }
        let lpn = draw(number, 7) as u32 % oracle.pages();
        if let Some(found) = insist(store, watch, 0, S::host, |store| store.read(lpn, &mut page))? {
            oracle.check_live(lpn, found.then_some(&page))?;
        }
    }
    Ok(())
}
