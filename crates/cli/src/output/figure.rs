//! Figures of reproductions as SVG: lines with error bars and their names beside them, or named bars.

use margay_lab::reproduce::{Axis, Curve, Figure, Point};
use std::fmt::Write;

/// The palette of Okabe and Ito, which is safe for colour-blind readers.
const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#949494"];

/// Sizes in pixels.
const FONT: f64 = 13.0;
const LINE: f64 = 17.0;
const TOP: f64 = 44.0;
const PLOT_HEIGHT: f64 = 320.0;
const MARGIN: f64 = 12.0;
const MIN_PLOT_WIDTH: f64 = 560.0;

/// The width of a text in pixels, rather too much than too little.
fn width_of(text: &str, font: f64) -> f64 {
    text.chars().count() as f64 * font * 0.56
}

pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A round step of which `wanted` or somewhat fewer or more fit the span.
fn step_of(span: f64, wanted: f64) -> f64 {
    let raw = span / wanted;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * power >= raw * 0.999);
    step.unwrap_or(10.0) * power
}

/// A number of an axis, with a space between thousands.
fn tick(value: f64, step: f64) -> String {
    let digits = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
    let text = format!("{value:.digits$}");
    if value.abs() < 10_000.0 {
        return text;
    }
    let split = text.len() % 3;
    let groups = text.as_bytes()[split..].chunks(3).map(|group| String::from_utf8_lossy(group).into_owned());
    let first = (split > 0).then(|| text[..split].to_string());
    first.into_iter().chain(groups).collect::<Vec<_>>().join("\u{2009}")
}

/// A drawing: where the plot is, and the elements so far.
struct Drawing {
    body: String,
    left: f64,
    plot_width: f64,
    x_range: (f64, f64),
    y_max: f64,
    y_step: f64,
}

impl Drawing {
    fn x(&self, x: f64) -> f64 {
        self.left + self.plot_width * (x - self.x_range.0) / (self.x_range.1 - self.x_range.0)
    }

    fn y(&self, y: f64) -> f64 {
        TOP + PLOT_HEIGHT * (1.0 - y / self.y_max)
    }

    fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), style: &str) {
        let _ = writeln!(self.body, r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" {style}/>"#);
    }

    fn text(&mut self, (x, y): (f64, f64), anchor: &str, font: f64, text: &str) {
        let text = escape(text);
        let _ = writeln!(
            self.body,
            r#"<text x="{x:.1}" y="{y:.1}" font-size="{font}" text-anchor="{anchor}" fill="black">{text}</text>"#
        );
    }

    /// A published point: a hollow diamond in the colour of what it is to be compared with.
    fn diamond(&mut self, x: f64, y: f64, colour: &str) {
        let _ = writeln!(
            self.body,
            r#"<path d="M{:.1} {y:.1}L{x:.1} {:.1}L{:.1} {y:.1}L{x:.1} {:.1}Z" fill="white" stroke="{colour}" stroke-width="2"/>"#,
            x - 6.0,
            y - 6.0,
            x + 6.0,
            y + 6.0
        );
    }

    fn error_bar(&mut self, x: f64, point: &Point, colour: &str) {
        let (low, high) = (self.y(point.low.max(0.0)), self.y(point.high));
        if (low - high).abs() < 1.0 {
            return;
        }
        let style = format!(r#"stroke="{colour}" stroke-width="1.3""#);
        self.line((x, low), (x, high), &style);
        self.line((x - 3.5, low), (x + 3.5, low), &style);
        self.line((x - 3.5, high), (x + 3.5, high), &style);
    }

    fn y_axis(&mut self, figure: &Figure) {
        let step = self.y_step;
        let right = self.left + self.plot_width;
        let mut value = 0.0;
        while value <= self.y_max * 1.0001 {
            let y = self.y(value);
            let colour = if value == 0.0 { "black" } else { "#e4e4e4" };
            self.line((self.left, y), (right, y), &format!(r#"stroke="{colour}""#));
            self.text((self.left - 6.0, y + 4.5), "end", FONT, &tick(value, step));
            value += step;
        }
        let (x, y) = (MARGIN + 10.0, TOP + PLOT_HEIGHT / 2.0);
        let name = escape(&figure.y);
        let _ = writeln!(
            self.body,
            r#"<text x="{x:.1}" y="{y:.1}" font-size="{FONT}" text-anchor="middle" transform="rotate(-90 {x:.1} {y:.1})">{name}</text>"#
        );
    }

    fn x_label(&mut self, figure: &Figure, down: f64) {
        let at = (self.left + self.plot_width / 2.0, TOP + PLOT_HEIGHT + down);
        self.text(at, "middle", FONT, &figure.x);
    }

    fn finish(mut self, figure: &Figure, width: f64, height: f64) -> String {
        self.text((MARGIN, 26.0), "start", 17.0, &figure.title);
        let title = escape(&figure.title);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\" role=\"img\" aria-label=\"{}\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{}</svg>\n",
            title.replace('"', "&quot;"),
            self.body
        )
    }
}

/// The colour of a curve: a published one has that of the measured curve whose name it begins with.
fn colour_of(figure: &Figure, at: usize) -> &'static str {
    let curve = &figure.curves[at];
    if !curve.is_published {
        return COLOURS[at % COLOURS.len()];
    }
    counterpart(figure, curve).map_or("#000000", |at| COLOURS[at % COLOURS.len()])
}

/// The measured curve that a published one is to be compared with: "CAT" for "CAT, published".
fn counterpart(figure: &Figure, published: &Curve) -> Option<usize> {
    let name = published.name.strip_suffix(", published")?;
    figure.curves.iter().position(|curve| !curve.is_published && curve.name == name)
}

/// The figure as a whole SVG document.
pub fn svg(figure: &Figure) -> String {
    match &figure.axis {
        Axis::Named(names) => bars(figure, names),
        _ => lines(figure),
    }
}

fn highest(figure: &Figure) -> f64 {
    let points = figure.curves.iter().flat_map(|curve| &curve.points);
    let highest = points.map(|point| point.high).filter(|high| high.is_finite()).fold(0.0, f64::max);
    if highest > 0.0 { highest } else { 1.0 }
}

/// The upper end of the vertical axis, a whole number of steps, and a step.
fn y_axis_of(figure: &Figure) -> (f64, f64) {
    let highest = highest(figure);
    let step = step_of(highest, 6.0);
    ((highest * 1.03 / step).ceil() * step, step)
}

/// Room at the left for the numbers and the name of the vertical axis.
fn left_of(y_max: f64, step: f64) -> f64 {
    MARGIN + 24.0 + width_of(&tick(y_max, step), FONT).max(width_of(&tick(step, step), FONT)) + 8.0
}

fn legend_width(figure: &Figure) -> f64 {
    figure.curves.iter().map(|curve| width_of(&curve.name, FONT)).fold(0.0, f64::max) + 44.0
}

fn bars(figure: &Figure, names: &[String]) -> String {
    let (y_max, y_step) = y_axis_of(figure);
    let measured: Vec<usize> = (0..figure.curves.len()).filter(|at| !figure.curves[*at].is_published).collect();
    let widest_word =
        names.iter().flat_map(|name| name.split(' ')).map(|word| width_of(word, FONT - 1.0)).fold(0.0, f64::max);
    let group = (widest_word + 10.0).max(measured.len() as f64 * 7.0 + 12.0).max(MIN_PLOT_WIDTH / names.len() as f64);
    let left = left_of(y_max, y_step);
    let plot_width = group * names.len() as f64;
    let mut drawing =
        Drawing { body: String::new(), left, plot_width, x_range: (-0.5, names.len() as f64 - 0.5), y_max, y_step };
    drawing.y_axis(figure);
    let bar = (group - 10.0) / measured.len().max(1) as f64;
    let place = |drawing: &Drawing, point: &Point, number: usize| {
        drawing.x(point.x) - (group - 10.0) / 2.0 + bar * (number as f64 + 0.5)
    };
    for (number, at) in measured.iter().enumerate() {
        let colour = colour_of(figure, *at);
        for point in figure.curves[*at].points.iter().filter(|point| point.y.is_finite()) {
            let (x, y) = (place(&drawing, point, number), drawing.y(point.y));
            let height = drawing.y(0.0) - y;
            let _ = writeln!(
                drawing.body,
                r#"<rect x="{:.1}" y="{y:.1}" width="{:.1}" height="{height:.1}" fill="{colour}"/>"#,
                x - bar / 2.0 + 0.5,
                (bar - 1.0).max(1.0)
            );
            drawing.error_bar(x, point, "#333333");
        }
    }
    for at in (0..figure.curves.len()).filter(|at| figure.curves[*at].is_published) {
        let curve = &figure.curves[at];
        let beside = counterpart(figure, curve).and_then(|at| measured.iter().position(|other| *other == at));
        for point in &curve.points {
            let x = beside.map_or(drawing.x(point.x), |number| place(&drawing, point, number));
            let y = drawing.y(point.y);
            drawing.error_bar(x, point, "#000000");
            drawing.diamond(x, y, "#000000");
        }
    }
    let mut lowest: f64 = 1.0;
    for (at, name) in names.iter().enumerate() {
        for (number, word) in (0u32..).zip(name.split(' ')) {
            let y = TOP + PLOT_HEIGHT + LINE * (f64::from(number) + 1.0);
            let x = drawing.x(at as f64);
            drawing.text((x, y), "middle", FONT - 1.0, word);
            lowest = lowest.max(f64::from(number) + 1.0);
        }
    }
    let down = LINE * lowest + 22.0;
    drawing.x_label(figure, down);
    let legend = left + plot_width + 16.0;
    let mut is_listed = false;
    for at in 0..figure.curves.len() {
        let y = TOP + 8.0 + at as f64 * (LINE + 3.0);
        let curve = &figure.curves[at];
        // Diamonds on the bars that they belong to are listed once.
        let is_beside = counterpart(figure, curve).is_some() && curve.is_published;
        if is_beside && std::mem::replace(&mut is_listed, true) {
            continue;
        }
        if curve.is_published {
            drawing.diamond(legend + 7.0, y, "#000000");
        } else {
            let colour = colour_of(figure, at);
            let _ = writeln!(
                drawing.body,
                r#"<rect x="{legend:.1}" y="{:.1}" width="14" height="11" fill="{colour}"/>"#,
                y - 6.0
            );
        }
        let name = if is_beside { "published, on its bar" } else { &curve.name };
        drawing.text((legend + 22.0, y + 4.5), "start", FONT, name);
    }
    let of_legend = TOP + 20.0 + figure.curves.len() as f64 * (LINE + 3.0);
    let height = (TOP + PLOT_HEIGHT + down + MARGIN).max(of_legend);
    let width = (legend + legend_width(figure)).max(width_of(&figure.title, 17.0) + 2.0 * MARGIN);
    drawing.finish(figure, width, height)
}

/// Where x is on the axis.
fn scaled(axis: &Axis, x: f64) -> f64 {
    if *axis == Axis::Log2 { x.max(f64::MIN_POSITIVE).log2() } else { x }
}

fn lines(figure: &Figure) -> String {
    let (y_max, y_step) = y_axis_of(figure);
    let finite = |curve: &Curve| -> Vec<Point> {
        curve.points.iter().copied().filter(|point| point.x.is_finite() && point.y.is_finite()).collect()
    };
    let xs = || figure.curves.iter().flat_map(|curve| &curve.points).map(|point| scaled(&figure.axis, point.x));
    let low = xs().filter(|x| x.is_finite()).fold(f64::INFINITY, f64::min);
    let high = xs().filter(|x| x.is_finite()).fold(f64::NEG_INFINITY, f64::max);
    let (low, high) = if high > low { (low, high) } else { (0.0, 1.0) };
    let room = (high - low) * 0.03;
    let left = left_of(y_max, y_step);
    let plot_width = MIN_PLOT_WIDTH + 60.0;
    let mut drawing =
        Drawing { body: String::new(), left, plot_width, x_range: (low - room, high + room), y_max, y_step };
    drawing.y_axis(figure);
    x_ticks(&mut drawing, figure, (low, high));
    drawing.x_label(figure, 42.0);
    for (x, name) in &figure.marks {
        let x = drawing.x(scaled(&figure.axis, *x));
        drawing.line((x, TOP), (x, TOP + PLOT_HEIGHT), r##"stroke="#444" stroke-dasharray="5 4""##);
        drawing.text((x - 6.0, TOP + 12.0), "end", FONT, name);
    }
    let mut ends = Vec::new();
    // Wide error bars at the same x stand side by side.
    let wide = |curve: &Curve| curve.points.iter().any(|point| drawing.y(point.low) - drawing.y(point.high) > 12.0);
    let apart = if figure.curves.iter().any(wide) { 5.0 } else { 0.0 };
    let middle = (figure.curves.iter().filter(|curve| !curve.is_published).count() as f64 - 1.0) / 2.0;
    for (at, curve) in figure.curves.iter().enumerate() {
        let (colour, points) = (colour_of(figure, at), finite(curve));
        let aside = if curve.is_published { 0.0 } else { (at as f64 - middle) * apart };
        let place = |point: &Point| (drawing.x(scaled(&figure.axis, point.x)) + aside, drawing.y(point.y));
        let places: Vec<(f64, f64)> = points.iter().map(place).collect();
        if curve.is_published {
            for ((x, y), point) in places.iter().zip(&points) {
                drawing.error_bar(*x, point, colour);
                drawing.diamond(*x, *y, colour);
            }
        } else {
            let path: Vec<_> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(
                drawing.body,
                r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="2"/>"#,
                path.join(" ")
            );
            for ((x, y), point) in places.iter().zip(&points) {
                drawing.error_bar(*x, point, colour);
                let _ = writeln!(drawing.body, r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="{colour}"/>"#);
            }
        }
        if let Some(end) = places.last() {
            ends.push((at, *end));
        }
    }
    names_beside(&mut drawing, figure, ends);
    let width = left + plot_width + 40.0 + legend_width(figure);
    let width = width.max(width_of(&figure.title, 17.0) + 2.0 * MARGIN);
    let of_legend = TOP + 30.0 + figure.curves.len() as f64 * LINE;
    drawing.finish(figure, width, (TOP + PLOT_HEIGHT + 42.0 + MARGIN).max(of_legend))
}

fn x_ticks(drawing: &mut Drawing, figure: &Figure, (low, high): (f64, f64)) {
    let mut ticks = Vec::new();
    if figure.axis == Axis::Log2 {
        ticks = figure.curves.iter().flat_map(|curve| &curve.points).map(|point| point.x).collect();
        ticks.sort_by(f64::total_cmp);
        // Not where two numbers would touch.
        ticks.dedup_by(|b, a| drawing.x(scaled(&figure.axis, *b)) - drawing.x(scaled(&figure.axis, *a)) < 3.0 * FONT);
    } else {
        let step = step_of(high - low, 8.0);
        let mut value = (low / step).ceil() * step;
        while value <= high + step * 0.001 {
            ticks.push(value);
            value += step;
        }
    }
    let step = if figure.axis == Axis::Log2 { 1.0 } else { step_of(high - low, 8.0) };
    for value in ticks {
        let x = drawing.x(scaled(&figure.axis, value));
        let base = TOP + PLOT_HEIGHT;
        drawing.line((x, base), (x, base + 5.0), r#"stroke="black""#);
        let step = if value.fract() == 0.0 { step } else { step.min(0.1) };
        drawing.text((x, base + 20.0), "middle", FONT, &tick(value, step));
    }
}

/// The names of the curves at the right of the plot, as close to the ends of their lines as there is room; those of
/// published points below, in a list.
fn names_beside(drawing: &mut Drawing, figure: &Figure, mut ends: Vec<(usize, (f64, f64))>) {
    let edge = drawing.left + drawing.plot_width;
    let listed: Vec<usize> = ends.iter().map(|(at, _)| *at).filter(|at| figure.curves[*at].is_published).collect();
    ends.retain(|(at, _)| !figure.curves[*at].is_published);
    ends.sort_by(|a, b| a.1.1.total_cmp(&b.1.1));
    let bottom = TOP + PLOT_HEIGHT - if listed.is_empty() { 0.0 } else { LINE * (listed.len() as f64 + 0.5) };
    let mut ys: Vec<f64> = ends.iter().map(|(_, (_, y))| *y).collect();
    // Down where they are too close, then up again from the bottom.
    for at in 1..ys.len() {
        ys[at] = ys[at].max(ys[at - 1] + LINE);
    }
    let mut limit = bottom;
    for y in ys.iter_mut().rev() {
        *y = y.min(limit);
        limit = *y - LINE;
    }
    for ((at, (x, y)), text_y) in ends.into_iter().zip(ys) {
        let colour = colour_of(figure, at);
        let style = format!(r#"stroke="{colour}" stroke-dasharray="2 3""#);
        drawing.line((x + 4.0, y), (edge + 22.0, text_y), &style);
        drawing.line((edge + 22.0, text_y), (edge + 34.0, text_y), &format!(r#"stroke="{colour}" stroke-width="3""#));
        drawing.text((edge + 39.0, text_y + 4.5), "start", FONT, &figure.curves[at].name);
    }
    for (number, at) in (0u32..).zip(listed) {
        let y = bottom + LINE * (f64::from(number) + 1.0);
        drawing.diamond(edge + 28.0, y, colour_of(figure, at));
        drawing.text((edge + 39.0, y + 4.5), "start", FONT, &figure.curves[at].name);
    }
}
