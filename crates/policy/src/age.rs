//! Time as policies see it, and the age transformation of cost-benefit and CAT.

use crate::spec::{Args, Parameter, Preset};
use alloc::vec::Vec;
use core::fmt;

/// The present time, on both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Time of the workload, in microseconds.
    pub us: u64,
    /// Host page writes so far.
    pub writes: u64,
}

impl Now {
    /// The present time on one clock.
    #[inline]
    pub const fn on(self, clock: Clock) -> u64 {
        match clock {
            Clock::Time => self.us,
            Clock::Writes => self.writes,
        }
    }
}

/// The clock that ages are measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Microseconds of the workload's time.
    Time,
    /// Host page writes.
    Writes,
}

/// A span on one of the clocks. Written `1000s`, `20ms`, `5us` (time), `40w` (host page writes), or `0.5d`
/// (device writes: multiples of the exported pages, counted in host page writes).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// Microseconds.
    Us(f64),
    /// Host page writes.
    Writes(f64),
    /// Host page writes as multiples of the exported pages.
    DeviceWrites(f64),
}

impl Scale {
    /// The forms in which a span is written, for messages.
    pub(crate) const FORMS: &'static str =
        "a positive span: 1000s, 20ms, 5us (time), 40w (host page writes), 0.5d (device writes)";

    /// Reads `1000s`, `20ms`, `5us`, `40w` or `0.5d`; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let value = digits.parse::<f64>().ok().filter(|value| value.is_finite() && *value > 0.0)?;
        match &text[digits.len()..] {
            "s" => Some(Self::Us(value * 1e6)),
            "ms" => Some(Self::Us(value * 1e3)),
            "us" => Some(Self::Us(value)),
            "w" => Some(Self::Writes(value)),
            "d" => Some(Self::DeviceWrites(value)),
            _ => None,
        }
    }

    /// The clock that the span is on, and its length there, for a device that exports `exported_pages` pages.
    pub fn resolve(self, exported_pages: u32) -> (Clock, f64) {
        match self {
            Self::Us(us) => (Clock::Time, us),
            Self::Writes(writes) => (Clock::Writes, writes),
            Self::DeviceWrites(ratio) => (Clock::Writes, (ratio * f64::from(exported_pages)).max(1.0)),
        }
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Us(us) if *us >= 1e6 => write!(f, "{}s", us / 1e6),
            Self::Us(us) if *us >= 1e3 => write!(f, "{}ms", us / 1e3),
            Self::Us(us) => write!(f, "{us}us"),
            Self::Writes(writes) => write!(f, "{writes}w"),
            Self::DeviceWrites(ratio) => write!(f, "{ratio}d"),
        }
    }
}

/// Shape of the age transformation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `ln(1 + age / scale)`
    Log,
    /// `age / scale`
    Linear,
    /// `sqrt(age / scale)`
    Sqrt,
}

impl Shape {
    /// All shapes.
    pub const ALL: [Self; 3] = [Self::Log, Self::Linear, Self::Sqrt];

    fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Linear => "linear",
            Self::Sqrt => "sqrt",
        }
    }
}

/// 1000 s of the FMS study's clock, as a multiple of its data set: 40.6 writes of 5245 pages.
const AGE_SCALE: Scale = Scale::DeviceWrites(0.00775);

/// The first parameter of the age transformation for a row, with the names of all shapes, the row's default first;
/// [`AgeFunction::from_args`] reads it.
pub(crate) const fn shape(names: &'static [&'static str]) -> Parameter {
    Parameter::choice("shape", names, "shape of the age transformation").always_printed()
}
/// The fit of the age transformation to the tables of the FMS study, on devices of other sizes and clocks too.
pub(crate) const FMS: Preset = Preset {
    name: "fms",
    values: "shape=log,scale=0.00775d",
    help: "meets the tables of the FMS study",
    is_tried: false,
};
/// The second parameter of the age transformation for a row.
pub(crate) const AGE: Parameter = Parameter::scale(
    "scale",
    AGE_SCALE,
    "span of the age transformation: 1000s (time), 40w (host page writes), 0.5d (device writes)",
);

/// The age transformation f: non-decreasing, 0 at age 0.
///
/// The FMS papers show it only as an image (J Fig. 7); `log` with 1000 s is the reading that meets their
/// tables (a fit, not a discovery).
#[derive(Clone, Copy, Debug)]
pub struct AgeFunction {
    /// The clock ages are counted on.
    pub clock: Clock,
    shape: Shape,
    scale: f64,
}

impl AgeFunction {
    /// The transformation for a device that exports `exported_pages` pages.
    pub fn new(shape: Shape, scale: Scale, exported_pages: u32) -> Self {
        let (clock, scale) = scale.resolve(exported_pages);
        Self { clock, shape, scale }
    }

    /// The transformation with the parameters [`shape()`] and [`AGE`] of a row.
    pub(crate) fn from_args(args: &Args, exported_pages: u32) -> Self {
        let name = args.choice_name("shape");
        let shape = Shape::ALL.into_iter().find(|shape| shape.name() == name).expect("a row names shapes");
        Self::new(shape, args.scale("scale"), exported_pages)
    }

    /// f(age), with the age in units of [`AgeFunction::clock`].
    #[inline]
    pub fn of(&self, age: u64) -> f64 {
        self.at(age as f64)
    }

    #[inline]
    fn at(&self, age: f64) -> f64 {
        let ratio = age / self.scale;
        match self.shape {
            // libm instead of the platform's functions gives the same digits on every machine.
            Shape::Log => libm::log(1.0 + ratio),
            Shape::Linear => ratio,
            Shape::Sqrt => libm::sqrt(ratio),
        }
    }
}

/// Upper bounds of an [`AgeFunction`] from a table of 8 KiB, a line for each of 16 parts of an octave of ages. The function
/// is concave, so it stays below the line through its values at the beginnings of a part and of the part before.
#[derive(Clone, Debug)]
pub struct AgeCeilings(Vec<(f32, f32)>);

impl AgeCeilings {
    /// Bits of the fraction of an age that choose the line.
    const BITS: u32 = 4;
    const SHIFT: u32 = f64::MANTISSA_DIGITS - 1 - Self::BITS;
    const ONE: u64 = 1f64.to_bits() >> Self::SHIFT;

    /// The bounds of one function.
    pub fn new(f: &AgeFunction) -> Self {
        let start = |number: u64| f64::from_bits((Self::ONE + number) << Self::SHIFT);
        let line = |number: u64| {
            let (before, from) = (if number == 0 { 0.0 } else { start(number - 1) }, start(number));
            let slope = (f.at(from) - f.at(before)) / (from - before);
            // Half a millionth is more than the roundings of all of this.
            ((f.at(from) * 1.0000005) as f32, (slope * 1.0000005) as f32)
        };
        Self((0..64 << Self::BITS).map(line).collect())
    }

    /// At least f(age), for any age.
    #[inline]
    pub fn of(&self, age: u64) -> f64 {
        let bits = (age as i64 as f64).to_bits();
        let number = (bits >> Self::SHIFT).saturating_sub(Self::ONE);
        let Some((from, slope)) = self.0.get(number as usize) else { return f64::INFINITY };
        let after = f64::from_bits(bits) - f64::from_bits(bits >> Self::SHIFT << Self::SHIFT);
        f64::from(*from) + f64::from(*slope) * after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ceiling_is_never_below_the_age_transformation_and_little_above_it() {
        for shape in Shape::ALL {
            for scale in [Scale::Us(0.3), Scale::Writes(37.0), Scale::Us(1e9)] {
                let f = AgeFunction::new(shape, scale, 1000);
                let ceilings = AgeCeilings::new(&f);
                let ages =
                    (0..64).flat_map(|octave| [-1, 0, 1, 3].map(|near| (1u64 << octave).wrapping_add_signed(near)));
                for age in ages.chain([0, u64::MAX]).chain((0..3000).map(|n| n * n * 7)) {
                    assert!(ceilings.of(age) >= f.of(age), "{shape:?} {scale:?} {age}");
                    if (2..1 << 62).contains(&age) {
                        let little = 1.005 * f.of(age);
                        assert!(ceilings.of(age) <= little, "{shape:?} {scale:?} {age}: {}", ceilings.of(age));
                    }
                }
            }
        }
    }
}
