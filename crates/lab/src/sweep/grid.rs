//! The points of a sweep: every value of every setting with every value of the others.

use crate::LabError;
use crate::experiment::Experiment;
use crate::held::HeldTraces;
use crate::settings::{Settings, from_table};
use toml::{Table, Value};
use xxhash_rust::xxh3::xxh3_64;

/// Seeds of a point whose workload or policy draws at random, if the number is not asked for.
pub const USUAL_SEEDS: u32 = 5;
/// The greatest number of points, which is more than anybody waits for.
const MAX_POINTS: usize = 1_000_000;

/// One run of a sweep.
#[derive(Clone, Debug)]
pub struct Point {
    /// The settings that the sweep varies, without the seed.
    pub varied: Table,
    /// The seed.
    pub seed: u64,
    /// All settings.
    pub settings: Settings,
    /// Names the run among all runs: the same for equal experiments, whatever the settings that lead to it.
    pub key: String,
}

impl Point {
    /// What sets the point apart, for people: `over-provisioning = 0.1, selection = greedy, seed = 3`.
    pub fn name(&self) -> String {
        let text = |(key, value): (&String, &Value)| format!("{key} = {}", plain(value));
        let mut parts: Vec<String> = self.varied.iter().map(text).collect();
        parts.push(format!("seed = {}", self.seed));
        parts.join(", ")
    }
}

/// A value as people write it, without quotation marks.
pub fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(" "),
        value => value.to_string(),
    }
}

fn wrong(key: &str, value: &str, problem: impl Into<String>) -> LabError {
    LabError::Setting { key: key.into(), value: value.into(), problem: problem.into() }
}

/// The values of a list on the command line: `greedy,cat:shape=sqrt,scale=2d,fifo` has three, because `key=value` belongs
/// to what it follows.
pub fn split_list(text: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for part in text.split(',') {
        let continues = part.split_once('=').is_some_and(|(key, _)| !key.contains(':'));
        match parts.last_mut() {
            Some(last) if continues => *last = format!("{last},{part}"),
            _ => parts.push(part.trim().into()),
        }
    }
    parts
}

/// A text of the command line as the kind of value that it looks like.
pub fn typed(text: &str) -> Value {
    if let Ok(number) = text.parse::<i64>() {
        return Value::Integer(number);
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Value::Float(number),
        _ => text.parse::<bool>().map_or_else(|_| Value::String(text.into()), Value::Boolean),
    }
}

/// Twelve significant digits, so that 0.07 + 2 x 0.03 is 0.13.
fn rounded(number: f64) -> f64 {
    format!("{number:.11e}").parse().unwrap_or(number)
}

/// The values of `from..to:step` (or `from..to` of whole numbers, or `from..to:*factor`), both ends included; none if the
/// text is no range.
fn range(key: &str, text: &str) -> Result<Option<Vec<Value>>, LabError> {
    let Some((from, rest)) = text.split_once("..") else { return Ok(None) };
    let (to, step) = rest.split_once(':').map_or((rest, None), |(to, step)| (to, Some(step.trim())));
    let (Ok(first), Ok(last)) = (from.trim().parse::<f64>(), to.trim().parse::<f64>()) else { return Ok(None) };
    let is_whole = |text: &str| text.trim().parse::<i64>().is_ok();
    let factor = step.and_then(|step| step.strip_prefix('*'));
    let number = match (step, factor) {
        (None, _) if is_whole(from) && is_whole(to) => 1.0,
        (None, _) => return Err(wrong(key, text, "name the step: FROM..TO:STEP, as 0.07..0.28:0.03")),
        (Some(step), None) => step.parse().unwrap_or(f64::NAN),
        (_, Some(factor)) => factor.trim().parse().unwrap_or(f64::NAN),
    };
    let is_growing = if factor.is_some() { number > 1.0 && first > 0.0 } else { number > 0.0 };
    if !(is_growing && number.is_finite() && first <= last && last.is_finite()) {
        let wanted = "expected FROM..TO:STEP with FROM up to TO and a positive step, or FROM..TO:*FACTOR over 1";
        return Err(wrong(key, text, wanted));
    }
    let whole = is_whole(from) && number.fract() == 0.0;
    let mut values = Vec::new();
    for at in 0.. {
        let value = if factor.is_some() { first * number.powi(at) } else { first + f64::from(at) * number };
        if value > last * (1.0 + 1e-9) + 1e-12 {
            break;
        }
        if values.len() == 10_000 {
            return Err(wrong(key, text, "has more than 10,000 values; choose a longer step"));
        }
        values.push(if whole { Value::Integer(value.round() as i64) } else { Value::Float(rounded(value)) });
    }
    Ok(Some(values))
}

/// The values that a list or a range stands for, or the one value.
pub(crate) fn expanded(key: &str, value: Value) -> Result<Vec<Value>, LabError> {
    match value {
        Value::String(text) => Ok(range(key, &text)?.unwrap_or_else(|| vec![Value::String(text)])),
        Value::Array(values) => {
            let mut all = Vec::new();
            for value in values {
                match value {
                    // A list in a list is one value, of a setting that takes lists.
                    Value::Array(_) => all.push(value),
                    value => all.append(&mut expanded(key, value)?),
                }
            }
            if all.is_empty() {
                return Err(wrong(key, "[]", "has no value"));
            }
            Ok(all)
        }
        value => Ok(vec![value]),
    }
}

/// What names an experiment: all that it is, the content of files that describe its device and workload included.
fn key_of(experiment: &Experiment, from_trace: bool) -> String {
    format!("{:016x}", xxh3_64(format!("{experiment:?} {from_trace}").as_bytes()))
}

/// The points of a table of settings, of which each can have a list of values or a range. Each point whose result depends on
/// the seed is run with `seeds` of them ([`USUAL_SEEDS`] if that is not said), from the setting `seed` on; a list of seeds
/// in the table is taken instead.
///
/// # Errors
/// A range is none, a value is not what its setting takes, or a point is impossible; the message names it.
pub fn points(table: Table, seeds: Option<u32>) -> Result<Vec<Point>, LabError> {
    points_with(table, seeds, &HeldTraces::default())
}

/// The same, where `source` can name traces in memory too.
///
/// # Errors
/// Those of [`points`].
pub fn points_with(table: Table, seeds: Option<u32>, held: &HeldTraces) -> Result<Vec<Point>, LabError> {
    if seeds == Some(0) {
        return Err(wrong("seeds", "0", "expected a number of seeds from 1 on"));
    }
    let mut combinations = vec![(Table::new(), Table::new())];
    let mut seeds_listed = false;
    for (key, value) in table {
        let values = expanded(&key, value)?;
        let is_varied = values.len() > 1;
        if combinations.len() * values.len() > MAX_POINTS {
            return Err(wrong(&key, &format!("{} values", values.len()), "makes more than 1,000,000 points"));
        }
        seeds_listed |= is_varied && key == "seed";
        let mut next = Vec::with_capacity(combinations.len() * values.len());
        for (all, varied) in &combinations {
            for value in &values {
                let (mut all, mut varied) = (all.clone(), varied.clone());
                all.insert(key.clone(), value.clone());
                if is_varied && key != "seed" {
                    varied.insert(key.clone(), value.clone());
                }
                next.push((all, varied));
            }
        }
        combinations = next;
    }
    let mut points = Vec::new();
    for (all, varied) in combinations {
        let of_point = |error: LabError| match error {
            error if varied.is_empty() => error,
            error => LabError::Point { point: name_of(&varied), error: Box::new(error) },
        };
        let settings = Settings { held: held.clone(), ..from_table(&all).map_err(of_point)? };
        let (experiment, from_trace) = settings.experiment().map_err(of_point)?;
        if !from_trace {
            experiment.exported_pages().map_err(of_point)?;
        }
        let count = match seeds {
            _ if seeds_listed || !experiment.is_random() => 1,
            asked => asked.unwrap_or(USUAL_SEEDS),
        };
        for seed in (0..u64::from(count)).map(|more| experiment.seed.wrapping_add(more)) {
            let settings = Settings { seed: Some(seed), ..settings.clone() };
            let key = key_of(&Experiment { seed, ..experiment.clone() }, from_trace);
            points.push(Point { varied: varied.clone(), seed, settings, key });
        }
    }
    Ok(points)
}

fn name_of(varied: &Table) -> String {
    varied.iter().map(|(key, value)| format!("{key} = {}", plain(value))).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<String> {
        expanded("x", Value::String(text.into())).unwrap().iter().map(plain).collect()
    }

    #[test]
    fn ranges_have_both_ends_and_no_digits_of_rounding() {
        assert_eq!(values("0.07..0.28:0.03"), ["0.07", "0.1", "0.13", "0.16", "0.19", "0.22", "0.25", "0.28"]);
        assert_eq!(values("3..5"), ["3", "4", "5"]);
        assert_eq!(values("64..512:*2"), ["64", "128", "256", "512"]);
        assert_eq!(values("1..2:0.5"), ["1.0", "1.5", "2.0"]);
        assert_eq!(values("../traces/a.csv"), ["../traces/a.csv"]);
        for wrong in ["0.1..0.2", "3..1", "1..9:0", "1..9:-1", "1..9:*1", "0..9:*2", "1..9:x", "0..1e9"] {
            assert!(expanded("x", Value::String(wrong.into())).is_err(), "{wrong}");
        }
    }

    #[test]
    fn commas_part_values_and_not_the_parameters_of_one() {
        assert_eq!(split_list("greedy,cat:shape=sqrt,scale=2d,fifo"), ["greedy", "cat:shape=sqrt,scale=2d", "fifo"]);
        assert_eq!(split_list("random,writes=10,zipf:0.9,writes=5"), ["random,writes=10", "zipf:0.9,writes=5"]);
        assert_eq!(split_list("0.1, 0.2"), ["0.1", "0.2"]);
    }

    #[test]
    fn every_value_comes_with_every_other_and_seeds_where_chance_is_at_work() {
        let table = |text: &str| -> Table { toml::from_str(text).unwrap() };
        let all = points(
            table("source = 'random'\nselection = ['greedy', 'cat']\nover-provisioning = '0.1..0.3:0.1'\nseed = 4"),
            Some(3),
        )
        .unwrap();
        assert_eq!(all.len(), 2 * 3 * 3);
        assert_eq!(all[0].name(), "over-provisioning = 0.1, selection = greedy, seed = 4");
        assert_eq!(all[17].name(), "over-provisioning = 0.3, selection = cat, seed = 6");
        let keys: std::collections::HashSet<&String> = all.iter().map(|point| &point.key).collect();
        assert_eq!(keys.len(), all.len());
        // Nothing is left to chance here.
        assert_eq!(
            points(table("source = 'sequential,writes=9'\nselection = ['greedy', 'cat']"), None).unwrap().len(),
            2
        );
        assert_eq!(points(table("source = 'sequential,writes=9'\nselection = 'random'"), None).unwrap().len(), 5);
        assert_eq!(points(table("source = 'random'\nseed = [7, 9]"), Some(3)).unwrap().len(), 2);
    }

    #[test]
    fn an_impossible_point_is_named_before_anything_is_run() {
        let table: Table = toml::from_str("source = 'random'\nutilization = [0.8, 1.5]").unwrap();
        let error = points(table, None).unwrap_err().to_string();
        assert!(error.contains("utilization = 1.5"), "{error}");
        let table: Table = toml::from_str("source = 'random'\nlow-water = ['three']").unwrap();
        let error = points(table, None).unwrap_err().to_string();
        assert!(error.contains("low-water") && error.contains("three"), "{error}");
        let table: Table = toml::from_str("source = 'random'").unwrap();
        let error = points(table, Some(0)).unwrap_err().to_string();
        assert!(error.contains("seeds = 0"), "{error}");
    }
}
