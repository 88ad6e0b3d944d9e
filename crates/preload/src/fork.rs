//! What happens around fork(2): the child gets the heap as it is now, and a pager of its own.

use crate::{MEMORY, give_up_in, heap};
use libc::{c_int, c_void};
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// What is held from the time before a fork to the time after it.
struct Held {
    heaps: heap::Forking,
    memory: margay_pager::Forking<'static>,
    files: Option<Files>,
    /// The signals that were blocked before. A handler must not touch the heap while its pager waits.
    signals: libc::sigset_t,
}

struct Cell(UnsafeCell<Option<Held>>);

// SAFETY: only the thread that forks uses it, and only one forks at a time: the heap's lock is held meanwhile.
unsafe impl Sync for Cell {}

static HELD: Cell = Cell(UnsafeCell::new(None));

/// The C library's list of open files, which it goes through in the child.
#[derive(Clone, Copy)]
struct Files {
    first: *const *const u8,
    unlock: extern "C" fn(),
}

/// Offsets in the C library's FILE of the next file, and of its lock; part of its binary interface.
const NEXT: usize = 0x68;
const LOCK: usize = 0x88;
const LOCK_BYTES: usize = 16;

static FIRST: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static LOCK_LIST: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static UNLOCK_LIST: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

impl Files {
    /// The list, locked.
    fn lock() -> Option<Self> {
        let of = |symbol: &AtomicPtr<c_void>| Some(symbol.load(Ordering::Relaxed)).filter(|found| !found.is_null());
        let (first, lock, unlock) = (of(&FIRST)?, of(&LOCK_LIST)?, of(&UNLOCK_LIST)?);
        // SAFETY: these are the types of those symbols.
        let [lock, unlock] = [lock, unlock].map(|f| unsafe { std::mem::transmute::<*mut c_void, extern "C" fn()>(f) });
        lock();
        Some(Self { first: first.cast(), unlock })
    }

    /// Touches every file and its lock.
    fn touch(self) {
        // SAFETY: the list is locked, so its files stay; what is read are pointers in them, and words behind those.
        unsafe {
            let mut file = *self.first;
            while !file.is_null() {
                let lock = file.add(LOCK).cast::<*const u8>().read_volatile();
                if heap::is_paged(lock as usize) {
                    lock.read_volatile();
                    lock.add(LOCK_BYTES - 1).read_volatile();
                }
                file = file.add(NEXT).cast::<*const u8>().read_volatile();
            }
        }
    }
}

/// Lets the C library allocate what fork(3) needs before the heap is on flash, and finds its list of files.
pub fn prepare_libc() {
    // SAFETY: looks up symbols and a user, into locals.
    unsafe {
        for (symbol, name) in
            [(&FIRST, c"_IO_list_all"), (&LOCK_LIST, c"_IO_list_lock"), (&UNLOCK_LIST, c"_IO_list_unlock")]
        {
            symbol.store(libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()), Ordering::Relaxed);
        }
        let (mut user, mut text, mut found) = (std::mem::zeroed(), [0; 1024], null_mut());
        libc::getpwuid_r(0, &mut user, text.as_mut_ptr(), text.len(), &mut found);
    }
}

type Handler = Option<unsafe extern "C" fn()>;
type Register = unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int;

static IS_REGISTERED: AtomicBool = AtomicBool::new(false);

/// The C library's function.
fn real_register() -> Option<Register> {
    // SAFETY: looks up a symbol, which has this type.
    unsafe {
        let found = libc::dlsym(libc::RTLD_NEXT, c"__register_atfork".as_ptr());
        std::mem::transmute::<*mut c_void, Option<Register>>(found)
    }
}

/// From now on, forks are prepared. They are what is registered first, so that they come last before a fork and first after it.
pub fn register() {
    if !IS_REGISTERED.swap(true, Ordering::Relaxed)
        && let Some(register) = real_register()
    {
        // SAFETY: registers functions that live as long as the process.
        unsafe {
            register(Some(before), Some(in_parent), Some(in_child), (&raw const IS_REGISTERED).cast_mut().cast())
        };
    }
}

/// What pthread_atfork(3) calls. Other handlers use the heap (those of jemalloc do, which may be registered before this library
/// begins), so they are registered after those of this library.
///
/// # Safety
///
/// As the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __register_atfork(
    before: Handler,
    in_parent: Handler,
    in_child: Handler,
    module: *mut c_void,
) -> c_int {
    register();
    // SAFETY: as the caller promises.
    real_register().map_or(libc::ENOMEM, |register| unsafe { register(before, in_parent, in_child, module) })
}

fn restore(signals: &libc::sigset_t) {
    // SAFETY: the mask of this thread is as it was before the fork.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, signals, null_mut()) };
}

unsafe extern "C" fn before() {
    let Some(running) = MEMORY.get() else { return };
    // SAFETY: all zeros are a set of signals; the mask of this thread alone changes, and is restored after the fork.
    let signals = unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        before
    };
    let mut heaps = heap::Forking::new();
    let files = Files::lock();
    let memory = running.memory.before_fork(|| files.into_iter().for_each(Files::touch));
    heaps.stop_own();
    // SAFETY: see `Cell`.
    unsafe { *HELD.0.get() = Some(Held { heaps, memory, files, signals }) };
}

fn held() -> Option<Held> {
    // SAFETY: see `Cell`.
    let mut held = unsafe { (*HELD.0.get()).take() };
    if let Some(held) = &mut held {
        held.heaps.go_on_own();
    }
    held
}

unsafe extern "C" fn in_parent() {
    if let Some(Held { heaps, memory, files, signals }) = held() {
        memory.in_parent();
        if let Some(files) = files {
            (files.unlock)();
        }
        drop(heaps);
        restore(&signals);
    }
}

unsafe extern "C" fn in_child() {
    let (Some(running), Some(Held { heaps, memory, signals, files: _ })) = (MEMORY.get(), held()) else { return };
    running.process.store(std::process::id() as c_int, Ordering::Relaxed);
    // The C library has unlocked its list.
    match memory.in_child() {
        Ok(pager) => {
            heap::pager_is(pager as usize);
            crate::report::begin(running.report);
        }
        Err(error) => give_up_in(running, &error.to_string()),
    }
    drop(heaps);
    restore(&signals);
}
