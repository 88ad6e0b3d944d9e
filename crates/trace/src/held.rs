//! Traces that a program holds in memory, read as those of files are.

use crate::compress::Compression;
use crate::format::{Detection, Entry, Example, FormatRow, Raw, Reader, RecordReader};
use crate::reader::{ReadOptions, TraceReader};
use crate::{Format, Request};
use std::io;

/// What results say of the format of such a trace. It stands in no table, because no file has it.
static ROW: FormatRow = FormatRow {
    name: "memory",
    summary: "requests that a program holds in memory",
    source: "",
    detection: Detection::Records(|_| false),
    reader: Reader::Records(|_| Ok(Err("no file is of this format".into()))),
    writer: None,
    example: Example { file_name: "", bytes: b"", requests: 0 },
};

struct Held<I, N> {
    requests: I,
    name_of: N,
}

impl<I, N> RecordReader for Held<I, N>
where
    I: Iterator<Item = Result<Request, String>> + Send,
    N: Fn(u32) -> Option<String> + Send,
{
    fn next(&mut self) -> io::Result<Option<Result<Entry, String>>> {
        let raw = |request: Request| {
            let Request { time_us, kind, device, offset_bytes, len_bytes, stream } = request;
            let time_ns = u128::from(time_us) * 1000;
            Entry::Request(Raw { time_ns, kind, device, offset_bytes, len_bytes, stream })
        };
        Ok(self.requests.next().map(|request| request.map(raw)))
    }

    fn device_name(&self, number: u32) -> Option<String> {
        (self.name_of)(number)
    }
}

impl TraceReader {
    /// Reads requests that are held in memory, with the checks and the clock of a file's: times count from the first request,
    /// and never go back. The name stands in errors; `name_of` names devices that have more than a number.
    pub fn from_requests(
        name: &str,
        requests: impl Iterator<Item = Result<Request, String>> + Send + 'static,
        name_of: impl Fn(u32) -> Option<String> + Send + 'static,
        options: &ReadOptions,
    ) -> Self {
        Self::of_records(name, Box::new(Held { requests, name_of }), Compression::Plain, Format(&ROW), options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IoKind, TraceError};

    fn write(time_us: u64, offset_bytes: u64) -> Request {
        Request { time_us, kind: IoKind::Write, device: 0, offset_bytes, len_bytes: 4096, stream: None }
    }

    #[test]
    fn requests_in_memory_have_the_clock_and_the_checks_of_a_file() {
        let held = [write(1_000_000, 0), write(3_000_000, 4096), write(2_000_000, 0)].map(Ok);
        let mut reader = TraceReader::from_requests("mine", held.into_iter(), |_| None, &ReadOptions::default());
        let times: Vec<u64> = reader.by_ref().map(|request| request.unwrap().time_us).collect();
        assert_eq!((times, reader.counts().times_back), (vec![0, 2_000_000, 2_000_000], 1));
        assert_eq!((reader.format().name(), reader.file_hash().unwrap()), ("memory", None));

        let too_far = [Ok(write(0, u64::MAX))].into_iter();
        let error = TraceReader::from_requests("mine", too_far, |_| None, &ReadOptions::default()).next();
        let error = error.unwrap().unwrap_err().to_string();
        assert!(error.contains("mine") && error.contains("past 2^64"), "{error}");
        let none = TraceReader::from_requests("mine", std::iter::empty(), |_| None, &ReadOptions::default()).next();
        assert!(matches!(none, Some(Err(TraceError::Empty { .. }))));
    }
}
