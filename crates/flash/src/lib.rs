//! The contract with a flash chip: geometry, typed addresses, the [`Flash`] trait and its narrow errors.
//!
//! Nothing here knows about mapping, cleaning or formats. Addresses are `u32` page numbers, sizes are
//! `u64` bytes.
#![no_std]
extern crate alloc;

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
/// 2. The pages of a segment are programmed in ascending order, each at most once between two erases. A
///    violation is [`FlashError::OutOfOrder`] or [`FlashError::NotErased`] where the device checks it, and
///    undefined content where it does not. On a byte-programmable device (NOR) `program_part` may come in any
///    order, each bit only from 1 to 0.
/// 3. A program or erase that returns `Ok` survives a power cut once [`Flash::sync`] has returned `Ok`; chips
///    need no sync. Everything before a sync is on flash before anything after it. One that was interrupted may
///    leave the page or segment in any state: old, new, a mixture, unreadable, or readable now and not later.
/// 4. `data` is one page, `spare` at most the spare area; what is beyond a shorter spare stays erased. An empty
///    `data` or `spare` is not read. A device without payload (the null device) ignores both.
/// 5. Operations are synchronous and are carried out in the order of the calls.
/// 6. A failed program or erase is permanent: the segment is to be retired. Its programmed pages stay readable.
pub trait Flash {
    /// The shape of the device; constant over its life.
    fn geometry(&self) -> &Geometry;

    /// Reads one page into `data` and its spare area into `spare`.
    fn read(&mut self, ppn: Ppn, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, FlashError>;

    /// Programs one erased page.
    fn program(&mut self, ppn: Ppn, data: &[u8], spare: &[u8]) -> Result<(), FlashError>;

    /// Erases one segment.
    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError>;

    /// Reads bytes of a page of a byte-programmable device.
    fn read_part(&mut self, _ppn: Ppn, _offset_bytes: u32, _bytes: &mut [u8]) -> Result<ReadStatus, FlashError> {
        Err(FlashError::Unsupported)
    }

    /// Programs bytes of a page of a byte-programmable device.
    fn program_part(&mut self, _ppn: Ppn, _offset_bytes: u32, _bytes: &[u8]) -> Result<(), FlashError> {
        Err(FlashError::Unsupported)
    }

    /// Whether pages hold data. False on the null device: nobody needs to read what it would copy.
    fn has_payload(&self) -> bool {
        true
    }

    /// Returns when everything done so far survives a power cut.
    fn sync(&mut self) -> Result<(), FlashError> {
        Ok(())
    }
}

/// What points to a device is one.
macro_rules! forward {
    ($($pointer:ty),*) => {$(
        impl<F: Flash + ?Sized> Flash for $pointer {
            fn geometry(&self) -> &Geometry {
                (**self).geometry()
            }
            fn read(&mut self, ppn: Ppn, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, FlashError> {
                (**self).read(ppn, data, spare)
            }
            fn program(&mut self, ppn: Ppn, data: &[u8], spare: &[u8]) -> Result<(), FlashError> {
                (**self).program(ppn, data, spare)
            }
            fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError> {
                (**self).erase(segment)
            }
            fn read_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &mut [u8]) -> Result<ReadStatus, FlashError> {
                (**self).read_part(ppn, offset_bytes, bytes)
            }
            fn program_part(&mut self, ppn: Ppn, offset_bytes: u32, bytes: &[u8]) -> Result<(), FlashError> {
                (**self).program_part(ppn, offset_bytes, bytes)
            }
            fn has_payload(&self) -> bool {
                (**self).has_payload()
            }
            fn sync(&mut self) -> Result<(), FlashError> {
                (**self).sync()
            }
        }
    )*};
}

forward!(&mut F, alloc::boxed::Box<F>);
