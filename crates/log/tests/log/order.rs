//! In which order pages are invalidated, segments sealed, opened, chosen and erased: it moves the published results.

use crate::client::*;
use margay_flash::SegmentId;
use margay_format::Plain;
use margay_log::{Config, Policies};
use margay_policy::{Now, PlacementSpec, Segments, Selection, SelectionSpec};
use std::sync::{Arc, Mutex};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Opened(SegmentId),
    Sealed(SegmentId),
    Invalidated(SegmentId),
    Taken(SegmentId),
}

/// A selection from outside: what another one answers, and a list of all that it was told.
#[derive(Debug)]
struct Listening {
    inner: Box<dyn Selection>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Listening {
    fn note(&self, event: Event) {
        self.events.lock().unwrap().push(event);
    }
}

impl Selection for Listening {
    fn opened(&mut self, segments: &Segments, segment: SegmentId) {
        self.note(Event::Opened(segment));
        self.inner.opened(segments, segment);
    }

    fn sealed(&mut self, segments: &Segments, segment: SegmentId) {
        self.note(Event::Sealed(segment));
        self.inner.sealed(segments, segment);
    }

    fn invalidated(&mut self, segments: &Segments, segment: SegmentId, valid: u32) {
        self.note(Event::Invalidated(segment));
        self.inner.invalidated(segments, segment, valid);
    }

    fn taken(&mut self, segments: &Segments, segment: SegmentId) {
        self.note(Event::Taken(segment));
        self.inner.taken(segments, segment);
    }

    fn select(&mut self, segments: &Segments, now: Now) -> Option<SegmentId> {
        self.inner.select(segments, now)
    }
}

/// The events of each host write that opened a segment and took a victim, on a device that is always short of segments.
fn writes_that_open(config: Config) -> Vec<Vec<Event>> {
    let events = Arc::new(Mutex::new(Vec::new()));
    let sizing = sizing(&config, 200);
    let inner = SelectionSpec::known("greedy").build(sizing);
    let selection = Box::new(Listening { inner, events: Arc::clone(&events) });
    let policies = Policies { selection, placement: PlacementSpec::known("m1").build(200) };
    let mut disk: Disk<_> = Disk::new(Plain::new(ram()), config, policies, 200);
    disk.fill();
    disk.overwrite(500, 1);
    let mut found = Vec::new();
    for lpn in 0..2000 {
        events.lock().unwrap().clear();
        disk.write(lpn * 7 % 200);
        let events = events.lock().unwrap().clone();
        let has = |kind: fn(&Event) -> bool| events.iter().any(kind);
        // A page in an open segment is invalidated without a word.
        if has(|event| matches!(event, Event::Opened(_)))
            && has(|event| matches!(event, Event::Taken(_)))
            && has(|event| matches!(event, Event::Invalidated(_)))
        {
            found.push(events);
        }
    }
    disk.check();
    found
}

/// What happened, without the segments.
fn kinds(events: &[Event]) -> Vec<&'static str> {
    let kind = |event: &Event| match event {
        Event::Opened(_) => "opened",
        Event::Sealed(_) => "sealed",
        Event::Invalidated(_) => "invalidated",
        Event::Taken(_) => "taken",
    };
    events.iter().map(kind).collect()
}

#[test]
fn cleaning_at_once_invalidates_seals_opens_and_then_cleans() {
    let writes = writes_that_open(at_once());
    assert!(writes.len() > 50, "{}", writes.len());
    for events in writes {
        let kinds = kinds(&events);
        assert!(kinds.starts_with(&["invalidated", "sealed", "opened", "taken"]), "{kinds:?}");
        let (Event::Opened(opened), Event::Taken(taken)) = (events[2], events[3]) else { unreachable!() };
        assert_ne!(opened, taken, "the victim is not what was opened before it was chosen");
    }
}

#[test]
fn paced_cleaning_invalidates_a_page_when_its_successor_is_on_flash_and_cleans_after_that() {
    let writes = writes_that_open(paced());
    assert!(writes.len() > 50, "{}", writes.len());
    for events in writes {
        assert_eq!(kinds(&events)[..4], ["sealed", "opened", "invalidated", "taken"], "{events:?}");
    }
}
