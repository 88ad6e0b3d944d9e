use super::Reference;
use crate::text::unsigned_hex;

/// What a line of lackey says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// So many bytes at an address: read, unless it says written, fetched as an instruction or not.
    Access { address: u64, bytes: u64, write: bool, fetch: bool },
    /// Something of Valgrind, or nothing.
    Other,
}

/// Reads `I  04001090,3`, ` L 1ffeffe7e,2`, ` S ...` and ` M ...`. `None` for what is none of these.
pub(super) fn parse(line: &[u8]) -> Option<Line> {
    let line = line.trim_ascii();
    if line.is_empty() || line.starts_with(b"==") || line.starts_with(b"--") {
        return Some(Line::Other);
    }
    let (write, fetch) = match line[0] {
        b'I' => (false, true),
        b'L' => (false, false),
        b'S' | b'M' => (true, false),
        _ => return None,
    };
    let rest = line[1..].strip_prefix(b" ")?.trim_ascii_start();
    let comma = rest.iter().position(|byte| *byte == b',')?;
    let address = unsigned_hex(&rest[..comma])?;
    let bytes = std::str::from_utf8(&rest[comma + 1..]).ok()?.parse().ok()?;
    Some(Line::Access { address, bytes, write, fetch })
}

/// The pages of an access.
pub(super) fn pages(address: u64, bytes: u64, write: bool, page_shift: u8) -> impl Iterator<Item = Reference> {
    let last = address.saturating_add(bytes.max(1) - 1) >> page_shift;
    (address >> page_shift..=last).map(move |page| Reference { page, write })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_lackey_are_read_and_others_are_told_apart() {
        let access = |address, bytes, write, fetch| Some(Line::Access { address, bytes, write, fetch });
        assert_eq!(parse(b"I  04001090,3\n"), access(0x0400_1090, 3, false, true));
        assert_eq!(parse(b" L 1ffeffe7e,2"), access(0x1_ffef_fe7e, 2, false, false));
        assert_eq!(parse(b" S 1000,16"), access(0x1000, 16, true, false));
        assert_eq!(parse(b" M 1000,8"), access(0x1000, 8, true, false));
        assert_eq!(parse(b"==123== Lackey, an example Valgrind tool"), Some(Line::Other));
        for bad in [&b"X 1000,8"[..], b" L 1000", b" L ,8", b" L 10g0,8", b" L 1000,-8", b"L1000,8"] {
            assert_eq!(parse(bad), None, "{:?}", String::from_utf8_lossy(bad));
        }
        let crossing: Vec<_> = pages(2047, 2, true, 11).map(|touch| touch.page).collect();
        assert_eq!(crossing, [0, 1]);
        assert_eq!(pages(u64::MAX, 8, false, 11).count(), 1);
    }
}
