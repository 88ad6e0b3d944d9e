use margay_flash::{Geometry, GeometryError};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Why there is no device of a name, of a file, or of a size.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// There is no preset of this name.
    #[error("device = {name}: unknown; the known ones are {known}, or a path to a .toml file")]
    Unknown {
        /// The name.
        name: String,
        /// The names of the presets.
        known: String,
    },
    /// A file cannot be read, or does not describe a device.
    #[error("{path}: {error}")]
    File {
        /// Its path.
        path: String,
        /// What went wrong.
        error: String,
    },
    /// It would have more segments than can be numbered.
    #[error("flash size = {bytes} bytes: {segments} segments are more than 32-bit numbers can name")]
    TooLarge {
        /// Bytes asked for.
        bytes: u64,
        /// Segments that would be needed.
        segments: u64,
    },
    /// Its shape is impossible.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
}

/// Time of one operation, in microseconds, transfers included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    /// Reading a page.
    pub read_us: f64,
    /// Programming a page.
    pub program_us: f64,
    /// Erasing a segment.
    pub erase_us: f64,
    /// The time that a copy takes besides its program; a read if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_extra_us: Option<f64>,
}

impl Timing {
    /// Time of one copy.
    pub fn copy_us(&self) -> f64 {
        self.program_us + self.copy_extra_us.unwrap_or(self.read_us)
    }
}

/// Energy of one operation, in microjoules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Energy {
    /// Reading a page.
    pub read_uj: f64,
    /// Programming a page.
    pub program_uj: f64,
    /// Erasing a segment.
    pub erase_uj: f64,
}

/// A flash part: shape, room for metadata, times, energy, endurance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceSpec {
    /// Its name.
    pub name: String,
    /// Segments.
    pub segments: u32,
    /// Pages in a segment, metadata pages included.
    pub pages_per_segment: u32,
    /// Bytes in a page.
    pub page_bytes: u32,
    /// Pages at the start of each segment that hold its header and the per-page information.
    #[serde(default)]
    pub header_pages: u32,
    /// Pages at the end of each segment that hold its summary.
    #[serde(default)]
    pub summary_pages: u32,
    /// Usable bytes of the spare area of a page (NAND), beside ECC and bad-block mark.
    #[serde(default)]
    pub spare_bytes: u32,
    /// Whether bytes can be programmed one by one (NOR).
    #[serde(default)]
    pub byte_programmable: bool,
    /// Times of operations.
    pub timing: Timing,
    /// Energy of operations, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy: Option<Energy>,
    /// Erases a segment is rated for.
    pub endurance_erases: u32,
    /// Where the figures come from.
    pub source: String,
}

macro_rules! preset_files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("presets/", $name, ".toml")))),*]
    };
}

/// The built-in parts: names and TOML texts.
pub fn presets() -> &'static [(&'static str, &'static str)] {
    preset_files![
        "intel-series2plus-24mb",
        "nand-small-block-64mb",
        "spi-nand-24mb",
        "samsung-slc-large-block",
        "nand-slc-1gbit",
        "nand-mlc",
        "nand-tlc",
        "nand-qlc",
        "spi-nor-16mb",
        "ideal-1gb",
    ]
}

impl DeviceSpec {
    /// The preset of this name, or the TOML file at this path (anything with a `.` or a `/`), or what a text of several lines
    /// describes in TOML itself.
    pub fn load(name: &str) -> Result<Self, DeviceError> {
        if name.contains('\n') {
            return Self::parse("device", name);
        }
        if let Some((_, text)) = presets().iter().find(|(preset, _)| *preset == name) {
            return Self::parse(name, text);
        }
        let Some(path) = Self::file_of(name) else {
            let known: Vec<_> = presets().iter().map(|(name, _)| *name).collect();
            return Err(DeviceError::Unknown { name: name.into(), known: known.join(", ") });
        };
        let text = std::fs::read_to_string(path)
            .map_err(|error| DeviceError::File { path: name.into(), error: error.to_string() })?;
        Self::parse(name, &text)
    }

    /// The file that [`load`](Self::load) reads for this name; none if it reads no file.
    pub fn file_of(name: &str) -> Option<&Path> {
        let is_preset = presets().iter().any(|(preset, _)| *preset == name);
        (!is_preset && !name.contains('\n') && name.contains(['.', '/'])).then(|| Path::new(name))
    }

    /// Parses a device from TOML. Errors name `path`.
    pub fn parse(path: &str, text: &str) -> Result<Self, DeviceError> {
        toml::from_str(text).map_err(|error| DeviceError::File { path: path.into(), error: error.to_string() })
    }

    /// The geometry of the part.
    pub fn geometry(&self) -> Result<Geometry, DeviceError> {
        let geometry = Geometry::new(self.segments, self.pages_per_segment, self.page_bytes)?;
        let geometry = geometry.with_spare(self.spare_bytes);
        Ok(if self.byte_programmable { geometry.byte_programmable() } else { geometry })
    }

    /// The same part with another capacity, rounded up to whole segments.
    pub fn with_bytes(mut self, bytes: u64) -> Result<Self, DeviceError> {
        let segment_bytes = u64::from(self.pages_per_segment) * u64::from(self.page_bytes);
        let segments = bytes.div_ceil(segment_bytes.max(1));
        self.segments = u32::try_from(segments).map_err(|_| DeviceError::TooLarge { bytes, segments })?;
        Ok(self)
    }

    /// The same part with another segment size (metadata pages stay), at the same capacity.
    pub fn with_pages_per_segment(mut self, pages: u32) -> Result<Self, DeviceError> {
        let bytes = self.geometry()?.bytes();
        self.pages_per_segment = pages;
        self.with_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_a_device_that_says_where_its_figures_come_from() {
        for (name, text) in presets() {
            let device = DeviceSpec::parse(name, text).unwrap();
            assert_eq!(device, DeviceSpec::load(name).unwrap());
            assert!(device.geometry().unwrap().segments() > device.header_pages, "{name}");
            assert!(device.source.len() > 20 && device.endurance_erases > 0, "{name}");
        }
    }

    #[test]
    fn only_what_no_preset_is_called_and_no_description_is_names_a_file() {
        assert_eq!(DeviceSpec::file_of("chips/mine.toml"), Some(Path::new("chips/mine.toml")));
        let description = presets()[0].1;
        for name in ["spi-nor-16mb", "nand-slc", "", description] {
            assert_eq!(DeviceSpec::file_of(name), None, "{name}");
        }
    }

    #[test]
    fn a_device_that_is_not_known_and_one_that_is_too_large_are_errors_that_say_so() {
        let error = DeviceSpec::load("nand-slc").unwrap_err().to_string();
        assert!(
            error.starts_with("device = nand-slc: unknown; the known ones are intel-series2plus-24mb, "),
            "{error}"
        );
        let error = DeviceSpec::parse("mine.toml", "segments = 4").unwrap_err().to_string();
        assert!(error.starts_with("mine.toml: "), "{error}");
        let error = DeviceSpec::load("nand-slc-1gbit").unwrap().with_bytes(1 << 60).unwrap_err().to_string();
        assert!(error.contains("more than 32-bit numbers can name"), "{error}");
    }
}
