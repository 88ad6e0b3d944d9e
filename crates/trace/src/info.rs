use crate::compress::Compression;
use crate::pages::PageTable;
use crate::reader::{Counts, TraceReader};
use crate::{IoKind, TraceError};
use std::collections::BTreeMap;

/// Requests of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct DeviceInfo {
    /// As the trace names it; its number if it has no name.
    pub name: String,
    /// Requests that read.
    pub reads: u64,
    /// Requests that write.
    pub writes: u64,
    /// End of the request that reaches furthest, in bytes.
    pub end_bytes: u64,
}

/// Sizes of writes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SizeInfo {
    /// Smallest.
    pub min: u64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Largest.
    pub max: u64,
}

/// Statistics of a trace.
#[derive(Clone, Debug, serde::Serialize)]
pub struct TraceInfo {
    /// Its format.
    pub format: &'static str,
    /// How it is compressed.
    pub compression: Compression,
    /// xxh3 of the file, 16 hexadecimal digits.
    pub xxh3: String,
    /// Lines and requests by kind.
    pub counts: Counts,
    /// From the first request to the last, in seconds.
    pub duration_s: f64,
    /// The longest time between two requests, in seconds.
    pub longest_gap_s: f64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// By device.
    pub devices: BTreeMap<u32, DeviceInfo>,
    /// Sizes of writes.
    pub write_sizes: SizeInfo,
    /// Page size of the figures that follow, in bytes.
    pub page_bytes: u32,
    /// Writes of pages; a page that is written twice counts twice.
    pub page_writes: u64,
    /// Distinct pages written.
    pub pages_written: u64,
    /// Distinct pages read or written.
    pub pages_touched: u64,
    /// Page writes / distinct pages written.
    pub rewrites: f64,
    /// Share of the writes that start and end at a page boundary.
    pub aligned: f64,
    /// Share of the page writes that go to the 1 %, 10 % and 20 % of pages written most often.
    pub hottest: [f64; 3],
    /// What looks wrong or needs attention, for people.
    pub warnings: Vec<String>,
}

/// Devices of a trace.
const MAX_DEVICES: usize = 1 << 16;

/// The problem that there is no memory for another page.
fn no_room(pages: u64, page_bytes: u64) -> String {
    format!(
        "more than {pages} pages of {page_bytes} bytes are touched, for which this machine has no memory; count larger pages (--page-bytes), or one device (--trace-device)"
    )
}

/// Of a page that was only read; one more for each write.
const TOUCHED: u32 = 1;

/// Reads a trace to its end. Memory grows with the number of different pages, of `page_bytes` each, that it touches; it is
/// an error if their table needs more than half of the machine's memory, or if there are more than 65,536 devices.
pub fn info(mut reader: TraceReader, page_bytes: u32) -> Result<TraceInfo, TraceError> {
    let page = u64::from(page_bytes.max(1));
    let (mut table, mut touched, mut written) = (PageTable::default(), 0u64, 0u64);
    let mut devices: BTreeMap<u32, DeviceInfo> = BTreeMap::new();
    let mut sizes = Sizes::default();
    let (mut write_bytes, mut read_bytes, mut aligned) = (0u64, 0u64, 0u64);
    let (mut last_us, mut longest_gap_us, mut page_writes) = (0, 0, 0u64);
    while let Some(request) = reader.next() {
        let request = request?;
        longest_gap_us = longest_gap_us.max(request.time_us - last_us);
        last_us = request.time_us;
        let end = request.offset_bytes.saturating_add(request.len_bytes);
        if devices.len() == MAX_DEVICES && !devices.contains_key(&request.device) {
            return Err(reader.bad_entry(format!("more than {MAX_DEVICES} devices")));
        }
        let named = || DeviceInfo { name: reader.device_name(request.device), ..DeviceInfo::default() };
        let device = devices.entry(request.device).or_insert_with(named);
        device.end_bytes = device.end_bytes.max(end);
        let pages = request.offset_bytes / page..end.div_ceil(page);
        match request.kind {
            IoKind::Write => {
                device.writes += 1;
                write_bytes = write_bytes.saturating_add(request.len_bytes);
                aligned += u64::from(request.offset_bytes % page == 0 && end % page == 0);
                sizes.add(request.len_bytes);
                for number in pages {
                    let Some(count) = table.entry(request.device, number) else {
                        return Err(reader.bad_entry(no_room(touched, page)));
                    };
                    touched += u64::from(*count == 0);
                    written += u64::from(*count <= TOUCHED);
                    *count = (*count).max(TOUCHED).saturating_add(1);
                    page_writes += 1;
                }
            }
            IoKind::Read => {
                device.reads += 1;
                read_bytes = read_bytes.saturating_add(request.len_bytes);
                for number in pages {
                    let Some(count) = table.entry(request.device, number) else {
                        return Err(reader.bad_entry(no_room(touched, page)));
                    };
                    touched += u64::from(*count == 0);
                    *count = (*count).max(TOUCHED);
                }
            }
            IoKind::Trim | IoKind::Flush => {}
        }
    }
    let counts = reader.counts().clone();
    let xxh3 = reader.file_hash()?.map_or_else(String::new, |hash| format!("{hash:016x}"));
    let mut info = TraceInfo {
        format: reader.format().name(),
        compression: reader.compression(),
        xxh3,
        duration_s: last_us as f64 / 1e6,
        longest_gap_s: longest_gap_us as f64 / 1e6,
        write_bytes,
        read_bytes,
        devices,
        write_sizes: sizes.info(),
        page_bytes,
        page_writes,
        pages_written: written,
        pages_touched: touched,
        rewrites: page_writes as f64 / written.max(1) as f64,
        aligned: aligned as f64 / counts.writes.max(1) as f64,
        hottest: hottest(
            table.values().filter(|count| *count > TOUCHED).map(|count| count - TOUCHED).collect(),
            page_writes,
        ),
        warnings: Vec::new(),
        counts,
    };
    info.warnings = warnings(&info);
    Ok(info)
}

/// Different sizes that are counted one by one.
const MAX_SIZES: usize = 1 << 16;

/// Counts the writes of each size. With more than [`MAX_SIZES`] different ones, sizes are rounded down to their first 10
/// bits, so that memory does not grow with the trace.
#[derive(Debug, Default)]
struct Sizes {
    counts: BTreeMap<u64, u64>,
    min: Option<u64>,
    max: u64,
    is_rounded: bool,
}

/// A number with all but its first 10 bits cleared.
fn rounded(size: u64) -> u64 {
    let low = 54u32.saturating_sub(size.leading_zeros());
    size >> low << low
}

impl Sizes {
    fn add(&mut self, size: u64) {
        self.min = Some(self.min.map_or(size, |min| min.min(size)));
        self.max = self.max.max(size);
        *self.counts.entry(if self.is_rounded { rounded(size) } else { size }).or_default() += 1;
        if !self.is_rounded && self.counts.len() > MAX_SIZES {
            self.is_rounded = true;
            for (size, count) in std::mem::take(&mut self.counts) {
                *self.counts.entry(rounded(size)).or_default() += count;
            }
        }
    }

    fn info(&self) -> SizeInfo {
        let Some(min) = self.min else { return SizeInfo::default() };
        let writes: u64 = self.counts.values().sum();
        let at = |share: f64| {
            let mut left = ((writes - 1) as f64 * share) as u64;
            let found = self.counts.iter().find(|(_, count)| {
                let is_here = left < **count;
                left = left.saturating_sub(**count);
                is_here
            });
            found.map_or(self.max, |(size, _)| *size)
        };
        SizeInfo { min, p50: at(0.5), p99: at(0.99), max: self.max }
    }
}

fn hottest(mut counts: Vec<u32>, total: u64) -> [f64; 3] {
    counts.sort_unstable_by(|a, b| b.cmp(a));
    [0.01, 0.1, 0.2].map(|share| {
        let take = (counts.len() as f64 * share).ceil() as usize;
        counts.iter().take(take).map(|count| u64::from(*count)).sum::<u64>() as f64 / total.max(1) as f64
    })
}

fn warnings(info: &TraceInfo) -> Vec<String> {
    let mut out = Vec::new();
    let years = info.duration_s / (365.25 * 86_400.0);
    if info.duration_s == 0.0 && info.counts.requests > 1 {
        out.push("all requests have the same time, so no lifetime in years can be computed; if the trace has times, check their unit".into());
    } else if years > 3.0 {
        out.push(format!("the trace spans {years:.1} years: check the unit of its times"));
    }
    if info.counts.writes == 0 {
        out.push("nothing is written, so there is nothing to clean".into());
    } else if info.rewrites < 2.0 {
        out.push(format!(
            "each page is written {:.2} times: the trace alone hardly triggers cleaning; repeat it or fill the device first",
            info.rewrites
        ));
    }
    if info.counts.writes > 0 && info.aligned < 0.5 {
        let percent = 100.0 * (1.0 - info.aligned);
        out.push(format!(
            "{percent:.0} % of the writes do not start and end at a page boundary: a page written in part counts as written"
        ));
    }
    if info.counts.times_back > 0 {
        out.push(format!(
            "{} requests are earlier than the one before; they were given the same time",
            info.counts.times_back
        ));
    }
    if info.devices.len() > 1 {
        let count = info.devices.len();
        out.push(format!(
            "{count} devices: their addresses overlap unless one is chosen (--trace-device) or compacted"
        ));
    }
    if info.counts.bad_lines > 0 {
        out.push(format!("{} bad lines were skipped", info.counts.bad_lines));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_sorted_writes() {
        let mut generator = 7u64;
        for writes in [1, 2, 3, 100, 1001] {
            let mut sorted: Vec<u64> = (0..writes)
                .map(|_| {
                    generator = generator.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (generator >> 60) * 512
                })
                .collect();
            let mut sizes = Sizes::default();
            sorted.iter().for_each(|size| sizes.add(*size));
            sorted.sort_unstable();
            let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize];
            let wanted = SizeInfo { min: sorted[0], p50: at(0.5), p99: at(0.99), max: sorted[sorted.len() - 1] };
            assert_eq!(sizes.info(), wanted, "{writes} writes");
        }
        assert_eq!(Sizes::default().info(), SizeInfo::default());
    }

    #[test]
    fn memory_for_sizes_is_bounded_and_percentiles_are_then_within_a_fivehundredth() {
        let mut sizes = Sizes::default();
        let count = 3_000_000u64;
        (1..=count).for_each(|size| sizes.add(size * 7));
        assert!(sizes.counts.len() <= MAX_SIZES, "{}", sizes.counts.len());
        let info = sizes.info();
        assert_eq!((info.min, info.max), (7, count * 7));
        for (found, share) in [(info.p50, 0.5), (info.p99, 0.99)] {
            let exact = (count * 7) as f64 * share;
            assert!((found as f64 / exact - 1.0).abs() < 1.0 / 500.0, "{found} for {exact}");
        }
    }
}
