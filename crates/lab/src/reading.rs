//! How a trace is read, as settings.

use crate::LabError;
use crate::settings::one_or_many;
use margay_trace::{BadLines, CsvLayout, Format, ReadOptions};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// How a trace is read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default, rename_all = "kebab-case")]
pub struct Reading {
    /// Format of the trace, if it is not to be detected (see `margay policies traces`)
    #[cfg_attr(feature = "clap", arg(long, value_name = "FORMAT"))]
    pub trace_format: Option<String>,
    /// TOML file that names the columns of a CSV trace
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE"))]
    pub csv_layout: Option<PathBuf>,
    /// Read only the requests to these devices of the trace: names as `margay trace info` lists them, the part before a `_`,
    /// or numbers
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "NAME"))]
    #[serde(deserialize_with = "one_or_many")]
    pub trace_device: Option<Vec<String>>,
    /// Skip lines that cannot be read, and count them, instead of stopping at the first
    #[cfg_attr(feature = "clap", arg(long))]
    pub skip_bad_lines: bool,
    /// With --skip-bad-lines: stop when more lines than this would be skipped
    #[cfg_attr(feature = "clap", arg(long, requires = "skip_bad_lines", value_name = "LINES"))]
    pub bad_line_limit: Option<u64>,
}

impl Reading {
    /// The options for a reader.
    ///
    /// # Errors
    /// The format is not known, or the file with the layout cannot be read or says nothing of use.
    pub fn options(&self) -> Result<ReadOptions, LabError> {
        let format = self.trace_format.as_deref().map(str::parse::<Format>).transpose()?;
        let csv = match &self.csv_layout {
            None => None,
            Some(path) => {
                let failed = |error: String| LabError::File { path: path.display().to_string(), error };
                let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
                Some(CsvLayout::from_toml(&text).map_err(|error| failed(error.to_string()))?)
            }
        };
        let bad_lines =
            if self.skip_bad_lines { BadLines::Skip { limit: self.bad_line_limit } } else { BadLines::Stop };
        Ok(ReadOptions { format, bad_lines, csv, devices: self.trace_device.clone() })
    }
}
