use super::{Content, Pages, Placement, Subject, Written};
use crate::age::Now;
use crate::bounds::Bounds;
use crate::segments::{PageSums, Segments};
use alloc::boxed::Box;
use alloc::{vec, vec::Vec};
use core::fmt;
use margay_flash::{Ppn, SegmentId};

/// A placement policy together with the information that it keeps for every physical page, as the engine holds it.
/// [`WithPages`] implements it for every [`Placement`]; other crates may implement it directly.
///
/// A host write makes two calls: [`Placer::write`] decides, [`Placer::put`] says where the page went. Cleaning may
/// happen between them. Where one call can serve up to 64 pages, there is none for each page.
pub trait Placer: fmt::Debug + Send {
    /// Number of streams.
    fn streams(&self) -> u8;

    /// See [`Placement::opened_at_start`].
    fn opened_at_start(&self) -> u8;

    /// See [`Placement::IS_ORACLE`].
    fn is_oracle(&self) -> bool {
        false
    }

    /// See [`Placement::SEES_STREAMS`].
    fn sees_streams(&self) -> bool {
        false
    }

    /// Makes room for the information of all physical pages, so many in each of `segments` segments. Called once, before
    /// anything else.
    fn reserve(&mut self, segments: u32, pages_per_segment: u32);

    /// The sums over the valid pages of each segment that [`Segments::sums`] shows; empty if there are none.
    fn sums(&self) -> &[PageSums] {
        &[]
    }

    /// Whether any information is kept for physical pages. If not, the engine need not call [`Placer::put`] nor the
    /// functions that move or clear information.
    fn keeps_pages(&self) -> bool;

    /// Whether a victim's pages are copied in the order of [`Placer::sort`].
    fn sorts(&self) -> bool;

    /// See [`Placement::streams_used`].
    fn streams_used(&self, _spare_segments: f64) -> u8 {
        self.streams()
    }

    /// The stream that a host write goes to. `old` is the copy that it supersedes.
    fn write(&mut self, segments: &Segments, now: Now, subject: Subject, old: Option<(SegmentId, Ppn)>) -> u8;

    /// The stream of all host writes, if [`Placer::write`] need not be asked for each of them; see
    /// [`Placement::HOST_STREAM`].
    fn host_stream(&self) -> Option<u8> {
        None
    }

    /// Pages that the host wrote to [`Placer::host_stream`], in this order, after the time `before`, were programmed at
    /// `to` and the pages after it: stands for [`Placer::write`] and [`Placer::put`] for each of them. Called only if
    /// information is kept for pages.
    fn write_run(&mut self, _segments: &Segments, _before: Now, _run: &[Written], _to: Ppn) {}

    /// The information for the tag of the page that [`Placer::write`] decided on last.
    fn pack(&self) -> u32;

    /// The information for the tag of a page.
    fn pack_at(&self, ppn: Ppn) -> u32;

    /// The kind of information that [`Placer::pack`] returns; see [`super::heat`].
    fn heat_kind(&self) -> u8;

    /// The page that [`Placer::write`] decided on last was programmed at `to`.
    fn put(&mut self, to: Ppn);

    /// A page was trimmed.
    fn trimmed(&mut self, now: Now, ppn: Ppn);

    /// Resets the information of `count` pages from `first` on.
    fn clear(&mut self, first: Ppn, count: u32);

    /// The `count` pages that `bits` marks, counted from `first`, were copied to `to` and the pages after it.
    fn moved(&mut self, first: Ppn, bits: u64, to: Ppn, count: u32);

    /// Keeps the information of these pages apart, because their segment is going to be erased while their data is in
    /// memory.
    fn detach(&mut self, pages: &[Ppn]);

    /// Page number `number` of those detached last was programmed at `to`.
    fn attach(&mut self, number: usize, to: Ppn);

    /// A victim was chosen. `valid` is the bitmap of valid pages of the device.
    fn begin_cleaning(&mut self, segments: &Segments, victim: SegmentId, now: Now, valid: &[u64]);

    /// Among the pages of a victim that `bits` marks, counted from `first`: the stream that the lowest goes to, and all
    /// that go to the same stream. `owner` returns the owner of the n-th page from `first` on.
    fn split(
        &self,
        segments: &Segments,
        victim: SegmentId,
        now: Now,
        first: Ppn,
        bits: u64,
        owner: &dyn Fn(u32) -> u64,
    ) -> (u8, u64);

    /// Sorts pages into the reverse of the order in which they are to be copied.
    fn sort(&self, now: Now, pages: &mut [u32]);

    /// At a mount: recovers the information of a page from its tag, which was written at `written`.
    fn unpack(&mut self, ppn: Ppn, heat: u32, written: Now, now: Now);

    /// At a mount: only the content of a page is known.
    fn recognize(&mut self, ppn: Ppn, content: Content);

    /// The information of a page as a checkpoint holds it.
    fn encode(&self, ppn: Ppn, now: Now) -> (u64, u32);

    /// At a mount: decodes the information of a page from a checkpoint of the same policy.
    fn decode(&mut self, ppn: Ppn, encoded: (u64, u32), now: Now);

    /// Bytes of memory held for the information of all physical pages.
    fn memory_bytes(&self) -> usize;

    /// See [`Placement::file_created`].
    fn file_created(&mut self, object: u32);

    /// See [`Placement::file_modified`].
    fn file_modified(&mut self, object: u32);

    /// See [`Placement::remember_file`].
    fn remember_file(&self, object: u32) -> u8;

    /// See [`Placement::recall_file`].
    fn recall_file(&mut self, object: u32, kept: u8);

    /// See [`Placement::class_of_file`].
    fn class_of_file(&self, object: u32) -> Option<&'static str>;

    /// See [`Placement::seed`].
    fn seed(&mut self, _seed: u64) {}

    /// See [`Placement::bounds`].
    fn bounds(&self) -> Option<&Bounds> {
        None
    }
}

/// A [`Placement`] with the information that it keeps for every physical page.
#[derive(Debug)]
pub struct WithPages<P: Placement> {
    policy: P,
    infos: Vec<P::Info>,
    /// Information of the page that was decided on last.
    next: P::Info,
    /// Information of pages whose data is in memory while their segment is erased.
    detached: Vec<P::Info>,
    /// Sums over the valid pages of each segment, if the policy asks for them.
    sums: Vec<PageSums>,
    pages_per_segment: u32,
}

impl<P: Placement> WithPages<P> {
    const KEEPS_PAGES: bool = size_of::<P::Info>() > 0;

    /// The policy, with no information on any page yet.
    pub fn new(policy: P) -> Self {
        let (infos, detached, sums) = (Vec::new(), Vec::new(), Vec::new());
        Self { policy, infos, next: P::Info::default(), detached, sums, pages_per_segment: 1 }
    }

    #[inline(always)]
    fn info(&self, page: u32) -> P::Info {
        if Self::KEEPS_PAGES { self.infos[page as usize] } else { P::Info::default() }
    }

    fn set(&mut self, ppn: Ppn, info: P::Info) {
        if Self::KEEPS_PAGES {
            self.infos[ppn.index()] = info;
        }
        if P::SUMS {
            self.sums[(ppn.0 / self.pages_per_segment) as usize].add(P::sums_of(info));
        }
    }

    /// A page is no longer valid.
    #[inline(always)]
    fn lose(&mut self, ppn: Ppn) {
        if P::SUMS {
            let info = self.info(ppn.0);
            self.sums[(ppn.0 / self.pages_per_segment) as usize].remove(P::sums_of(info));
        }
    }
}

impl<P: Placement + 'static> WithPages<P> {
    /// The policy as the engine holds it.
    pub fn boxed(policy: P) -> Box<dyn Placer> {
        Box::new(Self::new(policy))
    }
}

impl<P: Placement> Placer for WithPages<P> {
    fn streams(&self) -> u8 {
        self.policy.streams()
    }

    fn opened_at_start(&self) -> u8 {
        self.policy.opened_at_start()
    }

    fn is_oracle(&self) -> bool {
        P::IS_ORACLE
    }

    fn sees_streams(&self) -> bool {
        P::SEES_STREAMS
    }

    fn reserve(&mut self, segments: u32, pages_per_segment: u32) {
        if Self::KEEPS_PAGES {
            self.infos = vec![P::Info::default(); (segments * pages_per_segment) as usize];
        }
        if P::SUMS {
            self.sums = vec![PageSums::default(); segments as usize];
        }
        self.pages_per_segment = pages_per_segment;
    }

    fn sums(&self) -> &[PageSums] {
        &self.sums
    }

    fn keeps_pages(&self) -> bool {
        Self::KEEPS_PAGES
    }

    fn sorts(&self) -> bool {
        P::SORTS
    }

    fn streams_used(&self, spare_segments: f64) -> u8 {
        self.policy.streams_used(spare_segments)
    }

    fn write(&mut self, segments: &Segments, now: Now, subject: Subject, old: Option<(SegmentId, Ppn)>) -> u8 {
        if let Some((_, ppn)) = old {
            self.lose(ppn);
        }
        let old = old.map(|(segment, ppn)| (segment, self.info(ppn.0)));
        let (stream, info) = self.policy.write(segments, now, subject, old);
        self.next = info;
        stream
    }

    fn host_stream(&self) -> Option<u8> {
        P::HOST_STREAM
    }

    fn write_run(&mut self, segments: &Segments, before: Now, run: &[Written], to: Ppn) {
        let mut now = before;
        for (written, to) in run.iter().zip(to.index()..) {
            now = Now { us: written.us, writes: now.writes + 1 };
            let old = (written.old != Written::NEW).then(|| (written.segment, self.info(written.old.0)));
            if old.is_some() {
                self.lose(written.old);
            }
            let (_, info) = self.policy.write(segments, now, Subject::default(), old);
            self.set(Ppn(to as u32), info);
        }
    }

    fn pack(&self) -> u32 {
        self.policy.pack(self.next)
    }

    fn pack_at(&self, ppn: Ppn) -> u32 {
        self.policy.pack(self.info(ppn.0))
    }

    fn heat_kind(&self) -> u8 {
        P::HEAT_KIND
    }

    fn put(&mut self, to: Ppn) {
        self.set(to, self.next);
    }

    fn trimmed(&mut self, now: Now, ppn: Ppn) {
        self.lose(ppn);
        self.policy.trimmed(now, self.info(ppn.0));
    }

    fn clear(&mut self, first: Ppn, count: u32) {
        if Self::KEEPS_PAGES {
            self.infos[first.index()..][..count as usize].fill(P::Info::default());
        }
        if P::SUMS && count == self.pages_per_segment {
            self.sums[(first.0 / count) as usize] = PageSums::default();
        }
    }

    fn moved(&mut self, first: Ppn, bits: u64, to: Ppn, count: u32) {
        if Self::KEEPS_PAGES {
            let mut word = None;
            let (source, target) = word_and_run(&mut self.infos, first.0, to.0, count, &mut word);
            let (mut left, mut lost, mut gained) = (bits, PageSums::default(), PageSums::default());
            for slot in target {
                let info = source[left.trailing_zeros() as usize % 64];
                *slot = self.policy.copied(info);
                left &= left.wrapping_sub(1);
                if P::SUMS {
                    lost.add(P::sums_of(info));
                    gained.add(P::sums_of(*slot));
                }
            }
            if P::SUMS && count > 0 {
                self.sums[(first.0 / self.pages_per_segment) as usize].remove(lost);
                self.sums[(to.0 / self.pages_per_segment) as usize].add(gained);
            }
        }
    }

    fn detach(&mut self, pages: &[Ppn]) {
        pages.iter().for_each(|ppn| self.lose(*ppn));
        self.detached = pages.iter().map(|ppn| self.info(ppn.0)).collect();
    }

    fn attach(&mut self, number: usize, to: Ppn) {
        let info = self.detached[number];
        self.set(to, info);
    }

    fn begin_cleaning(&mut self, segments: &Segments, victim: SegmentId, now: Now, valid: &[u64]) {
        self.policy.maintain(now, &mut self.infos);
        self.policy.begin_cleaning(segments, victim, now, Pages::new(&self.infos, valid));
    }

    fn split(
        &self,
        segments: &Segments,
        victim: SegmentId,
        now: Now,
        first: Ppn,
        bits: u64,
        owner: &dyn Fn(u32) -> u64,
    ) -> (u8, u64) {
        let stream = |page: u32, infos: &[P::Info; 64]| {
            let owner = if P::SEES_OWNERS { owner(page) } else { 0 };
            self.policy.copy(segments, victim, now, infos[page as usize % 64], owner)
        };
        if P::ONE_STREAM_PER_VICTIM || !Self::KEEPS_PAGES && !P::SEES_OWNERS {
            return (stream(0, &[P::Info::default(); 64]), bits);
        }
        let mut word = None;
        let infos = word_of(&self.infos, first.index(), &mut word);
        let wanted = stream(bits.trailing_zeros(), infos);
        let mut together = 0;
        if P::SEES_OWNERS || self.policy.streams() != 2 {
            let mut others = bits;
            while others != 0 {
                together |= u64::from(stream(others.trailing_zeros(), infos) == wanted) << others.trailing_zeros();
                others &= others - 1;
            }
        } else {
            // The whole word is evaluated: without branches this costs less than evaluating only the pages in use.
            // Lane n gathers pages n, n + 8 and so on, each in a byte of its own.
            let mut lanes = [0u64; 8];
            for eight in infos.chunks_exact(8).rev() {
                for (lane, info) in lanes.iter_mut().zip(eight) {
                    *lane = *lane << 8 | u64::from(self.policy.copy(segments, victim, now, *info, 0));
                }
            }
            let second = lanes.iter().rev().fold(0, |bits, lane| bits << 1 | lane);
            together = if wanted == 0 { !second } else { second };
        }
        (wanted, together & bits)
    }

    fn sort(&self, now: Now, pages: &mut [u32]) {
        let key = |page: &u32| self.policy.sort_key(now, self.info(*page));
        pages.sort_by(|a, b| key(b).total_cmp(&key(a)));
    }

    fn unpack(&mut self, ppn: Ppn, heat: u32, written: Now, now: Now) {
        let info = self.policy.unpack(heat, written, now);
        self.set(ppn, info);
    }

    fn recognize(&mut self, ppn: Ppn, content: Content) {
        let info = self.policy.recognize(content);
        self.set(ppn, info);
    }

    fn encode(&self, ppn: Ppn, now: Now) -> (u64, u32) {
        self.policy.encode(self.info(ppn.0), now)
    }

    fn decode(&mut self, ppn: Ppn, encoded: (u64, u32), now: Now) {
        let info = self.policy.decode(encoded, now);
        self.set(ppn, info);
    }

    fn memory_bytes(&self) -> usize {
        self.infos.capacity() * size_of::<P::Info>()
    }

    fn file_created(&mut self, object: u32) {
        self.policy.file_created(object);
    }

    fn file_modified(&mut self, object: u32) {
        self.policy.file_modified(object);
    }

    fn remember_file(&self, object: u32) -> u8 {
        self.policy.remember_file(object)
    }

    fn recall_file(&mut self, object: u32, kept: u8) {
        self.policy.recall_file(object, kept);
    }

    fn class_of_file(&self, object: u32) -> Option<&'static str> {
        self.policy.class_of_file(object)
    }

    fn seed(&mut self, seed: u64) {
        self.policy.seed(seed);
    }

    fn bounds(&self) -> Option<&Bounds> {
        self.policy.bounds()
    }
}

/// The 64 entries from `first` on, as an array, which needs no bounds checks. If there are fewer, they are copied to
/// `word`.
#[inline(always)]
fn word_of<'a, T: Copy + Default>(all: &'a [T], first: usize, word: &'a mut Option<[T; 64]>) -> &'a [T; 64] {
    let rest = all.get(first..).unwrap_or_default();
    match rest.first_chunk() {
        Some(whole) => whole,
        None => word.insert(padded(rest)),
    }
}

#[cold]
fn padded<T: Copy + Default>(rest: &[T]) -> [T; 64] {
    core::array::from_fn(|at| rest.get(at).copied().unwrap_or_default())
}

/// The 64 entries from `source` on, some of which are to be copied, and the `run` entries from `target` on, which
/// receive the copies. Pages are copied to another segment or to a later page, so the pages wanted never overlap the
/// target. `word` holds the source entries if there are fewer than 64 up to `target` or to the end of the device.
#[inline(always)]
pub fn word_and_run<'a, T: Copy + Default>(
    all: &'a mut [T],
    source: u32,
    target: u32,
    run: u32,
    word: &'a mut Option<[T; 64]>,
) -> (&'a [T; 64], &'a mut [T]) {
    let (source, target, run) = (source as usize, target as usize, run as usize);
    if source < target {
        let (low, high) = all.split_at_mut(target);
        (word_of(low, source, word), &mut high[..run])
    } else {
        let (low, high) = all.split_at_mut(source);
        (word_of(high, 0, word), &mut low[target..target + run])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PlacementSpec;

    fn placer(name: &str) -> Box<dyn Placer> {
        let mut placer = PlacementSpec::known(name).build(100);
        placer.reserve(3, 8);
        placer
    }

    fn at(writes: u64) -> Now {
        Now { us: 0, writes }
    }

    #[test]
    fn sums_follow_pages_that_are_written_copied_trimmed_lost_and_recovered() {
        let mut placer = placer("sfs");
        let segments = Segments::new(3, 8, false);
        let sums = |placer: &dyn Placer| -> Vec<_> {
            placer.sums().iter().map(|sums| (sums.pages, sums.writes, sums.written)).collect()
        };
        for page in 0..3 {
            placer.write(&segments, at(10 + u64::from(page)), Subject::default(), None);
            placer.put(Ppn(page));
        }
        assert_eq!(sums(&*placer), [(3, 3, 33), (0, 0, 0), (0, 0, 0)]);
        placer.write(&segments, at(20), Subject::default(), Some((SegmentId(0), Ppn(1))));
        placer.put(Ppn(8));
        assert_eq!(sums(&*placer), [(2, 2, 22), (1, 2, 20), (0, 0, 0)]);
        placer.moved(Ppn(0), 0b101, Ppn(9), 2);
        assert_eq!(sums(&*placer), [(0, 0, 0), (3, 4, 42), (0, 0, 0)]);
        placer.trimmed(at(21), Ppn(9));
        assert_eq!(sums(&*placer)[1], (2, 3, 32));
        placer.detach(&[Ppn(8), Ppn(10)]);
        placer.clear(Ppn(8), 8);
        assert_eq!(sums(&*placer)[1], (0, 0, 0));
        placer.attach(1, Ppn(8));
        assert_eq!(sums(&*placer)[1], (1, 1, 12));
        placer.unpack(Ppn(16), 6, at(30), at(40));
        placer.decode(Ppn(17), (31, 4), at(40));
        assert_eq!(sums(&*placer)[2], (2, 7 + 5, 61));
        placer.clear(Ppn(16), 8);
        assert_eq!(sums(&*placer)[2], (0, 0, 0), "the segment is used again");
    }

    #[test]
    fn a_copy_may_change_what_is_kept_of_a_page() {
        let mut placer = placer("fadac");
        placer.unpack(Ppn(0), 5, at(1), at(2));
        placer.unpack(Ppn(1), 0, at(1), at(2));
        placer.moved(Ppn(0), 0b11, Ppn(8), 2);
        assert_eq!([8, 9].map(|ppn| placer.pack_at(Ppn(ppn))), [4, 0]);
        assert_eq!(placer.sums(), [], "it asks for none");
    }
}
