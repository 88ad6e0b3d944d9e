//! Policies as text: `name`, or `name:key=value,key=value`. A [`Row`] of a table says what a policy is called, which
//! parameters it has and how it is built; parser, printer, help and documents come from the row.

use crate::age::Scale;
use alloc::string::ToString;
use alloc::{format, string::String, vec::Vec};
use core::fmt;
use core::ops::RangeInclusive;
use core::str::FromStr;

/// Why a policy's text cannot be parsed. The message says what is wrong and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError(String);

impl SpecError {
    fn value(key: &str, value: &str, wanted: &str) -> Self {
        Self(format!("{key}={value}: expected {wanted}"))
    }

    /// The error for a `name` that is not among the known ones; `what` says what is named.
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

/// The value of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// The number of one of the parameter's names.
    Choice(u8),
    /// A whole number.
    Number(u32),
    /// A share: greater than 0, at most 1.
    Share(f64),
    /// A span of time or of writes.
    Scale(Scale),
    /// Fills the place of a parameter that the policy does not have.
    Absent,
}

/// Values of several parameters under a name: those that a paper's figures were fitted with, or a variant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preset {
    /// The name, written `preset=name`.
    pub name: &'static str,
    /// The values, written `key=value,key=value`. Keys beside the preset replace them.
    pub values: &'static str,
    /// What the values are for.
    pub help: &'static str,
    /// Whether a comparison of all policies tries it beside the defaults.
    pub is_tried: bool,
}

/// The values that a parameter may have, with its default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParameterKind {
    /// One of these names; the first is the default.
    Choice(&'static [&'static str]),
    /// A whole number from `min` to `max`.
    Number {
        /// The default.
        default: u32,
        /// The smallest.
        min: u32,
        /// The largest.
        max: u32,
    },
    /// A share: greater than 0, at most 1.
    Share {
        /// The default.
        default: f64,
    },
    /// A span of time or of writes.
    Scale {
        /// The default.
        default: Scale,
    },
    /// No value of its own: values of the other parameters under a name. It prints as those values.
    Presets(&'static [Preset]),
}

impl ParameterKind {
    const fn default(&self) -> Value {
        match *self {
            Self::Choice(_) => Value::Choice(0),
            Self::Number { default, .. } => Value::Number(default),
            Self::Share { default } => Value::Share(default),
            Self::Scale { default } => Value::Scale(default),
            Self::Presets(_) => Value::Absent,
        }
    }

    fn parse(&self, key: &'static str, text: &str) -> Result<Value, SpecError> {
        match self {
            Self::Choice(names) => match names.iter().position(|name| *name == text) {
                Some(at) => Ok(Value::Choice(at as u8)),
                None => Err(SpecError::value(key, text, &format!("one of {}", names.join(", ")))),
            },
            Self::Number { min, max, .. } => match text.parse().ok().filter(|n| (min..=max).contains(&n)) {
                Some(number) => Ok(Value::Number(number)),
                None => Err(SpecError::value(key, text, &format!("a whole number from {min} to {max}"))),
            },
            Self::Share { .. } => match text.parse::<f64>().ok().filter(|share| *share > 0.0 && *share <= 1.0) {
                Some(share) => Ok(Value::Share(share)),
                None => Err(SpecError::value(key, text, "a share, over 0 and at most 1")),
            },
            Self::Scale { .. } => match Scale::parse(text) {
                Some(scale) => Ok(Value::Scale(scale)),
                None => Err(SpecError::value(key, text, Scale::FORMS)),
            },
            Self::Presets(presets) => match presets.iter().find(|preset| preset.name == text) {
                Some(_) => Ok(Value::Absent),
                None => {
                    let names: Vec<_> = presets.iter().map(|preset| preset.name).collect();
                    Err(SpecError::value(key, text, &format!("one of {}", names.join(", "))))
                }
            },
        }
    }

    fn print(&self, value: Value) -> String {
        match (self, value) {
            (Self::Choice(names), Value::Choice(at)) => names[usize::from(at)].to_string(),
            (_, Value::Number(number)) => number.to_string(),
            (_, Value::Share(share)) => share.to_string(),
            (_, Value::Scale(scale)) => scale.to_string(),
            (_, Value::Choice(_) | Value::Absent) => String::new(),
        }
    }
}

/// A parameter of a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameter {
    /// The key that is written before `=`.
    pub key: &'static str,
    /// The values it may have, and its default.
    pub kind: ParameterKind,
    /// What it means.
    pub help: &'static str,
    /// Whether it is printed only if its value is not the default.
    pub brief: bool,
}

impl Parameter {
    /// One of `names`, the first by default; printed only if another is chosen.
    pub const fn choice(key: &'static str, names: &'static [&'static str], help: &'static str) -> Self {
        Self { key, kind: ParameterKind::Choice(names), help, brief: true }
    }

    /// A whole number of `range`.
    pub const fn number(key: &'static str, default: u32, range: RangeInclusive<u32>, help: &'static str) -> Self {
        let kind = ParameterKind::Number { default, min: *range.start(), max: *range.end() };
        Self { key, kind, help, brief: false }
    }

    /// A share: greater than 0, at most 1.
    pub const fn share(key: &'static str, default: f64, help: &'static str) -> Self {
        Self { key, kind: ParameterKind::Share { default }, help, brief: false }
    }

    /// A span of time or of writes.
    pub const fn scale(key: &'static str, default: Scale, help: &'static str) -> Self {
        Self { key, kind: ParameterKind::Scale { default }, help, brief: false }
    }

    /// The names of `presets`, which stand for values of the parameters before it.
    pub const fn presets(presets: &'static [Preset]) -> Self {
        Self { key: "preset", kind: ParameterKind::Presets(presets), help: "values under a name", brief: true }
    }

    /// The same, printed even if it is the default.
    pub const fn always_printed(self) -> Self {
        Self { brief: false, ..self }
    }

    /// Its values, its default and its meaning, for help and documents.
    pub fn describe(&self) -> String {
        match &self.kind {
            ParameterKind::Choice([first, rest @ ..]) => {
                let rest: Vec<_> = rest.iter().map(|name| format!(", {name}")).collect();
                format!("{first} (default){}: {}", rest.concat(), self.help)
            }
            ParameterKind::Presets(presets) => {
                let named = presets.iter().map(|preset| {
                    let tried = if preset.is_tried { "; margay compare tries it" } else { "" };
                    format!(", {} ({}): {}{tried}", preset.name, preset.values, preset.help)
                });
                format!("none (default){}", named.collect::<String>())
            }
            kind => format!("{} (default): {}", kind.print(kind.default()), self.help),
        }
    }
}

/// The greatest number of parameters of a policy.
const MAX_PARAMETERS: usize = 4;

type Values = [Value; MAX_PARAMETERS];

/// The parameters that a policy is built with. Asking for a parameter that the row does not declare, or as another
/// type, is an error of the row and panics; tests build every row.
#[derive(Clone, Copy, Debug)]
pub struct Args {
    parameters: &'static [Parameter],
    values: Values,
}

impl Args {
    fn get(&self, key: &str) -> Value {
        let at = self.parameters.iter().position(|parameter| parameter.key == key);
        self.values[at.unwrap_or_else(|| panic!("the row declares no parameter '{key}'"))]
    }

    /// Which of `all`, whose names the row lists in the same order, was chosen.
    pub fn choice<T: Copy>(&self, key: &str, all: &[T]) -> T {
        let Value::Choice(at) = self.get(key) else { panic!("'{key}' is no choice") };
        all[usize::from(at)]
    }

    /// A whole number.
    pub fn number(&self, key: &str) -> u32 {
        let Value::Number(number) = self.get(key) else { panic!("'{key}' is no number") };
        number
    }

    /// A share.
    pub fn share(&self, key: &str) -> f64 {
        let Value::Share(share) = self.get(key) else { panic!("'{key}' is no share") };
        share
    }

    /// The name of what was chosen.
    pub fn choice_name(&self, key: &str) -> &'static str {
        let at = self.parameters.iter().position(|parameter| parameter.key == key);
        match (at.map(|at| self.parameters[at].kind), self.get(key)) {
            (Some(ParameterKind::Choice(names)), Value::Choice(chosen)) => names[usize::from(chosen)],
            _ => panic!("'{key}' is no choice"),
        }
    }

    /// A span.
    pub fn scale(&self, key: &str) -> Scale {
        let Value::Scale(scale) = self.get(key) else { panic!("'{key}' is no span") };
        scale
    }
}

/// A policy, as a row of its table.
#[derive(Clone, Copy, Debug)]
pub struct Row<B: 'static> {
    /// The name by which it is chosen.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub summary: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    /// Where it comes from; empty if it needs no source.
    pub source: &'static str,
    /// How the policy is built from its parameters.
    pub build: B,
}

/// Finds a row without parameters by its text, in which upper and lower case are alike.
pub fn find_row<'a, B>(what: &str, rows: &'a [Row<B>], text: &str) -> Result<&'a Row<B>, SpecError> {
    let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
    let row = rows.iter().find(|row| row.name.eq_ignore_ascii_case(name.trim()));
    let row = row.ok_or_else(|| SpecError::unknown(what, name.trim(), rows.iter().map(|row| row.name)))?;
    match parameters.split(['=', ',']).next() {
        Some("") | None => Ok(row),
        Some(key) => Err(SpecError(format!("'{}' has no parameter '{}'; it has none", row.name, key.trim()))),
    }
}

/// What a table lists.
pub trait PolicyKind: 'static {
    /// What messages call an entry of the table.
    const WHAT: &'static str;
    /// How an entry is built.
    type Build: Copy + 'static;

    /// Names of those that a comparison tries unless it is asked for more: what was the best somewhere in docs/league.md,
    /// and what others are measured by.
    const USUAL: &'static [&'static str] = &[];

    /// The rows of the table. Where two rows have the same name, it means the first.
    fn rows() -> impl Iterator<Item = &'static Row<Self::Build>> + Clone;
}

/// A policy of a table with its parameters. It is parsed from text, and prints as text that is parsed to the same
/// value.
pub struct Spec<K: PolicyKind> {
    row: &'static Row<K::Build>,
    values: Values,
}

impl<K: PolicyKind> Spec<K> {
    fn of(row: &'static Row<K::Build>) -> Self {
        let mut values = [Value::Absent; MAX_PARAMETERS];
        for (value, parameter) in values.iter_mut().zip(row.parameters) {
            *value = parameter.kind.default();
        }
        Self { row, values }
    }

    /// All entries of the table, each with its default parameters.
    pub fn all() -> impl Iterator<Item = Self> + Clone {
        K::rows().map(Self::of)
    }

    /// Those that a comparison tries unless it is asked for more, and their variants.
    pub fn usual() -> impl Iterator<Item = Self> {
        let is_usual = |spec: &Self| K::USUAL.contains(&spec.row.name);
        Self::all().chain(Self::variants()).filter(is_usual)
    }

    /// The variants that a comparison tries beside the defaults.
    pub fn variants() -> impl Iterator<Item = Self> {
        Self::all().flat_map(|spec| {
            let presets = spec.row.parameters.iter().filter_map(|parameter| match parameter.kind {
                ParameterKind::Presets(presets) => Some(presets),
                _ => None,
            });
            let tried = presets.flatten().filter(|preset| preset.is_tried);
            tried.map(move |preset| Self::known(&format!("{}:preset={}", spec.row.name, preset.name)))
        })
    }

    /// The policy of a text that is known to be right, such as one in a program.
    ///
    /// # Panics
    /// If it is not.
    pub fn known(text: &str) -> Self {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    fn is_preset(&self, key: &str) -> bool {
        let is_it = |parameter: &&Parameter| parameter.key == key;
        self.row.parameters.iter().find(is_it).is_some_and(|found| matches!(found.kind, ParameterKind::Presets(_)))
    }

    /// Sets a parameter, or all those that a preset names.
    fn set(&mut self, key: &str, value: &str) -> Result<(), SpecError> {
        let Some(at) = self.row.parameters.iter().position(|parameter| parameter.key == key) else {
            let known: Vec<_> = self.row.parameters.iter().map(|parameter| parameter.key).collect();
            let known = if known.is_empty() { "none".into() } else { known.join(", ") };
            return Err(SpecError(format!("'{}' has no parameter '{key}'; it has {known}", self.row.name)));
        };
        let Parameter { key, kind, .. } = self.row.parameters[at];
        self.values[at] = kind.parse(key, value)?;
        if let ParameterKind::Presets(presets) = kind {
            let values = presets.iter().find(|preset| preset.name == value).map_or("", |preset| preset.values);
            for (key, value) in values.split(',').filter_map(|part| part.split_once('=')) {
                self.set(key, value)?;
            }
        }
        Ok(())
    }

    /// The row: name, summary, parameters, source.
    pub fn row(&self) -> &'static Row<K::Build> {
        self.row
    }

    /// The name, without parameters.
    pub fn name(&self) -> &'static str {
        self.row.name
    }

    /// The parameters, for the row's constructor.
    pub fn args(&self) -> Args {
        Args { parameters: self.row.parameters, values: self.values }
    }
}

/// The first row with its default parameters.
impl<K: PolicyKind> Default for Spec<K> {
    fn default() -> Self {
        Self::of(K::rows().next().expect("a table has a row"))
    }
}

impl<K: PolicyKind> Clone for Spec<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: PolicyKind> Copy for Spec<K> {}

impl<K: PolicyKind> PartialEq for Spec<K> {
    fn eq(&self, other: &Self) -> bool {
        self.row.name == other.row.name && self.values == other.values
    }
}

impl<K: PolicyKind> fmt::Debug for Spec<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<K: PolicyKind> fmt::Display for Spec<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row.name)?;
        let mut separator = ':';
        for (parameter, value) in self.row.parameters.iter().zip(self.values) {
            if !parameter.brief || value != parameter.kind.default() {
                write!(f, "{separator}{}={}", parameter.key, parameter.kind.print(value))?;
                separator = ',';
            }
        }
        Ok(())
    }
}

impl<K: PolicyKind> FromStr for Spec<K> {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let name = name.trim();
        let row = K::rows().find(|row| row.name == name);
        let row = row.ok_or_else(|| SpecError::unknown(K::WHAT, name, K::rows().map(|row| row.name)))?;
        let mut spec = Self::of(row);
        let mut given: Vec<(&str, &str)> = Vec::new();
        for part in rest.split(',').filter(|part| !part.is_empty()) {
            let Some((key, value)) = part.split_once('=') else {
                return Err(SpecError(format!("'{part}' in '{text}': parameters are written key=value")));
            };
            let (key, value) = (key.trim(), value.trim());
            if given.iter().any(|(other, _)| *other == key) {
                return Err(SpecError(format!("'{key}' is given twice in '{text}'")));
            }
            given.push((key, value));
        }
        // What stands beside a preset replaces its values, wherever it stands.
        for (key, value) in &given {
            spec.set(key, value)?;
        }
        for (key, value) in &given {
            if !spec.is_preset(key) {
                spec.set(key, value)?;
            }
        }
        Ok(spec)
    }
}
