//! What /sys and /proc say of an MTD.

use std::path::{Path, PathBuf};

/// The folder of an MTD in /sys.
#[derive(Clone, Debug)]
pub(crate) struct Sysfs(PathBuf);

impl Sysfs {
    /// The folder of the MTD of this number.
    pub fn of(number: u32) -> Self {
        Self(format!("/sys/class/mtd/mtd{number}").into())
    }

    /// A number that stands there; `None` if it does not.
    pub fn number(&self, name: &str) -> Option<u64> {
        std::fs::read_to_string(self.0.join(name)).ok()?.trim().parse().ok()
    }
}

/// What in the kernel uses an MTD, and how to end that.
pub(crate) fn user_in_kernel(number: u32) -> Option<(String, String)> {
    let ubi = std::fs::read_dir("/sys/class/ubi").into_iter().flatten().flatten().find_map(|entry| {
        let is_of = read_number(&entry.path().join("mtd_num")) == Some(number);
        is_of.then(|| entry.file_name().to_string_lossy().into_owned())
    });
    if let Some(ubi) = ubi {
        return Some((ubi, format!("detach it (ubidetach -m {number})")));
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mount_of(&mounts, number)
        .map(|place| (format!("the file system on {place}"), format!("unmount it (umount {place})")))
}

fn read_number(path: &Path) -> Option<u32> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Major number of the disks on MTDs. File systems that use an MTD without its disk have it, too.
const DISK_MAJOR: u32 = 31;

/// Where the disk on an MTD, or the MTD itself, is mounted, by /proc/self/mountinfo: whatever the source of the mount is called
/// (`/dev/mtdblock0`, `mtd0`, `mtd:NAME`, `/dev/root`), its third field is the device, and the fifth the place.
fn mount_of(mounts: &str, number: u32) -> Option<String> {
    let device = format!("{DISK_MAJOR}:{number}");
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(2);
        let is_of = fields.next()? == device;
        let place = fields.nth(1).filter(|_| is_of)?;
        Some(place.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_the_kernel_are_found_whatever_their_source_is_called() {
        let mounts = "22 29 0:21 / /proc rw,nosuid - proc proc rw
40 29 31:1 / /mnt/j rw,relatime shared:9 - jffs2 mtd:data rw
41 29 31:3 / /mnt/a\\040place ro - romfs /dev/mtdblock3 ro
29 1 31:0 / / rw,relatime - squashfs /dev/root rw
42 29 31:12 / /mnt/m rw master:1 - jffs2 mtd12 rw
";
        assert_eq!(mount_of(mounts, 0).as_deref(), Some("/"));
        assert_eq!(mount_of(mounts, 1).as_deref(), Some("/mnt/j"));
        assert_eq!(mount_of(mounts, 3).as_deref(), Some("/mnt/a place"));
        assert_eq!((mount_of(mounts, 2), mount_of(mounts, 21)), (None, None));
    }
}
