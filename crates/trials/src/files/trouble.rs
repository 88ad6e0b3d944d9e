//! Calls of the device that fail for a moment, under a file system.

use super::model::{Oracle, Step, Tried, apply, run, script};
use super::{FilePolicies, FileSystem, PAGE_BYTES, Setup, Trial};
use crate::device::{Host, draw};
use crate::trouble::{Manners, Refusal, Troubled, Troubles, Watch, insist, trouble};
use crate::{Chip, Tally};
use margay_flash::Flash;
use margay_fs::{FsError, NewObject, ObjectKind, ROOT};
use margay_log::LogError;

/// Lets calls fail for a moment as [`crate::disk_troubles`] does. A program that is refused to the end gives up: names
/// and data are then as before the step or as it was to make them.
pub fn file_troubles(chip: Chip, policies: FilePolicies, seed: u64, len: usize, stride: u64, tries: u64) -> Tally {
    let trial = Trial { setup: Setup::new(chip, policies), seed, len };
    trouble(&trial, Troubles { seed, stride, tries })
}

fn refused(error: FsError) -> Refusal {
    let device = if let FsError::Log(LogError::Flash(error)) = error { Some(error) } else { None };
    Refusal { device, is_read_only: error == FsError::ReadOnly, text: error.to_string() }
}

type Files<'d> = FileSystem<'d, Host>;

fn host<'a>(fs: &'a mut Files<'_>) -> &'a mut Host {
    fs.device_mut().device_mut()
}

/// Syncs; then everything is durable, but it is open what became of the step at which the program `gave_up`.
fn sync(
    fs: &mut Files<'_>,
    oracle: &mut Oracle,
    watch: &mut Watch,
    retries: u32,
    gave_up: Option<&Tried>,
) -> Result<(), String> {
    if insist(fs, watch, retries, host, |fs| fs.sync().map_err(refused))?.is_some() {
        watch.flushed(host(fs))?;
        match gave_up {
            Some(tried) => oracle.all_durable_but(tried),
            None => oracle.all_durable(),
        }
    }
    Ok(())
}

/// Reads one file.
fn read_one(fs: &mut Files<'_>, oracle: &Oracle, watch: &mut Watch, number: u64) -> Result<(), String> {
    let files: Vec<_> = oracle.tree().iter().filter(|(_, (is_directory, _))| !is_directory).collect();
    if files.is_empty() {
        return Ok(());
    }
    let (path, (_, id)) = files[draw(number, 3) as usize % files.len()];
    let content = oracle.content(*id);
    let mut data = vec![0; content.len() + 1];
    let Ok(attributes) = fs.resolve(path) else {
        let name = String::from_utf8_lossy(path);
        return Err(format!("a name is gone while the store lives: {name} of file {id}"));
    };
    let file = attributes.object;
    let read = insist(fs, watch, 0, host, |fs| fs.read(file, 0, &mut data).map_err(refused))?;
    if read.is_some_and(|len| data[..len] != content[..]) {
        return Err(format!("file {id} holds something else while the store lives"));
    }
    Ok(())
}

impl Troubled for Trial {
    fn suffer(
        &self,
        device: &mut Host,
        oracle: &mut Oracle,
        watch: &mut Watch,
        manners: Manners,
    ) -> Result<(), String> {
        let mut tries = 0;
        let mut fs = loop {
            match self.setup.remount(&mut *device) {
                Ok(fs) => break fs,
                Err(error) => watch.failed_mount(device, tries, error)?,
            }
            tries += 1;
        };
        let mut gave_up = None;
        for (number, step) in (0..).zip(script(self.len, self.seed)) {
            oracle.operations += 1;
            let before = oracle.clone();
            let mut tries = 0;
            let mut furthest: Option<Oracle> = None;
            let done = insist(&mut fs, watch, manners.retries, host, |fs| {
                *oracle = before.clone();
                tries += 1;
                match apply(fs, oracle, step) {
                    // Refused: nothing may have changed.
                    Ok(()) | Err(FsError::NoSpace) => Ok(()),
                    // An error says nothing of the effect: the first try may have done it.
                    Err(FsError::Exists | FsError::NotFound) if tries > 1 => Ok(()),
                    Err(error) => {
                        let len = |oracle: &Oracle| oracle.tried_since(&before).len();
                        if furthest.as_ref().is_none_or(|furthest| len(furthest) < len(oracle)) {
                            furthest = Some(oracle.clone());
                        }
                        Err(refused(error))
                    }
                }
            })?;
            // An earlier try may have done what a later one was refused for want of room.
            let may_be_done = furthest.as_ref().is_some_and(|furthest| furthest.tried_since(&before).len() > 0);
            let is_unsure = done.is_none() || may_be_done && oracle.tried_since(&before).len() == 0;
            if is_unsure && let Some(furthest) = furthest {
                *oracle = furthest;
            }
            if is_unsure {
                gave_up = Some(oracle.tried_since(&before));
                break;
            }
            if matches!(step, Step::Sync) {
                watch.flushed(host(&mut fs))?;
            }
            read_one(&mut fs, oracle, watch, number)?;
        }
        sync(&mut fs, oracle, watch, manners.retries, gave_up.as_ref())?;
        host(&mut fs).inner_mut().inner_mut().heal();
        let mut now = oracle.clone();
        match &gave_up {
            Some(tried) => now.all_durable_but(tried),
            None => now.all_durable(),
        }
        now.check(&mut fs).map_err(|error| format!("while the store lives, {error}"))?;
        fs.audit().map_err(|error| format!("while the store lives, {error}"))?;
        sync(&mut fs, oracle, watch, 0, gave_up.as_ref())?;
        if gave_up.is_none() && !watch.is_stopped {
            let more = run(&mut fs, oracle, &script(30, self.seed ^ 0x60));
            let more = more.map_err(refused);
            watch.judge(host(&mut fs), more).map_err(|error| format!("going on, {error}"))?;
            if !watch.is_stopped {
                sync(&mut fs, oracle, watch, 0, None)?;
            }
        }
        if manners.stops {
            let stopped = fs.stop().map_err(refused);
            if watch.judge(host(&mut fs), stopped)?.is_some() {
                watch.flushed(host(&mut fs))?;
                match &gave_up {
                    Some(tried) => oracle.all_durable_but(tried),
                    None => oracle.all_durable(),
                }
            }
        }
        Ok(())
    }

    fn endure(&self, device: &mut Host) -> Result<(), String> {
        let pages = device.geometry().pages();
        let mut fs = self.setup.remount(device)?;
        overwrite(&mut fs, pages).map_err(|error| format!("writing three times the capacity: {error}"))
    }
}

/// Removes everything, and overwrites a small file until three times as much was written as there is room.
fn overwrite(fs: &mut Files<'_>, pages: u32) -> Result<(), FsError> {
    for named in fs.list(ROOT)? {
        let (name, attributes) = named;
        if attributes.kind == ObjectKind::Directory {
            for (inner, _) in fs.list(attributes.object)? {
                fs.unlink(attributes.object, &inner)?;
            }
            fs.rmdir(ROOT, &name)?;
        } else {
            fs.unlink(ROOT, &name)?;
        }
    }
    fs.sync()?;
    let file = fs.create(ROOT, b"overwritten", &NewObject::FILE)?.object;
    for number in 0..3 * pages {
        let at = u64::from(number % 8) * PAGE_BYTES as u64;
        fs.write(file, at, &[number as u8; PAGE_BYTES])?;
        if number % 64 == 0 {
            fs.sync()?;
        }
    }
    fs.sync()
}
