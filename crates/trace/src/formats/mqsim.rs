use super::disksim::{FiveWords, has_decimal_times};
use crate::format::{Detection, Example, FormatRow, Reader};

pub(super) static ROW: FormatRow = FormatRow {
    name: "mqsim",
    summary: "time (ns, whole) device sector (512 B) sectors type (0 write, 1 read)",
    source: "MQSim README, trace-based workloads",
    detection: Detection::Lines(|sample| !has_decimal_times(sample)),
    reader: Reader::Lines(|_| Ok(Box::new(FiveWords { unit_ns: 1 }))),
    writer: None,
    example: Example { file_name: "tpcc-small.trace", bytes: b"1000 4 264 16 0\n2000000 3 197 16 1\n", requests: 2 },
};
