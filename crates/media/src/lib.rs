//! Flash devices and stackable layers over them.
//!
//! [`NullFlash`] has no payload and serves measurement, [`RamFlash`] holds data, [`Strict`] is a layer that
//! enforces the contract of [`margay_flash::Flash`], [`Meter`] a layer that counts operations. Faults and
//! power cuts are further layers, never branches in a device or in the engine.

mod meter;
mod null;
mod ram;
mod strict;

pub use meter::{Meter, Operations};
pub use null::NullFlash;
pub use ram::RamFlash;
pub use strict::Strict;
