use crate::hash::FastMap;
use crate::{Existing, Format, IoKind, ReadOptions, TraceError, TraceWriter, open_while};
use std::collections::BTreeSet;
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};

/// The trace of one device, which [`split`] has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevicePart {
    /// The device, as the whole trace names it.
    pub device: String,
    /// The file.
    pub path: PathBuf,
    /// Requests in it.
    pub requests: u64,
    /// Writes among them: a device without any can be read, and not be replayed.
    pub writes: u64,
}

/// Traces that are written at the same time: each holds an open file and some MB of memory.
const MAX_AT_ONCE: usize = 64;

/// What is kept of a device's name, so that a file can have it.
const MAX_NAME_BYTES: usize = 100;

/// A part that is being written.
struct Open {
    part: DevicePart,
    writer: TraceWriter,
}

/// Writes the requests to each device of a trace to a trace of its own in a folder, `NAME.FORMAT`, where what is no letter or
/// digit in the device's name is an underscore. Devices keep their numbers. The trace is read once for every 64 devices. Parts
/// are in the order in which the devices appear.
///
/// ```
/// use margay_trace::{Existing, Format, ReadOptions, split};
///
/// let folder = tempfile::tempdir()?;
/// let trace = folder.path().join("two.csv");
/// std::fs::write(&trace, "128166372003061629,usr,0,Write,0,8192,3\n128166372003061630,hm,1,Write,0,4096,3\n")?;
/// let parts = split(&trace, &ReadOptions::default(), folder.path(), Format::MGT, Existing::Refuse)?;
/// assert_eq!((parts[0].device.as_str(), parts[0].requests, parts[0].writes), ("usr_0", 1, 1));
/// assert_eq!(parts[1].path, folder.path().join("hm_1.mgt"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The trace cannot be read, or has more than 64 devices and comes from the standard input; a file cannot be written, or
/// exists and is not to be replaced. Files of devices that were written before are there, and whole.
pub fn split(
    from: &Path,
    options: &ReadOptions,
    folder: &Path,
    format: Format,
    existing: Existing,
) -> Result<Vec<DevicePart>, TraceError> {
    split_while(from, options, folder, format, existing, || true)
}

/// Splits as [`split`] does, for a program that may have to stop: once `keep_on` returns false, no further file is written.
///
/// # Errors
/// As [`split`]; and those of [`open_while`](crate::open_while) once it is stopped.
pub fn split_while(
    from: &Path,
    options: &ReadOptions,
    folder: &Path,
    format: Format,
    existing: Existing,
    keep_on: impl Fn() -> bool + Clone + Send + 'static,
) -> Result<Vec<DevicePart>, TraceError> {
    let (mut done, mut parts) = (FastMap::default(), Vec::new());
    let mut taken = BTreeSet::new();
    loop {
        // The place of each device in `open`; none if it was written before, or is left for the next time.
        let mut places: FastMap<u32, Option<usize>> = done.clone();
        let (mut open_parts, mut is_more) = (Vec::<Open>::new(), false);
        let mut reader = open_while(from, options, keep_on.clone())?;
        while let Some(request) = reader.next() {
            let request = request?;
            let place = match places.entry(request.device) {
                Entry::Occupied(place) => *place.get(),
                Entry::Vacant(vacant) if open_parts.len() < MAX_AT_ONCE => {
                    let device = reader.device_name(request.device);
                    let path = folder.join(file_name(&device, request.device, format, &mut taken));
                    let mut writer = TraceWriter::create_with(&path, format, existing)?;
                    writer.name_device(request.device, &device);
                    open_parts.push(Open { part: DevicePart { device, path, requests: 0, writes: 0 }, writer });
                    *vacant.insert(Some(open_parts.len() - 1))
                }
                Entry::Vacant(vacant) => {
                    is_more = true;
                    *vacant.insert(None)
                }
            };
            if let Some(place) = place {
                let Open { part, writer } = &mut open_parts[place];
                writer.write(&request)?;
                part.requests += 1;
                part.writes += u64::from(request.kind == IoKind::Write);
            }
        }
        if is_more && from == Path::new("-") {
            return Err(TraceError::TooManyDevices { path: from.display().to_string(), limit: MAX_AT_ONCE });
        }
        done.extend(places.into_iter().filter(|(_, place)| place.is_some()).map(|(device, _)| (device, None)));
        for Open { part, writer } in open_parts {
            writer.finish()?;
            parts.push(part);
        }
        if !is_more {
            return Ok(parts);
        }
    }
}

/// A name for the file of a device that no other device has: file systems may take two names for one that differ in case
/// alone.
fn file_name(device: &str, number: u32, format: Format, taken: &mut BTreeSet<String>) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let mut name: String = device.chars().map(plain).take(MAX_NAME_BYTES).collect();
    while name.is_empty() || !taken.insert(name.to_ascii_lowercase()) {
        name = format!("{name}-device{number}");
    }
    format!("{name}.{format}")
}
