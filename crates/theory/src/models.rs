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
        },
        ModelInfo {
            name: "greedy",
            summary: "WA of greedy, uniform random writes",
            parameters: &[ALPHA, B],
            source: "Desnoyers 2012",
        },
        ModelInfo {
            name: "agarwal-marrow",
            summary: "WA of greedy, uniform random writes, cruder",
            parameters: &[ALPHA],
            source: "Agarwal and Marrow 2010",
        },
        ModelInfo {
            name: "random",
            summary: "WA of random selection, uniform random writes",
            parameters: &[ALPHA],
            source: "Van Houdt 2013",
        },
        ModelInfo {
            name: "d-choices",
            summary: "WA of d-choices, uniform random writes, mean field",
            parameters: &[ALPHA, B, ("d", "segments drawn")],
            source: "Van Houdt 2013",
        },
        ModelInfo {
            name: "fifo-hot-cold",
            summary: "WA of FIFO, two classes of pages mixed",
            parameters: &[ALPHA, R, F],
            source: "Desnoyers 2012",
        },
        ModelInfo {
            name: "separated-hot-cold",
            summary: "WA with two classes in pools of their own, spare space split best",
            parameters: &[ALPHA, R, F],
            source: "Desnoyers 2012",
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
        },
    ];
    MODELS
}

/// Evaluates a model. Returns its values by name: `wa` for write amplification, `erases` and `copies` for the cleaning
/// cost. It is an error if there is no such model, a parameter is missing or unknown, or a value is outside the domain.
pub fn evaluate(name: &str, values: &BTreeMap<String, f64>) -> Result<Vec<(&'static str, f64)>, TheoryError> {
    let Some(model) = models().iter().find(|model| model.name == name) else {
        let known = models().iter().map(|model| model.name).collect::<Vec<_>>().join(", ");
        return Err(TheoryError::UnknownModel { name: name.into(), known });
    };
    let known = || model.parameters.iter().map(|(key, what)| format!("{key} ({what})")).collect::<Vec<_>>().join(", ");
    let wrong = |problem: String| TheoryError::Parameter { model: model.name, problem, known: known() };
    if let Some(key) = values.keys().find(|key| model.parameters.iter().all(|(known, _)| known != key)) {
        return Err(wrong(format!("'{key}' is not one of its parameters")));
    }
    let get = |key: &str| values.get(key).copied().ok_or_else(|| wrong(format!("'{key}' is missing")));
    let wa = |wa: f64| Ok(vec![("wa", wa)]);
    match name {
        "fifo" => wa(fifo_uniform_wa(get("alpha")?)?),
        "greedy" => wa(greedy_uniform_wa(get("alpha")?, get("b")?)?),
        "agarwal-marrow" => wa(agarwal_marrow_wa(get("alpha")?)?),
        "random" => wa(random_wa(1.0 / get("alpha")?)?),
        "d-choices" => {
            let b = get("b")?;
            domain("b", b, b.fract() == 0.0 && (2.0..=65_536.0).contains(&b), "a whole number from 2 to 65536")?;
            wa(d_choices_wa(1.0 / get("alpha")?, b as u32, get("d")?, FullVictims::Redrawn)?)
        }
        "fifo-hot-cold" => wa(fifo_two_class_wa(get("alpha")?, get("r")?, get("f")?)?),
        "separated-hot-cold" => wa(separated_pools_wa(get("alpha")?, get("r")?, get("f")?)?),
        _ => {
            let cost = cleaning_cost(get("u")?, get("i")?, get("p")?, get("segments")?, get("b")?)?;
            Ok(vec![("erases", cost.erases), ("copies", cost.copies)])
        }
    }
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
