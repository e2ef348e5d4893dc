/*
 * Asks the kernel what memory is code. Only walks that meet an address in no known object
 * ask, also in handlers; so this file uses neither stdio nor a cancellation point.
 *
 * Kernels since 6.11 answer for one address (PROCMAP_QUERY). On others the whole list
 * must be read, which takes longer the more mappings there are; it is cached, and
 * read again only after 50 times the CPU time that reading took.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

/* Run-time compilers have a few dozen executable regions; those beyond 256 count as no code. REST keeps
 * reading the list below 2 % of the time. */
enum { MAX_KEPT = 256, REST = 50 };

static bool all_executable; /* READ_IMPLIES_EXEC: all readable memory is executable */

/* Signals are blocked while a file is open and while the list is renewed, since a handler
   might not return. */
static void block(uint64_t *before)
{
    uint64_t all = ~(uint64_t)0;
    syscall(SYS_rt_sigprocmask, 0L /* SIG_BLOCK */, &all, before, 8L);
}

static void unblock(const uint64_t *before) { syscall(SYS_rt_sigprocmask, 2L /* SIG_SETMASK */, before, NULL, 8L); }

/* open(2) of the C library is a cancellation point; the system call is none. */
static int open_maps(void) { return (int)syscall(SYS_open, "/proc/self/maps", (long)(O_RDONLY | O_CLOEXEC), 0L); }

/* nameless reports, from a mapping's name, whether no file that could be an object's
   exists, or exists any longer. */
static bool nameless(const char *name, size_t len)
{
    static const char deleted[] = " (deleted)";
    size_t n = sizeof deleted - 1;
    return len >= n && memcmp(name + len - n, deleted, n) == 0; /* memfds too */
}

/* special reports whether a mapping without a file is one that the kernel made. */
static bool special(const char *name, size_t len)
{
    return len > 0 && name[0] == '[' && !(len > 5 && memcmp(name, "[anon", 5) == 0);
}

/* ----------------------------------------------------------------------- the whole list */

/* number reads a number and leaves *p behind it. Capital digits do not occur in /proc. */
static uint64_t number(const char **p, unsigned base)
{
    uint64_t n = 0;
    for (;; ++*p) {
        unsigned c = (unsigned char)**p, digit = c - '0';
        if (digit > 9)
            digit = c >= 'a' && c <= 'f' ? c - 'a' + 10 : base;
        if (digit >= base)
            return n;
        n = n * base + digit;
    }
}

/* parse reads a line, whose name is shortened to its two ends; it returns false if the
   mapping is not executable. */
static bool parse(const char *line, size_t len, struct ehu_mapping *m)
{
    const char *p = line, *end = line + len;
    memset(m, 0, sizeof *m);
    m->low = number(&p, 16);
    p++;
    m->high = number(&p, 16);
    if (p[0] != ' ' || p[3] != 'x')
        return false;
    p += 6;
    uint64_t offset = number(&p, 16);
    p++;
    uint64_t major = number(&p, 16);
    p++;
    m->dev = makedev(major, number(&p, 16));
    p++;
    m->ino = number(&p, 10);
    m->origin = m->low - offset;
    while (p < end && *p == ' ')
        p++;
    m->file = m->ino != 0 && !nameless(p, (size_t)(end - p));
    return m->ino != 0 || !special(p, (size_t)(end - p));
}

/*
 * ehu_map_lines_ calls take with each line of the list until it returns true; of a long one the middle of the
 * name is left out. It returns false if the list cannot be read.
 */
bool ehu_map_lines_(bool (*take)(const char *line, size_t len, void *arg), void *arg)
{
    enum { HEAD = 100, TAIL = 16 }; /* the fields before the name are at most 73 characters and 20 digits */
    char buffer[1024], line[HEAD + TAIL + 1];
    size_t len = 0;
    bool done = false;
    long n = -1;
    int fd = open_maps();
    if (fd < 0)
        return false;
    while (!done && (n = syscall(SYS_read, (long)fd, buffer, sizeof buffer)) > 0) {
        for (long i = 0; i < n && !done; i++) {
            if (buffer[i] != '\n') {
                if (len == HEAD + TAIL) {
                    memmove(line + HEAD, line + HEAD + 1, TAIL - 1);
                    len--;
                }
                line[len++] = buffer[i];
                continue;
            }
            line[len] = 0;
            done = take(line, len, arg);
            len = 0;
        }
    }
    syscall(SYS_close, (long)fd);
    return n >= 0;
}

struct taker {
    bool (*take)(const struct ehu_mapping *m, void *arg);
    void *arg;
};

static bool take_line(const char *line, size_t len, void *arg)
{
    const struct taker *t = arg;
    struct ehu_mapping m;
    return parse(line, len, &m) && t->take(&m, t->arg);
}

/* ehu_mappings_ calls take with each executable mapping until it returns true. It returns false if the list cannot be read. */
bool ehu_mappings_(bool (*take)(const struct ehu_mapping *m, void *arg), void *arg)
{
    struct taker t = {take, arg};
    ehu_count_(COUNT_LOOKS);
    return ehu_map_lines_(take_line, &t);
}

/* ---------------------------------------------------------------- what is kept of it */

/*
 * Two copies in turn: one is read while the other is written. begun and current count
 * the writes; a reader discards a copy whose overwriting has begun.
 */
static struct {
    _Atomic uint64_t n;
    struct kept_mapping {
        _Atomic uint64_t low, high, dev, ino, origin; /* ino is 0 if file is false */
    } of[MAX_KEPT];
} kept[2];
static void put(_Atomic uint64_t *to, uint64_t value) { atomic_store_explicit(to, value, memory_order_release); }
static uint64_t get(const _Atomic uint64_t *from) { return atomic_load_explicit(from, memory_order_acquire); }
static _Atomic uint64_t begun, current, next_look; /* next_look in ns */

static uint64_t now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct renewal {
    const struct ehu_table *t;
    unsigned copy;
    uint64_t n;
};

/* renew_one keeps a mapping that is in no object of the table. It returns true when there is no more room. */
static bool renew_one(const struct ehu_mapping *m, void *arg)
{
    struct renewal *r = arg;
    for (size_t i = 0; i < r->t->n; i++)
        if (r->t->object[i].low < m->high && m->low < r->t->object[i].high)
            return false;
    struct kept_mapping *to = &kept[r->copy].of[r->n];
    put(&to->low, m->low);
    put(&to->high, m->high);
    put(&to->dev, m->dev);
    put(&to->ino, m->file ? m->ino : 0);
    put(&to->origin, m->origin);
    return ++r->n == MAX_KEPT;
}

/* renew reads the list if it is due. */
static void renew(const struct ehu_table *t)
{
    uint64_t before;
    if (now(CLOCK_MONOTONIC) < atomic_load(&next_look))
        return;
    block(&before);
    if (ehu_lock_(LOCK_MAPS, false)) {
        uint64_t start = now(CLOCK_THREAD_CPUTIME_ID), next = atomic_load(&current) + 1;
        struct renewal r = {t, (unsigned)(next & 1), 0};
        atomic_store(&begun, next);
        ehu_mappings_(renew_one, &r);
        put(&kept[r.copy].n, r.n);
        atomic_store(&current, next);
        uint64_t took = now(CLOCK_THREAD_CPUTIME_ID) - start;
        atomic_store(&next_look, now(CLOCK_MONOTONIC) + REST * took);
        ehu_unlock_(LOCK_MAPS);
    }
    unblock(&before);
}

/* find_kept finds the kept mapping that holds pc. It returns false, too, if the copy may have been overwritten
 * meanwhile, which the second renewal from here on does. */
static bool find_kept(const struct ehu_table *t, uint64_t pc, struct ehu_mapping *m)
{
    renew(t);
    uint64_t turn = atomic_load(&current);
    unsigned copy = (unsigned)(turn & 1);
    uint64_t n = get(&kept[copy].n);
    bool found = false;
    for (uint64_t i = 0; i < n && i < MAX_KEPT && !found; i++) {
        const struct kept_mapping *k = &kept[copy].of[i];
        *m = (struct ehu_mapping){get(&k->low), get(&k->high), get(&k->dev), get(&k->ino), get(&k->origin), false};
        m->file = m->ino != 0;
        found = pc >= m->low && pc < m->high;
    }
    return found && atomic_load(&begun) < turn + 2;
}

/* -------------------------------------------------------------------------- one address */

/* As in linux/fs.h since Linux 6.11. */
struct procmap_query {
    uint64_t size, query_flags, query_addr, vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
    uint32_t dev_major, dev_minor, vma_name_size, build_id_size;
    uint64_t vma_name_addr, build_id_addr;
};
enum { VMA_EXECUTABLE = 4 };
#define PROCMAP_QUERY _IOWR('f', 17, struct procmap_query)

static _Atomic bool no_query; /* the kernel does not have it */

/* query returns 1 and the executable mapping of pc, 0 if there is none, or -1 if the
   kernel does not answer. */
static int query(uint64_t pc, struct ehu_mapping *m)
{
    char name[256] = "";
    uint64_t before;
    struct procmap_query q = {.size = sizeof q, .query_addr = pc, .query_flags = VMA_EXECUTABLE,
                              .vma_name_addr = (uintptr_t)name, .vma_name_size = sizeof name};
    ehu_count_(COUNT_LOOKS);
    block(&before);
    int fd = open_maps(), error = 0;
    if (fd < 0) {
        unblock(&before);
        return 0;
    }
    long got = syscall(SYS_ioctl, (long)fd, (long)PROCMAP_QUERY, &q);
    if (got < 0 && errno == ENAMETOOLONG) { /* a file's */
        q.vma_name_addr = q.vma_name_size = 0;
        got = syscall(SYS_ioctl, (long)fd, (long)PROCMAP_QUERY, &q);
    }
    if (got < 0)
        error = errno;
    syscall(SYS_close, (long)fd);
    unblock(&before);
    if (error == ENOENT)
        return 0;
    if (error != 0)
        return -1;
    size_t len = strnlen(name, sizeof name);
    *m = (struct ehu_mapping){q.vma_start, q.vma_end, makedev(q.dev_major, q.dev_minor), q.inode,
                              q.vma_start - q.vma_offset, q.inode != 0 && !nameless(name, len)};
    return q.inode != 0 || !special(name, len);
}

/*
 * ehu_executable_ finds the executable mapping that holds pc. Handlers may call it. The
 * answer is current, or if the list is cached, slightly old.
 */
bool ehu_executable_(const struct ehu_table *t, uint64_t pc, struct ehu_mapping *m)
{
    int saved = errno, got = -1;
    if (all_executable || pc < PAGE || pc >= (uint64_t)1 << 47)
        return false;
    if (!atomic_load_explicit(&no_query, memory_order_relaxed)) {
        got = query(pc, m);
        if (got < 0)
            atomic_store_explicit(&no_query, true, memory_order_relaxed);
    }
    bool found = got < 0 ? find_kept(t, pc, m) : got > 0;
    errno = saved;
    return found;
}

/* With READ_IMPLIES_EXEC (personality(2); programs marked with an executable stack, on old kernels) execute
 * permission tells nothing. */
void ehu_maps_init_(void)
{
    int persona = personality(0xffffffff);
    all_executable = persona == -1 || (persona & READ_IMPLIES_EXEC) != 0;
}
