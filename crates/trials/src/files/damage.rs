//! Segments that go bad and bits that flip, under a file system.

use super::model::{Oracle, object, run, script};
use super::{ECC_BITS, FilePolicies, PAGE_BYTES, Setup};
use crate::faults::LifeEnd;
use crate::{Chip, Tally};
use margay_flash::FlashError;
use margay_fs::FsError;
use margay_log::LogError;
use margay_media::{Faults, RamFlash, Strict};

/// Lets every `stride`-th program and erase of a script of file operations fail, and a second one soon after: the file
/// system must go on, and hold everything after a clean stop and without one.
pub fn file_bad_segments(chip: Chip, policies: FilePolicies, seed: u64, len: usize, stride: u64) -> Tally {
    let setup = Setup::new(chip, policies);
    let mut tally = Tally::default();
    let (programs, erases) = match bad_segments_trial(&setup, seed, len, |_| {}) {
        Ok(operations) => operations,
        Err(error) => {
            tally.count(Err(error), || format!("files, {chip:?} {policies} without a fault"));
            return tally;
        }
    };
    for second in [0, 1, 5] {
        for (kind, count, stride) in [("program", programs, stride), ("erase", erases, stride.div_ceil(4))] {
            for at in (0..count).step_by(stride as usize) {
                let result = bad_segments_trial(&setup, seed, len, |device| {
                    let fail = if kind == "program" { Chips::fail_program } else { Chips::fail_erase };
                    fail(device, at);
                    fail(device, at + second);
                });
                let name = || format!("files, {chip:?} {policies} {kind} {at} fails, and one {second} later");
                tally.count(result.map(drop), name);
            }
        }
    }
    tally
}

type Chips = Faults<Strict<RamFlash>>;

fn bad_segments_trial(setup: &Setup, seed: u64, len: usize, fail: impl Fn(&mut Chips)) -> Result<(u64, u64), String> {
    let mut device: Chips = Faults::new(Strict::new(RamFlash::new(setup.geometry)), ECC_BITS);
    fail(&mut device);
    let mut oracle = Oracle::new();
    let text = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
    let mut fs = setup.format(&mut device).map_err(|error| text("format", &error))?;
    for (round, what) in ["after the format", "after a clean stop", "without a stop"].into_iter().enumerate() {
        if round > 0 {
            fs = setup.remount(&mut device).map_err(|error| text(what, &error))?;
            oracle.check(&mut fs).map_err(|error| text(what, &error))?;
        }
        run(&mut fs, &mut oracle, &script(len, seed + round as u64)).map_err(|error| text(what, &error))?;
        fs.sync().map_err(|error| text(what, &error))?;
        fs.audit().map_err(|error| text(what, &error))?;
        oracle.all_durable();
        oracle.check(&mut fs).map_err(|error| text(what, &error))?;
        if round == 0 {
            fs.stop().map_err(|error| text(what, &error))?;
        }
    }
    drop(fs);
    Ok(device.operations())
}

/// Wears a device out under a file system: it works until it refuses; then, and after a mount, everything that was synced
/// must be there. With an even seed it is used for many lives, which end by a clean stop or by a kill.
pub fn file_wear_out(chip: Chip, policies: FilePolicies, seed: u64) -> Tally {
    let mut tally = Tally::default();
    let result = wear_out_trial(&Setup::new(chip, policies), seed);
    tally.count(result, || format!("files, {chip:?} {policies} worn out, seed {seed}"));
    tally
}

fn wear_out_trial(setup: &Setup, seed: u64) -> Result<(), String> {
    let mut device: Chips = Faults::new(Strict::new(RamFlash::new(setup.geometry)), ECC_BITS);
    device.wear_out_after(12);
    let mut oracle = Oracle::new();
    let mut fs = setup.format(&mut device).map_err(|error| format!("format: {error}"))?;
    let mut round = 0;
    let refused = loop {
        let end = LifeEnd::after(round, seed);
        let work = run(&mut fs, &mut oracle, &script(100, seed << 10 | round)).and_then(|()| match end {
            LifeEnd::Kill => Ok(()),
            LifeEnd::GoesOn => fs.sync(),
            LifeEnd::Stop => fs.stop().map(drop),
        });
        if let Err(error) = work {
            break error;
        }
        if end != LifeEnd::Kill {
            oracle.all_durable();
        }
        if end != LifeEnd::GoesOn {
            drop(fs);
            fs = setup.remount(&mut device).map_err(|error| format!("life {round}, {end:?}: {error}"))?;
            oracle.check(&mut fs).map_err(|error| format!("life {round}, {end:?}: {error}"))?;
        }
        round += 1;
        if round == 1000 {
            return Err("it never wore out".into());
        }
    };
    // The last mount may have found it worn out.
    if !matches!(refused, FsError::NoSpace | FsError::ReadOnly | FsError::Log(LogError::NoSpace { .. })) {
        return Err(format!("refused with: {refused}"));
    }
    fs.audit().map_err(|error| format!("audit: {error}"))?;
    oracle.clone().check(&mut fs).map_err(|error| format!("before a mount, {error}"))?;
    drop(fs);
    for what in ["a mount", "a stop after it"] {
        let mut fs = setup.remount(&mut device)?;
        oracle.check(&mut fs).map_err(|error| format!("after {what}, {error}"))?;
        match fs.stop() {
            // With summaries it takes a page to make durable what the mount itself has written.
            Err(FsError::Log(LogError::NoSpace { .. })) if setup.chip == Chip::Summaries => {}
            end => drop(end.map_err(|error| format!("the last stop: {error}"))?),
        }
    }
    Ok(())
}

/// Flips as many bits as the ECC corrects in every page of every file: they must be read, and be rewritten in idle time.
/// Then one bit more in one page after the other: that page must be an error, and every other must be read.
pub fn file_bit_errors(chip: Chip, policies: FilePolicies, seed: u64) -> Tally {
    let setup = Setup::new(chip, policies);
    let mut tally = Tally::default();
    let name = |what: String| move || format!("files, {chip:?} {policies} {what}");
    if let Err(error) = bit_errors_trials(&setup, seed, &mut |what, result| tally.count(result, name(what))) {
        tally.count(Err(error), name("setup".into()));
    }
    tally
}

fn bit_errors_trials(
    setup: &Setup,
    seed: u64,
    count: &mut dyn FnMut(String, Result<(), String>),
) -> Result<(), String> {
    let text = |error: FsError| error.to_string();
    let mut device: Chips = Faults::new(Strict::new(RamFlash::new(setup.geometry)), ECC_BITS);
    let mut oracle = Oracle::new();
    let mut fs = setup.format(&mut device).map_err(|error| error.to_string())?;
    run(&mut fs, &mut oracle, &script(200, seed)).and_then(|()| fs.sync()).map_err(text)?;
    let files: Vec<(u32, u32)> = oracle
        .tree()
        .iter()
        .filter(|(_, (is_directory, _))| !is_directory)
        .map(|(path, (_, id))| (object(&fs, path), *id))
        .collect();
    let mut page = [0; PAGE_BYTES];
    for (file, id) in &files {
        let content = oracle.content(*id).clone();
        for (chunk, bytes) in (0..).zip(content.chunks(PAGE_BYTES)) {
            let Some(ppn) = fs.place(*file, chunk) else { continue };
            let at = u64::from(chunk) * PAGE_BYTES as u64;
            fs.device_mut().device_mut().flip_bits(setup.chip.data_page(ppn), ECC_BITS);
            let read = fs.read(*file, at, &mut page).map_err(text);
            let whole = read.and_then(|len| if page[..len] == *bytes { Ok(()) } else { Err("other bytes".into()) });
            let mut result = whole;
            while result.is_ok() && fs.place(*file, chunk) == Some(ppn) {
                match fs.idle_step(8) {
                    Ok(true) => {}
                    Ok(false) => result = Err("the page was not rewritten".into()),
                    Err(error) => result = Err(text(error)),
                }
            }
            count(format!("chunk {chunk} of {id}, corrected"), result);
            let Some(ppn) = fs.place(*file, chunk) else { continue };
            fs.device_mut().device_mut().flip_bits(setup.chip.data_page(ppn), ECC_BITS + 1);
            let lost = match fs.read(*file, at, &mut page) {
                Err(FsError::Log(LogError::Flash(FlashError::Uncorrectable { .. }))) => Ok(()),
                other => Err(format!("reading gave {other:?}")),
            };
            count(format!("chunk {chunk} of {id}, lost"), lost);
            // Writing it anew makes it whole.
            let mut whole = bytes.to_vec();
            whole.resize(PAGE_BYTES.min(content.len() - at as usize), 0);
            fs.device_mut().device_mut().flip_bits(setup.chip.data_page(ppn), 0);
            fs.write(*file, at, &whole).and_then(|_| fs.close(*file)).map_err(text)?;
        }
    }
    oracle.all_durable();
    fs.sync().map_err(text)?;
    count("everything after that".into(), oracle.check(&mut fs));
    count("audit".into(), fs.audit().map_err(|error| error.to_string()));
    Ok(())
}
