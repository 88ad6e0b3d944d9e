//! Closed formulas of cleaning cost, by their names.

use crate::LabError;
use margay_log::ConfigError;
use margay_media::DeviceSpec;
use margay_theory::{OverProvisioning, cleaning_cost, evaluate};
use serde::Serialize;
use std::collections::BTreeMap;

/// What a formula gives.
#[derive(Clone, Debug)]
pub struct ModelResult {
    /// The over-provisioning that was given, if the formula takes one.
    pub given: Option<OverProvisioning>,
    /// The same without idle segments, if some were named.
    pub without_idle: Option<OverProvisioning>,
    /// Names and values.
    pub values: Vec<(&'static str, f64)>,
}

/// Evaluates a formula (`margay_theory::models`) for parameters as texts. `op`, `spare`, `rho` or `alpha` gives the
/// over-provisioning; `idle`, as `3/1024` or `0.003`, takes segments off that are open or kept free.
///
/// # Errors
/// The formula or a parameter is not known, or a value is impossible.
pub fn model(name: &str, parameters: &[(String, String)]) -> Result<ModelResult, LabError> {
    let mut numbers = BTreeMap::new();
    let mut idle = None;
    for (key, text) in parameters {
        if key == "idle" {
            idle = Some(share(text)?);
            continue;
        }
        let number: f64 = text.parse().map_err(|_| LabError::Setting {
            key: key.clone(),
            value: text.clone(),
            problem: "expected a number, for instance alpha=1.1".into(),
        })?;
        let provisioning = match key.as_str() {
            "op" => Some(OverProvisioning::from_over_provisioning(number)?),
            "spare" => Some(OverProvisioning::from_spare_factor(number)?),
            "rho" => Some(OverProvisioning::from_utilization(number)?),
            "alpha" => Some(OverProvisioning::from_alpha(number)?),
            _ => None,
        };
        match provisioning {
            Some(provisioning) => numbers.insert("alpha".into(), provisioning.alpha()),
            None => numbers.insert(key.clone(), number),
        };
    }
    let given = numbers.get("alpha").copied().map(OverProvisioning::from_alpha).transpose()?;
    let mut without_idle = None;
    if let (Some(idle), Some(alpha)) = (idle, numbers.get_mut("alpha")) {
        let less = OverProvisioning::from_alpha(*alpha * (1.0 - idle))?;
        *alpha = less.alpha();
        without_idle = Some(less);
    }
    Ok(ModelResult { given, without_idle, values: evaluate(name, &numbers)? })
}

/// The share that `3/1024` or `0.003` is.
fn share(text: &str) -> Result<f64, LabError> {
    let wrong = || LabError::Setting {
        key: "idle".into(),
        value: text.into(),
        problem: "expected idle segments / all segments, for instance idle=3/1024".into(),
    };
    let number = |text: &str| text.parse::<f64>().map_err(|_| wrong());
    let share = match text.split_once('/') {
        Some((idle, all)) => number(idle)? / number(all)?,
        None => number(text)?,
    };
    if (0.0..1.0).contains(&share) { Ok(share) } else { Err(wrong()) }
}

/// What cleaning a whole device costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CleaningEstimate {
    /// The device's name.
    pub device: String,
    /// Its segments.
    pub segments: u32,
    /// Data pages of a segment.
    pub data_pages_per_segment: u32,
    /// Segments erased.
    pub erases: f64,
    /// Pages copied.
    pub copies: f64,
    /// Time of both, in seconds.
    pub time_s: f64,
    /// Energy of both, in millijoules.
    pub energy_mj: f64,
    /// Whether the device states its energy; otherwise it is eq. 3 with the constants of the paper.
    pub has_energy: bool,
}

/// Estimates the cost of cleaning a device (MODA paper, eq. 2 and 3) of this utilization, invalidity and uniformity.
///
/// # Errors
/// A share is none, or they contradict each other; or the device has no data pages.
pub fn cleaning_estimate(
    [utilization, invalidity, uniformity]: [f64; 3],
    device: &DeviceSpec,
    segments: Option<u32>,
) -> Result<CleaningEstimate, LabError> {
    let segments = segments.unwrap_or(device.segments);
    let (pages_per_segment, metadata_pages) =
        (device.pages_per_segment, device.header_pages.saturating_add(device.summary_pages));
    let pages = pages_per_segment.checked_sub(metadata_pages).filter(|pages| *pages > 0);
    let pages = pages.ok_or(ConfigError::NoDataPages { metadata_pages, pages_per_segment })?;
    let cost = cleaning_cost(utilization, invalidity, uniformity, segments.into(), pages.into())?;
    let timing = &device.timing;
    let energy_mj = match &device.energy {
        Some(energy) => {
            let uj = cost.erases * energy.erase_uj + cost.copies * (energy.read_uj + energy.program_uj);
            uj * 1e-3
        }
        None => cost.energy_mj(device.page_bytes.into(), device.pages_per_segment.into()),
    };
    Ok(CleaningEstimate {
        device: device.name.clone(),
        segments,
        data_pages_per_segment: pages,
        erases: cost.erases,
        copies: cost.copies,
        time_s: (cost.erases * timing.erase_us + cost.copies * timing.copy_us()) * 1e-6,
        energy_mj,
        has_energy: device.energy.is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_data_pages_has_no_cost_of_cleaning() {
        let mut device = DeviceSpec::load("nand-small-block-64mb").unwrap();
        for (header_pages, summary_pages) in [(99, 0), (31, 1), (u32::MAX, u32::MAX)] {
            (device.header_pages, device.summary_pages) = (header_pages, summary_pages);
            let error = cleaning_estimate([0.86, 0.0087, 0.73], &device, None).unwrap_err();
            assert!(error.to_string().contains("leave no data page"), "{error}");
        }
    }
}
