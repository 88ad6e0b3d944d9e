use crate::args::ListOf;
use crate::failure::Failure;
use crate::output::wrapped_at;
use margay_media::{DeviceSpec, presets};
use margay_policy::spec::{PolicyKind, Row};
use margay_policy::{AllocatorSpec, LevelingSpec, PlacementSpec, SelectionSpec, Spec};
use margay_trace::Format;
use margay_trace::vm::VmFormat;
use std::fmt::Write;

struct Entry {
    name: String,
    summary: String,
    parameters: Vec<(String, String)>,
    source: String,
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
    // The words of a paragraph after the first of its lines stand below each other, beside the names.
    let mut say = |name: &str, indent: usize, paragraph: &str| {
        let lines = wrapped_at(paragraph, width + 4 + indent);
        let _ = write!(text, "  {name:<width$}  {:indent$}{lines}", "");
    };
    for entry in entries {
        say(&entry.name, 0, &entry.summary);
        entry.parameters.iter().for_each(|(key, what)| say("", 2, &format!("{key}: {what}")));
        if !entry.source.is_empty() {
            say("", 2, &format!("[{}]", entry.source));
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
