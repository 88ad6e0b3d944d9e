//! A disk for async tasks: the engine and the driver of the flash block in one context, and the tasks wait in another.
//!
//! A slot of the mailbox goes round: idle, posted (the task has copied its page in), being served, done, idle again. The pages of
//! the slots are lent out by reference (`&'static mut`), to the task while it copies and to the server while the disk works, so
//! that a critical section never lasts longer than moving a reference.

mod error;
mod handle;
mod serve;

#[cfg(feature = "block-device-driver")]
mod block_device;
#[cfg(feature = "embedded-storage-async")]
mod storage;

pub use error::AsyncDiskError;
pub use handle::AsyncDisk;
pub use serve::{Served, Server, ServerError};

use core::cell::RefCell;
use core::fmt;
use core::future::poll_fn;
use core::task::{Context, Poll, Waker};
use critical_section::Mutex;
use static_cell::ConstStaticCell;

/// Where async tasks and a disk that blocks meet: the disk is served in a context of low priority (the main loop, a thread), and tasks
/// in another one, of higher priority or another thread, ask for pages and wait without blocking their executor.
///
/// It has fixed memory for up to `HANDLES` tasks that ask at the same time: a page and 56 bytes for each, and 40 bytes, on a machine of 32
/// bits. It is made by a const function and lies in a `static`; nothing is allocated.
///
/// * [`Mailbox::open`] gives a task its [`AsyncDisk`]. Requests are served in the order in which they were posted, and a handle has
///   one at a time, so that a request waits for at most one of each other handle, and one step of idle work.
/// * [`Mailbox::server`] is for the context of the disk.
/// * Until the first server is there, requests wait for it. When a server is dropped, the requests that it has not served, and all
///   later ones, fail with [`AsyncDiskError::NotServed`], until there is another server.
///
/// ```
/// use margay_micro::{AsyncDiskError, Mailbox, SmallDisk, flash::Geometry};
/// # use margay_media::RamFlash;
/// # let flash = RamFlash::new(Geometry::new(64, 16, 512)?.with_spare(64));
///
/// static MAILBOX: Mailbox<512, 2> = Mailbox::new();
///
/// async fn task() -> Result<(), AsyncDiskError> {
///     let mut disk = MAILBOX.open().expect("there are as many handles as tasks");
///     disk.write(7, &[7; 512]).await?;
///     let mut page = [0; 512];
///     assert!(disk.read(7, &mut page).await? && page == [7; 512]);
///     disk.flush().await
/// }
///
/// // An executor of higher priority runs the tasks. Here it is another thread.
/// let tasks = std::thread::spawn(|| {
///     let result = pollster::block_on(task());
///     MAILBOX.close();
///     result
/// });
///
/// let mut disk = SmallDisk::format(flash, 500, [1; 16])?;
/// // On a microcontroller the closure is `cortex_m::asm::wfe`.
/// MAILBOX.server(&mut disk)?.serve(8, || pollster::block_on(MAILBOX.requested()));
/// disk.stop()?;
/// tasks.join().expect("the task does not panic")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Mailbox<const PAGE_BYTES: usize, const HANDLES: usize> {
    pages: [ConstStaticCell<[u8; PAGE_BYTES]>; HANDLES],
    state: Mutex<RefCell<State<PAGE_BYTES, HANDLES>>>,
}

struct State<const PAGE_BYTES: usize, const HANDLES: usize> {
    slots: [Slot<PAGE_BYTES>; HANDLES],
    service: Service,
    /// Pages of the disk that was served last.
    exported_pages: u32,
    /// The number of the next request: the lowest is served first.
    next_ticket: u32,
    server_waker: Option<Waker>,
}

/// Whether the mailbox is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    /// Not yet.
    Awaited,
    On,
    /// No request is taken any more; those that were posted are served.
    Closing,
    Ended,
}

struct Slot<const PAGE_BYTES: usize> {
    is_open: bool,
    stage: Stage,
    ticket: u32,
    /// Lent to the task while it copies, and to the server while it works.
    page: Option<Page<PAGE_BYTES>>,
    waker: Option<Waker>,
}

type Page<const PAGE_BYTES: usize> = &'static mut [u8; PAGE_BYTES];
/// What a request returns: whether the page of a read was ever written.
type Answer = Result<bool, AsyncDiskError>;

/// By its representation a mailbox that is new is all zeros, and so in `.bss`: it takes no room in the image of the program.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum Stage {
    Idle,
    Posted(Request),
    /// If nobody waits any more, the slot is idle as soon as the server has done.
    Serving {
        is_awaited: bool,
    },
    Done(Answer),
}

#[derive(Clone, Copy, Debug)]
enum Request {
    Read {
        lpn: u32,
    },
    Write {
        lpn: u32,
    },
    /// The bytes stand where they belong in the page.
    WritePart {
        lpn: u32,
        start: usize,
        end: usize,
    },
    Trim {
        lpn: u32,
    },
    Flush,
}

/// A request that the server has taken out.
struct Job<const PAGE_BYTES: usize> {
    slot: usize,
    request: Request,
    page: Page<PAGE_BYTES>,
}

impl<const PAGE_BYTES: usize> Slot<PAGE_BYTES> {
    const fn new() -> Self {
        Self { is_open: false, stage: Stage::Idle, ticket: 0, page: None, waker: None }
    }

    fn is_posted(&self) -> bool {
        matches!(self.stage, Stage::Posted(_))
    }
}

impl<const PAGE_BYTES: usize, const HANDLES: usize> Mailbox<PAGE_BYTES, HANDLES> {
    /// A mailbox that nobody serves yet. `PAGE_BYTES` is what a page of the disk has.
    pub const fn new() -> Self {
        let state = State {
            slots: [const { Slot::new() }; HANDLES],
            service: Service::Awaited,
            exported_pages: 0,
            next_ticket: 0,
            server_waker: None,
        };
        Self {
            pages: [const { ConstStaticCell::new([0; PAGE_BYTES]) }; HANDLES],
            state: Mutex::new(RefCell::new(state)),
        }
    }

    /// A handle for a task; `None` if all are given out. A handle that is dropped can be given out again. Tasks that are more than the
    /// handles can share one behind an async mutex, which takes less memory and lets one of them wait for the other.
    pub fn open(&'static self) -> Option<AsyncDisk<PAGE_BYTES, HANDLES>> {
        let slot = self.with(|state| {
            let slot = state.slots.iter().position(|slot| !slot.is_open)?;
            state.slots[slot].is_open = true;
            Some(slot)
        })?;
        // None if the slot was given out before: the page is in it, or comes back to it.
        if let Some(page) = self.pages[slot].try_take() {
            self.put_back(slot, page);
        }
        Some(AsyncDisk::new(self, slot))
    }

    /// Asks the server to end, from any context: it refuses new requests, serves those that were posted, and returns from
    /// [`Server::serve`]. Does nothing if there is no server.
    pub fn close(&self) {
        let waker = self.with(|state| {
            if state.service == Service::On {
                state.service = Service::Closing;
            }
            state.server_waker.take()
        });
        wake(waker);
    }

    /// Returns when there is a request to serve, or the mailbox is to be closed. It is for the server, in whose context it may be
    /// blocked on; one context at a time is woken.
    pub async fn requested(&self) {
        poll_fn(|context| self.poll_requested(context)).await;
    }

    fn poll_requested(&self, context: &Context<'_>) -> Poll<()> {
        let waker = context.waker().clone();
        let (found, old) = self.with(|state| match state.slots.iter().any(Slot::is_posted) || state.is_ending() {
            true => (Poll::Ready(()), Some(waker)),
            false => (Poll::Pending, state.server_waker.replace(waker)),
        });
        // Wakers are dropped outside: they may run code of an executor.
        drop(old);
        found
    }

    /// All that happens to the state: short, and without calls to code of others.
    fn with<T>(&self, work: impl FnOnce(&mut State<PAGE_BYTES, HANDLES>) -> T) -> T {
        critical_section::with(|section| work(&mut self.state.borrow_ref_mut(section)))
    }

    fn put_back(&self, slot: usize, page: Page<PAGE_BYTES>) {
        self.with(|state| state.slots[slot].page = Some(page));
    }

    /// Wakes whoever waits in the slots, each outside of the critical section.
    fn wake_all(&self) {
        for slot in 0..HANDLES {
            wake(self.with(|state| state.slots[slot].waker.take()));
        }
    }
}

impl<const PAGE_BYTES: usize, const HANDLES: usize> State<PAGE_BYTES, HANDLES> {
    fn is_ending(&self) -> bool {
        matches!(self.service, Service::Closing | Service::Ended)
    }

    /// The slot whose request was posted first.
    fn first_posted(&self) -> Option<usize> {
        let posted = (0..HANDLES).filter(|slot| self.slots[*slot].is_posted());
        // Numbers begin again after 2^32; those in use lie close together.
        posted.max_by_key(|slot| self.next_ticket.wrapping_sub(self.slots[*slot].ticket))
    }
}

impl<const PAGE_BYTES: usize, const HANDLES: usize> Default for Mailbox<PAGE_BYTES, HANDLES> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const PAGE_BYTES: usize, const HANDLES: usize> fmt::Debug for Mailbox<PAGE_BYTES, HANDLES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (service, stages) = self.with(|state| (state.service, state.slots.each_ref().map(|slot| slot.stage)));
        f.debug_struct("Mailbox").field("service", &service).field("stages", &stages).finish_non_exhaustive()
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
