/* The wall clock of a server under test, set from outside (see clock.rs).
 *
 * Preloaded into the server. The file named by SLUICE_CLOCK is mapped and read with atomics on every
 * call, so the test process moves the clock without a system call or a message to the server.
 * Real values come from the raw system call: asking libc would call this file again.
 * CLOCK_MONOTONIC never stops, only its offset is set: the event loop lives on it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Same layout as `Page` in clock.rs. */
struct page {
    int64_t frozen; /* 0: real + offset_us, 1: frozen_us */
    int64_t offset_us;
    int64_t frozen_us;
    int64_t mono_offset_us;
};

static const struct page *page; /* NULL until the constructor ran: real time */

#define READ(field) __atomic_load_n(&page->field, __ATOMIC_SEQ_CST)

__attribute__((constructor)) static void map_page(void) {
    const char *path = getenv("SLUICE_CLOCK");
    if (!path) return;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    void *at = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(struct page), PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        perror(path);
        _exit(97); /* a test on the wrong clock is worse than none */
    }
    close(fd);
    page = at;
}

static int shifted(struct timespec *ts, int64_t by_us) {
    int64_t ns = ts->tv_nsec + by_us % 1000000 * 1000;
    ts->tv_sec += by_us / 1000000;
    if (ns < 0) { ns += 1000000000; ts->tv_sec--; }
    if (ns >= 1000000000) { ns -= 1000000000; ts->tv_sec++; }
    ts->tv_nsec = ns;
    return 0;
}

int clock_gettime(clockid_t id, struct timespec *ts) {
    int wall = id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE;
    int mono = id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_COARSE || id == CLOCK_MONOTONIC_RAW;
    if (page && wall && READ(frozen)) {
        *ts = (struct timespec){0, 0};
        return shifted(ts, READ(frozen_us));
    }
    /* A coarse clock may lag the fine one by a tick: both read the fine one here. */
    if (wall) id = CLOCK_REALTIME;
    int rc = syscall(SYS_clock_gettime, id, ts);
    if (rc || !page) return rc;
    if (wall) return shifted(ts, READ(offset_us));
    if (mono) return shifted(ts, READ(mono_offset_us));
    return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
    struct timespec ts;
    (void)tz;
    int rc = clock_gettime(CLOCK_REALTIME, &ts);
    if (rc == 0) *tv = (struct timeval){ts.tv_sec, ts.tv_nsec / 1000};
    return rc;
}

time_t time(time_t *out) {
    struct timespec ts;
    if (clock_gettime(CLOCK_REALTIME, &ts)) return -1;
    if (out) *out = ts.tv_sec;
    return ts.tv_sec;
}

/* A server that trusts the processor's time stamp counter reads time without libc: Valkey 9.1 then
 * even extrapolates its wall clock. It looks for constant_tsc in cpuinfo; finding nothing there, it
 * falls back to the calls above. */
static FILE *open_file(const char *name, const char *path, const char *mode) {
    FILE *(*real)(const char *, const char *);
    *(void **)&real = dlsym(RTLD_NEXT, name);
    return real(page && strcmp(path, "/proc/cpuinfo") == 0 ? "/dev/null" : path, mode);
}

FILE *fopen(const char *path, const char *mode) { return open_file("fopen", path, mode); }
FILE *fopen64(const char *path, const char *mode) { return open_file("fopen64", path, mode); }
