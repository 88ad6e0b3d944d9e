//! Flash devices and stackable layers over them.
//!
//! Devices: [`NullFlash`] has no payload and serves measurement, [`RamFlash`] is in memory, [`SparseFlash`] without pages of zeros, [`ImageFlash`] in a file,
//! [`MtdFlash`] a chip of raw flash under Linux.
//! Layers: [`Strict`] enforces the contract of [`margay_flash::Flash`], [`Meter`] counts operations, [`Recorder`] lists
//! them, [`Faults`] makes programs and erases fail for good and gives pages bit errors, [`Flaky`] makes any call fail for
//! a moment, [`PowerCut`] cuts the power of a chip, [`Cached`] that of a host which had not written everything yet.
//! Faults are layers, never branches in a device or in the engine.
//!
//! With the feature `presets` there are the shapes, times, energies and endurances of real parts (`DeviceSpec`), built in or
//! from a TOML file.

mod cached;
mod damage;
#[cfg(feature = "presets")]
mod device;
mod faults;
mod flaky;
mod image;
mod meter;
mod mtd;
mod null;
mod power;
mod ram;
mod record;
mod sparse;
mod strict;

pub use cached::{Cached, Lie, Loss};
pub use damage::Damage;
#[cfg(feature = "presets")]
pub use device::{DeviceError, DeviceSpec, Energy, Timing, presets};
pub use faults::{Faults, ReadFault};
pub use flaky::{Call, Effect, Flaky};
pub use image::{ImageError, ImageFlash};
pub use margay_mtd::Stats as ChipStats;
pub use meter::{Meter, Operations};
pub use mtd::{MtdError, MtdFlash};
pub use null::NullFlash;
pub use power::{PowerCut, Torn};
pub use ram::RamFlash;
pub use record::{Operation, Recorder};
pub use sparse::SparseFlash;
pub use strict::Strict;
