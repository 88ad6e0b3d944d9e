//! Advice: which policies and how much over-provisioning, for a wanted lifetime of the flash.
//!
//! The search goes from the cheap to the certain. Every pair of usual policies is run once at two over-provisionings (the
//! sieve); the pairs that did well there, and greedy with one stream, are run at all of them; at the smallest one that
//! reaches the lifetime the best pair is tried with other parameters and with leveling; what is then the best there is run
//! with several seeds, where chance is at work, and so are its neighbours. Every run is a point of a sweep, so that what runs
//! sweeps (threads, or a cluster) runs these, and a journal keeps them.

mod life;
mod search;
mod sizes;
mod text;

pub use life::{Life, Verdict};
pub use search::{Candidate, parameters};

use crate::LabError;
use crate::error_kind::ErrorKind;
use crate::experiment::Source;
use crate::held::HeldTraces;
use crate::result::ResultRow;
use crate::settings::{EXCLUSIVE, Settings, from_table};
use crate::summary::{Group, SMALL_DIFFERENCE};
use crate::sweep::{Point, Swept, USUAL_SEEDS, expanded, plain, points_with};
use life::{bytes_per_day, verdict};
use serde::Serialize;
use std::collections::HashSet;
use toml::{Table, Value};

/// Over-provisioning that is tried, if nothing else is asked for.
pub const USUAL_OVER_PROVISIONING: [f64; 9] = [0.05, 0.07, 0.1, 0.15, 0.2, 0.28, 0.4, 0.6, 1.0];
/// Runs of the sieve end after this many times the exported capacity, if nothing else is asked for.
const SIEVE_DEVICE_WRITES: f64 = 10.0;
/// The greatest number of pairs that pass each run of the sieve by write amplification, and as many by the first worn segment.
const PASS: usize = 2;

/// What is asked.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// The settings of all runs, by their keys: source, device and so on, without policies and capacity.
    pub settings: Table,
    /// Traces in memory, which `source` can name.
    pub held: HeldTraces,
    /// Years that the flash is to last.
    pub years: f64,
    /// Bytes that the host writes in a day; without it those of the source, by its times.
    pub bytes_per_day: Option<f64>,
    /// Over-provisioning to try; [`USUAL_OVER_PROVISIONING`] if it is empty.
    pub over_provisioning: Vec<f64>,
    /// Selection policies to try; the usual ones if it is empty.
    pub selections: Vec<String>,
    /// Placement policies to try; the usual ones if it is empty.
    pub placements: Vec<String>,
    /// Pairs of selection and placement that are tried beside them and pass the sieve, such as those of another search.
    pub also: Vec<(String, String)>,
    /// Seeds of the last runs, where chance is at work.
    pub seeds: Option<u32>,
}

impl Question {
    /// The question that a table of settings asks: those of the runs, of which `selection`, `placement` and
    /// `over-provisioning` can have several values or a range, as in a sweep.
    ///
    /// # Errors
    /// A range is none, or a value is not of the kind that its key wants.
    pub fn new(mut settings: Table, years: f64) -> Result<Self, LabError> {
        let mut listed = |key: &str| -> Result<Vec<Value>, LabError> {
            settings.remove(key).map_or_else(|| Ok(Vec::new()), |value| expanded(key, value))
        };
        let texts = |values: Vec<Value>| values.iter().map(plain).collect();
        let (selections, placements) = (texts(listed("selection")?), texts(listed("placement")?));
        let steps = listed("over-provisioning")?.into_iter().map(|value| {
            let number = value.as_float().or_else(|| value.as_integer().map(|number| number as f64));
            number
                .filter(|number| *number > 0.0 && number.is_finite())
                .ok_or_else(|| wrong("over-provisioning", plain(&value), "expected a positive number, as 0.1 for 10 %"))
        });
        let over_provisioning = steps.collect::<Result<_, _>>()?;
        Ok(Self { settings, years, selections, placements, over_provisioning, ..Self::default() })
    }

    /// The runs of a candidate at an over-provisioning, one for each seed, as the search has them. A run that `settings` do not
    /// end otherwise goes on until it has settled, up to so many device writes if that is said.
    ///
    /// # Errors
    /// Those of [`points_with`].
    pub fn points(
        &self,
        candidate: &Candidate,
        over_provisioning: f64,
        seeds: u32,
        device_writes: Option<f64>,
    ) -> Result<Vec<Point>, LabError> {
        points_with(self.table(candidate, over_provisioning, device_writes), Some(seeds), &self.held)
    }

    /// The settings of a run.
    fn table(&self, candidate: &Candidate, over_provisioning: f64, device_writes: Option<f64>) -> Table {
        let mut table = self.settings.clone();
        let mut set = |key: &str, value: Value| drop(table.insert(key.into(), value));
        set("selection", candidate.selection.clone().into());
        set("placement", candidate.placement.clone().into());
        set("leveling", candidate.leveling.clone().into());
        set("over-provisioning", over_provisioning.into());
        let says_when_to_end = EXCLUSIVE[1..].iter().flat_map(|group| group.iter());
        if !says_when_to_end.clone().any(|key| self.settings.contains_key(*key)) {
            set("until-steady", true.into());
            if let Some(times) = device_writes {
                set("device-writes", times.into());
            }
        } else if self.settings.keys().all(|key| key != "writes" && key != "repeat" && key != "warm-up") {
            // A number of device writes alone is a limit, as everywhere.
            set("until-steady", true.into());
        }
        // Folded addresses would let data that is too large for the device look as if it were not.
        let settings = from_table::<Settings>(&table).ok();
        let is_trace = settings.is_some_and(|settings| {
            let settings = Settings { held: self.held.clone(), ..settings };
            settings.experiment().is_ok_and(|(experiment, _)| matches!(experiment.source, Source::Trace(_)))
        });
        if is_trace && !table.contains_key("addresses") {
            table.insert("addresses".into(), "compact".into());
        }
        table
    }
}

/// One over-provisioning under the policies that are advised.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Data pages / exported pages - 1 of the device that was run.
    pub over_provisioning: f64,
    /// The over-provisioning that was asked for. A device of whole segments can have more.
    pub over_provisioning_asked: f64,
    /// Bytes exported.
    pub exported_bytes: f64,
    /// Bytes of flash.
    pub flash_bytes: f64,
    /// Write amplification in the warm window.
    pub wa: f64,
    /// Half its 95 % interval, if it is known.
    pub wa_half95: Option<f64>,
    /// How long the flash lasts; none if nothing was erased.
    pub life: Option<Life>,
    /// Whether that is long enough.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// How many seeds were run.
    pub seeds: usize,
}

/// Policies at the over-provisioning that is advised.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rival {
    /// The policies.
    #[serde(flatten)]
    pub policies: Candidate,
    /// Write amplification in the warm window.
    pub wa: f64,
    /// Half its 95 % interval, if it is known.
    pub wa_half95: Option<f64>,
    /// How long the flash lasts; none if nothing was erased.
    pub life: Option<Life>,
    /// Whether it can be told apart from what is advised, in write amplification or in life.
    pub is_apart: bool,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// Whether the lifetime is reached with what is advised.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Years that were asked for.
    pub years: f64,
    /// Bytes that the host writes in a day.
    pub bytes_per_day: f64,
    /// What is advised, or what comes nearest.
    pub policies: Candidate,
    /// The over-provisioning that is advised, or at which most is reached: data pages / exported pages - 1 of the device that
    /// was run.
    pub over_provisioning: f64,
    /// The over-provisioning that was asked for to get it.
    pub over_provisioning_asked: f64,
    /// Every over-provisioning under these policies, the smallest first.
    pub steps: Vec<Step>,
    /// What was run at the advised over-provisioning, the advised policies first.
    pub rivals: Vec<Rival>,
    /// What was not looked at, in sentences.
    pub not_looked_at: Vec<String>,
    /// How many different runs the answer rests on.
    pub runs: usize,
    /// The answer in plain words.
    pub text: String,
}

/// Runs points, and says what came of them; a sweep as a rule.
pub type Runner<'a> = dyn FnMut(&[Point]) -> Result<Swept, LabError> + 'a;

/// Rows of a candidate at one over-provisioning.
struct Measured {
    candidate: Candidate,
    at: usize,
    rows: Vec<ResultRow>,
}

impl Measured {
    fn group(&self) -> Group<'_> {
        Group { rows: self.rows.iter().collect() }
    }
}

/// Whether what was measured of two candidates differs by more than chance, in write amplification or in life.
fn is_apart(a: (&Measured, Option<Life>), b: (&Measured, Option<Life>)) -> bool {
    let lives_apart = matches!((a.1, b.1), (Some(a), Some(b)) if a.is_apart(b));
    lives_apart || a.0.group().is_apart(&b.0.group())
}

/// A candidate at one over-provisioning, whether it lasts, and how long.
type Ranked<'a> = (&'a Measured, Verdict, Option<Life>);

/// What is known while the search goes on.
struct Search<'a, 'b> {
    question: &'a Question,
    /// Over-provisioning that is tried, ascending; each gives another device.
    steps: Vec<f64>,
    /// Over-provisioning that gives the same device as a smaller one: which step that is, and the greatest such value.
    same: Vec<(usize, f64)>,
    runner: &'a mut Runner<'b>,
    /// The last runs of each candidate at each over-provisioning.
    known: Vec<Measured>,
    /// Runs that are impossible: what, and why.
    refused: Vec<(Candidate, f64, String)>,
    first_error: Option<LabError>,
    /// Keys of the points that were run.
    runs: HashSet<String>,
}

fn wrong(key: &str, value: impl ToString, problem: &str) -> LabError {
    LabError::Setting { key: key.into(), value: value.to_string(), problem: problem.into() }
}

/// Answers a question by runs.
///
/// # Errors
/// The question is wrong, nothing of it can be run, a run fails for another reason than that its device is too small, or the
/// runner was stopped.
pub fn advise(question: &Question, runner: &mut Runner<'_>) -> Result<Advice, LabError> {
    let mut steps = question.over_provisioning.clone();
    if steps.is_empty() {
        steps = USUAL_OVER_PROVISIONING.into();
    }
    steps.sort_by(f64::total_cmp);
    steps.dedup();
    if !(question.years > 0.0 && question.years.is_finite()) {
        return Err(wrong("years", question.years, "expected a positive number"));
    }
    if let Some(bytes) = question.bytes_per_day.filter(|bytes| !(*bytes > 0.0 && bytes.is_finite())) {
        return Err(wrong("per-day", bytes, "expected a positive number of bytes"));
    }
    if question.seeds == Some(0) {
        return Err(wrong("seeds", 0, "expected a number of seeds from 1 on"));
    }
    let own = &question.held.policies;
    let own_names = own.selections.keys().map(|name| ("selection", name));
    if let Some((key, name)) = own_names.chain(own.placements.keys().map(|name| ("placement", name))).next() {
        let problem = "advice is on the policies of `margay policies`; a comparison measures your own beside them";
        return Err(wrong(key, name, problem));
    }
    for key in ["selection", "placement", "leveling", "utilization", "exported-pages", "over-provisioning"] {
        if let Some(value) = question.settings.get(key) {
            return Err(wrong(key, value, "the advice searches for it; it is no setting of all runs"));
        }
    }
    for (key, value) in question.settings.iter().filter(|(key, _)| *key != "seed") {
        let values = expanded(key, value.clone())?;
        if values.len() > 1 {
            let values: Vec<String> = values.iter().map(plain).collect();
            let problem = "advice is for one source and one device, and for one value of each other setting; ask for each by itself";
            return Err(wrong(key, values.join(", "), problem));
        }
    }
    let pairs = search::pairs(&question.selections, &question.placements)?;
    let also = question.also.iter().map(|(selection, placement)| Candidate::pair(selection, placement));
    let also = also.collect::<Result<Vec<_>, _>>()?;
    let mut search = Search {
        question,
        steps,
        same: Vec::new(),
        runner,
        known: Vec::new(),
        refused: Vec::new(),
        first_error: None,
        runs: HashSet::new(),
    };
    if let Some(advice) = search.size()? {
        return Ok(advice);
    }
    let passed = search.sieve(&pairs, also)?;
    let all: Vec<usize> = (0..search.steps.len()).collect();
    search.measure(&passed, &all, 1, None)?;
    // Where even wear is long enough and the first segment is not, leveling decides.
    let at = search.first_reached();
    let leveled: Vec<Candidate> = search.ordered(at)?.iter().take(2).map(|(one, ..)| one.candidate.leveled()).collect();
    search.measure(&leveled, &all, 1, None)?;
    let at = search.first_reached();
    search.refine(at)?;
    let (best, at) = search.settle(at)?;
    search.answer(best, at, &pairs)
}

impl Search<'_, '_> {
    /// Runs candidates at these over-provisionings, and keeps the rows in the place of those from before.
    fn measure(
        &mut self,
        candidates: &[Candidate],
        at: &[usize],
        seeds: u32,
        device_writes: Option<f64>,
    ) -> Result<(), LabError> {
        let mut points: Vec<Point> = Vec::new();
        let mut owners: Vec<(Candidate, usize)> = Vec::new();
        for candidate in candidates {
            for &at in at {
                match self.question.points(candidate, self.steps[at], seeds, device_writes) {
                    Ok(of_candidate) => {
                        owners.extend(of_candidate.iter().map(|_| (candidate.clone(), at)));
                        points.extend(of_candidate);
                    }
                    Err(error) => self.refuse(candidate, at, error)?,
                }
            }
        }
        let swept = (self.runner)(&points)?;
        let mut fresh: Vec<Measured> = Vec::new();
        for (((candidate, at), row), point) in owners.iter().zip(&swept.rows).zip(&points) {
            let Some(row) = row else { continue };
            self.runs.insert(point.key.clone());
            match fresh.iter_mut().find(|one| one.candidate == *candidate && one.at == *at) {
                Some(one) => one.rows.push(row.clone()),
                None => fresh.push(Measured { candidate: candidate.clone(), at: *at, rows: vec![row.clone()] }),
            }
        }
        for (point, error) in swept.failures {
            let (candidate, at) = &owners[point];
            self.refuse(candidate, *at, error)?;
        }
        if swept.is_stopped {
            let writes = swept.rows.iter().flatten().map(|row| row.host_writes).sum();
            return Err(LabError::Interrupted { writes });
        }
        self.known.retain(|old| !fresh.iter().any(|new| new.candidate == old.candidate && new.at == old.at));
        self.known.append(&mut fresh);
        Ok(())
    }

    /// Notes that a candidate cannot be run; what is wrong with all of them is an error.
    fn refuse(&mut self, candidate: &Candidate, at: usize, error: LabError) -> Result<(), LabError> {
        // That the device is too small is told when it is filled or when the log is made; both mean this candidate.
        let is_its_own = matches!(error.kind(), ErrorKind::Usage) || matches!(error, LabError::Stopped { .. });
        if !is_its_own {
            return Err(error);
        }
        let refused = (candidate.clone(), self.steps[at], error.to_string());
        if !self.refused.contains(&refused) {
            self.refused.push(refused);
        }
        self.first_error.get_or_insert(error);
        Ok(())
    }

    /// Why nothing can be run.
    fn nothing_runs(&mut self) -> LabError {
        let problem = "no policy can be run with any over-provisioning that is tried";
        self.first_error.take().unwrap_or_else(|| wrong("over-provisioning", format!("{:?}", self.steps), problem))
    }

    fn life(&self, measured: &Measured) -> Result<Option<Life>, LabError> {
        let group = measured.group();
        let Some(bytes) = self.question.bytes_per_day.or_else(|| bytes_per_day(&group)) else {
            let problem = "the source has no times, so that nothing says how much is written in a year: say how much in a day, as --per-day 20G";
            return Err(wrong("per-day", "not given", problem));
        };
        Ok(Life::of(&group, bytes))
    }

    /// Pairs that are good at one of two over-provisionings.
    fn sieve(&mut self, pairs: &[Candidate], also: Vec<Candidate>) -> Result<Vec<Candidate>, LabError> {
        let last = self.steps.len() - 1;
        let mut at = vec![last / 4, last.div_ceil(2)];
        at.dedup();
        self.measure(pairs, &at, 1, Some(SIEVE_DEVICE_WRITES))?;
        if self.known.is_empty() {
            // The smallest one has most room for data, the largest one for streams.
            at = vec![0, last];
            at.dedup();
            self.measure(pairs, &at, 1, Some(SIEVE_DEVICE_WRITES))?;
        }
        if self.known.is_empty() {
            return Err(self.nothing_runs());
        }
        let mut passed: Vec<Candidate> = Vec::new();
        for &at in &at {
            let mut here: Vec<(&Measured, f64)> = Vec::new();
            for one in self.known.iter().filter(|one| one.at == at) {
                here.push((one, self.life(one)?.map_or(0.0, |life| life.low)));
            }
            here.sort_by(|a, b| a.0.group().wa().mean.total_cmp(&b.0.group().wa().mean));
            let by_wa = here.iter().take(PASS).map(|(one, _)| one.candidate.clone()).collect::<Vec<_>>();
            here.sort_by(|a, b| b.1.total_cmp(&a.1));
            passed.extend(by_wa);
            passed.extend(here.iter().take(PASS).map(|(one, _)| one.candidate.clone()));
        }
        passed.extend(also);
        passed.push(Candidate::plain());
        let mut once: Vec<Candidate> = Vec::new();
        passed.into_iter().for_each(|one| {
            if !once.contains(&one) {
                once.push(one)
            }
        });
        // The runs of the sieve are short; what passed is run again.
        self.known.clear();
        Ok(once)
    }

    /// The candidates at one over-provisioning: whether they last, how long, the best first. Of those that last it is the one
    /// that writes least; of others the one that lasts longest.
    fn ordered(&self, at: usize) -> Result<Vec<Ranked<'_>>, LabError> {
        let mut all = Vec::new();
        for one in self.known.iter().filter(|one| one.at == at) {
            let life = self.life(one)?;
            all.push((one, verdict(&one.group(), life, self.question.years), life));
        }
        let rank = |verdict: &Verdict| match verdict {
            Verdict::Yes => 0,
            Verdict::Uncertain(_) => 1,
            Verdict::No => 2,
        };
        let low = |life: &Option<Life>| life.map_or(0.0, |life| life.low);
        all.sort_by(|a, b| {
            let by_wa = || a.0.group().wa().mean.total_cmp(&b.0.group().wa().mean);
            let by_life = || low(&b.2).total_cmp(&low(&a.2));
            rank(&a.1).cmp(&rank(&b.1)).then_with(|| if a.1 == Verdict::Yes { by_wa() } else { by_life() })
        });
        Ok(all)
    }

    /// The same, but with the simplest of those first that cannot be told apart from the best.
    fn ranked(&self, at: usize) -> Result<Vec<Ranked<'_>>, LabError> {
        let mut all = self.ordered(at)?;
        let Some((best, verdict, life)) = all.first().cloned() else { return Ok(all) };
        let as_good = |(one, its_verdict, its_life): &Ranked<'_>| {
            // Where the years are not reached for certain, as many of them as can be had are wanted.
            let lasts = match (life, its_life) {
                _ if verdict == Verdict::Yes => true,
                (Some(life), Some(other)) => other.low >= (1.0 - SMALL_DIFFERENCE) * life.low,
                (None, None) => true,
                _ => false,
            };
            lasts
                && std::mem::discriminant(its_verdict) == std::mem::discriminant(&verdict)
                && !is_apart((best, life), (one, *its_life))
        };
        let tied = all.iter().enumerate().filter(|(_, one)| as_good(one));
        if let Some((place, _)) = tied.min_by_key(|(_, (one, ..))| one.candidate.complexity()) {
            all[..=place].rotate_right(1);
        }
        Ok(all)
    }

    fn best_at(&self, at: usize) -> Option<Ranked<'_>> {
        self.ranked(at).ok()?.into_iter().next()
    }

    /// The smallest over-provisioning at which a candidate lasts; else where one may; else where most is reached.
    fn first_reached(&self) -> usize {
        let bests: Vec<_> = (0..self.steps.len()).filter_map(|at| Some((at, self.best_at(at)?))).collect();
        let reached = bests.iter().find(|(_, (_, verdict, _))| *verdict == Verdict::Yes);
        let maybe = bests.iter().filter(|(_, (_, verdict, _))| matches!(verdict, Verdict::Uncertain(_)));
        let most = |all: Vec<&(usize, Ranked<'_>)>| {
            let low = |one: &&(usize, Ranked<'_>)| one.1.2.map_or(0.0, |life| life.low);
            all.into_iter().max_by(|a, b| low(a).total_cmp(&low(b))).map(|(at, _)| *at)
        };
        let reached = reached.map(|(at, _)| *at);
        reached.or_else(|| most(maybe.collect())).or_else(|| most(bests.iter().collect())).unwrap_or(0)
    }

    /// Tries the best pair at one over-provisioning with other parameters.
    fn refine(&mut self, at: usize) -> Result<(), LabError> {
        let ordered = self.ordered(at)?;
        let Some((best, ..)) = ordered.first() else { return Ok(()) };
        let others = best.candidate.neighbours();
        self.measure(&others, &[at], 1, None)
    }

    /// Runs the best of one over-provisioning with all seeds, there and beside it, until nothing changes; returns what is
    /// then the best, and where.
    fn settle(&mut self, from: usize) -> Result<(Candidate, usize), LabError> {
        let seeds = self.question.seeds.unwrap_or(USUAL_SEEDS);
        let mut at = from;
        let mut seen: Vec<usize> = Vec::new();
        loop {
            seen.push(at);
            let mut finalists: Vec<Candidate> =
                self.ranked(at)?.iter().take(4).map(|(one, ..)| one.candidate.clone()).collect();
            if !finalists.contains(&Candidate::plain()) {
                finalists.push(Candidate::plain());
            }
            self.measure(&finalists, &[at], seeds, None)?;
            // Where the best of one run was no more than chance, another over-provisioning is the first.
            let beside: Vec<usize> = [at.checked_sub(1), Some(at + 1)].into_iter().flatten().collect();
            let beside: Vec<usize> = beside.into_iter().filter(|at| *at < self.steps.len()).collect();
            if let Some(best) = self.best_at(at).map(|(best, ..)| best.candidate.clone()) {
                self.measure(&[best], &beside, seeds, None)?;
            }
            at = self.first_reached();
            if seen.contains(&at) {
                break;
            }
        }
        let all: Vec<usize> = (0..self.steps.len()).collect();
        let mut told: Vec<(Candidate, usize)> = Vec::new();
        // What was run with one seed alone can look best by chance: it is the best if it still is with all seeds.
        loop {
            let at = self.first_reached();
            let Some(best) = self.best_at(at).map(|(best, ..)| best.candidate.clone()) else {
                return Err(self.nothing_runs());
            };
            if told.contains(&(best.clone(), at)) {
                return Ok((best, at));
            }
            // What each step costs is told of the policies that are advised.
            self.measure(std::slice::from_ref(&best), &all, seeds, None)?;
            told.push((best, at));
        }
    }

    fn step(&self, one: &Measured) -> Result<Step, LabError> {
        let (group, life) = (one.group(), self.life(one)?);
        let (row, wa) = (&one.rows[0], group.wa());
        let page = f64::from(row.page_bytes);
        Ok(Step {
            over_provisioning: row.over_provisioning,
            over_provisioning_asked: self.steps[one.at],
            exported_bytes: f64::from(row.exported_pages) * page,
            flash_bytes: f64::from(row.segments) * f64::from(row.pages_per_segment) * page,
            wa: wa.mean,
            wa_half95: wa.half95,
            life,
            verdict: verdict(&group, life, self.question.years),
            seeds: one.rows.len(),
        })
    }

    fn answer(&self, best: Candidate, at: usize, pairs: &[Candidate]) -> Result<Advice, LabError> {
        let mut steps = Vec::new();
        for place in 0..self.steps.len() {
            if let Some(one) = self.known.iter().find(|one| one.candidate == best && one.at == place) {
                steps.push(self.step(one)?);
            }
        }
        let chosen = self.known.iter().find(|one| one.candidate == best && one.at == at);
        let Some(chosen) = chosen else {
            return Err(wrong("over-provisioning", self.steps[at], "the policies that are advised cannot be run"));
        };
        let (group, life) = (chosen.group(), self.life(chosen)?);
        let mut rivals = Vec::new();
        for (one, _, its_life) in self.ranked(at)? {
            let wa = one.group().wa();
            rivals.push(Rival {
                policies: one.candidate.clone(),
                wa: wa.mean,
                wa_half95: wa.half95,
                life: its_life,
                is_apart: is_apart((chosen, life), (one, its_life)),
            });
        }
        rivals.sort_by_key(|rival| rival.policies != best);
        let first = &chosen.rows[0];
        let advice = Advice {
            verdict: verdict(&group, life, self.question.years),
            years: self.question.years,
            bytes_per_day: self.question.bytes_per_day.or_else(|| bytes_per_day(&group)).unwrap_or(f64::NAN),
            policies: best,
            over_provisioning: first.over_provisioning,
            over_provisioning_asked: self.steps[at],
            steps,
            rivals,
            not_looked_at: text::not_looked_at(self, pairs),
            runs: self.runs.len(),
            text: String::new(),
        };
        Ok(Advice { text: text::text(&advice, first), ..advice })
    }
}
