//! Plots as SVG or PNG.

use plotters::prelude::*;
use plotters::style::register_font;
use std::sync::Once;

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
