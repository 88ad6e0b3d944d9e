use super::shown;
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{Cell, CellAlignment, Table};
use margay_lab::reproduce::{Bound, Reproduction};
use margay_lab::{Outcome, ResultRow};
use margay_trace::TraceInfo;
use std::collections::BTreeMap;
use std::fmt::Write;

pub(super) fn new_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(header);
    table
}

pub(super) fn right(text: impl ToString) -> Cell {
    Cell::new(text.to_string()).set_alignment(CellAlignment::Right)
}

fn bytes(count: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = count;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0} B") } else { format!("{value:.1} {}", units[unit]) }
}

fn time_us(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{us:.0} us"),
        us if us < 1e6 => format!("{:.2} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

fn span_s(s: f64) -> String {
    match s {
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.1} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}

fn maybe(value: Option<f64>, digits: usize) -> String {
    match value {
        None => "-".into(),
        Some(value) if value >= 1e5 || (value > 0.0 && value < 0.1) => format!("{value:.2e}"),
        Some(value) => format!("{value:.digits$}"),
    }
}

/// The device, the source and the parameters of a run, in two or three lines.
fn heading(row: &ResultRow) -> String {
    let page = f64::from(row.page_bytes);
    let raw = f64::from(row.segments) * f64::from(row.pages_per_segment) * page;
    let mut text = format!(
        "{} on {}: {} in {} segments of {} data pages of {} bytes\n",
        row.source,
        row.device,
        bytes(raw),
        row.segments,
        row.data_pages_per_segment,
        row.page_bytes
    );
    let _ = writeln!(
        text,
        "exported {} ({} pages), over-provisioning {:.4} (data pages / exported pages - 1), filled {} pages, {} read-only; seed {}",
        bytes(f64::from(row.exported_pages) * page),
        row.exported_pages,
        row.over_provisioning,
        row.filled_pages,
        row.read_only_pages,
        row.seed
    );
    if !row.trace_xxh3.is_empty() {
        let _ =
            writeln!(text, "trace {} xxh3 {}, {} bad lines skipped", row.trace_format, row.trace_xxh3, row.bad_lines);
    }
    text
}

fn idle_note(row: &ResultRow) -> &'static str {
    if row.erases > 0 {
        return "";
    }
    "note: nothing was cleaned; to see what cleaning costs, run longer (--device-writes, --repeat) or on a smaller device\n"
}

/// The report on one run.
pub fn outcome(outcome: &Outcome) -> String {
    let row = &outcome.row;
    let mut text = heading(row);
    let _ = writeln!(text, "{} + {}, leveling {}", row.selection, row.placement, row.leveling);
    let mut table = new_table(&["measure", "value", "what it is"]);
    let mut line = |name: &str, value: String, what: &str| {
        table.add_row(vec![Cell::new(name), right(value), Cell::new(what)]);
    };
    line(
        "write amplification",
        format!("{:.4}", row.wa),
        "(host writes + copies + metadata pages) / host writes, whole run",
    );
    line("  warm window", format!("{:.4}", row.wa_warm), &format!("the same from host write {} on", row.warm_from));
    line("host writes", row.host_writes.to_string(), "pages");
    line("host reads, trims", format!("{}, {}", row.host_reads, row.trims), "pages");
    line("copies", row.copies.to_string(), &format!("pages; {} of them by leveling", row.leveling_copies));
    line("metadata pages", row.metadata_pages.to_string(), "segment headers and summaries");
    line("erases", row.erases.to_string(), "segments");
    let spread = format!("{} / {:.1} / {} / {}", row.erases_min, row.erases_mean, row.erases_p99, row.erases_max);
    line("erase counts", spread, "minimum / mean / 99th percentile / maximum over the segments");
    line("uneven wearing", format!("{:.3}", row.erases_deviation), "standard deviation of erase counts (n - 1)");
    line("victim utilization", format!("{:.4}", row.victim_utilization), "mean share of valid pages in victims");
    let state = format!("{:.4} / {:.4} / {:.4}", row.utilization, row.invalidity, row.uniformity);
    line("state at the end", state, "utilization / invalidity / uniformity");
    line("flash time", span_s(row.flash_s), "modelled: programs, copies, erases");
    line("throughput", format!("{}/s", bytes(row.throughput_bytes_per_s)), "modelled: host bytes / flash time");
    if let Some(energy) = row.energy_j {
        line("energy", format!("{energy:.2} J"), "modelled");
    }
    let write = format!("{} / {}", time_us(row.p99_write_us), time_us(row.worst_write_us));
    line(
        "a host write",
        write,
        &format!("modelled, 99th percentile / worst ({} pages programmed)", row.worst_write_pages),
    );
    let forecast = &row.forecast;
    let years = format!(
        "{} / {} / {}",
        maybe(forecast.years_first, 1),
        maybe(forecast.years_share, 1),
        maybe(forecast.years_mean, 1)
    );
    let what = format!(
        "first segment / {:.0} % of segments / mean segment at {} erases, at this rate",
        forecast.worn_share * 100.0,
        forecast.endurance_erases
    );
    line("lifetime, years", years, &what);
    let tbw = format!(
        "{} / {} / {}",
        maybe(forecast.tbw_first, 3),
        maybe(forecast.tbw_share, 3),
        maybe(forecast.tbw_mean, 3)
    );
    line("lifetime, TB written", tbw, "the same three points in time");
    line("workload spans", span_s(row.duration_s), "in its own time");
    line(
        "replayed in",
        format!("{:.2} s", row.wall_s),
        &format!("{:.2} million host writes/s", row.writes_per_s / 1e6),
    );
    let _ = writeln!(text, "{table}");
    text += &victims(outcome);
    text + idle_note(row)
}

/// A histogram of the utilization of victims, in ten bars.
fn victims(outcome: &Outcome) -> String {
    let total: u64 = outcome.victims.iter().sum();
    if total == 0 {
        return String::new();
    }
    let mut text = "victims by utilization\n".to_string();
    let pages = outcome.victims.len() - 1;
    for tenth in 0..10 {
        let inside = |valid: usize| (valid * 10 / pages.max(1)).min(9) == tenth;
        let counted = outcome.victims.iter().enumerate().filter(|(valid, _)| inside(*valid));
        let count: u64 = counted.map(|(_, count)| count).sum();
        let share = count as f64 / total as f64;
        let bar = "#".repeat((share * 50.0).round() as usize);
        let _ = writeln!(
            text,
            "  {:.1}-{:.1} {:>6.2} % {bar}",
            tenth as f64 / 10.0,
            (tenth + 1) as f64 / 10.0,
            share * 100.0
        );
    }
    text
}

/// The runs of a pair of policies, one for each seed.
pub struct Pair {
    pub selection: String,
    pub placement: String,
    pub rows: Vec<ResultRow>,
}

impl Pair {
    pub fn mean(&self, measure: impl Fn(&ResultRow) -> f64) -> f64 {
        self.rows.iter().map(measure).sum::<f64>() / self.rows.len() as f64
    }

    pub fn name(&self) -> String {
        let short = |text: &str| text.split(':').next().unwrap_or(text).to_string();
        format!("{} + {}", short(&self.selection), short(&self.placement))
    }
}

pub fn pairs(outcomes: &[Outcome]) -> Vec<Pair> {
    let mut order: Vec<Pair> = Vec::new();
    let mut index: BTreeMap<(String, String), usize> = BTreeMap::new();
    for outcome in outcomes {
        let key = (outcome.row.selection.clone(), outcome.row.placement.clone());
        let at = *index.entry(key.clone()).or_insert_with(|| {
            order.push(Pair { selection: key.0, placement: key.1, rows: Vec::new() });
            order.len() - 1
        });
        order[at].rows.push(outcome.row.clone());
    }
    order
}

/// A table of many runs, and advice which policies to choose.
pub fn comparison(outcomes: &[Outcome]) -> String {
    let Some(first) = outcomes.first() else { return "there were no runs\n".into() };
    let pairs = pairs(outcomes);
    let mut text = heading(&first.row);
    let seeds = pairs[0].rows.len();
    if seeds > 1 {
        let _ = writeln!(text, "means over {seeds} seeds");
    }
    type Measure = (&'static str, fn(&ResultRow) -> f64, usize, bool);
    let measures: [Measure; 8] = [
        ("WA", |row| row.wa, 4, true),
        ("WA warm", |row| row.wa_warm, 4, true),
        ("erases", |row| row.erases as f64, 0, true),
        ("copies", |row| row.copies as f64, 0, true),
        ("uneven wear", |row| row.erases_deviation, 2, true),
        ("p99 write us", |row| row.p99_write_us, 0, true),
        ("MiB/s", |row| row.throughput_bytes_per_s / 1_048_576.0, 3, false),
        ("TBW first", |row| row.forecast.tbw_first.unwrap_or(f64::NAN), 3, false),
    ];
    let header: Vec<_> = ["selection", "placement"].into_iter().chain(measures.iter().map(|m| m.0)).collect();
    let mut table = new_table(&header);
    let best: Vec<f64> = measures
        .iter()
        .map(|(_, measure, _, low)| {
            let values = pairs.iter().map(|pair| pair.mean(measure));
            if *low { values.fold(f64::INFINITY, f64::min) } else { values.fold(f64::NEG_INFINITY, f64::max) }
        })
        .collect();
    for pair in &pairs {
        let mut cells = vec![Cell::new(&pair.selection), Cell::new(&pair.placement)];
        for ((_, measure, digits, _), best) in measures.iter().zip(&best) {
            let value = pair.mean(measure);
            let mark = if value == *best { "*" } else { " " };
            cells.push(right(if value.is_nan() { "- ".into() } else { format!("{value:.digits$}{mark}") }));
        }
        table.add_row(cells);
    }
    let _ = writeln!(text, "{table}\n* best of its column; WA warm from host write {} on", first.row.warm_from);
    text += &advice(&pairs);
    text + idle_note(&first.row)
}

/// One sentence: which policies to choose, and what they gain over greedy with one stream.
fn advice(pairs: &[Pair]) -> String {
    let wa = |pair: &Pair| pair.mean(|row| row.wa_warm);
    let best = pairs.iter().filter(|pair| wa(pair).is_finite()).min_by(|a, b| wa(a).total_cmp(&wa(b)));
    let plain = pairs.iter().find(|pair| pair.selection == "greedy" && pair.placement == "m1");
    let (Some(best), Some(plain)) = (best, plain) else { return String::new() };
    let erases = |pair: &Pair| pair.mean(|row| row.erases as f64);
    if erases(plain) == 0.0 {
        return String::new();
    }
    let fewer = 100.0 * (1.0 - erases(best) / erases(plain));
    if wa(plain) - wa(best) < 0.01 {
        return format!("Choose greedy + m1: nothing here is better by more than 0.01 in WA ({:.3}).\n", wa(plain));
    }
    let life = |pair: &Pair| pair.mean(|row| row.forecast.tbw_first.unwrap_or(f64::NAN));
    format!(
        "Choose {} + {}: WA {:.3} instead of {:.3} with greedy + m1, {fewer:.0} % fewer erases, {:.2} times the data written until the first segment wears out.\n",
        best.selection,
        best.placement,
        wa(best),
        wa(plain),
        life(best) / life(plain)
    )
}

/// The description of a trace.
pub fn trace_info(name: &str, info: &TraceInfo) -> String {
    let counts = &info.counts;
    let compression = format!("{:?}", info.compression).to_lowercase();
    let mut text = format!("{name}: {} ({compression}), xxh3 {}\n", info.format, info.xxh3);
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<18} {value}");
    };
    let kinds = format!(
        "{} ({} writes, {} reads, {} trims, {} flushes) in {} lines",
        counts.requests, counts.writes, counts.reads, counts.trims, counts.flushes, counts.lines
    );
    line("requests", kinds);
    line("time", format!("{}, longest gap {}", span_s(info.duration_s), span_s(info.longest_gap_s)));
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

/// The table of published and measured values, and those of the figures.
pub fn reproduction(title: &str, result: &Reproduction, over: &str) -> String {
    let mut table = new_table(&["cell", "measure", "published", "to be met", "measured", "+-", "off by", "bound", ""]);
    for one in &result.comparisons {
        let digits = if one.wanted.abs() < 100.0 { 3 } else { 0 };
        let off = match one.bound {
            Bound::Absolute(_) => format!("{:+.2}", one.measured - one.wanted),
            _ if one.wanted == 0.0 => format!("{:+}", one.measured),
            _ => format!("{:+.2} %", one.relative() * 100.0),
        };
        let verdict = match one.holds() {
            Some(true) => "ok",
            Some(false) => "MISSED",
            None => "",
        };
        table.add_row(vec![
            Cell::new(&one.cell),
            Cell::new(&one.measure),
            right(&one.published),
            right(format!("{:.digits$}", one.wanted)),
            right(format!("{:.digits$}", one.measured)),
            right(format!("{:.digits$}", one.deviation)),
            right(off),
            right(one.bound),
            Cell::new(verdict),
        ]);
    }
    let mut text = format!("{title}, means over {over}\n{table}\n");
    for figure in &result.figures {
        let mut header = vec![figure.x.clone()];
        header.extend(figure.curves.iter().map(|(name, _)| name.clone()));
        let mut table = Table::new();
        table.load_style(ASCII_MARKDOWN).set_header(header);
        let points = || figure.curves.iter().flat_map(|(_, points)| points);
        let mut xs: Vec<f64> = points().map(|(x, _)| *x).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        let digits = if points().all(|(_, y)| y.abs() < 10.0) { 3 } else { 1 };
        for x in xs {
            let value = |points: &Vec<(f64, f64)>| {
                let found = points.iter().find(|(other, _)| *other == x);
                found.map_or(String::new(), |(_, y)| format!("{y:.digits$}"))
            };
            let values = figure.curves.iter().map(|(_, points)| right(value(points)));
            table.add_row(std::iter::once(right((x * 1000.0).round() / 1000.0)).chain(values));
        }
        let _ = writeln!(text, "{} ({})\n{table}", figure.title, figure.y);
    }
    result.findings.iter().for_each(|finding| {
        let _ = writeln!(text, "{finding}");
    });
    text
}
