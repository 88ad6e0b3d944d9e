use super::{HEAT, HEAT_SCALE, HOT, Heat, Placement, PlacementBuild, Subject, WithPages, heat};
use crate::age::{Clock, Now};
use crate::segments::Segments;
use crate::spec::Row;
use margay_flash::SegmentId;

/// The row of M1.
pub(super) const M1: Row<PlacementBuild> = Row {
    name: "m1",
    summary: "sequential: one stream for everything",
    parameters: &[],
    source: "FMS J sec. 4, M1",
    build: |_, _| WithPages::boxed(Sequential),
};

/// The row of M2.
pub(super) const M2: Row<PlacementBuild> = Row {
    name: "m2",
    summary: "age sort: one stream, a victim's pages sorted by age",
    parameters: &[],
    source: "FMS J sec. 4, M2",
    build: |_, exported_pages| {
        let (clock, scale) = HEAT_SCALE.resolve(exported_pages);
        WithPages::boxed(Sorted::new(Key::Age, clock, scale))
    },
};

/// The row of M3.
pub(super) const M3: Row<PlacementBuild> = Row {
    name: "m3",
    summary: "times sort: one stream, a victim's pages sorted by hot degree",
    parameters: &[HEAT],
    source: "FMS J sec. 4, M3",
    build: |args, exported_pages| {
        let (clock, scale) = args.scale("scale").resolve(exported_pages);
        WithPages::boxed(Sorted::new(Key::Times, clock, scale))
    },
};

/// M1, sequential: one stream for host writes and copies; copies keep their order. Keeps nothing per page.
///
/// Source: J sec. 4, M1.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sequential;

impl Placement for Sequential {
    type Info = ();

    const HOST_STREAM: Option<u8> = Some(HOT);

    const ONE_STREAM_PER_VICTIM: bool = true;

    fn streams(&self) -> u8 {
        1
    }

    #[inline(always)]
    fn write(&mut self, _: &Segments, _: Now, _: Subject, _: Option<(SegmentId, ())>) -> (u8, ()) {
        (HOT, ())
    }

    #[inline(always)]
    fn copy(&self, _: &Segments, _: SegmentId, _: Now, (): (), _: u64) -> u8 {
        HOT
    }
}

/// The key by which [`Sorted`] sorts a victim's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// M2: time since the page's last write, oldest first.
    Age,
    /// M3: hot degree, coldest first.
    Times,
}

/// M2 (age sort) and M3 (times sort): one stream; the victim's valid pages are sorted before they are copied.
///
/// Source: J sec. 4, M2 and M3. With one segment cleaned at a time the order within a segment changes no
/// later decision, so both cost exactly what M1 costs (spec sec. 6). 16 bytes per page.
#[derive(Clone, Copy, Debug)]
pub struct Sorted {
    key: Key,
    clock: Clock,
    scale: f64,
}

impl Sorted {
    /// `scale` is that of the hot degree ([`Heat::hot_degree`]) on `clock`.
    pub fn new(key: Key, clock: Clock, scale: f64) -> Self {
        Self { key, clock, scale }
    }
}

impl Placement for Sorted {
    type Info = Heat;

    const HOST_STREAM: Option<u8> = Some(HOT);

    const SORTS: bool = true;
    const ONE_STREAM_PER_VICTIM: bool = true;
    const HEAT_KIND: u8 = heat::UPDATES;

    fn pack(&self, heat: Heat) -> u32 {
        heat.updates
    }

    fn unpack(&mut self, updates: u32, written: Now, _: Now) -> Heat {
        Heat { written: written.on(self.clock), updates }
    }

    fn encode(&self, heat: Heat, _: Now) -> (u64, u32) {
        (heat.written, heat.updates)
    }

    fn decode(&mut self, (written, updates): (u64, u32), _: Now) -> Heat {
        Heat { written, updates }
    }

    fn streams(&self) -> u8 {
        1
    }

    fn write(&mut self, _: &Segments, now: Now, _: Subject, old: Option<(SegmentId, Heat)>) -> (u8, Heat) {
        (HOT, Heat::after_write(old, now.on(self.clock)))
    }

    fn copy(&self, _: &Segments, _: SegmentId, _: Now, _: Heat, _: u64) -> u8 {
        HOT
    }

    fn sort_key(&self, now: Now, heat: Heat) -> f64 {
        match self.key {
            Key::Age => heat.written as f64,
            Key::Times => heat.hot_degree(now.on(self.clock), self.scale),
        }
    }
}
