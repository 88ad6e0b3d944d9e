use super::PageMark;
use crate::age::Now;
use crate::placement::{Content, Placement, PlacementBuild, Subject, WithPages};
use crate::segments::Segments;
use crate::spec::Row;
use alloc::vec::Vec;
use margay_flash::SegmentId;

/// The row of the predictive allocator.
pub(super) const ROW: Row<PlacementBuild> = Row {
    name: "predictive",
    summary: "by what will be written again: incomplete chunks, headers of open objects, overwritten data, the rest",
    parameters: &[],
    source: "margay",
    build: |_, _| WithPages::boxed(Predictive::default()),
};

const STREAMS: u8 = 5;
/// Header pages that will soon be written again.
const LIVE_HEADERS: u8 = 0;
/// Header pages that will probably not be written again soon.
const HEADERS: u8 = 1;
/// Chunks that are not complete: the next bytes of the file replace them.
const TAILS: u8 = 2;
/// Chunks that were overwritten.
const OVERWRITTEN: u8 = 3;
/// Complete chunks, and all data that survived a cleaning.
const COMPLETE: u8 = 4;

/// Sessions after which a file's header is expected to change again.
const OFTEN: u8 = 2;

/// Places pages by what a file system can predict of their invalidation. An incomplete chunk becomes invalid when its
/// file grows, except at the end of a long file that was written in one session, where it becomes invalid with the
/// file. A complete chunk becomes invalid only if it is overwritten, and one that was overwritten will be again. A
/// header becomes invalid at the end of the session, and again if its file has sessions often. What survives a cleaning
/// was predicted wrongly and goes to the cold data.
#[derive(Clone, Debug, Default)]
struct Predictive {
    sessions: Vec<u8>,
}

impl Predictive {
    fn created(&mut self, object: u32) {
        if self.sessions.len() <= object as usize {
            self.sessions.resize(object as usize + 1, 0);
        }
        self.sessions[object as usize] = 0;
    }

    fn modified(&mut self, object: u32) {
        if let Some(sessions) = self.sessions.get_mut(object as usize) {
            *sessions = sessions.saturating_add(1);
        }
    }

    fn remember(&self, object: u32) -> u8 {
        self.sessions(object)
    }

    fn recall(&mut self, object: u32, heat: u8) {
        self.created(object);
        self.sessions[object as usize] = heat;
    }

    fn sessions(&self, object: u32) -> u8 {
        self.sessions.get(object as usize).copied().unwrap_or(0)
    }

    /// `overwrites` says whether the page supersedes a complete chunk.
    fn stream(&self, content: Content, overwrites: bool, data_pages: u32) -> u8 {
        // The last chunk of a file that is longer than a segment and was written in one session becomes invalid with
        // the file.
        let is_end = |object: u32, chunk: u32| chunk >= data_pages && self.sessions(object) == 0;
        match content {
            Content::Headers { object, open, .. } if open || self.sessions(object) >= OFTEN => LIVE_HEADERS,
            Content::Headers { .. } => HEADERS,
            Content::Chunk { object, chunk, whole: false } if !is_end(object, chunk) => TAILS,
            Content::Chunk { .. } if overwrites => OVERWRITTEN,
            Content::Chunk { .. } | Content::Page => COMPLETE,
        }
    }

    fn copy_stream(&self, mark: PageMark, from: u8) -> u8 {
        match (mark.is_header(), from) {
            (true, _) => HEADERS,
            (false, OVERWRITTEN) => OVERWRITTEN,
            (false, _) => COMPLETE,
        }
    }
}

impl Placement for Predictive {
    type Info = PageMark;

    fn streams(&self) -> u8 {
        STREAMS
    }

    fn opened_at_start(&self) -> u8 {
        0
    }

    fn write(
        &mut self,
        segments: &Segments,
        _: Now,
        subject: Subject,
        old: Option<(SegmentId, PageMark)>,
    ) -> (u8, PageMark) {
        let overwrites = old.is_some_and(|(_, mark)| !mark.is_tail());
        (self.stream(subject.content, overwrites, segments.data_pages), PageMark::of(subject.content))
    }

    fn copy(&self, segments: &Segments, victim: SegmentId, _: Now, mark: PageMark, _: u64) -> u8 {
        self.copy_stream(mark, segments.stream[victim.index()])
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_chunks_are_apart_but_for_the_end_of_a_long_file_written_at_one_go() {
        let mut predictive = Predictive::default();
        predictive.created(1);
        let chunk = |chunk, whole| Content::Chunk { object: 1, chunk, whole };
        assert_eq!(predictive.stream(chunk(3, false), false, 32), TAILS);
        assert_eq!(predictive.stream(chunk(40, false), false, 32), COMPLETE);
        predictive.modified(1);
        assert_eq!(predictive.stream(chunk(40, false), false, 32), TAILS, "it grows session by session");
        assert_eq!(predictive.stream(chunk(40, true), false, 32), COMPLETE);
        assert_eq!(predictive.stream(chunk(40, true), true, 32), OVERWRITTEN);
    }

    #[test]
    fn headers_that_will_change_again_are_apart_and_survivors_are_cold() {
        let mut predictive = Predictive::default();
        predictive.created(1);
        let header = |open| Content::Headers { object: 1, open };
        assert_eq!(predictive.stream(header(true), false, 32), LIVE_HEADERS);
        assert_eq!(predictive.stream(header(false), false, 32), HEADERS);
        (0..OFTEN).for_each(|_| predictive.modified(1));
        assert_eq!(predictive.stream(header(false), false, 32), LIVE_HEADERS);
        assert_eq!(predictive.copy_stream(PageMark::of(header(true)), LIVE_HEADERS), HEADERS);
        let tail = PageMark::of(Content::Chunk { object: 1, chunk: 0, whole: false });
        assert_eq!(predictive.copy_stream(tail, TAILS), COMPLETE);
    }
}
