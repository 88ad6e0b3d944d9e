//! The structs and numbers of `mtd/mtd-abi.h`, and the one call that takes them.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The letter of all requests of MTD.
const MTD: u32 = b'M' as u32;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InfoUser {
    pub kind: u8,
    pub flags: u32,
    /// Cut to 32 bits.
    pub size: u32,
    pub erase_bytes: u32,
    pub write_bytes: u32,
    pub oob_bytes: u32,
    padding: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EraseInfo64 {
    pub start: u64,
    pub length: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EccStats {
    pub corrected: u32,
    pub failed: u32,
    pub bad: u32,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WriteReq {
    pub start: u64,
    pub len: u64,
    pub oob_len: u64,
    pub data: u64,
    pub oob: u64,
    pub mode: u8,
    pub padding: [u8; 7],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReadReq {
    pub start: u64,
    pub len: u64,
    pub oob_len: u64,
    pub data: u64,
    pub oob: u64,
    pub mode: u8,
    pub padding: [u8; 7],
    pub uncorrectable_errors: u32,
    pub corrected_bits: u32,
    pub max_bits: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OobBuf64 {
    pub start: u64,
    pub pad: u32,
    pub length: u32,
    pub pointer: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct EccLayout {
    ecc_bytes: u32,
    ecc_positions: [u32; 64],
    pub free_bytes: u32,
    /// Offset and length of the parts that are free.
    pub free: [[u32; 2]; 8],
}

impl Default for EccLayout {
    fn default() -> Self {
        Self { ecc_bytes: 0, ecc_positions: [0; 64], free_bytes: 0, free: [[0; 2]; 8] }
    }
}

/// `MTD_OPS_AUTO_OOB`: ECC as the driver does it, and of the spare area the bytes that are free.
pub(crate) const AUTO_OOB: u8 = 1;

pub(crate) const MEMGETINFO: libc::Ioctl = libc::_IOR::<InfoUser>(MTD, 1);
pub(crate) const MEMGETBADBLOCK: libc::Ioctl = libc::_IOW::<i64>(MTD, 11);
pub(crate) const MEMSETBADBLOCK: libc::Ioctl = libc::_IOW::<i64>(MTD, 12);
pub(crate) const ECCGETLAYOUT: libc::Ioctl = libc::_IOR::<EccLayout>(MTD, 17);
pub(crate) const ECCGETSTATS: libc::Ioctl = libc::_IOR::<EccStats>(MTD, 18);
pub(crate) const MEMERASE64: libc::Ioctl = libc::_IOW::<EraseInfo64>(MTD, 20);
pub(crate) const MEMREADOOB64: libc::Ioctl = libc::_IOWR::<OobBuf64>(MTD, 22);
pub(crate) const MEMWRITE: libc::Ioctl = libc::_IOWR::<WriteReq>(MTD, 24);
pub(crate) const MEMREAD: libc::Ioctl = libc::_IOWR::<ReadReq>(MTD, 26);

/// Makes a request of this module. Returns what the call returns.
///
/// # Safety
/// `T` is the struct of the request, and what its fields point to is as long as they say and may be read, or written where
/// the request writes it.
pub(crate) unsafe fn call<T>(file: &File, request: libc::Ioctl, argument: &mut T) -> io::Result<i32> {
    loop {
        // SAFETY: the kernel touches the struct, which is one of its own layout, and what it points to.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), request, std::ptr::from_mut(argument)) };
        if result >= 0 {
            return Ok(result);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_the_requests_are_those_of_the_header() {
        let numbers = [
            MEMGETINFO,
            MEMGETBADBLOCK,
            MEMSETBADBLOCK,
            ECCGETLAYOUT,
            ECCGETSTATS,
            MEMERASE64,
            MEMREADOOB64,
            MEMWRITE,
            MEMREAD,
        ];
        let header = [
            0x8020_4D01,
            0x4008_4D0B,
            0x4008_4D0C,
            0x8148_4D11,
            0x8010_4D12,
            0x4010_4D14,
            0xC018_4D16,
            0xC030_4D18,
            0xC040_4D1A,
        ];
        assert_eq!(numbers, header);
    }
}
