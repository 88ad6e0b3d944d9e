use super::progress::Bars;
use crate::args::CompareArgs;
use crate::failure::Failure;
use crate::output::{self, plot, report};
use margay_lab::{Experiment, Outcome};
use margay_policy::spec::PolicyKind;
use margay_policy::{PlacementSpec, SelectionSpec, Spec};

fn specs<K: PolicyKind>(asked: &[String]) -> Result<Vec<Spec<K>>, Failure> {
    if asked.is_empty() {
        return Ok(Spec::all().collect());
    }
    Ok(asked.iter().map(|text| text.parse()).collect::<Result<_, _>>()?)
}

pub fn run(args: CompareArgs) -> Result<(), Failure> {
    output::check(&args.output)?;
    let selections: Vec<SelectionSpec> = specs(&args.selection)?;
    let placements: Vec<PlacementSpec> = specs(&args.placement)?;
    let (base, prepared) = args.setup.experiment()?;
    let mut experiments: Vec<Experiment> = Vec::new();
    for selection in &selections {
        for placement in &placements {
            for seed in 0..u64::from(args.seeds.max(1)) {
                let (selection, placement) = (*selection, *placement);
                experiments.push(Experiment { selection, placement, seed: base.seed + seed, ..base.clone() });
            }
        }
    }
    if let Some(jobs) = args.jobs {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs).build_global();
        pool.map_err(|error| Failure::Usage(format!("--jobs {jobs}: {error}")))?;
    }
    let names: Vec<_> = experiments.iter().map(|e| format!("{} + {} ({})", e.selection, e.placement, e.seed)).collect();
    let bars = Bars::new(&names, args.output.quiet);
    let results = margay_lab::compare::run_all(&experiments, &prepared, &bars);
    bars.finish();
    let outcomes: Vec<Outcome> = results.into_iter().collect::<Result<_, _>>()?;
    output::write_outcomes(&args.output, &outcomes, report::comparison)?;
    if let Some(path) = &args.output.plot {
        plot::comparison(path, args.output.force.existing(), &outcomes)?;
    }
    Ok(())
}
