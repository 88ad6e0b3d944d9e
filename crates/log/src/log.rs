use crate::level::Relocation;
use crate::owners::ReadOwners;
use crate::paced::MAX_SCRUBS;
use crate::read_counts::ReadCounts;
use crate::run::Run;
use crate::valid::ValidBits;
use crate::{Client, Config, ConfigError, Counters, LogError, Owner, Policies, Uniformity};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::{vec, vec::Vec};
use margay_flash::{FlashError, Geometry, Ppn, SegmentId};
use margay_format::{FreeList, FreeSegment, PageInfo, SegmentInfo, Store, U48_MAX};
use margay_policy::{Content, Hint, Leveling, Now, Placer, Segments, Selection, State, Subject};

/// Owners of refused writes for which [`Log::reserve_lists`] makes room.
const MAX_REFUSED: usize = 32;

/// The open segment of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub segment: SegmentId,
    pub next: u32,
    pub end: u32,
}

impl Head {
    pub const CLOSED: Self = Self { segment: SegmentId(u32::MAX), next: 0, end: 0 };

    pub fn is_open(&self) -> bool {
        self.segment != Self::CLOSED.segment
    }

    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.next == self.end
    }

    /// Pages that can be programmed in it.
    pub fn room(&self) -> u32 {
        self.end - self.next
    }
}

/// A log on a device, with its policies. `O` is the owner tag of a page.
#[derive(Debug)]
pub struct Log<D, O> {
    pub(crate) device: D,
    pub(crate) selection: Box<dyn Selection>,
    pub(crate) placement: Box<dyn Placer>,
    pub(crate) leveling: Option<Box<dyn Leveling>>,
    /// The selection needs the time at which a page of a segment was last invalidated.
    notes_invalidations: bool,
    /// The placement keeps information for every physical page.
    pub(crate) keeps_pages: bool,
    /// The placement has one stream and keeps nothing, so there is nothing to decide.
    pub(crate) is_undivided: bool,
    /// The placement has two streams.
    pub(crate) has_two_streams: bool,
    pub(crate) run: Run,
    pub(crate) geometry: Geometry,
    pub(crate) config: Config,
    pub(crate) segments: Segments,
    /// The owner tag of every physical page; empty if they are read from flash.
    pub(crate) owners: Vec<O>,
    /// Those of a segment, where the others are on flash only.
    pub(crate) read_owners: ReadOwners<O>,
    pub(crate) valid: ValidBits,
    pub(crate) heads: Vec<Head>,
    /// The stream of read-only data, behind those of the placement.
    pub(crate) read_only: Option<u8>,
    /// The stream of pages of the client's own, the last one.
    pub(crate) own_stream: Option<u8>,
    pub(crate) free: FreeList,
    /// The segment that is being cleaned.
    pub(crate) victim: Option<SegmentId>,
    /// Valid pages of the victim in the order of a placement that sorts; the next one to copy is the last.
    pub(crate) sorted: Vec<u32>,
    /// Sealed segments to be cleaned before any other: those with a failed program.
    pub(crate) clean_first: VecDeque<SegmentId>,
    /// What leveling wants where cleaning is spread over the writes.
    pub(crate) relocation: Relocation,
    /// Segments that are retired once they are cleaned.
    pub(crate) retire_queue: Vec<SegmentId>,
    /// The list of retired segments on flash lacks some.
    pub(crate) retired_changed: bool,
    /// Pages that wait to be rewritten because the ECC had to correct them.
    pub(crate) scrubs: Vec<Ppn>,
    pub(crate) reads: ReadCounts,
    /// Owners of pages whose writes were refused and may be on flash all the same.
    pub(crate) refused: Vec<O>,
    pub(crate) scratch: Vec<u8>,
    pub(crate) counters: Counters,
    pub(crate) now: Now,
    pub(crate) openings: u64,
    pub(crate) invalidations: u64,
    /// Sequence number of the last program.
    pub(crate) seq: u64,
    /// That of the last program before the log was made or restored.
    pub(crate) first_seq: u64,
    /// Cleaning has started below the low-water mark and goes on up to the high-water mark.
    pub(crate) is_cleaning: bool,
    /// How many segments are kept free beyond those marks, because they wait for syncs.
    pub(crate) ahead: u32,
    /// Pages to copy per host write so that the victim is cleaned in time.
    pub(crate) rate_pages: u32,
    /// Pages programmed before the current host write.
    pub(crate) programs_before_write: u64,
    /// Pages programmed before work that counts as that of the next host write, if there was any.
    pub(crate) work_began: Option<u64>,
}

impl<D: Store, O: Owner> Log<D, O> {
    /// A log on an erased device, able to hold `exported_pages` valid pages.
    pub fn new(device: D, config: Config, policies: Policies, exported_pages: u32) -> Result<Self, LogError> {
        let mut log = Self::closed(device, config, policies, exported_pages)?;
        log.open_first()?;
        Ok(log)
    }

    /// Opens the streams that the placement wants open from the start.
    pub(crate) fn open_first(&mut self) -> Result<(), LogError> {
        (0..self.placement.opened_at_start()).try_for_each(|stream| self.open(stream))
    }

    /// A log with all segments free and no stream open.
    pub(crate) fn closed(
        device: D,
        config: Config,
        policies: Policies,
        exported_pages: u32,
    ) -> Result<Self, ConfigError> {
        let geometry = *device.geometry();
        let Policies { selection, mut placement } = policies;
        let streams = placement.streams() + config.more_streams();
        let limit_pages = config.limit_pages(&geometry, u32::from(streams))?;
        if exported_pages > limit_pages {
            return Err(ConfigError::TooFull { exported_pages, limit_pages });
        }
        let data_pages = config.data_pages(&geometry);
        let mut segments = Segments::new(geometry.segments(), data_pages, selection.needs_invalidations());
        segments.state[..config.reserved_segments as usize].fill(State::Reserved);
        placement.reserve(geometry.segments(), geometry.pages_per_segment());
        let mut free = FreeList::default();
        let erased = (config.reserved_segments..geometry.segments()).map(SegmentId);
        erased.for_each(|segment| free.push(FreeSegment::erased(segment)));
        let keeps_pages = placement.keeps_pages();
        let is_undivided = placement.streams() == 1 && !keeps_pages;
        let notes_invalidations = selection.needs_invalidations();
        Ok(Self {
            notes_invalidations,
            keeps_pages,
            is_undivided,
            has_two_streams: placement.streams() == 2,
            run: Run::new(&*placement, &*selection, !D::KEEPS_INFO && !config.is_paced()),
            selection,
            leveling: config.leveling.build(geometry.segments()),
            owners: vec![
                O::default();
                if D::KEEPS_INFO && config.owners_on_flash { 0 } else { geometry.pages() as usize }
            ],
            read_owners: ReadOwners::default(),
            valid: ValidBits::new(geometry.pages()),
            heads: vec![Head::CLOSED; streams as usize],
            read_only: config.read_only_stream.then(|| placement.streams()),
            own_stream: config.own_stream.then(|| streams - 1),
            free,
            victim: None,
            sorted: Vec::with_capacity(if placement.sorts() { data_pages as usize } else { 0 }),
            clean_first: VecDeque::new(),
            relocation: Relocation::NONE,
            retire_queue: Vec::new(),
            retired_changed: false,
            scrubs: Vec::new(),
            reads: ReadCounts::default(),
            refused: Vec::new(),
            scratch: vec![0; geometry.page_bytes() as usize],
            counters: Counters::new(data_pages),
            now: Now::default(),
            openings: 0,
            invalidations: 0,
            seq: 0,
            first_seq: 0,
            is_cleaning: false,
            ahead: 0,
            rate_pages: 1,
            programs_before_write: 0,
            work_began: None,
            device,
            placement,
            geometry,
            config,
            segments,
        })
    }

    /// Writes a page of the host: finds the copy that it supersedes, decides where it goes, programs it, tells the
    /// client, and cleans as much as is due. `data` is one page, or empty on a device without payload. `now_us` is the
    /// time of the workload, which never goes back (an earlier time is taken as the latest seen). Returns where the
    /// page was programmed; cleaning may have moved it on since.
    #[inline(always)]
    pub fn write<C: Client<O>>(
        &mut self,
        client: &mut C,
        owner: O,
        content: Content,
        data: &[u8],
        hint: Hint,
        now_us: u64,
    ) -> Result<Ppn, LogError> {
        self.set_time(now_us);
        self.now.writes += 1;
        self.counters.host_writes += 1;
        self.put_page(client, owner, content, data, hint)
    }

    /// The clock never goes back, and stands still at the last time that the flash can keep (8.9 years).
    #[inline(always)]
    fn set_time(&mut self, now_us: u64) {
        self.now.us = self.now.us.max(now_us);
        if D::KEEPS_INFO {
            self.now.us = self.now.us.min(U48_MAX);
        }
    }

    /// Writes a page of the initial content: at time 0, and not counted as a host write.
    pub fn fill<C: Client<O>>(
        &mut self,
        client: &mut C,
        owner: O,
        content: Content,
        data: &[u8],
        hint: Hint,
    ) -> Result<Ppn, LogError> {
        self.put_page(client, owner, content, data, hint)
    }

    #[inline(always)]
    fn put_page<C: Client<O>>(
        &mut self,
        client: &mut C,
        owner: O,
        content: Content,
        data: &[u8],
        hint: Hint,
    ) -> Result<Ppn, LogError> {
        if self.config.is_paced() {
            self.put_paced(client, owner, content, data, hint)
        } else {
            self.put_unpaced(client, owner, content, data, hint)
        }
    }

    #[inline(always)]
    fn put_unpaced<C: Client<O>>(
        &mut self,
        client: &mut C,
        owner: O,
        content: Content,
        data: &[u8],
        hint: Hint,
    ) -> Result<Ppn, LogError> {
        let old = client.locate(owner);
        match old {
            Some(ppn) => self.invalidate(ppn),
            None => self.segments.total_valid += 1,
        }
        let stream = self.stream_of(owner, content, hint, old);
        let mut head = &mut self.heads[stream as usize];
        if head.is_full() {
            self.make_room(client, stream)?;
            head = &mut self.heads[stream as usize];
        }
        let to = Ppn(head.next);
        head.next += 1;
        self.owners[to.index()] = owner;
        if self.keeps_pages {
            self.placement.put(to);
        }
        let page = self.page_info(owner);
        self.program(to, data, page)?;
        client.relocated(owner, to);
        client.written(owner);
        Ok(to)
    }

    /// The stream that a host write goes to.
    #[inline(always)]
    pub(crate) fn stream_of(&mut self, owner: O, content: Content, hint: Hint, old: Option<Ppn>) -> u8 {
        let stream = if self.is_undivided {
            0
        } else {
            let subject = Subject { owner: owner.to_u64(), content, hint };
            let old = old.map(|ppn| (self.geometry.segment_of(ppn), ppn));
            self.placement.write(&self.segments, self.now, subject, old)
        };
        match self.read_only {
            Some(read_only) if hint == Hint::ReadOnly => read_only,
            _ => stream,
        }
    }

    /// The tag of the page that the placement decided on last; its sequence number comes with its program.
    #[inline(always)]
    pub(crate) fn page_info(&mut self, owner: O) -> PageInfo {
        if !D::KEEPS_INFO {
            return PageInfo::default();
        }
        PageInfo { heat: self.placement.pack(), heat_kind: self.placement.heat_kind(), ..self.own_page_info(owner) }
    }

    /// The tag of a page of which the placement knows nothing.
    pub(crate) fn own_page_info(&mut self, owner: O) -> PageInfo {
        if !D::KEEPS_INFO {
            return PageInfo::default();
        }
        PageInfo {
            owner: owner.to_u64(),
            seq: 0,
            version: self.now.writes,
            time_us: self.now.us,
            heat: 0,
            heat_kind: self.placement.heat_kind(),
            lost: false,
        }
    }

    /// Programs a page, with the next sequence number. One whose program was begun has spent its number and its place.
    #[inline(always)]
    pub(crate) fn program(&mut self, to: Ppn, data: &[u8], page: PageInfo) -> Result<(), FlashError> {
        if !D::KEEPS_INFO {
            return self.device.program(to, data, page);
        }
        let seq = self.seq + 1;
        let programmed = self.device.program(to, data, PageInfo { seq, ..page });
        if programmed.is_ok() || self.device.was_begun(to) {
            self.seq = seq;
        }
        programmed
    }

    /// Invalidates a page of the host that has no successor. The client no longer maps it.
    pub fn trim(&mut self, ppn: Ppn, now_us: u64) {
        self.set_time(now_us);
        self.counters.trims += 1;
        self.placement.trimmed(self.now, ppn);
        self.invalidate(ppn);
        self.segments.total_valid -= 1;
    }

    #[inline(always)]
    pub(crate) fn invalidate(&mut self, ppn: Ppn) {
        let segment = self.geometry.segment_of(ppn);
        debug_assert!(self.valid.is_set(ppn), "page {ppn} is invalidated twice");
        self.valid.clear(ppn);
        let valid = &mut self.segments.valid[segment.index()];
        *valid -= 1;
        let valid = *valid;
        if self.notes_invalidations {
            self.invalidations += 1;
            self.segments.invalidated_us[segment.index()] = self.now.us;
            self.segments.invalidated_writes[segment.index()] = self.now.writes;
            self.segments.invalidated_sequence[segment.index()] = self.invalidations;
        }
        if self.segments.state[segment.index()] == State::Sealed {
            self.selection.invalidated(&self.segments, segment, valid);
        }
    }

    /// What the header of a segment says on flash.
    #[inline(always)]
    pub(crate) fn segment_info(&self, segment: SegmentId) -> SegmentInfo {
        let i = segment.index();
        SegmentInfo {
            erases: self.segments.erases[i],
            total_erases: self.segments.total_erases,
            stream: self.segments.stream[i],
            opened_us: self.segments.opened_us[i],
            opened_writes: self.segments.opened_writes[i],
        }
    }

    /// Seals an open segment. Its summary is programmed after the last page that was used.
    pub(crate) fn seal(&mut self, head: Head) -> Result<(), LogError> {
        let i = head.segment.index();
        self.valid.fill(head.next, head.end, false);
        self.segments.valid[i] -= head.end - head.next;
        let finished = self.device.finish(head.segment, Ppn(head.next));
        self.note_programs();
        self.counters.metadata_pages += u64::from(self.config.summary_pages);
        self.segments.state[head.segment.index()] = State::Sealed;
        self.segments.sealed_writes[i] = self.now.writes;
        self.selection.sealed(&self.segments, head.segment);
        if let Some(leveling) = &mut self.leveling {
            leveling.sealed(&self.segments, head.segment);
        }
        finished.or_else(|error| self.after_failed_finish(head.segment, error))
    }

    /// A sealed segment is not as it should be: it is cleaned before any other, and retired if it has failed.
    #[cold]
    pub(crate) fn after_failed_finish(&mut self, segment: SegmentId, error: FlashError) -> Result<(), LogError> {
        match error {
            FlashError::ProgramFailed { .. } => self.clean_soon(segment, true),
            FlashError::Io { .. } | FlashError::NoPlace => self.clean_soon(segment, false),
            error => return Err(error.into()),
        }
        Ok(())
    }

    /// A sealed segment is cleaned before any other, and then perhaps retired.
    pub(crate) fn clean_soon(&mut self, segment: SegmentId, retires: bool) {
        if retires && !self.retire_queue.contains(&segment) {
            self.retire_queue.push(segment);
        }
        if !self.clean_first.contains(&segment) {
            self.clean_first.push_back(segment);
        }
    }

    /// Seals the head of a stream while it is full and opens the next segment. Repeats, because the cleaner may fill
    /// that one too.
    #[cold]
    #[inline(never)]
    fn make_room<C: Client<O>>(&mut self, client: &mut C, stream: u8) -> Result<(), LogError> {
        if self.victim.is_some() {
            self.clean_one(client)?;
        }
        while self.heads[stream as usize].is_full() {
            let head = core::mem::replace(&mut self.heads[stream as usize], Head::CLOSED);
            if head.is_open() {
                self.seal(head)?;
            }
            while self.free.is_empty() {
                if !self.clean_one(client)? {
                    return Err(self.no_space());
                }
            }
            // The segment is opened before the cleaning: the published results depend on this order (spec sec. 5).
            if !self.heads[stream as usize].is_open() {
                self.open(stream)?;
            }
            if (self.free.len() as u32) < self.config.low_water {
                while (self.free.len() as u32) < self.config.high_water && self.clean_one(client)? {}
            }
        }
        Ok(())
    }

    pub(crate) fn no_space(&self) -> LogError {
        let unused = self.config.reserved_segments + self.config.lent_segments;
        let data_segments = self.segments.len() - unused;
        let data_pages = u64::from(data_segments) * u64::from(self.segments.data_pages);
        LogError::NoSpace { valid_pages: self.segments.total_valid, data_pages }
    }

    /// The open segments, that of a relocation included.
    pub(crate) fn open_heads(&self) -> impl Iterator<Item = &Head> {
        self.heads.iter().chain(core::iter::once(&self.relocation.head)).filter(|head| head.is_open())
    }

    /// Makes room for all that the lists of the log can come to hold; see [`Log::reserve`].
    pub(crate) fn reserve_lists(&mut self) {
        let segments = self.segments.len() as usize;
        self.free.reserve(segments);
        self.clean_first.reserve_exact(segments - self.clean_first.len());
        self.retire_queue.reserve_exact(segments - self.retire_queue.len());
        self.scrubs.reserve_exact(MAX_SCRUBS - self.scrubs.len());
        self.refused.reserve_exact(MAX_REFUSED.saturating_sub(self.refused.len()));
    }

    /// What the log has done since it was made or since [`Log::reset_counters`].
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Resets the counters; erase counts are kept.
    pub fn reset_counters(&mut self) {
        self.counters = Counters::new(self.segments.data_pages);
    }

    /// The state of every segment.
    pub fn segments(&self) -> &Segments {
        &self.segments
    }

    /// The configuration of the log.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The placement policy.
    pub fn placement(&self) -> &dyn Placer {
        &*self.placement
    }

    /// The placement policy, to tell it of events of files.
    pub fn placement_mut(&mut self) -> &mut dyn Placer {
        &mut *self.placement
    }

    /// The selection policy.
    pub fn selection(&self) -> &dyn Selection {
        &*self.selection
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Returns when everything that was written so far survives a power cut.
    ///
    /// # Errors
    /// Those of the device.
    pub fn sync(&mut self) -> Result<(), LogError> {
        let synced = self.device.sync();
        self.note_programs();
        synced?;
        self.lend_if_wanted()
    }

    /// The device, for reads that do not count as host reads.
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// Returns the device; what the log keeps in memory is dropped.
    pub fn into_device(self) -> D {
        self.device
    }

    /// The present: time of the workload and host page writes so far.
    pub fn now(&self) -> Now {
        self.now
    }

    /// Sequence number of the last program, which is the number of pages programmed over the device's life.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Pages programmed since the log was made or restored. A program that failed counts.
    pub fn programs(&self) -> u64 {
        self.seq - self.first_seq
    }

    /// Number of free segments.
    pub fn free_segments(&self) -> u32 {
        self.free.len() as u32
    }

    /// Pages that can be programmed without an erase: those of free segments and the rest of the open ones.
    pub fn free_pages(&self) -> u64 {
        let open: u64 = self.heads.iter().map(|head| u64::from(head.room())).sum();
        open + self.free.len() as u64 * u64::from(self.segments.data_pages)
    }

    /// Utilization, invalidity and uniformity now. O(segments).
    pub fn uniformity(&self) -> Uniformity {
        let data_pages = self.segments.data_pages;
        let mut unwritten = vec![0; self.segments.len() as usize];
        for head in self.open_heads() {
            unwritten[head.segment.index()] = head.room();
        }
        let count = self.segments.len() - self.config.reserved_segments;
        let total = f64::from(count) * f64::from(data_pages);
        let (mut invalid, mut mixed) = (0u64, 0u32);
        for segment in self.segments.ids().map(SegmentId::index) {
            if matches!(self.segments.state[segment], State::Free | State::Reserved | State::Bad) {
                continue;
            }
            let lost = data_pages - self.segments.valid[segment];
            invalid += u64::from(lost);
            mixed += u32::from(lost > 0 && self.segments.valid[segment] > unwritten[segment]);
        }
        Uniformity {
            utilization: self.segments.total_valid as f64 / total,
            invalidity: invalid as f64 / total,
            uniformity: 1.0 - f64::from(mixed) / f64::from(count),
        }
    }

    /// Number of segments opened so far. It grows whenever a host write caused more than its own program.
    #[inline]
    pub fn openings(&self) -> u64 {
        self.openings
    }

    /// Bytes of memory that the log holds for all physical pages, counted by the capacity of every array.
    pub fn memory_bytes(&self) -> u64 {
        let owners = self.owners.capacity() + self.read_owners.capacity();
        let pages = owners * size_of::<O>() + self.placement.memory_bytes();
        (pages + self.valid.memory_bytes()) as u64
    }
}
