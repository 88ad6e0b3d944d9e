use crate::{TheoryError, domain};
use std::fmt;

/// How much more flash there is than is exported, given and returned as any of the four usual ratios.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverProvisioning(f64);

impl OverProvisioning {
    /// From alpha = physical / exported.
    pub fn from_alpha(alpha: f64) -> Result<Self, TheoryError> {
        domain("alpha", alpha, alpha.is_finite() && alpha > 1.0, "physical / exported pages, over 1")?;
        Ok(Self(alpha))
    }

    /// From OP = physical / exported - 1.
    ///
    /// # Errors
    /// It is not over 0, or over 1: that is hardly ever meant, and most often per cent.
    pub fn from_over_provisioning(op: f64) -> Result<Self, TheoryError> {
        let wanted = "physical / exported - 1, over 0 and up to 1: 10 % is written 0.10 (more than 100 % as the utilization or as alpha)";
        domain("over-provisioning", op, op > 0.0 && op <= 1.0, wanted)?;
        Ok(Self(1.0 + op))
    }

    /// From the spare factor S = 1 - exported / physical.
    pub fn from_spare_factor(s: f64) -> Result<Self, TheoryError> {
        domain("spare factor", s, s > 0.0 && s < 1.0, "1 - exported / physical, over 0 and under 1")?;
        Ok(Self(1.0 / (1.0 - s)))
    }

    /// From rho = exported / physical, the utilization.
    pub fn from_utilization(rho: f64) -> Result<Self, TheoryError> {
        domain("utilization", rho, rho > 0.0 && rho < 1.0, "exported / physical, over 0 and under 1")?;
        Ok(Self(1.0 / rho))
    }

    /// Returns alpha = physical / exported.
    pub fn alpha(self) -> f64 {
        self.0
    }

    /// Returns OP = physical / exported - 1.
    pub fn over_provisioning(self) -> f64 {
        self.0 - 1.0
    }

    /// Returns rho = exported / physical.
    pub fn rho(self) -> f64 {
        1.0 / self.0
    }

    /// Returns the spare factor S = 1 - exported / physical.
    pub fn spare_factor(self) -> f64 {
        1.0 - 1.0 / self.0
    }
}

impl fmt::Display for OverProvisioning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "over-provisioning {:.4} (physical / exported - 1), spare factor {:.4} (1 - exported / physical)",
            self.over_provisioning(),
            self.spare_factor()
        )
    }
}
