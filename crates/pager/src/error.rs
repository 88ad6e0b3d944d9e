use margay_flash::FlashError;
use margay_hybrid::HybridError;
use margay_vm::{Scheme, scheme_rows, schemes};

/// The text of a store's error, with the system's description of its error numbers.
pub fn store_error_text(error: &HybridError) -> String {
    match error {
        HybridError::Flash(FlashError::Io { code }) if *code != 0 => {
            format!("the file below it: {}", std::io::Error::from_raw_os_error(*code))
        }
        error => error.to_string(),
    }
}

/// Why memory cannot be paged to a store.
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
        /// Bytes of a page of the store.
        page_bytes: u32,
    },
    /// The store has fewer pages than the memory.
    #[error("the store is too small: it holds {store_pages} pages of 4096 bytes, the memory has {memory_pages}")]
    StoreTooSmall {
        /// Pages of the store.
        store_pages: u32,
        /// Pages of the memory.
        memory_pages: u64,
    },
    /// The scheme writes pages that programs can change meanwhile.
    #[error("{0} writes pages that are in use; the pager takes {list}", list = usable_schemes())]
    Scheme(Scheme),
    /// There is less RAM than the pager needs.
    #[error("{frames} pages of RAM: at least {min_frames} are needed")]
    TooFewFrames {
        /// Asked for.
        frames: u32,
        /// The minimum.
        min_frames: u32,
    },
    /// A system call failed.
    #[error("{what}: {error}")]
    System {
        /// What it was for.
        what: &'static str,
        /// The system's error.
        error: std::io::Error,
    },
    /// A forked child used its memory before the pager could serve it.
    #[error(
        "the forked child used a page of its heap before its pager could start; run it with --no-children, or without `margay vm run`"
    )]
    EarlyUse,
    /// What fork itself uses does not fit.
    #[error(
        "the RAM for the heap is too small for the program to fork: what a fork uses does not stay in it; give it more with --ram"
    )]
    TooLittleForFork,
    /// The maker of the memory did not say how children get a store.
    #[error("this memory cannot be inherited by forked children")]
    NotForked,
    /// The store failed: a page could not be written or read.
    #[error("the store under the memory failed: {}", store_error_text(.0))]
    Store(#[from] HybridError),
}

fn usable_schemes() -> String {
    let usable = scheme_rows().zip(schemes()).filter(|(_, scheme)| !scheme.writes_pages_in_use());
    usable.map(|(row, _)| row.name).collect::<Vec<_>>().join(", ")
}

impl PagerError {
    /// The error of the system call that has just failed.
    pub(crate) fn last(what: &'static str) -> Self {
        Self::System { what, error: std::io::Error::last_os_error() }
    }
}
