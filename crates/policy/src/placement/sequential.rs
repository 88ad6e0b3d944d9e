use super::{HOT, Heat, Placement, heat};
use crate::age::{Clock, Now};
use crate::segments::Segments;
use margay_flash::SegmentId;

/// M1, sequential: one stream for host writes and copies; copies keep their order. Keeps nothing per page.
///
/// Source: J sec. 4, M1.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sequential;

impl Placement for Sequential {
    type Info = ();

    const ONE_STREAM_PER_VICTIM: bool = true;

    fn streams(&self) -> u8 {
        1
    }

    #[inline(always)]
    fn write(&mut self, _: &Segments, _: Now, _: Option<(SegmentId, ())>) -> (u8, ()) {
        (HOT, ())
    }

    #[inline(always)]
    fn copy(&self, _: &Segments, _: SegmentId, _: Now, (): ()) -> u8 {
        HOT
    }
}

/// What [`Sorted`] sorts a victim's pages by.
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

    const SORTS: bool = true;
    const ONE_STREAM_PER_VICTIM: bool = true;
    const HEAT_KIND: u8 = heat::UPDATES;

    fn pack(&self, heat: Heat) -> u32 {
        heat.updates
    }

    fn unpack(&mut self, updates: u32, written: Now, _: Now) -> Heat {
        Heat { written: written.on(self.clock), updates }
    }

    fn freeze(&self, heat: Heat, _: Now) -> (u64, u32) {
        (heat.written, heat.updates)
    }

    fn thaw(&mut self, (written, updates): (u64, u32), _: Now) -> Heat {
        Heat { written, updates }
    }

    fn streams(&self) -> u8 {
        1
    }

    fn write(&mut self, _: &Segments, now: Now, old: Option<(SegmentId, Heat)>) -> (u8, Heat) {
        (HOT, Heat::after_write(old, now.on(self.clock)))
    }

    fn copy(&self, _: &Segments, _: SegmentId, _: Now, _: Heat) -> u8 {
        HOT
    }

    fn sort_key(&self, now: Now, heat: Heat) -> f64 {
        match self.key {
            Key::Age => heat.written as f64,
            Key::Times => heat.hot_degree(now.on(self.clock), self.scale),
        }
    }
}
