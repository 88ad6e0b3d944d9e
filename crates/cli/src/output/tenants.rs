//! The devices of a trace of several, as text.

use super::report::{new_table, right};
use super::shown;
use comfy_table::Cell;
use margay_lab::TenantRow;
use std::fmt::Write;

/// Devices that are listed, those with the most writes.
const MAX_LISTED: usize = 20;

/// A table of what each device cost; empty if there are none to be told apart.
pub fn table(tenants: &[TenantRow]) -> String {
    if tenants.is_empty() {
        return String::new();
    }
    let mut table = new_table(&["device", "host writes", "footprint", "copies", "of all copies", "WA"]);
    let mut most: Vec<&TenantRow> = tenants.iter().collect();
    most.sort_by_key(|row| std::cmp::Reverse(row.host_writes));
    for row in most.iter().take(MAX_LISTED) {
        let numbers = [
            row.host_writes.to_string(),
            row.footprint_pages.to_string(),
            row.copies.to_string(),
            format!("{:.1} %", row.copies_share * 100.0),
            format!("{:.4}", row.wa),
        ];
        let device = Cell::new(shown(row.device.as_bytes()));
        table.add_row(std::iter::once(device).chain(numbers.map(right)));
    }
    let mut text = format!("devices of the trace, in pages\n{table}\n");
    if tenants.len() > MAX_LISTED {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "and {} more (--format json lists all)", tenants.len() - MAX_LISTED);
    }
    text
}
