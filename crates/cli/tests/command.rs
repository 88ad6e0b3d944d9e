//! The command as a person uses it: results, files, exit codes, messages.

use margay_policy::{PlacementSpec, SelectionSpec};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn margay(args: &[&str]) -> Output {
    // So wide that no text is broken where a test looks for it.
    let mut command = Command::new(env!("CARGO_BIN_EXE_margay"));
    command.args(args).env("COLUMNS", "240").current_dir(root()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn fails(args: &[&str], code: i32, message: &str) {
    let output = margay(args);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
    assert!(error.contains(message), "{args:?}: {error}");
    assert!(output.stdout.is_empty(), "{args:?} printed a result: {}", text(&output.stdout));
}

fn works(args: &[&str]) -> String {
    let output = margay(args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

const CARD: &[&str] =
    &["--device", "intel-series2plus-24mb", "--reserved-segments", "1", "--exported-pages", "5245", "-q"];
const SAMPLE: &str = "samples/sqlite-messages.mgt";

#[test]
fn a_replay_prints_write_amplification_with_its_window_and_the_definition_of_over_provisioning() {
    let args = [&["replay", "random,writes=49152,poisson=24609375us", "--warm-up", "0.5"], CARD].concat();
    let out = works(&args);
    for part in [
        "write amplification",
        "warm window",
        "host writes 24576 to 49152, its start fixed by --warm-up",
        "effective OP",
        "theory",
        "(data pages / exported pages - 1)",
        "victims by utilization",
        "lifetime, years",
        "seed 1",
    ] {
        assert!(out.contains(part), "'{part}' is missing from:\n{out}");
    }
}

#[test]
fn a_replay_is_the_same_every_time_but_for_wall_time() {
    let args = [&["replay", "hot-cold:90/10,writes=20000", "-s", "d-choices", "-p", "m6", "-f", "json"], CARD].concat();
    let run = || {
        let mut value: serde_json::Value = serde_json::from_str(&works(&args)).unwrap();
        value["row"]["wall_s"] = 0.into();
        value["row"]["writes_per_s"] = 0.into();
        value
    };
    let first = run();
    assert_eq!(first, run());
    let row = &first["row"];
    assert_eq!(row["host_writes"], 20_000);
    let programs = 20_000 + row["copies"].as_u64().unwrap() + row["metadata_pages"].as_u64().unwrap();
    assert!((row["wa"].as_f64().unwrap() - programs as f64 / 20_000.0).abs() < 1e-12);
    let erases: u64 = first["erases"].as_array().unwrap().iter().map(|e| e.as_u64().unwrap()).sum();
    assert_eq!(row["erases"], erases);
    assert!(first["series"].as_array().unwrap().len() > 4);
}

/// How many policies are compared if none is named.
fn compared<T>(all: impl Iterator<Item = T>, variants: impl Iterator<Item = T>) -> usize {
    all.chain(variants).count()
}

/// How many placements are compared if none is named: those that need to be told nothing.
fn online_placements() -> usize {
    let needs_nothing = |placement: &PlacementSpec| !placement.is_oracle() && !placement.sees_streams();
    compared(PlacementSpec::all().filter(needs_nothing), PlacementSpec::variants())
}

fn oracles() -> usize {
    PlacementSpec::all().filter(|placement| placement.is_oracle()).count()
}

#[test]
fn a_comparison_shows_the_ten_best_pairs_or_all_and_advises_when_they_have_settled() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_margay"));
    let args = ["compare", SAMPLE, "-q", "--seeds", "1", "--all"];
    let output = command.args(args).env("COLUMNS", "900").current_dir(root()).output().unwrap();
    let all = text(&output.stdout);
    // A row can stand for several pairs: `greedy + m1 = m2 = m3`.
    let rows = all.lines().filter_map(|line| line.strip_prefix("| ")).filter(|line| line.contains(" + "));
    let pairs = rows.map(|line| 1 + line.split(" | ").next().unwrap().matches(" = ").count()).sum::<usize>();
    assert_eq!(
        pairs,
        compared(SelectionSpec::all(), SelectionSpec::variants()) * (online_placements() + oracles()),
        "{all}"
    );
    assert!(all.contains("cost-benefit:age=invalidated"), "variants of parameters are tried: {all}");
    assert!(all.contains('*') && all.contains("xxh3"), "{all}");
    let (policies, oracles) = all.split_once("Oracles").unwrap();
    assert!(oracles.contains(" + fk") && !policies.contains(" + fk"), "oracles stand apart: {all}");
    let told =
        works(&["compare", SAMPLE, "-q", "--until-steady", "-s", "lifetime", "-p", "m1", "-p", "dac", "-p", "fk"]);
    assert!(!told.split_once("Choose ").unwrap().1.contains("fk"), "{told}");
    let best = works(&["compare", SAMPLE, "-q", "--until-steady"]);
    assert!(best.contains("Choose ") && best.contains("lifetime + lifetime"), "{best}");
    assert!(!best.contains("fk") && !best.contains("warcip"), "{best}");
    assert!(best.contains("the 10 best") && best.contains("--all shows all"), "{best}");
    // What one pass of the trace shows is no advice.
    let once = works(&["compare", SAMPLE, "-q"]);
    assert!(once.contains("No advice: ") && !once.contains("Choose "), "{once}");
    let few = works(&["compare", SAMPLE, "-q", "-s", "greedy,cat:shape=linear", "-p", "m1", "--seeds", "2"]);
    let few = few.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(few.contains("up to 2 seeds") && few.contains("cat:shape=linear,scale=0.00775d"), "{few}");
}

#[test]
fn reports_fit_the_terminal() {
    let replay = ["replay", "hot-cold:90/10", "--flash-size", "64M", "-s", "cat", "-p", "m6", "-q"];
    let compare = ["compare", "hot-cold:90/10", "--flash-size", "64M", "-s", "cat", "-s", "greedy", "-q"];
    let wide = ["policies", "devices"];
    for args in [
        &replay[..],
        &compare,
        &["policies"],
        &wide,
        &["trace", "info", SAMPLE],
        &["vm", "replay", "samples/sort.vmt.zst", "--cache", "1M", "-q"],
    ] {
        for columns in [80, 120] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_margay"));
            let output = command.args(args).env("COLUMNS", columns.to_string()).current_dir(root()).output().unwrap();
            let out = text(&output.stdout);
            let longest = out.lines().max_by_key(|line| line.chars().count()).unwrap_or_default();
            assert!(longest.chars().count() <= columns, "{args:?} at {columns}: {longest}");
            assert!(!out.contains(" { "), "{args:?}: debug output");
        }
    }
}

#[test]
fn results_and_plots_are_written_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let rows = PlacementSpec::usual().count();
    for format in ["json", "csv", "parquet"] {
        let path = at(format);
        works(&["compare", SAMPLE, "-q", "-s", "greedy", "-f", format, "-o", &path, "--force", "--plot", &at("c.png")]);
        let bytes = std::fs::read(&path).unwrap();
        match format {
            "parquet" => assert_eq!(parquet_table(bytes), csv_table(&text(&std::fs::read(at("csv")).unwrap()))),
            "csv" => assert_eq!(text(&bytes).lines().count(), rows + 1),
            _ => {
                assert_eq!(serde_json::from_slice::<serde_json::Value>(&bytes).unwrap().as_array().unwrap().len(), rows)
            }
        }
    }
    works(&["replay", SAMPLE, "-q", "--plot", &at("r.svg")]);
    assert!(std::fs::read_to_string(at("r.svg")).unwrap().contains("uniformity"));
    assert!(std::fs::read(at("c.png")).unwrap().starts_with(b"\x89PNG"));
}

/// Columns that say how long a run took, which differ from run to run.
const WALL_TIME: [&str; 2] = ["wall_s", "writes_per_s"];

/// Column names, then the rows as text.
fn csv_table(text: &str) -> Vec<Vec<String>> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
    let mut rows: Vec<Vec<String>> =
        reader.records().map(|row| row.unwrap().iter().map(String::from).collect()).collect();
    let times: Vec<usize> = (0..rows[0].len()).filter(|at| WALL_TIME.contains(&rows[0][*at].as_str())).collect();
    assert_eq!(times.len(), WALL_TIME.len());
    rows.iter_mut().skip(1).for_each(|row| times.iter().for_each(|at| row[*at].clear()));
    rows
}

fn parquet_table(bytes: Vec<u8>) -> Vec<Vec<String>> {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;
    let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
    let columns = reader.metadata().file_metadata().schema_descr().columns().iter();
    let names: Vec<String> = columns.map(|column| column.name().to_string()).collect();
    let show = |(name, field): (&String, &Field)| match field {
        _ if WALL_TIME.contains(&name.as_str()) => String::new(),
        Field::Null => String::new(),
        Field::Str(text) => text.clone(),
        Field::Bool(flag) => flag.to_string(),
        Field::ULong(count) => count.to_string(),
        // As in JSON and CSV: the shortest digits that read back as the same number.
        Field::Double(value) => serde_json::Value::from(*value).to_string(),
        other => panic!("{name} is {other:?}, which is none of the kinds that results have"),
    };
    let rows = reader.get_row_iter(None).unwrap().map(|row| row.unwrap());
    let rows =
        rows.map(|row| row.get_column_iter().zip(&names).map(|((_, field), name)| show((name, field))).collect());
    std::iter::once(names.clone()).chain(rows).collect()
}

#[test]
fn an_experiment_file_holds_what_options_say_and_the_command_line_wins() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("e.toml");
    std::fs::write(
        &path,
        "source = 'random,writes=5000'\ndevice = 'intel-series2plus-24mb'\nutilization = 0.8\nseed = 4\nlow-water = 5\n",
    )
    .unwrap();
    let file = path.display().to_string();
    let row = |args: &[&str]| -> serde_json::Value {
        let all = [&["replay", "-q", "-f", "json", "-e", &file], args].concat();
        serde_json::from_str::<serde_json::Value>(&works(&all)).unwrap()["row"].take()
    };
    let plain = row(&[]);
    assert_eq!((plain["seed"].as_u64(), plain["low_water"].as_u64()), (Some(4), Some(5)));
    assert_eq!(plain["exported_pages"], 4761);
    let changed = row(&["--seed", "9", "--exported-pages", "3000"]);
    assert_eq!((changed["seed"].as_u64(), changed["exported_pages"].as_u64()), (Some(9), Some(3000)));
    // Every option is a key, with underscores or hyphens.
    let all = "source = 'random,writes=5000'\nflash_size = '24M'\nutilization = 0.6\nselection = 'cat'\nplacement = 'm4'\nformat = 'json'\noutput = 'OUT'\nplot = 'PLOT'\nmax_pages_per_write = 12\nquiet = true\n";
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(&path, all.replace("OUT", &at("r.json")).replace("PLOT", &at("r.svg"))).unwrap();
    let saved = at("saved.toml");
    assert_eq!(works(&["replay", "-e", &file, "--seed", "7", "--save-experiment", &saved]), "");
    assert!(std::fs::read_to_string(at("r.svg")).unwrap().contains("warm window"));
    let read = || -> serde_json::Value {
        let whole = std::fs::read_to_string(at("r.json")).unwrap();
        let mut row = serde_json::from_str::<serde_json::Value>(&whole).unwrap()["row"].take();
        (row["wall_s"], row["writes_per_s"]) = (0.into(), 0.into());
        row
    };
    let first = read();
    assert!(first["selection"].as_str().unwrap().starts_with("cat:") && first["seed"] == 7, "{first}");
    // What was saved is the same experiment.
    works(&["replay", "-e", &saved, "--force"]);
    assert_eq!(read(), first);
    fails(&["replay", "-e", &saved], 2, "exists already");
    let lists = "source = 'random,writes=500'\nselection = ['greedy', 'fifo']\nplacement = ['m1']\n";
    std::fs::write(&path, lists).unwrap();
    assert_eq!(works(&["compare", "-e", &file, "-q", "-f", "csv", "--seeds", "1"]).lines().count(), 3);
    fails(&["replay", "-e", &file, "-q"], 2, "a run has one; `margay compare` and `margay sweep` run several");
    std::fs::write(&path, "source = 'random'\nutilization = [0.8, 0.9]\n").unwrap();
    fails(&["replay", "-e", &file, "-q"], 3, "several values are for `margay sweep`");
    std::fs::write(&path, "source = 'random'\nlow_water = 3\nlow-water = 4\n").unwrap();
    fails(&["replay", "-e", &file, "-q"], 3, "'low-water' is given twice");
    std::fs::write(&path, "source = 'random'\nutilization = 0.8\nover-provisioning = 0.2\n").unwrap();
    fails(&["replay", "-e", &file, "-q"], 3, "'utilization' and 'over-provisioning' exclude each other");
    std::fs::write(&path, "source = 'random,writes=5000'\ndevice = 'intel-series2plus-24mb'\n").unwrap();
    // The names that options had in earlier versions still work.
    let paced = |row: serde_json::Value| row["most_pages_per_write"].as_u64();
    assert_eq!(paced(row(&["--max-pages-per-write", "12"])), Some(12));
    assert_eq!(paced(row(&["--most-pages-per-write", "12"])), Some(12));
    for key in ["max-pages-per-write", "most-pages-per-write"] {
        std::fs::write(&path, format!("source = 'random,writes=500'\n{key} = 9\n")).unwrap();
        assert_eq!(paced(row(&[])), Some(9), "{key}");
    }
    assert!(!works(&["replay", "--help"]).contains("most-pages"), "the earlier names are not shown");
    std::fs::write(&path, "sede = 4\n").unwrap();
    fails(&["replay", "-e", &file], 3, "unknown key 'sede'; the known ones are source, device");
}

#[test]
fn traces_are_generated_described_converted_and_printed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    works(&["generate", "zipf:1.1,writes=2000,poisson=1ms,reads=0.3", &at("t.mgt"), "--pages", "500"]);
    works(&["trace", "convert", &at("t.mgt"), &at("t.log.gz"), "--to-format", "fio"]);
    let info = works(&["trace", "info", &at("t.mgt"), &at("t.log.gz")]);
    assert!(info.contains("mgt (plain)") && info.contains("fio (gzip)") && info.contains("2000 writes"), "{info}");
    assert_eq!(works(&["trace", "head", &at("t.mgt"), "-n", "3"]).lines().count(), 4);
    works(&["replay", &at("t.log.gz"), "-q", "--repeat", "3"]);
    fails(&["generate", "random", &at("x.mgt")], 2, "has no end: add writes=N");
    fails(&["generate", "random,writes=5", &at("x.spc"), "--format", "spc"], 2, "cannot be written");
    fails(&["generate", "random,writes=5", "/nonexistent/x.mgt"], 1, "/nonexistent/x.mgt");
}

/// What the command prints when a file arrives by a pipe, its first bytes some time before the rest.
fn piped(args: &[&str], bytes: &[u8]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_margay"));
    let mut child = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for part in [&bytes[..3], &bytes[3..]] {
        // Who needs the first lines only does not read the rest.
        let _ = stdin.write_all(part);
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{args:?}");
    text(&output.stdout)
}

#[test]
fn a_trace_from_the_standard_input_is_read_from_its_first_byte_on() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    works(&["generate", "random,writes=20000", &at("t.csv"), "--pages", "500", "--format", "csv"]);
    works(&["trace", "convert", &at("t.csv"), &at("t.csv.gz"), "--to-format", "csv"]);
    for name in ["t.csv", "t.csv.gz"] {
        let bytes = std::fs::read(at(name)).unwrap();
        let info = piped(&["trace", "info", "-"], &bytes);
        assert!(info.contains("20000 writes") && info.contains("1 lines: header"), "{name}: {info}");
        let head = piped(&["trace", "head", "-n", "5", "-"], &bytes);
        assert_eq!(head, works(&["trace", "head", "-n", "5", &at(name)]), "{name}");
    }
    let sample = std::fs::read(root().join("samples/sort.vmt.zst")).unwrap();
    assert!(piped(&["trace", "info", "-"], &sample).contains("page references"));
    let replay = |trace: &'static str| ["vm", "replay", trace, "--cache", "1M", "-s", "du-gc", "-q", "-f", "json"];
    let row = |json: String| -> serde_json::Value { serde_json::from_str(&json).unwrap() };
    let (of_pipe, of_file) = (row(piped(&replay("-"), &sample)), row(works(&replay("samples/sort.vmt.zst"))));
    for key in ["erases", "trace_xxh3"] {
        assert!(!of_file[key].is_null() && of_pipe[key] == of_file[key], "{key}: {of_pipe} {of_file}");
    }
}

#[test]
fn the_head_of_a_trace_shows_what_is_before_a_bad_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    let header = "time_us,op,device,offset_bytes,len_bytes\n";
    std::fs::write(&path, format!("{header}0,write,0,4096,512\n7,read,0,0,512\nx,read,0,0,512\n")).unwrap();
    let output = margay(&["trace", "head", &path.display().to_string()]);
    let (shown, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), shown.lines().count()), (Some(3), 3), "{shown}{error}");
    assert!(error.contains("t.csv:4"), "{error}");
}

#[test]
fn wrong_names_and_impossible_values_are_told_with_what_would_be_right() {
    let card = |args: &[&'static str]| [&["replay", "random,writes=100"], CARD, args].concat();
    fails(&["replay"], 2, "no source");
    fails(&card(&["-s", "gredy"]), 2, "the known ones are greedy, cost-benefit");
    fails(&card(&["-p", "m7"]), 2, "the known ones are m1, m2");
    fails(&card(&["--leveling", "lots"]), 2, "the known ones are none, swap, threshold");
    fails(&["replay", "randum"], 2, "the known ones are sequential, random");
    fails(&["replay", "random", "--device", "intel"], 2, "the known ones are intel-series2plus-24mb");
    fails(&["replay", "random", "--device", "/nonexistent.toml"], 3, "/nonexistent.toml");
    fails(&["replay", "/nonexistent/trace.csv"], 3, "no such file");
    fails(&["replay", "nonexistent.csv"], 3, "nonexistent.csv: no such file");
    fails(&["replay", "s3://bucket/trace.csv"], 3, "margay.fetch");
    fails(&["replay", "random", "--flash-size", "0"], 2, "flash-size = 0: expected a number of bytes");
    fails(&["format", "none.img", "--map-memory", "9999999T"], 2, "--map-memory = 9999999T: expected");
    fails(&["advise", "random", "--years", "5", "--per-day", "20Q"], 2, "--per-day = 20Q: expected");
    fails(&["generate", "random,writes=10", "/dev/full", "--force"], 1, "/dev/full: No space left");
    fails(&["replay", "-"], 2, "write the standard input to a file first");
    fails(&["replay", "random", "--utilization", "0.999999"], 2, "could never be cleaned");
    fails(&["replay", "random", "--utilization", "0.999999"], 2, "export fewer (utilization, over-provisioning");
    fails(&["replay", "random", "--utilization", "1.5"], 2, "1.5");
    fails(&["replay", "random", "--low-water", "0"], 2, "at least 1");
    fails(&["replay", "random", "--flash-size", "1M"], 2, "at least 2 segments");
    fails(&["replay", "random", "--flash-size", "100P"], 2, "a number with K, M, G or T");
    fails(&["replay", "random", "--header-pages", "256"], 2, "leave no data page");
    fails(&["replay", "random", "--device-writes=-1"], 2, "--device-writes");
    fails(&["replay", "random", "--warm-up", "1"], 2, "warm-up");
    fails(&["replay", "random", "--over-provisioning", "10"], 2, "10 % is written 0.10");
    fails(&["model", "greedy", "op=10", "b=256"], 2, "10 % is written 0.10");
    fails(&["replay", "random,writes=9", "--plot", "x.pdf"], 2, ".svg or .png");
    fails(&["replay", SAMPLE, "--trace-format", "spss"], 2, "the known ones are msr");
    fails(
        &["replay", SAMPLE, "-q", "--device", "ideal-1gb", "--addresses", "direct", "--exported-pages", "500"],
        2,
        "past the end of the device",
    );
    fails(&["compare", SAMPLE, "-q", "-f", "parquet"], 2, "needs --output");
    fails(&["model", "greedy", "alpha=1.1"], 2, "'b' is missing");
}

#[test]
fn a_device_without_room_for_tags_is_formatted_only_when_half_the_capacity_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("flash.img").display().to_string();
    for format in [&["format"][..], &["fs", "format"]] {
        for shape in [
            &["--size", "4M", "--page-bytes", "512", "--spare-bytes", "16"][..],
            &["-d", "nand-small-block-64mb", "--size", "4M"],
        ] {
            let args = [format, &[&image], shape].concat();
            fails(&args, 2, "there are 16 usable bytes in the spare area of a page, which takes 32");
            fails(&args, 2, "--pair-pages");
            assert!(!Path::new(&image).exists(), "an image that could not be formatted is left behind");
            let said = works(&[&args[..], &["--pair-pages"]].concat());
            assert!(said.contains("% of the flash"), "{said}");
            std::fs::remove_file(&image).unwrap();
        }
    }
}

#[test]
fn a_result_that_cannot_be_written_leaves_nothing_and_exits_1() {
    fails(&["replay", "random,writes=10", "-q", "-f", "csv", "-o", "/proc/nowhere/x.csv"], 1, "/proc/nowhere/x.csv");
    fails(&["replay", "random,writes=10", "-q", "-f", "csv", "-o", "/dev/full"], 1, "/dev/full: No space left");
    assert!(!Path::new("/dev/full").is_file());
    works(&["replay", "random,writes=10", "-q", "-f", "csv", "-o", "/dev/null"]);
    assert!(!Path::new("/dev/null").is_file(), "a device is written to, not replaced");
    works(&["generate", "random,writes=5", "/dev/null"]);
    assert!(!Path::new("/dev/null").is_file(), "a device is written to, not replaced");
    fails(&["generate", "random,writes=5", "/dev"], 1, "not a regular file");
}

#[test]
fn models_are_evaluated() {
    assert!(works(&["model", "greedy", "spare=0.10", "b=256"]).contains("wa = 5.08"));
    assert!(works(&["model"]).contains("d-choices"));
    // Theory and replay meet at what theory means by over-provisioning: a replay keeps segments open and free.
    let replay = ["replay", "random", "--flash-size", "64M", "--device-writes", "20", "-q", "-f", "json"];
    let row = serde_json::from_str::<serde_json::Value>(&works(&replay)).unwrap()["row"].take();
    let (wa, theory) = (row["wa_warm"].as_f64().unwrap(), row["theory_wa"].as_f64().unwrap());
    assert!((wa / theory - 1.0).abs() < 0.03, "{wa} {theory}");
    let alpha = format!("alpha={}", 1.0 + row["effective_over_provisioning"].as_f64().unwrap());
    assert!(works(&["model", "greedy", &alpha, "b=256"]).contains(&format!("wa = {theory:.6}")));
    let idle = works(&["model", "greedy", "rho=0.9", "b=256", "idle=3/64"]);
    assert!(idle.contains("without the idle segments") && !idle.contains("wa = 5.08"), "{idle}");
}

#[test]
fn generated_references_are_fresh() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let kept = std::fs::read_to_string(root.join("docs/policies.md")).unwrap();
    assert_eq!(works(&["policies", "--markdown"]), kept, "docs/policies.md is stale: run make docs");
    let folder = tempfile::tempdir().unwrap();
    works(&["man", &folder.path().display().to_string()]);
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        let kept = std::fs::read(root.join("docs/man").join(entry.file_name())).unwrap_or_default();
        assert!(kept == std::fs::read(entry.path()).unwrap(), "docs/man is stale: run make docs");
    }
    assert!(works(&["completions", "bash"]).contains("margay"));
}

/// How many rows have each verdict, by the table at the top of a report or of a part of docs/reproduction.md.
fn verdicts(text: &str) -> Vec<(String, u32)> {
    let rows = text.lines().skip_while(|line| !line.starts_with("| verdict ")).skip(2);
    let cells = rows.take_while(|line| line.starts_with('|')).map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        (cells[1].to_string(), cells[2].parse().unwrap())
    });
    cells.collect()
}

#[test]
fn nothing_of_the_fms_tables_is_missed_and_every_row_has_a_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let out = works(&["reproduce", "fms", "--tables-only", "-q", "--folder", &folder.path().display().to_string()]);
    let verdicts = verdicts(&out);
    let names: Vec<_> = verdicts.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["met", "model", "fitted", "direction only", "reversed", "not comparable", "MISSED"]);
    let counts: Vec<_> = verdicts.iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [21, 6, 21, 0, 0, 0, 0], "{out}");
    let rows = std::fs::read_to_string(folder.path().join("comparisons.csv")).unwrap();
    assert_eq!(rows.lines().count() as u32, 1 + counts.iter().sum::<u32>());
    let page = std::fs::read_to_string(folder.path().join("fms.html")).unwrap();
    assert!(page.contains("What the paper asked") && page.contains("This part was not run"));
}

#[test]
fn the_moda_study_has_the_verdicts_that_the_documentation_says() {
    let folder = tempfile::tempdir().unwrap();
    let out = works(&["reproduce", "moda", "-q", "--folder", &folder.path().display().to_string()]);
    let document = include_str!("../../../docs/reproduction.md");
    let part = &document[document.find("# MODA: page allocation").unwrap()..];
    assert_eq!(verdicts(&out), verdicts(part), "docs/reproduction.md is stale");
    for file in ["comparisons.csv", "moda.html", "fig3-utilization.svg", "fig10-filling.svg", "fig11-allocators.svg"] {
        assert!(folder.path().join(file).exists(), "{file}");
    }
    let page = std::fs::read_to_string(folder.path().join("moda.html")).unwrap();
    assert!(page.matches("<svg").count() == 9 && !page.contains("src=") && !page.contains("was not run"));
    let rows = std::fs::read_to_string(folder.path().join("files.csv")).unwrap();
    assert!(rows.contains("predictive") && rows.lines().next().unwrap().contains("seed"), "{rows}");
    let out = works(&["fs", "model", "-u", "0.86", "-i", "0.0087", "-p", "0.73", "--segments", "3712"]);
    assert!(out.contains("erases   1025.8") && out.contains("energy"), "{out}");
}

#[test]
fn the_league_meets_uniform_writes_and_holds_the_published_order_of_online_placements() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let out = works(&["reproduce", "league", "-q", "--tables-only", "--seeds", "1", "--folder", &path]);
    let mut table = csv::Reader::from_path(folder.path().join("comparisons.csv")).unwrap();
    let names = table.headers().unwrap().clone();
    let rows: Vec<csv::StringRecord> = table.records().map(Result::unwrap).collect();
    let field =
        |row: &csv::StringRecord, name: &str| row[names.iter().position(|other| other == name).unwrap()].to_string();
    let of = |place: &str, cell: &str| {
        let row = rows.iter().find(|row| field(row, "place") == place && field(row, "cell").starts_with(cell));
        field(row.unwrap_or_else(|| panic!("{place}, {cell}: {out}")), "verdict")
    };
    for selection in ["greedy", "FIFO", "cost-benefit"] {
        assert_eq!(of("uniform", selection), "met");
    }
    for (other, exponent) in [("NoSep", 0.2), ("SepGC", 0.2), ("NoSep", 1.0), ("SepGC", 1.0), ("DAC", 1.0)] {
        let row = format!("SepBIT against {other}, Zipf {exponent},");
        assert_eq!(of("skew", &row), "direction only", "published below {other}");
    }
    assert!(out.contains("mean write amplification over Zipf 0.2 to 1"), "{out}");
    assert!(folder.path().join("league.html").is_file() && folder.path().join("league-skew.svg").is_file());
}

#[test]
fn the_studies_run_in_any_folder_and_say_what_they_used() {
    // In one of its own, as traces are looked for in the folder beside it.
    let around = tempfile::tempdir().unwrap();
    let folder = around.path().join("any");
    std::fs::create_dir(&folder).unwrap();
    let args = ["reproduce", "all", "--tables-only", "-q", "--seeds", "4", "-o", "report"];
    let out = Command::new(env!("CARGO_BIN_EXE_margay"))
        .args(args)
        .current_dir(&folder)
        .env_remove("MARGAY_TRACES")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
    assert!(text.contains("a small one that travels with the program"), "{text}");
    assert!(text.contains("the HP trace was not found, and Figs. 14 to 17 were left out"), "{text}");
    let page = |name: &str| std::fs::read_to_string(folder.join("report").join(name)).unwrap();
    let index = page("index.html");
    for name in ["fms", "moda", "lda-gc"] {
        assert!(index.contains(&format!("href=\"{name}.html\"")), "{index}");
        let page = page(&format!("{name}.html"));
        assert!(page.contains("How this page was made") && page.contains("How it differs"), "{name}");
        assert!(!page.contains("src=") && !page.contains("href="), "{name} needs another file");
        assert!(folder.join("report").join(name).join("comparisons.csv").is_file(), "{name}");
    }
    assert!(page("fms.html").contains("seeds for each cell: 4 (--seeds, 8 by default)"));
}

#[test]
fn output_that_nobody_reads_ends_a_command_quietly_and_one_that_cannot_be_written_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("flash.img").display().to_string();
    works(&["format", &image, "--size", "16M"]);
    let commands: [&[&str]; 6] = [
        &["format", &image, "--force"],
        &["info", &image],
        &["check", &image],
        &["dump", &image],
        &["model"],
        &["policies"],
    ];
    for args in commands {
        let into = |stdout: std::process::Stdio| {
            let output = Command::new(env!("CARGO_BIN_EXE_margay")).args(args).stdout(stdout).output().unwrap();
            (output.status.code(), text(&output.stderr))
        };
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        assert_eq!(into(writer.into()), (Some(0), String::new()), "{args:?} into a closed pipe");
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let (code, error) = into(full.into());
        assert_eq!(code, Some(1), "{args:?} into a full disk: {error}");
        assert!(error.contains("No space left"), "{args:?}: {error}");
    }
}
