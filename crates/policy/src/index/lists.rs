use alloc::{vec, vec::Vec};
use margay_flash::SegmentId;

const NONE: u32 = u32::MAX;

/// A doubly linked list of segments per number of valid pages, each sorted by a key that grows with every
/// move: a segment that moves to another list has just received the largest key, so it is appended.
#[derive(Clone, Debug)]
pub struct BucketLists {
    head: Vec<u32>,
    tail: Vec<u32>,
    next: Vec<u32>,
    previous: Vec<u32>,
}

impl BucketLists {
    /// `rows` empty lists for `segments` segments.
    pub fn new(rows: usize, segments: u32) -> Self {
        let n = segments as usize;
        Self { head: vec![NONE; rows], tail: vec![NONE; rows], next: vec![NONE; n], previous: vec![NONE; n] }
    }

    /// Puts a segment into a list after every segment whose key is not larger. The search starts at the end: it passes
    /// the segments that have moved into this list since the segment received its key.
    pub fn insert<K: Ord>(&mut self, row: u32, segment: SegmentId, key: impl Fn(SegmentId) -> K) {
        let own = key(segment);
        let mut after = self.tail[row as usize];
        while after != NONE && key(SegmentId(after)) > own {
            after = self.previous[after as usize];
        }
        self.link(row, segment, after);
    }

    /// Puts a segment at the end of a list.
    #[inline]
    pub fn append(&mut self, row: u32, segment: SegmentId) {
        self.link(row, segment, self.tail[row as usize]);
    }

    /// Takes a segment out of the list it is in.
    #[inline]
    pub fn remove(&mut self, row: u32, segment: SegmentId) {
        let (before, after) = (self.previous[segment.index()], self.next[segment.index()]);
        *self.next_of(row, before) = after;
        *self.previous_of(row, after) = before;
    }

    /// The segment with the smallest key.
    #[inline]
    pub fn first(&self, row: u32) -> Option<SegmentId> {
        let head = self.head[row as usize];
        (head != NONE).then_some(SegmentId(head))
    }

    fn link(&mut self, row: u32, segment: SegmentId, after: u32) {
        let next = core::mem::replace(self.next_of(row, after), segment.0);
        *self.previous_of(row, next) = segment.0;
        self.next[segment.index()] = next;
        self.previous[segment.index()] = after;
    }

    fn next_of(&mut self, row: u32, segment: u32) -> &mut u32 {
        if segment == NONE { &mut self.head[row as usize] } else { &mut self.next[segment as usize] }
    }

    fn previous_of(&mut self, row: u32, segment: u32) -> &mut u32 {
        if segment == NONE { &mut self.tail[row as usize] } else { &mut self.previous[segment as usize] }
    }
}
