use core::fmt;

/// What opening a persistent store has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HybridMountReport {
    /// Programs that cannot be read and may be what a power cut interrupted: the version before is taken in their place. If
    /// there was no power cut, a page is older than it should be for each of them.
    pub doubtful_programs: u32,
    /// Of a device that is cached: pages that were programmed after the last sync that is known, are whole and count.
    pub verified: u32,
    /// Of a device that is cached: pages that were programmed after that and do not count, because they or pages
    /// programmed before them are not whole or missing.
    pub rolled_back: u32,
    /// Segments that were retired before.
    pub retired_segments: u32,
    /// Too many segments have failed to make safe what a power cut or kill left: the store can be read, and every write is
    /// [`crate::HybridError::WornOut`].
    pub is_worn_out: bool,
}

impl fmt::Display for HybridMountReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { doubtful_programs, verified, rolled_back, retired_segments, is_worn_out } = self;
        write!(f, "{retired_segments} segments are retired; ")?;
        if *is_worn_out {
            f.write_str("too few are left, so that it can only be read; ")?;
        }
        write!(f, "{verified} pages written after the last sync were found whole, {rolled_back} do not count; ")?;
        match doubtful_programs {
            0 => f.write_str("every page is the last that was written and synced"),
            count => write!(
                f,
                "{count} programs cannot be read: unless a power cut interrupted them, as many pages are older than they should be"
            ),
        }
    }
}
