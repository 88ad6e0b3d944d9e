//! The descriptors of this library: the program must not close them, and finds the numbers that it expects.

use libc::{c_int, c_uint};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

const NONE: i32 = -1;
/// Descriptors of this library; [`NONE`] for no descriptor.
static OWN: [AtomicI32; 64] = [const { AtomicI32::new(NONE) }; 64];

/// The lowest number for descriptors of this library: high, because programs replace low numbers without asking whether they
/// are taken (`exec 3>file` in a shell), and low enough for a table of descriptors that costs nothing.
pub fn first() -> RawFd {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: fills a local.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0;
    if known { limit.rlim_cur.saturating_sub(64).clamp(16, 960) as RawFd } else { 16 }
}

/// Keeps a descriptor from being closed by the program.
pub fn keep(fd: RawFd) {
    for slot in &OWN {
        if slot.compare_exchange(NONE, fd, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}

fn is_own(fd: RawFd) -> bool {
    fd >= 16 && OWN.iter().any(|slot| slot.load(Ordering::Relaxed) == fd)
}

/// A descriptor that the program cannot close.
#[derive(Debug)]
pub struct Kept(Option<OwnedFd>);

impl Kept {
    /// The same file under a high number, which is kept.
    pub fn new(descriptor: OwnedFd) -> Self {
        // SAFETY: makes a new descriptor or fails.
        let fd = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_DUPFD_CLOEXEC, first()) };
        // SAFETY: the descriptor is new and nobody else's.
        let descriptor = if fd < 0 { descriptor } else { unsafe { OwnedFd::from_raw_fd(fd) } };
        keep(descriptor.as_raw_fd());
        Self(Some(descriptor))
    }

    /// Its number.
    pub fn number(&self) -> RawFd {
        self.0.as_ref().map_or(NONE, AsRawFd::as_raw_fd)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let fd = self.number();
        for slot in &OWN {
            let _ = slot.compare_exchange(fd, NONE, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

fn no_such_descriptor() -> c_int {
    // SAFETY: the calling thread's own error number.
    unsafe { *libc::__errno_location() = libc::EBADF };
    -1
}

/// close(2).
#[unsafe(no_mangle)]
pub extern "C" fn close(fd: c_int) -> c_int {
    if is_own(fd) {
        return no_such_descriptor();
    }
    // SAFETY: as the call; the program owns the descriptor.
    unsafe { libc::syscall(libc::SYS_close, fd) as c_int }
}

/// dup2(2).
#[unsafe(no_mangle)]
pub extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    if is_own(old) || is_own(new) {
        return no_such_descriptor();
    }
    if old == new {
        // SAFETY: asks whether there is such a descriptor.
        return if unsafe { libc::fcntl(old, libc::F_GETFD) } < 0 { -1 } else { new };
    }
    // SAFETY: as the call.
    unsafe { libc::syscall(libc::SYS_dup3, old, new, 0) as c_int }
}

/// dup3(2).
#[unsafe(no_mangle)]
pub extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    if is_own(old) || is_own(new) {
        return no_such_descriptor();
    }
    // SAFETY: as the call.
    unsafe { libc::syscall(libc::SYS_dup3, old, new, flags) as c_int }
}

/// close_range(2), which leaves out the descriptors of this library.
#[unsafe(no_mangle)]
pub extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let mut from = u64::from(first);
    loop {
        let own = OWN.iter().map(|slot| slot.load(Ordering::Relaxed)).filter(|fd| *fd >= 0).map(|fd| fd as u64);
        let next = own.filter(|fd| (from..=u64::from(last)).contains(fd)).min();
        let until = next.map_or(u64::from(last) + 1, |own| own);
        if from < until {
            // SAFETY: as the call; none of the descriptors is this library's.
            let closed = unsafe { libc::syscall(libc::SYS_close_range, from as c_uint, (until - 1) as c_uint, flags) };
            if closed < 0 {
                return -1;
            }
        } else if from > u64::from(last) && next.is_none() {
            // As the kernel answers for an empty range.
            return if first > last {
                // SAFETY: as the call.
                unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) as c_int }
            } else {
                0
            };
        }
        match next {
            Some(own) => from = own + 1,
            None => return 0,
        }
    }
}

/// closefrom(3).
#[unsafe(no_mangle)]
pub extern "C" fn closefrom(first: c_int) {
    close_range(first.max(0) as c_uint, c_uint::MAX, 0);
}
