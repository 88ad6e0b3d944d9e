//! The contract with a flash chip: geometry, typed addresses, the [`Flash`] trait and its narrow errors.
//!
//! Nothing here knows about mapping, cleaning or formats. Addresses are `u32` page numbers, sizes are
//! `u64` bytes.
#![no_std]

mod error;
mod geometry;

pub use error::FlashError;
pub use geometry::{Divider, Geometry, GeometryError, Lpn, Ppn, SegmentId};

/// What a successful read found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadStatus {
    /// The bytes are as programmed.
    Clean,
    /// The bytes are as programmed after the ECC corrected them; the page wants to be rewritten soon.
    Corrected,
}

/// A raw flash device.
///
/// The contract, which every device and every layer keeps and every client may rely on:
///
/// 1. A segment is erased as a whole; only then may its pages be programmed again.
/// 2. The pages of a segment are programmed in ascending order, each at most once between two erases.
///    Pages may not be skipped. A violation is [`FlashError::OutOfOrder`] or [`FlashError::NotErased`]
///    where the device checks it, and undefined content where it does not.
/// 3. A program or erase that returns `Ok` survives a power cut. One that was interrupted may leave
///    the page or segment in any state: old, new, a mixture, unreadable, or readable now and not later.
/// 4. `data` is exactly one page long. A device without payload (the null device) ignores it and accepts
///    an empty slice.
/// 5. Operations are synchronous and are carried out in the order of the calls.
pub trait Flash {
    /// The shape of the device; constant over its life.
    fn geometry(&self) -> &Geometry;

    /// Reads one page into `data`.
    fn read(&mut self, ppn: Ppn, data: &mut [u8]) -> Result<ReadStatus, FlashError>;

    /// Programs one erased page with `data`.
    fn program(&mut self, ppn: Ppn, data: &[u8]) -> Result<(), FlashError>;

    /// Erases one segment.
    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError>;

    /// Copies a page to an erased page. Devices with a copy-back command or without payload override it.
    fn copy(&mut self, from: Ppn, to: Ppn, scratch: &mut [u8]) -> Result<ReadStatus, FlashError> {
        let status = self.read(from, scratch)?;
        self.program(to, scratch)?;
        Ok(status)
    }
}

impl<F: Flash + ?Sized> Flash for &mut F {
    fn geometry(&self) -> &Geometry {
        (**self).geometry()
    }
    fn read(&mut self, ppn: Ppn, data: &mut [u8]) -> Result<ReadStatus, FlashError> {
        (**self).read(ppn, data)
    }
    fn program(&mut self, ppn: Ppn, data: &[u8]) -> Result<(), FlashError> {
        (**self).program(ppn, data)
    }
    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError> {
        (**self).erase(segment)
    }
    fn copy(&mut self, from: Ppn, to: Ppn, scratch: &mut [u8]) -> Result<ReadStatus, FlashError> {
        (**self).copy(from, to, scratch)
    }
}
