//! The names of all policies: one entry each yields the parser, the help, the table in the documents and the
//! static dispatch.

use crate::age::{AgeFunction, Scale, Shape};
use crate::leveling::LevelingSpec;
use crate::placement::{
    Dac, DecayingFineGrained, FineGrained, Key, MeanOf, PageBased, Placement, PlacementSpec, SegmentBased, Sequential,
    Sorted,
};
use crate::segments::Sizing;
use crate::selection::{
    AgeOf, Cat, CostBenefit, CostBenefitLists, DChoices, Fifo, Greedy, Selection, SelectionSpec, Tie, WindowedGreedy,
};
use crate::spec::{Parts, SpecError};
use core::str::FromStr;

/// What a person wants to know of a policy.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// The name to write.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub summary: &'static str,
    /// Parameters with defaults and meaning, one each.
    pub parameters: &'static [(&'static str, &'static str)],
    /// Where it comes from.
    pub source: &'static str,
}

type Entry<S> = (Info, fn(&mut Parts<'_>) -> Result<S, SpecError>);

/// 1000 s of the FMS study's clock in writes of its data set (40.6 of 5245 pages).
const AGE_SCALE: Scale = Scale::DeviceWrites(0.00775);
/// 86400 s of the FMS study's clock in writes of its data set (3511 of 5245 pages).
const HEAT_SCALE: Scale = Scale::DeviceWrites(0.67);

const SHAPE: (&str, &str) = ("shape", "log (default), linear, sqrt: shape of the age transformation");
const AGE: (&str, &str) = (
    "scale",
    "0.00775d (default): span of the age transformation: 1000s (time), 40w (host page writes), 0.5d (device writes)",
);

fn scale(parts: &mut Parts<'_>, key: &'static str, default: Scale) -> Result<Scale, SpecError> {
    parts.text(key).map_or(Ok(default), |text| Scale::parse(key, text))
}

const SELECTIONS: &[Entry<SelectionSpec>] = &[
    (
        Info {
            name: "greedy",
            summary: "fewest valid pages",
            parameters: &[("tie", "index (default), oldest: which of equal segments")],
            source: "Rosenblum and Ousterhout 1992; FMS J sec. 2",
        },
        |p| Ok(SelectionSpec::Greedy { tie: p.choice("tie", Tie::Index, Tie::NAMES)? }),
    ),
    (
        Info {
            name: "cost-benefit",
            summary: "largest age-weighted gain per copy, f(age) (1 - u) / 2u",
            parameters: &[("age", "opened (default), invalidated: what age is counted from"), SHAPE, AGE],
            source: "Kawaguchi et al. 1995; FMS J sec. 2",
        },
        |p| {
            let age = p.choice("age", AgeOf::Opened, AgeOf::NAMES)?;
            let shape = p.choice("shape", Shape::Log, Shape::NAMES)?;
            Ok(SelectionSpec::CostBenefit { age, shape, scale: scale(p, "scale", AGE_SCALE)? })
        },
    ),
    (
        Info {
            name: "cat",
            summary: "cost, age and times of erasure: smallest u / (1 - u) x (erases + 1) / f(age)",
            parameters: &[SHAPE, AGE],
            source: "Chiang and Chang 1999 (FMS J sec. 3)",
        },
        |p| {
            let shape = p.choice("shape", Shape::Log, Shape::NAMES)?;
            Ok(SelectionSpec::Cat { shape, scale: scale(p, "scale", AGE_SCALE)? })
        },
    ),
    (
        Info {
            name: "fifo",
            summary: "opened first (also called LRU, circular)",
            parameters: &[],
            source: "Robinson 1996; Desnoyers 2012",
        },
        |_| Ok(SelectionSpec::Fifo),
    ),
    (
        Info {
            name: "random",
            summary: "uniformly among sealed segments",
            parameters: &[],
            source: "Van Houdt 2013, d = 1",
        },
        |_| Ok(SelectionSpec::Random),
    ),
    (
        Info {
            name: "d-choices",
            summary: "fewest valid pages among d drawn at random",
            parameters: &[("d", "10 (default): segments drawn")],
            source: "Van Houdt 2013",
        },
        |p| Ok(SelectionSpec::DChoices { d: p.number("d", 10, 1..=100_000)? }),
    ),
    (
        Info {
            name: "windowed-greedy",
            summary: "fewest valid pages among the segments sealed first",
            parameters: &[("window", "0.25 (default): share of the segments that is looked at")],
            source: "Hu et al. 2009",
        },
        |p| {
            let window_ratio = p.positive("window", 0.25)?;
            if window_ratio > 1.0 {
                return Err(SpecError::value("window", "above 1", "a share, over 0 and at most 1"));
            }
            Ok(SelectionSpec::WindowedGreedy { window_ratio })
        },
    ),
];

const PLACEMENTS: &[Entry<PlacementSpec>] = &[
    (
        Info {
            name: "m1",
            summary: "sequential: one stream for everything",
            parameters: &[],
            source: "FMS J sec. 4, M1",
        },
        |_| Ok(PlacementSpec::Sequential),
    ),
    (
        Info {
            name: "m2",
            summary: "age sort: one stream, a victim's pages sorted by age",
            parameters: &[],
            source: "FMS J sec. 4, M2",
        },
        |_| Ok(PlacementSpec::AgeSort),
    ),
    (
        Info {
            name: "m3",
            summary: "times sort: one stream, a victim's pages sorted by hot degree",
            parameters: &[("scale", "0.67d (default): age that halves the hot degree")],
            source: "FMS J sec. 4, M3",
        },
        |p| Ok(PlacementSpec::TimesSort { scale: scale(p, "scale", HEAT_SCALE)? }),
    ),
    (
        Info {
            name: "m4",
            summary: "segment-based: a victim's pages are cold if its utilization is under the average",
            parameters: &[],
            source: "FMS J sec. 4, M4",
        },
        |_| Ok(PlacementSpec::SegmentBased),
    ),
    (
        Info {
            name: "m5",
            summary: "page-based: a copied page is cold unless updated more often than the mean",
            parameters: &[],
            source: "FMS J sec. 4, M5 (block-based)",
        },
        |_| Ok(PlacementSpec::PageBased),
    ),
    (
        Info {
            name: "m6",
            summary: "fine-grained: a copied page is cold unless its hot degree is above the mean",
            parameters: &[
                ("mean", "decay (default, O(1)), exact (the paper's, O(pages) per cleaning)"),
                ("scale", "0.67d (default): age that halves the hot degree"),
            ],
            source: "FMS J sec. 4, M6",
        },
        |p| {
            let mean = p.choice("mean", MeanOf::Decay, MeanOf::NAMES)?;
            Ok(PlacementSpec::FineGrained { mean, scale: scale(p, "scale", HEAT_SCALE)? })
        },
    ),
    (
        Info {
            name: "dac",
            summary: "dynamic data clustering: pages move between regions as they are updated and copied",
            parameters: &[
                ("regions", "4 (default): number of regions"),
                ("threshold", "1d (default): age of a segment from which its pages move down"),
            ],
            source: "Chiang, Lee and Chang 1999",
        },
        |p| {
            let regions = p.number("regions", 4, 1..=64)?;
            Ok(PlacementSpec::Dac { regions, threshold: scale(p, "threshold", Scale::DeviceWrites(1.0))? })
        },
    ),
];

const LEVELINGS: &[Entry<LevelingSpec>] = &[
    (Info { name: "none", summary: "no leveling", parameters: &[], source: "" }, |_| Ok(LevelingSpec::None)),
    (
        Info {
            name: "swap",
            summary: "swap the data of the most- and least-worn segments near the end of life",
            parameters: &[
                ("from", "90000 (default): erase count from which segments are swapped"),
                ("rest", "1000 (default): erases of the device before a segment is swapped again"),
            ],
            source: "FMS J sec. 3; bounded as in the spec",
        },
        |p| {
            Ok(LevelingSpec::Swap {
                from: p.number("from", 90_000, 1..=u32::MAX)?,
                rest: p.number("rest", 1000, 1..=u32::MAX)?,
            })
        },
    ),
    (
        Info {
            name: "threshold",
            summary: "relocate the data of the least-worn segment when erase counts spread too far",
            parameters: &[("spread", "100 (default): largest spread left alone")],
            source: "static leveling, e.g. Chang and Kuo 2002",
        },
        |p| Ok(LevelingSpec::Threshold { spread: p.number("spread", 100, 1..=u32::MAX)? }),
    ),
];

fn parse<S>(what: &str, entries: &[Entry<S>], text: &str) -> Result<S, SpecError> {
    let mut parts = Parts::split(text)?;
    let Some((info, read)) = entries.iter().find(|(info, _)| info.name == parts.name) else {
        return Err(SpecError::unknown(what, parts.name, entries.iter().map(|(info, _)| info.name)));
    };
    let spec = read(&mut parts)?;
    let keys: alloc::vec::Vec<_> = info.parameters.iter().map(|(key, _)| *key).collect();
    parts.finish(&keys)?;
    Ok(spec)
}

macro_rules! registered {
    ($(#[$doc:meta])* $list:ident, $what:literal, $entries:ident, $spec:ty) => {
        $(#[$doc])*
        pub fn $list() -> impl Iterator<Item = Info> + Clone {
            $entries.iter().map(|(info, _)| *info)
        }

        impl FromStr for $spec {
            type Err = SpecError;

            fn from_str(text: &str) -> Result<Self, SpecError> {
                parse($what, $entries, text)
            }
        }
    };
}

registered!(
    /// All selection policies.
    selections, "selection policy", SELECTIONS, SelectionSpec
);
registered!(
    /// All placement policies.
    placements, "placement policy", PLACEMENTS, PlacementSpec
);
registered!(
    /// All leveling policies.
    levelings, "leveling policy", LEVELINGS, LevelingSpec
);

/// What is to be done with a pair of policies, whatever their types.
pub trait Visitor {
    /// What comes of it.
    type Output;

    /// Called once with the policies.
    fn visit<S: Selection + Clone + Send + 'static, P: Placement<Info: Send> + Clone + Send + 'static>(
        self,
        selection: S,
        placement: P,
    ) -> Self::Output;
}

/// Builds two policies and hands them to the visitor, which is compiled for every pair.
pub fn visit<V: Visitor>(selection: SelectionSpec, placement: PlacementSpec, sizing: Sizing, visitor: V) -> V::Output {
    let exported = sizing.exported_pages;
    match selection {
        SelectionSpec::Greedy { tie } => with_placement(Greedy::new(sizing, tie), placement, exported, visitor),
        SelectionSpec::CostBenefit { age: AgeOf::Opened, shape, scale } => {
            let age = AgeFunction::new(shape, scale, exported);
            with_placement(CostBenefit::new(sizing, age), placement, exported, visitor)
        }
        SelectionSpec::CostBenefit { age: AgeOf::Invalidated, shape, scale } => {
            let age = AgeFunction::new(shape, scale, exported);
            with_placement(CostBenefitLists::new(sizing, age), placement, exported, visitor)
        }
        SelectionSpec::Cat { shape, scale } => {
            let age = AgeFunction::new(shape, scale, exported);
            with_placement(Cat::new(sizing, age), placement, exported, visitor)
        }
        SelectionSpec::Fifo => with_placement(Fifo::new(sizing), placement, exported, visitor),
        SelectionSpec::Random => with_placement(DChoices::new(sizing, 1), placement, exported, visitor),
        SelectionSpec::DChoices { d } => with_placement(DChoices::new(sizing, d), placement, exported, visitor),
        SelectionSpec::WindowedGreedy { window_ratio } => {
            with_placement(WindowedGreedy::new(sizing, window_ratio), placement, exported, visitor)
        }
    }
}

/// Builds the placement for a selection that exists.
pub fn with_placement<V: Visitor, S: Selection + Clone + Send + 'static>(
    selection: S,
    placement: PlacementSpec,
    exported: u32,
    visitor: V,
) -> V::Output {
    let resolve = |scale: Scale| scale.resolve(exported);
    match placement {
        PlacementSpec::Sequential => visitor.visit(selection, Sequential),
        PlacementSpec::AgeSort => {
            let (clock, scale) = resolve(HEAT_SCALE);
            visitor.visit(selection, Sorted::new(Key::Age, clock, scale))
        }
        PlacementSpec::TimesSort { scale } => {
            let (clock, scale) = resolve(scale);
            visitor.visit(selection, Sorted::new(Key::Times, clock, scale))
        }
        PlacementSpec::SegmentBased => visitor.visit(selection, SegmentBased::new()),
        PlacementSpec::PageBased => visitor.visit(selection, PageBased::default()),
        PlacementSpec::FineGrained { mean: MeanOf::Exact, scale } => {
            let (clock, scale) = resolve(scale);
            visitor.visit(selection, FineGrained::new(clock, scale))
        }
        PlacementSpec::FineGrained { mean: MeanOf::Decay, scale } => {
            let (clock, scale) = resolve(scale);
            visitor.visit(selection, DecayingFineGrained::new(clock, scale))
        }
        PlacementSpec::Dac { regions, threshold } => {
            visitor.visit(selection, Dac::new(regions as u8, threshold, exported))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn every_name_parses_and_prints_as_something_that_parses_to_the_same() {
        for info in selections() {
            let spec: SelectionSpec = info.name.parse().unwrap();
            assert_eq!(spec.to_string().parse::<SelectionSpec>().unwrap(), spec, "{spec}");
        }
        for info in placements() {
            let spec: PlacementSpec = info.name.parse().unwrap();
            assert_eq!(spec.to_string().parse::<PlacementSpec>().unwrap(), spec, "{spec}");
        }
        for info in levelings() {
            let spec: LevelingSpec = info.name.parse().unwrap();
            assert_eq!(spec.to_string().parse::<LevelingSpec>().unwrap(), spec, "{spec}");
        }
    }

    #[test]
    fn parameters_are_read() {
        let spec: SelectionSpec = "cost-benefit:age=invalidated,shape=linear,scale=1000s".parse().unwrap();
        let wanted =
            SelectionSpec::CostBenefit { age: AgeOf::Invalidated, shape: Shape::Linear, scale: Scale::Us(1e9) };
        assert_eq!(spec, wanted);
    }

    #[test]
    fn errors_name_what_is_wrong_and_what_would_be_right() {
        let message = |text: &str| text.parse::<SelectionSpec>().unwrap_err().to_string();
        assert_eq!(
            message("gredy"),
            "unknown selection policy 'gredy'; the known ones are greedy, cost-benefit, cat, fifo, random, d-choices, windowed-greedy"
        );
        assert_eq!(message("greedy:tie=newest"), "tie=newest: expected one of index, oldest");
        assert_eq!(message("greedy:d=3"), "'greedy' has no parameter 'd'; it has tie");
        assert_eq!(message("fifo:d=3"), "'fifo' has no parameter 'd'; it has none");
        assert_eq!(message("d-choices:d=0"), "d=0: expected a whole number from 1 to 100000");
        assert_eq!(message("d-choices:d=2,d=3"), "'d' is given twice in 'd-choices:d=2,d=3'");
        assert!(message("cat:scale=5").contains("a positive span"));
        assert!(message("cat:scale=-5s").contains("a positive span"));
    }
}
