//! The interrupts: a timer, and one in which the tasks run.

#[cfg(target_os = "none")]
pub use on_chip::{sleep, start, wait};
#[cfg(not(target_os = "none"))]
pub use on_host::{sleep, start, wait};

/// A Cortex-M with embassy's executor.
#[cfg(target_os = "none")]
mod on_chip {
    use cortex_m::interrupt::InterruptNumber;
    use cortex_m::peripheral::scb::SystemHandler;
    use cortex_m::peripheral::syst::SystClkSource;
    use cortex_m_rt::exception;
    use embassy_executor::InterruptExecutor;

    /// 100 microseconds of the 25 MHz that qemu says the machine has.
    const TICK_CYCLES: u32 = 2500;

    static EXECUTOR: InterruptExecutor = InterruptExecutor::new();

    /// An interrupt that no hardware uses.
    #[derive(Clone, Copy)]
    struct Unused;

    // SAFETY: the machine has 32 interrupts, and the number is always the same.
    unsafe impl InterruptNumber for Unused {
        fn number(self) -> u16 {
            31
        }
    }

    #[exception]
    unsafe fn DefaultHandler(_: i16) {
        // SAFETY: this is the handler, and only the executor's interrupt is enabled, by its start.
        unsafe { EXECUTOR.on_interrupt() }
    }

    #[exception]
    fn SysTick() {
        crate::tick();
    }

    #[embassy_executor::task]
    async fn sample() {
        crate::sample().await;
    }

    #[embassy_executor::task(pool_size = 2)]
    async fn write(number: u32) {
        crate::write(number).await;
    }

    /// Starts the timer and the tasks.
    pub fn start() {
        let mut core = cortex_m::Peripherals::take().expect("nobody else asks for the peripherals");
        // The tasks run as soon as the timer wakes one, so that a tick is not counted before the last was seen.
        // SAFETY: no section of this program relies on the timer's priority.
        unsafe { core.SCB.set_priority(SystemHandler::SysTick, 0x80) };
        let spawner = EXECUTOR.start(Unused);
        spawner.spawn(sample().expect("it is spawned once"));
        for number in 0..crate::WRITERS {
            spawner.spawn(write(number).expect("there are as many in the pool"));
        }
        core.SYST.set_clock_source(SystClkSource::Core);
        core.SYST.set_reload(TICK_CYCLES - 1);
        core.SYST.clear_current();
        core.SYST.enable_interrupt();
        core.SYST.enable_counter();
    }

    /// Until an interrupt has ended; one that ended just before counts.
    pub fn sleep() {
        cortex_m::asm::wfe();
    }

    /// As a driver that waits for its chip.
    pub fn wait(ticks: u32) {
        let start = crate::ticks();
        while crate::ticks() - start < ticks {
            sleep();
        }
    }
}

/// The host has no interrupts: they come when somebody waits.
#[cfg(not(target_os = "none"))]
mod on_host {
    use alloc::boxed::Box;
    use alloc::vec::Vec;
    use core::cell::RefCell;
    use core::pin::Pin;
    use core::task::{Context, Waker};
    use critical_section::{Impl, Mutex, RawRestoreState, set_impl};

    struct OneThread;
    set_impl!(OneThread);

    // SAFETY: there is one thread, and nothing interrupts it.
    unsafe impl Impl for OneThread {
        unsafe fn acquire() -> RawRestoreState {}
        unsafe fn release((): RawRestoreState) {}
    }

    type Task = Pin<Box<dyn Future<Output = ()> + Send>>;
    static TASKS: Mutex<RefCell<Vec<Option<Task>>>> = Mutex::new(RefCell::new(Vec::new()));

    /// Starts the tasks.
    pub fn start() {
        critical_section::with(|section| {
            let mut tasks = TASKS.borrow_ref_mut(section);
            tasks.push(Some(Box::pin(crate::sample())));
            tasks.extend((0..crate::WRITERS).map(|number| Some(Box::pin(crate::write(number)) as Task)));
        });
    }

    /// A tick of the timer, after which all tasks are polled.
    pub fn sleep() {
        crate::tick();
        critical_section::with(|section| {
            for task in TASKS.borrow_ref_mut(section).iter_mut() {
                let poll = task.as_mut().map(|running| running.as_mut().poll(&mut Context::from_waker(Waker::noop())));
                if poll.is_some_and(|poll| poll.is_ready()) {
                    *task = None;
                }
            }
        });
    }

    /// As a driver that waits for its chip.
    pub fn wait(ticks: u32) {
        (0..ticks).for_each(|_| sleep());
    }
}
