//! What is asked of the machine: where execution begins, text out, an exit status.

use core::fmt::{self, Write};
use core::panic::PanicInfo;

/// Prints a line.
#[macro_export]
macro_rules! println {
    ($($arguments:tt)*) => { $crate::platform::print(format_args!($($arguments)*)) };
}

/// Prints a line.
pub fn print(text: fmt::Arguments<'_>) {
    // There is nobody to tell that nothing can be told.
    let _ = writeln!(machine::Output, "{text}");
}

/// Runs a program, and ends with status 0, or 1 and its error.
pub fn run(program: fn() -> Result<(), alloc::string::String>) -> ! {
    crate::heap::init();
    let result = program();
    if let Some(bytes) = machine::stack_max_bytes() {
        print(format_args!("at most {bytes} bytes of stack"));
    }
    match result {
        Ok(()) => machine::exit(true),
        Err(error) => {
            print(format_args!("error: {error}"));
            machine::exit(false)
        }
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    print(format_args!("{info}"));
    machine::exit(false)
}

/// A microcontroller that a debugger, or qemu, listens to.
#[cfg(target_os = "none")]
mod machine {
    use core::fmt;
    use cortex_m_semihosting::{debug, hio};

    /// What the feature `paint-stack` of cortex-m-rt fills the stack with.
    const PAINT: u32 = 0xCCCC_CCCC;

    unsafe extern "C" {
        static mut _stack_start: u32;
        static mut _stack_end: u32;
    }

    /// The most that the stack ever took.
    pub fn stack_max_bytes() -> Option<usize> {
        let (start, mut at) = (&raw const _stack_start, &raw const _stack_end);
        // SAFETY: the words between the end of the stack, which is below, and its start are memory.
        while at < start && unsafe { at.read_volatile() } == PAINT {
            at = at.wrapping_add(1);
        }
        Some(start as usize - at as usize)
    }

    pub struct Output;

    impl fmt::Write for Output {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            hio::hstdout().map_err(|()| fmt::Error)?.write_str(text)
        }
    }

    pub fn exit(ok: bool) -> ! {
        debug::exit(if ok { debug::EXIT_SUCCESS } else { debug::EXIT_FAILURE });
        loop {}
    }
}

/// The host, by three functions of C.
#[cfg(not(target_os = "none"))]
mod machine {
    use core::ffi::c_int;
    use core::fmt;

    #[link(name = "c")]
    unsafe extern "C" {
        fn write(file: c_int, bytes: *const u8, len: usize) -> isize;
        fn _exit(status: c_int) -> !;
    }

    /// The host's stack is not painted.
    pub fn stack_max_bytes() -> Option<usize> {
        None
    }

    pub struct Output;

    impl fmt::Write for Output {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            // SAFETY: the bytes are there for as long as the call lasts.
            let written = unsafe { write(1, text.as_ptr(), text.len()) };
            if usize::try_from(written) == Ok(text.len()) { Ok(()) } else { Err(fmt::Error) }
        }
    }

    pub fn exit(ok: bool) -> ! {
        // SAFETY: it has no conditions.
        unsafe { _exit(if ok { 0 } else { 1 }) }
    }

    /// `core` and `alloc` were compiled to unwind and name these two; nothing here unwinds.
    #[unsafe(no_mangle)]
    extern "C" fn rust_eh_personality() {}

    #[unsafe(no_mangle)]
    extern "C" fn _Unwind_Resume() -> ! {
        exit(false)
    }
}

/// Where execution begins: calls `program`, a `fn() -> Result<(), String>`.
#[macro_export]
macro_rules! entry {
    ($program:path) => {
        #[cfg(target_os = "none")]
        #[cortex_m_rt::entry]
        fn start() -> ! {
            $crate::platform::run($program)
        }

        #[cfg(not(target_os = "none"))]
        #[unsafe(no_mangle)]
        extern "C" fn main() -> core::ffi::c_int {
            $crate::platform::run($program)
        }
    };
}
