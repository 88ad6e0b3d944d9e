//! The `margay` command.
fn main() {}
