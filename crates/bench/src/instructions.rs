use crate::doors::Door;
use crate::speed::Uniform;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::process::Command;

/// The budgets of budget.toml: the greatest number of instructions that each case may take.
#[derive(Debug, Deserialize)]
struct Budget {
    instructions_per_host_write: BTreeMap<String, u64>,
    instructions_per_disk_write: u64,
    instructions_per_served_write: u64,
    instructions_per_served_read: u64,
    instructions_per_mounted_write: u64,
    instructions_per_reference: u64,
    instructions_per_trace_line: BTreeMap<String, u64>,
}

const BUDGET: &str = include_str!("../budget.toml");
const FEW: u64 = 500_000;
const MANY: u64 = 1_500_000;

/// One run under callgrind: `count SELECTION PLACEMENT WRITES`.
pub fn count(args: &[String]) -> Result<(), String> {
    let [selection, placement, writes] = args else { return Err("usage: count SELECTION PLACEMENT WRITES".into()) };
    let writes = writes.parse().map_err(|_| format!("'{writes}' is not a number of writes"))?;
    let mut uniform = Uniform::new(1024, selection, placement)?;
    uniform.write(500_000)?;
    uniform.disk.reset_counters();
    uniform.write(writes)?;
    println!("{}", uniform.programs());
    Ok(())
}

fn instructions(selection: &str, placement: &str, writes: u64) -> Result<(u64, u64), String> {
    under_callgrind("margay-bench", &["count", selection, placement, &writes.to_string()])
}

/// Runs a program that lies beside this one, or this one, under callgrind: the instructions of the run, and the number that it
/// printed.
fn under_callgrind(program: &str, args: &[&str]) -> Result<(u64, u64), String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let program = own.with_file_name(program);
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(&program)
        .args(args)
        .output()
        .map_err(|error| {
            format!("valgrind cannot be run ({error}); install it, for example with apt-get install valgrind")
        })?;
    let (out, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let number = |text: &str| text.trim().replace(',', "").parse().ok();
    let total = log.lines().find_map(|line| number(line.split_once("refs:")?.1));
    match (total, number(&out)) {
        (Some(total), Some(programs)) => Ok((total, programs)),
        _ => Err(format!("callgrind printed no count for {args:?}; its output: {log}")),
    }
}

pub fn run() -> Result<(), String> {
    let budget: Budget = toml::from_str(BUDGET).map_err(|error| error.to_string())?;
    println!("1 GiB, uniform random writes, generator included; the difference of {MANY} and {FEW} host writes");
    println!("{:>22} {:>22} {:>22} {:>8}", "policy", "instr / host write", "instr / program", "budget");
    let mut exceeded = Vec::new();
    for (name, max) in &budget.instructions_per_host_write {
        let (selection, placement) =
            name.split_once(" + ").ok_or(format!("budget.toml: '{name}' is not 'selection + placement'"))?;
        let few = instructions(selection, placement, FEW)?;
        let many = instructions(selection, placement, MANY)?;
        let per_write = (many.0 - few.0) as f64 / (MANY - FEW) as f64;
        let per_program = (many.0 - few.0) as f64 / (many.1 - few.1) as f64;
        println!("{name:>22} {per_write:>22.1} {per_program:>22.1} {max:>8}");
        if per_write > *max as f64 {
            exceeded.push(format!("{name}: {per_write:.1} instructions per host write, budget {max}"));
        }
    }
    let (few, many) = (
        under_callgrind("margay-bench", &["disk-count", "10000"])?,
        under_callgrind("margay-bench", &["disk-count", "30000"])?,
    );
    let per_write = (many.0 - few.0) as f64 / 20_000.0;
    let max = budget.instructions_per_disk_write;
    println!(
        "a 4 KiB write to the disk on a device in memory, 75 % full, uniform, CRC included: {per_write:.0}, budget {max}"
    );
    if per_write > max as f64 {
        exceeded.push(format!("disk: {per_write:.0} instructions per write, budget {max}"));
    }
    for (door, what, max) in [
        (Door::ServedWrite, "a 4 KiB write over NBD, one at a time", budget.instructions_per_served_write),
        (Door::ServedRead, "a 4 KiB read over NBD, one at a time", budget.instructions_per_served_read),
        (Door::MountedWrite, "a 4 KiB write to a mounted file", budget.instructions_per_mounted_write),
    ] {
        if let Some(why) = door.missing() {
            println!("{what}: not counted; {why}");
            continue;
        }
        let per_request = door.instructions()?;
        println!("{what}, all of the server: {per_request:.0}, budget {max}");
        if per_request > max as f64 {
            exceeded.push(format!("{what}: {per_request:.0} instructions, budget {max}"));
        }
    }
    let count =
        |references: u64| under_callgrind("margay-bench", &["paging-count", "lda-gc5", &references.to_string()]);
    let (few, many) = (count(1_000_000)?, count(3_000_000)?);
    let per_reference = (many.0 - few.0) as f64 / 2_000_000.0;
    let misses = (many.1 - few.1) as f64 / 2_000_000.0;
    let max = budget.instructions_per_reference;
    println!(
        "a page reference under LDA-GC5 with 32 log blocks, {:.1} % misses, generator included: {per_reference:.0}, budget {max}",
        misses * 100.0
    );
    if per_reference > max as f64 {
        exceeded.push(format!("paging: {per_reference:.0} instructions per reference, budget {max}"));
    }
    println!("lines of traces, 30 to 80 bytes each, from the text to the request");
    for (name, max) in &budget.instructions_per_trace_line {
        let count = |lines: u64| under_callgrind("margay-bench-lines", &[name, &lines.to_string()]);
        let per_line = (count(50_000)?.0 - count(10_000)?.0) as f64 / 40_000.0;
        println!("{name:>22} {per_line:>22.1} {:>22} {max:>8}", "");
        if per_line > *max as f64 {
            exceeded.push(format!("{name}: {per_line:.1} instructions per line, budget {max}"));
        }
    }
    if exceeded.is_empty() { Ok(()) } else { Err(exceeded.join("; ")) }
}
