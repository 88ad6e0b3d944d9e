use super::{Content, Pages, Placement, Subject, Written};
use crate::age::Now;
use crate::bounds::Bounds;
use crate::segments::Segments;
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

    /// Makes room for the information of `pages` physical pages. Called once, before anything else.
    fn reserve(&mut self, pages: u32);

    /// Whether any information is kept for physical pages. If not, the engine need not call [`Placer::put`] nor the
    /// functions that move or clear information.
    fn keeps_pages(&self) -> bool;

    /// Whether a victim's pages are copied in the order of [`Placer::sort`].
    fn sorts(&self) -> bool;

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
}

impl<P: Placement> WithPages<P> {
    const KEEPS_PAGES: bool = size_of::<P::Info>() > 0;

    /// The policy, with no information on any page yet.
    pub fn new(policy: P) -> Self {
        Self { policy, infos: Vec::new(), next: P::Info::default(), detached: Vec::new() }
    }

    #[inline(always)]
    fn info(&self, page: u32) -> P::Info {
        if Self::KEEPS_PAGES { self.infos[page as usize] } else { P::Info::default() }
    }

    fn set(&mut self, ppn: Ppn, info: P::Info) {
        if Self::KEEPS_PAGES {
            self.infos[ppn.index()] = info;
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

    fn reserve(&mut self, pages: u32) {
        if Self::KEEPS_PAGES {
            self.infos = vec![P::Info::default(); pages as usize];
        }
    }

    fn keeps_pages(&self) -> bool {
        Self::KEEPS_PAGES
    }

    fn sorts(&self) -> bool {
        P::SORTS
    }

    fn write(&mut self, segments: &Segments, now: Now, subject: Subject, old: Option<(SegmentId, Ppn)>) -> u8 {
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
        self.policy.trimmed(now, self.info(ppn.0));
    }

    fn clear(&mut self, first: Ppn, count: u32) {
        if Self::KEEPS_PAGES {
            self.infos[first.index()..][..count as usize].fill(P::Info::default());
        }
    }

    fn moved(&mut self, first: Ppn, bits: u64, to: Ppn, count: u32) {
        if Self::KEEPS_PAGES {
            let mut word = None;
            let (source, target) = word_and_run(&mut self.infos, first.0, to.0, count, &mut word);
            let mut left = bits;
            for slot in target {
                *slot = source[left.trailing_zeros() as usize % 64];
                left &= left.wrapping_sub(1);
            }
        }
    }

    fn detach(&mut self, pages: &[Ppn]) {
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
