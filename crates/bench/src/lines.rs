use margay_trace::{BadLines, Format, ReadOptions, TraceReader};
use std::fmt::Write as _;
use std::io::{self, Read};

/// Lines of text that are read again and again.
struct Repeated {
    text: Vec<u8>,
    at: usize,
    times: u64,
}

impl Read for Repeated {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.text.len() && self.times > 1 {
            (self.at, self.times) = (0, self.times - 1);
        }
        let len = buffer.len().min(self.text.len() - self.at);
        buffer[..len].copy_from_slice(&self.text[self.at..self.at + len]);
        self.at += len;
        Ok(len)
    }
}

/// Requests whose numbers have as many digits as those of the published traces.
const REQUESTS: u64 = 10_000;

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

/// One run under callgrind: `line-count FORMAT LINES`, a multiple of 10,000.
pub fn count(args: &[String]) -> Result<(), String> {
    let [name, lines] = args else { return Err("usage: line-count FORMAT LINES".into()) };
    let lines: u64 = lines.parse().map_err(|_| format!("'{lines}' is not a number of lines"))?;
    let format: Format = name.parse().map_err(|error: margay_trace::TraceError| error.to_string())?;
    let mut text = match name.as_str() {
        "fio" => "fio version 3 iolog\n",
        "csv" => "time_us,op,device,offset_bytes,len_bytes\n",
        _ => "",
    }
    .to_string();
    for at in 0..REQUESTS {
        let line = line(name, at).ok_or(format!("there are no lines of {name} here"))?;
        writeln!(text, "{line}").map_err(|error| error.to_string())?;
    }
    // The header stands in every repetition: it is one bad line of many.
    let options = ReadOptions { format: Some(format), bad_lines: BadLines::Skip { limit: None }, ..Default::default() };
    let stream = Repeated { text: text.into_bytes(), at: 0, times: lines / REQUESTS };
    let mut reader = TraceReader::from_stream(name, io::BufReader::new(stream), &options).map_err(|e| e.to_string())?;
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
