//! The compact text of a policy: `name`, or `name:key=value,key=value`.

use alloc::{format, string::String, vec::Vec};
use core::fmt;

/// A policy's text that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError(String);

impl SpecError {
    pub(crate) fn new(message: String) -> Self {
        Self(message)
    }

    pub(crate) fn value(key: &str, value: &str, wanted: &str) -> Self {
        Self(format!("{key}={value}: expected {wanted}"))
    }

    /// A name that is not among the known ones.
    pub fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> Self {
        Self(format!("unknown {what} '{name}'; the known ones are {}", known.collect::<Vec<_>>().join(", ")))
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for SpecError {}

/// A name and its parameters, each to be taken once.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    /// The name.
    pub name: &'a str,
    params: Vec<(&'a str, &'a str)>,
}

impl<'a> Parts<'a> {
    /// Takes a text apart.
    pub fn split(text: &'a str) -> Result<Self, SpecError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let mut params: Vec<(&str, &str)> = Vec::new();
        for part in rest.split(',').filter(|p| !p.is_empty()) {
            let Some((key, value)) = part.split_once('=') else {
                return Err(SpecError::new(format!("'{part}' in '{text}': parameters are written key=value")));
            };
            if params.iter().any(|(k, _)| *k == key.trim()) {
                return Err(SpecError::new(format!("'{}' is given twice in '{text}'", key.trim())));
            }
            params.push((key.trim(), value.trim()));
        }
        Ok(Self { name: name.trim(), params })
    }

    /// Takes a parameter as it stands.
    pub fn text(&mut self, key: &str) -> Option<&'a str> {
        let at = self.params.iter().position(|(k, _)| *k == key)?;
        Some(self.params.remove(at).1)
    }

    /// Takes a whole number.
    pub fn number(&mut self, key: &str, default: u32, range: core::ops::RangeInclusive<u32>) -> Result<u32, SpecError> {
        let Some(text) = self.text(key) else { return Ok(default) };
        let wanted = || format!("a whole number from {} to {}", range.start(), range.end());
        text.parse().ok().filter(|n| range.contains(n)).ok_or_else(|| SpecError::value(key, text, &wanted()))
    }

    /// Takes a positive number.
    pub fn positive(&mut self, key: &str, default: f64) -> Result<f64, SpecError> {
        let Some(text) = self.text(key) else { return Ok(default) };
        let value = text.parse::<f64>().ok().filter(|v| v.is_finite() && *v > 0.0);
        value.ok_or_else(|| SpecError::value(key, text, "a positive number"))
    }

    /// Takes one of some names.
    pub fn choice<T: Copy>(&mut self, key: &str, default: T, choices: &[(&str, T)]) -> Result<T, SpecError> {
        let Some(text) = self.text(key) else { return Ok(default) };
        choices.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
            SpecError::value(key, text, &format!("one of {}", names.join(", ")))
        })
    }

    /// Refuses what no one took.
    pub fn finish(self, known: &[&str]) -> Result<(), SpecError> {
        match self.params.first() {
            None => Ok(()),
            Some((key, _)) if known.is_empty() => {
                Err(SpecError::new(format!("'{}' has no parameter '{key}'; it has none", self.name)))
            }
            Some((key, _)) => {
                Err(SpecError::new(format!("'{}' has no parameter '{key}'; it has {}", self.name, known.join(", "))))
            }
        }
    }
}

/// The name under which `value` is listed in `choices`.
pub(crate) fn name_of<T: PartialEq>(value: &T, choices: &[(&'static str, T)]) -> &'static str {
    choices.iter().find(|(_, v)| v == value).map_or("?", |(name, _)| name)
}
