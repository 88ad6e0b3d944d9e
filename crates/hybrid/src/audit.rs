use crate::Hybrid;
use crate::logs::NONE;
use alloc::{string::String, vec};
use core::fmt;
use margay_flash::Lpn;
use margay_format::Store;

/// A count that is not what the map says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditError(pub String);

impl fmt::Display for AuditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for AuditError {}

impl<D: Store> Hybrid<D> {
    /// Recomputes every count and compares: each page has at most one newest copy, in a segment that is in use by
    /// one block or log block; log blocks count their valid pages; every segment is in use, free or retired. O(pages).
    pub fn audit(&self) -> Result<(), AuditError> {
        let wrong = |text: String| Err(AuditError(text));
        let mut uses = vec![0u32; self.geometry.segments() as usize];
        let mut valid = vec![0u32; self.logs.len()];
        let logs = self.logs.iter().map(|log| &log.segment);
        for segment in self.data.iter().chain(logs).chain([&self.list.segment]).filter(|id| **id != NONE) {
            uses[*segment as usize] += 1;
        }
        for free in self.free.iter() {
            uses[free.segment.index()] += 1;
        }
        for retired in self.free.retired() {
            uses[retired.index()] += 1;
        }
        if let Some(segment) = uses.iter().position(|uses| *uses > 1) {
            return wrong(alloc::format!("segment {segment} is in use twice"));
        }
        let first = self.config.reserved_segments as usize;
        if let Some(segment) = (first..uses.len()).find(|segment| uses[*segment] == 0) {
            return wrong(alloc::format!("segment {segment} is neither in use nor free nor retired"));
        }
        for lpn in (0..self.config.logical_pages).map(Lpn) {
            let in_log = self.tables.get(lpn);
            if in_log.is_some() && self.is_present(lpn) {
                return wrong(alloc::format!("page {lpn} is in a log block and in its data block"));
            }
            if self.is_present(lpn) && self.data[self.block_of(lpn) as usize] == NONE {
                return wrong(alloc::format!("page {lpn} is in a data block that does not exist"));
            }
            let Some((slot, position)) = in_log else { continue };
            let log = &self.logs[slot as usize];
            if !log.is_in_use() || position >= log.next || log.owners[position as usize] != lpn.0 {
                return wrong(alloc::format!(
                    "page {lpn} is not where the map says: log block {slot}, page {position}"
                ));
            }
            valid[slot as usize] += 1;
        }
        for (slot, log) in self.logs.iter().enumerate() {
            if log.valid != valid[slot] {
                return wrong(alloc::format!("log block {slot} counts {} valid pages, has {}", log.valid, valid[slot]));
            }
        }
        let in_order = self.order.iter().all(|slot| self.logs[*slot as usize].is_in_use());
        if !in_order {
            return wrong("a log block in the order is not in use".into());
        }
        Ok(())
    }
}
