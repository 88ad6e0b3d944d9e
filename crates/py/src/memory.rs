//! A trace in memory, as the laboratory reads it.

use crate::columns::{Batch, Builder, KINDS, number_of};
use crate::interrupt::Stop;
use margay_lab::HeldTrace;
use margay_trace::{ReadOptions, Request, TraceReader};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3Default;

/// Requests in memory.
#[derive(Clone)]
pub struct Memory {
    name: String,
    batches: Arc<[Batch]>,
    /// Names of devices that have more than a number.
    pub device_names: Arc<BTreeMap<u32, String>>,
    xxh3: String,
    rows: usize,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory:{}:{}", self.name, self.xxh3)
    }
}

impl Memory {
    /// Looks at all requests.
    ///
    /// # Errors
    /// What is wrong with the first one that cannot be, and its row; or it was stopped.
    pub fn new(
        name: String,
        batches: Vec<Batch>,
        device_names: Arc<BTreeMap<u32, String>>,
        stop: &Stop,
    ) -> Result<Self, String> {
        let batches: Arc<[Batch]> = batches.into();
        let mut hash = Xxh3Default::new();
        let (mut rows, mut start_us) = (0, None);
        for request in requests(&batches, stop) {
            let request = request.map_err(|problem| format!("row {rows}: {problem}"))?;
            if request.offset_bytes.checked_add(request.len_bytes).is_none() {
                return Err(format!("row {rows}: the request ends past 2^64 bytes"));
            }
            // Times count from the first request, as those of a file.
            let start_us = *start_us.get_or_insert(request.time_us);
            hash.update(&bytes_of(&Request { time_us: request.time_us.wrapping_sub(start_us), ..request }));
            rows += 1;
        }
        Ok(Self { name, batches, device_names, xxh3: format!("{:016x}", hash.digest()), rows })
    }

    /// The number of requests.
    pub fn len(&self) -> usize {
        self.rows
    }

    pub fn batches(&self) -> &[Batch] {
        &self.batches
    }

    /// The text that names the trace as a source.
    pub fn key(&self) -> String {
        format!("{self:?}")
    }

    /// The requests from `from` up to `to`, on the same memory.
    ///
    /// # Errors
    /// Those of [`Memory::new`]: the program may have written to its arrays since they were looked at.
    pub fn slice(&self, from: usize, to: usize, stop: &Stop) -> Result<Self, String> {
        let (mut batches, mut start) = (Vec::new(), 0);
        for batch in self.batches.iter() {
            let (first, last) = (from.max(start), to.min(start + batch.rows));
            if first < last {
                batches.push(batch.slice(first - start, last - first));
            }
            start += batch.rows;
        }
        Self::new(self.name.clone(), batches, Arc::clone(&self.device_names), stop)
    }

    /// The requests as bytes, for another process.
    ///
    /// # Errors
    /// What is wrong with a request, and its row: the program may have written to its arrays since they were looked at.
    pub fn to_bytes(&self) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::with_capacity(self.rows * REQUEST_BYTES);
        for (row, request) in requests(&self.batches, &Stop::default()).enumerate() {
            bytes.extend_from_slice(&bytes_of(&request.map_err(|problem| format!("row {row}: {problem}"))?));
        }
        Ok(bytes)
    }

    /// The requests that were made bytes.
    ///
    /// # Errors
    /// They are none.
    pub fn of_bytes(name: String, bytes: &[u8], device_names: BTreeMap<u32, String>) -> Result<Self, String> {
        let (records, rest) = bytes.as_chunks::<REQUEST_BYTES>();
        let mut builder = Builder::default();
        for record in records {
            builder.push(&request_of(record).filter(|_| rest.is_empty()).ok_or("these bytes are no trace")?);
        }
        Self::new(name, vec![builder.finish()], Arc::new(device_names), &Stop::default())
    }

    /// A reader of the requests, which fails once it is asked to stop.
    pub fn reader(&self, options: &ReadOptions, stop: &Stop) -> TraceReader {
        let names = Arc::clone(&self.device_names);
        let requests = requests(&self.batches, stop);
        TraceReader::from_requests(&self.name, requests, move |number| names.get(&number).cloned(), options)
    }
}

/// Requests between two looks at whether to stop.
const LOOK_REQUESTS: usize = 1 << 16;

/// The requests of batches, one after the other. It ends with an error if it is asked to stop.
fn requests(
    batches: &Arc<[Batch]>,
    stop: &Stop,
) -> impl Iterator<Item = Result<Request, String>> + Send + 'static + use<> {
    let (batches, stop) = (Arc::clone(batches), stop.clone());
    let (mut batch, mut row) = (0, 0);
    std::iter::from_fn(move || {
        while row == batches.get(batch)?.rows {
            (batch, row) = (batch + 1, 0);
        }
        if row % LOOK_REQUESTS == 0 && !stop.goes_on() {
            return Some(Err("reading was stopped by request".into()));
        }
        row += 1;
        Some(batches[batch].request(row - 1))
    })
}

impl HeldTrace for Memory {
    fn name(&self) -> &str {
        &self.name
    }

    fn xxh3(&self) -> &str {
        &self.xxh3
    }

    fn open(&self, options: &ReadOptions) -> TraceReader {
        self.reader(options, &Stop::default())
    }
}

/// Bytes of a request.
const REQUEST_BYTES: usize = 31;

/// A request as bytes: what is hashed of it, and what another process gets.
fn bytes_of(request: &Request) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    bytes[..8].copy_from_slice(&request.time_us.to_le_bytes());
    bytes[8..16].copy_from_slice(&request.offset_bytes.to_le_bytes());
    bytes[16..24].copy_from_slice(&request.len_bytes.to_le_bytes());
    bytes[24..28].copy_from_slice(&request.device.to_le_bytes());
    bytes[28] = number_of(request.kind);
    bytes[29] = u8::from(request.stream.is_some());
    bytes[30] = request.stream.unwrap_or(0);
    bytes
}

/// The request that was made bytes, if it was one.
fn request_of(bytes: &[u8; REQUEST_BYTES]) -> Option<Request> {
    let number = |from: usize| bytes.get(from..from + 8)?.try_into().ok().map(u64::from_le_bytes);
    Some(Request {
        time_us: number(0)?,
        offset_bytes: number(8)?,
        len_bytes: number(16)?,
        device: u32::from_le_bytes(bytes[24..28].try_into().ok()?),
        kind: KINDS.get(usize::from(bytes[28]))?.1,
        stream: (bytes[29] != 0).then_some(bytes[30]),
    })
}
