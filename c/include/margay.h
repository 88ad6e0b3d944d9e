/* margay: a disk on raw flash, with fixed memory. Made by cbindgen from c/src: scripts/c-library.sh header.
 *
 * Link libmargay.a; with it the program needs memcpy, memmove, memset, memcmp and abort, which every C library has.
 * The functions are for one thread: a call while another one runs is MARGAY_BUSY. docs/microcontrollers.md has the
 * promises, the memory for usual chips, and a program. */

#ifndef MARGAY_H
#define MARGAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What the functions return. `margay_text` has a sentence for each.
typedef enum margay_status {
  // It was done.
  MARGAY_OK = 0,
  // A pointer is null, a length is not that of a page, or the chip has a shape that cannot be.
  MARGAY_BAD_ARGUMENT = 1,
  // The memory is smaller than `margay_memory_bytes` says.
  MARGAY_TOO_LITTLE_MEMORY = 2,
  // Another function of the library is running.
  MARGAY_BUSY = 3,
  // There is no disk on the chip.
  MARGAY_NOT_FORMATTED = 4,
  // The chip holds something of margay that is not a disk.
  MARGAY_NOT_A_DISK = 5,
  // The chip cannot export so many pages: `margay_max_pages` says how many.
  MARGAY_TOO_MANY_PAGES = 6,
  // The page is past the end of the disk.
  MARGAY_PAST_END = 7,
  // The page was written, and cannot be read any more.
  MARGAY_UNREADABLE = 8,
  // A function of the chip returned an error. What was asked for may be done or not.
  MARGAY_CHIP_ERRED = 9,
  // Too many segments have failed: the disk can only be read.
  MARGAY_WORN_OUT = 10,
  // There is no room to write, although the disk is not worn out: the last writes met too many errors of the chip.
  MARGAY_NO_ROOM = 11,
  // Writing has stopped after errors of the chip: mount again.
  MARGAY_STOPPED = 12,
  // The disk on the chip has another shape, or a later version of the library formatted it: this one cannot use it, or can
  // only read it.
  MARGAY_OTHER_FORMAT = 13,
} margay_status;

// What the functions of a chip return. Any other value is an error that may be gone the next time.
typedef enum margay_chip_status {
  // It was done.
  MARGAY_CHIP_OK = 0,
  // A page was read after the ECC corrected so many bits of it that it should be written again soon.
  MARGAY_CHIP_CORRECTED = 1,
  // A page has more bit errors than the ECC corrects.
  MARGAY_CHIP_UNCORRECTABLE = 2,
  // The chip says that this program or erase failed: the segment is used no more.
  MARGAY_CHIP_FAILED = 3,
  // The function could not do it this time: the bus, a time-out, no power.
  MARGAY_CHIP_ERROR = 4,
} margay_chip_status;

// A disk. It lies at the start of the memory that was handed over for it.
typedef struct margay_disk margay_disk;

// The shape of a chip.
typedef struct margay_geometry {
  // Units that are erased as a whole ("blocks" of NAND, "sectors" of NOR, or several of them together).
  uint32_t segments;
  // Pages in a segment.
  uint32_t pages_per_segment;
  // Bytes of a page, 512 to 65536.
  uint32_t page_bytes;
  // NAND: bytes of the spare area of a page that are free for use, without ECC and the mark of bad segments; 64 and more.
  uint32_t spare_bytes;
  // NOR: any bytes of a page can be programmed by themselves, and there is no spare area.
  bool is_nor;
} margay_geometry;

// A chip: its shape, and functions that are called with `context`. They return one of `margay_chip_status`.
typedef struct margay_chip {
  // Given to each function.
  void *context;
  // The shape.
  struct margay_geometry geometry;
  // Reads `len` bytes of a page from `offset` on, and the first `spare_len` bytes of its spare area. On NAND `offset` is 0 and
  // `len` is a page or 0; on NOR `spare_len` is 0.
  int32_t (*read)(void *context,
                  uint32_t page,
                  uint32_t offset,
                  uint8_t *bytes,
                  uint32_t len,
                  uint8_t *spare,
                  uint32_t spare_len);
  // Programs them; what is left of the spare area stays erased. Pages of a segment come in ascending order, each once
  // between two erases. On NOR parts of a page come in any order, each byte once, in multiples of 16 bytes.
  int32_t (*program)(void *context,
                     uint32_t page,
                     uint32_t offset,
                     const uint8_t *bytes,
                     uint32_t len,
                     const uint8_t *spare,
                     uint32_t spare_len);
  // Erases a segment.
  int32_t (*erase)(void *context, uint32_t segment);
  // Whether a segment is marked bad, by the maker or by `mark_bad`: nothing is read from it. A segment of which a program has
  // failed must not be marked by anybody else: what is on it is read until it has been copied. May be null.
  bool (*is_bad)(void *context, uint32_t segment);
  // Marks a segment bad, at a clean stop, after it has failed. May be null.
  int32_t (*mark_bad)(void *context, uint32_t segment);
} margay_chip;

// What a disk is and has done since it was formatted or mounted.
typedef struct margay_stats {
  // Pages of the disk.
  uint32_t exported_pages;
  // Bytes of a page.
  uint32_t page_bytes;
  // Pages that were written.
  uint64_t host_writes;
  // Pages that cleaning copied.
  uint64_t copies;
  // Pages of the disk's own.
  uint64_t metadata_pages;
  // Segments that were erased.
  uint64_t erases;
  // Segments that are used no more.
  uint32_t retired_segments;
  // Reads of the chip that the mount took.
  uint32_t mount_reads;
  // Whether the mount found a checkpoint of a clean stop, and so did not look into every segment.
  bool from_checkpoint;
  // Times that anything was allocated since the disk was formatted or mounted: 0 until it is stopped.
  uint32_t allocations;
  // Bytes of the memory in use.
  uint64_t memory_in_use_bytes;
  // Maximum of bytes of the memory that were ever needed, counted from its start.
  uint64_t memory_max_bytes;
} margay_stats;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// A sentence that says what a status means, which lasts for ever. Never null.
const char *margay_text(int32_t status);

// Bytes of memory that a disk on a chip of this shape needs, however many pages it exports; 0 if no disk can be on it.
// # Safety
// `geometry` is null or points to a geometry.
uint64_t margay_memory_bytes(const struct margay_geometry *geometry);

// Maximum of pages that a disk on a chip of this shape can export; 0 if no disk can be on it. The fewer pages a disk exports,
// the less it copies: four fifths of the pages of the chip are a good choice.
// # Safety
// `geometry` is null or points to a geometry.
uint32_t margay_max_pages(const struct margay_geometry *geometry);

// Formats a chip as a disk of `exported_pages` pages: all that is on it is lost. `*disk` points into the memory, which is the
// disk's until it is stopped, and null after an error. `uuid`: 16 bytes that tell this disk from others.
// # Safety
// The pointers are null or point to what they say; the memory has `memory_len` bytes, of any alignment, and is used by
// nobody else until the disk is stopped or given up; the functions of the chip can be called until then.
int32_t margay_format(struct margay_disk **disk,
                      void *memory,
                      size_t memory_len,
                      const struct margay_chip *chip,
                      uint32_t exported_pages,
                      const uint8_t *uuid);

// Mounts a chip that was formatted before, here or on a host: after a clean stop from its checkpoint, after a power cut by
// looking into every segment. The rest is as with `margay_format`.
// # Safety
// As `margay_format`.
int32_t margay_mount(struct margay_disk **disk,
                     void *memory,
                     size_t memory_len,
                     const struct margay_chip *chip);

// Reads a page into `bytes`; `len` is that of a page. `*is_written`, unless it is null, says whether the page was written
// and not trimmed since; one that was not reads as zeros.
// # Safety
// `disk` is null or points to a disk that was not stopped; the other pointers are null or point to what they say.
int32_t margay_read(struct margay_disk *disk,
                    uint32_t page,
                    uint8_t *bytes,
                    size_t len,
                    bool *is_written);

// Writes a page; `len` is that of a page. It survives a power cut as soon as this has returned.
// # Safety
// As `margay_read`.
int32_t margay_write(struct margay_disk *disk, uint32_t page, const uint8_t *bytes, size_t len);

// Forgets a page, so that cleaning need not copy it. It survives a power cut from the next flush on.
// # Safety
// `disk` is null or points to a disk that was not stopped.
int32_t margay_trim(struct margay_disk *disk, uint32_t page);

// Returns when all that was written and trimmed survives a power cut.
// # Safety
// As `margay_trim`.
int32_t margay_flush(struct margay_disk *disk);

// Cleans ahead, programming about `budget_pages` pages. `*more`, unless it is null, says whether there is more to do.
// # Safety
// As `margay_read`.
int32_t margay_idle(struct margay_disk *disk,
                    uint32_t budget_pages,
                    bool *more);

// Stops a disk, with a checkpoint if there is room for one, so that the next mount is quick. The memory is the caller's again,
// after an error, too. A disk that is not stopped may be given up at any time, as by a power cut.
// # Safety
// As `margay_trim`; the disk must not be used any more.
int32_t margay_stop(struct margay_disk *disk);

// What a disk is and has done.
// # Safety
// As `margay_read`.
int32_t margay_get_stats(struct margay_disk *disk, struct margay_stats *stats);

extern void abort(void);

// `core` and `alloc` were compiled to unwind and name it on hosts; nothing here unwinds.
void rust_eh_personality(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* MARGAY_H */
