//! `margay info`, `check` and `dump`, which open an image read-only.

use super::device::{Progress, Tables, Watched, open_with_stats};
use super::health;
use super::repair::Repaired;
use crate::args::RepairArgs;
use crate::failure::{Failure, of_volume};
use crate::output::print_bytes;
use comfy_table::Table;
use margay_flash::{Flash, Ppn, SegmentId};
use margay_policy::{Segments, State};
use margay_volume::{OpenOptions, Volume, check as check_volume, dump_segment, find, may_exceed_bound};
use std::fmt::Write as _;
use std::path::Path;

fn device(image: &Path) -> Result<(Watched, Progress), Failure> {
    Watched::open(image, true, Tables::Disk)
}

/// Number of bars in the histogram of erase counts.
const BARS: u32 = 8;

pub fn info(image: &Path, json: bool) -> Result<(), Failure> {
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let (device, stats) = open_with_stats(image, true, false)?;
    let (device, progress) = Watched::checked(image, device, Tables::Disk)?;
    let volume = Volume::open(device, &options).map_err(|error| of_volume(image, &error))?;
    drop(progress);
    let (status, report) = (volume.status(), volume.mount_report());
    let (superblock, segments) = (status.superblock, status.segments);
    let geometry = superblock.geometry;
    let wa = status.lifetime_write_amplification();
    let others = status.lifetime_programs.saturating_sub(status.lifetime_writes);
    let uuid = uuid::Uuid::from_bytes(superblock.uuid);
    let u = status.uniformity;
    let life = volume.health();
    let reserve = Some(volume.reserve_segments());
    if json {
        let value = serde_json::json!({
            "uuid": uuid.to_string(), "segments": geometry.segments(), "pages_per_segment": geometry.pages_per_segment(),
            "page_bytes": geometry.page_bytes(), "spare_bytes": geometry.spare_bytes(),
            "byte_programmable": geometry.is_byte_programmable(), "capacity_bytes": volume.capacity_bytes(),
            "selection": superblock.selection, "placement": superblock.placement, "leveling": superblock.leveling,
            "most_pages_per_write": superblock.max_pages_per_write, "low_water": superblock.low_water, "page_information": status.layout.place.name(),
            "from_checkpoint": report.from_checkpoint, "mount_reads": report.reads,
            "damaged_pages": report.damaged.len(), "retired_segments": status.retired_segments,
            "host_writes": status.lifetime_writes, "programs": status.lifetime_programs, "write_amplification": wa,
            "copies_and_metadata_pages": others, "total_erases": status.lifetime_erases(), "erases": segments.erases, "utilization": u.utilization, "invalidity": u.invalidity,
            "uniformity": u.uniformity, "memory_bytes": status.memory_bytes,
            "map_memory_bytes": status.map_on_flash.map(|_| superblock.map_memory_bytes),
            "health": health::json(&life, reserve, stats.as_ref()),
        });
        return print_bytes(format!("{value:#}\n").as_bytes());
    }
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<20} {value}");
    };
    line("volume", uuid.to_string());
    line(
        "flash",
        format!(
            "{} segments of {} pages of {} + {} bytes{}",
            geometry.segments(),
            geometry.pages_per_segment(),
            geometry.page_bytes(),
            geometry.spare_bytes(),
            if geometry.is_byte_programmable() { ", byte-programmable" } else { "" }
        ),
    );
    let share = 100.0 * volume.capacity_bytes() as f64 / geometry.bytes() as f64;
    line("disk", format!("{} bytes, {share:.1} % of the flash", volume.capacity_bytes()));
    line(
        "policies",
        format!(
            "selection {}, placement {}, leveling {}",
            superblock.selection, superblock.placement, superblock.leveling
        ),
    );
    line("page tags", status.layout.tags_text().into());
    let exceeds = match may_exceed_bound(superblock) {
        Ok(true) => "; more while room is short, since fewer segments are kept free than the placement fills at a time",
        _ => "",
    };
    line(
        "bound on a write",
        format!("at most {} pages programmed for one host write{exceeds}", superblock.max_pages_per_write),
    );
    let how = if report.from_checkpoint { "from the checkpoint of a clean stop" } else { "no clean stop: mount scan" };
    line("mounted", format!("{how}: {} reads, {} damaged pages", report.reads, report.damaged.len()));
    line("memory", format!("{} bytes", status.memory_bytes));
    line(
        "map",
        match status.map_on_flash {
            Some((held, _)) => {
                format!("on flash, {} bytes of memory for it; {held} of them held now", superblock.map_memory_bytes)
            }
            None => "all of it in memory".into(),
        },
    );
    line("host page writes", format!("{} since it was formatted", status.lifetime_writes));
    line("pages programmed", format!("{}, {others} of them copies and metadata pages", status.lifetime_programs));
    line("segments erased", status.lifetime_erases().to_string());
    line("write amplification", wa.map_or_else(|| "nothing written yet".into(), |wa| format!("{wa:.3}")));
    line(
        "state",
        format!(
            "utilization {:.1} %, invalidity {:.1} %, uniformity {:.1} %",
            100.0 * u.utilization,
            100.0 * u.invalidity,
            100.0 * u.uniformity
        ),
    );
    let age_s = (superblock.created_s > 0).then(|| volume.now_us() / 1_000_000);
    health::lines(&life, reserve, age_s, stats.as_ref()).into_iter().for_each(|(name, text)| line(name, text));
    text.push('\n');
    text.push_str(&streams(segments));
    text.push('\n');
    text.push_str(&wear(segments));
    print_bytes(text.as_bytes())
}

fn streams(segments: &Segments) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header(["stream", "segments", "open", "valid pages"]);
    let streams = segments.stream.iter().copied().max().map_or(0, |last| last + 1);
    for stream in 0..streams {
        let of = |state: State| {
            segments
                .ids()
                .filter(move |id| segments.state[id.index()] == state && segments.stream[id.index()] == stream)
        };
        let (open, sealed) = (of(State::Open).count(), of(State::Sealed).count());
        if open + sealed > 0 {
            let valid: u32 = of(State::Sealed).map(|id| segments.valid[id.index()]).sum();
            table.add_row([stream.to_string(), (open + sealed).to_string(), open.to_string(), valid.to_string()]);
        }
    }
    let free = segments.state.iter().filter(|state| **state == State::Free).count();
    format!("{table}\nfree segments        {free}\n")
}

fn wear(segments: &Segments) -> String {
    let used: Vec<u32> = segments
        .ids()
        .filter(|id| segments.state[id.index()] != State::Reserved)
        .map(|id| segments.erases[id.index()])
        .collect();
    let (Some(min), Some(max)) = (used.iter().min(), used.iter().max()) else { return String::new() };
    let mut text = String::from("segments by erases\n");
    let width = (max - min) / BARS + 1;
    for bar in 0..BARS {
        let (from, to) = (min + bar * width, min + (bar + 1) * width - 1);
        let count = used.iter().filter(|erases| (from..=to).contains(*erases)).count();
        if from <= *max {
            let stars = "#".repeat((count * 50).div_ceil(used.len()));
            let _ = writeln!(text, "  {from:>7} to {to:<7} {count:>7} {stars}");
        }
    }
    text
}

pub fn check(image: &Path, repair: &RepairArgs) -> Result<(), Failure> {
    let (mut device, progress) = Watched::open(image, !repair.repair_in_place, Tables::Check)?;
    let repaired = Repaired::start(image, device.geometry(), repair)?;
    let report = check_volume(&mut device).map_err(|error| of_volume(image, &error))?;
    drop(progress);
    say!("all segments scanned: {} reads, {} pages hold data", report.scan.reads, report.mapped_pages);
    let (verified, rolled_back) = (report.scan.verified, report.scan.rolled_back);
    if verified + rolled_back > 0 {
        say!(
            "programmed after the last sync that is known: {verified} pages count, {rolled_back} do not, because they or pages before them are not whole"
        );
    }
    say!("clean stop: {}", if report.has_checkpoint { "yes, with a checkpoint" } else { "no" });
    print_damaged(&report.scan.damaged, &report.torn_pages)?;
    for lpn in &report.differing_pages {
        say!("page {lpn} of the disk: the checkpoint and the segments disagree about its location");
    }
    for (lpn, error) in &report.unreadable_pages {
        say!("page {lpn} of the disk cannot be read: {error}");
    }
    if let Some(error) = &report.audit {
        say!("wrong count: {error}");
    }
    if report.scan.retired_segments > 0 {
        say!("retired segments: {}", report.scan.retired_segments);
    }
    if report.is_clean() {
        say!("clean");
    }
    match repaired {
        Some(_) if report.is_clean() && repair.repair_in_place => {
            say!("there is nothing to repair");
            Ok(())
        }
        Some(repaired) => {
            let page_bytes = find(&mut device).map_err(|error| of_volume(image, &error))?.geometry.page_bytes();
            repaired.disk(image, device, &report, page_bytes.into())
        }
        None if report.is_clean() => Ok(()),
        None => Err(problems(image, report.problems(), "check")),
    }
}

/// The damaged pages that no power cut can have torn.
pub fn really_damaged<'a>(damaged: &'a [Ppn], torn: &'a [Ppn]) -> impl Iterator<Item = Ppn> + 'a {
    damaged.iter().copied().filter(|ppn| !torn.contains(ppn))
}

/// Prints which pages were programmed and cannot be read.
pub fn print_damaged(damaged: &[Ppn], torn: &[Ppn]) -> Result<(), Failure> {
    for ppn in really_damaged(damaged, torn) {
        say!("damaged page {ppn}: it was programmed, but its tag and data fail their checks; what it held is lost");
    }
    for ppn in torn {
        say!("torn page {ppn}: a power cut while it was programmed does this, and then nothing flushed was on it");
    }
    Ok(())
}

/// The failure of a check that found something.
pub fn problems(image: &Path, count: usize, command: &str) -> Failure {
    let (image, s) = (image.display(), if count == 1 { "" } else { "s" });
    Failure::Run(format!(
        "{image}: {count} problem{s} (see above); nothing was changed; `margay {command} {image} --repair OUT` copies what can be read"
    ))
}

pub fn dump(image: &Path, segment: Option<u32>) -> Result<(), Failure> {
    let (mut device, _progress) = device(image)?;
    let superblock = find(&mut device).map_err(|error| of_volume(image, &error))?;
    let segments = superblock.geometry.segments();
    let mut table = Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    if let Some(number) = segment {
        if number >= segments {
            return Err(Failure::Usage(format!("segment {number}: the device has segments 0 to {}", segments - 1)));
        }
        let dumped =
            dump_segment(&mut device, &superblock, SegmentId(number)).map_err(|error| of_volume(image, &error))?;
        table.set_header(["page", "kind", "owner", "sequence", "write", "time us", "heat", "stream", "erases", "data"]);
        for page in dumped.pages {
            let ppn = page.ppn.to_string();
            match page.tag {
                Err(problem) => table.add_row([ppn, problem]),
                Ok(tag) => {
                    let state = match (tag.page.lost, page.is_intact) {
                        (true, _) => "lost",
                        (false, Some(true)) => "intact",
                        _ => "checksum wrong",
                    };
                    let owner = if tag.page.owner < superblock.exported_pages.into() {
                        tag.page.owner.to_string()
                    } else {
                        format!("own {}", tag.page.owner - u64::from(superblock.exported_pages))
                    };
                    table.add_row([
                        ppn,
                        format!("{:?}", tag.kind).to_lowercase(),
                        owner,
                        tag.page.seq.to_string(),
                        tag.page.version.to_string(),
                        tag.page.time_us.to_string(),
                        tag.page.heat.to_string(),
                        tag.segment.stream.to_string(),
                        tag.segment.erases.to_string(),
                        state.into(),
                    ])
                }
            };
        }
        return print_bytes(format!("{table}\n").as_bytes());
    }
    table.set_header(["segment", "pages", "stream", "erases", "opened us", "first seq", "last seq", "state"]);
    for id in (0..segments).map(SegmentId) {
        let found = dump_segment(&mut device, &superblock, id).map_err(|error| of_volume(image, &error))?.found;
        let info = found.info.unwrap_or_default();
        let seq = |page: Option<&margay_format::FoundPage>| page.map_or_else(String::new, |page| page.seq.to_string());
        let state = match (found.touched, found.erased, found.damaged.len()) {
            (false, _, _) => "erased".to_string(),
            (_, Some(_), _) => "erased, marked".into(),
            (_, _, 0) => "used".into(),
            (_, _, damaged) => format!("used, {damaged} damaged"),
        };
        table.add_row([
            id.to_string(),
            found.pages.len().to_string(),
            info.stream.to_string(),
            info.erases.to_string(),
            info.opened_us.to_string(),
            seq(found.pages.last()),
            seq(found.pages.first()),
            state,
        ]);
    }
    print_bytes(format!("{table}\n").as_bytes())
}
