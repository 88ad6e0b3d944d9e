mod bench;
mod compare;
mod files;
mod format;
mod generate;
mod inspect;
mod model;
mod mount;
mod policies;
mod progress;
mod replay;
mod reproduce;
mod serve;
mod trace;
mod vm;
mod vm_run;

use crate::args::{Cli, Command};
use crate::failure::Failure;
use clap::CommandFactory;

pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Format(args) => format::run(&args),
        Command::Serve(args) => serve::run(args),
        Command::Mount(args) => mount::run(&args),
        Command::Fs(command) => files::run(command),
        Command::Info { image, json } => inspect::info(&image, json),
        Command::Check { image } => inspect::check(&image),
        Command::Dump { image, segment } => inspect::dump(&image, segment),
        Command::Replay(args) => replay::run(args),
        Command::Compare(args) => compare::run(args),
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
        Command::Man { folder } => {
            std::fs::create_dir_all(&folder).map_err(|error| Failure::write(&folder.display().to_string(), error))?;
            clap_mangen::generate_to(Cli::command(), &folder)
                .map_err(|error| Failure::write(&folder.display().to_string(), error))
        }
    }
}
