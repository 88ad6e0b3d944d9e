//! The `margay` command. The only crate that prints or exits.
#![allow(clippy::print_stdout, clippy::print_stderr)]

/// Prints a line, and returns from the function if that fails: who pipes into `head` ends the command, without a panic.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::print_line(&format!($($text)*))? };
}

mod args;
mod commands;
mod failure;
mod in_use;
mod logging;
mod output;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = args::Cli::parse();
    match commands::run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.is_silent() {
                eprintln!("margay: {failure}");
            }
            failure.exit_code()
        }
    }
}
