use crate::format::{Detection, Entry, Example, FormatRow, LineReader, Reader};
use crate::text::Columns;

pub(super) static ROW: FormatRow = FormatRow {
    name: "spc",
    summary: "ASU,LBA (512 B),size (bytes),opcode (r, w),timestamp (s)",
    source: "SPC trace file format 1.0.1; UMass Trace Repository (Financial, WebSearch)",
    detection: Detection::Lines(|_| true),
    reader: Reader::Lines(|_| Ok(Box::new(Spc))),
    writer: None,
    example: Example {
        file_name: "Financial1.spc",
        bytes: b"0,20941264,8192,W,0.551706\n0,20939840,8192,R,0.554041\n",
        requests: 2,
    },
};

#[derive(Debug)]
struct Spc;

impl LineReader for Spc {
    fn line(&mut self, line: &[u8]) -> Result<Entry, String> {
        // The format allows further columns.
        let mut columns = Columns::<b','>::any(line);
        let (device, offset_bytes) = (columns.small("ASU")?, columns.sectors("LBA")?);
        let (len_bytes, kind) = (columns.whole("size")?, columns.read_or_write()?);
        let time_ns = columns.time(1_000_000_000)?;
        Ok(Entry::request(time_ns, kind, device, offset_bytes, len_bytes))
    }
}
