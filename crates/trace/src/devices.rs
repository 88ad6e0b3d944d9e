//! Which devices of a trace are read, by their names.

use crate::TraceError;
use crate::error::printable;
use crate::hash::FastMap;
use std::fmt::Write as _;

/// The devices that were asked for, and those that were met.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    /// The names that were asked for, and whether a device has them.
    wanted: Vec<(String, bool)>,
    /// Whether the device with a number is asked for.
    met: FastMap<u32, bool>,
    /// The device that was met last: mostly the one that comes next, too.
    last: Option<(u32, bool)>,
    /// The names of the first devices that were met, for people.
    known: Vec<String>,
}

/// Names that an error lists.
const MAX_LISTED: usize = 40;

impl Chosen {
    pub fn new(wanted: &[String]) -> Self {
        let wanted = wanted.iter().map(|name| (name.clone(), false)).collect();
        Self { wanted, met: FastMap::default(), last: None, known: Vec::new() }
    }

    /// Whether the device with this number was asked for. `name` is asked when it is met for the first time.
    #[inline]
    pub fn has(&mut self, number: u32, name: impl FnOnce() -> String) -> bool {
        match self.last {
            Some((last, is_chosen)) if last == number => is_chosen,
            _ => {
                let is_chosen = match self.met.get(&number) {
                    Some(is_chosen) => *is_chosen,
                    None => self.meet(number, name()),
                };
                self.last = Some((number, is_chosen));
                is_chosen
            }
        }
    }

    #[cold]
    fn meet(&mut self, number: u32, name: String) -> bool {
        let mut is_chosen = false;
        for (wanted, is_met) in &mut self.wanted {
            if is_meant(wanted, &name, number) {
                (is_chosen, *is_met) = (true, true);
            }
        }
        self.met.insert(number, is_chosen);
        if self.known.len() < MAX_LISTED {
            self.known.push(printable(&name));
        }
        is_chosen
    }

    /// At the end of the trace: an error if a device was asked for that it does not have.
    pub fn check(&self, path: &str) -> Result<(), TraceError> {
        let Some((wanted, _)) = self.wanted.iter().find(|(_, is_met)| !is_met) else { return Ok(()) };
        let mut known = self.known.join(", ");
        if self.met.len() > self.known.len() {
            let _ = write!(known, " and {} more", self.met.len() - self.known.len());
        }
        Err(TraceError::NoSuchDevice { path: path.into(), wanted: wanted.clone(), known })
    }
}

/// Whether someone who asks for `wanted` means the device: by its name, by the part of the name before a `_`, as a host of
/// several disks, or by its number.
fn is_meant(wanted: &str, name: &str, number: u32) -> bool {
    let starts = name.get(..wanted.len()).is_some_and(|start| start.eq_ignore_ascii_case(wanted));
    (starts && matches!(name.as_bytes().get(wanted.len()), None | Some(b'_')))
        || wanted.parse::<u32>().is_ok_and(|wanted| wanted == number)
}

/// The usual name of a device of Linux, of which the kernel keeps 12 bits of major and 20 of minor number.
pub(crate) fn linux_name(number: u32) -> String {
    format!("{}:{}", number >> 20, number & 0xf_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_meant_by_its_name_its_host_or_its_number() {
        for wanted in ["usr_0", "USR_0", "usr", "3"] {
            assert!(is_meant(wanted, "usr_0", 3), "{wanted}");
        }
        for wanted in ["us", "usr_", "usr_00", "0", "", "usr_0_"] {
            assert!(!is_meant(wanted, "usr_0", 3), "{wanted}");
        }
        assert!(is_meant("ü", "ü", 0) && !is_meant("u", "ü", 0));
    }

    #[test]
    fn the_error_lists_some_devices_and_counts_the_others() {
        let mut chosen = Chosen::new(&["usr".into(), "hm".into()]);
        for number in 0..50 {
            assert_eq!(chosen.has(number, || format!("usr_{number}")), number < 50);
            assert!(chosen.has(number, || unreachable!("it was met")));
        }
        let error = chosen.check("t").unwrap_err().to_string();
        assert!(error.starts_with("t: no request goes to a device 'hm'; the trace has usr_0, usr_1,"), "{error}");
        assert!(error.ends_with("usr_39 and 10 more"), "{error}");
        assert!(!chosen.has(99, || "hm_2_or_so".into()) || chosen.check("t").is_ok());
    }
}
