//! Names from images and traces, which anybody may have chosen, on a terminal.

use std::fmt::Write;

/// Characters that change the order in which a terminal shows those around them, or that cannot be seen.
fn is_hidden(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A name as text that says what it is and does nothing: control characters, characters that cannot be seen, bytes that
/// are no UTF-8 and backslashes are escaped (`\x1b`, `\u{202e}`, `\n`, `\\`).
pub fn shown(name: &[u8]) -> String {
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '\n' | '\t' | '\r' => text.extend(c.escape_default()),
                c if c.is_control() && c.is_ascii() => drop(write!(text, "\\x{:02x}", u32::from(c))),
                c if c.is_control() || is_hidden(c) => text.extend(c.escape_unicode()),
                c => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}
