//! Experiment files: any option of `replay`, `compare` and `sweep`, in TOML.

use super::run::{CompareArgs, ReplayArgs, SweepArgs};
use crate::failure::Failure;
use crate::output::write_file;
use clap::Args;
use margay_host::Existing;
use margay_lab::settings::{EXCLUSIVE, from_table, put_over, to_table};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

#[derive(Clone, Debug, Default, Args)]
pub struct FileArgs {
    /// TOML file with any of these options; options on the command line take precedence
    #[arg(long, short = 'e', value_name = "FILE")]
    pub experiment: Option<PathBuf>,
    /// Write the options of this run to a TOML file, which --experiment reads
    #[arg(long, value_name = "FILE")]
    pub save_experiment: Option<PathBuf>,
}

/// Options that say nothing of the experiment: they are not saved with it.
const OF_THE_MOMENT: [&str; 2] = ["force", "quiet"];

/// All that was said, on the command line and in the experiment file.
#[derive(Debug)]
pub struct Given {
    pub table: Table,
    save: Option<PathBuf>,
    /// The experiment file.
    pub file: Option<PathBuf>,
}

/// The keys that a file may have, with what they are called today: the names of all options.
fn known_keys() -> BTreeMap<String, String> {
    let empty = || clap::Command::new("options");
    let commands =
        [ReplayArgs::augment_args(empty()), CompareArgs::augment_args(empty()), SweepArgs::augment_args(empty())];
    let mut keys = BTreeMap::from([("source".to_string(), "source".to_string())]);
    for option in commands.iter().flat_map(clap::Command::get_arguments) {
        let Some(long) = option.get_long() else { continue };
        let names = option.get_all_aliases().into_iter().flatten().chain([long]);
        keys.extend(names.map(|name| (name.to_string(), long.to_string())));
    }
    for none in ["experiment", "save-experiment", "restart"] {
        keys.remove(none);
    }
    keys
}

fn read(path: &Path) -> Result<Table, Failure> {
    let input = |error: String| Failure::Input(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| input(error.to_string()))?;
    let table: Table = toml::from_str(&text).map_err(|error| input(error.to_string()))?;
    let known = known_keys();
    let mut options = Table::new();
    for (key, value) in table {
        let Some(name) = known.get(&key.replace('_', "-")) else {
            // The order of the help: first what is run on what.
            let mut names: Vec<&str> =
                known.iter().filter(|(key, name)| key == name).map(|(key, _)| key.as_str()).collect();
            names.sort_by_key(|name| (*name != "source", *name != "device", *name));
            return Err(input(format!("unknown key '{key}'; the known ones are {}", names.join(", "))));
        };
        if let Some(before) = options.insert(name.clone(), near(path, name, value)) {
            return Err(input(format!("'{name}' is given twice, once as {before}")));
        }
    }
    Ok(options)
}

/// A value as it is meant: files that an experiment file names are looked for beside it first.
fn near(path: &Path, key: &str, value: Value) -> Value {
    if !["source", "device", "csv-layout"].contains(&key) {
        return value;
    }
    match value {
        Value::String(text) => {
            let beside = path.parent().unwrap_or(Path::new("")).join(&text);
            Value::String(if beside.is_file() { beside.display().to_string() } else { text })
        }
        Value::Array(values) => Value::Array(values.into_iter().map(|value| near(path, key, value)).collect()),
        value => value,
    }
}

/// Whether a source is an experiment file, and no description of a workload.
fn is_experiment(source: &str) -> bool {
    if !source.ends_with(".toml") {
        return false;
    }
    let table = std::fs::read_to_string(source).ok().and_then(|text| toml::from_str::<Table>(&text).ok());
    table.is_some_and(|table| !["workload", "mix", "phase"].iter().any(|key| table.contains_key(*key)))
}

impl Given {
    /// The options of the command line over those of the file.
    ///
    /// # Errors
    /// The file cannot be read, or has a key that is no option.
    pub fn new(mut options: Table, args: &FileArgs) -> Result<Self, Failure> {
        let mut file = args.experiment.clone();
        let named = options.get("source").and_then(Value::as_str).filter(|source| is_experiment(source));
        if let Some(path) = named.map(PathBuf::from) {
            if let Some(file) = file {
                let text = format!("{} and {} are two experiment files; name one", file.display(), path.display());
                return Err(Failure::Usage(text));
            }
            options.remove("source");
            file = Some(path);
        }
        let lower = file.as_deref().map(read).transpose()?.unwrap_or_default();
        for group in EXCLUSIVE {
            let given: Vec<&str> = group.iter().copied().filter(|key| lower.contains_key(*key)).collect();
            if let (Some(path), [one, other, ..]) = (&file, given.as_slice()) {
                return Err(Failure::Input(format!(
                    "{}: '{one}' and '{other}' exclude each other; take one out",
                    path.display()
                )));
            }
        }
        if let Some(path) = &args.save_experiment {
            crate::output::check_new(Some(path), existing(&options))?;
        }
        Ok(Self { table: put_over(options, lower), save: args.save_experiment.clone(), file })
    }

    /// The same, with the options that these are.
    ///
    /// # Errors
    /// Those of [`Given::new`], and values in the file that are not of the kind that their keys want.
    pub fn complete<T: Serialize + DeserializeOwned>(options: &T, args: &FileArgs) -> Result<(T, Self), Failure> {
        let given = Self::new(to_table(options)?, args)?;
        Ok((given.read()?, given))
    }

    /// The options as those of a command.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        from_table(&self.table).map_err(|error| match &self.file {
            Some(path) => Failure::Input(format!("{}: {error}", path.display())),
            None => error.into(),
        })
    }

    /// Writes the options of this command to the file of `--save-experiment`, if there is one.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save(&self, command: &str) -> Result<(), Failure> {
        let Some(path) = &self.save else { return Ok(()) };
        let mut table = self.table.clone();
        OF_THE_MOMENT.iter().for_each(|key| drop(table.remove(*key)));
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if folder.is_some() {
            // Beside another file the name would mean another file.
            for key in ["source", "device", "csv-layout"] {
                if let Some(Value::String(text)) = table.get_mut(key)
                    && Path::new(text.as_str()).is_file()
                    && let Ok(whole) = Path::new(text.as_str()).canonicalize()
                {
                    *text = whole.display().to_string();
                }
            }
        }
        let text = toml::to_string(&table).map_err(|error| Failure::write(&path.display().to_string(), error))?;
        let (version, name) = (env!("CARGO_PKG_VERSION"), path.display());
        let head = format!("# Written by margay {version}. Run it: margay {command} -e {name}\n");
        write_file(path, (head + &text).as_bytes(), existing(&self.table))
    }
}

fn existing(options: &Table) -> Existing {
    if options.get("force") == Some(&Value::Boolean(true)) { Existing::Replace } else { Existing::Refuse }
}
