use crate::failure::Failure;
use crate::output::wrapped_at;
use margay_theory::models;

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
    let pair = |value: &String| {
        let pair = value.split_once('=').map(|(key, text)| (key.to_string(), text.to_string()));
        pair.ok_or_else(|| Failure::Usage(format!("'{value}': expected key=number, for instance alpha=1.1")))
    };
    let parameters = values.iter().map(pair).collect::<Result<Vec<_>, _>>()?;
    let result = margay_lab::model(&name, &parameters)?;
    if let Some(given) = result.given {
        say!("{}", wrapped_at(&given.to_string(), 0).trim_end());
    }
    if let Some(less) = result.without_idle {
        say!("{}", wrapped_at(&format!("without the idle segments: {less}"), 0).trim_end());
    }
    for (what, value) in result.values {
        say!("{what} = {value:.6}");
    }
    if result.given.is_some() && result.without_idle.is_none() {
        let note = "Physical pages are those from which victims are drawn. On a device some segments are open or kept free, so a replay at the same over-provisioning costs more: idle=3/1024 takes 3 of 1,024 segments off, and margay replay prints its effective over-provisioning, for which this model holds.";
        say!("{}", wrapped_at(note, 0).trim_end());
    }
    Ok(())
}
