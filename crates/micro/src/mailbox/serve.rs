use super::error::About;
use super::{Answer, AsyncDiskError, Job, Mailbox, Page, Request, Service, Stage, wake};
use crate::{ByteDisk, DiskError, SmallDisk};
use core::fmt;
use margay_flash::Flash;

/// A disk that can be served: [`SmallDisk`] by whole pages, [`ByteDisk`] by parts of pages, too, for which it has memory for one page more.
pub trait Served {
    /// The flash below.
    type Flash: Flash;

    /// The disk by pages.
    fn pages(&mut self) -> &mut SmallDisk<Self::Flash>;

    /// Writes bytes of one page and keeps the others of it; `None` if it can only write whole pages.
    ///
    /// # Errors
    /// Those of [`ByteDisk::write_at`].
    fn write_part(&mut self, offset: u64, bytes: &[u8]) -> Option<Result<(), DiskError>>;
}

impl<F: Flash> Served for SmallDisk<F> {
    type Flash = F;

    fn pages(&mut self) -> &mut SmallDisk<F> {
        self
    }

    fn write_part(&mut self, _: u64, _: &[u8]) -> Option<Result<(), DiskError>> {
        None
    }
}

impl<F: Flash> Served for ByteDisk<F> {
    type Flash = F;

    fn pages(&mut self) -> &mut SmallDisk<F> {
        self.disk_mut()
    }

    fn write_part(&mut self, offset: u64, bytes: &[u8]) -> Option<Result<(), DiskError>> {
        Some(self.write_at(offset, bytes))
    }
}

/// Why a mailbox cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerError {
    /// The mailbox is for pages of another size.
    #[error("the mailbox is for pages of {mailbox_bytes} bytes, and those of the disk have {disk_bytes}")]
    PageBytes {
        /// What the mailbox has.
        mailbox_bytes: usize,
        /// What the disk has.
        disk_bytes: u32,
    },
    /// There is a server already.
    #[error("the mailbox is served already")]
    Taken,
}

/// Serves the requests of a [`Mailbox`] by a disk, in the context that this runs in. When it is dropped, the disk is as it was left, and the
/// requests that were not served fail.
///
/// The driver of the flash still blocks, this context and all of lower priority: a request takes as long as the disk takes for
/// it. The longest is a write, with 8 programs and an erase, unless the disk is nearly full or the chip fails.
pub struct Server<'a, D, const PAGE_BYTES: usize, const HANDLES: usize> {
    mailbox: &'static Mailbox<PAGE_BYTES, HANDLES>,
    disk: &'a mut D,
    /// The request that is being served: its page goes back to the mailbox even if the driver of the flash panics.
    job: Option<Job<PAGE_BYTES>>,
    idle_error: Option<AsyncDiskError>,
}

impl<const PAGE_BYTES: usize, const HANDLES: usize> Mailbox<PAGE_BYTES, HANDLES> {
    /// Begins to serve the mailbox, in the context of the disk.
    ///
    /// # Errors
    /// The disk has pages of another size, or there is a server.
    pub fn server<'a, D: Served>(
        &'static self,
        disk: &'a mut D,
    ) -> Result<Server<'a, D, PAGE_BYTES, HANDLES>, ServerError> {
        let pages = disk.pages();
        let disk_bytes = pages.geometry().page_bytes();
        if disk_bytes as usize != PAGE_BYTES {
            return Err(ServerError::PageBytes { mailbox_bytes: PAGE_BYTES, disk_bytes });
        }
        let exported_pages = pages.exported_pages();
        self.with(|state| {
            if matches!(state.service, Service::On | Service::Closing) {
                return Err(ServerError::Taken);
            }
            (state.service, state.exported_pages) = (Service::On, exported_pages);
            Ok(())
        })?;
        self.wake_all();
        Ok(Server { mailbox: self, disk, job: None, idle_error: None })
    }

    fn take_job(&self) -> Option<Job<PAGE_BYTES>> {
        self.with(|state| {
            let slot = state.first_posted()?;
            let Stage::Posted(request) = state.slots[slot].stage else { return None };
            let page = state.slots[slot].page.take()?;
            state.slots[slot].stage = Stage::Serving { is_awaited: true };
            Some(Job { slot, request, page })
        })
    }

    fn answer(&self, slot: usize, page: Option<Page<PAGE_BYTES>>, answer: Answer) {
        let waker = self.with(|state| {
            let slot = &mut state.slots[slot];
            if page.is_some() {
                slot.page = page;
            }
            slot.stage = match slot.stage {
                Stage::Posted(_) | Stage::Serving { is_awaited: true } => Stage::Done(answer),
                Stage::Idle | Stage::Serving { is_awaited: false } => Stage::Idle,
                Stage::Done(before) => Stage::Done(before),
            };
            slot.waker.take()
        });
        wake(waker);
    }
}

impl<D: Served, const PAGE_BYTES: usize, const HANDLES: usize> Server<'_, D, PAGE_BYTES, HANDLES> {
    /// Serves the request that was posted first, and wakes its task. False if there is none.
    pub fn serve_one(&mut self) -> bool {
        self.job = self.mailbox.take_job();
        let Some(job) = &mut self.job else { return false };
        let answer = run(self.disk, job);
        if let Some(Job { slot, page, .. }) = self.job.take() {
            self.mailbox.answer(slot, Some(page), answer);
        }
        true
    }

    /// Serves requests until [`Mailbox::close`] is called, and those that were posted before that.
    ///
    /// When nothing is asked, it does the idle work of the disk (cleaning ahead, so that later writes are short) in steps of about
    /// `idle_pages` pages programmed and at most an erase, and looks into the mailbox after each; what is asked meanwhile waits for
    /// one step. With 1 the wait is shortest, with the pages of a segment the work is done soonest, with 0 there is none, and the writes clean.
    ///
    /// When there is no idle work either, it calls `wait`, which may sleep until something may have been posted, and may return sooner.
    /// It must not miss what is posted just before it sleeps. `cortex_m::asm::wfe` does not, where tasks run in interrupts, because the
    /// end of an interrupt is an event (`wfi` may sleep until the next interrupt); nor does blocking on [`Mailbox::requested`], in a
    /// thread.
    pub fn serve(&mut self, idle_pages: u32, mut wait: impl FnMut()) {
        let mut has_idle_work = true;
        loop {
            // Asked before: nothing is posted any more once it closes.
            let is_closing = self.is_closing();
            if self.serve_one() {
                has_idle_work = true;
            } else if is_closing {
                return;
            } else if has_idle_work && idle_pages > 0 {
                has_idle_work = self.idle(idle_pages);
            } else {
                wait();
            }
        }
    }

    /// Does idle work, about `budget_pages` pages programmed. False if there is none, or if it failed ([`Server::idle_error`]).
    pub fn idle(&mut self, budget_pages: u32) -> bool {
        let pages = self.disk.pages();
        let about = About { lpn: 0, is_read: false, exported_pages: pages.exported_pages() };
        match pages.idle(budget_pages) {
            Ok(has_more) => has_more,
            Err(error) => {
                self.idle_error = Some(about.tell(&error));
                false
            }
        }
    }

    /// Whether [`Mailbox::close`] was called.
    pub fn is_closing(&self) -> bool {
        self.mailbox.with(|state| state.is_ending())
    }

    /// Why idle work failed the last time it did. Nobody asked for it, so that nobody was told; a write that meets the same error is.
    pub fn idle_error(&self) -> Option<AsyncDiskError> {
        self.idle_error
    }

    /// The disk, for what this context does itself, between two requests.
    pub fn disk_mut(&mut self) -> &mut D {
        self.disk
    }
}

/// Does what was asked.
fn run<D: Served, const PAGE_BYTES: usize>(disk: &mut D, job: &mut Job<PAGE_BYTES>) -> Answer {
    let page = &mut *job.page;
    let exported_pages = disk.pages().exported_pages();
    let about = |lpn, is_read| About { lpn, is_read, exported_pages };
    let (done, about) = match job.request {
        Request::Read { lpn } => (disk.pages().read(lpn, page), about(lpn, true)),
        Request::Write { lpn } => (disk.pages().write(lpn, page).map(|()| false), about(lpn, false)),
        Request::WritePart { lpn, start, end } => {
            let offset = u64::from(lpn) * PAGE_BYTES as u64 + start as u64;
            let Some(done) = disk.write_part(offset, &page[start..end]) else {
                return Err(AsyncDiskError::PartOfPage { page_bytes: PAGE_BYTES });
            };
            (done.map(|()| false), about(lpn, true))
        }
        Request::Trim { lpn } => (disk.pages().trim(lpn).map(|()| false), about(lpn, false)),
        Request::Flush => (disk.pages().flush().map(|()| false), about(0, false)),
    };
    done.map_err(|error| about.tell(&error))
}

impl<D, const PAGE_BYTES: usize, const HANDLES: usize> Drop for Server<'_, D, PAGE_BYTES, HANDLES> {
    fn drop(&mut self) {
        self.mailbox.with(|state| state.service = Service::Ended);
        if let Some(Job { slot, page, .. }) = self.job.take() {
            self.mailbox.answer(slot, Some(page), Err(AsyncDiskError::NotServed));
        }
        for slot in 0..HANDLES {
            self.mailbox.answer(slot, None, Err(AsyncDiskError::NotServed));
        }
    }
}

impl<D, const PAGE_BYTES: usize, const HANDLES: usize> fmt::Debug for Server<'_, D, PAGE_BYTES, HANDLES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("mailbox", self.mailbox).finish_non_exhaustive()
    }
}
