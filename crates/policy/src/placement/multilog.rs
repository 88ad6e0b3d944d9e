use super::requests::mix;
use super::{Pages, Placement, PlacementBuild, STREAMS, Subject, WithPages, heat};
use crate::age::Now;
use crate::segments::{Segments, State};
use crate::spec::Row;
use alloc::{vec, vec::Vec};
use margay_flash::SegmentId;

/// The row of MultiLog.
pub(super) const ROW: Row<PlacementBuild> = Row {
    name: "multilog",
    summary: "logs by update frequency: copies go one log colder, updates that come early may go one hotter",
    parameters: &[STREAMS],
    source: "Stoica and Ailamaki, VLDB 2013",
    build: |args, _| WithPages::boxed(MultiLog::new(args.number("streams") as u8)),
};

/// What is known of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct LogState {
    /// Valid pages at the last cleaning.
    valid: u64,
    /// Pages of victims so far, and how many of them were invalid.
    cleaned: u64,
    garbage: u64,
    is_used: bool,
}

impl LogState {
    /// The number of host writes after which a page of the log is expected to be updated; `None` if the log was not
    /// cleaned yet.
    fn expected_interval(self) -> Option<f64> {
        let garbage_ratio = self.garbage as f64 / self.cleaned as f64;
        (self.cleaned > 0).then(|| self.valid as f64 * (1.0 - garbage_ratio) / 2.0)
    }
}

/// MultiLog: pages of about one update frequency share a log, and find it by themselves. Log 0 is the hottest.
///
/// Source: Stoica and Ailamaki, "Improving flash write performance by using update frequency", VLDB 2013. New pages go
/// to log 0; a copy goes one log colder, where the coldest opens another as soon as it holds a segment of valid pages;
/// an update after d host writes goes one log hotter with probability (E - d) / E, E being half the valid pages of
/// the log x (1 - the mean share of invalid pages in its victims). Use it with the selection `multilog`. Readings: the log of a page
/// is the stream of its segment; a log that was not cleaned yet promotes nothing (in public code a division of 0 by 0
/// does the same); chance comes from the number of the write, so that a run can be repeated without a seed. Hot pages
/// that a cleaning reaches mix with cold ones until their next update, so that two classes that never change are
/// separated less well than by `dac`. 4 bytes per page, times modulo 2^32 writes; what is known of the logs starts anew
/// after a mount. O(1), O(segments) per cleaning.
#[derive(Clone, Debug)]
struct MultiLog {
    logs: Vec<LogState>,
    /// Where the copies of the victim go.
    target: u8,
}

impl MultiLog {
    fn new(streams: u8) -> Self {
        Self { logs: vec![LogState::default(); streams.into()], target: 0 }
    }

    /// The log of a segment. Data of other streams (read-only) starts again in log 0.
    fn log_of(&self, segments: &Segments, segment: SegmentId) -> u8 {
        let stream = segments.stream[segment.index()];
        if usize::from(stream) < self.logs.len() { stream } else { 0 }
    }

    /// Whether an update after `interval` host writes takes a page out of a log: `chance` is from 0 to 1.
    fn promotes(&self, log: u8, interval: u64, chance: f64) -> bool {
        let expected = self.logs[usize::from(log)].expected_interval();
        log > 0 && expected.is_some_and(|expected| chance * expected < expected - interval as f64)
    }
}

impl Placement for MultiLog {
    /// Host page writes when the host wrote the page, modulo 2^32.
    type Info = u32;

    const ONE_STREAM_PER_VICTIM: bool = true;

    fn streams(&self) -> u8 {
        self.logs.len() as u8
    }

    fn opened_at_start(&self) -> u8 {
        0
    }

    fn write(&mut self, segments: &Segments, now: Now, _: Subject, old: Option<(SegmentId, u32)>) -> (u8, u32) {
        let written = now.writes as u32;
        let Some((segment, before)) = old else { return (0, written) };
        let log = self.log_of(segments, segment);
        let interval = written.wrapping_sub(before);
        let chance = (mix(now.writes) >> 11) as f64 / (1u64 << 53) as f64;
        (log - u8::from(self.promotes(log, interval.into(), chance)), written)
    }

    fn begin_cleaning(&mut self, segments: &Segments, victim: SegmentId, _: Now, _: Pages<'_, u32>) {
        for log in &mut self.logs {
            (log.valid, log.is_used) = (0, false);
        }
        for id in segments.ids() {
            if matches!(segments.state[id.index()], State::Open | State::Sealed | State::Victim) {
                let log = usize::from(self.log_of(segments, id));
                self.logs[log].valid += u64::from(segments.valid[id.index()]);
                self.logs[log].is_used = true;
            }
        }
        let (log, valid) = (self.log_of(segments, victim), segments.valid[victim.index()]);
        let state = &mut self.logs[usize::from(log)];
        state.cleaned += u64::from(segments.data_pages);
        state.garbage += u64::from(segments.data_pages - valid);
        let is_enough = state.valid >= segments.data_pages.into();
        let is_last = self.logs[usize::from(log) + 1..].iter().all(|colder| !colder.is_used);
        let has_colder = usize::from(log) + 1 < self.logs.len() && (!is_last || is_enough);
        self.target = log + u8::from(has_colder);
    }

    fn copy(&self, _: &Segments, _: SegmentId, _: Now, _: u32, _: u64) -> u8 {
        self.target
    }

    number_for_a_page!(heat::WRITTEN);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_go_one_log_colder_and_the_coldest_opens_another_when_it_holds_a_segment() {
        let mut policy = MultiLog::new(3);
        let mut segments = Segments::new(4, 10, false);
        let mut cleaned = |segments: &Segments, victim| {
            policy.begin_cleaning(segments, SegmentId(victim), Now::default(), Pages::new(&[], &[]));
            policy.copy(segments, SegmentId(victim), Now::default(), 0, 0)
        };
        (segments.state[0], segments.valid[0]) = (State::Victim, 6);
        assert_eq!(cleaned(&segments, 0), 0, "the log holds less than a segment");
        (segments.state[1], segments.valid[1]) = (State::Sealed, 4);
        assert_eq!(cleaned(&segments, 0), 1);
        (segments.state[1], segments.valid[1], segments.stream[1]) = (State::Sealed, 1, 2);
        assert_eq!(cleaned(&segments, 0), 1, "a colder log is there");
        segments.stream[0] = 2;
        segments.valid[1] = 10;
        assert_eq!(cleaned(&segments, 0), 2, "there is no fourth log");
        segments.stream[0] = 3;
        assert_eq!(cleaned(&segments, 0), 1, "read-only data starts in log 0");
        // Victims of log 0 had 6 valid pages of 10 four times, of log 2 once.
        let garbage: Vec<_> = policy.logs.iter().map(|log| (log.garbage, log.cleaned)).collect();
        assert_eq!(garbage, [(16, 40), (0, 0), (4, 10)]);
    }

    #[test]
    fn updates_go_one_log_hotter_the_likelier_the_earlier_they_come() {
        let mut policy = MultiLog::new(3);
        // E = 1000 x (1 - 0.2) / 2 = 400.
        policy.logs[1] = LogState { valid: 1000, cleaned: 50, garbage: 10, is_used: true };
        assert!(policy.promotes(1, 100, 0.749) && !policy.promotes(1, 100, 0.751));
        assert!(policy.promotes(1, 0, 0.999) && !policy.promotes(1, 400, 0.0));
        assert!(!policy.promotes(2, 0, 0.0), "nothing is known of that log");
        policy.logs[0] = policy.logs[1];
        assert!(!policy.promotes(0, 0, 0.0), "there is no hotter log");
        // A quarter of the time, E - d being 300 of 400, an update after 100 writes stays.
        let mut segments = Segments::new(4, 10, false);
        segments.stream[0] = 1;
        let write = |writes: u32| {
            let now = Now { us: 0, writes: writes.into() };
            policy.clone().write(&segments, now, Subject::default(), Some((SegmentId(0), writes - 100))).0
        };
        let stayed = (1000..5000).filter(|writes| write(*writes) == 1).count();
        assert!((900..1100).contains(&stayed), "{stayed}");
    }
}
