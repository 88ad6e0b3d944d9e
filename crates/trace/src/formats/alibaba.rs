use crate::format::{Detection, Entry, Example, FormatRow, LineReader, Reader};
use crate::text::Columns;

pub(super) static ROW: FormatRow = FormatRow {
    name: "alibaba",
    summary: "device,opcode (R, W),offset (bytes),length (bytes),timestamp (us)",
    source: "Li et al., IISWC 2020; Alibaba block traces 2020",
    detection: Detection::Lines(|_| true),
    reader: Reader::Lines(|_| Ok(Box::new(Alibaba))),
    writer: None,
    example: Example {
        file_name: "io_traces.csv",
        bytes: b"419,W,8192,4096,1577808000000046\n725,R,0,512,1577808000000100\n",
        requests: 2,
    },
};

#[derive(Debug)]
struct Alibaba;

impl LineReader for Alibaba {
    fn line(&mut self, line: &[u8]) -> Result<Entry, String> {
        if line.starts_with(b"device_id") {
            return Ok(Entry::HEADER);
        }
        let mut columns = Columns::<b','>::exactly(line, 5);
        let (device, kind) = (columns.small("device")?, columns.read_or_write()?);
        let (offset_bytes, len_bytes) = (columns.whole("offset")?, columns.whole("length")?);
        let time_ns = u128::from(columns.whole("time")?) * 1000;
        columns.end()?;
        Ok(Entry::request(time_ns, kind, device, offset_bytes, len_bytes))
    }
}
