use alloc::{vec, vec::Vec};
use margay_flash::SegmentId;

const NONE: u32 = u32::MAX;

/// Gives every segment a column number, in the order in which segments were opened.
///
/// Columns are handed out in ascending order. When they run out, those in use are renumbered from 0 (at most once per
/// `segments` openings), and an index that uses them as keys has to be rebuilt.
#[derive(Clone, Debug)]
pub struct OpenOrder {
    column: Vec<u32>,
    segment: Vec<u32>,
    next: usize,
}

impl OpenOrder {
    /// Columns for `segments` segments: twice as many as segments, so that renumbering is rare.
    pub fn new(segments: u32) -> Self {
        let n = segments as usize;
        Self { column: vec![NONE; n], segment: vec![NONE; 2 * n], next: 0 }
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.segment.len()
    }

    /// Gives the segment the next column. True if the columns of other segments have changed.
    pub fn open(&mut self, segment: SegmentId) -> bool {
        self.release(segment);
        let moved = self.next == self.segment.len();
        if moved {
            self.compact();
        }
        self.segment[self.next] = segment.0;
        self.column[segment.index()] = self.next as u32;
        self.next += 1;
        moved
    }

    /// Takes the column of a segment back.
    pub fn release(&mut self, segment: SegmentId) {
        let column = core::mem::replace(&mut self.column[segment.index()], NONE);
        if column != NONE {
            self.segment[column as usize] = NONE;
        }
    }

    /// The column of a segment that has one.
    #[inline(always)]
    pub fn column(&self, segment: SegmentId) -> u32 {
        self.column[segment.index()]
    }

    /// The segment at a column that was handed out.
    #[inline(always)]
    pub fn segment(&self, column: u32) -> SegmentId {
        SegmentId(self.segment[column as usize])
    }

    /// Segments that have a column, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = SegmentId> + '_ {
        self.segment[..self.next].iter().filter(|s| **s != NONE).map(|s| SegmentId(*s))
    }

    fn compact(&mut self) {
        let mut to = 0;
        for from in 0..self.next {
            let segment = core::mem::replace(&mut self.segment[from], NONE);
            if segment != NONE {
                self.segment[to] = segment;
                self.column[segment as usize] = to as u32;
                to += 1;
            }
        }
        self.next = to;
    }
}
