/*
 * Preloaded into margay: logs what is written to one file and when it is synced, and makes calls fail.
 *
 * ATTACK_FILE  the file. Calls on any other file pass untouched.
 * ATTACK_LOG   where the log goes; none without it. Records, numbers in the machine's order:
 *              'W' offset:u64 length:u64 bytes   bytes that may be on the disk from now on
 *              'B'                               a sync begins; others may write until it ends
 *              'S'                               a sync that returned 0
 *              'D'                               a sync that failed and dropped what it was to write
 * ATTACK_FAIL  "KIND FIRST COUNT ERRNO EFFECT": of the calls of KIND (write or sync), numbered from 0, COUNT fail from
 *              FIRST on. EFFECT of a write: none, half, all of it is done all the same. Of a sync: none, or drop.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int is_ready, log_fd = -1;
static struct stat target;
static char kind[16] = "", effect[16] = "";
static unsigned long long first, count, calls[2];
static int number;

static void prepare(void) {
    is_ready = 1;
    const char *file = getenv("ATTACK_FILE"), *log = getenv("ATTACK_LOG"), *fail = getenv("ATTACK_FAIL");
    if (!file || stat(file, &target))
        target.st_ino = 0;
    if (log)
        log_fd = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fail && sscanf(fail, "%15s %llu %llu %d %15s", kind, &first, &count, &number, effect) != 5)
        kind[0] = 0;
}

/* Whether a descriptor is of the file; takes the lock if so. */
static int is_target(int fd) {
    struct stat now;
    pthread_mutex_lock(&lock);
    if (!is_ready)
        prepare();
    if (target.st_ino && !fstat(fd, &now) && now.st_ino == target.st_ino && now.st_dev == target.st_dev)
        return 1;
    pthread_mutex_unlock(&lock);
    return 0;
}

static void put(const void *bytes, size_t len) {
    const char *at = bytes;
    while (log_fd >= 0 && len > 0) {
        long done = syscall(SYS_write, log_fd, at, len);
        if (done <= 0)
            _exit(99);
        at += done;
        len -= (size_t)done;
    }
}

static void log_write(const void *bytes, size_t len, off_t offset) {
    char head[17] = "W";
    uint64_t numbers[2] = {(uint64_t)offset, len};
    memcpy(head + 1, numbers, sizeof numbers);
    put(head, sizeof head);
    put(bytes, len);
}

/* Counts a call. Whether it is to fail. */
static int fails(int which, const char *name) {
    unsigned long long now = calls[which]++;
    return !strcmp(kind, name) && now >= first && now - first < count;
}

static ssize_t attacked_write(int fd, const void *bytes, size_t len, off_t offset) {
    int failing = fails(0, "write");
    size_t wanted = len;
    if (failing)
        wanted = !strcmp(effect, "all") ? len : !strcmp(effect, "half") ? len / 2 : 0;
    /* First, so that what a kill leaves is always in the log. */
    if (wanted)
        log_write(bytes, wanted, offset);
    ssize_t done = wanted ? syscall(SYS_pwrite64, fd, bytes, wanted, offset) : 0;
    pthread_mutex_unlock(&lock);
    if (failing) {
        errno = number;
        return -1;
    }
    return done;
}

/* One sync at a time, as margay does; what is written meanwhile is not covered by it. */
static int attacked_sync(int fd, long call) {
    int result = -1, failing = fails(1, "sync");
    put("B", 1);
    pthread_mutex_unlock(&lock);
    if (!failing)
        result = (int)syscall(call, fd);
    pthread_mutex_lock(&lock);
    if (!result)
        put("S", 1);
    else if (failing && !strcmp(effect, "drop"))
        put("D", 1);
    pthread_mutex_unlock(&lock);
    if (failing)
        errno = number;
    return result;
}

ssize_t pwrite(int fd, const void *bytes, size_t len, off_t offset) {
    return is_target(fd) ? attacked_write(fd, bytes, len, offset) : syscall(SYS_pwrite64, fd, bytes, len, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t len, off_t offset) {
    return pwrite(fd, bytes, len, offset);
}

ssize_t pwritev(int fd, const struct iovec *parts, int parts_count, off_t offset) {
    static ssize_t (*real)(int, const struct iovec *, int, off_t);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pwritev");
    if (!is_target(fd))
        return real(fd, parts, parts_count, offset);
    pthread_mutex_unlock(&lock);
    /* A short write is allowed: the caller goes on behind it. */
    return pwrite(fd, parts[0].iov_base, parts[0].iov_len, offset);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int parts_count, off_t offset) {
    return pwritev(fd, parts, parts_count, offset);
}

int fdatasync(int fd) {
    return is_target(fd) ? attacked_sync(fd, SYS_fdatasync) : (int)syscall(SYS_fdatasync, fd);
}

int fsync(int fd) {
    return is_target(fd) ? attacked_sync(fd, SYS_fsync) : (int)syscall(SYS_fsync, fd);
}

/* Holes and zeros are bytes that are written. Space that is only reserved changes no byte. */
int fallocate(int fd, int mode, off_t offset, off_t len) {
    static char zeros[65536];
    if (!is_target(fd))
        return (int)syscall(SYS_fallocate, fd, mode, offset, len);
    int failing = fails(0, "write"), result = -1;
    int zeroes = mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE);
    if (!failing || strcmp(effect, "none")) {
        off_t wanted = failing && !strcmp(effect, "half") ? len / 2 : len;
        for (off_t at = 0; zeroes && at < wanted; at += (off_t)sizeof zeros) {
            size_t part = wanted - at < (off_t)sizeof zeros ? (size_t)(wanted - at) : sizeof zeros;
            log_write(zeros, part, offset + at);
        }
        result = (int)syscall(SYS_fallocate, fd, mode, offset, wanted);
    }
    pthread_mutex_unlock(&lock);
    if (failing) {
        errno = number;
        return -1;
    }
    return result;
}

int fallocate64(int fd, int mode, off_t offset, off_t len) {
    return fallocate(fd, mode, offset, len);
}
