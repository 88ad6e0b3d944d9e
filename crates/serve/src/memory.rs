//! Memory for the data of requests and replies, in bytes: so much for all connections, so much for one. Each connection is
//! sure of a share of its own; what is beyond that comes from a common stock. A connection whose client does not read its
//! replies, or that sends half a write, can therefore not take what the others need.

use crate::ServeError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Counted for each unanswered request beside its data.
pub(crate) const REQUEST_OVERHEAD_BYTES: usize = 512;
/// Requests are carried out in pieces of at most this many bytes; of fewer if memory is scarce.
const MAX_PIECE_BYTES: usize = 1 << 20;
/// The share of a connection is at most this: what one client needs to be served at full speed.
const MAX_OWN_BYTES: usize = 3 << 20;
/// Buffers of at least this size are used again: for each, the system would map new memory, page by page.
const MIN_REUSED_BYTES: usize = 128 << 10;
/// The maximum number of buffers that wait to be used again; they are beside what is in use.
const MAX_SPARE_BUFFERS: usize = 4;
/// A connection with a share below this is not served well.
const MIN_OWN_BYTES: usize = 64 << 10;

/// The memory of all connections.
#[derive(Debug)]
pub(crate) struct Memory {
    /// What each connection is sure of.
    own_bytes: usize,
    /// What a connection can have, its own share included.
    max_bytes: usize,
    /// What is left of the common stock.
    stock_bytes: AtomicUsize,
    /// Empty buffers, to be used again.
    spare_buffers: Mutex<Vec<Vec<u8>>>,
}

impl Memory {
    /// Divides memory: three quarters of it, at most, are for the shares.
    ///
    /// # Errors
    /// It is too little.
    pub fn new(total_bytes: u64, per_connection_bytes: u64, connections: usize) -> Result<Arc<Self>, ServeError> {
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX / 2);
        let (total_bytes, max_bytes) = (bytes(total_bytes), bytes(per_connection_bytes));
        for (allowed_bytes, connections) in [(total_bytes, connections), (max_bytes, 1)] {
            let needed_bytes = (MIN_OWN_BYTES * connections).div_ceil(3) * 4;
            if allowed_bytes < needed_bytes {
                return Err(ServeError::TooLittleMemory { allowed_bytes, needed_bytes, connections });
            }
        }
        let own_bytes = (total_bytes / 4 * 3 / connections).min(MAX_OWN_BYTES).min(max_bytes);
        let stock_bytes = AtomicUsize::new(total_bytes - own_bytes * connections);
        Ok(Arc::new(Self { own_bytes, max_bytes, stock_bytes, spare_buffers: Mutex::default() }))
    }

    /// The maximum length of the pieces in which requests are carried out: two of them, with what is around them, fit into
    /// the share of a connection.
    pub fn piece_bytes(&self) -> usize {
        let half = self.own_bytes / 2 - 2 * REQUEST_OVERHEAD_BYTES;
        (1 << half.ilog2()).min(MAX_PIECE_BYTES)
    }

    fn spare_buffers(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.spare_buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The memory of one connection.
#[derive(Debug)]
pub(crate) struct Allowance {
    memory: Arc<Memory>,
    used_bytes: Mutex<usize>,
    released: Notify,
}

/// Memory in use. It is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    allowance: Arc<Allowance>,
    bytes: usize,
}

impl Allowance {
    pub fn new(memory: Arc<Memory>) -> Arc<Self> {
        Arc::new(Self { memory, used_bytes: Mutex::new(0), released: Notify::new() })
    }

    fn used(&self) -> MutexGuard<'_, usize> {
        self.used_bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of `used` bytes, those that are beyond the own share.
    fn beyond(&self, used: usize) -> usize {
        used.saturating_sub(self.memory.own_bytes)
    }

    /// Takes memory if there is some. A connection that has none gets what it asks for.
    pub fn try_take(self: &Arc<Self>, bytes: usize) -> Option<Held> {
        let memory = &self.memory;
        let mut used = self.used();
        let wanted = *used + bytes;
        if wanted > memory.max_bytes && *used > 0 {
            return None;
        }
        let from_stock = self.beyond(wanted) - self.beyond(*used);
        if from_stock > 0 {
            let take = |stock: usize| stock.checked_sub(from_stock);
            memory.stock_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        }
        *used = wanted;
        Some(Held { allowance: self.clone(), bytes })
    }

    /// Takes memory, and waits for it if there is none: until the connection itself has given back some, as it does when
    /// its requests have been carried out and its client has taken the replies. To be called by one task only.
    pub async fn take(self: &Arc<Self>, bytes: usize) -> Held {
        loop {
            if let Some(held) = self.try_take(bytes) {
                return held;
            }
            self.released.notified().await;
        }
    }

    fn give_back(&self, bytes: usize) {
        let mut used = self.used();
        let rest = *used - bytes;
        let to_stock = self.beyond(*used) - self.beyond(rest);
        *used = rest;
        drop(used);
        self.memory.stock_bytes.fetch_add(to_stock, Ordering::Relaxed);
        self.released.notify_one();
    }
}

impl Held {
    /// An empty buffer for `len_bytes`: one that was used before, if there is one that is not much larger.
    pub fn buffer(&self, len_bytes: usize) -> Vec<u8> {
        if len_bytes >= MIN_REUSED_BYTES {
            let mut spare = self.allowance.memory.spare_buffers();
            let fits = |buffer: &Vec<u8>| (len_bytes..=2 * len_bytes).contains(&buffer.capacity());
            if let Some(at) = spare.iter().position(fits) {
                return spare.swap_remove(at);
            }
        }
        Vec::with_capacity(len_bytes)
    }

    /// Keeps a buffer for later requests, if it is one that is worth it.
    pub fn reuse(&self, mut buffer: Vec<u8>) {
        if buffer.capacity() < MIN_REUSED_BYTES {
            return;
        }
        buffer.clear();
        let mut spare = self.allowance.memory.spare_buffers();
        if spare.len() == MAX_SPARE_BUFFERS {
            // The oldest one, so that sizes that are no longer asked for do not stay.
            spare.remove(0);
        }
        spare.push(buffer);
    }

    /// Gives back all but so many bytes.
    pub fn shrink(&mut self, bytes: usize) {
        if bytes < self.bytes {
            self.allowance.give_back(self.bytes - bytes);
            self.bytes = bytes;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.allowance.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: usize = 1 << 10;
    const M: usize = 1 << 20;

    fn memory(total: usize, per_connection: usize, connections: usize) -> Arc<Memory> {
        Memory::new(total as u64, per_connection as u64, connections).unwrap()
    }

    #[test]
    fn a_connection_has_its_share_when_others_have_taken_all_of_the_stock() {
        let memory = memory(16 * M, 3 * M, 12);
        assert_eq!(memory.own_bytes, M);
        let [greedy, second, third, modest] = [(); 4].map(|()| Allowance::new(memory.clone()));
        let taken = [&greedy, &greedy, &second, &second].map(|one| one.try_take(3 * M / 2).unwrap());
        assert!(greedy.try_take(1).is_none(), "it has what a connection can have");
        assert!(third.try_take(M + 1).is_none(), "the stock is empty");
        let own = [third.try_take(M).unwrap(), modest.try_take(M / 2).unwrap(), modest.try_take(M / 2).unwrap()];
        assert!(modest.try_take(1).is_none());
        drop(taken);
        assert!(modest.try_take(2 * M).is_some());
        drop(own);
        assert_eq!(memory.stock_bytes.load(Ordering::Relaxed), 4 * M, "all was given back");
    }

    #[test]
    fn memory_that_was_waited_for_comes_when_the_connection_gives_some_back() {
        let allowance = Allowance::new(memory(2 * M, 256 * K, 1));
        let mut first = allowance.try_take(256 * K).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let waiting = allowance.clone();
        runtime.block_on(async {
            let task = tokio::spawn(async move { waiting.take(100 * K).await });
            tokio::task::yield_now().await;
            assert!(!task.is_finished());
            first.shrink(200 * K);
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            assert!(!task.is_finished(), "that was not enough");
            first.shrink(100 * K);
            assert_eq!(task.await.unwrap().bytes, 100 * K);
        });
        assert!(allowance.try_take(257 * K).is_none());
        drop(first);
        assert!(allowance.try_take(300 * K).is_some(), "a connection that has nothing gets what it asks for");
    }

    #[test]
    fn large_buffers_are_used_again_for_requests_of_about_their_size_and_only_a_few_are_kept() {
        let memory = memory(64 * M, 16 * M, 2);
        let [held, other] = [(); 2].map(|()| Allowance::new(memory.clone()).try_take(M).unwrap());
        let mut first = held.buffer(M);
        first.push(1);
        let (address, small) = (first.as_ptr(), held.buffer(K));
        held.reuse(first);
        held.reuse(small);
        assert_eq!(memory.spare_buffers().len(), 1, "the small one is not worth it");
        let short = other.buffer(256 * K);
        assert_ne!(short.as_ptr(), address, "that would be four times as much as is counted");
        let again = other.buffer(M - K);
        assert!(again.as_ptr() == address && again.is_empty());
        for len in 1..=10 {
            held.reuse(Vec::with_capacity(len * M));
        }
        let kept: Vec<_> = memory.spare_buffers().iter().map(|buffer| buffer.capacity() / M).collect();
        assert_eq!(kept, [7, 8, 9, 10]);
    }

    #[test]
    fn two_pieces_fit_into_a_share_and_too_small_shares_are_refused() {
        for (total, connections, piece) in [(256 * M, 64, M), (64 * M, 1, M), (2 * M, 16, 32 * K)] {
            let memory = memory(total, 16 * M, connections);
            assert_eq!(memory.piece_bytes(), piece, "{total} for {connections}");
            assert!(2 * (piece + 2 * REQUEST_OVERHEAD_BYTES) <= memory.own_bytes);
        }
        let refused = |total: usize, one: usize| Memory::new(total as u64, one as u64, 64).unwrap_err().to_string();
        assert!(
            refused(M, M).starts_with("1048576 bytes of memory are too little for 64 connections, which need 5592")
        );
        assert!(refused(64 * M, K).starts_with("1024 bytes of memory are too little for 1 connections"));
    }
}
