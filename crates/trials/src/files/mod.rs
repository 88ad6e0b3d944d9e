//! Campaigns under a file system.

mod damage;
mod model;
mod trouble;

use crate::device::TrialDevice;
use crate::enumerate::{Cuts, TrialTarget, enumerate};
use crate::power::is_power_lost;
use crate::setup::store_options;
use crate::trouble::FOUND_PROBLEM;
use crate::unordered::unordered;
use crate::{Chip, Tally};
pub use damage::{file_bad_segments, file_bit_errors, file_wear_out};
use margay_flash::{Flash, FlashError, Geometry};
use margay_fs::{AllocatorSpec, FsError};
use margay_log::LogError;
use margay_policy::{LevelingSpec, SelectionSpec};
use margay_volume::{Files, FilesFormatOptions, FilesOpenOptions, StoreOptions, VolumeError, format_files, open_files};
use model::{Oracle, Step, run, script};
use std::fmt;
pub use trouble::file_troubles;

/// Bits that the ECC of the trials corrects.
const ECC_BITS: u32 = 4;
/// Bytes of a page of the device.
const PAGE_BYTES: usize = 512;

/// Cuts the power at every `stride`-th program and erase of a script of file operations, in every way, and for every
/// `second_stride`-th of these at every operation of the recovery. After each, the names must be those after some
/// operation since the last sync, with what was synced by then, and every page of every file must hold what it held
/// at some time since it was synced.
pub fn file_power_cuts(
    chip: Chip,
    policies: FilePolicies,
    seed: u64,
    len: usize,
    stride: u64,
    second_stride: u64,
) -> Tally {
    let subject = Trial { setup: Setup::new(chip, policies), seed, len };
    enumerate(&subject, Cuts { seed, stride, second_stride })
}

/// The same on a file that a host caches, with `losses` different losses for each cut.
pub fn file_host_power_cuts(
    chip: Chip,
    policies: FilePolicies,
    seed: u64,
    len: usize,
    stride: u64,
    second_stride: u64,
    losses: usize,
) -> Tally {
    let subject = Trial { setup: Setup::new(chip, policies), seed, len };
    unordered(&subject, Cuts { seed, stride, second_stride }, losses)
}

/// The policies of a file system under a campaign.
#[derive(Clone, Copy, Debug)]
pub struct FilePolicies {
    selection: SelectionSpec,
    leveling: LevelingSpec,
    allocator: AllocatorSpec,
}

impl FilePolicies {
    /// Each allocator that is made for files, and the policies that file systems are formatted with, which level wear soon.
    pub fn all() -> impl Iterator<Item = Self> {
        let with = |allocator| Self {
            selection: SelectionSpec::known("greedy"),
            leveling: LevelingSpec::known("none"),
            allocator,
        };
        let FilesFormatOptions { store, allocator } = FilesFormatOptions::default();
        let leveling = LevelingSpec::known("threshold:spread=3");
        let usual = Self { selection: store.selection, leveling, allocator };
        AllocatorSpec::made_for_files().map(with).chain([usual])
    }
}

impl fmt::Display for FilePolicies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.selection.name(), self.allocator.name())
    }
}

struct Setup {
    chip: Chip,
    policies: FilePolicies,
    geometry: Geometry,
}

type FileSystem<'d, D> = Files<&'d mut D>;

impl Setup {
    fn new(chip: Chip, policies: FilePolicies) -> Self {
        Self { chip, policies, geometry: chip.geometry(22, 8) }
    }

    fn format<'d, D: Flash>(&self, device: &'d mut D) -> Result<FileSystem<'d, D>, VolumeError> {
        let FilePolicies { selection, leveling, allocator } = self.policies;
        let store = StoreOptions { selection, leveling, ..store_options(self.chip, "greedy", "none") };
        format_files(device, &FilesFormatOptions { store, allocator })
    }

    /// Mounts; `None` if the power was lost.
    fn mount<'d, D: Flash>(&self, device: &'d mut D) -> Result<Option<FileSystem<'d, D>>, String> {
        match open_files(device, &FilesOpenOptions::default()) {
            Ok(opened) => match opened.problems.first() {
                Some(problem) => Err(format!("{FOUND_PROBLEM}: {problem}")),
                None => Ok(Some(opened.files)),
            },
            Err(error) if is_power_lost(&error) => Ok(None),
            Err(error) => Err(format!("mount: {error}")),
        }
    }

    /// Mounts a device whose power is on.
    fn remount<'d, D: Flash>(&self, device: &'d mut D) -> Result<FileSystem<'d, D>, String> {
        self.mount(device)?.ok_or_else(|| "the power is on and was lost".into())
    }
}

const LOST: FsError = FsError::Log(LogError::Flash(FlashError::PowerLost));

struct Trial {
    setup: Setup,
    seed: u64,
    len: usize,
}

impl TrialTarget for Trial {
    type Oracle = Oracle;

    fn seed(&self) -> u64 {
        self.seed
    }

    fn name(&self) -> String {
        format!("files, {:?} {}", self.setup.chip, self.setup.policies)
    }

    fn geometry(&self) -> Geometry {
        self.setup.geometry
    }

    fn base<D: TrialDevice>(&self, mut device: D, clean: bool) -> (D, Oracle) {
        let setup = &self.setup;
        let mut oracle = Oracle::new();
        let mut fs = setup.format(&mut device).expect("format");
        let mut steps = script(400, self.seed ^ 0xBA5E);
        steps.push(Step::Sync);
        run(&mut fs, &mut oracle, &steps).expect("filling");
        if clean {
            fs.stop().expect("stop");
        }
        drop(fs);
        device.next_life();
        (device, oracle)
    }

    fn run<D: TrialDevice>(&self, device: &mut D, oracle: &mut Oracle) -> Result<bool, String> {
        let Some(mut fs) = self.setup.mount(device)? else { return Ok(false) };
        let steps = script(self.len, self.seed);
        match run(&mut fs, oracle, &steps).and_then(|()| fs.stop()) {
            Ok(_) => Ok(true),
            Err(LOST) => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    fn mount<D: TrialDevice>(&self, device: &mut D) -> Result<bool, String> {
        let lasted = self.setup.mount(device)?.is_some();
        Ok(lasted && !device.is_off())
    }

    fn check<D: TrialDevice>(&self, device: &mut D, oracle: &mut Oracle, when: &str) -> Result<(), String> {
        let mut fs = self.setup.remount(device)?;
        oracle.check(&mut fs).map_err(|error| format!("{when}, {error}"))?;
        fs.audit().map_err(|error| format!("{when}, {error}"))
    }

    fn go_on<D: TrialDevice>(&self, device: &mut D, oracle: &mut Oracle) -> Result<(), String> {
        let is_cached = self.setup.chip.needs_flush(device.is_cached());
        let mut fs = self.setup.remount(device)?;
        let more = script(150, self.seed ^ 0x0DD);
        run(&mut fs, oracle, &more).map_err(|error| format!("going on: {error}"))?;
        fs.audit().map_err(|error| format!("after going on, {error}"))?;
        fs.sync().map_err(|error| format!("the last sync: {error}"))?;
        oracle.all_durable();
        oracle.check(&mut fs).map_err(|error| format!("after going on, {error}"))?;
        if is_cached {
            let unsynced = script(10, self.seed ^ 0xADD);
            run(&mut fs, oracle, &unsynced).map_err(|error| format!("going on after the last sync: {error}"))?;
        }
        Ok(())
    }
}
