//! Who uses a file that is locked.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The process that holds the lock of a file, as `process 123 (margay serve flash.img)`, if the system tells it.
pub fn holder(path: &Path) -> Option<String> {
    let inode = std::fs::metadata(path).ok()?.ino();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    // `1: FLOCK  ADVISORY  WRITE 123 fe:00:4567 0 EOF`: kind, mode, process, device and inode.
    let holders = locks.lines().filter_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let is_this = words.get(5)?.rsplit_once(':')?.1.parse() == Ok(inode);
        (is_this && words.get(1) == Some(&"FLOCK")).then_some(())?;
        words.get(4)?.parse::<u32>().ok()
    });
    let process = holders.into_iter().find(|process| *process > 0)?;
    let command = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let words: Vec<_> = command.split(|byte| *byte == 0).filter(|word| !word.is_empty()).collect();
    let command = crate::output::shown(&words.join(&b' '));
    Some(if command.is_empty() { format!("process {process}") } else { format!("process {process} ({command})") })
}
