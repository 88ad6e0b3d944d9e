use super::shown;
use super::tables::wrapped_at;
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{Cell, CellAlignment, Table};
use margay_lab::span;
use margay_trace::TraceInfo;
use std::fmt::Write;

pub(super) fn new_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(header);
    table
}

pub(super) fn right(text: impl ToString) -> Cell {
    Cell::new(text.to_string()).set_alignment(CellAlignment::Right)
}

pub(super) fn bytes(count: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = count;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0} B") } else { format!("{value:.1} {}", units[unit]) }
}

pub(super) fn time_us(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{us:.0} us"),
        us if us < 1e6 => format!("{:.2} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

pub(super) fn maybe(value: Option<f64>, digits: usize) -> String {
    match value {
        None => "-".into(),
        Some(value) if value >= 1e5 || (value > 0.0 && value < 0.1) => format!("{value:.2e}"),
        Some(value) => format!("{value:.digits$}"),
    }
}

/// The description of a trace.
pub fn trace_info(name: &str, info: &TraceInfo) -> String {
    let counts = &info.counts;
    let compression = format!("{:?}", info.compression).to_lowercase();
    let mut text = format!("{name}: {} ({compression}), xxh3 {}\n", info.format, info.xxh3);
    let mut line = |name: &str, value: String| {
        let _ = write!(text, "  {name:<18} {}", wrapped_at(&value, 21));
    };
    let kinds = format!(
        "{} ({} writes, {} reads, {} trims, {} flushes) in {} lines",
        counts.requests, counts.writes, counts.reads, counts.trims, counts.flushes, counts.lines
    );
    line("requests", kinds);
    line("time", format!("{}, longest gap {}", span(info.duration_s), span(info.longest_gap_s)));
    line("bytes", format!("{} written, {} read", bytes(info.write_bytes as f64), bytes(info.read_bytes as f64)));
    let sizes = info.write_sizes;
    line(
        "write sizes",
        format!("{} / {} / {} / {} bytes (min / median / p99 / max)", sizes.min, sizes.p50, sizes.p99, sizes.max),
    );
    let page = f64::from(info.page_bytes);
    let pages = format!(
        "{} page writes to {} pages ({}), {} pages touched, {:.2} writes per page",
        info.page_writes,
        info.pages_written,
        bytes(info.pages_written as f64 * page),
        info.pages_touched,
        info.rewrites
    );
    line(&format!("{} B pages", info.page_bytes), pages);
    line("aligned writes", format!("{:.1} %", info.aligned * 100.0));
    let [one, ten, twenty] = info.hottest.map(|share| share * 100.0);
    line(
        "skew",
        format!("{one:.1} / {ten:.1} / {twenty:.1} % of page writes go to the hottest 1 / 10 / 20 % of pages"),
    );
    for of in info.devices.values().take(8) {
        line(
            &format!("device {}", shown(of.name.as_bytes())),
            format!("{} writes, {} reads, up to {}", of.writes, of.reads, bytes(of.end_bytes as f64)),
        );
    }
    if info.devices.len() > 8 {
        line("", format!("and {} more devices", info.devices.len() - 8));
    }
    for (reason, count) in &counts.ignored {
        line("no request", format!("{count} lines: {reason}"));
    }
    counts.first_bad.iter().for_each(|bad| line("bad line", bad.clone()));
    info.warnings.iter().for_each(|warning| line("warning", warning.clone()));
    text
}
