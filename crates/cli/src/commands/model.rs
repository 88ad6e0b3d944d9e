use crate::failure::Failure;
use crate::output::wrapped_at;
use margay_theory::{OverProvisioning, evaluate, models};
use std::collections::BTreeMap;

pub fn run(name: Option<String>, values: &[String]) -> Result<(), Failure> {
    let Some(name) = name else {
        for model in models() {
            let what = format!("{}  [{}]", model.summary, model.source);
            say!("{:<20} {}", model.name, wrapped_at(&what, 21).trim_end());
            for (key, meaning) in model.parameters {
                say!("{:<20}   {key}: {meaning}", "");
            }
        }
        return Ok(());
    };
    let mut parameters = BTreeMap::new();
    let mut idle = None;
    for value in values {
        let wanted = || Failure::Usage(format!("'{value}': expected key=number, for instance alpha=1.1"));
        let (key, number) = value.split_once('=').ok_or_else(wanted)?;
        if key == "idle" {
            idle = Some(share(number)?);
            continue;
        }
        let number: f64 = number.parse().map_err(|_| wanted())?;
        let provisioning = match key {
            "op" => Some(OverProvisioning::from_over_provisioning(number)?),
            "spare" => Some(OverProvisioning::from_spare_factor(number)?),
            "rho" => Some(OverProvisioning::from_utilization(number)?),
            "alpha" => Some(OverProvisioning::from_alpha(number)?),
            _ => None,
        };
        match provisioning {
            Some(provisioning) => parameters.insert("alpha".into(), provisioning.alpha()),
            None => parameters.insert(key.into(), number),
        };
    }
    let given = parameters.get("alpha").copied();
    if let (Some(idle), Some(alpha)) = (idle, parameters.get_mut("alpha")) {
        *alpha = OverProvisioning::from_alpha(*alpha * (1.0 - idle))?.alpha();
    }
    let results = evaluate(&name, &parameters)?;
    if let Some(alpha) = given {
        let line = OverProvisioning::from_alpha(alpha)?.to_string();
        say!("{}", wrapped_at(&line, 0).trim_end());
    }
    if let (Some(_), Some(alpha)) = (idle, parameters.get("alpha")) {
        let line = format!("without the idle segments: {}", OverProvisioning::from_alpha(*alpha)?);
        say!("{}", wrapped_at(&line, 0).trim_end());
    }
    for (what, value) in results {
        say!("{what} = {value:.6}");
    }
    if given.is_some() && idle.is_none() {
        let note = "Physical pages are those from which victims are drawn. On a device some segments are open or kept free, so a replay at the same over-provisioning costs more: idle=3/1024 takes 3 of 1,024 segments off, and margay replay prints its effective over-provisioning, for which this model holds.";
        say!("{}", wrapped_at(note, 0).trim_end());
    }
    Ok(())
}

/// The share that `3/1024` or `0.003` is.
fn share(text: &str) -> Result<f64, Failure> {
    let wrong =
        || Failure::Usage(format!("idle={text}: expected idle segments / all segments, for instance idle=3/1024"));
    let number = |text: &str| text.parse::<f64>().map_err(|_| wrong());
    let share = match text.split_once('/') {
        Some((idle, all)) => number(idle)? / number(all)?,
        None => number(text)?,
    };
    if (0.0..1.0).contains(&share) { Ok(share) } else { Err(wrong()) }
}
