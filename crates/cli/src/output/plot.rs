//! Plots as SVG or PNG.

use crate::failure::Failure;
use margay_host::Existing;
use plotters::prelude::*;
use plotters::style::register_font;
use std::path::Path;
use std::sync::Once;

/// A named curve.
pub struct Curve {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// A chart of curves, with its title and the names of its axes.
pub struct Chart<'a> {
    pub title: &'a str,
    pub x: &'a str,
    pub y: &'a str,
    pub curves: Vec<Curve>,
}

pub(super) type Area<'a, B> = DrawingArea<B, plotters::coord::Shift>;

/// The palette of Okabe and Ito, which is safe for colour-blind readers.
pub(super) const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(148, 148, 148),
];

pub(super) fn prepare_fonts() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let font = epaint_default_fonts::UBUNTU_LIGHT;
        // It fails only for an invalid font file; drawing would then report the missing font.
        let _ = register_font("sans-serif", FontStyle::Normal, font);
    });
}

/// Bytes of a pixel in a bitmap: red, green, blue.
pub(super) const RGB_BYTES: usize = 3;

pub(super) fn png_bytes(pixels: &[u8], (width, height): (u32, u32)) -> Result<Vec<u8>, png::EncodingError> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(bytes)
}

/// Draws on an SVG or bitmap canvas and writes the file.
macro_rules! render {
    ($path:expr, $existing:expr, $size:expr, $draw:ident, $what:expr) => {{
        $crate::output::plot::prepare_fonts();
        let (path, size): (&Path, (u32, u32)) = ($path, $size);
        let failed = |error: String| Failure::write(&path.display().to_string(), error);
        let bytes = if path.extension().is_some_and(|extension| extension == "svg") {
            let mut text = String::new();
            let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
            $draw(&root, $what).and_then(|()| root.present()).map_err(|error| failed(error.to_string()))?;
            drop(root);
            text.into_bytes()
        } else {
            let mut pixels = vec![0; size.0 as usize * size.1 as usize * $crate::output::plot::RGB_BYTES];
            let root = BitMapBackend::with_buffer(&mut pixels, size).into_drawing_area();
            $draw(&root, $what).and_then(|()| root.present()).map_err(|error| failed(error.to_string()))?;
            drop(root);
            $crate::output::plot::png_bytes(&pixels, size).map_err(|error| failed(error.to_string()))?
        };
        crate::output::write_file(path, &bytes, $existing)
    }};
}

pub(super) use render;

/// Writes charts, one below the other, as .svg or .png.
pub fn charts(path: &Path, existing: Existing, charts: &[Chart<'_>]) -> Result<(), Failure> {
    let height = 60 + 320 * charts.len() as u32;
    render!(path, existing, (960, height), draw_charts, charts)
}

pub(super) fn range(values: impl Iterator<Item = f64> + Clone, from_zero: bool) -> (f64, f64) {
    let finite = values.filter(|value| value.is_finite());
    let low = if from_zero { 0.0 } else { finite.clone().fold(f64::INFINITY, f64::min) };
    let high = finite.fold(f64::NEG_INFINITY, f64::max);
    if !low.is_finite() || !high.is_finite() {
        return (0.0, 1.0);
    }
    let room = if high > low { (high - low) * 0.05 } else { high.abs().max(1.0) * 0.05 };
    (low, high + room)
}

fn draw_charts<B: DrawingBackend>(
    root: &Area<'_, B>,
    charts: &[Chart<'_>],
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    root.fill(&WHITE)?;
    for (area, chart) in root.margin(10, 10, 10, 10).split_evenly((charts.len(), 1)).iter().zip(charts) {
        let points = || chart.curves.iter().flat_map(|curve| curve.points.iter());
        let (x0, x1) = range(points().map(|p| p.0), false);
        let (y0, y1) = range(points().map(|p| p.1), true);
        let mut context = ChartBuilder::on(area)
            .caption(chart.title, ("sans-serif", 20))
            .margin(8)
            .x_label_area_size(42)
            .y_label_area_size(72)
            .build_cartesian_2d(x0..x1, y0..y1)?;
        context
            .configure_mesh()
            .x_desc(chart.x)
            .y_desc(chart.y)
            .light_line_style(RGBColor(238, 238, 238))
            .label_style(("sans-serif", 14))
            .draw()?;
        for (number, curve) in chart.curves.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let finite: Vec<_> = curve.points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
            let series = LineSeries::new(finite.clone(), colour.stroke_width(2)).point_size(if finite.len() < 30 {
                3
            } else {
                0
            });
            context
                .draw_series(series)?
                .label(&curve.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        }
        if chart.curves.len() > 1 {
            context
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperLeft)
                .background_style(WHITE.mix(0.8))
                .border_style(RGBColor(200, 200, 200))
                .label_font(("sans-serif", 14))
                .draw()?;
        }
    }
    Ok(())
}
