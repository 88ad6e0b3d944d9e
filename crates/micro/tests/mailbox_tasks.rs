//! The mailbox between threads, and between tasks that a random sequence polls, drops and serves, beside a model.

use margay_flash::Geometry;
use margay_media::{RamFlash, Strict};
use margay_micro::{AsyncDisk, AsyncDiskError, Mailbox, Server, SmallDisk};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

const PAGE_BYTES: usize = 512;
const PAGES: u32 = 200;
const UUID: [u8; 16] = *b"margay-mailboxes";

type Disk = SmallDisk<Strict<RamFlash>>;

/// Small enough that cleaning begins soon.
fn formatted() -> Disk {
    let geometry = Geometry::new(20, 16, PAGE_BYTES as u32).unwrap().with_spare(64);
    SmallDisk::format(Strict::new(RamFlash::new(geometry)), PAGES, UUID).unwrap()
}

fn page_of(version: u32) -> [u8; PAGE_BYTES] {
    let mut page = [version as u8; PAGE_BYTES];
    page[..4].copy_from_slice(&version.to_le_bytes());
    page
}

/// The version of a page, 0 for one that is not written.
fn version_of(is_written: bool, page: &[u8; PAGE_BYTES]) -> u32 {
    let version = u32::from_le_bytes(page[..4].try_into().unwrap());
    assert!(!is_written || *page == page_of(version), "a page that nobody wrote so");
    if is_written { version } else { 0 }
}

const THREADS: u32 = 6;
const HANDLES: usize = 6;

/// A task of its own thread: random operations on its own pages, one in four of which is dropped after some polls.
async fn work(mut disk: AsyncDisk<PAGE_BYTES, HANDLES>, number: u32, rounds: u32) -> Vec<(u32, u32)> {
    let own: Vec<u32> = (0..PAGES).filter(|lpn| lpn % THREADS == number).collect();
    // What may be in each page.
    let mut versions = vec![vec![0]; own.len()];
    let mut state = number + 1;
    let mut below = move |limit: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % limit
    };
    for round in 1..=rounds {
        let at = below(own.len() as u32) as usize;
        let (lpn, version) = (own[at], round * THREADS + number);
        let mut polls_left = if below(4) == 0 { 1 + below(3) } else { u32::MAX };
        let mut page = page_of(version);
        let (kind, possible) = (below(8), &mut versions[at]);
        let mut read = [0; PAGE_BYTES];
        let found = {
            let mut operation: Pin<Box<dyn Future<Output = Result<bool, AsyncDiskError>> + Send>> = match kind {
                0..4 => Box::pin(async { disk.write(lpn, &page).await.map(|()| false) }),
                4 => Box::pin(async { disk.trim(lpn).await.map(|()| false) }),
                5 => Box::pin(async { disk.flush().await.map(|()| false) }),
                _ => Box::pin(disk.read(lpn, &mut read)),
            };
            poll_fn(|context| match operation.as_mut().poll(context) {
                Poll::Ready(result) => Poll::Ready(Some(result)),
                Poll::Pending if polls_left > 1 => {
                    polls_left -= 1;
                    if polls_left < 10 {
                        context.waker().wake_by_ref();
                    }
                    Poll::Pending
                }
                Poll::Pending => Poll::Ready(None),
            })
            .await
        };
        // What was to be written was copied.
        page.fill(0xAA);
        let next = match kind {
            0..4 => Some(version),
            4 => Some(0),
            _ => None,
        };
        match (next, found) {
            (Some(next), Some(result)) => {
                result.unwrap();
                *possible = vec![next];
            }
            (Some(next), None) => possible.push(next),
            (None, None) => {}
            (None, Some(result)) => {
                let is_written = result.unwrap();
                if kind > 5 {
                    let version = version_of(is_written, &read);
                    assert!(possible.contains(&version), "page {lpn} has version {version}, and not {possible:?}");
                    *possible = vec![version];
                }
            }
        }
    }
    let mut last = Vec::new();
    for (lpn, possible) in own.into_iter().zip(versions) {
        let mut page = [0; PAGE_BYTES];
        let is_written = disk.read(lpn, &mut page).await.unwrap();
        let version = version_of(is_written, &page);
        assert!(possible.contains(&version), "page {lpn} has version {version}, and not {possible:?}");
        last.push((lpn, version));
    }
    last
}

#[test]
fn tasks_of_many_threads_keep_their_pages_while_others_write_and_futures_are_dropped() {
    static MAILBOX: Mailbox<PAGE_BYTES, HANDLES> = Mailbox::new();
    let tasks: Vec<_> = (0..THREADS)
        .map(|number| {
            let disk = MAILBOX.open().unwrap();
            thread::spawn(move || pollster::block_on(work(disk, number, 3000)))
        })
        .collect();
    let ends = thread::spawn(move || {
        let last: Vec<_> = tasks.into_iter().flat_map(|task| task.join().unwrap()).collect();
        MAILBOX.close();
        last
    });
    let mut disk = formatted();
    MAILBOX.server(&mut disk).unwrap().serve(4, || pollster::block_on(MAILBOX.requested()));
    let last = ends.join().unwrap();
    assert!(disk.counters().erases > 100, "{:?}", disk.counters());
    disk.audit().unwrap();
    let mut disk = SmallDisk::mount(disk.into_device()).unwrap();
    for (lpn, version) in last {
        let mut page = [0; PAGE_BYTES];
        let is_written = disk.read(lpn, &mut page).unwrap();
        // A trim survives from the next flush on.
        assert!(version == 0 || version_of(is_written, &page) == version, "page {lpn}");
    }
}

/// The server is a task, too, beside others in a thread of its own, and ends while requests wait.
#[test]
fn a_server_that_stops_under_load_refuses_what_it_has_not_served_and_keeps_what_it_has() {
    static MAILBOX: Mailbox<PAGE_BYTES, 4> = Mailbox::new();
    let tasks: Vec<_> = (0..4u32)
        .map(|number| {
            let mut disk = MAILBOX.open().unwrap();
            thread::spawn(move || {
                pollster::block_on(async move {
                    for version in 1u32.. {
                        match disk.write(number, &page_of(version)).await {
                            Ok(()) => {}
                            Err(error) => {
                                assert_eq!(error, AsyncDiskError::NotServed);
                                return version;
                            }
                        }
                    }
                    unreachable!()
                })
            })
        })
        .collect();
    let mut disk = formatted();
    pollster::block_on(async {
        let mut server = MAILBOX.server(&mut disk).unwrap();
        for _ in 0..2000 {
            MAILBOX.requested().await;
            server.serve_one();
        }
    });
    let (device, _) = disk.stop().unwrap();
    let mut disk = SmallDisk::mount(device).unwrap();
    for (number, task) in tasks.into_iter().enumerate() {
        let refused = task.join().unwrap();
        let mut page = [0; PAGE_BYTES];
        let is_written = disk.read(number as u32, &mut page).unwrap();
        assert_eq!(version_of(is_written, &page), refused - 1);
    }
}

const TASKS: usize = 4;

#[derive(Clone, Copy, Debug)]
enum Operation {
    Read(u32),
    Write(u32),
    Trim(u32),
    Flush,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The task asks, if it is not waiting.
    Ask(usize, Operation),
    /// The task is polled.
    Poll(usize),
    /// The task drops its request and keeps the handle.
    Cancel(usize),
    /// The task is dropped with its request, and begins anew with another handle.
    Drop(usize),
    Serve,
    Idle,
}

fn steps() -> impl Strategy<Value = Step> {
    let lpn = 0..30u32;
    let operation = prop_oneof![
        2 => lpn.clone().prop_map(Operation::Read),
        4 => lpn.clone().prop_map(Operation::Write),
        1 => lpn.prop_map(Operation::Trim),
        1 => Just(Operation::Flush),
    ];
    prop_oneof![
        6 => (0..TASKS, operation).prop_map(|(task, operation)| Step::Ask(task, operation)),
        3 => (0..TASKS).prop_map(Step::Poll),
        1 => (0..TASKS).prop_map(Step::Cancel),
        1 => (0..TASKS).prop_map(Step::Drop),
        6 => Just(Step::Serve),
        1 => Just(Step::Idle),
    ]
}

/// What a task waits for, and what it is told.
#[derive(Default)]
struct Talk {
    /// The next operation, with the version to write.
    asked: Option<(Operation, u32)>,
    is_cancelled: bool,
    /// The version that was read, or 0.
    answers: Vec<u32>,
    is_woken: bool,
}

struct Told(Mutex<Talk>);

impl Wake for Told {
    fn wake(self: Arc<Self>) {
        self.0.lock().unwrap().is_woken = true;
    }
}

async fn task(mut disk: AsyncDisk<PAGE_BYTES, TASKS>, told: Arc<Told>) {
    loop {
        let (operation, version) = poll_fn(|_| match told.0.lock().unwrap().asked.take() {
            Some(asked) => Poll::Ready(asked),
            None => Poll::Pending,
        })
        .await;
        let mut page = page_of(version);
        let answer = {
            let mut asking = pin!(async {
                match operation {
                    Operation::Read(lpn) => disk.read(lpn, &mut page).await.map(|found| version_of(found, &page)),
                    Operation::Write(lpn) => disk.write(lpn, &page).await.map(|()| 0),
                    Operation::Trim(lpn) => disk.trim(lpn).await.map(|()| 0),
                    Operation::Flush => disk.flush().await.map(|()| 0),
                }
            });
            poll_fn(|context| match std::mem::take(&mut told.0.lock().unwrap().is_cancelled) {
                true => Poll::Ready(None),
                false => asking.as_mut().poll(context).map(Some),
            })
            .await
        };
        if let Some(answer) = answer {
            told.0.lock().unwrap().answers.push(answer.unwrap());
        }
    }
}

/// One of the tasks, and what it must be told.
struct Model {
    told: Arc<Told>,
    future: Pin<Box<dyn Future<Output = ()>>>,
    /// The request that it waits for, and its answer as soon as that was served.
    waits: Option<Option<u32>>,
}

impl Model {
    fn new(mailbox: &'static Mailbox<PAGE_BYTES, TASKS>) -> Self {
        let told = Arc::new(Told(Mutex::default()));
        let future = Box::pin(task(mailbox.open().unwrap(), told.clone()));
        Self { told, future, waits: None }
    }

    fn poll(&mut self) {
        let waker = Waker::from(self.told.clone());
        assert!(self.future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
}

/// Serves the request that is first in the model, if there is one, and compares.
fn serve(
    server: &mut Server<'_, Disk, PAGE_BYTES, TASKS>,
    models: &mut [Model],
    posted: &mut VecDeque<(usize, Operation, u32)>,
    versions: &mut [u32],
) {
    assert_eq!(server.serve_one(), !posted.is_empty());
    let Some((number, operation, version)) = posted.pop_front() else { return };
    let answer = match operation {
        Operation::Read(lpn) => versions[lpn as usize],
        Operation::Write(_) | Operation::Trim(_) | Operation::Flush => 0,
    };
    match operation {
        Operation::Write(lpn) => versions[lpn as usize] = version,
        Operation::Trim(lpn) => versions[lpn as usize] = 0,
        Operation::Read(_) | Operation::Flush => {}
    }
    assert!(std::mem::take(&mut models[number].told.0.lock().unwrap().is_woken), "task {number} is not woken");
    models[number].waits = Some(Some(answer));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_sequence_of_tasks_that_ask_wait_and_give_up_does_as_the_model(steps in prop::collection::vec(steps(), 1..400)) {
        let mailbox: &'static Mailbox<PAGE_BYTES, TASKS> = Box::leak(Box::default());
        let mut disk = formatted();
        let mut server = mailbox.server(&mut disk).unwrap();
        let mut models: [Model; TASKS] = std::array::from_fn(|_| Model::new(mailbox));
        let (mut posted, mut versions, mut version) = (VecDeque::new(), vec![0; PAGES as usize], 0);
        for step in steps {
            match step {
                Step::Ask(number, operation) if models[number].waits.is_none() => {
                    version += 1;
                    models[number].told.0.lock().unwrap().asked = Some((operation, version));
                    models[number].waits = Some(None);
                    models[number].poll();
                    posted.push_back((number, operation, version));
                }
                Step::Ask(..) => {}
                Step::Poll(number) => {
                    models[number].poll();
                    let expected = match models[number].waits {
                        Some(Some(answer)) => {
                            models[number].waits = None;
                            vec![answer]
                        }
                        _ => vec![],
                    };
                    prop_assert_eq!(std::mem::take(&mut models[number].told.0.lock().unwrap().answers), expected);
                }
                Step::Cancel(number) => {
                    if models[number].waits.take().is_some() {
                        models[number].told.0.lock().unwrap().is_cancelled = true;
                        models[number].poll();
                        posted.retain(|(task, ..)| *task != number);
                    }
                }
                Step::Drop(number) => {
                    // The old handle goes first, so that there is one to open.
                    models[number].future = Box::pin(std::future::pending());
                    models[number] = Model::new(mailbox);
                    posted.retain(|(task, ..)| *task != number);
                }
                Step::Serve => serve(&mut server, &mut models, &mut posted, &mut versions),
                Step::Idle => drop(server.idle(3)),
            }
        }
        while !posted.is_empty() {
            serve(&mut server, &mut models, &mut posted, &mut versions);
        }
        for (lpn, version) in (0..).zip(versions) {
            let mut page = [0; PAGE_BYTES];
            let is_written = server.disk_mut().read(lpn, &mut page).unwrap();
            prop_assert_eq!(version_of(is_written, &page), version);
        }
    }
}
