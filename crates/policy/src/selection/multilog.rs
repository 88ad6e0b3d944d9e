use super::{Selection, SelectionBuild};
use crate::age::Now;
use crate::segments::{Segments, Sizing, State};
use crate::spec::Row;
use alloc::boxed::Box;
use alloc::{vec, vec::Vec};
use margay_flash::SegmentId;

/// The row of MultiLog's selection.
pub(super) const ROW: Row<SelectionBuild> = Row {
    name: "multilog",
    summary: "MultiLog: the stream to which room is worth least, and its segment opened first",
    parameters: &[],
    source: "Stoica and Ailamaki, VLDB 2013",
    build: SelectionBuild { new: |_, sizing| Box::new(MultiLog::new(sizing)), scan: None },
};

/// What is counted of a stream.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// Pages lost to updates, halved from time to time.
    updates: u64,
    /// Pages of its sealed segments, and how many of them are valid.
    pages: u64,
    valid: u64,
    /// The candidate opened first.
    oldest: Option<SegmentId>,
}

impl Stream {
    /// By how much the write amplification would fall if the stream had more room: f |W| / (s (1 + W) (z + W)), with f
    /// its share of the updates, s its share of the valid pages, z pages over valid pages, and W = -exp(-0.9 (z - 1)),
    /// which is near to Lambert's W(-z exp(-z)).
    fn gain(&self, updates: u64, valid: u64) -> f64 {
        if self.valid == 0 {
            return 0.0;
        }
        let frequency = (self.updates + 1) as f64 / updates as f64;
        let share = self.valid as f64 / valid as f64;
        let z = self.pages as f64 / self.valid as f64;
        let w = libm::exp(-0.9 * (z - 1.0));
        frequency * w / (share * (1.0 - w) * (z - w))
    }
}

/// MultiLog's selection: each stream is a log that is cleaned first in, first out, and room is taken from the one to
/// which it is worth least.
///
/// Source: Stoica and Ailamaki, "Improving flash write performance by using update frequency", VLDB 2013; made for the
/// placement `multilog`, and FIFO with one stream. Reading: the victim's stream has the smallest derivative of write
/// amplification by room in size, because it gives room up; the opposite was measured, and costs three times as much.
/// Public code passes shares of updates and of pages the other way round and takes the smallest one with its sign,
/// which is negative. Update frequencies are the pages that sealed segments of a stream lost, halved every two device
/// writes; sizes are those of sealed segments. Ties: the lowest stream. O(1) in host writes, O(segments) per selection.
#[derive(Clone, Debug)]
struct MultiLog {
    streams: Vec<Stream>,
    updates: u64,
    /// Updates from which the counts are halved.
    limit: u64,
}

impl MultiLog {
    fn new(sizing: Sizing) -> Self {
        let streams = vec![Stream::default(); usize::from(u8::MAX) + 1];
        Self { streams, updates: 0, limit: 2 * u64::from(sizing.exported_pages).max(1) }
    }

    fn halve(&mut self) {
        self.streams.iter_mut().for_each(|stream| stream.updates /= 2);
        self.updates = self.streams.iter().map(|stream| stream.updates).sum();
    }
}

impl Selection for MultiLog {
    fn opened(&mut self, _: &Segments, _: SegmentId) {}
    fn sealed(&mut self, _: &Segments, _: SegmentId) {}

    #[inline]
    fn invalidated(&mut self, segments: &Segments, segment: SegmentId, _: u32) {
        self.streams[usize::from(segments.stream[segment.index()])].updates += 1;
        self.updates += 1;
        if self.updates >= self.limit {
            self.halve();
        }
    }

    fn taken(&mut self, _: &Segments, _: SegmentId) {}

    fn select(&mut self, segments: &Segments, _: Now) -> Option<SegmentId> {
        for stream in &mut self.streams {
            *stream = Stream { updates: stream.updates, ..Stream::default() };
        }
        let opened = |id: SegmentId| segments.opened_sequence[id.index()];
        let mut valid = 0;
        for id in segments.ids().filter(|id| segments.state[id.index()] == State::Sealed) {
            let stream = &mut self.streams[usize::from(segments.stream[id.index()])];
            stream.pages += u64::from(segments.data_pages);
            stream.valid += u64::from(segments.valid[id.index()]);
            valid += u64::from(segments.valid[id.index()]);
            if segments.is_candidate(id) && stream.oldest.is_none_or(|oldest| opened(id) < opened(oldest)) {
                stream.oldest = Some(id);
            }
        }
        let updates = self.updates + 1;
        let candidates = self.streams.iter().filter_map(|stream| Some((stream.gain(updates, valid), stream.oldest?)));
        candidates.min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_taken_from_the_stream_to_which_it_is_worth_least() {
        let mut policy = MultiLog::new(Sizing { segments: 6, data_pages: 10, exported_pages: 40, seed: 0 });
        let mut segments = Segments::new(6, 10, false);
        for (i, (stream, valid, opened)) in
            [(0, 5, 9), (0, 5, 4), (1, 8, 3), (1, 10, 1), (1, 9, 2), (1, 9, 5)].into_iter().enumerate()
        {
            segments.state[i] = State::Sealed;
            (segments.stream[i], segments.valid[i], segments.opened_sequence[i]) = (stream, valid, opened);
        }
        // Stream 0: s = 10 / 46, z = 2, W = -0.407, so 0.407 / (0.217 x 0.593 x 1.593) = 1.98 f.
        // Stream 1: s = 36 / 46, z = 1.111, W = -0.905, so 0.905 / (0.783 x 0.095 x 0.206) = 59 f.
        let (hot, cold) = (segments.stream[0], segments.stream[2]);
        let gain = |policy: &mut MultiLog, stream: u8| {
            policy.select(&segments, Now::default());
            policy.streams[usize::from(stream)].gain(policy.updates + 1, 46)
        };
        policy.streams[0].updates = 29;
        policy.updates = 29;
        assert!((gain(&mut policy, hot) - 1.98).abs() < 0.01, "{}", gain(&mut policy, hot));
        assert!((gain(&mut policy, cold) - 59.0 / 30.0).abs() < 0.03, "{}", gain(&mut policy, cold));
        // All updates but one go to stream 0: room is worth about as much to both. With one in fifty it is the cold one
        // that gives up.
        policy.streams[0].updates = 60;
        policy.updates = 60;
        assert_eq!(
            policy.select(&segments, Now::default()),
            Some(SegmentId(4)),
            "opened first of those with an invalid page"
        );
        (policy.streams[0].updates, policy.streams[1].updates, policy.updates) = (20, 20, 40);
        assert_eq!(policy.select(&segments, Now::default()), Some(SegmentId(1)));
    }

    #[test]
    fn old_updates_are_forgotten() {
        let mut policy = MultiLog::new(Sizing { segments: 6, data_pages: 10, exported_pages: 40, seed: 0 });
        let mut segments = Segments::new(2, 10, false);
        segments.stream[1] = 1;
        (0..79).for_each(|_| policy.invalidated(&segments, SegmentId(0), 1));
        policy.invalidated(&segments, SegmentId(1), 1);
        assert_eq!((policy.streams[0].updates, policy.streams[1].updates, policy.updates), (39, 0, 39));
    }
}
