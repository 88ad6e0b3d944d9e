//! Advice says yes, no, or that it is not certain, and each for its reason.

use margay_lab::LabError;
use margay_lab::advise::{Advice, Candidate, Question, Verdict, advise};
use margay_lab::sweep::{Journal, Point, Swept, Watcher, run};
use toml::Table;

struct Silent;

impl Watcher for Silent {
    fn step(&self, _: usize, _: f64) -> bool {
        true
    }

    fn ended(&self, _: usize) {}
}

const SMALL: &str = "source = 'hot-cold:90/10'\ndevice = 'intel-series2plus-24mb'\nselection = ['greedy', 'cat']\nplacement = ['m1', 'm4']\nover-provisioning = '0.1..0.3:0.1'";

fn question(settings: &str, years: f64, bytes_per_day: f64) -> Question {
    let table: Table = toml::from_str(settings).unwrap();
    Question { bytes_per_day: Some(bytes_per_day), seeds: Some(3), ..Question::new(table, years).unwrap() }
}

fn ask(question: &Question) -> Result<Advice, LabError> {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(&folder.path().join("points"), false)?;
    let mut runner = |points: &[Point]| -> Result<Swept, LabError> { run(points, &mut journal, 2, &Silent) };
    advise(question, &mut runner)
}

#[test]
fn a_lifetime_within_reach_is_reached_by_the_smallest_step_that_does() {
    // Some 2.4 TB can be programmed in all.
    let advice = ask(&question(SMALL, 5.0, 1e8)).unwrap();
    assert_eq!(advice.verdict, Verdict::Yes, "{}", advice.text);
    assert!(advice.text.contains("Yes: choose ") && advice.text.contains("over-provisioning"), "{}", advice.text);
    assert_eq!(advice.steps.len(), 3);
    let at = advice.steps.iter().position(|step| step.over_provisioning == advice.over_provisioning).unwrap();
    assert!(advice.steps[..at].iter().all(|step| step.verdict != Verdict::Yes), "{}", advice.text);
    // More room, less to copy, a longer life; each step names its price.
    for pair in advice.steps.windows(2) {
        assert!(pair[1].wa < pair[0].wa && pair[1].exported_bytes < pair[0].exported_bytes, "{}", advice.text);
    }
    assert_eq!(advice.steps[at].seeds, 3);
    assert_eq!(advice.rivals[0].policies, advice.policies);
    assert!(!advice.not_looked_at.is_empty() && advice.runs > 12);
    // What was run in the sieve cannot have been better in the end.
    assert!(advice.rivals.iter().all(|rival| rival.wa > 0.99 * advice.rivals[0].wa), "{}", advice.text);
}

#[test]
fn a_lifetime_out_of_reach_is_denied_with_what_would_do() {
    let advice = ask(&question(SMALL, 5.0, 1e11)).unwrap();
    assert_eq!(advice.verdict, Verdict::No, "{}", advice.text);
    assert!(advice.text.contains("No: 5 years cannot be reached with this device"), "{}", advice.text);
    assert!(
        advice.text.contains("times as many erases") && advice.text.contains("a day instead of"),
        "{}",
        advice.text
    );
    // What comes nearest has the most room.
    assert_eq!(advice.over_provisioning_asked, 0.3);
}

#[test]
fn runs_that_are_too_short_leave_it_uncertain() {
    let settings = SMALL.to_string() + "\nwrites = 3000";
    let advice = ask(&question(&settings, 5.0, 1e8)).unwrap();
    assert!(
        matches!(&advice.verdict, Verdict::Uncertain(why) if why.contains("settled") || why.contains("erased")),
        "{:?}",
        advice.verdict
    );
    assert!(advice.text.contains("Not certain: "), "{}", advice.text);
}

#[test]
fn a_lifetime_between_the_bounds_is_uncertain_and_leveling_narrows_them() {
    let base = SMALL.replace("0.1..0.3:0.1", "0.2..0.2:0.1").replace("['greedy', 'cat']", "'greedy'");
    let settings = base.replace("['m1', 'm4']", "'m1'");
    let wide = ask(&question(&settings, 0.001, 1e9)).unwrap();
    let plain = wide
        .rivals
        .iter()
        .find(|rival| rival.policies == Candidate { leveling: "none".into(), ..rival.policies.clone() });
    let life = plain.and_then(|rival| rival.life).unwrap();
    assert!(life.low < life.high);
    let between = ask(&question(&settings, life.high, 1e9)).unwrap();
    assert!(matches!(&between.verdict, Verdict::Uncertain(why) if why.contains("lie between")), "{}", between.text);
}

#[test]
fn without_times_a_rate_is_asked_for_and_what_is_searched_is_no_setting() {
    let asked = Question { bytes_per_day: None, ..question(SMALL, 5.0, 1.0) };
    let error = ask(&asked).unwrap_err().to_string();
    assert!(error.contains("per-day") && error.contains("no times"), "{error}");
    for (settings, years, problem) in [
        (SMALL.to_string() + "\nutilization = 0.9", 5.0, "utilization"),
        (SMALL.to_string() + "\nleveling = 'swap'", 5.0, "leveling"),
        (SMALL.to_string(), -1.0, "years"),
        (SMALL.replace("hot-cold:90/10", "/no/such.csv"), 5.0, "/no/such.csv"),
    ] {
        let error = ask(&question(&settings, years, 1e8)).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
    let none = Question { seeds: Some(0), ..question(SMALL, 5.0, 1e8) };
    assert!(ask(&none).unwrap_err().to_string().contains("seeds = 0"));
    let table: Table = toml::from_str("over-provisioning = ['much']").unwrap();
    assert!(Question::new(table, 5.0).unwrap_err().to_string().contains("much"));
}

#[test]
fn several_sources_or_devices_are_not_averaged_as_if_they_were_seeds() {
    for (settings, named) in [
        (SMALL.replace("'hot-cold:90/10'", "['hot-cold:90/10', 'random']"), "source = hot-cold:90/10, random"),
        (SMALL.replace("'intel-series2plus-24mb'", "['intel-series2plus-24mb', 'spi-nor-16mb']"), "device = intel"),
        (SMALL.to_string() + "\nlow-water = '3..4'", "low-water = 3, 4"),
    ] {
        let error = ask(&question(&settings, 5.0, 1e8)).unwrap_err().to_string();
        assert!(error.contains(named) && error.contains("ask for each by itself"), "{error}");
    }
}

/// A trace of so many pages of 4 KiB, each written several times.
fn trace(folder: &std::path::Path, pages: u64) -> String {
    let path = folder.join("small.csv");
    let mut text = String::from("time_us,op,device,offset_bytes,len_bytes\n");
    for at in 0..20 * pages {
        let page = (at * 7 + at / pages) % pages;
        text += &format!("{},write,0,{},4096\n", at * 1000, page * 4096);
    }
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().into()
}

#[test]
fn steps_that_give_the_same_device_are_run_once_and_told_as_they_were_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::without_name().unwrap();
    let source = trace(folder.path(), 400);
    let settings = format!("source = '{source}'\nselection = 'greedy'\nplacement = ['m1', 'm4']");
    let asked = question(&settings, 1.0, 1e6);
    let advice = advise(&asked, &mut |points: &[Point]| run(points, &mut journal, 2, &Silent)).unwrap();
    let sizes: Vec<(f64, f64)> = advice.steps.iter().map(|step| (step.flash_bytes, step.exported_bytes)).collect();
    assert!(sizes.len() < 9 && sizes.windows(2).all(|pair| pair[0] != pair[1]), "{sizes:?}");
    for step in &advice.steps {
        // The table of a device without reserved or header pages: all pages of the flash are data pages.
        let told = step.flash_bytes / step.exported_bytes - 1.0;
        assert!((step.over_provisioning - told).abs() < 1e-9, "{step:?}");
        assert!(step.over_provisioning >= step.over_provisioning_asked - 1e-9, "{step:?}");
    }
    let text = format!("{:.1} %", 100.0 * advice.over_provisioning).replace(".0 %", " %");
    assert!(advice.text.contains(&format!("with {text} over-provisioning")), "{text}: {}", advice.text);
    assert!(advice.not_looked_at.iter().any(|line| line.contains("same device")), "{:?}", advice.not_looked_at);
    assert_eq!(advice.runs, journal.rows.len(), "runs are counted once");
}

#[test]
fn a_device_that_is_too_small_for_the_trace_is_no_with_the_size_that_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let source = trace(folder.path(), 6000);
    let settings = format!("source = '{source}'\ndevice = 'spi-nor-16mb'\nplacement = 'm1'");
    let advice = ask(&question(&settings, 1.0, 1e6)).unwrap();
    assert_eq!((advice.verdict, advice.runs), (Verdict::No, 0), "{}", advice.text);
    let needed = advice
        .text
        .split("--flash-size ")
        .nth(1)
        .and_then(|rest| rest.trim().trim_end_matches('.').parse::<u64>().ok());
    let needed = needed.unwrap_or_else(|| panic!("{}", advice.text));
    assert!(needed > 6000 * 4096 && needed < 2 * 6000 * 4096, "{}", advice.text);
    // And that is enough.
    let settings = format!("{settings}\nflash-size = '{needed}'\nselection = 'greedy'");
    let advice = ask(&question(&settings, 1.0, 1e6)).unwrap();
    assert!(advice.runs > 0, "{}", advice.text);
}

#[test]
fn of_policies_that_cannot_be_told_apart_the_simplest_are_advised() {
    // Nothing has to be copied, whatever the policies are.
    let settings = SMALL.replace("hot-cold:90/10", "sequential").replace("['greedy', 'cat']", "['cat', 'greedy']");
    let advice = ask(&question(&settings.replace("['m1', 'm4']", "['m4', 'm1']"), 1.0, 1e7)).unwrap();
    let policies = &advice.policies;
    assert_eq!((policies.selection.as_str(), policies.placement.as_str()), ("greedy", "m1"), "{}", advice.text);
    assert!(advice.text.contains("the simplest are advised"), "{}", advice.text);
}

#[test]
fn finished_runs_are_not_run_again_and_give_the_same_answer() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(&folder.path().join("points"), false).unwrap();
    let asked = question(SMALL, 5.0, 1e8);
    let first = advise(&asked, &mut |points: &[Point]| run(points, &mut journal, 2, &Silent)).unwrap();
    let kept = journal.rows.len();
    let again = advise(&asked, &mut |points: &[Point]| run(points, &mut journal, 2, &Silent)).unwrap();
    assert_eq!((first, journal.rows.len()), (again, kept));
    // Another wish, the same runs for the most part.
    let longer = Question { years: 50.0, ..asked };
    advise(&longer, &mut |points: &[Point]| run(points, &mut journal, 2, &Silent)).unwrap();
    assert!(journal.rows.len() < 2 * kept, "{} and {kept}", journal.rows.len());
}
