//! Holes as the kernel asks for them: `lseek` with `SEEK_DATA` and `SEEK_HOLE`, `fallocate` that punches or zeroes.

use crate::FileSystem;
use crate::fuse::errno;
use fuser::Errno;

/// Where the next data or the next hole is.
pub(crate) fn seek(fs: &FileSystem, object: u32, offset: i64, whence: i32) -> Result<i64, Errno> {
    let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
    let found = match whence {
        libc::SEEK_DATA => fs.seek_data(object, offset),
        libc::SEEK_HOLE => fs.seek_hole(object, offset),
        _ => return Err(Errno::EINVAL),
    };
    // The kernel expects ENXIO at the end of the file.
    let at = found.map_err(|error| errno(&error))?.ok_or(Errno::ENXIO)?;
    i64::try_from(at).map_err(|_| Errno::EOVERFLOW)
}

/// Punches a hole, or makes a range zeros. Room cannot be reserved: nothing on flash would say so.
pub(crate) fn allocate(fs: &mut FileSystem, object: u32, offset: u64, len: u64, mode: i32) -> Result<(), Errno> {
    let end = offset.checked_add(len).ok_or(Errno::EFBIG)?;
    let keeps_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
    match mode & !libc::FALLOC_FL_KEEP_SIZE {
        libc::FALLOC_FL_PUNCH_HOLE if keeps_size => {}
        libc::FALLOC_FL_ZERO_RANGE => {}
        // Anything else reserves or moves. With ENOSYS the kernel would never ask again.
        _ => return Err(Errno::EOPNOTSUPP),
    }
    let size = fs.attributes(object).map_err(|error| errno(&error))?.size;
    if end > fs.max_file_bytes() && !keeps_size {
        return Err(Errno::EFBIG);
    }
    fs.punch_hole(object, offset, len).map_err(|error| errno(&error))?;
    if end > size && !keeps_size {
        fs.truncate(object, end).map_err(|error| errno(&error))?;
    }
    Ok(())
}
