//! Commands are careful with files: nothing is overwritten that they did not make, what they write comes into being whole,
//! and what is in use is left alone.

mod common;

#[path = "careful/files.rs"]
mod files;
#[path = "careful/hostile.rs"]
mod hostile;
#[path = "careful/images.rs"]
mod images;
#[path = "careful/private.rs"]
mod private;
#[path = "careful/repair.rs"]
mod repair;
#[path = "careful/sizes.rs"]
mod sizes;
