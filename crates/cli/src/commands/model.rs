use crate::failure::Failure;
use margay_theory::{OverProvisioning, evaluate, models};
use std::collections::BTreeMap;

pub fn run(name: Option<String>, values: &[String]) -> Result<(), Failure> {
    let Some(name) = name else {
        for model in models() {
            say!("{:<20} {}  [{}]", model.name, model.summary, model.source);
            for (key, meaning) in model.parameters {
                say!("{:<20}   {key}: {meaning}", "");
            }
        }
        return Ok(());
    };
    let mut parameters = BTreeMap::new();
    for value in values {
        let wanted = || Failure::Usage(format!("'{value}': expected key=number, for instance alpha=1.1"));
        let (key, number) = value.split_once('=').ok_or_else(wanted)?;
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
    let results = evaluate(&name, &parameters)?;
    if let Some(alpha) = parameters.get("alpha") {
        say!("{}", OverProvisioning::from_alpha(*alpha)?);
    }
    for (what, value) in results {
        say!("{what} = {value:.6}");
    }
    Ok(())
}
