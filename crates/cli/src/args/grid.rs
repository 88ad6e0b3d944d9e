//! The options of a sweep: those of a run, each with several values.

use clap::builder::NonEmptyStringValueParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use margay_lab::Settings;
use margay_lab::sweep::{split_list, typed};
use std::path::Path;
use toml::{Table, Value};

/// The settings of a sweep's points as they are given: a value, or an array of values, which may be ranges.
#[derive(Clone, Debug, Default)]
pub struct GridArgs {
    pub table: Table,
}

/// The options of one run.
fn options() -> Vec<Arg> {
    Settings::augment_args(Command::new("settings")).get_arguments().cloned().collect()
}

fn several(option: Arg) -> Arg {
    let is_flag = !option.get_action().takes_values();
    let option = option.value_parser(NonEmptyStringValueParser::new()).value_delimiter(None).action(ArgAction::Append);
    if is_flag {
        option.num_args(0..=1).require_equals(true).default_missing_value("true").value_name("true,false")
    } else {
        option
    }
}

impl Args for GridArgs {
    fn augment_args(command: Command) -> Command {
        command.args(options().into_iter().map(several))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for GridArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut table = Table::new();
        for option in options() {
            let id = option.get_id().as_str();
            if matches.value_source(id) != Some(ValueSource::CommandLine) {
                continue;
            }
            let mut values: Vec<Value> = Vec::new();
            for text in matches.get_many::<String>(id).into_iter().flatten() {
                if Path::new(text).exists() {
                    values.push(Value::String(text.clone()));
                } else {
                    values.extend(split_list(text).iter().map(|text| typed(text)));
                }
            }
            let value = if values.len() == 1 { values.remove(0) } else { Value::Array(values) };
            table.insert(option.get_long().unwrap_or(id).into(), value);
        }
        Ok(Self { table })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
