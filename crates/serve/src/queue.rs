//! The queue between the connections of a volume and its thread. Each connection has a lane of its own, first come first
//! served; the lanes take turns, one job each, so that a connection with much to do does not hold up the others. How
//! much may wait in a lane is for the connection to bound. While nothing waits and the thread does nothing, a connection can
//! enter in the place of the thread, which then need not be woken.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A queue: the end of the connections and that of the thread.
pub(crate) fn queue<T>() -> (Queue<T>, Inbox<T>) {
    let shared = Arc::new(Shared { state: Mutex::new(State::default()), changed: Condvar::new() });
    (Queue { shared: shared.clone() }, Inbox { shared, current: None, has_turn: false })
}

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    lanes: HashMap<u64, Waiting<T>>,
    /// Lanes in which something waits, in the order of their turns; without the one whose job the thread has.
    turns: VecDeque<u64>,
    /// The number of the next lane.
    next_lane: u64,
    /// Jobs taken from this time on are late.
    late_from: Option<Instant>,
    /// The thread has something to do, or a connection is in its place.
    is_busy: bool,
    /// A connection was in the thread's place since the thread looked last.
    was_entered: bool,
    /// The thread waits for a job, however long that takes.
    is_asleep: bool,
    is_stopping: bool,
    has_ended: bool,
}

impl<T> Default for State<T> {
    fn default() -> Self {
        Self {
            lanes: HashMap::new(),
            turns: VecDeque::new(),
            next_lane: 0,
            late_from: None,
            is_busy: false,
            was_entered: false,
            is_asleep: false,
            is_stopping: false,
            has_ended: false,
        }
    }
}

impl<T> State<T> {
    /// The next job, and whose it is.
    fn take(&mut self) -> Option<(u64, T)> {
        while let Some(id) = self.turns.pop_front() {
            // A lane that was cancelled is still among the turns.
            if let Some(job) = self.lanes.get_mut(&id).and_then(|lane| lane.jobs.pop_front()) {
                return Some((id, job));
            }
        }
        None
    }

    fn is_late(&self) -> bool {
        self.late_from.is_some_and(|time| Instant::now() >= time)
    }

    /// Gives a lane, of which the thread had a job, its next turn, if something waits in it or is left of the job. What is
    /// left of a job of a lane that was cancelled is not taken.
    fn settle(&mut self, id: u64, left: &mut Option<T>) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if let Some(job) = left.take() {
            lane.jobs.push_front(job);
        }
        if lane.jobs.is_empty() {
            lane.has_turn = false;
            if !lane.is_open {
                self.lanes.remove(&id);
            }
        } else {
            self.turns.push_back(id);
        }
    }
}

/// A lane as the thread sees it.
struct Waiting<T> {
    jobs: VecDeque<T>,
    /// It is among the turns, or the thread has a job of it.
    has_turn: bool,
    /// The connection's end exists.
    is_open: bool,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // No code that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread has ended.
#[derive(Debug)]
pub(crate) struct Closed;

/// The end of the connections.
pub(crate) struct Queue<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<T> Queue<T> {
    /// A lane for a connection.
    pub fn lane(&self) -> Lane<T> {
        let mut state = self.shared.lock();
        let id = state.next_lane;
        state.next_lane += 1;
        state.lanes.insert(id, Waiting { jobs: VecDeque::new(), has_turn: false, is_open: true });
        Lane { shared: self.shared.clone(), id }
    }

    /// From this time on, the thread gets its jobs as late ones.
    pub fn be_late_from(&self, time: Instant) {
        self.shared.lock().late_from = Some(time);
    }

    /// Asks the thread to stop after the jobs that are in the queue.
    pub fn stop(&self) {
        self.shared.lock().is_stopping = true;
        self.shared.changed.notify_one();
    }
}

/// A connection's end. What waits when it is dropped stays in the queue.
pub(crate) struct Lane<T> {
    shared: Arc<Shared<T>>,
    id: u64,
}

impl<T> Lane<T> {
    /// Puts a job behind the others of this lane.
    pub fn send(&self, job: T) -> Result<(), Closed> {
        let mut guard = self.shared.lock();
        let state = &mut *guard;
        if state.has_ended {
            return Err(Closed);
        }
        if let Some(lane) = state.lanes.get_mut(&self.id) {
            lane.jobs.push_back(job);
            if !lane.has_turn {
                lane.has_turn = true;
                state.turns.push_back(self.id);
            }
        }
        // Who is in the thread's place wakes it when leaving.
        let is_free = !state.is_busy;
        drop(guard);
        if is_free {
            self.shared.changed.notify_one();
        }
        Ok(())
    }

    /// Takes the place of the thread, if nothing waits and the thread does nothing.
    pub fn enter(&self) -> Option<Entered<'_, T>> {
        let mut state = self.shared.lock();
        let is_ending = state.is_stopping || state.has_ended || state.late_from.is_some();
        if state.is_busy || is_ending || !state.turns.is_empty() {
            return None;
        }
        state.is_busy = true;
        if state.is_asleep {
            self.shared.changed.notify_one();
        }
        Some(Entered { shared: &self.shared })
    }

    /// Forgets what waits in this lane, and what is left of the job that the thread has.
    pub fn cancel(&self) {
        let forgotten = self.shared.lock().lanes.remove(&self.id);
        // Not under the lock: this frees the memory of the jobs.
        drop(forgotten);
    }
}

/// A connection is in the place of the thread while this exists.
pub(crate) struct Entered<'a, T> {
    shared: &'a Shared<T>,
}

impl<T> Drop for Entered<'_, T> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        (state.is_busy, state.was_entered) = (false, true);
        let is_waited_for = !state.turns.is_empty() || state.is_stopping;
        drop(state);
        if is_waited_for {
            self.shared.changed.notify_one();
        }
    }
}

impl<T> Drop for Lane<T> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if let Some(lane) = state.lanes.get_mut(&self.id) {
            lane.is_open = false;
            if !lane.has_turn {
                state.lanes.remove(&self.id);
            }
        }
    }
}

/// What the thread received.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received<T> {
    Job {
        job: T,
        /// It was taken after [`Queue::be_late_from`].
        is_late: bool,
    },
    /// No job came in the time given. Until the next call no connection takes the thread's place.
    Nothing,
    /// A connection was in the thread's place in the time given, or has come there while the thread was asleep.
    Entered {
        /// It is there now: what it does may take long.
        is_inside: bool,
    },
    Stop,
}

/// The thread's end.
pub(crate) struct Inbox<T> {
    shared: Arc<Shared<T>>,
    /// The lane of the job that the thread has.
    current: Option<u64>,
    /// The thread has something to do.
    has_turn: bool,
}

impl<T> Inbox<T> {
    /// The job of the lane whose turn it is; waits for one no longer than `timeout`, if there is one. The job taken
    /// before is done, but for what is `left` of it: that comes first when its lane has its next turn.
    pub fn next(&mut self, left: Option<T>, timeout: Option<Duration>) -> Received<T> {
        self.settle(left);
        let mut guard = self.shared.lock();
        if std::mem::take(&mut self.has_turn) {
            guard.is_busy = false;
        }
        let until = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            let state = &mut *guard;
            if !state.is_busy {
                if let Some((id, job)) = state.take() {
                    (self.current, self.has_turn, state.is_busy) = (Some(id), true, true);
                    return Received::Job { job, is_late: state.is_late() };
                }
                if state.is_stopping {
                    return Received::Stop;
                }
            }
            let wait = until.map(|until| until.saturating_duration_since(Instant::now()));
            let is_inside = state.is_busy;
            if wait.is_none_or(|wait| wait.is_zero()) && (std::mem::take(&mut state.was_entered) || is_inside) {
                return Received::Entered { is_inside };
            }
            let changed = &self.shared.changed;
            guard = match wait {
                Some(Duration::ZERO) => {
                    (self.has_turn, state.is_busy) = (true, true);
                    return Received::Nothing;
                }
                Some(wait) => changed.wait_timeout(guard, wait).unwrap_or_else(PoisonError::into_inner).0,
                None => {
                    state.is_asleep = true;
                    let mut guard = changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
                    guard.is_asleep = false;
                    guard
                }
            };
        }
    }

    /// The next job, if one waits, as from [`Inbox::next`].
    pub fn try_next(&mut self, left: Option<T>) -> Option<(T, bool)> {
        self.settle(left);
        let mut state = self.shared.lock();
        let (id, job) = if self.has_turn { state.take()? } else { return None };
        self.current = Some(id);
        Some((job, state.is_late()))
    }

    /// The job taken before is done, but for what is left of it.
    fn settle(&mut self, mut left: Option<T>) {
        if let Some(id) = self.current.take() {
            self.shared.lock().settle(id, &mut left);
        }
        // Not under the lock: this frees the memory of the job.
        drop(left);
    }
}

impl<T> Drop for Inbox<T> {
    /// Tells the connections that nothing is carried out any more.
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.has_ended = true;
        let forgotten = std::mem::take(&mut state.lanes);
        drop(state);
        drop(forgotten);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Option<Duration> = Some(Duration::ZERO);

    fn next<T>(inbox: &mut Inbox<T>, left: Option<T>) -> Option<T> {
        match inbox.next(left, NOW) {
            Received::Job { job, .. } => Some(job),
            Received::Nothing | Received::Entered { .. } | Received::Stop => None,
        }
    }

    #[test]
    fn lanes_take_turns_and_each_is_first_come_first_served() {
        let (queue, mut inbox) = queue();
        let (busy, other) = (queue.lane(), queue.lane());
        for i in 0..4 {
            busy.send(i).unwrap();
        }
        other.send(10).unwrap();
        assert_eq!([(); 2].map(|()| next(&mut inbox, None)), [Some(0), Some(10)]);
        // The thread has a job of this lane: the next one waits for the next turn.
        other.send(11).unwrap();
        assert_eq!([(); 5].map(|()| next(&mut inbox, None)), [Some(1), Some(11), Some(2), Some(3), None]);
        busy.send(4).unwrap();
        assert_eq!(next(&mut inbox, None), Some(4));
    }

    #[test]
    fn what_is_left_of_a_job_comes_before_what_waits_behind_it_and_after_the_other_lanes() {
        let (queue, mut inbox) = queue();
        let (long, other) = (queue.lane(), queue.lane());
        for (lane, job) in [(&long, 30), (&long, 40), (&other, 1), (&other, 2)] {
            lane.send(job).unwrap();
        }
        assert_eq!(next(&mut inbox, None), Some(30));
        assert_eq!(next(&mut inbox, Some(31)), Some(1));
        assert_eq!(next(&mut inbox, None), Some(31));
        assert_eq!([next(&mut inbox, None), next(&mut inbox, None)], [Some(2), Some(40)]);
        // Alone, it goes on at once.
        assert_eq!([next(&mut inbox, Some(41)), next(&mut inbox, Some(42))], [Some(41), Some(42)]);
        assert_eq!(next(&mut inbox, None), None);
    }

    #[test]
    fn a_lane_that_is_dropped_leaves_its_jobs_and_one_that_is_cancelled_does_not() {
        let (queue, mut inbox) = queue();
        let (gone, cancelled) = (queue.lane(), queue.lane());
        for job in [1, 2] {
            gone.send(job).unwrap();
            cancelled.send(job + 10).unwrap();
        }
        drop(gone);
        assert_eq!([(); 2].map(|()| next(&mut inbox, None)), [Some(1), Some(11)]);
        cancelled.cancel();
        assert_eq!(next(&mut inbox, Some(12)), Some(2), "not even what was left of it");
        assert_eq!(next(&mut inbox, None), None);
        cancelled.send(13).unwrap();
        assert_eq!(next(&mut inbox, None), None);
        assert!(inbox.shared.lock().lanes.is_empty(), "nothing stays behind");
    }

    #[test]
    fn the_thread_is_woken_by_a_job_and_by_the_end() {
        let (queue, mut inbox) = queue();
        let lane = queue.lane();
        let thread = std::thread::spawn(move || [inbox.next(None, None), inbox.next(None, None)]);
        lane.send(1).unwrap();
        std::thread::sleep(Duration::from_millis(5));
        queue.stop();
        assert_eq!(thread.join().unwrap(), [Received::Job { job: 1, is_late: false }, Received::Stop]);
        assert!(lane.send(2).is_err(), "the thread has ended");
    }

    #[test]
    fn a_connection_takes_the_place_of_a_thread_that_has_nothing_to_do() {
        let (queue, mut inbox) = queue();
        let (lane, other) = (queue.lane(), queue.lane());
        let entered = lane.enter().expect("nothing waits");
        assert!(other.enter().is_none(), "there is one place");
        other.send(1).unwrap();
        let (inside, left) = (Received::Entered { is_inside: true }, Received::Entered { is_inside: false });
        assert_eq!(inbox.next(None, NOW), inside, "the place is taken, the job waits");
        drop(entered);
        assert!(lane.enter().is_none(), "a job waits");
        assert_eq!(next(&mut inbox, None), Some(1));
        assert!(lane.enter().is_none(), "the thread has a job");
        assert_eq!(inbox.try_next(None), None);
        assert!(lane.enter().is_none(), "the thread may have something to do after it");
        assert_eq!(inbox.next(None, NOW), left);
        assert_eq!(inbox.next(None, NOW), Received::Nothing);
        assert!(lane.enter().is_none(), "the thread works while it is idle");
        let long = Some(Duration::from_secs(20));
        let thread = std::thread::spawn(move || [inbox.next(None, None), inbox.next(None, long)]);
        while !lane.shared.lock().is_asleep {
            std::thread::sleep(Duration::from_millis(1));
        }
        let entered = lane.enter().expect("the thread sleeps");
        std::thread::sleep(Duration::from_millis(5));
        queue.stop();
        assert!(lane.enter().is_none(), "it stops");
        drop(entered);
        assert_eq!(thread.join().unwrap(), [inside, Received::Stop]);
    }

    #[test]
    fn stopping_comes_after_what_waits_which_is_late_from_a_time_on() {
        let (queue, mut inbox) = queue();
        let lane = queue.lane();
        for job in [1, 2] {
            lane.send(job).unwrap();
        }
        queue.be_late_from(Instant::now() + Duration::from_secs(1000));
        assert_eq!(inbox.next(None, None), Received::Job { job: 1, is_late: false });
        queue.stop();
        queue.be_late_from(Instant::now());
        assert_eq!(inbox.next(None, None), Received::Job { job: 2, is_late: true });
        assert_eq!(inbox.next(None, None), Received::Stop);
    }
}
