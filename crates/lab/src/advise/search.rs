//! What is tried: pairs of policies, their parameters, leveling.

use crate::LabError;
use margay_policy::placement::PlacementKind;
use margay_policy::selection::SelectionKind;
use margay_policy::spec::{Parameter, ParameterKind, PolicyKind};
use margay_policy::{LevelingSpec, PlacementSpec, SelectionSpec, Spec};
use serde::Serialize;
use serde_json::{Value as Json, json};

/// Policies of a run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Candidate {
    /// The selection policy.
    pub selection: String,
    /// The placement policy.
    pub placement: String,
    /// The leveling policy.
    pub leveling: String,
}

/// Leveling that shows in a run of some ten erases a segment. With a wider spread it copies less and levels later.
const LEVELING: &str = "threshold:spread=8";

impl Candidate {
    /// A pair without leveling.
    ///
    /// # Errors
    /// There is no such policy.
    pub(super) fn pair(selection: &str, placement: &str) -> Result<Self, LabError> {
        let selection = selection.parse::<SelectionSpec>()?.to_string();
        let placement = placement.parse::<PlacementSpec>()?.to_string();
        Ok(Self { selection, placement, leveling: LevelingSpec::default().to_string() })
    }

    /// What everything is measured by.
    pub(super) fn plain() -> Self {
        Self {
            selection: SelectionSpec::known("greedy").to_string(),
            placement: PlacementSpec::known("m1").to_string(),
            leveling: LevelingSpec::default().to_string(),
        }
    }

    /// The same pair with leveling.
    pub(super) fn leveled(&self) -> Self {
        Self { leveling: LevelingSpec::known(LEVELING).to_string(), ..self.clone() }
    }

    /// Whether it levels.
    pub(super) fn is_leveled(&self) -> bool {
        self.leveling != LevelingSpec::default().to_string()
    }

    /// How simple the policies are: of two, the smaller value is of the simpler ones. First whether they level, which copies
    /// more; then how many streams there are, each of which keeps a segment open and has to be told from the others; then
    /// whether parameters are other than the usual ones; then the order of `margay policies`.
    pub(super) fn complexity(&self) -> impl Ord + use<> {
        fn place<K: PolicyKind>(text: &str) -> (bool, usize) {
            let Ok(spec) = text.parse::<Spec<K>>() else { return (true, usize::MAX) };
            let place = K::rows().position(|row| row.name == spec.name()).unwrap_or(usize::MAX);
            (Ok(spec) != spec.name().parse(), place)
        }
        let (changed_selection, selection) = place::<SelectionKind>(&self.selection);
        let (changed_placement, placement) = place::<PlacementKind>(&self.placement);
        let streams = self.placement.parse::<PlacementSpec>().map_or(u8::MAX, |spec| spec.streams());
        let changed = u8::from(changed_selection) + u8::from(changed_placement);
        (self.is_leveled(), streams, changed, selection, placement)
    }

    /// The pairs that differ from this one in one parameter of a policy.
    pub(super) fn neighbours(&self) -> Vec<Self> {
        let selections = neighbours::<_>(self.selection.parse::<SelectionSpec>().ok());
        let placements = neighbours::<_>(self.placement.parse::<PlacementSpec>().ok());
        let selections = selections.into_iter().map(|selection| Self { selection, ..self.clone() });
        let placements = placements.into_iter().map(|placement| Self { placement, ..self.clone() });
        selections.chain(placements).collect()
    }
}

/// The policy with one of its parameters changed: a number or a span to a quarter and to four times of it, a share to half
/// of it and halfway to 1, a choice to each of the others.
fn neighbours<K: PolicyKind>(spec: Option<Spec<K>>) -> Vec<String> {
    let Some(spec) = spec else { return Vec::new() };
    let args = spec.args();
    let mut found = Vec::new();
    for parameter in spec.row().parameters {
        let values: Vec<String> = match parameter.kind {
            ParameterKind::Choice(names) => names.iter().map(ToString::to_string).collect(),
            ParameterKind::Number { min, max, .. } => {
                let now = args.number(parameter.key);
                [now / 4, now.saturating_mul(4)].map(|number| number.clamp(min, max).to_string()).into()
            }
            ParameterKind::Share { .. } => {
                let now = args.share(parameter.key);
                [now / 2.0, f64::midpoint(now, 1.0)].map(|share| share.to_string()).into()
            }
            ParameterKind::Scale { .. } => {
                let (number, unit) = span(args.scale(parameter.key));
                [number / 4.0, number * 4.0].map(|number| format!("{number}{unit}")).into()
            }
            ParameterKind::Presets(_) => Vec::new(),
        };
        for value in values {
            // The text of a policy has all parameters that are not usual; one that is set anew comes in its place.
            let text = spec.to_string();
            let (name, rest) = text.split_once(':').unwrap_or((&text, ""));
            let others = rest
                .split(',')
                .filter(|part| !part.is_empty() && part.split_once('=').is_none_or(|(key, _)| key != parameter.key));
            let set = format!("{}={value}", parameter.key);
            let parts: Vec<&str> = others.chain([set.as_str()]).collect();
            if let Ok(changed) = format!("{name}:{}", parts.join(",")).parse::<Spec<K>>()
                && changed != spec
                && !found.contains(&changed.to_string())
            {
                found.push(changed.to_string());
            }
        }
    }
    found
}

/// The number and the unit of a span.
fn span(scale: impl ToString) -> (f64, String) {
    let text = scale.to_string();
    let unit = text.trim_start_matches(|c: char| !c.is_ascii_alphabetic());
    (text[..text.len() - unit.len()].parse().unwrap_or(1.0), unit.into())
}

fn parameters_of<K: PolicyKind>(spec: &Spec<K>) -> Json {
    let args = spec.args();
    let of = |parameter: &Parameter| {
        let key = parameter.key;
        Some(match parameter.kind {
            ParameterKind::Choice(names) => json!({"key": key, "kind": "choice", "names": names}),
            ParameterKind::Number { default, min, max } => {
                json!({"key": key, "kind": "number", "default": default, "min": min, "max": max})
            }
            ParameterKind::Share { default } => json!({"key": key, "kind": "share", "default": default}),
            ParameterKind::Scale { .. } => {
                let (value, unit) = span(args.scale(key));
                json!({"key": key, "kind": "scale", "value": value, "unit": unit})
            }
            ParameterKind::Presets(_) => return None,
        })
    };
    spec.row().parameters.iter().filter_map(of).collect()
}

/// The parameters of a policy and what they may be, for other searches: a list of objects with `key`, `kind` (`choice`,
/// `number`, `share`, `scale`) and the names, bounds or default of that kind. `kind` is `selection` or `placement`.
///
/// # Errors
/// There is no such policy.
pub fn parameters(kind: &str, name: &str) -> Result<Json, LabError> {
    match kind {
        "selection" => Ok(parameters_of(&name.parse::<SelectionSpec>()?)),
        "placement" => Ok(parameters_of(&name.parse::<PlacementSpec>()?)),
        _ => {
            let problem = "expected selection or placement".into();
            Err(LabError::Setting { key: "policy".into(), value: kind.into(), problem })
        }
    }
}

/// The usual pairs, or all pairs of those that are named.
///
/// # Errors
/// A name is not known.
pub(super) fn pairs(selections: &[String], placements: &[String]) -> Result<Vec<Candidate>, LabError> {
    fn named<K: PolicyKind>(names: &[String]) -> Result<Vec<Spec<K>>, LabError> {
        if names.is_empty() {
            return Ok(Spec::usual().collect());
        }
        Ok(names.iter().map(|name| name.parse()).collect::<Result<_, _>>()?)
    }
    let (selections, placements) = (named(selections)?, named(placements)?);
    let of = |selection: SelectionSpec, placement: PlacementSpec| Candidate {
        selection: selection.to_string(),
        placement: placement.to_string(),
        leveling: LevelingSpec::default().to_string(),
    };
    let all = selections.iter().flat_map(|selection| placements.iter().map(move |placement| (*selection, *placement)));
    Ok(all.map(|(selection, placement)| of(selection, placement)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_differs_in_one_parameter() {
        let pair = Candidate::pair("cat", "m4").unwrap();
        let neighbours = pair.neighbours();
        assert!(neighbours.len() > 2, "{neighbours:?}");
        assert!(
            neighbours
                .iter()
                .all(|other| *other != pair
                    && (other.selection == pair.selection) != (other.placement == pair.placement))
        );
        assert!(Candidate::plain().neighbours().iter().all(|other| other.selection.starts_with("greedy")));
        let regions = Candidate::pair("greedy", "dac:regions=16").unwrap().neighbours();
        assert!(regions.iter().any(|other| other.placement.contains("regions=4")), "{regions:?}");
    }

    #[test]
    fn the_simplest_has_no_leveling_the_fewest_streams_and_usual_parameters() {
        let pair = |selection, placement| Candidate::pair(selection, placement).unwrap();
        let ascending = [
            pair("greedy", "m1"),
            pair("cat", "m1"),
            pair("greedy", "sepgc"),
            pair("greedy", "dac"),
            pair("greedy", "sepbit"),
            Candidate::plain().leveled(),
        ];
        for simpler in ascending.windows(2) {
            assert!(simpler[0].complexity() < simpler[1].complexity(), "{simpler:?}");
        }
        let usual = pair("cat", "m1");
        assert!(usual.neighbours().iter().all(|changed| usual.complexity() < changed.complexity()));
    }

    #[test]
    fn pairs_are_the_usual_ones_unless_others_are_named() {
        let usual = pairs(&[], &[]).unwrap();
        assert!(
            usual.iter().any(|pair| pair.selection.starts_with("lifetime") && pair.placement.starts_with("lifetime"))
        );
        assert!(usual.contains(&Candidate::plain()));
        assert_eq!(pairs(&["fifo".into()], &["m1".into(), "m4".into()]).unwrap().len(), 2);
        assert!(pairs(&["fif0".into()], &[]).is_err());
    }
}
