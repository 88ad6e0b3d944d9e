//! What `margay check` and `margay fs check` do with what they find.

use super::ForceArg;
use clap::Args;
use std::path::PathBuf;

/// Whether and where what can be read is written.
#[derive(Clone, Debug, Default, Args)]
pub struct RepairArgs {
    /// Write a repaired copy: all that can be read, in a new image of the same shape, formatted in the same way. What has to
    /// be given up is listed, and makes the exit code 1. Erase counts start anew
    #[arg(long, value_name = "OUT")]
    pub repair: Option<PathBuf>,
    /// Put the repaired copy in the place of the image when it is complete; the image is lost then
    #[arg(long, conflicts_with = "repair")]
    pub repair_in_place: bool,
    #[command(flatten)]
    pub force: ForceArg,
}
