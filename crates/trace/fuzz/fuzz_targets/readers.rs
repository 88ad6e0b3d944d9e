//! Any bytes under any format: requests or an error, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use margay_trace::vm::{VmHeader, VmReader};
use margay_trace::{BadLines, Format, ReadOptions, open};
use std::io::Write;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, rest)) = data.split_first() else { return };
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(rest).expect("it can be written");
    let format = Format::ALL.get(usize::from(choice) % (Format::ALL.len() + 1)).copied();
    if choice == 0xFF {
        // Pages instead of requests.
        if let Ok(reader) = VmReader::open(file.path(), VmHeader::DEFAULT) {
            reader.take(100_000).for_each(drop);
        }
        return;
    }
    let bad_lines = if choice & 0x80 == 0 { BadLines::Stop } else { BadLines::Skip { limit: Some(1000) } };
    let options = ReadOptions { format, bad_lines, ..ReadOptions::default() };
    if let Ok(reader) = open(file.path(), &options) {
        // Compressed input can be much longer than the file.
        reader.take(100_000).for_each(drop);
    }
});
