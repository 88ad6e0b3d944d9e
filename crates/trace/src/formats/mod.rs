//! The table of formats. A new format is a file here that holds its row, its module, and its line in the table.

mod alibaba;
mod arc;
mod blkparse;
mod blktrace;
mod cloudphysics;
mod csv;
mod disksim;
mod fio;
mod hp_srt;
mod libcachesim_csv;
pub(crate) mod mgt;
mod mqsim;
mod msr;
mod oracle_general;
mod spc;
mod systor17;
mod tencent;
mod u32;
mod vscsi;

use crate::Format;

impl Format {
    /// All formats, in the order in which they are listed.
    pub const ALL: &'static [Self] = &[
        Self(&msr::ROW),
        Self(&alibaba::ROW),
        Self(&tencent::ROW),
        Self(&systor17::ROW),
        Self(&fio::ROW),
        Self(&blkparse::ROW),
        Self(&blktrace::ROW),
        Self(&spc::ROW),
        Self(&disksim::ROW),
        Self(&mqsim::ROW),
        Self(&hp_srt::ROW),
        Self(&libcachesim_csv::ROW),
        Self(&oracle_general::ROW),
        Self(&arc::ROW),
        Self(&u32::ROW),
        Self(&vscsi::ROW),
        Self(&cloudphysics::ROW),
        Self(&csv::ROW),
        Self(&mgt::ROW),
    ];

    /// margay's own format: compact, exact, with a checksum.
    pub const MGT: Self = Self(&mgt::ROW);

    /// CSV with named columns, which [`ReadOptions::csv`](crate::ReadOptions::csv) names.
    pub const CSV: Self = Self(&csv::ROW);
}
