use crate::{
    FullVictims, TheoryError, agarwal_marrow_wa, cleaning_cost, d_choices_wa, domain, fifo_two_class_wa,
    fifo_uniform_wa, greedy_uniform_wa, random_wa, separated_pools_wa,
};
use std::collections::BTreeMap;

/// A model, as it is listed for people.
#[derive(Clone, Copy, Debug)]
pub struct ModelInfo {
    /// The name that is written on the command line.
    pub name: &'static str,
    /// The values that it gives.
    pub summary: &'static str,
    /// The names of its parameters and their meaning. All of them are required.
    pub parameters: &'static [(&'static str, &'static str)],
    /// The paper that it is from.
    pub source: &'static str,
    /// Computes its values.
    formula: fn(&Arguments) -> Result<Values, TheoryError>,
}

/// Values of a model by name.
type Values = Vec<(&'static str, f64)>;

/// What a model is evaluated with: a value for each of its parameters.
struct Arguments<'a> {
    model: &'a ModelInfo,
    values: &'a BTreeMap<String, f64>,
}

impl Arguments<'_> {
    fn wrong(&self, problem: String) -> TheoryError {
        let known = self.model.parameters.iter().map(|(key, what)| format!("{key} ({what})"));
        TheoryError::Parameter { model: self.model.name, problem, known: known.collect::<Vec<_>>().join(", ") }
    }

    fn get(&self, key: &str) -> Result<f64, TheoryError> {
        self.values.get(key).copied().ok_or_else(|| self.wrong(format!("'{key}' is missing")))
    }
}

fn wa(wa: f64) -> Result<Values, TheoryError> {
    Ok(vec![("wa", wa)])
}

const ALPHA: (&str, &str) = ("alpha", "physical / exported pages");
const B: (&str, &str) = ("b", "pages per segment");
const R: (&str, &str) = ("r", "share of the writes to the hot class");
const F: (&str, &str) = ("f", "share of the pages in the hot class");

/// All models.
pub fn models() -> &'static [ModelInfo] {
    const MODELS: &[ModelInfo] = &[
        ModelInfo {
            name: "fifo",
            summary: "WA of FIFO, uniform random writes",
            parameters: &[ALPHA],
            source: "Desnoyers 2012; Xiang and Kurkoski 2012",
            formula: |at| wa(fifo_uniform_wa(at.get("alpha")?)?),
        },
        ModelInfo {
            name: "greedy",
            summary: "WA of greedy, uniform random writes",
            parameters: &[ALPHA, B],
            source: "Desnoyers 2012",
            formula: |at| wa(greedy_uniform_wa(at.get("alpha")?, at.get("b")?)?),
        },
        ModelInfo {
            name: "agarwal-marrow",
            summary: "WA of greedy, uniform random writes, cruder",
            parameters: &[ALPHA],
            source: "Agarwal and Marrow 2010",
            formula: |at| wa(agarwal_marrow_wa(at.get("alpha")?)?),
        },
        ModelInfo {
            name: "random",
            summary: "WA of random selection, uniform random writes",
            parameters: &[ALPHA],
            source: "Van Houdt 2013",
            formula: |at| wa(random_wa(1.0 / at.get("alpha")?)?),
        },
        ModelInfo {
            name: "d-choices",
            summary: "WA of d-choices, uniform random writes, mean field",
            parameters: &[ALPHA, B, ("d", "segments drawn")],
            source: "Van Houdt 2013",
            formula: |at| {
                let b = at.get("b")?;
                domain("b", b, b.fract() == 0.0 && (2.0..=65_536.0).contains(&b), "a whole number from 2 to 65536")?;
                wa(d_choices_wa(1.0 / at.get("alpha")?, b as u32, at.get("d")?, FullVictims::Redrawn)?)
            },
        },
        ModelInfo {
            name: "fifo-hot-cold",
            summary: "WA of FIFO, two classes of pages mixed",
            parameters: &[ALPHA, R, F],
            source: "Desnoyers 2012",
            formula: |at| wa(fifo_two_class_wa(at.get("alpha")?, at.get("r")?, at.get("f")?)?),
        },
        ModelInfo {
            name: "separated-hot-cold",
            summary: "WA with two classes in pools of their own, spare space split best",
            parameters: &[ALPHA, R, F],
            source: "Desnoyers 2012",
            formula: |at| wa(separated_pools_wa(at.get("alpha")?, at.get("r")?, at.get("f")?)?),
        },
        ModelInfo {
            name: "cleaning-cost",
            summary: "erases and copies of cleaning a whole device",
            parameters: &[
                ("u", "utilization"),
                ("i", "invalidity"),
                ("p", "uniformity"),
                ("segments", "segments of the device"),
                B,
            ],
            source: "Baek et al. 2009 (MODA), eq. 2",
            formula: |at| {
                let (u, i, p) = (at.get("u")?, at.get("i")?, at.get("p")?);
                let cost = cleaning_cost(u, i, p, at.get("segments")?, at.get("b")?)?;
                Ok(vec![("erases", cost.erases), ("copies", cost.copies)])
            },
        },
    ];
    MODELS
}

/// Evaluates a model. Returns its values by name: `wa` for write amplification, `erases` and `copies` for the cleaning
/// cost.
///
/// ```
/// use margay_theory::evaluate;
///
/// let values = [("alpha".to_string(), 1.1), ("b".to_string(), 64.0)].into();
/// let greedy = evaluate("greedy", &values)?;
/// assert!(greedy[0].0 == "wa" && (4.0..6.0).contains(&greedy[0].1));
/// # Ok::<(), margay_theory::TheoryError>(())
/// ```
///
/// # Errors
/// There is no such model, a parameter is missing or unknown, or a value is outside the domain.
pub fn evaluate(name: &str, values: &BTreeMap<String, f64>) -> Result<Vec<(&'static str, f64)>, TheoryError> {
    let Some(model) = models().iter().find(|model| model.name == name) else {
        let known = models().iter().map(|model| model.name).collect::<Vec<_>>().join(", ");
        return Err(TheoryError::UnknownModel { name: name.into(), known });
    };
    let at = Arguments { model, values };
    if let Some(key) = values.keys().find(|key| model.parameters.iter().all(|(known, _)| known != key)) {
        return Err(at.wrong(format!("'{key}' is not one of its parameters")));
    }
    (model.formula)(&at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_evaluates_with_its_parameters_and_names_what_is_missing() {
        let example = [("alpha", 1.1), ("b", 64.0), ("d", 10.0), ("r", 0.9), ("f", 0.1)];
        let more = [("u", 0.5), ("i", 0.2), ("p", 0.9), ("segments", 100.0)];
        let all: BTreeMap<_, _> = example.into_iter().chain(more).collect();
        for model in models() {
            let values: BTreeMap<String, f64> =
                model.parameters.iter().map(|(key, _)| (key.to_string(), all[key])).collect();
            assert!(evaluate(model.name, &values).unwrap().iter().all(|(_, value)| *value >= 1.0), "{}", model.name);
            assert!(evaluate(model.name, &BTreeMap::new()).unwrap_err().to_string().contains("is missing"));
        }
        let error = evaluate("greed", &BTreeMap::new()).unwrap_err().to_string();
        assert!(error.starts_with("unknown model 'greed'; the known ones are fifo, greedy"), "{error}");
    }
}
