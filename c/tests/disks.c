/* The library on chips of many shapes, each with exactly the memory that it asks for: overwritten, trimmed and cleaned
 * without any allocation, cut off from power again and again, stopped and mounted, and compared each time. Prints a row for
 * each chip. Then everything that a caller can do wrong. */
#include "../examples/ram_chip.h"
#include <stdio.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        int32_t status_ = (call);                                                                                      \
        if (status_ != MARGAY_OK) {                                                                                    \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, margay_text(status_));                       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static const uint8_t UUID[16] = "margay tests";

/* Marsaglia 2003, "Xorshift RNGs". */
static uint32_t state = 1;
static uint32_t below(uint32_t limit) {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state % limit;
}

typedef struct {
    ram_chip ram;
    margay_chip chip;
    margay_disk *disk;
    void *memory;
    size_t memory_len;
    uint32_t exported;
    uint8_t *versions, *page;
    uint64_t max_bytes, in_use_bytes;
    unsigned mount_reads;
} bench;

static void note(bench *b) {
    margay_stats stats;
    OK(margay_get_stats(b->disk, &stats));
    CHECK(stats.allocations == 0);
    CHECK(stats.memory_max_bytes <= b->memory_len);
    if (stats.memory_max_bytes > b->max_bytes) b->max_bytes = stats.memory_max_bytes;
    b->in_use_bytes = stats.memory_in_use_bytes;
    if (!stats.from_checkpoint && stats.mount_reads > b->mount_reads) b->mount_reads = stats.mount_reads;
}

static void fill(bench *b, uint32_t at, uint8_t version) {
    for (uint32_t i = 0; i < b->ram.shape.page_bytes; i++) b->page[i] = (uint8_t)(version * 31 + at + i % 7);
}

static int32_t write_page(bench *b, uint32_t at, uint8_t version) {
    fill(b, at, version);
    return margay_write(b->disk, at, b->page, b->ram.shape.page_bytes);
}

static bool holds(bench *b, uint32_t at, uint8_t version) {
    uint8_t *found = malloc(b->ram.shape.page_bytes);
    bool is_written;
    OK(margay_read(b->disk, at, found, b->ram.shape.page_bytes, &is_written));
    fill(b, at, version);
    bool is_it = is_written == (version > 0) && (!is_written || !memcmp(found, b->page, b->ram.shape.page_bytes));
    free(found);
    return is_it;
}

static void compare(bench *b) {
    for (uint32_t at = 0; at < b->exported; at++) CHECK(holds(b, at, b->versions[at]));
}

static void overwrite(bench *b, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = below(b->exported);
        if (below(8) == 0) {
            OK(margay_trim(b->disk, at));
            b->versions[at] = 0;
        } else {
            b->versions[at] = (uint8_t)(1 + below(255));
            OK(write_page(b, at, b->versions[at]));
        }
    }
    OK(margay_flush(b->disk));
    for (bool more = true; more;) OK(margay_idle(b->disk, 8, &more));
}

static void mount(bench *b) {
    memset(b->memory, 0xAA, b->memory_len);
    b->ram.left = -1;
    OK(margay_mount(&b->disk, b->memory, b->memory_len, &b->chip));
    note(b);
}

static void cut(bench *b) {
    uint32_t at;
    uint8_t version;
    b->ram.left = 1 + below(b->ram.shape.pages_per_segment * 4);
    for (;;) {
        at = below(b->exported);
        version = (uint8_t)(1 + below(255));
        int32_t status = write_page(b, at, version);
        if (b->ram.left == 0) break;
        OK(status);
        b->versions[at] = version;
    }
    mount(b);
    if (holds(b, at, version)) b->versions[at] = version;
    compare(b);
}

static void run(const char *name, margay_geometry shape, unsigned cuts) {
    bench b = {.ram = ram_new(shape)};
    b.chip = ram_functions(&b.ram);
    b.ram.bad_segment = 3;
    b.memory_len = (size_t)margay_memory_bytes(&shape);
    CHECK(b.memory_len > 0);
    b.memory = malloc(b.memory_len);
    uint32_t most = margay_max_pages(&shape), pages = shape.segments * shape.pages_per_segment;
    CHECK(most > 0 && most < pages);
    b.exported = pages / 5 * 4 < most ? pages / 5 * 4 : most - most / 16;
    b.versions = calloc(b.exported, 1);
    b.page = malloc(shape.page_bytes);
    OK(margay_format(&b.disk, b.memory, b.memory_len, &b.chip, b.exported, UUID));
    overwrite(&b, b.exported * 2);
    note(&b);
    compare(&b);
    note(&b);
    for (unsigned i = 0; i < cuts; i++) cut(&b);
    overwrite(&b, b.exported);
    note(&b);
    uint64_t in_use = b.in_use_bytes;
    OK(margay_stop(b.disk));
    mount(&b);
    margay_stats stats;
    OK(margay_get_stats(b.disk, &stats));
    CHECK(stats.from_checkpoint && stats.retired_segments >= 1);
    compare(&b);
    printf("| %s | %u | %llu | %llu | %llu | %u |\n", name, (unsigned)pages, (unsigned long long)in_use,
           (unsigned long long)b.max_bytes, (unsigned long long)b.memory_len, b.mount_reads);
    free(b.ram.pages), free(b.memory), free(b.versions), free(b.page);
}

/* Calls from a callback, and those of them that were refused, as all have to be. */
static unsigned reentered, refused;
static int32_t reentering_read(void *context, uint32_t page, uint32_t offset, uint8_t *bytes, uint32_t len, uint8_t *spare,
                               uint32_t spare_len) {
    bench *b = context;
    reentered++;
    refused += margay_flush(b->disk) == MARGAY_BUSY;
    return ram_read(&b->ram, page, offset, bytes, len, spare, spare_len);
}
static int32_t own_program(void *context, uint32_t page, uint32_t offset, const uint8_t *bytes, uint32_t len,
                           const uint8_t *spare, uint32_t spare_len) {
    return ram_program(&((bench *)context)->ram, page, offset, bytes, len, spare, spare_len);
}
static int32_t own_erase(void *context, uint32_t segment) { return ram_erase(&((bench *)context)->ram, segment); }

static void mistakes(void) {
    margay_geometry shape = {.segments = 16, .pages_per_segment = 16, .page_bytes = 512, .spare_bytes = 64};
    bench b = {.ram = ram_new(shape)};
    b.chip = (margay_chip){.context = &b, .geometry = shape, .read = reentering_read, .program = own_program, .erase = own_erase};
    b.memory_len = (size_t)margay_memory_bytes(&shape);
    b.memory = malloc(b.memory_len + 1);
    uint8_t page[512] = {1};
    margay_disk *disk;

    CHECK(margay_memory_bytes(NULL) == 0 && margay_max_pages(NULL) == 0);
    margay_geometry impossible = shape;
    impossible.spare_bytes = 8;
    CHECK(margay_memory_bytes(&impossible) == 0 && margay_max_pages(&impossible) == 0);
    CHECK(margay_mount(&disk, b.memory, b.memory_len, &b.chip) == MARGAY_NOT_FORMATTED && !disk);
    CHECK(margay_format(&disk, b.memory, b.memory_len - 1, &b.chip, 100, UUID) == MARGAY_TOO_LITTLE_MEMORY && !disk);
    CHECK(margay_format(&disk, b.memory, b.memory_len, &b.chip, 0, UUID) == MARGAY_TOO_MANY_PAGES);
    CHECK(margay_format(&disk, b.memory, b.memory_len, &b.chip, 256, UUID) == MARGAY_TOO_MANY_PAGES);
    CHECK(margay_format(&disk, NULL, b.memory_len, &b.chip, 100, UUID) == MARGAY_BAD_ARGUMENT);
    CHECK(margay_format(&disk, b.memory, b.memory_len, NULL, 100, UUID) == MARGAY_BAD_ARGUMENT);
    CHECK(margay_format(&disk, b.memory, b.memory_len, &b.chip, 100, NULL) == MARGAY_BAD_ARGUMENT);
    CHECK(margay_format(NULL, b.memory, b.memory_len, &b.chip, 100, UUID) == MARGAY_BAD_ARGUMENT);
    margay_chip incomplete = b.chip;
    incomplete.erase = NULL;
    CHECK(margay_format(&disk, b.memory, b.memory_len, &incomplete, 100, UUID) == MARGAY_BAD_ARGUMENT);

    /* Memory of any alignment will do. */
    OK(margay_format(&b.disk, (uint8_t *)b.memory + 1, b.memory_len, &b.chip, 100, UUID));
    CHECK(margay_write(b.disk, 100, page, sizeof page) == MARGAY_PAST_END);
    CHECK(margay_write(b.disk, 5, page, sizeof page - 1) == MARGAY_BAD_ARGUMENT);
    CHECK(margay_write(b.disk, 5, NULL, sizeof page) == MARGAY_BAD_ARGUMENT);
    CHECK(margay_read(b.disk, 5, NULL, sizeof page, NULL) == MARGAY_BAD_ARGUMENT);
    CHECK(margay_read(b.disk, 4000000000u, page, sizeof page, NULL) == MARGAY_PAST_END);
    CHECK(margay_trim(b.disk, 100) == MARGAY_PAST_END && margay_flush(NULL) == MARGAY_BAD_ARGUMENT);
    CHECK(margay_get_stats(b.disk, NULL) == MARGAY_BAD_ARGUMENT);
    OK(margay_write(b.disk, 5, page, sizeof page));
    reentered = refused = 0;
    OK(margay_read(b.disk, 5, page, sizeof page, NULL));
    CHECK(reentered > 0 && refused == reentered);
    OK(margay_stop(b.disk));
    /* What was refused changes nothing for what runs: a mount calls back many times, and allocates in between. */
    reentered = refused = 0;
    OK(margay_mount(&disk, b.memory, b.memory_len, &b.chip));
    CHECK(reentered > 1 && refused == reentered);
    OK(margay_stop(disk));

    /* Who formats what is not formatted must not do so after an error of the chip, or with a disk that others can use. */
    b.ram.left = 0;
    CHECK(margay_mount(&disk, b.memory, b.memory_len, &b.chip) == MARGAY_CHIP_ERRED && !disk);
    b.ram.left = -1;
    margay_chip smaller = b.chip;
    smaller.geometry.segments = 15;
    CHECK(margay_mount(&disk, b.memory, b.memory_len, &smaller) == MARGAY_OTHER_FORMAT && !disk);
    OK(margay_mount(&disk, b.memory, b.memory_len, &b.chip));
    OK(margay_stop(disk));
    for (int32_t status = -1; status < 20; status++) CHECK(margay_text(status)[0]);
    CHECK(strcmp(margay_text(MARGAY_STOPPED), margay_text(99)));
    free(b.ram.pages), free(b.memory);
}

int main(void) {
    puts("| chip | pages | in use | maximum until the stop | margay_memory_bytes | reads of a mount |\n|---|---|---|---|---|---|");
    mistakes();
    run("NOR 64 KiB, 4 KiB erased at a time, 512 bytes", (margay_geometry){16, 8, 512, 0, true}, 60);
    run("NOR 256 KiB, 16 KiB, 512 bytes", (margay_geometry){16, 32, 512, 0, true}, 60);
    run("NOR 1 MiB, 32 KiB, 1 KiB", (margay_geometry){32, 32, 1024, 0, true}, 60);
    run("NOR 4 MiB, 64 KiB, 4 KiB", (margay_geometry){64, 16, 4096, 0, true}, 30);
    run("NOR 16 MiB, 64 KiB, 2 KiB", (margay_geometry){256, 32, 2048, 0, true}, 4);
    run("NAND 512 KiB, 8 KiB, 512 bytes", (margay_geometry){64, 16, 512, 64, false}, 60);
    run("NAND 16 MiB, 128 KiB, 2 KiB", (margay_geometry){128, 64, 2048, 64, false}, 4);
    run("NAND 16 MiB, 128 KiB, 2 KiB, 128 bytes spare", (margay_geometry){128, 64, 2048, 128, false}, 4);
    run("NAND 128 MiB, 256 KiB, 4 KiB", (margay_geometry){512, 64, 4096, 128, false}, 1);
    /* Any shape has enough. */
    for (unsigned i = 0; i < 10; i++) {
        uint32_t pages_per_segment = 8u << below(4), page_bytes = 512u << below(3);
        margay_geometry shape = {12 + below(40), pages_per_segment + below(pages_per_segment), page_bytes, 0, i % 2};
        if (!shape.is_nor) shape.spare_bytes = 64 + 32 * below(5);
        char name[64];
        snprintf(name, sizeof name, "%s, any shape: %u of %u pages of %u + %u", shape.is_nor ? "NOR" : "NAND",
                 (unsigned)shape.segments, (unsigned)shape.pages_per_segment, (unsigned)page_bytes,
                 (unsigned)shape.spare_bytes);
        run(name, shape, 8);
    }
    return 0;
}
