use crate::segment_map::SegmentMap;
use crate::tenants::TenantRow;
use crate::{Forecast, Wear};
use serde::{Deserialize, Deserializer, Serialize};

/// Version of the fields of [`ResultRow`] and [`Sample`].
pub const SCHEMA_VERSION: u32 = 2;

/// A number that is none in JSON, because it is not finite.
fn or_nan<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

/// The result of one run: its parameters, and what it cost. All counts are in pages unless the name says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct ResultRow {
    pub schema_version: u32,
    pub margay_version: String,
    pub seed: u64,
    pub source: String,
    /// xxh3 of the trace file, as 16 hexadecimal digits; empty for a generator.
    pub trace_xxh3: String,
    pub trace_format: String,
    pub bad_lines: u64,
    pub device: String,
    pub segments: u32,
    pub pages_per_segment: u32,
    pub data_pages_per_segment: u32,
    pub page_bytes: u32,
    pub reserved_segments: u32,
    pub exported_pages: u32,
    pub filled_pages: u32,
    pub read_only_pages: u32,
    /// Data pages / exported pages - 1.
    pub over_provisioning: f64,
    /// The same without the segments from which no victim is drawn: those that are open, and those that cleaning keeps
    /// free. This is the over-provisioning that theory means.
    pub effective_over_provisioning: f64,
    pub low_water: u32,
    pub high_water: u32,
    /// The greatest number of pages programmed for one host write; 0 if cleaning is not spread over the writes. The
    /// column keeps the name that results of earlier versions have.
    #[serde(rename = "most_pages_per_write")]
    pub max_pages_per_write: u32,
    pub separate_read_only: bool,
    pub selection: String,
    pub placement: String,
    pub leveling: String,

    pub host_writes: u64,
    pub host_reads: u64,
    pub trims: u64,
    pub copies: u64,
    pub leveling_copies: u64,
    pub metadata_pages: u64,
    pub erases: u64,
    pub misplaced_copies: u64,
    /// (host writes + copies + metadata pages) / host writes over the whole run, the fill left out.
    #[serde(deserialize_with = "or_nan")]
    pub wa: f64,
    /// Write amplification from host write `warm_from` to `warm_to`.
    #[serde(deserialize_with = "or_nan")]
    pub wa_warm: f64,
    /// Half the width of its 95 % interval, from parts of the window, if there are enough of them.
    pub wa_warm_half95: Option<f64>,
    /// Host writes before the warm window.
    pub warm_from: u64,
    /// Host writes up to its end.
    pub warm_to: u64,
    /// What theory expects of `wa_warm` at `effective_over_provisioning`, where it has a formula.
    pub theory_wa: Option<f64>,
    /// How its start was found: `mser-5`, `mser over passes` of a trace, or `fixed`.
    pub warm_rule: String,
    /// Whether write amplification had settled in the warm window.
    pub settled: bool,
    /// Why not.
    pub unsettled: String,

    pub erases_min: u32,
    pub erases_p50: u32,
    pub erases_p99: u32,
    pub erases_max: u32,
    pub erases_mean: f64,
    /// Sample standard deviation of erase counts over all segments: degree of uneven wearing.
    pub erases_deviation: f64,

    /// Valid pages / data pages at the end.
    pub utilization: f64,
    pub invalidity: f64,
    pub uniformity: f64,
    /// Mean utilization of victims.
    pub victim_utilization: f64,

    /// Modelled time of all flash work of host writes, cleaning and metadata, in seconds.
    pub flash_s: f64,
    /// Host bytes written / `flash_s`.
    #[serde(deserialize_with = "or_nan")]
    pub throughput_bytes_per_s: f64,
    /// Modelled energy of the same, in joules, if the device states it.
    pub energy_j: Option<f64>,
    /// Modelled time of the slowest host write, in microseconds.
    pub worst_write_us: f64,
    pub p99_write_us: f64,
    /// The greatest number of pages programmed for one host write.
    pub worst_write_pages: u64,

    /// Time that the workload spans, in seconds.
    pub duration_s: f64,
    pub forecast: Forecast,
    pub wall_s: f64,
    /// Host page writes per second of wall time.
    pub writes_per_s: f64,
}

/// The state at one moment of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Host page writes so far.
    pub host_writes: u64,
    /// Time of the workload, in seconds.
    pub time_s: f64,
    /// Write amplification since the sample before.
    pub wa: f64,
    /// Erases so far.
    pub erases: u64,
    /// Valid pages / data pages.
    pub utilization: f64,
    /// Invalid pages / data pages.
    pub invalidity: f64,
    /// Share of segments that do not hold valid and invalid pages together.
    pub uniformity: f64,
    /// Standard deviation of erase counts.
    pub erases_deviation: f64,
}

/// Everything that a run yields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The result.
    pub row: ResultRow,
    /// States over the run, at most a few hundred, evenly spaced in host writes.
    pub series: Vec<Sample>,
    /// Victims by number of valid pages, from 0 to the data pages of a segment.
    pub victims: Vec<u64>,
    /// Erase counts at the end, by segment.
    pub erases: Vec<u32>,
    /// The segments at some moments of the run, for pictures; not written to files.
    #[serde(skip)]
    pub maps: Vec<SegmentMap>,
    /// What each device of a trace cost, if the trace has several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<TenantRow>,
}

impl ResultRow {
    pub(crate) fn set_wear(&mut self, wear: Wear) {
        self.erases_min = wear.min;
        self.erases_p50 = wear.p50;
        self.erases_p99 = wear.p99;
        self.erases_max = wear.max;
        self.erases_mean = wear.mean;
        self.erases_deviation = wear.deviation;
    }
}
