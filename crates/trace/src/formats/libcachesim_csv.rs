use super::csv::Csv;
use crate::format::{Detection, Example, FormatRow, Opening, Reader};
use crate::layout::CsvLayout;
use crate::lines::full_lines;

pub(super) static ROW: FormatRow = FormatRow {
    name: "libcachesim-csv",
    summary: "time (s),object,size (bytes)[,op]: a write of the object unless op says otherwise",
    source: "libCacheSim, CSV traces",
    // Three or four numbers are a line of much else.
    detection: Detection::LastResort(|sample| sample.first_line().is_some_and(|line| (3..=4).contains(&columns(line)))),
    reader: Reader::Lines(|opening| Ok(Box::new(Csv::new(layout(opening))?))),
    writer: None,
    example: Example {
        file_name: "cache.csv",
        bytes: b"time,obj_id,obj_size,op\n1,77,100,set\n2,5,5000,set\n3,77,100,get\n",
        requests: 3,
    },
};

fn columns(line: &[u8]) -> usize {
    line.split(|byte| *byte == b',').count()
}

/// With a header unless the first line starts with a digit; with an operation if there are more than three columns.
fn layout(opening: &Opening<'_>) -> CsvLayout {
    let first = full_lines(opening.head).next().unwrap_or_default();
    let header = !first.first().is_some_and(u8::is_ascii_digit);
    let op = if columns(first) > 3 { "op = 3\n" } else { "" };
    CsvLayout::built_in(&format!("header = {header}\ntime = 0\n{op}offset = 1\nsize = 2\nobjects = true"))
}
