/* A chip in memory, NAND or NOR, whose power can be cut in the middle of a program or an erase. For the example and the tests;
 * a driver of a real chip has the same functions. */
#ifndef RAM_CHIP_H
#define RAM_CHIP_H

#include "margay.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    margay_geometry shape;
    uint8_t *pages; /* each with its spare area behind it */
    long left;      /* programs and erases until the power fails in the middle of one; -1 for never */
    long programs, erases, reads;
    uint32_t bad_segment; /* marked by the maker; UINT32_MAX for none */
} ram_chip;

static size_t ram_stride(const ram_chip *chip) { return (size_t)chip->shape.page_bytes + chip->shape.spare_bytes; }

/* How many of len bytes are changed before the power fails. */
static size_t ram_powered(ram_chip *chip, size_t len) {
    if (chip->left < 0) return len;
    if (chip->left == 0) return 0;
    return --chip->left == 0 ? len / 2 : len;
}

static int32_t ram_status(const ram_chip *chip) { return chip->left == 0 ? MARGAY_CHIP_ERROR : MARGAY_CHIP_OK; }

static int32_t ram_read(void *context, uint32_t page, uint32_t offset, uint8_t *bytes, uint32_t len, uint8_t *spare,
                        uint32_t spare_len) {
    ram_chip *chip = context;
    const uint8_t *at = chip->pages + page * ram_stride(chip);
    chip->reads++;
    if (len) memcpy(bytes, at + offset, len);
    if (spare_len) memcpy(spare, at + chip->shape.page_bytes, spare_len);
    return ram_status(chip);
}

/* A program clears bits and sets none: a page that was not erased would not read as written. */
static int32_t ram_program(void *context, uint32_t page, uint32_t offset, const uint8_t *bytes, uint32_t len,
                           const uint8_t *spare, uint32_t spare_len) {
    ram_chip *chip = context;
    uint8_t *at = chip->pages + page * ram_stride(chip);
    size_t done = ram_powered(chip, (size_t)len + spare_len);
    chip->programs++;
    for (size_t i = 0; i < done && i < len; i++) at[offset + i] &= bytes[i];
    for (size_t i = len; i < done; i++) at[chip->shape.page_bytes + i - len] &= spare[i - len];
    return ram_status(chip);
}

static int32_t ram_erase(void *context, uint32_t segment) {
    ram_chip *chip = context;
    size_t len = ram_stride(chip) * chip->shape.pages_per_segment;
    chip->erases++;
    memset(chip->pages + segment * len, 0xFF, ram_powered(chip, len));
    return ram_status(chip);
}

static bool ram_is_bad(void *context, uint32_t segment) { return ((ram_chip *)context)->bad_segment == segment; }

/* A new chip holds anything. */
static ram_chip ram_new(margay_geometry shape) {
    ram_chip chip = {.shape = shape, .left = -1, .bad_segment = UINT32_MAX};
    size_t len = ram_stride(&chip) * shape.pages_per_segment * shape.segments;
    chip.pages = malloc(len);
    if (!chip.pages) abort();
    memset(chip.pages, 0x5A, len);
    return chip;
}

static margay_chip ram_functions(ram_chip *chip) {
    return (margay_chip){.context = chip,
                         .geometry = chip->shape,
                         .read = ram_read,
                         .program = ram_program,
                         .erase = ram_erase,
                         .is_bad = ram_is_bad};
}

#endif
