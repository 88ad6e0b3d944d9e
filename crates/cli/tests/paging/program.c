/* What programs do with memory, to be run with a heap of a few MiB in 1 MiB of RAM. The argument says what; prints "right". */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGES = 2048, PAGE = 4096 };

static unsigned *memory;

static void fail(const char *what, long at) {
    fprintf(stderr, "wrong: %s at %ld, process %d\n", what, at, getpid());
    _exit(9);
}

static void fill(unsigned mark) {
    for (long page = 0; page < PAGES; page++) {
        for (long word = 0; word < PAGE / 4; word += 64)
            memory[page * PAGE / 4 + word] = mark + page * 31 + word;
    }
}

static void check(unsigned mark, const char *what) {
    for (long page = 0; page < PAGES; page++) {
        for (long word = 0; word < PAGE / 4; word += 64)
            if (memory[page * PAGE / 4 + word] != mark + page * 31 + word)
                fail(what, page);
    }
}

static void wait_for(pid_t child) {
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        fail("the end of a child", status);
}

/* Both sides change everything, at the same time, and see only their own. */
static void both_change(void) {
    fill(1);
    pid_t child = fork();
    if (child == 0) {
        check(1, "what the child inherits");
        fill(1000003);
        check(1000003, "what the child wrote");
        exit(0);
    }
    fill(2000003);
    check(2000003, "what the parent wrote");
    wait_for(child);
    check(2000003, "what the parent has after the child");
}

/* The parent changes everything before the child looks at anything. */
static void the_parent_first(void) {
    int go[2];
    char byte;
    fill(1);
    if (pipe(go) != 0)
        fail("pipe", 0);
    pid_t children[3];
    for (int n = 0; n < 3; n++) {
        fill(n);
        children[n] = fork();
        if (children[n] == 0) {
            if (read(go[0], &byte, 1) != 1)
                fail("read", 0);
            check(n, "what the child inherits late");
            pid_t grandchild = fork();
            if (grandchild == 0) {
                check(n, "what the grandchild inherits");
                fill(7);
                check(7, "what the grandchild wrote");
                exit(0);
            }
            fill(8);
            check(8, "what the child wrote");
            wait_for(grandchild);
            exit(0);
        }
    }
    fill(9);
    check(9, "what the parent wrote");
    if (write(go[1], "123", 3) != 3)
        fail("write", 0);
    for (int n = 0; n < 3; n++)
        wait_for(children[n]);
    check(9, "what the parent has after the children");
}

/* The parent ends at once, and the child goes on: a daemon. */
static void the_parent_ends(void) {
    int done[2];
    char byte = 0;
    fill(5);
    if (pipe(done) != 0)
        fail("pipe", 0);
    if (fork() == 0) {
        if (fork() != 0)
            _exit(0);
        usleep(20000);
        check(5, "what the daemon inherits");
        fill(6);
        check(6, "what the daemon wrote");
        if (write(done[1], "1", 1) != 1)
            fail("write", 0);
        exit(0);
    }
    close(done[1]);
    int status;
    wait(&status);
    if (read(done[0], &byte, 1) != 1 || byte != '1')
        fail("the daemon", byte);
}

static void *allocate(void *stop) {
    while (!*(volatile int *)stop) {
        char *some = malloc(20000);
        memset(some, 1, 20000);
        free(some);
    }
    return NULL;
}

/* Threads allocate, signals arrive, and files are open while the process forks, forty times. */
static void busy(void) {
    volatile int stop = 0;
    pthread_t threads[2];
    FILE *files[40];
    fill(3);
    for (int n = 0; n < 2; n++)
        pthread_create(&threads[n], NULL, allocate, (void *)&stop);
    for (int n = 0; n < 40; n++)
        files[n] = fopen("/dev/null", "w");
    for (int n = 0; n < 40; n++) {
        pid_t child = fork();
        if (child == 0) {
            if (n % 4 == 0)
                check(3, "what the child of a busy process inherits");
            fprintf(files[n], "%d", n);
            free(malloc(100000));
            if (n % 2)
                execlp("true", "true", (char *)NULL);
            exit(0);
        }
        wait_for(child);
    }
    stop = 1;
    for (int n = 0; n < 2; n++)
        pthread_join(threads[n], NULL);
    check(3, "what the busy process has");
}

/* Descriptors that it does not know are closed, as daemons do. */
static void closes_all(void) {
    fill(4);
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    close_range(3, ~0U, 0);
    closefrom(3);
    dup2(1, 3);
    check(4, "what stays when all descriptors are closed");
}

/* Mappings grow, move, shrink, are given up, protected, locked, and replaced. */
static void mappings(void) {
    const long bytes = PAGES * (long)PAGE;
    free(memory);
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fill(1);
    check(1, "a mapping");
    char *other = mmap(NULL, bytes / 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(other, 3, bytes / 2);
    other = mremap(other, bytes / 2, bytes, MREMAP_MAYMOVE);
    for (long at = 0; at < bytes; at += 512)
        if (other[at] != (at < bytes / 2 ? 3 : 0))
            fail("a mapping that was moved", at);
    if (mremap(other, bytes, bytes / 4, 0) != other || other[bytes / 4 - 1] != 3)
        fail("a mapping that was made smaller", 0);
    if (madvise(other, PAGE * 3, MADV_DONTNEED) != 0 || other[0] != 0 || other[2 * PAGE] != 0 || other[3 * PAGE] != 3)
        fail("what is not needed", 0);
    if (mprotect(other + 8 * PAGE, 4 * PAGE, PROT_READ) != 0 || other[9 * PAGE] != 3)
        fail("what is protected", 0);
    if (mlock(other + 16 * PAGE, PAGE) == 0 && other[16 * PAGE] != 3)
        fail("what is locked", 0);
    char *over = mmap(other + 20 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (over != other + 20 * PAGE || over[0] != 0 || other[19 * PAGE] != 3)
        fail("what is replaced", 0);
    check(1, "the other mapping");
    pid_t child = fork();
    if (child == 0) {
        check(1, "a mapping in a child");
        if (other[9 * PAGE] != 3 || other[16 * PAGE] != 3 || over[0] != 0)
            fail("a part that is the kernel's, in a child", 0);
        exit(0);
    }
    wait_for(child);
    if (munmap(other, bytes / 4) != 0 || munmap((char *)memory + PAGE, 2 * PAGE) != 0)
        fail("munmap", 0);
    for (int n = 0; n < 50; n++) {
        char *again = mmap(NULL, bytes / 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (long at = 0; at < bytes / 4; at += PAGE) {
            if (again[at] != 0)
                fail("a new mapping", at);
            again[at] = 1;
        }
        munmap(again, bytes / 4);
    }
    void *aligned[50];
    for (int n = 0; n < 50; n++) {
        if (posix_memalign(&aligned[n], 1 << (4 + n % 14), 1000 + n) != 0)
            fail("posix_memalign", n);
        memset(aligned[n], n, 1000);
        aligned[n] = realloc(aligned[n], 3000);
        if (((char *)aligned[n])[999] != n)
            fail("realloc", n);
    }
    for (int n = 0; n < 50; n++)
        free(aligned[n]);
}

int main(int count, char **arguments) {
    const char *what = count > 1 ? arguments[1] : "";
    memory = malloc(PAGES * (long)PAGE);
    alarm(100);
    if (!strcmp(what, "both-change"))
        both_change();
    else if (!strcmp(what, "the-parent-first"))
        the_parent_first();
    else if (!strcmp(what, "the-parent-ends"))
        the_parent_ends();
    else if (!strcmp(what, "busy"))
        busy();
    else if (!strcmp(what, "closes-all"))
        closes_all();
    else if (!strcmp(what, "mappings"))
        mappings();
    else
        return 2;
    puts("right");
    return 0;
}
