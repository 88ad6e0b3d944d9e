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

/// The condition in which a page was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadStatus {
    /// The bytes are as programmed.
    Clean,
    /// The bytes are as programmed after the ECC corrected them; the page should be rewritten soon, before it has more
    /// bit errors than that.
    Corrected,
}

/// A raw flash device.
///
/// Every device and every layer keeps this contract, and every client may rely on it:
///
/// 1. A segment is erased as a whole; only then may its pages be programmed again.
/// 2. The pages of a segment are programmed in ascending order, each at most once between two erases. A
///    violation is [`FlashError::OutOfOrder`] or [`FlashError::NotErased`] where the device checks it, and
///    undefined content where it does not. On a byte-programmable device (NOR) `program_part` may come in any
///    order, each bit only from 1 to 0.
/// 3. On a chip a program or erase that returns `Ok` survives a power cut. On a device that [`Flash::is_cached`] it does
///    so once [`Flash::sync`] has returned `Ok`; until then each part of it may be on flash or not. An operation that was
///    interrupted may leave its page or segment in any state: old, new, a mixture, unreadable, or readable now and not
///    later.
/// 4. `data` is one page long, `spare` at most as long as the spare area; the rest of the spare area stays erased. An
///    empty `data` or `spare` is neither read nor programmed. A device without payload (the null device) ignores both.
/// 5. Operations are synchronous and are carried out in the order of the calls.
/// 6. [`FlashError::ProgramFailed`] and [`FlashError::EraseFailed`] are permanent: the client must retire the segment.
///    Its programmed pages stay readable. Any other error may be gone the next time; the operation may have been done,
///    in part or not at all.
pub trait Flash {
    /// The shape of the device. It never changes.
    fn geometry(&self) -> &Geometry;

    /// Reads one page into `data` and the start of its spare area into `spare`. Fails with
    /// [`FlashError::Uncorrectable`] if the ECC cannot correct the page.
    fn read(&mut self, ppn: Ppn, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus, FlashError>;

    /// Programs one erased page. [`FlashError::ProgramFailed`] means that the segment must be retired.
    fn program(&mut self, ppn: Ppn, data: &[u8], spare: &[u8]) -> Result<(), FlashError>;

    /// Erases one segment. [`FlashError::EraseFailed`] means that the segment must be retired.
    fn erase(&mut self, segment: SegmentId) -> Result<(), FlashError>;

    /// Reads `bytes.len()` bytes of a page, from `offset_bytes` on. [`FlashError::Unsupported`] unless the device is
    /// byte-programmable.
    fn read_part(&mut self, _ppn: Ppn, _offset_bytes: u32, _bytes: &mut [u8]) -> Result<ReadStatus, FlashError> {
        Err(FlashError::Unsupported)
    }

    /// Programs bytes of a page, from `offset_bytes` on. [`FlashError::Unsupported`] unless the device is
    /// byte-programmable.
    fn program_part(&mut self, _ppn: Ppn, _offset_bytes: u32, _bytes: &[u8]) -> Result<(), FlashError> {
        Err(FlashError::Unsupported)
    }

    /// Told by a client that it never uses a segment again and needs nothing that is on it. A chip that has marks of bad segments
    /// marks it, and may erase it before. Fails if it could not be tried; a mark that fails is no error.
    fn retire(&mut self, _segment: SegmentId) -> Result<(), FlashError> {
        Ok(())
    }

    /// Whether pages hold data. False on the null device, from which a copy need not read anything.
    fn has_payload(&self) -> bool {
        true
    }

    /// Returns when everything done so far survives a power cut. After an error nothing is known of what was done since
    /// the last sync that returned `Ok`, and no later sync makes up for it.
    fn sync(&mut self) -> Result<(), FlashError> {
        Ok(())
    }

    /// Begins to make durable what was done so far, without waiting for it where the device can do so: reads, programs and
    /// erases may follow before it has ended. [`Flash::end_sync`] says how it ended. By default it is [`Flash::sync`].
    fn begin_sync(&mut self) -> Result<(), FlashError> {
        self.sync()
    }

    /// Whether the sync that was begun last has ended, and everything done before it began survives a power cut; with
    /// `wait`, returns when it has. An error is as one of [`Flash::sync`].
    fn end_sync(&mut self, _wait: bool) -> Result<bool, FlashError> {
        Ok(true)
    }

    /// With `on`, programs may be kept in memory from now on, so that a device that gains by it can do several at once; reads
    /// see them as done, and everything else comes after them. Without `on`, returns when all of them were handed to the device.
    /// After an error they are kept and tried again before anything else is done; until then all other changes of the
    /// device, and syncs, fail.
    fn hold(&mut self, _on: bool) -> Result<(), FlashError> {
        Ok(())
    }

    /// Reads pages that follow each other with their spare areas, all of them whole, faster than one by one: `data` and `spare`
    /// have room for those of all pages, one behind the other. False, with anything in both, if the device has no faster way or
    /// something is wrong with one of the pages: [`Flash::read`] says of each what it is.
    fn read_run(&mut self, _first: Ppn, _data: &mut [u8], _spare: &mut [u8]) -> bool {
        false
    }

    /// Whether the device knows that a segment is erased without reading it. False says nothing.
    fn is_known_erased(&mut self, _segment: SegmentId) -> bool {
        false
    }

    /// Whether what was done since the last [`Flash::sync`] may be on flash in part and in any order after a power cut,
    /// as with a file that a host caches. False for a chip, of which a power cut interrupts the last operation only.
    fn is_cached(&self) -> bool {
        false
    }

    /// Makes all bytes of a page and of its spare area 0, whatever they were. Only devices that are cached need it: a
    /// mount so marks pages that were programmed after something that is lost. [`FlashError::Unsupported`] on others.
    fn void_page(&mut self, _ppn: Ppn) -> Result<(), FlashError> {
        Err(FlashError::Unsupported)
    }

    /// The mark of a device that is cached: the last number given to [`Flash::set_mark`] that is on flash, or an earlier
    /// one after a power cut. `None` if there is none.
    fn mark(&mut self) -> Result<Option<u64>, FlashError> {
        Ok(None)
    }

    /// Keeps a number beside the pages, as durable as a page that is programmed now. Devices that are not cached ignore
    /// it.
    fn set_mark(&mut self, _mark: Option<u64>) -> Result<(), FlashError> {
        Ok(())
    }
}

/// Passes calls of a layer on to the device in one of its fields: `pass_on!(device: sync, is_cached)` in its
/// `impl Flash`. A layer that forgets one of them would change what the device is, so it lists all that it does not change
/// itself.
#[macro_export]
macro_rules! pass_on {
    ($device:ident: $($name:ident),+) => { $($crate::pass_on!(@ $device $name);)+ };
    (@ $device:ident pages) => {
        fn geometry(&self) -> &$crate::Geometry {
            self.$device.geometry()
        }
        fn read(
            &mut self,
            ppn: $crate::Ppn,
            data: &mut [u8],
            spare: &mut [u8],
        ) -> Result<$crate::ReadStatus, $crate::FlashError> {
            self.$device.read(ppn, data, spare)
        }
        fn program(&mut self, ppn: $crate::Ppn, data: &[u8], spare: &[u8]) -> Result<(), $crate::FlashError> {
            self.$device.program(ppn, data, spare)
        }
        fn erase(&mut self, segment: $crate::SegmentId) -> Result<(), $crate::FlashError> {
            self.$device.erase(segment)
        }
    };
    (@ $device:ident parts) => {
        fn read_part(
            &mut self,
            ppn: $crate::Ppn,
            offset_bytes: u32,
            bytes: &mut [u8],
        ) -> Result<$crate::ReadStatus, $crate::FlashError> {
            self.$device.read_part(ppn, offset_bytes, bytes)
        }
        fn program_part(
            &mut self,
            ppn: $crate::Ppn,
            offset_bytes: u32,
            bytes: &[u8],
        ) -> Result<(), $crate::FlashError> {
            self.$device.program_part(ppn, offset_bytes, bytes)
        }
    };
    (@ $device:ident has_payload) => {
        fn has_payload(&self) -> bool {
            self.$device.has_payload()
        }
    };
    (@ $device:ident retire) => {
        fn retire(&mut self, segment: $crate::SegmentId) -> Result<(), $crate::FlashError> {
            self.$device.retire(segment)
        }
    };
    (@ $device:ident sync) => {
        fn sync(&mut self) -> Result<(), $crate::FlashError> {
            self.$device.sync()
        }
        fn hold(&mut self, on: bool) -> Result<(), $crate::FlashError> {
            self.$device.hold(on)
        }
        fn begin_sync(&mut self) -> Result<(), $crate::FlashError> {
            self.$device.begin_sync()
        }
        fn end_sync(&mut self, wait: bool) -> Result<bool, $crate::FlashError> {
            self.$device.end_sync(wait)
        }
    };
    (@ $device:ident shortcuts) => {
        fn read_run(&mut self, first: $crate::Ppn, data: &mut [u8], spare: &mut [u8]) -> bool {
            self.$device.read_run(first, data, spare)
        }
        fn is_known_erased(&mut self, segment: $crate::SegmentId) -> bool {
            self.$device.is_known_erased(segment)
        }
    };
    (@ $device:ident is_cached) => {
        fn is_cached(&self) -> bool {
            self.$device.is_cached()
        }
    };
    (@ $device:ident void_page) => {
        fn void_page(&mut self, ppn: $crate::Ppn) -> Result<(), $crate::FlashError> {
            self.$device.void_page(ppn)
        }
    };
    (@ $device:ident mark) => {
        fn mark(&mut self) -> Result<Option<u64>, $crate::FlashError> {
            self.$device.mark()
        }
    };
    (@ $device:ident set_mark) => {
        fn set_mark(&mut self, mark: Option<u64>) -> Result<(), $crate::FlashError> {
            self.$device.set_mark(mark)
        }
    };
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
            fn retire(&mut self, segment: SegmentId) -> Result<(), FlashError> {
                (**self).retire(segment)
            }
            fn has_payload(&self) -> bool {
                (**self).has_payload()
            }
            fn sync(&mut self) -> Result<(), FlashError> {
                (**self).sync()
            }
            fn hold(&mut self, on: bool) -> Result<(), FlashError> {
                (**self).hold(on)
            }
            fn begin_sync(&mut self) -> Result<(), FlashError> {
                (**self).begin_sync()
            }
            fn end_sync(&mut self, wait: bool) -> Result<bool, FlashError> {
                (**self).end_sync(wait)
            }
            fn read_run(&mut self, first: Ppn, data: &mut [u8], spare: &mut [u8]) -> bool {
                (**self).read_run(first, data, spare)
            }
            fn is_known_erased(&mut self, segment: SegmentId) -> bool {
                (**self).is_known_erased(segment)
            }
            fn is_cached(&self) -> bool {
                (**self).is_cached()
            }
            fn void_page(&mut self, ppn: Ppn) -> Result<(), FlashError> {
                (**self).void_page(ppn)
            }
            fn mark(&mut self) -> Result<Option<u64>, FlashError> {
                (**self).mark()
            }
            fn set_mark(&mut self, mark: Option<u64>) -> Result<(), FlashError> {
                (**self).set_mark(mark)
            }
        }
    )*};
}

forward!(&mut F, alloc::boxed::Box<F>);
