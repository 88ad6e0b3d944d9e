//! userfaultfd(2): the few calls that the pager makes.

use crate::{PAGE_BYTES, PagerError};
use linux_raw_sys::general::{
    UFFD_API, UFFD_EVENT_PAGEFAULT, UFFD_FEATURE_PAGEFAULT_FLAG_WP, UFFD_PAGEFAULT_FLAG_WP, UFFD_PAGEFAULT_FLAG_WRITE,
    UFFDIO_COPY_MODE_WP, UFFDIO_REGISTER_MODE_MISSING, UFFDIO_REGISTER_MODE_WP, uffd_msg, uffdio_api, uffdio_copy,
    uffdio_range, uffdio_register, uffdio_writeprotect,
};
use linux_raw_sys::ioctl::{
    UFFDIO_API, UFFDIO_COPY, UFFDIO_REGISTER, UFFDIO_UNREGISTER, UFFDIO_WAKE, UFFDIO_WRITEPROTECT,
};
use std::io::{Error, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const WRITE_PROTECT: u64 = 1;

/// A fault: a thread waits for a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub address: usize,
    /// The thread wants to write.
    pub write: bool,
    /// The page is there, write-protected.
    pub protected: bool,
}

/// The faults of a range of memory.
#[derive(Debug)]
pub(crate) struct Uffd(OwnedFd);

/// The same descriptor with a number from `first` on: low numbers belong to the program, which may close or replace what
/// it has not opened. It stays as it is if there is no such number.
pub(crate) fn high(descriptor: OwnedFd, first: RawFd) -> OwnedFd {
    // SAFETY: makes a new descriptor or fails.
    let fd = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_DUPFD_CLOEXEC, first) };
    // SAFETY: the descriptor is new and nobody else's.
    if fd < 0 { descriptor } else { unsafe { OwnedFd::from_raw_fd(fd) } }
}

/// Lets the number of `old` mean what `new` means.
pub(crate) fn replace(old: &OwnedFd, new: &OwnedFd) -> Result<(), PagerError> {
    // SAFETY: both are own descriptors. By number, because `margay-preload` takes the place of the function.
    let replaced = unsafe { libc::syscall(libc::SYS_dup3, new.as_raw_fd(), old.as_raw_fd(), libc::O_CLOEXEC) };
    if replaced < 0 { Err(PagerError::last("replacing a descriptor")) } else { Ok(()) }
}

fn range(page: *mut u8, bytes: usize) -> uffdio_range {
    uffdio_range { start: page as u64, len: bytes as u64 }
}

impl Uffd {
    /// Fails if the kernel does not allow it, or cannot write-protect pages for user space. The number of the descriptor is
    /// `first_descriptor` or higher.
    pub fn open(first_descriptor: RawFd) -> Result<Self, PagerError> {
        // System calls that use the memory fault in the kernel, so user-mode faults alone would not do.
        // SAFETY: makes a new descriptor or fails.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) };
        if fd < 0 {
            return Err(PagerError::NotAllowed(Error::last_os_error()));
        }
        // SAFETY: the descriptor is new and nobody else's.
        let uffd = Self(high(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }, first_descriptor));
        let features = u64::from(UFFD_FEATURE_PAGEFAULT_FLAG_WP);
        let mut api = uffdio_api { api: u64::from(UFFD_API), features, ioctls: 0 };
        uffd.call(UFFDIO_API, &mut api).map_err(PagerError::NoWriteProtection)?;
        Ok(uffd)
    }

    /// Takes over the faults of a range of memory.
    pub fn register(&self, start: *mut u8, bytes: usize) -> Result<(), Error> {
        let mode = u64::from(UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP);
        self.call(UFFDIO_REGISTER, &mut uffdio_register { range: range(start, bytes), mode, ioctls: 0 })
    }

    /// Leaves the faults of a range to the kernel from now on, and wakes who waits there.
    pub fn unregister(&self, start: *mut u8, bytes: usize) -> Result<(), PagerError> {
        let result = self.call(UFFDIO_UNREGISTER, &mut range(start, bytes));
        result.map_err(|error| PagerError::System { what: "leaving memory to the kernel", error })
    }

    /// Lets the number of this descriptor mean another one.
    pub fn replace(&self, by: &Self) -> Result<(), PagerError> {
        replace(&self.0, &by.0)
    }

    fn call<T>(&self, request: u32, argument: &mut T) -> Result<(), Error> {
        loop {
            // SAFETY: the requests of this module take a pointer to just the struct that each passes, and touch only
            // the range that the descriptor was registered for.
            let result = unsafe { libc::ioctl(self.as_raw_fd(), request as _, std::ptr::from_mut(argument)) };
            if result >= 0 {
                return Ok(());
            }
            // The address space was changing; nothing was done.
            let error = Error::last_os_error();
            if error.raw_os_error() != Some(libc::EAGAIN) {
                return Err(error);
            }
        }
    }

    /// Maps a missing page with these bytes, and wakes the faulting thread. False if there is a page already.
    pub fn copy(&self, page: *mut u8, bytes: &[u8], writable: bool) -> Result<bool, PagerError> {
        assert_eq!(bytes.len(), PAGE_BYTES);
        let mode = if writable { 0 } else { u64::from(UFFDIO_COPY_MODE_WP) };
        let mut copy =
            uffdio_copy { dst: page as u64, src: bytes.as_ptr() as u64, len: bytes.len() as u64, mode, copy: 0 };
        match self.call(UFFDIO_COPY, &mut copy) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(PagerError::System { what: "mapping a page", error }),
        }
    }

    /// Write-protects a page, or allows writes again and wakes the thread that waits to write.
    pub fn protect(&self, page: *mut u8, protected: bool) -> Result<(), PagerError> {
        let mode = if protected { WRITE_PROTECT } else { 0 };
        let mut protect = uffdio_writeprotect { range: range(page, PAGE_BYTES), mode };
        let result = self.call(UFFDIO_WRITEPROTECT, &mut protect);
        result.map_err(|error| PagerError::System { what: "write-protecting a page", error })
    }

    /// Wakes the threads that wait for a page.
    pub fn wake(&self, page: *mut u8) -> Result<(), PagerError> {
        let result = self.call(UFFDIO_WAKE, &mut range(page, PAGE_BYTES));
        result.map_err(|error| PagerError::System { what: "waking a thread", error })
    }

    /// The next fault; `None` if no thread waits.
    pub fn fault(&self) -> Result<Option<Fault>, PagerError> {
        loop {
            let mut message = std::mem::MaybeUninit::<uffd_msg>::zeroed();
            let bytes = size_of::<uffd_msg>();
            // SAFETY: the kernel writes at most `bytes` into the message.
            let read = unsafe { libc::read(self.as_raw_fd(), message.as_mut_ptr().cast(), bytes) };
            if read < 0 {
                match Error::last_os_error() {
                    error if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                    error if error.kind() == ErrorKind::Interrupted => continue,
                    error => return Err(PagerError::System { what: "reading a fault", error }),
                }
            }
            // SAFETY: all zeros are a message, and the kernel wrote a whole one.
            let message = unsafe { message.assume_init() };
            if u32::from(message.event) != UFFD_EVENT_PAGEFAULT {
                continue;
            }
            // SAFETY: the event says that the argument is a page fault's.
            let fault = unsafe { message.arg.pagefault };
            let has = |flag: u32| fault.flags & u64::from(flag) != 0;
            return Ok(Some(Fault {
                address: fault.address as usize,
                write: has(UFFD_PAGEFAULT_FLAG_WRITE),
                protected: has(UFFD_PAGEFAULT_FLAG_WP),
            }));
        }
    }
}

impl AsRawFd for Uffd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
