//! Flash devices and stackable layers over them.
//!
//! Devices: [`NullFlash`] has no payload and serves measurement, [`RamFlash`] is in memory, [`ImageFlash`] in a file.
//! Layers: [`Strict`] enforces the contract of [`margay_flash::Flash`], [`Meter`] counts operations, [`Recorder`] lists
//! them, [`Faults`] makes programs and erases fail and gives pages bit errors, [`PowerCut`] cuts the power. Faults are
//! layers, never branches in a device or in the engine.
//!
//! With the feature `presets` there are the shapes, times, energies and endurances of real parts (`DeviceSpec`), built in or
//! from a TOML file.

mod damage;
#[cfg(feature = "presets")]
mod device;
mod faults;
mod image;
mod meter;
mod null;
mod power;
mod ram;
mod record;
mod strict;

pub use damage::Damage;
#[cfg(feature = "presets")]
pub use device::{DeviceError, DeviceSpec, Energy, Timing, presets};
pub use faults::{Faults, ReadFault};
pub use image::{ImageError, ImageFlash};
pub use meter::{Meter, Operations};
pub use null::NullFlash;
pub use power::{PowerCut, Torn};
pub use ram::RamFlash;
pub use record::{Operation, Recorder};
pub use strict::Strict;
