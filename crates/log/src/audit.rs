use crate::Owner;
use crate::log::Log;
use alloc::{format, string::String, vec};
use core::fmt;
use margay_flash::Ppn;
use margay_format::Store;
use margay_policy::State;

/// A count of the log differs from the same count recomputed from scratch. This is an error of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditError(String);

impl fmt::Display for AuditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for AuditError {}

impl AuditError {
    /// What differs.
    pub const fn new(text: String) -> Self {
        Self(text)
    }
}

fn same<T: PartialEq + fmt::Display>(what: impl Fn() -> String, kept: T, counted: T) -> Result<(), AuditError> {
    if kept == counted {
        return Ok(());
    }
    Err(AuditError(format!("{}: kept {kept}, counted {counted}", what())))
}

impl<D: Store, O: Owner> Log<D, O> {
    /// Recomputes every count and compares it with the one that is kept. `maps` says whether the client maps an owner
    /// to a page: the owner of every valid page must be mapped to it, which a client without owners in memory has to see to
    /// itself, as to how many there are of each segment ([`Log::valid_pages_of`]). O(pages).
    pub fn audit(&self, maps: impl Fn(O, Ppn) -> bool) -> Result<(), AuditError> {
        let mut open = vec![None; self.segments.len() as usize];
        for head in self.open_heads() {
            open[head.segment.index()] = Some(head.next);
        }
        let mut in_free_list = vec![false; self.segments.len() as usize];
        for free in self.free.iter() {
            in_free_list[free.segment.index()] = true;
        }
        let (mut total_valid, mut in_use, mut free, mut total_erases) = (0, 0, 0, 0);
        for segment in self.segments.ids() {
            let (i, first) = (segment.index(), self.geometry.first_page(segment).0);
            let state = self.segments.state[i];
            let (mut valid, mut written) = (0, 0u32);
            if self.config.owners_on_flash {
                // The client counts.
                (valid, written) = (self.segments.valid[i], self.valid_pages_of(segment));
            }
            let marked = if self.config.owners_on_flash { 0 } else { self.geometry.pages_per_segment() };
            for page in (0..marked).filter(|page| self.valid.is_set(Ppn(first + page))) {
                let ppn = Ppn(first + page);
                valid += 1;
                if open[i].is_some_and(|next| ppn.0 >= next) {
                    continue;
                }
                written += 1;
                if let Some(owner) = self.owner(ppn)
                    && !maps(owner, ppn)
                {
                    return Err(AuditError(format!(
                        "page {ppn} is valid, but its owner {owner:?} is mapped to another page"
                    )));
                }
            }
            same(|| format!("valid pages of segment {segment}"), self.segments.valid[i], valid)?;
            same(|| format!("open head of segment {segment}"), state == State::Open, open[i].is_some())?;
            same(|| format!("segment {segment} in the free list"), state == State::Free, in_free_list[i])?;
            if matches!(state, State::Free | State::Reserved | State::Bad) {
                same(|| format!("valid pages of unused segment {segment}"), valid, 0)?;
            }
            total_valid += u64::from(written);
            in_use += u32::from(matches!(state, State::Open | State::Sealed | State::Victim));
            free += usize::from(state == State::Free);
            total_erases += u64::from(self.segments.erases[i]);
        }
        same(|| "valid pages".into(), self.segments.total_valid, total_valid)?;
        same(|| "segments in use".into(), self.segments.in_use, in_use)?;
        same(|| "free segments".into(), self.free.len(), free)?;
        same(|| "erases".into(), self.segments.total_erases, total_erases)?;
        let max_erases = self.segments.erases.iter().copied().max().unwrap_or(0);
        same(|| "largest erase count".into(), self.segments.max_erases, max_erases)
    }
}
