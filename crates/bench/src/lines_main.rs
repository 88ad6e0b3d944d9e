//! Reads lines of a trace, for callgrind. A program of its own, because which functions the compiler puts into which depends
//! on all that a program holds: with the engine beside them, lines cost up to 12 % more or less by what changed in that.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use margay_trace::{Format, ReadOptions, TraceReader};
use std::fmt::Write as _;
use std::io::{self, Read};
use std::process::ExitCode;

/// A text, and how much of it was read.
struct Text(Vec<u8>, usize);

impl Read for Text {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = buffer.len().min(self.0.len() - self.1);
        let text = &self.0[self.1..self.1 + len];
        // This stands for the kernel's copying. In small parts, because a large one is a single instruction of the processor,
        // which valgrind counts once for every byte.
        buffer[..len].chunks_mut(1024).zip(text.chunks(1024)).for_each(|(to, from)| to.copy_from_slice(from));
        self.1 += len;
        Ok(len)
    }
}

/// Requests whose numbers have as many digits as those of the published traces. All are made, however many are read, so that
/// of two runs with different numbers the difference is the reading alone.
const REQUESTS: u64 = 50_000;

/// A line of each text format for request number `at`, as its row describes it; without its end.
fn line(format: &str, at: u64) -> Option<String> {
    let random = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let (sector, sectors) = (random % 400_000_000, 8 << (random % 5));
    let (offset, len) = (sector * 512, sectors * 512);
    let is_write = !random.is_multiple_of(3);
    let (letter, word) = if is_write { ("W", "Write") } else { ("R", "Read") };
    let us = at * 1733;
    let seconds = format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
    Some(match format {
        "msr" => format!("{},usr,0,{word},{offset},{len},{}", 128_166_372_003_061_629 + us * 10, random % 90_000),
        "alibaba" => format!("{},{letter},{offset},{len},{}", random % 800, 1_577_808_000_000_046 + us),
        "tencent" => format!("{},{sector},{sectors},{},1063", 1_538_323_200 + us / 1_000_000, u8::from(is_write)),
        "systor17" => format!("145613520{seconds}000,0.000806000,{letter},4,{offset},{len}"),
        "spc" => format!("0,{sector},{len},{letter},{seconds}"),
        "disksim" => format!("{seconds} 0 {sector} {sectors} {}", u8::from(!is_write)),
        "arc" => format!("{sector} {sectors} 0 {at}"),
        "blkparse" => {
            format!("  8,0    3 {at:8}     {seconds}000   697  Q   {letter} {sector} + {sectors} [kjournald]")
        }
        "fio" => format!("{} /dev/sda {} {offset} {len}", us / 1000, if is_write { "write" } else { "read" }),
        "csv" => format!("{us},{},0,{offset},{len}", if is_write { "write" } else { "read" }),
        _ => return None,
    })
}

/// One run under callgrind: FORMAT LINES, of at most 50,000.
fn count(args: &[String]) -> Result<(), String> {
    let [name, lines] = args else { return Err("usage: margay-bench-lines FORMAT LINES".into()) };
    let lines: u64 = lines.parse().map_err(|_| format!("'{lines}' is not a number of lines"))?;
    let format: Format = name.parse().map_err(|error: margay_trace::TraceError| error.to_string())?;
    let mut text = match name.as_str() {
        "fio" => "fio version 3 iolog\n",
        "csv" => "time_us,op,device,offset_bytes,len_bytes\n",
        _ => "",
    }
    .to_string();
    // Where each ends, whatever is read: a line that is not read must not cost other instructions than one that is.
    let mut ends = vec![text.len()];
    for at in 0..REQUESTS {
        let line = line(name, at).ok_or(format!("there are no lines of {name} here"))?;
        writeln!(text, "{line}").map_err(|error| error.to_string())?;
        ends.push(text.len());
    }
    let end = usize::try_from(lines).ok().and_then(|lines| ends.get(lines));
    text.truncate(*end.ok_or(format!("there are {REQUESTS} lines"))?);
    let options = ReadOptions { format: Some(format), ..Default::default() };
    let stream = io::BufReader::new(Text(text.into_bytes(), 0));
    let mut reader = TraceReader::from_stream(name, stream, &options).map_err(|e| e.to_string())?;
    let mut bytes = 0u64;
    for request in reader.by_ref() {
        bytes = bytes.wrapping_add(request.map_err(|error| error.to_string())?.len_bytes);
    }
    std::hint::black_box(bytes);
    if reader.counts().requests != lines {
        return Err(format!("{} requests of {lines} lines", reader.counts().requests));
    }
    println!("{}", reader.counts().requests);
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    match count(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("margay-bench-lines: {error}");
            ExitCode::FAILURE
        }
    }
}
