//! Runs that differ in their seed alone, taken together; which of them can be told apart, and which policies to choose.

use crate::result::ResultRow;
use crate::statistics::Interval;
use margay_policy::spec::PolicyKind;
use margay_policy::{LevelingSpec, PlacementSpec, SelectionSpec, Spec, SpecError};
use std::collections::HashMap;
use std::hash::Hash;

/// A difference in write amplification, as a share, that is none whatever the intervals say.
pub const SMALL_DIFFERENCE: f64 = 0.005;

/// Runs of one experiment with different seeds.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// Their results, at least one.
    pub rows: Vec<&'a ResultRow>,
}

/// A policy's text, or its name alone if its parameters are the usual ones.
fn short<K: PolicyKind>(spec: Result<Spec<K>, SpecError>, text: &str) -> &str {
    let name = text.split(':').next().unwrap_or(text);
    if spec.is_ok_and(|spec| name.parse() == Ok(spec)) { name } else { text }
}

/// Selection and placement of a run, and its leveling if there is one, without parameters that are the usual ones.
pub fn policies_of(row: &ResultRow) -> (String, String) {
    let selection = short(row.selection.parse::<SelectionSpec>(), &row.selection);
    let placement = short(row.placement.parse::<PlacementSpec>(), &row.placement);
    let leveling = short(row.leveling.parse::<LevelingSpec>(), &row.leveling);
    let placement = if leveling == "none" { placement.into() } else { format!("{placement} + {leveling}") };
    (selection.into(), placement)
}

impl<'a> Group<'a> {
    /// Groups of rows with the same key, in the order in which they first come.
    pub fn by<K: Eq + Hash>(rows: impl IntoIterator<Item = (K, &'a ResultRow)>) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        let mut places = HashMap::new();
        for (key, row) in rows {
            let at = *places.entry(key).or_insert_with(|| {
                groups.push(Self { rows: Vec::new() });
                groups.len() - 1
            });
            groups[at].rows.push(row);
        }
        groups
    }

    /// Groups of rows with the same policies.
    pub fn by_policies(rows: impl IntoIterator<Item = &'a ResultRow>) -> Vec<Self> {
        Self::by(rows.into_iter().map(|row| ((&row.selection, &row.placement, &row.leveling), row)))
    }

    /// Whether the placement has to know the future, so that only the laboratory can run it.
    pub fn is_oracle(&self) -> bool {
        self.rows[0].placement.parse::<PlacementSpec>().is_ok_and(|placement| placement.is_oracle())
    }

    /// The policies.
    pub fn name(&self) -> String {
        let (selection, placement) = policies_of(self.rows[0]);
        format!("{selection} + {placement}")
    }

    /// The mean of a measure over the seeds, with its interval.
    pub fn interval(&self, measure: impl Fn(&ResultRow) -> f64) -> Interval {
        Interval::of(&self.rows.iter().map(|row| measure(row)).collect::<Vec<_>>())
    }

    /// The mean of a measure.
    pub fn mean(&self, measure: impl Fn(&ResultRow) -> f64) -> f64 {
        self.interval(measure).mean
    }

    /// Write amplification in the warm window: over the seeds, or, of one run or the same runs, from the parts of its window.
    pub fn wa(&self) -> Interval {
        let [first, others @ ..] = self.rows.as_slice() else { return Interval::exact(f64::NAN) };
        // Nothing is left to chance if all seeds give the same: then only the parts of a run differ.
        if others.iter().all(|row| row.wa_warm == first.wa_warm) {
            return Interval { mean: first.wa_warm, half95: first.wa_warm_half95, count: 1 };
        }
        self.interval(|row| row.wa_warm)
    }

    /// Why the runs of the group had not settled, if half of them or more had not: of many that had, one can look as if it
    /// had not by chance.
    pub fn unsettled(&self) -> Option<&str> {
        let mut reasons = self.rows.iter().filter(|row| !row.settled).map(|row| row.unsettled.as_str());
        let count = reasons.clone().count();
        reasons.next().filter(|_| 2 * count >= self.rows.len())
    }

    /// Whether the write amplifications of two groups differ by more than chance and by more than
    /// [`SMALL_DIFFERENCE`]. Runs with the same seed have the same workload, so their differences are what counts.
    pub fn is_apart(&self, other: &Self) -> bool {
        let (a, b) = (self.wa(), other.wa());
        let difference = (a.mean - b.mean).abs();
        if difference.is_nan() || difference <= SMALL_DIFFERENCE * a.mean.min(b.mean) {
            return false;
        }
        let pairs: Vec<f64> = self
            .rows
            .iter()
            .filter_map(|row| {
                let same = other.rows.iter().find(|other| other.seed == row.seed)?;
                Some(row.wa_warm - same.wa_warm)
            })
            .collect();
        match Interval::of(&pairs) {
            Interval { half95: Some(half), mean, .. } => mean.abs() > half,
            _ => difference > a.half95.unwrap_or(0.0).hypot(b.half95.unwrap_or(0.0)),
        }
    }
}

/// Names as `a`, `a or b`, `a, b or c`.
fn list(names: &[String], and: &str) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} {and} {last}", first.join(", ")),
    }
}

/// How many policies the advice names.
const NAMED: usize = 4;

/// A sentence or two: which policies to choose, what they gain over greedy with one stream, which cannot be told apart. If
/// runs that matter had not settled, it says so and advises nothing. Oracles are never advised. Empty if nothing can be said.
pub fn advice(groups: &[Group<'_>]) -> String {
    let mut known: Vec<&Group<'_>> =
        groups.iter().filter(|group| !group.is_oracle() && group.wa().mean.is_finite()).collect();
    known.sort_by(|a, b| a.wa().mean.total_cmp(&b.wa().mean));
    let [best, others @ ..] = known.as_slice() else { return String::new() };
    let is_plain = |group: &&&Group<'_>| group.name() == "greedy + m1";
    let plain = known.iter().find(is_plain).copied();
    if others.is_empty() || known.iter().all(|group| group.mean(|row| row.erases as f64) == 0.0) {
        return String::new();
    }
    let tied: Vec<&Group<'_>> = others.iter().copied().filter(|other| !best.is_apart(other)).collect();
    let matter = || std::iter::once(*best).chain(tied.iter().copied()).chain(plain);
    if let Some((group, why)) = matter().find_map(|group| Some((group, group.unsettled()?))) {
        let count = known.iter().filter(|group| group.unsettled().is_some()).count();
        return format!(
            "No advice: {count} of {} pairs had not settled, among them {} ({why}). In the window as it is, {} has the lowest WA, {}, and a longer run may say otherwise: --until-steady goes on until it has settled.\n",
            known.len(),
            group.name(),
            best.name(),
            best.wa().show(3),
        );
    }
    let names: Vec<String> = std::iter::once(*best).chain(tied.iter().copied()).map(Group::name).collect();
    let was: Vec<String> = std::iter::once(*best).chain(tied.iter().copied()).map(|group| group.wa().show(3)).collect();
    let more = names.len().saturating_sub(NAMED);
    let shown = names.len().min(NAMED);
    let of_more = if more > 0 { format!(" ({more} more are as good)") } else { String::new() };
    if let Some(plain) = plain.filter(|plain| !best.is_apart(plain)) {
        return format!(
            "Choose greedy + m1 (WA {}): nothing here is better than it by more than chance and {} %.\n",
            plain.wa().show(3),
            100.0 * SMALL_DIFFERENCE
        );
    }
    let choice = if shown == 1 {
        format!("Choose {}: WA {}", names[0], was[0])
    } else {
        let of_each = list(&was[..shown], "and");
        format!(
            "{}{of_more} cannot be told apart: WA {of_each}. Choose any of them: WA {}",
            list(&names[..shown], "and"),
            was[0]
        )
    };
    let Some(plain) = plain else { return format!("{choice}.\n") };
    let erases = |group: &Group<'_>| group.mean(|row| row.erases as f64 / row.host_writes as f64);
    let fewer = 100.0 * (1.0 - erases(best) / erases(plain));
    let (amount, what) = if fewer < 0.0 { (-fewer, "more") } else { (fewer, "fewer") };
    // How evenly a run wears depends on its length.
    let length = |group: &Group<'_>| group.mean(|row| row.host_writes as f64);
    let life = |group: &Group<'_>| group.mean(|row| row.forecast.tbw_first.unwrap_or(f64::NAN));
    let longer = life(best) / life(plain);
    let of_life = if longer.is_finite() && length(best) == length(plain) {
        format!(", {longer:.2} times the data written until the first segment wears out")
    } else {
        String::new()
    };
    format!("{choice} instead of {} with greedy + m1, {amount:.0} % {what} erases{of_life}.\n", plain.wa().show(3))
}
