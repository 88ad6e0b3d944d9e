//! `touch heap|FILE|random:FILE MIB ACCESSES`: fills memory of its heap, or a mapping of a file, the last with the kernel
//! told not to read ahead, and then reads and writes it at
//! random, four accesses of five in a fifth of it, one of three a write. Prints a checksum and what it took.
#![allow(clippy::print_stdout, reason = "a program that reports")]

use std::time::Instant;

fn mixed(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

fn touch(memory: &mut [u64], accesses: u64) -> u64 {
    for (at, word) in memory.iter_mut().enumerate() {
        *word = at as u64;
    }
    let (mut state, mut sum) = (1, 0u64);
    for step in 0..accesses {
        let span = if mixed(&mut state) % 5 < 4 { memory.len() / 5 } else { memory.len() };
        let at = mixed(&mut state) as usize % span;
        sum = sum.wrapping_mul(31).wrapping_add(memory[at]);
        if mixed(&mut state).is_multiple_of(3) {
            memory[at] = step;
        }
    }
    sum
}

/// Maps a file of so many bytes.
fn map(path: &str, bytes: usize, random: bool) -> std::io::Result<&'static mut [u64]> {
    use std::os::fd::AsRawFd;
    let file = std::fs::File::options().read(true).write(true).create(true).truncate(true).open(path)?;
    file.set_len(bytes as u64)?;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of a file that is as long.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if start == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    if random {
        // SAFETY: the range was just mapped.
        unsafe { libc::madvise(start, bytes, libc::MADV_RANDOM) };
    }
    // SAFETY: the mapping is as long, and nobody else's.
    Ok(unsafe { std::slice::from_raw_parts_mut(start.cast(), bytes / 8) })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, place, mib, accesses] = &arguments[..] else {
        return Err("usage: touch heap|FILE|random:FILE MIB ACCESSES".into());
    };
    let words = mib.parse::<usize>()? << 17;
    let start = Instant::now();
    let sum = if place == "heap" {
        touch(&mut vec![0; words], accesses.parse()?)
    } else {
        let (path, random) = place.strip_prefix("random:").map_or((place.as_str(), false), |path| (path, true));
        touch(map(path, words * 8, random)?, accesses.parse()?)
    };
    let seconds = start.elapsed().as_secs_f64();
    let io = std::fs::read_to_string("/proc/self/io")?;
    let of = |name: &str| -> u64 {
        let line = io.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.trim().parse().ok()).unwrap_or(0)
    };
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!("checksum {sum:016x}, {seconds:.2} s");
    println!("disk: {:.1} MiB read, {:.1} MiB written", mib(of("read_bytes:")), mib(of("write_bytes:")));
    Ok(())
}
