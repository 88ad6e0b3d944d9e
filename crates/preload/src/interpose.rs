//! malloc and its kin, and ends of the process that exit(3) has no part in.

use crate::heap;
use libc::{c_int, c_void, size_t};
use std::ptr::null_mut;

fn out_of_memory(allocation: *mut u8) -> *mut c_void {
    if allocation.is_null() {
        // SAFETY: the calling thread's own error number.
        unsafe { *libc::__errno_location() = libc::ENOMEM };
    }
    allocation.cast()
}

/// malloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn malloc(size: size_t) -> *mut c_void {
    out_of_memory(heap::allocate(size, 1, false))
}

/// calloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: size_t, size: size_t) -> *mut c_void {
    out_of_memory(count.checked_mul(size).map_or(null_mut(), |bytes| heap::allocate(bytes, 1, true)))
}

/// free(3).
///
/// # Safety
///
/// `allocation` is null or came from this heap and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(allocation: *mut c_void) {
    if !allocation.is_null() {
        heap::release(allocation.cast());
    }
}

/// realloc(3).
///
/// # Safety
///
/// As [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(allocation: *mut c_void, size: size_t) -> *mut c_void {
    if allocation.is_null() {
        return malloc(size);
    }
    if size == 0 {
        heap::release(allocation.cast());
        return null_mut();
    }
    out_of_memory(heap::resize(allocation.cast(), size))
}

/// reallocarray(3).
///
/// # Safety
///
/// As [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(allocation: *mut c_void, count: size_t, size: size_t) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: as the caller promises.
        Some(bytes) => unsafe { realloc(allocation, bytes) },
        None => out_of_memory(null_mut()),
    }
}

/// aligned_alloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(alignment: size_t, size: size_t) -> *mut c_void {
    out_of_memory(if alignment.is_power_of_two() { heap::allocate(size, alignment, false) } else { null_mut() })
}

/// memalign(3).
#[unsafe(no_mangle)]
pub extern "C" fn memalign(alignment: size_t, size: size_t) -> *mut c_void {
    aligned_alloc(alignment, size)
}

/// valloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn valloc(size: size_t) -> *mut c_void {
    aligned_alloc(margay_pager::PAGE_BYTES, size)
}

/// posix_memalign(3).
///
/// # Safety
///
/// `out` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, alignment: size_t, size: size_t) -> c_int {
    if !alignment.is_power_of_two() || !alignment.is_multiple_of(size_of::<*mut c_void>()) {
        return libc::EINVAL;
    }
    let allocation = heap::allocate(size, alignment, false);
    if allocation.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: as the caller promises.
    unsafe { *out = allocation.cast() };
    0
}

/// malloc_usable_size(3).
///
/// # Safety
///
/// As [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(allocation: *mut c_void) -> size_t {
    if allocation.is_null() { 0 } else { heap::size(allocation.cast()) }
}

/// _Fork(3) fails: it tells nobody of the fork, so the child could not be given the heap.
#[unsafe(no_mangle)]
pub extern "C" fn _Fork() -> c_int {
    crate::report::say(
        "it forks with _Fork(3), after which the child would not have its heap on flash: the call fails",
    );
    // SAFETY: the calling thread's own error number.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

/// _exit(2), after the report.
#[unsafe(no_mangle)]
pub extern "C" fn _exit(code: c_int) -> ! {
    crate::report::end();
    loop {
        // SAFETY: ends the process.
        unsafe { libc::syscall(libc::SYS_exit_group, code) };
    }
}

/// _Exit(3), as [`_exit`].
#[unsafe(no_mangle)]
pub extern "C" fn _Exit(code: c_int) -> ! {
    _exit(code)
}

/// The C library's dlopen(3).
#[cfg(target_arch = "x86_64")]
static DLOPEN: std::sync::atomic::AtomicPtr<c_void> = std::sync::atomic::AtomicPtr::new(null_mut());

#[cfg(target_arch = "x86_64")]
extern "C" fn find_dlopen() -> *mut c_void {
    // SAFETY: looks up a symbol.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr()) };
    DLOPEN.store(found, std::sync::atomic::Ordering::Release);
    found
}

/// dlopen(3) without RTLD_DEEPBIND: a module would get the C library's malloc by it, and free what the program has from
/// this one (extensions of PHP do). It jumps, so that the C library sees who has called it, whose folders it looks in.
///
/// # Safety
///
/// As the call.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen() {
    core::arch::naked_asm!(
        "and esi, {others}",
        "mov rax, [rip + {real}]",
        "test rax, rax",
        "jnz 2f",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {find}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "2:",
        "jmp rax",
        others = const !libc::RTLD_DEEPBIND,
        real = sym DLOPEN,
        find = sym find_dlopen,
    )
}
