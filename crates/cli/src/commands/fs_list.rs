//! `margay fs ls`.

use super::files::{Files, at, opened, resolve};
use crate::failure::Failure;
use crate::output::{print_bytes, shown};
use margay_fs::{Attributes, ObjectKind, Time};
use std::path::Path;

fn kind_letter(kind: ObjectKind) -> char {
    match kind {
        ObjectKind::File => '-',
        ObjectKind::Directory => 'd',
        ObjectKind::Symlink => 'l',
        ObjectKind::Fifo => 'p',
        ObjectKind::Socket => 's',
        ObjectKind::CharDevice => 'c',
        ObjectKind::BlockDevice => 'b',
    }
}

fn mode_text(attributes: &Attributes) -> String {
    let mut text = String::from(kind_letter(attributes.kind));
    for shift in [6, 3, 0] {
        let bits = attributes.mode >> shift & 7;
        let special = attributes.mode >> (9 + shift / 3) & 1 == 1;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        let (with, without) = if shift == 0 { ('t', 'T') } else { ('s', 'S') };
        text.push(match (bits & 1 != 0, special) {
            (true, true) => with,
            (false, true) => without,
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// Seconds since 1970 as a date in UTC.
fn date(time: Time) -> String {
    let (days, secs) = (time.secs.div_euclid(86400), time.secs.rem_euclid(86400));
    // Days to a civil date, by eras of 400 years that start on the first of March.
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let (day, month) = (day_of_year - (153 * month_index + 2) / 5 + 1, (month_index + 2) % 12 + 1);
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", secs / 3600, secs / 60 % 60)
}

/// What stands before the name in the line of an object.
fn columns(attributes: &Attributes) -> String {
    format!(
        "{} {:>3} {:>5} {:>5} {:>12} {} ",
        mode_text(attributes),
        attributes.links,
        attributes.uid,
        attributes.gid,
        attributes.size,
        date(attributes.mtime),
    )
}

/// The line of an object, in which nothing controls a terminal.
pub fn line(fs: &Files, name: &str, attributes: &Attributes) -> String {
    String::from_utf8_lossy(&raw_line(fs, name.as_bytes(), attributes, false)).into_owned()
}

fn raw_line(fs: &Files, name: &[u8], attributes: &Attributes, raw: bool) -> Vec<u8> {
    let mut line = columns(attributes).into_bytes();
    let mut put = |text: &[u8]| if raw { line.extend(text) } else { line.extend(shown(text).as_bytes()) };
    put(name);
    if let Ok(target) = fs.read_link(attributes.object) {
        put(b" -> ");
        put(target);
    }
    line.push(b'\n');
    line
}

/// Lists a directory or a file. With `raw` names are printed byte by byte as they are.
pub fn list(image: &Path, path: &str, recursive: bool, raw: bool) -> Result<(), Failure> {
    let fs = opened(image, true)?;
    let attributes = resolve(&fs, image, path)?;
    if attributes.kind != ObjectKind::Directory {
        return print_bytes(&raw_line(&fs, path.as_bytes(), &attributes, raw));
    }
    let mut lines = Vec::new();
    let mut folders = vec![(Vec::new(), attributes.object)];
    while let Some((prefix, object)) = folders.pop() {
        let names = fs.list(object).map_err(|error| at(image, path, &error))?;
        let mut below = Vec::new();
        for (name, attributes) in names {
            let name = [&prefix[..], &name].concat();
            lines.extend(raw_line(&fs, &name, &attributes, raw));
            if recursive && attributes.kind == ObjectKind::Directory {
                below.push(([&name[..], b"/"].concat(), attributes.object));
            }
        }
        folders.extend(below.into_iter().rev());
    }
    print_bytes(&lines)
}
