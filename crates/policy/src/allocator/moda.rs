use super::PageMark;
use crate::age::Now;
use crate::placement::{Content, Placement, PlacementBuild, Subject, WithPages};
use crate::segments::Segments;
use crate::spec::{Parameter, Row};
use alloc::vec::Vec;
use margay_flash::SegmentId;

/// The row of MODA.
pub(super) const ROW: Row<PlacementBuild> = Row {
    name: "moda",
    summary: "headers apart; files by the number of their modifications: hot, cold, unclassified",
    parameters: &[
        Parameter::number("m", 2, 1..=16, "queues that a file climbs before it is hot"),
        Parameter::number(
            "lifetime",
            100,
            1..=1_000_000_000,
            "creations and modifying sessions until an unmodified file falls a queue",
        ),
        Parameter::choice(
            "property",
            &["both", "static", "dynamic"],
            "`static`: only headers apart, all files in one class; `dynamic`: only files by their modifications, a header with its file",
        ),
    ],
    source: "Baek et al. 2007, sec. 4",
    build: |args, _| {
        let all = [Property::Both, Property::Static, Property::Dynamic];
        let property = args.choice("property", &all);
        WithPages::boxed(Moda::new(args.number("m") as u8, args.number("lifetime"), property))
    },
};

/// Which of its two properties MODA uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Property {
    Both,
    Static,
    Dynamic,
}

const STREAMS: u8 = 4;
const SYSTEM: u8 = 0;

/// The class that MODA puts a file into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileClass {
    /// It was modified often enough.
    Hot,
    /// It was not modified for a long time.
    Cold,
    /// Nothing is known yet.
    Unclassified,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Queue { level: u8, expires: u64 },
    Hot,
    Cold,
}

/// MODA: headers (the static property) and files by the count of their modifications (the dynamic one), in the
/// manner of multi-queue replacement.
///
/// Source: Baek et al. 2007, sec. 4; spec sec. 3. A file starts in the lowest of m queues. A modifying session moves it
/// one up, and out of the highest into the hot class; after `lifetime` creations and modifying sessions without one it
/// falls a queue, and out of the lowest into the cold class. Falls are computed when the file is looked at. Open in the
/// paper: hot files stay hot; a cold file that is modified starts again in the lowest queue.
#[derive(Clone, Debug)]
struct Moda {
    property: Property,
    queues: u8,
    lifetime: u64,
    now: u64,
    files: Vec<State>,
}

impl Moda {
    fn new(queues: u8, lifetime: u32, property: Property) -> Self {
        Self { property, queues, lifetime: lifetime.into(), now: 0, files: Vec::new() }
    }

    fn start(&self) -> State {
        State::Queue { level: 0, expires: self.now + self.lifetime }
    }

    /// The state of a file with all that has expired applied.
    fn state(&self, object: u32) -> State {
        let mut state = self.files.get(object as usize).copied().unwrap_or(State::Cold);
        while let State::Queue { level, expires } = state {
            if expires > self.now {
                break;
            }
            state = match level {
                0 => State::Cold,
                _ => State::Queue { level: level - 1, expires: expires + self.lifetime },
            };
        }
        state
    }

    fn set(&mut self, object: u32, state: State) {
        if self.files.len() <= object as usize {
            self.files.resize(object as usize + 1, State::Cold);
        }
        self.files[object as usize] = state;
    }

    fn created(&mut self, object: u32) {
        self.now += 1;
        self.set(object, self.start());
    }

    fn modified(&mut self, object: u32) {
        self.now += 1;
        let next = match self.state(object) {
            State::Queue { level, .. } if level + 1 < self.queues => {
                State::Queue { level: level + 1, expires: self.now + self.lifetime }
            }
            State::Queue { .. } | State::Hot => State::Hot,
            State::Cold => self.start(),
        };
        self.set(object, next);
    }

    /// 1 is cold, 2 hot, 3 and more a queue. The time in a queue starts again at the next mount.
    fn remember(&self, object: u32) -> u8 {
        match self.state(object) {
            State::Cold => 1,
            State::Hot => 2,
            State::Queue { level, .. } => 3 + level,
        }
    }

    fn recall(&mut self, object: u32, heat: u8) {
        let state = match heat {
            1 => State::Cold,
            2 => State::Hot,
            3.. => State::Queue { level: (heat - 3).min(self.queues - 1), expires: self.now + self.lifetime },
            // 0: another allocator wrote the header and kept nothing.
            0 => self.start(),
        };
        self.set(object, state);
    }

    fn class(&self, object: u32) -> FileClass {
        match self.state(object) {
            State::Queue { .. } => FileClass::Unclassified,
            State::Hot => FileClass::Hot,
            State::Cold => FileClass::Cold,
        }
    }

    fn stream(&self, mark: PageMark) -> u8 {
        match self.class(mark.object()) {
            _ if mark.is_header() && self.property != Property::Dynamic => SYSTEM,
            _ if self.property == Property::Static => 1,
            FileClass::Hot => 1,
            FileClass::Unclassified => 2,
            FileClass::Cold => 3,
        }
    }
}

impl Placement for Moda {
    type Info = PageMark;

    fn streams(&self) -> u8 {
        STREAMS
    }

    fn opened_at_start(&self) -> u8 {
        0
    }

    fn write(&mut self, _: &Segments, _: Now, subject: Subject, _: Option<(SegmentId, PageMark)>) -> (u8, PageMark) {
        let mark = PageMark::of(subject.content);
        (self.stream(mark), mark)
    }

    fn copy(&self, _: &Segments, _: SegmentId, _: Now, mark: PageMark, _: u64) -> u8 {
        self.stream(mark)
    }

    fn recognize(&mut self, content: Content) -> PageMark {
        PageMark::of(content)
    }

    fn file_created(&mut self, object: u32) {
        self.created(object);
    }

    fn file_modified(&mut self, object: u32) {
        self.modified(object);
    }

    fn remember_file(&self, object: u32) -> u8 {
        self.remember(object)
    }

    fn recall_file(&mut self, object: u32, kept: u8) {
        self.recall(object, kept);
    }

    fn class_of_file(&self, object: u32) -> Option<&'static str> {
        Some(match self.class(object) {
            FileClass::Hot => "hot",
            FileClass::Cold => "cold",
            FileClass::Unclassified => "unclassified",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_climbs_the_queues_by_modifying_sessions_and_stays_hot() {
        let mut moda = Moda::new(2, 7, Property::Both);
        moda.created(1);
        assert_eq!(moda.class(1), FileClass::Unclassified);
        moda.modified(1);
        assert_eq!(moda.class(1), FileClass::Unclassified, "in the second queue");
        moda.modified(1);
        assert_eq!(moda.class(1), FileClass::Hot);
        (2..100).for_each(|other| moda.created(other));
        assert_eq!(moda.class(1), FileClass::Hot);
    }

    #[test]
    fn a_file_without_sessions_falls_a_queue_per_lifetime_and_then_is_cold() {
        let mut moda = Moda::new(2, 7, Property::Both);
        moda.created(1);
        moda.modified(1);
        // The second queue until tick 9, the first until tick 16.
        (2..15).for_each(|other| moda.created(other));
        assert_eq!((moda.now, moda.class(1)), (15, FileClass::Unclassified));
        moda.created(15);
        assert_eq!((moda.now, moda.class(1)), (16, FileClass::Cold));
        moda.modified(1);
        assert_eq!(moda.class(1), FileClass::Unclassified, "a cold file that is modified starts anew");
    }

    #[test]
    fn the_class_that_decides_is_the_one_before_the_session_is_counted_and_headers_are_apart() {
        let mut moda = Moda::new(1, 7, Property::Both);
        moda.created(1);
        let (data, header) = (PageMark(1), PageMark(1 | PageMark::HEADER));
        assert_eq!((moda.stream(data), moda.stream(header)), (2, SYSTEM));
        moda.modified(1);
        assert_eq!((moda.stream(data), moda.stream(header)), (1, SYSTEM));
    }

    #[test]
    fn one_property_alone_leaves_the_other_distinction_out() {
        let streams = |property| {
            let mut moda = Moda::new(1, 7, property);
            (1..=2).for_each(|file| moda.created(file));
            moda.modified(1);
            [1, 2].map(|file| (moda.stream(PageMark(file)), moda.stream(PageMark(file | PageMark::HEADER))))
        };
        assert_eq!(streams(Property::Both), [(1, SYSTEM), (2, SYSTEM)]);
        assert_eq!(streams(Property::Static), [(1, SYSTEM), (1, SYSTEM)], "all files are one class");
        assert_eq!(streams(Property::Dynamic), [(1, 1), (2, 2)], "a header goes with its file");
    }

    #[test]
    fn what_is_remembered_is_recalled() {
        let mut moda = Moda::new(3, 7, Property::Both);
        (1..=3).for_each(|file| moda.created(file));
        moda.modified(2);
        (0..3).for_each(|_| moda.modified(3));
        let kept: Vec<u8> = (0..=3).map(|file| moda.remember(file)).collect();
        assert_eq!(kept, [1, 3, 4, 2]);
        let mut again = Moda::new(3, 7, Property::Both);
        (0..).zip(&kept).for_each(|(file, heat)| again.recall(file, *heat));
        assert_eq!((0..=3).map(|file| again.remember(file)).collect::<Vec<_>>(), kept);
    }
}
