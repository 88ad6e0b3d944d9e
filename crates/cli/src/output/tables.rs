//! Tables and text that fit the terminal.

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};
use std::io::IsTerminal;

/// The width where there is no terminal that could tell its own.
const USUAL_WIDTH: usize = 80;
/// A line of text is not made longer than this, however wide the terminal is.
const MAX_TEXT_WIDTH: usize = 110;

/// Columns of characters that a line may have: those of the environment variable COLUMNS, or of the terminal, or 80.
pub fn width() -> usize {
    let asked = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let found = || terminal_size::terminal_size().filter(|_| std::io::stdout().is_terminal());
    asked.or_else(|| found().map(|(width, _)| usize::from(width.0))).unwrap_or(USUAL_WIDTH).max(40)
}

/// Text in lines that fit, those after the first indented by so much.
pub fn wrapped(text: &str, indent: usize) -> String {
    wrap(text, indent, 0)
}

/// Text behind so many columns of something else, in lines that start there.
pub fn wrapped_at(text: &str, column: usize) -> String {
    wrap(text, column, column)
}

fn wrap(text: &str, indent: usize, start: usize) -> String {
    let width = width().min(MAX_TEXT_WIDTH);
    let mut lines = String::new();
    let mut length = start;
    for word in text.split_whitespace() {
        let letters = word.chars().count();
        if lines.is_empty() {
            length += letters;
        } else if length + 1 + letters <= width {
            lines.push(' ');
            length += 1 + letters;
        } else {
            lines.push('\n');
            lines.extend(std::iter::repeat_n(' ', indent));
            length = indent + letters;
        }
        lines.push_str(word);
    }
    lines.push('\n');
    lines
}

/// A column of a table: its name, the unit below it, and its cells.
pub struct Column {
    pub name: String,
    pub unit: &'static str,
    pub cells: Vec<String>,
    /// Numbers are on the right.
    pub is_number: bool,
}

impl Column {
    pub fn text(name: &str, cells: Vec<String>) -> Self {
        Self { name: name.into(), unit: "", cells, is_number: false }
    }

    pub fn number(name: &str, unit: &'static str, cells: Vec<String>) -> Self {
        Self { name: name.into(), unit, cells, is_number: true }
    }

    fn width(&self) -> usize {
        let count = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        let cells = self.cells.iter().map(|cell| count(cell)).max().unwrap_or(0);
        cells.max(count(&self.name)).max(count(self.unit))
    }
}

/// A cell's share of the two spaces and the line beside it.
const BETWEEN: usize = 3;

/// The first columns that fit, which come in the order of their importance; the names of those that are left out are the
/// second value.
pub fn fitted(columns: Vec<Column>) -> (String, Vec<String>) {
    let room = width();
    let mut taken = 1;
    let (mut kept, mut left_out): (Vec<Column>, Vec<String>) = (Vec::new(), Vec::new());
    for (at, column) in columns.into_iter().enumerate() {
        // The first two say what a row is about; a long name is wrapped.
        let width = if at == 0 { column.width().min(room / 2) } else { column.width() };
        if at < 2 || (left_out.is_empty() && taken + width + BETWEEN <= room) {
            taken += width + BETWEEN;
            kept.push(column);
        } else {
            left_out.push(column.name);
        }
    }
    let has_units = kept.iter().any(|column| !column.unit.is_empty());
    let heads = kept.iter().map(|column| match has_units {
        true => Cell::new(format!("{}\n{}", column.name, column.unit)),
        false => Cell::new(&column.name),
    });
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(heads.collect::<Vec<_>>());
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(room.min(u16::MAX.into()) as u16);
    let rows = kept.first().map_or(0, |column| column.cells.len());
    for row in 0..rows {
        let cells = kept.iter().map(|column| {
            let cell = Cell::new(&column.cells[row]);
            if column.is_number { cell.set_alignment(CellAlignment::Right) } else { cell }
        });
        table.add_row(cells.collect::<Vec<_>>());
    }
    (format!("{table}\n"), left_out)
}
