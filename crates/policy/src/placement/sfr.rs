use super::requests::{ChunkRequests, Chunks};
use super::{Placement, PlacementBuild, STREAMS, Subject, WithPages};
use crate::age::Now;
use crate::segments::Segments;
use crate::spec::{Parameter, Row};
use alloc::{vec, vec::Vec};
use margay_flash::SegmentId;

/// The row of AutoStream's SFR.
pub(super) const ROW: Row<PlacementBuild> = Row {
    name: "sfr",
    summary: "AutoStream, sequentiality, frequency and recency: host writes by the decayed count of their chunk; copies by themselves",
    parameters: &[
        STREAMS,
        Parameter::number("chunk", 512, 1..=1_048_576, "pages in a chunk: 2 MiB in pages of 4 KiB"),
        Parameter::number("period", 16_384, 1..=1_000_000_000, "host page writes in which a count halves"),
    ],
    source: "Yang, Pandurangan, Choi and Balakrishnan, SYSTOR 2017",
    build: |args, exported_pages| {
        let chunks = Chunks::new(args.number("chunk"), exported_pages);
        WithPages::boxed(Sfr::new(args.number("streams") as u8, chunks, args.number("period")))
    },
};

/// A chunk of neighbouring pages.
#[derive(Clone, Copy, Debug, Default)]
struct Chunk {
    /// Requests, halved with time.
    count: u32,
    /// Host page writes when it was written last.
    written: u64,
}

/// AutoStream with SFR, sequentiality, frequency and recency.
///
/// Source: Yang, Pandurangan, Choi and Balakrishnan, "AutoStream: automatic stream management for multi-streamed SSDs",
/// SYSTOR 2017. Each chunk of pages counts its requests, a count halves in every `period` host page writes without one,
/// and the stream is floor(ln count), the last but one for all above; a page that comes right after the page before it
/// keeps that page's stream; copies have the last stream. Reading: requests are pages that follow each other at one
/// time, and sequentiality is one of pages, so that a request stays together. Counts are 0 after a mount. Keeps nothing
/// per page, 16 bytes per chunk; O(1).
#[derive(Clone, Debug)]
struct Sfr {
    streams: u8,
    period: u64,
    table: Vec<Chunk>,
    requests: ChunkRequests,
    /// The stream of the page before.
    stream: u8,
}

impl Sfr {
    fn new(streams: u8, chunks: Chunks, period: u32) -> Self {
        let (table, requests) = (vec![Chunk::default(); chunks.slots()], ChunkRequests::new(chunks));
        Self { streams, period: period.into(), table, requests, stream: 0 }
    }
}

impl Placement for Sfr {
    type Info = ();

    const ONE_STREAM_PER_VICTIM: bool = true;

    fn streams(&self) -> u8 {
        self.streams
    }

    fn opened_at_start(&self) -> u8 {
        0
    }

    fn write(&mut self, _: &Segments, now: Now, subject: Subject, _: Option<(SegmentId, ())>) -> (u8, ()) {
        let is_sequential = self.requests.follows(subject.owner);
        let (slot, begins) = self.requests.write(now, subject.owner);
        let chunk = &mut self.table[slot];
        if begins {
            let halvings = now.writes.saturating_sub(chunk.written) / self.period;
            chunk.count = chunk.count.checked_shr(halvings.min(32) as u32).unwrap_or(0).saturating_add(1);
            chunk.written = now.writes;
        }
        if !is_sequential {
            let level = libm::log(chunk.count.into()) as u64;
            self.stream = level.min(u64::from(self.streams) - 2) as u8;
        }
        (self.stream, ())
    }

    fn copy(&self, _: &Segments, _: SegmentId, _: Now, (): (), _: u64) -> u8 {
        self.streams - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_rise_with_requests_halve_with_time_and_do_not_matter_to_sequential_pages() {
        let mut policy = Sfr::new(4, Chunks::new(512, 100_000), 100);
        let segments = Segments::new(4, 8, false);
        let mut write = |owner, writes: u64| {
            let subject = Subject { owner, ..Subject::default() };
            policy.write(&segments, Now { us: writes, writes }, subject, None).0
        };
        // ln 2 = 0.7, ln 3 = 1.1, ln 7 = 1.9, ln 8 = 2.08, ln 21 = 3.04; three streams for host writes.
        let climbed: Vec<u8> = (1..=25).map(|writes| write(writes * 2, writes)).collect();
        assert_eq!(climbed[..9], [0, 0, 1, 1, 1, 1, 1, 2, 2]);
        assert_eq!(climbed[24], 2);
        // 25 halves twice in 200 writes to 6, and counts this request.
        assert_eq!(write(300, 225), 1);
        // A chunk of its own, and then the page after that one, in the first chunk: sequential pages keep their stream.
        assert_eq!(write(600, 226), 0);
        assert_eq!(write(300, 227), 2, "the eighth request");
        assert_eq!(write(301, 228), 2);
        assert_eq!(write(50_000, 229), 0);
        assert_eq!(write(50_001, 230), 0);
        assert_eq!(write(302, 10_000), 0, "all is forgotten");
        assert_eq!(policy.copy(&segments, SegmentId(0), Now::default(), (), 0), 3);
    }
}
