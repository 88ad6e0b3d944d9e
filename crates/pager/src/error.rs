use margay_flash::FlashError;
use margay_hybrid::HybridError;

/// What a store says, with the system's words for its error numbers.
pub fn in_words(error: &HybridError) -> String {
    match error {
        HybridError::Flash(FlashError::Io { code }) if *code != 0 => {
            format!("the file below it: {}", std::io::Error::from_raw_os_error(*code))
        }
        error => error.to_string(),
    }
}

/// Why memory cannot be paged.
#[derive(Debug, thiserror::Error)]
pub enum PagerError {
    /// The kernel does not let this process handle its faults.
    #[error(
        "userfaultfd is not available ({0}): run as root, or allow it with `sysctl vm.unprivileged_userfaultfd=1` or access to /dev/userfaultfd; in a container it must not be filtered"
    )]
    NotAllowed(std::io::Error),
    /// The kernel cannot write-protect pages for user space.
    #[error(
        "this kernel's userfaultfd cannot write-protect memory ({0}): Linux 5.7 or later on x86-64 or arm64 is needed"
    )]
    NoWriteProtection(std::io::Error),
    /// The system's pages are of another size.
    #[error("the system has pages of {0} bytes; the pager needs 4096")]
    PageSize(usize),
    /// The store's pages are of another size.
    #[error("the store has pages of {page_bytes} bytes; the pager needs 4096")]
    StorePageBytes {
        /// Theirs.
        page_bytes: u32,
    },
    /// The store has fewer pages than the region.
    #[error(
        "the store is full before the memory is: it holds {store_pages} pages of 4096 bytes, the region {region_pages}"
    )]
    StoreTooSmall {
        /// Pages of the store.
        store_pages: u32,
        /// Pages of the region.
        region_pages: u64,
    },
    /// The scheme writes pages that programs can change meanwhile.
    #[error("{0} writes pages that are in use; the pager takes du-gc, da-gc and lda-gc1 to lda-gc5")]
    Scheme(&'static str),
    /// Less RAM than the pager can work with.
    #[error("{frames} pages of RAM: at least {least} are needed")]
    TooFewFrames {
        /// Asked for.
        frames: u32,
        /// The least.
        least: u32,
    },
    /// The system refused something.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What it said.
        error: std::io::Error,
    },
    /// The store failed: a page could not be written or read.
    #[error("the store under the memory failed: {}", in_words(.0))]
    Store(#[from] HybridError),
}

impl PagerError {
    pub(crate) fn last(what: &'static str) -> Self {
        Self::System { what, error: std::io::Error::last_os_error() }
    }
}
