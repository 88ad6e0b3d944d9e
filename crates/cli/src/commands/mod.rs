mod advise;
mod bench;
mod compare;
mod device;
mod engine;
mod files;
mod format;
mod fs_copy;
mod fs_list;
mod generate;
mod health;
mod inspect;
mod model;
mod mount;
mod policies;
mod progress;
mod repair;
mod replay;
mod reproduce;
mod serve;
mod sweep;
mod trace;
mod vm;
mod vm_run;

use crate::args::{Cli, Command};
use crate::failure::Failure;
use crate::output::{check_new, write_file};
use clap::CommandFactory;
use margay_host::Existing;
use std::path::Path;

pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Format(args) => format::run(&args),
        Command::Serve(args) => serve::run(args),
        Command::Mount(args) => mount::run(&args),
        Command::Fs(command) => files::run(command),
        Command::Info { image, json } => inspect::info(&image, json),
        Command::Check { image, repair } => inspect::check(&image, &repair),
        Command::Dump { image, segment } => inspect::dump(&image, segment),
        Command::Replay(args) => replay::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Advise(args) => advise::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Trace(command) => trace::run(command),
        Command::Policies { what, markdown } => policies::run(what, markdown),
        Command::Vm(command) => vm::run(command),
        Command::Reproduce(command) => reproduce::run(command),
        Command::Model { name, values } => model::run(name, &values),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "margay", &mut text);
            crate::output::print_bytes(&text)
        }
        Command::Man { folder, force } => manual(&folder, force.existing()),
    }
}

/// Writes the manual pages to a folder.
fn manual(folder: &Path, existing: Existing) -> Result<(), Failure> {
    let made = tempfile::tempdir()?;
    clap_mangen::generate_to(Cli::command(), made.path())?;
    let mut pages = std::fs::read_dir(made.path())?.collect::<Result<Vec<_>, _>>()?;
    pages.sort_by_key(std::fs::DirEntry::file_name);
    for page in &pages {
        check_new(Some(&folder.join(page.file_name())), existing)?;
    }
    for page in &pages {
        write_file(&folder.join(page.file_name()), &std::fs::read(page.path())?, existing)?;
    }
    Ok(())
}
