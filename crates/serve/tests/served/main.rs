//! The server by its sockets: a small disk in memory, and a client of a few lines.

mod chip;
mod client;
mod clients;
mod failures;
mod handshake;
mod recording;
mod requests;
mod server;
mod sockets;
