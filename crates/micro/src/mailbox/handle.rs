use super::{Answer, AsyncDiskError, Mailbox, Request, Service, Stage, wake};
use core::fmt;
use core::future::poll_fn;
use core::ops::Range;
use core::task::{Context, Poll, Waker};

/// A disk, as an async task sees it. What is asked is served by [`Server`](crate::Server) in another context; the future waits without
/// blocking its executor.
///
/// A future may be dropped at any time. What it was to write was copied into the mailbox, and no memory of the caller is touched
/// after that. A request that had not begun is taken back; one that had is done to its end, and the next
/// one of this handle waits for that. So a write that is dropped is done or not done, each page of it, and never half a page; whoever must
/// know reads the page.
pub struct AsyncDisk<const PAGE_BYTES: usize, const HANDLES: usize> {
    mailbox: &'static Mailbox<PAGE_BYTES, HANDLES>,
    slot: usize,
}

impl<const PAGE_BYTES: usize, const HANDLES: usize> AsyncDisk<PAGE_BYTES, HANDLES> {
    pub(super) fn new(mailbox: &'static Mailbox<PAGE_BYTES, HANDLES>, slot: usize) -> Self {
        Self { mailbox, slot }
    }

    /// The mailbox.
    pub fn mailbox(&self) -> &'static Mailbox<PAGE_BYTES, HANDLES> {
        self.mailbox
    }

    /// Number of pages of the disk. Waits for the first server.
    ///
    /// # Errors
    /// [`AsyncDiskError::NotServed`].
    pub async fn exported_pages(&mut self) -> Result<u32, AsyncDiskError> {
        let _awaited = Awaited { mailbox: self.mailbox, slot: self.slot };
        poll_fn(|context| self.mailbox.poll_exported_pages(self.slot, context)).await
    }

    /// Bytes of the disk. Waits for the first server.
    ///
    /// # Errors
    /// [`AsyncDiskError::NotServed`].
    pub async fn capacity_bytes(&mut self) -> Result<u64, AsyncDiskError> {
        Ok(u64::from(self.exported_pages().await?) * PAGE_BYTES as u64)
    }

    /// Reads a page; false, with `page` untouched, if it was never written or was trimmed.
    ///
    /// # Errors
    /// [`AsyncDiskError::PastEnd`], [`AsyncDiskError::Unreadable`], [`AsyncDiskError::Device`], [`AsyncDiskError::NotServed`].
    pub async fn read(&mut self, lpn: u32, page: &mut [u8; PAGE_BYTES]) -> Result<bool, AsyncDiskError> {
        self.ask(Request::Read { lpn }, |_| {}, |found| page.copy_from_slice(found)).await
    }

    /// Writes a page. When it returns, the page survives a power cut at once on a chip, and from the next flush on where the device caches.
    ///
    /// # Errors
    /// [`AsyncDiskError`] has them all; after [`AsyncDiskError::Device`] and [`AsyncDiskError::NotServed`] the page may be written or not.
    pub async fn write(&mut self, lpn: u32, page: &[u8; PAGE_BYTES]) -> Result<(), AsyncDiskError> {
        self.ask(Request::Write { lpn }, |posted| posted.copy_from_slice(page), |_| {}).await?;
        Ok(())
    }

    /// Forgets a page; one that was never written may be trimmed, too. It survives a power cut from the next flush on.
    ///
    /// # Errors
    /// Those of [`AsyncDisk::write`].
    pub async fn trim(&mut self, lpn: u32) -> Result<(), AsyncDiskError> {
        self.ask(Request::Trim { lpn }, |_| {}, |_| {}).await?;
        Ok(())
    }

    /// Returns when everything that was written and trimmed, by any handle, before this was asked survives a power cut.
    ///
    /// # Errors
    /// Those of [`AsyncDisk::write`].
    pub async fn flush(&mut self) -> Result<(), AsyncDiskError> {
        self.ask(Request::Flush, |_| {}, |_| {}).await?;
        Ok(())
    }

    /// Reads `bytes.len()` bytes from `offset` on, a request for each page. What was never written reads as zeros.
    ///
    /// # Errors
    /// Those of [`AsyncDisk::read`]; past the end nothing is read.
    pub async fn read_at(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), AsyncDiskError> {
        let parts = self.parts(offset, bytes.len()).await?;
        for part in parts {
            let into = &mut bytes[part.in_bytes];
            let is_written = self.ask(
                Request::Read { lpn: part.lpn },
                |_| {},
                |found| into.copy_from_slice(&found[part.in_page.clone()]),
            );
            if !is_written.await? {
                into.fill(0);
            }
        }
        Ok(())
    }

    /// Writes bytes from `offset` on, a request for each page. A page that is written in part is read, changed and written as a whole
    /// by one request, so that tasks may write parts of the same page; for that the server has to serve a [`ByteDisk`](crate::ByteDisk).
    /// A future that is dropped, and an error, leave the pages before it written and those behind it as they were.
    ///
    /// # Errors
    /// Those of [`AsyncDisk::write`]; past the end nothing is written. [`AsyncDiskError::PartOfPage`].
    pub async fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), AsyncDiskError> {
        let parts = self.parts(offset, bytes.len()).await?;
        for Part { lpn, in_page, in_bytes } in parts {
            let request = match in_page.len() == PAGE_BYTES {
                true => Request::Write { lpn },
                false => Request::WritePart { lpn, start: in_page.start, end: in_page.end },
            };
            self.ask(request, |page| page[in_page].copy_from_slice(&bytes[in_bytes]), |_| {}).await?;
        }
        Ok(())
    }

    async fn parts(&mut self, offset: u64, len: usize) -> Result<Parts<PAGE_BYTES>, AsyncDiskError> {
        let exported_pages = self.exported_pages().await?;
        let end = offset.saturating_add(len as u64);
        if end > u64::from(exported_pages) * PAGE_BYTES as u64 {
            let lpn = (offset / PAGE_BYTES as u64).max(exported_pages.into());
            return Err(AsyncDiskError::PastEnd { lpn, exported_pages });
        }
        Ok(Parts { offset, len, done: 0 })
    }

    /// Posts a request, whose page `fill` has filled, and waits until it is served; `take` is shown the page that was read.
    async fn ask(
        &mut self,
        request: Request,
        fill: impl FnOnce(&mut [u8; PAGE_BYTES]),
        take: impl FnOnce(&[u8; PAGE_BYTES]),
    ) -> Answer {
        let (mailbox, slot) = (self.mailbox, self.slot);
        let _awaited = Awaited { mailbox, slot };
        // A future that was dropped may have left a request that is still being served.
        poll_fn(|context| mailbox.poll_idle(slot, context)).await;
        mailbox.with_page(slot, |page| fill(page));
        mailbox.post(slot, request)?;
        let is_written = poll_fn(|context| mailbox.poll_answer(slot, context)).await?;
        if is_written {
            mailbox.with_page(slot, |page| take(page));
        }
        Ok(is_written)
    }
}

impl<const PAGE_BYTES: usize, const HANDLES: usize> Drop for AsyncDisk<PAGE_BYTES, HANDLES> {
    fn drop(&mut self) {
        self.mailbox.withdraw(self.slot);
        self.mailbox.with(|state| state.slots[self.slot].is_open = false);
    }
}

impl<const PAGE_BYTES: usize, const HANDLES: usize> fmt::Debug for AsyncDisk<PAGE_BYTES, HANDLES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncDisk").field("slot", &self.slot).finish_non_exhaustive()
    }
}

/// The pages of a range of bytes.
struct Parts<const PAGE_BYTES: usize> {
    offset: u64,
    len: usize,
    done: usize,
}

/// What of a range of bytes lies in one page.
struct Part {
    lpn: u32,
    in_page: Range<usize>,
    in_bytes: Range<usize>,
}

impl<const PAGE_BYTES: usize> Iterator for Parts<PAGE_BYTES> {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        let (done, at) = (self.done, self.offset + self.done as u64);
        // The range ends within a number of pages of 32 bits.
        let (lpn, start) = ((at / PAGE_BYTES as u64) as u32, (at % PAGE_BYTES as u64) as usize);
        let len = (PAGE_BYTES - start).min(self.len - done);
        self.done += len;
        (len > 0).then(|| Part { lpn, in_page: start..start + len, in_bytes: done..done + len })
    }
}

/// Takes the request back when the future is dropped, and does nothing when it has its answer.
struct Awaited<const PAGE_BYTES: usize, const HANDLES: usize> {
    mailbox: &'static Mailbox<PAGE_BYTES, HANDLES>,
    slot: usize,
}

impl<const PAGE_BYTES: usize, const HANDLES: usize> Drop for Awaited<PAGE_BYTES, HANDLES> {
    fn drop(&mut self) {
        self.mailbox.withdraw(self.slot);
    }
}

/// What a handle does to its slot.
impl<const PAGE_BYTES: usize, const HANDLES: usize> Mailbox<PAGE_BYTES, HANDLES> {
    /// Nobody waits for the answer any more. What has not begun is not done.
    fn withdraw(&self, slot: usize) {
        let waker = self.with(|state| {
            let slot = &mut state.slots[slot];
            slot.stage = match slot.stage {
                Stage::Serving { .. } => Stage::Serving { is_awaited: false },
                Stage::Idle | Stage::Posted(_) | Stage::Done(_) => Stage::Idle,
            };
            slot.waker.take()
        });
        drop(waker);
    }

    fn poll_idle(&self, slot: usize, context: &Context<'_>) -> Poll<()> {
        self.poll_slot(slot, context, |stage, _, _| match *stage {
            Stage::Serving { .. } => {
                *stage = Stage::Serving { is_awaited: false };
                Poll::Pending
            }
            // A request of a future that was forgotten is as one that was dropped.
            Stage::Idle | Stage::Posted(_) | Stage::Done(_) => {
                *stage = Stage::Idle;
                Poll::Ready(())
            }
        })
    }

    fn poll_answer(&self, slot: usize, context: &Context<'_>) -> Poll<Answer> {
        self.poll_slot(slot, context, |stage, _, _| match *stage {
            Stage::Posted(_) | Stage::Serving { .. } => Poll::Pending,
            Stage::Done(answer) => {
                *stage = Stage::Idle;
                Poll::Ready(answer)
            }
            // Only the handle itself makes its slot idle, and it waits here.
            Stage::Idle => Poll::Ready(Err(AsyncDiskError::NotServed)),
        })
    }

    fn poll_exported_pages(&self, slot: usize, context: &Context<'_>) -> Poll<Result<u32, AsyncDiskError>> {
        self.poll_slot(slot, context, |_, service, exported_pages| match service {
            Service::Awaited => Poll::Pending,
            Service::On | Service::Closing => Poll::Ready(Ok(exported_pages)),
            Service::Ended => Poll::Ready(Err(AsyncDiskError::NotServed)),
        })
    }

    /// Looks at the slot, the service and the pages of the disk; if that is not what is waited for, the task is woken at the next change.
    fn poll_slot<T>(
        &self,
        slot: usize,
        context: &Context<'_>,
        look: impl FnOnce(&mut Stage, Service, u32) -> Poll<T>,
    ) -> Poll<T> {
        let waker = context.waker().clone();
        let (found, old): (Poll<T>, Option<Waker>) = self.with(|state| {
            let slot = &mut state.slots[slot];
            match look(&mut slot.stage, state.service, state.exported_pages) {
                Poll::Pending => (Poll::Pending, slot.waker.replace(waker)),
                found => (found, Some(waker)),
            }
        });
        // Outside of the critical section: wakers may run code of an executor.
        drop(old);
        found
    }

    /// The page of a slot that is idle. Copying it takes no critical section.
    fn with_page(&self, slot: usize, work: impl FnOnce(&mut [u8; PAGE_BYTES])) {
        if let Some(page) = self.with(|state| state.slots[slot].page.take()) {
            work(page);
            self.put_back(slot, page);
        }
    }

    fn post(&self, slot: usize, request: Request) -> Result<(), AsyncDiskError> {
        let waker = self.with(|state| {
            if state.is_ending() {
                return Err(AsyncDiskError::NotServed);
            }
            let slot = &mut state.slots[slot];
            slot.stage = Stage::Posted(request);
            slot.ticket = state.next_ticket;
            state.next_ticket = state.next_ticket.wrapping_add(1);
            Ok(state.server_waker.take())
        })?;
        wake(waker);
        Ok(())
    }
}
