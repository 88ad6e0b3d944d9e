//! Plots of runs: one over time, a comparison, a sweep.

use super::plot::{Area, COLOURS, range, render};
use super::runs::{folded, swept};
use crate::failure::Failure;
use margay_host::Existing;
use margay_lab::statistics::Interval;
use margay_lab::sweep::Point;
use margay_lab::{Outcome, ResultRow, Sample};
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

type Drawn<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

const GRID: RGBColor = RGBColor(238, 238, 238);
const SHADE: RGBColor = RGBColor(253, 240, 213);

/// A curve, with a band or bars around its points where their intervals are known.
struct Curve {
    name: String,
    points: Vec<(f64, Interval)>,
}

/// A chart: curves, or bars from 0 on.
#[derive(Default)]
struct Panel {
    title: String,
    x: String,
    y: String,
    curves: Vec<Curve>,
    /// From, to, height.
    bars: Vec<(f64, f64, f64)>,
    /// A part of the horizontal axis that is marked, and what it is.
    marked: Option<(f64, f64, String)>,
    /// Whether the horizontal axis is logarithmic.
    log: bool,
    /// Whether the vertical axis starts at 0.
    from_zero: bool,
}

/// So many values of points are few enough to label each.
const FEW_STEPS: usize = 12;

/// A horizontal axis, linear or by powers of two.
#[derive(Clone)]
struct Axis {
    range: Range<f64>,
    log: bool,
    /// The values of the points, which get the labels if they are few or the axis is logarithmic.
    steps: Vec<f64>,
}

impl Ranged for Axis {
    type ValueType = f64;
    type FormatOption = NoDefaultFormatting;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let at = |value: f64| if self.log { value.max(f64::MIN_POSITIVE).ln() } else { value };
        let share = (at(*value) - at(self.range.start)) / (at(self.range.end) - at(self.range.start));
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<H: KeyPointHint>(&self, hint: H) -> Vec<f64> {
        if self.log || (2..=FEW_STEPS).contains(&self.steps.len()) {
            self.steps.clone()
        } else {
            RangedCoordf64::from(self.range.clone()).key_points(hint)
        }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        short(*value)
    }
}

/// A number with as few digits as it needs: 0.07, 1.5, 250k, 12M.
fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{scaled:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{}{unit}", if text == "-0" { "0" } else { text })
}

/// A title that fits: its middle is left out if it is long.
fn fitting(title: &str, letters: usize) -> String {
    let count = title.chars().count();
    if count <= letters {
        return title.into();
    }
    let half = (letters - 3) / 2;
    let (start, end): (String, String) =
        (title.chars().take(half).collect(), title.chars().skip(count - half).collect());
    format!("{start}...{end}")
}

fn draw_panels<B: DrawingBackend>(root: &Area<'_, B>, panels: &[Panel]) -> Drawn<B> {
    root.fill(&WHITE)?;
    for (area, panel) in root.margin(10, 10, 10, 10).split_evenly((panels.len(), 1)).iter().zip(panels) {
        draw_panel(area, panel)?;
    }
    Ok(())
}

/// Letters of a name in a legend.
const LEGEND_LETTERS: usize = 30;

fn draw_panel<B: DrawingBackend>(area: &Area<'_, B>, panel: &Panel) -> Drawn<B> {
    let points = || panel.curves.iter().flat_map(|curve| curve.points.iter());
    let xs = points().map(|p| p.0).chain(panel.bars.iter().flat_map(|bar| [bar.0, bar.1]));
    let ends = |sign: f64| points().map(move |(_, y)| y.mean + sign * y.half95.unwrap_or(0.0));
    let ys = ends(1.0).chain(ends(-1.0)).chain(panel.bars.iter().map(|bar| bar.2));
    let (mut x0, mut x1) = range(xs.clone(), false);
    let mut steps: Vec<f64> = if panel.bars.is_empty() { xs.collect() } else { Vec::new() };
    steps.sort_by(f64::total_cmp);
    steps.dedup();
    if panel.log {
        (x0, x1) = (x0 / 1.15, steps.last().copied().unwrap_or(x1) * 1.15);
    } else if !panel.curves.is_empty() && steps.len() < 60 && x1 > x0 {
        x0 -= (x1 - x0) * 0.02;
    }
    let (low, y1) = range(ys, panel.from_zero);
    let y0 = if panel.from_zero { 0.0 } else { low - (y1 - low) * 0.08 };
    let has_legend = panel.curves.len() > 1;
    let letters = panel.curves.iter().map(|curve| curve.name.chars().count()).max().unwrap_or(0);
    let legend = if has_legend { 50 + 8 * letters.min(LEGEND_LETTERS) as i32 } else { 24 };
    let mut context = ChartBuilder::on(area)
        .caption(fitting(&panel.title, 90), ("sans-serif", 19))
        .margin(8)
        .margin_right(legend)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(Axis { range: x0..x1, log: panel.log, steps }, y0..y1)?;
    if let Some((from, to, _)) = &panel.marked {
        let corners = [(from.max(x0), y0), (to.min(x1), y1)];
        context.draw_series([Rectangle::new(corners, SHADE.filled())])?;
    }
    context
        .configure_mesh()
        .x_desc(&panel.x)
        .y_desc(&panel.y)
        .y_label_formatter(&|value| short(*value))
        .light_line_style(WHITE.mix(0.0))
        .bold_line_style(GRID)
        .label_style(("sans-serif", 14))
        .draw()?;
    context.draw_series(panel.bars.iter().map(|(from, to, height)| {
        let mut bar = Rectangle::new([(*from, 0.0), (*to, *height)], COLOURS[0].mix(0.8).filled());
        bar.set_margin(0, 0, 1, 1);
        bar
    }))?;
    for (number, curve) in panel.curves.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let finite: Vec<_> = curve.points.iter().filter(|(x, y)| x.is_finite() && y.mean.is_finite()).collect();
        let ends = finite.iter().filter_map(|(x, y)| Some((*x, y.mean, y.half95?)));
        context.draw_series(
            ends.map(|(x, mean, half)| ErrorBar::new_vertical(x, mean - half, mean, mean + half, colour.filled(), 9)),
        )?;
        let line: Vec<(f64, f64)> = finite.iter().map(|(x, y)| (*x, y.mean)).collect();
        let size = if line.len() < 40 { 3 } else { 0 };
        context.draw_series(LineSeries::new(line, colour.stroke_width(2)).point_size(size))?;
    }
    let plane = context.plotting_area();
    let (xs, ys) = plane.get_pixel_range();
    let base = area.get_base_pixel();
    // Pixels of the whole picture, as places of this part of it.
    let place = |x: i32, y: i32| (x - base.0, y - base.1);
    if let Some((from, to, what)) = &panel.marked {
        let (left, _) = plane.map_coordinate(&(from.max(x0), y1));
        let (right, _) = plane.map_coordinate(&(to.min(x1), y1));
        let letters = ((right - left - 8) / 7).max(0) as usize;
        if letters > 12 {
            let at = place(left + 6, ys.end - 20);
            area.draw_text(&fitting(what, letters), &("sans-serif", 13).into_text_style(area), at)?;
        }
    }
    if has_legend {
        // Beside the data, in the order of the last points, so that no curve is hidden and each is found at its height.
        let mut order: Vec<usize> = (0..panel.curves.len()).collect();
        let last = |number: &usize| panel.curves[*number].points.last().map_or(0.0, |(_, y)| y.mean);
        order.sort_by(|a, b| last(b).total_cmp(&last(a)));
        let step = (ys.end - ys.start - 10).min(20 * order.len() as i32) / order.len() as i32;
        for (at, number) in order.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let (x, y) = place(xs.end + 12, ys.start + 8 + step * at as i32);
            area.draw(&PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)))?;
            let name = fitting(&panel.curves[*number].name, LEGEND_LETTERS);
            area.draw_text(&name, &("sans-serif", 13).into_text_style(area), (x + 24, y - 7))?;
        }
    }
    Ok(())
}

/// Named bars with their intervals.
struct BarChart {
    title: String,
    x: String,
    /// From the bottom to the top.
    bars: Vec<(String, Interval)>,
}

fn draw_bars<B: DrawingBackend>(root: &Area<'_, B>, chart: &BarChart) -> Drawn<B> {
    root.fill(&WHITE)?;
    let count = chart.bars.len();
    let (_, high) = range(chart.bars.iter().map(|(_, y)| y.mean + y.half95.unwrap_or(0.0)), true);
    let letters = chart.bars.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).min(48);
    let mut context = ChartBuilder::on(root)
        .caption(fitting(&chart.title, 80), ("sans-serif", 20))
        .margin(14)
        .margin_right(24)
        .x_label_area_size(44)
        .y_label_area_size(30 + 7 * letters as i32)
        .build_cartesian_2d(0.0..high * 1.2, (0..count as i32).into_segmented())?;
    let name = |value: &SegmentValue<i32>| match value {
        SegmentValue::CenterOf(at) => chart.bars.get(*at as usize).map_or(String::new(), |bar| fitting(&bar.0, 48)),
        _ => String::new(),
    };
    context
        .configure_mesh()
        .x_desc(&chart.x)
        .y_labels(count)
        .y_label_formatter(&name)
        .x_label_formatter(&|value| short(*value))
        .disable_y_mesh()
        .light_line_style(WHITE.mix(0.0))
        .bold_line_style(GRID)
        .label_style(("sans-serif", 13))
        .draw()?;
    let best = chart.bars.iter().map(|(_, y)| y.mean).fold(f64::INFINITY, f64::min);
    context.draw_series(chart.bars.iter().enumerate().map(|(at, (_, y))| {
        let colour = if y.mean == best { COLOURS[2] } else { COLOURS[0] };
        let at = at as i32;
        let ends = [(0.0, SegmentValue::Exact(at)), (y.mean, SegmentValue::Exact(at + 1))];
        let mut bar = Rectangle::new(ends, colour.mix(0.75).filled());
        bar.set_margin(3, 3, 0, 0);
        bar
    }))?;
    let halves = chart.bars.iter().enumerate().filter_map(|(at, (_, y))| Some((at as i32, y.mean, y.half95?)));
    context.draw_series(halves.map(|(at, mean, half)| {
        ErrorBar::new_horizontal(SegmentValue::CenterOf(at), mean - half, mean, mean + half, BLACK.stroke_width(1), 6)
    }))?;
    context.draw_series(chart.bars.iter().enumerate().map(|(at, (_, y))| {
        let place = (y.mean + y.half95.unwrap_or(0.0) + high * 0.012, SegmentValue::CenterOf(at as i32));
        Text::new(y.show(3), place, ("sans-serif", 13))
    }))?;
    Ok(())
}

/// Writes a bar chart of write amplification in the warm window, best at the top, with 95 % intervals.
pub fn comparison(path: &Path, existing: Existing, outcomes: &[Outcome]) -> Result<(), Failure> {
    let Some(first) = outcomes.first() else { return Ok(()) };
    let pairs = folded(outcomes.iter().map(|outcome| &outcome.row));
    // The first bar is drawn at the bottom.
    let bars = pairs.iter().rev().map(|folded| {
        let doubt = if folded.group.unsettled().is_some() { " (not settled)" } else { "" };
        (format!("{}{doubt}", folded.name), folded.group.wa())
    });
    let bars: Vec<_> = bars.filter(|(_, wa)| wa.mean.is_finite()).collect();
    let row = &first.row;
    let title = format!("{} at over-provisioning {:.3}", row.source, row.over_provisioning);
    let x = "write amplification in the warm window, with 95 % intervals (lower is better)".to_string();
    let height = 130 + 24 * bars.len() as u32;
    let chart = BarChart { title, x, bars };
    render!(path, existing, (960, height), draw_bars, &chart)
}

fn exact(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, Interval)> {
    points.map(|(x, y)| (x, Interval::exact(y))).collect()
}

/// Bars of a histogram of erase counts: from, to, segments.
fn wear_bars(erases: &[u32]) -> Vec<(f64, f64, f64)> {
    let (low, high) = (erases.iter().min().copied().unwrap_or(0), erases.iter().max().copied().unwrap_or(0));
    let size = ((high - low) / 40 + 1).max(1);
    let mut bars: Vec<(f64, f64, f64)> = Vec::new();
    for number in 0..=(high - low) / size {
        let from = low + number * size;
        let count = erases.iter().filter(|count| (from..from + size).contains(count)).count();
        bars.push((f64::from(from) - 0.5, f64::from(from + size) - 0.5, count as f64));
    }
    bars
}

/// Writes charts of one run over its host writes, and of its end.
pub fn replay(path: &Path, existing: Existing, outcome: &Outcome) -> Result<(), Failure> {
    let curve = |name: &str, value: fn(&Sample) -> f64| Curve {
        name: name.into(),
        points: exact(outcome.series.iter().map(|sample| (sample.host_writes as f64, value(sample)))),
    };
    // The last sample can be of few writes, whose write amplification is that of one cleaning or none.
    let mut wa = curve("since the sample before", |s| s.wa);
    let ends: Vec<f64> = wa.points.iter().rev().take(3).map(|(x, _)| *x).collect();
    if let [last, before, earlier] = ends[..]
        && last - before < (before - earlier) / 2.0
    {
        wa.points.pop();
    }
    let row = &outcome.row;
    let title = format!("{}: {} + {}", row.source, row.selection, row.placement);
    let total = outcome.victims.iter().sum::<u64>().max(1) as f64;
    let pages = (outcome.victims.len() - 1).max(1) as f64;
    let width = 1.0 / pages;
    let victims = outcome.victims.iter().enumerate().map(|(valid, count)| {
        let at = valid as f64 / pages;
        (at - width / 2.0, at + width / 2.0, *count as f64 / total)
    });
    let settled = if row.settled { "" } else { ", NOT SETTLED" };
    let of_window = Interval { mean: row.wa_warm, half95: row.wa_warm_half95, count: 1 };
    let window = format!("warm window: WA {}{settled}", of_window.show(3));
    let panels = [
        Panel {
            title,
            x: "host page writes".into(),
            y: "write amplification".into(),
            curves: vec![wa],
            marked: Some((row.warm_from as f64, row.warm_to as f64, window)),
            from_zero: true,
            ..Panel::default()
        },
        Panel {
            title: "state of the device".into(),
            x: "host page writes".into(),
            y: "share".into(),
            curves: vec![
                curve("utilization", |s| s.utilization),
                curve("invalidity", |s| s.invalidity),
                curve("uniformity", |s| s.uniformity),
            ],
            from_zero: true,
            ..Panel::default()
        },
        Panel {
            title: "victims".into(),
            x: "utilization of the victim (valid pages / data pages)".into(),
            y: "share of victims".into(),
            bars: victims.collect(),
            from_zero: true,
            ..Panel::default()
        },
        Panel {
            title: format!("wear: mean {:.1} erases, standard deviation {:.2}", row.erases_mean, row.erases_deviation),
            x: "erases of a segment at the end".into(),
            y: "segments".into(),
            bars: wear_bars(&outcome.erases),
            from_zero: true,
            ..Panel::default()
        },
        Panel {
            title: "uneven wearing".into(),
            x: "host page writes".into(),
            y: "sd of erase counts".into(),
            curves: vec![curve("deviation", |s| s.erases_deviation)],
            from_zero: true,
            ..Panel::default()
        },
    ];
    let height = 40 + 300 * panels.len() as u32;
    render!(path, existing, (960, height), draw_panels, panels.as_slice())
}

/// Whether each value is the one before times the same factor of at least 1.5.
fn grows_by_factors(values: &[f64]) -> bool {
    let factors: Vec<f64> = values.windows(2).map(|pair| pair[1] / pair[0]).collect();
    values.len() > 2 && values[0] > 0.0 && factors.iter().all(|f| (f / factors[0] - 1.0).abs() < 1e-6 && *f >= 1.5)
}

/// Writes a chart of a sweep: write amplification over the setting with the most numbers, a curve for each combination of
/// the others; bars if there is no number among the settings.
pub fn sweep(path: &Path, existing: Existing, points: &[Point], rows: &[Option<ResultRow>]) -> Result<(), Failure> {
    let groups = swept(points, rows);
    let Some((keys, _)) = groups.first() else { return Ok(()) };
    let numbers = |key: &str| -> Option<Vec<f64>> {
        let mut all = groups.iter().map(|(set, _)| set[key].parse().ok()).collect::<Option<Vec<f64>>>()?;
        all.sort_by(f64::total_cmp);
        all.dedup();
        Some(all)
    };
    let over = keys.keys().filter_map(|key| Some((numbers(key)?, *key))).max_by_key(|(values, _)| values.len());
    let source = &groups[0].1.rows[0].source;
    let y = "write amplification in the warm window";
    let Some((values, over)) = over else {
        let name = |set: &BTreeMap<&str, String>| set.values().cloned().collect::<Vec<_>>().join(", ");
        let mut bars: Vec<_> = groups.iter().map(|(set, group)| (name(set), group.wa())).collect();
        bars.sort_by(|a, b| b.1.mean.total_cmp(&a.1.mean));
        let height = 130 + 24 * bars.len() as u32;
        let chart = BarChart { title: source.clone(), x: format!("{y}, with 95 % intervals"), bars };
        return render!(path, existing, (960, height), draw_bars, &chart);
    };
    let mut curves: Vec<Curve> = Vec::new();
    for (set, group) in &groups {
        let others = set.iter().filter(|(key, _)| **key != over).map(|(_, value)| value.clone());
        let name = others.collect::<Vec<_>>().join(", ");
        let point = (set[over].parse().unwrap_or(f64::NAN), group.wa());
        match curves.iter_mut().find(|curve| curve.name == name) {
            Some(curve) => curve.points.push(point),
            None => curves.push(Curve { name, points: vec![point] }),
        }
    }
    curves.iter_mut().for_each(|curve| curve.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    let several = groups.iter().any(|(_, group)| group.rows[0].source != *source);
    let title = if several { "several sources".into() } else { source.clone() };
    let panel =
        Panel { title, x: over.to_string(), y: y.into(), curves, log: grows_by_factors(&values), ..Panel::default() };
    render!(path, existing, (960, 560), draw_panels, std::slice::from_ref(&panel))
}
