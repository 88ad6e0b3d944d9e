//! The log alone, under the simplest client: a list of places.

mod cached;
mod capacity;
mod cleaning;
mod client;
mod edges;
mod faults;
mod leveling;
mod order;
mod policies;
mod reads;
mod refused;
mod writing;
