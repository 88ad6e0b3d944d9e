use crate::args::ListOf;
use crate::failure::Failure;
use margay_lab::{DeviceSpec, presets};
use margay_policy::{Info, registry};
use std::fmt::Write;

struct Entry {
    name: String,
    summary: String,
    parameters: Vec<(String, String)>,
    source: String,
}

fn policy(info: Info) -> Entry {
    Entry {
        name: info.name.into(),
        summary: info.summary.into(),
        parameters: info.parameters.iter().map(|(key, what)| (key.to_string(), what.to_string())).collect(),
        source: info.source.into(),
    }
}

fn plain(name: &str, summary: &str) -> Entry {
    Entry { name: name.into(), summary: summary.into(), parameters: Vec::new(), source: String::new() }
}

type List = (ListOf, &'static str, Vec<Entry>);

fn lists() -> Result<Vec<List>, Failure> {
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
    Ok(vec![
        (
            ListOf::Selection,
            "Selection: which segment is the next victim",
            registry::selections().map(policy).collect(),
        ),
        (ListOf::Placement, "Placement: which stream a page goes to", registry::placements().map(policy).collect()),
        (ListOf::Leveling, "Leveling: keeping erase counts close", registry::levelings().map(policy).collect()),
        (
            ListOf::Allocators,
            "Allocators: which stream a page of a file system goes to",
            margay_fs::allocators()
                .map(|info| Entry {
                    parameters: info.parameters.iter().map(|(key, what)| (key.to_string(), what.to_string())).collect(),
                    source: info.source.into(),
                    ..plain(info.name, info.summary)
                })
                .collect(),
        ),
        (
            ListOf::Schemes,
            "Schemes: what a merge of the paging store does with pages that the cache holds",
            margay_vm::scheme_infos().map(policy).collect(),
        ),
        (
            ListOf::Mappings,
            "Mappings of the paging store: who shares log blocks",
            margay_hybrid::mappings()
                .map(|info| {
                    policy(Info {
                        name: info.name,
                        summary: info.summary,
                        parameters: info.parameters,
                        source: info.source,
                    })
                })
                .collect(),
        ),
        (
            ListOf::Replacements,
            "Replacement: which page leaves a full page cache",
            margay_vm::replacements().map(policy).collect(),
        ),
        (
            ListOf::Workloads,
            "Workloads, and the parameters of all of them",
            workloads.map(|i| plain(i.name, i.summary)).collect(),
        ),
        (
            ListOf::Traces,
            "Trace formats",
            margay_trace::Format::ALL.iter().map(|format| plain(format.name(), format.doc())).collect(),
        ),
        (ListOf::Devices, "Devices", devices),
    ])
}

pub fn run(what: Option<ListOf>, markdown: bool) -> Result<(), Failure> {
    let lists = lists()?;
    let mut text = String::new();
    if markdown {
        text +=
            "# Policies, workloads, trace formats, devices\n\nWritten by `margay policies --markdown`; do not edit.\n";
    }
    for (_, title, entries) in lists.iter().filter(|(list, _, _)| what.is_none_or(|what| what == *list)) {
        text += &if markdown { table(title, entries) } else { listing(title, entries) };
    }
    crate::output::print_bytes(text.as_bytes())
}

fn listing(title: &str, entries: &[Entry]) -> String {
    let mut text = format!("{title}\n");
    let width = entries.iter().map(|entry| entry.name.len()).max().unwrap_or(0).max(16);
    for entry in entries {
        let _ = writeln!(text, "  {:<width$}  {}", entry.name, entry.summary);
        for (key, what) in &entry.parameters {
            let _ = writeln!(text, "  {:<width$}    {key}: {what}", "");
        }
        if !entry.source.is_empty() {
            let _ = writeln!(text, "  {:<width$}    [{}]", "", entry.source);
        }
    }
    text + "\n"
}

fn table(title: &str, entries: &[Entry]) -> String {
    let mut text = format!("\n## {title}\n\n| name | what | parameters | source |\n|---|---|---|---|\n");
    for entry in entries {
        let parameters: Vec<_> = entry.parameters.iter().map(|(key, what)| format!("`{key}`: {what}")).collect();
        let (summary, parameters) = (entry.summary.replace('|', "\\|"), parameters.join("; ").replace('|', "\\|"));
        let _ = writeln!(text, "| `{}` | {summary} | {parameters} | {} |", entry.name, entry.source);
    }
    text
}
