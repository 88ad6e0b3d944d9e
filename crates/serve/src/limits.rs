use crate::ServeError;
use crate::memory::Memory;
use std::sync::Arc;
use std::time::Duration;

/// What clients may take, in bytes, numbers and time, so that none can hold up the server or another client.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The maximum number of connections at once. Further clients wait for one to end; one that has been without progress
    /// in its handshake, in sending a request or in taking replies for a second makes room for them.
    pub max_connections: usize,
    /// The maximum number of unanswered requests of a connection; further ones are not read from its socket.
    pub max_requests: usize,
    /// The maximum of memory for the data of requests and of replies not yet sent, of all connections. Three quarters of
    /// it are shared out: what a connection is sure of, whatever the others do.
    pub max_memory_bytes: u64,
    /// The same for one connection. A connection that has no more is not read from.
    pub max_connection_memory_bytes: u64,
    /// A client that has not completed its handshake, TLS included, after this time is disconnected.
    pub handshake_timeout: Duration,
    /// A client that has begun a request and does not go on with it, or takes none of the replies that wait for it, for
    /// this long is disconnected. One that has begun none may stay for as long as it likes.
    pub client_timeout: Duration,
    /// The time that a stop may take beside that of the volumes: requests in the queue are carried out for half of it,
    /// then refused; for the rest their replies are sent.
    pub stop_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 64,
            max_requests: 64,
            max_memory_bytes: 256 << 20,
            max_connection_memory_bytes: 16 << 20,
            handshake_timeout: Duration::from_secs(10),
            client_timeout: Duration::from_secs(30),
            stop_timeout: Duration::from_millis(900),
        }
    }
}

impl Limits {
    /// Checks that the memory is enough for the connections.
    ///
    /// # Errors
    /// [`ServeError::TooLittleMemory`].
    pub fn check(&self) -> Result<(), ServeError> {
        self.memory().map(drop)
    }

    pub(crate) fn memory(&self) -> Result<Arc<Memory>, ServeError> {
        Memory::new(self.max_memory_bytes, self.max_connection_memory_bytes, self.max_connections)
    }
}
