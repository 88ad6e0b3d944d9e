//! `margay-bench speed [GiB...] [SELECTION+PLACEMENT...]`: pages programmed per second, by turns with a floor measured in the same
//! process.
//! `margay-bench instructions`: instructions per host write, and per line of a trace, under callgrind, compared with
//! budget.toml. `margay-bench
//! disk`: write amplification, the slowest write and the mount of the disk, with all metadata counted. `margay-bench
//! map [TRACE...]`: what a map on flash costs, by its memory. `margay-bench
//! paging`: page references per second by the number of log blocks, and memory. `margay-bench m6`: the erases that the
//! O(1) mean of M6 costs, compared with the exact mean. `margay-bench files`: a mounted file
//! system beside ext4 and beside a program that passes every call through FUSE. `margay-bench file-policies`: write amplification
//! of file systems under pairs of policies.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod disk;
mod doors;
mod file_policies;
mod files;
mod instructions;
mod m6;
mod map;
mod paging;
mod speed;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rest = args.get(1..).unwrap_or_default();
    let result = match args.first().map(String::as_str) {
        Some("speed") => speed::run(rest),
        Some("instructions") => instructions::run(),
        Some("count") => instructions::count(rest),
        Some("m6") => m6::run(),
        Some("map") => map::run(rest),
        Some("disk") => disk::run(rest),
        Some("disk-count") => disk::count(rest),
        Some("paging") => paging::run(),
        Some("paging-count") => paging::count(rest),
        Some("files") => files::run(rest),
        Some("file-policies") => file_policies::run(rest),
        _ => Err("usage: margay-bench speed [GiB...] [SELECTION+PLACEMENT...] | instructions | m6 | disk [LOW_WATER] | map [TRACE...] | paging | files [MARGAY] | file-policies [FULL...]".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("margay-bench: {message}");
            ExitCode::FAILURE
        }
    }
}
