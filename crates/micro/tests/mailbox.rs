//! The mailbox step by step: futures are polled by hand, and the disk is served by hand.

use aligned::{A1, Aligned};
use block_device_driver::BlockDevice;
use embedded_storage_async::{ReadStorage, Storage};
use margay_flash::{Flash, FlashError, Geometry, Ppn, ReadStatus, SegmentId, pass_on};
use margay_log::LogError;
use margay_media::{Call, Effect, Flaky, RamFlash};
use margay_micro::{AsyncDisk, AsyncDiskError, ByteDisk, Mailbox, ServerError, SmallDisk};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};

const PAGE_BYTES: usize = 512;
const UUID: [u8; 16] = *b"margay-mailboxes";

type ThreeHandles = Mailbox<PAGE_BYTES, 3>;
type Handle = AsyncDisk<PAGE_BYTES, 3>;

fn nand() -> RamFlash {
    RamFlash::new(Geometry::new(64, 16, PAGE_BYTES as u32).unwrap().with_spare(64))
}

fn formatted<F: Flash>(flash: F) -> SmallDisk<F> {
    SmallDisk::format(flash, 300, UUID).unwrap()
}

fn poll<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// What a future returns that has to be ready.
fn ready<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> T {
    let Poll::Ready(value) = poll(future) else { panic!("the future is not ready") };
    value
}

fn read_page<F: Flash>(disk: &mut SmallDisk<F>, lpn: u32) -> Option<[u8; PAGE_BYTES]> {
    let mut page = [0; PAGE_BYTES];
    disk.read(lpn, &mut page).unwrap().then_some(page)
}

/// A chip during whose next program something happens, as an interrupt would.
struct Interrupted<'a> {
    device: RamFlash,
    handler: Option<Box<dyn FnMut() + 'a>>,
}

impl Flash for Interrupted<'_> {
    pass_on!(device: has_payload, retire, sync, is_cached, void_page, mark, set_mark);

    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }
    fn read(&mut self, ppn: Ppn, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, FlashError> {
        self.device.read(ppn, data, spare)
    }
    fn program(&mut self, ppn: Ppn, data: &[u8], spare: &[u8]) -> Result<(), FlashError> {
        if let Some(mut handler) = self.handler.take() {
            handler();
        }
        self.device.program(ppn, data, spare)
    }
    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        self.device.erase(segment)
    }
}

#[test]
fn requests_are_served_in_the_order_in_which_they_were_posted_and_handles_are_bounded() {
    static MAILBOX: ThreeHandles = Mailbox::new();
    let (mut a, mut b, mut c) = (MAILBOX.open().unwrap(), MAILBOX.open().unwrap(), MAILBOX.open().unwrap());
    assert!(MAILBOX.open().is_none());
    // They wait for the first server.
    let mut third = Box::pin(c.write(5, &[3; PAGE_BYTES]));
    let mut first = Box::pin(a.write(5, &[1; PAGE_BYTES]));
    let mut second = Box::pin(b.write(5, &[2; PAGE_BYTES]));
    for future in [&mut first, &mut second, &mut third] {
        assert!(poll(future.as_mut()).is_pending());
    }
    let mut disk = formatted(nand());
    let mut server = MAILBOX.server(&mut disk).unwrap();
    assert_eq!(MAILBOX.server(&mut formatted(nand())).err(), Some(ServerError::Taken));
    for (mut future, version) in [(first, 1), (second, 2), (third, 3)] {
        assert!(server.serve_one());
        ready(future.as_mut()).unwrap();
        assert_eq!(read_page(server.disk_mut(), 5), Some([version; PAGE_BYTES]));
    }
    assert!(!server.serve_one());
    drop(b);
    assert!(MAILBOX.open().is_some());
}

#[test]
fn a_task_is_woken_when_its_request_is_served_and_the_server_when_one_is_posted() {
    struct Count(AtomicU32);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    static MAILBOX: ThreeHandles = Mailbox::new();
    let [task, serving] = [0; 2].map(|_| Arc::new(Count(AtomicU32::new(0))));
    let woken = |count: &Arc<Count>| count.0.load(Ordering::Relaxed);
    let (task_waker, server_waker) = (Waker::from(task.clone()), Waker::from(serving.clone()));

    let mut requested = pin!(MAILBOX.requested());
    assert!(requested.as_mut().poll(&mut Context::from_waker(&server_waker)).is_pending());
    let mut handle = MAILBOX.open().unwrap();
    {
        let mut size = Box::pin(handle.exported_pages());
        assert!(size.as_mut().poll(&mut Context::from_waker(&task_waker)).is_pending());
        let mut disk = formatted(nand());
        let mut server = MAILBOX.server(&mut disk).unwrap();
        assert_eq!(woken(&task), 1);
        assert_eq!(ready(size.as_mut()), Ok(300));
        drop(size);
        let mut flush = pin!(handle.flush());
        assert!(flush.as_mut().poll(&mut Context::from_waker(&task_waker)).is_pending());
        assert_eq!((woken(&task), woken(&serving)), (1, 1));
        assert!(poll(requested).is_ready());
        assert!(server.serve_one());
        assert_eq!(woken(&task), 2);
        ready(flush).unwrap();
    }
    assert_eq!(pollster::block_on(handle.exported_pages()), Err(AsyncDiskError::NotServed));
}

#[test]
fn a_write_that_is_dropped_before_it_began_is_not_done_and_one_that_had_begun_is_done() {
    static MAILBOX: ThreeHandles = Mailbox::new();
    let mut handle = MAILBOX.open().unwrap();
    let mut disk = formatted(Interrupted { device: nand(), handler: None });
    let mut server = MAILBOX.server(&mut disk).unwrap();

    let mut page = [7; PAGE_BYTES];
    let mut write = Box::pin(handle.write(7, &page));
    assert!(poll(write.as_mut()).is_pending());
    drop(write);
    page.fill(0);
    assert!(!server.serve_one());
    assert_eq!(read_page(server.disk_mut(), 7), None);

    // One that is forgotten is served, as it was posted, unless the handle is used before.
    let mut write = Box::pin(handle.write(6, &[6; PAGE_BYTES]));
    assert!(poll(write.as_mut()).is_pending());
    std::mem::forget(write);
    assert!(server.serve_one());
    assert_eq!(read_page(server.disk_mut(), 6), Some([6; PAGE_BYTES]));

    let page = Box::new([8; PAGE_BYTES]);
    let mut write: Option<Pin<Box<dyn Future<Output = _>>>> =
        Some(Box::pin(async move { handle.write(8, &page).await }));
    assert!(poll(write.as_mut().unwrap().as_mut()).is_pending());
    // The page, the future and the handle go while the chip is programmed.
    let handler = Box::new(move || drop(write.take()));
    server.disk_mut().device_mut().handler = Some(handler);
    assert!(server.serve_one());
    assert_eq!(read_page(server.disk_mut(), 8), Some([8; PAGE_BYTES]));
    let handles = [(); 3].map(|()| MAILBOX.open().unwrap());
    for (lpn, mut handle) in (10..).zip(handles) {
        let page = [lpn as u8; PAGE_BYTES];
        let mut write = pin!(handle.write(lpn, &page));
        assert!(poll(write.as_mut()).is_pending());
        assert!(server.serve_one());
        ready(write).unwrap();
        assert_eq!(read_page(server.disk_mut(), lpn), Some(page));
    }
}

#[test]
fn the_next_request_of_a_handle_waits_for_the_one_that_was_dropped_while_it_was_served() {
    static MAILBOX: ThreeHandles = Mailbox::new();
    let mut handle = MAILBOX.open().unwrap();
    let mut disk = formatted(Interrupted { device: nand(), handler: None });
    let mut server = MAILBOX.server(&mut disk).unwrap();
    let mut tasks = Box::pin(async move {
        {
            // As a time-out that is over by the second poll.
            let (mut write, mut polls) = (pin!(handle.write(1, &[1; PAGE_BYTES])), 0);
            std::future::poll_fn(|context| {
                polls += 1;
                assert!(write.as_mut().poll(context).is_pending());
                if polls == 1 { Poll::Pending } else { Poll::Ready(()) }
            })
            .await;
        }
        handle.write(1, &[2; PAGE_BYTES]).await
    });
    assert!(poll(tasks.as_mut()).is_pending());
    let tasks = Rc::new(RefCell::new(tasks));
    let interrupted = tasks.clone();
    server.disk_mut().device_mut().handler = Some(Box::new(move || {
        assert!(poll(interrupted.borrow_mut().as_mut()).is_pending());
    }));
    assert!(server.serve_one());
    assert_eq!(read_page(server.disk_mut(), 1), Some([1; PAGE_BYTES]));
    let mut tasks = tasks.borrow_mut();
    assert!(!server.serve_one());
    assert!(poll(tasks.as_mut()).is_pending());
    assert!(server.serve_one());
    ready(tasks.as_mut()).unwrap();
    assert_eq!(read_page(server.disk_mut(), 1), Some([2; PAGE_BYTES]));
}

/// Asks, serves and returns the answer.
fn served<T, D: margay_micro::Served>(
    server: &mut margay_micro::Server<'_, D, PAGE_BYTES, 3>,
    future: impl Future<Output = T>,
) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = poll(future.as_mut()) {
            return value;
        }
        assert!(server.serve_one(), "the future waits, and nothing was asked");
    }
}

#[test]
fn errors_reach_the_task_that_asked_and_say_what_is_wrong() {
    static MAILBOX: ThreeHandles = Mailbox::new();
    let (mut a, mut b) = (MAILBOX.open().unwrap(), MAILBOX.open().unwrap());
    let mut disk = formatted(Flaky::new(nand()));
    let mut server = MAILBOX.server(&mut disk).unwrap();
    let mut page = [3; PAGE_BYTES];
    for lpn in 0..300 {
        served(&mut server, a.write(lpn, &[lpn as u8; PAGE_BYTES])).unwrap();
    }
    let past_end = AsyncDiskError::PastEnd { lpn: 300, exported_pages: 300 };
    assert_eq!(served(&mut server, a.write(300, &page)), Err(past_end));
    assert_eq!(served(&mut server, a.read(300, &mut page)), Err(past_end));
    assert_eq!(served(&mut server, a.trim(300)), Err(past_end));
    assert_eq!(past_end.to_string(), "page 300 is past the end of the disk (300 pages)");

    // Two tasks wait; the device fails the read of the second.
    let mut other = [0; PAGE_BYTES];
    {
        let (mut ok, mut fails) = (pin!(a.read(4, &mut page)), pin!(b.read(5, &mut other)));
        assert!(poll(ok.as_mut()).is_pending() && poll(fails.as_mut()).is_pending());
        server.disk_mut().device_mut().fail(Call::Read, 1..2, Effect::NotDone, 5);
        assert!(server.serve_one() && server.serve_one());
        assert_eq!(ready(ok), Ok(true));
        let error = ready(fails).unwrap_err();
        assert_eq!(error, AsyncDiskError::Device(LogError::Flash(FlashError::Io { code: 5 })));
        assert!(error.to_string().starts_with("the device failed: "), "{error}");
    }
    assert_eq!(page, [4; PAGE_BYTES]);
    assert_eq!(served(&mut server, b.read(5, &mut other)), Ok(true));

    // A page whose bits are gone.
    let geometry = *server.disk_mut().geometry();
    for ppn in (0..geometry.pages()).map(Ppn) {
        let mut found = [0; PAGE_BYTES];
        let flash = server.disk_mut().device_mut();
        if flash.read(ppn, &mut found, &mut []).is_ok() && found == [9; PAGE_BYTES] {
            margay_media::Damage::page_bytes_mut(flash, ppn)[..40].fill(0x55);
        }
    }
    assert_eq!(served(&mut server, a.read(9, &mut page)), Err(AsyncDiskError::Unreadable { lpn: 9 }));
    served(&mut server, a.write(9, &[1; PAGE_BYTES])).unwrap();
    assert_eq!(served(&mut server, a.read(9, &mut page)), Ok(true));

    let error = served(&mut server, a.write_at(100, &[1; 5])).unwrap_err();
    assert_eq!(error, AsyncDiskError::PartOfPage { page_bytes: PAGE_BYTES });
    served(&mut server, a.write_at(1024, &[1; 1024])).unwrap();
}

#[test]
fn a_device_whose_programs_fail_for_good_refuses_writes_and_is_read() {
    static MAILBOX: ThreeHandles = Mailbox::new();
    let mut handle = MAILBOX.open().unwrap();
    let mut disk = formatted(Flaky::new(nand()));
    disk.write(3, &[3; PAGE_BYTES]).unwrap();
    let mut server = MAILBOX.server(&mut disk).unwrap();
    server.disk_mut().device_mut().fail(Call::Program, 0..u64::MAX, Effect::NotDone, 5);
    let mut errors = Vec::new();
    for lpn in 0..100 {
        errors.push(served(&mut server, handle.write(lpn, &[0; PAGE_BYTES])).unwrap_err());
    }
    assert!(matches!(errors[0], AsyncDiskError::Device(_)), "{errors:?}");
    assert_eq!(errors.last(), Some(&AsyncDiskError::WritingStopped));
    assert_eq!(served(&mut server, handle.flush()), Err(AsyncDiskError::WritingStopped));
    let mut page = [0; PAGE_BYTES];
    assert_eq!(served(&mut server, handle.read(3, &mut page)), Ok(true));
    assert_eq!(page, [3; PAGE_BYTES]);
}

#[test]
fn a_server_that_is_closed_serves_what_was_posted_and_the_next_one_goes_on() {
    static MAILBOX: ThreeHandles = Mailbox::new();
    let (mut a, mut b, mut c) = (MAILBOX.open().unwrap(), MAILBOX.open().unwrap(), MAILBOX.open().unwrap());
    let mut disk = formatted(nand());
    {
        let mut server = MAILBOX.server(&mut disk).unwrap();
        let mut before = pin!(a.write(1, &[1; PAGE_BYTES]));
        assert!(poll(before.as_mut()).is_pending());
        MAILBOX.close();
        assert_eq!(pollster::block_on(b.write(2, &[2; PAGE_BYTES])), Err(AsyncDiskError::NotServed));
        server.serve(8, || panic!("there is nothing to wait for"));
        ready(before).unwrap();
    }
    // A server that is dropped without being closed.
    {
        let mut left = pin!(c.write(3, &[3; PAGE_BYTES]));
        assert_eq!(ready(left.as_mut()), Err(AsyncDiskError::NotServed), "nobody serves");
        let mut server = MAILBOX.server(&mut disk).unwrap();
        let (mut first, mut second) = (pin!(a.trim(1)), pin!(b.write(3, &[3; PAGE_BYTES])));
        assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
        assert!(server.serve_one());
        drop(server);
        ready(first).unwrap();
        assert_eq!(ready(second), Err(AsyncDiskError::NotServed));
    }
    let mut server = MAILBOX.server(&mut disk).unwrap();
    let mut page = [0; PAGE_BYTES];
    assert_eq!(served(&mut server, a.read(1, &mut page)), Ok(false));
    assert_eq!(served(&mut server, a.read(3, &mut page)), Ok(false));
    drop(server);
    disk.stop().unwrap();
}

#[test]
fn a_driver_that_panics_fails_its_request_and_leaves_the_mailbox_to_the_next_server() {
    static MAILBOX: ThreeHandles = Mailbox::new();
    let mut handle = MAILBOX.open().unwrap();
    let mut disk = formatted(Interrupted { device: nand(), handler: Some(Box::new(|| ())) });
    disk.write(0, &[0; PAGE_BYTES]).unwrap();
    disk.device_mut().handler = Some(Box::new(|| panic!("the bus is stuck")));
    {
        let mut write = pin!(handle.write(1, &[1; PAGE_BYTES]));
        assert!(poll(write.as_mut()).is_pending());
        let server = AssertUnwindSafe(MAILBOX.server(&mut disk).unwrap());
        catch_unwind(move || { server }.serve_one()).unwrap_err();
        assert_eq!(ready(write), Err(AsyncDiskError::NotServed));
    }
    let mut disk = SmallDisk::mount(disk.into_device()).unwrap();
    let mut server = MAILBOX.server(&mut disk).unwrap();
    served(&mut server, handle.write(1, &[1; PAGE_BYTES])).unwrap();
    let mut page = [9; PAGE_BYTES];
    assert!(served(&mut server, handle.read(1, &mut page)).unwrap() && page == [1; PAGE_BYTES]);
}

#[test]
fn a_disk_with_pages_of_another_size_is_refused() {
    static MAILBOX: Mailbox<1024, 1> = Mailbox::new();
    let error = MAILBOX.server(&mut formatted(nand())).unwrap_err();
    assert_eq!(error, ServerError::PageBytes { mailbox_bytes: 1024, disk_bytes: 512 });
    assert_eq!(error.to_string(), "the mailbox is for pages of 1024 bytes, and those of the disk have 512");
}

#[test]
fn bytes_of_any_range_and_blocks_of_fat_are_written_through_a_disk_by_bytes() {
    static MAILBOX: ThreeHandles = Mailbox::new();
    let (mut a, mut b): (Handle, Handle) = (MAILBOX.open().unwrap(), MAILBOX.open().unwrap());
    assert_eq!(a.capacity(), 0);
    let mut disk = ByteDisk::new(formatted(nand()));
    let mut server = MAILBOX.server(&mut disk).unwrap();
    assert_eq!((a.capacity(), pollster::block_on(a.capacity_bytes())), (300 * 512, Ok(300 * 512)));
    let mut model = vec![0; 300 * 512];
    // Two tasks write parts of the same page at once.
    {
        let (mut left, mut right) = (pin!(a.write_at(100, &[1; 50])), pin!(b.write_at(150, &[2; 50])));
        assert!(poll(left.as_mut()).is_pending() && poll(right.as_mut()).is_pending());
        assert!(server.serve_one() && server.serve_one());
        ready(left).unwrap();
        ready(right).unwrap();
        model[100..150].fill(1);
        model[150..200].fill(2);
    }
    for number in 0..400usize {
        let (at, len) = (number * 7919 % 150_000, number * 613 % 1600);
        let bytes: Vec<u8> = (0..len).map(|byte| (byte + number) as u8).collect();
        served(&mut server, Storage::write(&mut a, at as u32, &bytes)).unwrap();
        model[at..at + len].copy_from_slice(&bytes);
    }
    let mut found = vec![1; model.len()];
    served(&mut server, ReadStorage::read(&mut b, 0, &mut found)).unwrap();
    assert!(found == model);
    let past_end = AsyncDiskError::PastEnd { lpn: 300, exported_pages: 300 };
    assert_eq!(served(&mut server, Storage::write(&mut a, 300 * 512 - 1, &[9; 2])), Err(past_end));
    assert_eq!(served(&mut server, ReadStorage::read(&mut a, 300 * 512, &mut [0])), Err(past_end));
    assert_eq!(
        served(&mut server, a.write_at(u64::MAX, &[0; 2])).unwrap_err().to_string(),
        AsyncDiskError::PastEnd { lpn: u64::MAX / 512, exported_pages: 300 }.to_string()
    );

    assert_eq!(served(&mut server, BlockDevice::<1000>::size(&mut a)), Ok(153_000));
    let mut blocks = [Aligned::<A1, _>([7; 1000]), Aligned([8; 1000])];
    served(&mut server, BlockDevice::write(&mut a, 3, &blocks)).unwrap();
    model[3000..4000].fill(7);
    model[4000..5000].fill(8);
    served(&mut server, BlockDevice::read(&mut b, 2, &mut blocks)).unwrap();
    assert!(blocks[0][..] == model[2000..3000] && blocks[1][..] == model[3000..4000]);
    let past_end = served(&mut server, BlockDevice::write(&mut a, 153, &blocks)).unwrap_err();
    assert_eq!(past_end, AsyncDiskError::PastEnd { lpn: 300, exported_pages: 300 });
    served(&mut server, ReadStorage::read(&mut b, 0, &mut found)).unwrap();
    assert!(found == model);
}

#[test]
fn a_mailbox_takes_a_page_and_64_bytes_for_each_handle_and_48_at_most() {
    assert!(size_of::<Mailbox<512, 1>>() <= 48 + 512 + 64);
    assert!(size_of::<Mailbox<512, 4>>() <= 48 + (512 + 64) * 4);
    assert!(size_of::<Mailbox<4096, 2>>() <= 48 + (4096 + 64) * 2);
}
