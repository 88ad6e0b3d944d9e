use super::csv::Csv;
use crate::format::{Detection, Example, FormatRow, Reader};
use crate::layout::CsvLayout;

pub(super) static ROW: FormatRow = FormatRow {
    name: "cloudphysics",
    summary: "header, then version,time (s),op (SCSI code, hex),size (bytes),lbn (512 B)",
    source: "Waldspurger et al., SHARDS, FAST 2015; the CSV sample of libCacheSim",
    detection: Detection::FirstLine(|line| line == b"version,time,op,size,lbn"),
    reader: Reader::Lines(|_| Ok(Box::new(Csv::new(layout())?))),
    writer: None,
    example: Example {
        file_name: "cloudphysics.csv",
        bytes: b"version,time,op,size,lbn\n2,5633898,2a,512,42932745\n2,5633898,28,4096,1041944\n",
        requests: 2,
    },
};

/// Operations are SCSI commands: READ and WRITE of 6, 10, 12 and 16 bytes, UNMAP.
fn layout() -> CsvLayout {
    CsvLayout::built_in(
        "header = true\ntime = 'time'\nop = 'op'\noffset = 'lbn'\noffset_bytes = 512\nsize = 'size'\n\
         reads = ['8', '08', '28', 'a8', '88']\nwrites = ['a', '0a', '2a', 'aa', '8a']\ntrims = ['42']",
    )
}
