use crate::failure::Failure;
use crate::output::wrapped_at;
use margay_lab::lists::{Entry, List, ListOf, lists};
use std::fmt::Write;

pub fn run(what: Option<ListOf>, markdown: bool) -> Result<(), Failure> {
    let lists = lists()?;
    let mut text = String::new();
    if markdown {
        text +=
            "# Policies, workloads, trace formats, devices\n\nWritten by `margay policies --markdown`; do not edit.\n";
    }
    for List { title, entries, .. } in lists.iter().filter(|list| what.is_none_or(|what| what == list.of)) {
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
