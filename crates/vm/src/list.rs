use alloc::{vec, vec::Vec};

pub(crate) const NONE: u32 = u32::MAX;

/// A doubly linked list of frames, the most recently used first.
#[derive(Clone, Debug)]
pub(crate) struct List {
    prev: Vec<u32>,
    next: Vec<u32>,
    pub head: u32,
    pub tail: u32,
}

impl List {
    pub fn new(frames: u32) -> Self {
        Self { prev: vec![NONE; frames as usize], next: vec![NONE; frames as usize], head: NONE, tail: NONE }
    }

    pub fn prev(&self, frame: u32) -> u32 {
        self.prev[frame as usize]
    }

    pub fn next(&self, frame: u32) -> u32 {
        self.next[frame as usize]
    }

    #[inline]
    pub fn push_front(&mut self, frame: u32) {
        (self.prev[frame as usize], self.next[frame as usize]) = (NONE, self.head);
        match self.head {
            NONE => self.tail = frame,
            head => self.prev[head as usize] = frame,
        }
        self.head = frame;
    }

    #[inline]
    pub fn remove(&mut self, frame: u32) {
        let (prev, next) = (self.prev[frame as usize], self.next[frame as usize]);
        match prev {
            NONE => self.head = next,
            prev => self.next[prev as usize] = next,
        }
        match next {
            NONE => self.tail = prev,
            next => self.prev[next as usize] = prev,
        }
    }

    pub fn memory_bytes(&self) -> u64 {
        4 * (self.prev.capacity() + self.next.capacity()) as u64
    }
}
