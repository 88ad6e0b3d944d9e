/* A disk on a chip: formatted, written, cut off from power in the middle of a write, mounted again and compared.
 *
 *     cc -Ic/include c/examples/disk.c libmargay.a -o disk && ./disk
 */
#include "margay.h"
#include "ram_chip.h"
#include <stdio.h>

#define PAGES 200
#define PAGE_BYTES 1024

/* 1 MiB of NOR: 32 segments of 32 pages of 1 KiB. */
static const margay_geometry SHAPE = {.segments = 32, .pages_per_segment = 32, .page_bytes = PAGE_BYTES, .is_nor = true};

/* All that the disk ever needs, as margay_memory_bytes says for this shape on machines of 32 and 64 bits. */
static uint8_t memory[64 * 1024];

static void check(int32_t status, const char *what) {
    if (status == MARGAY_OK) return;
    fprintf(stderr, "%s: %s\n", what, margay_text(status));
    exit(1);
}

int main(void) {
    static const uint8_t uuid[16] = "margay example";
    static uint8_t versions[PAGES];
    uint8_t page[PAGE_BYTES];
    margay_disk *disk;
    ram_chip ram = ram_new(SHAPE);
    margay_chip chip = ram_functions(&ram);

    printf("the chip needs %llu bytes of memory\n", (unsigned long long)margay_memory_bytes(&SHAPE));
    check(margay_format(&disk, memory, sizeof memory, &chip, 800, uuid), "format");

    /* Every page, again and again, until the power fails. */
    ram.left = 3000;
    uint32_t torn = 0;
    for (unsigned round = 0;; round++) {
        torn = round * 7 % PAGES;
        uint8_t version = (uint8_t)(round / PAGES + 1);
        memset(page, version, sizeof page);
        int32_t status = margay_write(disk, torn, page, sizeof page);
        if (status == MARGAY_CHIP_ERRED && ram.left == 0) break;
        check(status, "write");
        versions[torn] = version;
    }

    /* The program that stopped half way is gone, and so is the memory that it used. */
    memset(memory, 0xAA, sizeof memory);
    ram.left = -1;
    check(margay_mount(&disk, memory, sizeof memory, &chip), "mount");
    for (uint32_t at = 0; at < PAGES; at++) {
        bool is_written;
        check(margay_read(disk, at, page, sizeof page, &is_written), "read");
        bool is_old = is_written == (versions[at] > 0) && page[0] == versions[at];
        bool is_new = at == torn && page[0] == versions[at] + 1;
        for (unsigned i = 1; i < sizeof page; i++) is_old &= page[i] == page[0], is_new &= page[i] == page[0];
        if (!is_old && !is_new) {
            fprintf(stderr, "page %u does not hold version %u\n", (unsigned)at, versions[at]);
            return 1;
        }
    }

    margay_stats stats;
    check(margay_get_stats(disk, &stats), "stats");
    printf("after the power cut: mounted with %u reads, every page is as it was written last\n", stats.mount_reads);
    check(margay_trim(disk, 0), "trim");
    check(margay_flush(disk), "flush");
    check(margay_stop(disk), "stop");
    free(ram.pages);
    return 0;
}
