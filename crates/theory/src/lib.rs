//! Closed forms and a mean-field model of write amplification, against which the engine is checked, and the
//! cleaning-cost model of the MODA paper.
//!
//! T = physical (usable) pages, U = exported pages, alpha = T / U, rho = U / T, S = 1 - rho, b = pages per
//! segment. T does not count the free reserve and the open segments.

mod closed;
mod mean_field;
mod moda;
mod models;
mod provisioning;

pub use closed::{
    agarwal_marrow_wa, fifo_two_class_wa, fifo_uniform_wa, greedy_uniform_wa, random_wa, separated_pools_wa,
};
pub use mean_field::{FullVictims, d_choices_wa};
pub use moda::{COPY_NJ_PER_BYTE, CleaningCost, ERASE_NJ_PER_BYTE, cleaning_cost};
pub use models::{ModelInfo, evaluate, models};
pub use provisioning::OverProvisioning;

/// Why a model gives no value.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TheoryError {
    /// A value is outside the model's domain.
    #[error("{name} = {value}: expected {wanted}")]
    Domain {
        /// The value's name.
        name: String,
        /// The value.
        value: f64,
        /// The values for which the model holds.
        wanted: &'static str,
    },
    /// There is no model of this name.
    #[error("unknown model '{name}'; the known ones are {known}")]
    UnknownModel {
        /// The name that was given.
        name: String,
        /// The names of all models, separated by commas.
        known: String,
    },
    /// A parameter is missing or unknown.
    #[error("model {model}: {problem}; its parameters are {known}")]
    Parameter {
        /// The model.
        model: &'static str,
        /// What is wrong.
        problem: String,
        /// The model's parameters.
        known: String,
    },
}

pub(crate) fn domain(name: &str, value: f64, ok: bool, wanted: &'static str) -> Result<(), TheoryError> {
    if ok { Ok(()) } else { Err(TheoryError::Domain { name: name.into(), value, wanted }) }
}
