//! What there is to choose from: policies, workloads, trace formats, devices, with their parameters and sources.

use crate::LabError;
use margay_media::{DeviceSpec, presets};
use margay_policy::spec::{PolicyKind, Row};
use margay_policy::{AllocatorSpec, LevelingSpec, PlacementSpec, SelectionSpec, Spec};
use margay_trace::Format;
use margay_trace::vm::VmFormat;
use serde::Serialize;

/// What a list is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum ListOf {
    Selection,
    Placement,
    Leveling,
    Allocators,
    Schemes,
    Mappings,
    Replacements,
    Workloads,
    Traces,
    Devices,
}

/// One line of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// The name, which commands and calls take.
    pub name: String,
    /// What it is.
    pub summary: String,
    /// Its parameters: names, and what they mean with their defaults.
    pub parameters: Vec<(String, String)>,
    /// Who published it; may be empty.
    pub source: String,
}

/// A list of names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct List {
    /// What it is of.
    pub of: ListOf,
    /// Its heading.
    pub title: &'static str,
    /// Its lines.
    pub entries: Vec<Entry>,
}

fn policy<K: PolicyKind>(spec: Spec<K>) -> Entry {
    entry(spec.row())
}

fn entry<B>(row: &Row<B>) -> Entry {
    let parameters = row.parameters.iter().map(|parameter| (parameter.key.to_string(), parameter.describe()));
    Entry { parameters: parameters.collect(), source: row.source.into(), ..plain(row.name, row.summary) }
}

fn plain(name: &str, summary: &str) -> Entry {
    Entry { name: name.into(), summary: summary.into(), parameters: Vec::new(), source: String::new() }
}

fn trace_format(format: Format) -> Entry {
    let mut parameters = vec![("detected by".into(), format.detected_by())];
    if let Some(writer) = format.writer() {
        let kinds: Vec<_> = writer.kinds.iter().map(|kind| format!("{kind:?}").to_lowercase()).collect();
        parameters.push(("can be written".into(), kinds.join(", ")));
    }
    Entry { parameters, source: format.source().into(), ..plain(format.name(), format.summary()) }
}

/// All lists, in the order of `margay policies`.
///
/// # Errors
/// A preset of a device is damaged, which a test rules out.
pub fn lists() -> Result<Vec<List>, LabError> {
    let workloads = margay_workload::patterns().iter().chain(margay_workload::parameters());
    let mut devices = Vec::new();
    for (name, text) in presets() {
        let device = DeviceSpec::parse(name, text)?;
        let summary = format!(
            "{}: {} segments of {} pages of {} bytes; read {} us, program {} us, erase {} us; {} erases; energy {}",
            device.name,
            device.segments,
            device.pages_per_segment,
            device.page_bytes,
            device.timing.read_us,
            device.timing.program_us,
            device.timing.erase_us,
            device.endurance_erases,
            if device.energy.is_some() { "known" } else { "not stated" }
        );
        devices.push(Entry { source: device.source, ..plain(name, &summary) });
    }
    let all = vec![
        (ListOf::Selection, "Selection: which segment is the next victim", SelectionSpec::all().map(policy).collect()),
        (ListOf::Placement, "Placement: which stream a page goes to", PlacementSpec::all().map(policy).collect()),
        (ListOf::Leveling, "Leveling: keeping erase counts close", LevelingSpec::all().map(policy).collect()),
        (
            ListOf::Allocators,
            "Allocators: which stream a page of a file system goes to, beside all placements",
            AllocatorSpec::made_for_files().map(policy).collect(),
        ),
        (
            ListOf::Schemes,
            "Schemes: what a merge of the paging store does with pages that the cache holds",
            margay_vm::scheme_rows().map(entry).collect(),
        ),
        (
            ListOf::Mappings,
            "Mappings of the paging store: who shares log blocks",
            margay_hybrid::mappings()
                .map(|info| Entry {
                    parameters: info.parameters.iter().map(|(key, what)| (key.to_string(), what.to_string())).collect(),
                    source: info.source.into(),
                    ..plain(info.name, info.summary)
                })
                .collect(),
        ),
        (
            ListOf::Replacements,
            "Replacement: which page leaves a full page cache",
            margay_vm::replacements().map(entry).collect(),
        ),
        (
            ListOf::Workloads,
            "Workloads, and the parameters of all of them",
            workloads.map(|i| plain(i.name, i.summary)).collect(),
        ),
        (ListOf::Traces, "Trace formats", Format::ALL.iter().copied().map(trace_format).collect()),
        (
            ListOf::Traces,
            "Formats of page references (margay vm)",
            VmFormat::ALL
                .iter()
                .map(|format| Entry {
                    parameters: if format.is_written() {
                        vec![("can be written".into(), "yes".into())]
                    } else {
                        Vec::new()
                    },
                    source: format.source().into(),
                    ..plain(format.name(), format.summary())
                })
                .collect(),
        ),
        (ListOf::Devices, "Devices", devices),
    ];
    Ok(all.into_iter().map(|(of, title, entries)| List { of, title, entries }).collect())
}
