use super::requests::{ChunkRequests, Chunks};
use super::{Placement, PlacementBuild, STREAMS, Subject, WithPages};
use crate::age::Now;
use crate::index::BucketLists;
use crate::segments::Segments;
use crate::spec::{Parameter, Row};
use alloc::{vec, vec::Vec};
use margay_flash::SegmentId;

/// The row of AutoStream's multi-queue.
pub(super) const ROW: Row<PlacementBuild> = Row {
    name: "mq",
    summary: "AutoStream, multi-queue: host writes by how often their chunk is written, with expiry; copies by themselves",
    parameters: &[STREAMS, Parameter::number("chunk", 256, 1..=1_048_576, "pages in a chunk: 1 MiB in pages of 4 KiB")],
    source: "Yang, Pandurangan, Choi and Balakrishnan, SYSTOR 2017",
    build: |args, exported_pages| {
        let chunks = Chunks::new(args.number("chunk"), exported_pages);
        WithPages::boxed(MultiQueue::new(args.number("streams") as u8, chunks))
    },
};

/// A chunk of neighbouring pages. Times are in host page writes.
#[derive(Clone, Copy, Debug, Default)]
struct Chunk {
    /// Requests, divided by e at each expiry; 0 if it was never written.
    count: f64,
    written: u64,
    expires: u64,
}

/// AutoStream with multi-queues: a chunk of pages stands in the queue of the logarithm of its number of requests, and
/// falls by one queue when it is not written for as long as the hottest chunk needs.
///
/// Source: Yang, Pandurangan, Choi and Balakrishnan, "AutoStream: automatic stream management for multi-streamed SSDs",
/// SYSTOR 2017. Queue = floor(ln requests), the last for all above; a chunk expires after the last interval of the
/// chunk with the largest count; each request lets one expired chunk fall from each queue; copies have the last stream.
/// Readings: the count of a chunk that expires is divided by e, and the hottest one loses as much; in public code the
/// next write undoes the fall, because the count stays. Requests are pages that follow each other at one time. Queues
/// are empty after a mount. Keeps nothing per page, 32 bytes per chunk; O(1) in host writes, O(streams) where a request
/// begins.
#[derive(Clone, Debug)]
struct MultiQueue {
    streams: u8,
    table: Vec<Chunk>,
    /// Chunks by queue, those written last at the end.
    queues: BucketLists,
    requests: ChunkRequests,
    hottest: usize,
    /// The last interval of the hottest chunk.
    lifetime: u64,
}

impl MultiQueue {
    fn new(streams: u8, chunks: Chunks) -> Self {
        Self {
            streams,
            table: vec![Chunk::default(); chunks.slots()],
            queues: BucketLists::new(streams.into(), chunks.slots() as u32),
            requests: ChunkRequests::new(chunks),
            hottest: 0,
            lifetime: 0,
        }
    }

    /// The queue of a chunk with this count, and the stream of its pages.
    fn queue(&self, count: f64) -> u8 {
        (libm::log(count.max(1.0)) as u64).min(u64::from(self.streams) - 2) as u8
    }

    fn put(&mut self, slot: usize) {
        // The lists are made for segments, and serve here with the numbers of chunks.
        self.queues.append(self.queue(self.table[slot].count).into(), SegmentId(slot as u32));
    }

    fn take(&mut self, slot: usize) {
        self.queues.remove(self.queue(self.table[slot].count).into(), SegmentId(slot as u32));
    }

    /// Counts a request to a chunk.
    fn count(&mut self, slot: usize, now: u64) {
        if self.table[slot].count > 0.0 {
            self.take(slot);
        }
        let before = self.table[slot].written;
        self.table[slot].count += 1.0;
        if slot == self.hottest || self.table[slot].count > self.table[self.hottest].count {
            self.hottest = slot;
            self.lifetime = now - before.min(now);
        }
        self.table[slot].written = now;
        self.table[slot].expires = now + self.lifetime;
        self.put(slot);
    }

    /// Lets the first chunk of each queue fall if it has expired.
    fn expire(&mut self, now: u64) {
        for queue in 0..u32::from(self.streams) - 1 {
            let Some(SegmentId(slot)) = self.queues.first(queue) else { continue };
            let slot = slot as usize;
            if self.table[slot].expires < now {
                self.take(slot);
                self.table[slot].count = (self.table[slot].count / core::f64::consts::E).max(1.0);
                self.table[slot].expires = now + self.lifetime;
                self.put(slot);
            }
        }
    }
}

impl Placement for MultiQueue {
    type Info = ();

    const ONE_STREAM_PER_VICTIM: bool = true;

    fn streams(&self) -> u8 {
        self.streams
    }

    fn opened_at_start(&self) -> u8 {
        0
    }

    fn write(&mut self, _: &Segments, now: Now, subject: Subject, _: Option<(SegmentId, ())>) -> (u8, ()) {
        let (slot, begins) = self.requests.write(now, subject.owner);
        if begins {
            self.count(slot, now.writes);
            self.expire(now.writes);
        }
        (self.queue(self.table[slot].count), ())
    }

    fn copy(&self, _: &Segments, _: SegmentId, _: Now, (): (), _: u64) -> u8 {
        self.streams - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_climb_with_the_logarithm_of_their_requests_and_fall_when_they_expire() {
        let mut policy = MultiQueue::new(4, Chunks::new(256, 10_000));
        let segments = Segments::new(4, 8, false);
        let mut writes = 0;
        let mut write = |owner, skip: u64| {
            writes += skip + 1;
            let subject = Subject { owner, ..Subject::default() };
            policy.write(&segments, Now { us: writes, writes }, subject, None).0
        };
        // ln 2 = 0.7, ln 3 = 1.1, ln 7 = 1.9, ln 8 = 2.08; three queues, the fourth stream is that of copies.
        let climbed: Vec<u8> = (0..30).map(|owner| write(owner, 9)).collect();
        assert_eq!(climbed[..9], [0, 0, 1, 1, 1, 1, 1, 2, 2]);
        assert_eq!(climbed[29], 2);
        // The hottest is written every 10 page writes. Another chunk of eight requests that then rests for longer ...
        for _ in 0..8 {
            write(512, 0);
        }
        assert_eq!(write(512, 0), 2);
        // ... falls at the next request (9 / e = 3.3: queue 1), and once more when it has expired again (1.2: queue 0).
        write(5, 9);
        write(5, 9);
        assert_eq!(write(512, 0), 1, "4.3 requests");
        for _ in 0..4 {
            write(5, 9);
        }
        assert_eq!(write(512, 0), 0, "2.6 requests");
        assert_eq!(policy.copy(&segments, SegmentId(0), Now::default(), (), 0), 3);
    }

    #[test]
    fn a_long_request_counts_once_for_each_chunk() {
        let mut policy = MultiQueue::new(6, Chunks::new(256, 10_000));
        let segments = Segments::new(4, 8, false);
        for owner in 0..1000 {
            let subject = Subject { owner, ..Subject::default() };
            policy.write(&segments, Now { us: 7, writes: owner }, subject, None);
        }
        let counts: Vec<f64> = policy.table.iter().take(5).map(|chunk| chunk.count).collect();
        assert_eq!(counts, [1.0, 1.0, 1.0, 1.0, 0.0]);
    }
}
