//! Threads that need nothing of the memory that they are to serve.

use crate::PagerError;
use crate::frames::AnonymousMapping;
use libc::{c_void, pthread_t};
use std::ptr::null_mut;

const STACK_BYTES: usize = 512 << 10;

type Work = Box<dyn FnOnce() + Send>;

/// A thread with a stack of its own making: the C library keeps stacks of ended threads, and what it keeps with them may be in
/// the memory that this thread is to serve. The start of any such thread touches the same addresses as that of another.
pub(crate) struct Thread {
    id: pthread_t,
    stack: AnonymousMapping,
}

extern "C" fn run(work: *mut c_void) -> *mut c_void {
    // SAFETY: `start` has passed a box, to this thread alone.
    let work = unsafe { Box::from_raw(work.cast::<Work>()) };
    work();
    null_mut()
}

impl Thread {
    /// Starts a thread that no signal is delivered to: a handler would touch the program's memory.
    pub fn start(work: impl FnOnce() + Send + 'static) -> Result<Self, PagerError> {
        let stack = AnonymousMapping::new(STACK_BYTES)?;
        let work: Box<Work> = Box::new(Box::new(work));
        let (mut id, work) = (0, Box::into_raw(work));
        // SAFETY: all zeros are attributes and a set of signals before they are filled; the stack and the work live until the
        // thread has ended, or for ever.
        let code = unsafe {
            let (mut attributes, mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            libc::pthread_attr_init(&mut attributes);
            libc::pthread_attr_setstack(&mut attributes, stack.start.cast(), STACK_BYTES);
            let code = libc::pthread_create(&mut id, &attributes, run, work.cast());
            libc::pthread_attr_destroy(&mut attributes);
            libc::pthread_sigmask(libc::SIG_SETMASK, &before, null_mut());
            code
        };
        if code != 0 {
            // SAFETY: no thread has it.
            drop(unsafe { Box::from_raw(work) });
            let error = std::io::Error::from_raw_os_error(code);
            return Err(PagerError::System { what: "starting the pager's thread", error });
        }
        Ok(Self { id, stack })
    }

    /// Its number for the C library.
    pub fn id(&self) -> pthread_t {
        self.id
    }

    /// In a forked child the thread does not run, and nobody needs to wait for it.
    pub fn forget(self) {
        let Self { stack, .. } = &self;
        // SAFETY: nothing runs on the stack; the value is forgotten, so nobody unmaps it again.
        unsafe { libc::syscall(libc::SYS_munmap, stack.start, stack.bytes) };
        std::mem::forget(self);
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // SAFETY: the thread was not joined before.
        unsafe { libc::pthread_join(self.id, null_mut()) };
    }
}
