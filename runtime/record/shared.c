/* The shared memory, and the stacks in it. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "record.h"

static uint8_t none[1 << EHR_FILTER_BITS]; /* no object is a sampled one */
struct ehr_private *ehr_private_ = (struct ehr_private *)(void *)none;

static struct ehr_region *region; /* null: nothing is recorded */
static char *window;
static struct ehr_region settings; /* a copy, which no other process changes */
static char comm[sizeof ((struct ehr_process *)0)->comm];
static uint32_t pid;
static _Atomic uint64_t generation; /* of what is mapped; a child of fork keeps it, whose mappings are its parent's */

_Atomic bool ehr_bare_;

bool ehr_stopped_(void) { return !region || region->stop; }

/* ehr_end_ makes this process take no samples. */
void ehr_end_(void) { region = NULL; }

uint64_t ehr_period_(void) { return settings.period; }

/* ehr_seed_ returns another number for each thread, without a system call. */
uint64_t ehr_seed_(void)
{
    static _Atomic uint64_t threads;
    return (settings.token + atomic_fetch_add(&threads, 1)) * 0xd1342543de82ef95u ^ (uint64_t)pid << 32;
}

/* ------------------------------------------------------------------------------ the start */

/* What EHASM_RECORD says: "PATH:TOKEN:FILTERS", the numbers in hexadecimal. */
struct place {
    char path[64]; /* of the shared memory */
    uint64_t token;
    uint64_t filters; /* of seccomp, that the recorder has itself */
};

/* parse reads the variable that ehasm heap sets; false if it is not one of ours. */
static bool parse(const char *text, struct place *p)
{
    size_t n = text ? strcspn(text, ":") : 0;
    char *end;
    if (n == 0 || n >= sizeof p->path || text[n] == 0)
        return false;
    memcpy(p->path, text, n);
    p->path[n] = 0;
    p->token = strtoull(text + n + 1, &end, 16);
    p->filters = *end == ':' ? strtoull(end + 1, NULL, 16) : 0;
    return true;
}

/* confined reports whether there are more seccomp filters than the recorder's. They may forbid what begins
 * here, but not what the dynamic loader did. Older kernels do not say how many there are: then it reports
 * false. */
static bool confined(uint64_t filters)
{
    static const char name[] = "\nSeccomp_filters:\t";
    char text[16384];
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n < 0 ? 0 : n] = 0;
    const char *own = strstr(text, name);
    return own && strtoull(own + sizeof name - 1, NULL, 10) > filters;
}

/* limited reports whether what the library maps would take more than a small part of what the
   program may have. */
static bool limited(void)
{
    enum { PART = 16 };
    struct rlimit addresses, data;
    return getrlimit(RLIMIT_AS, &addresses) != 0 || getrlimit(RLIMIT_DATA, &data) != 0 ||
           addresses.rlim_cur / PART < EHR_WINDOW + sizeof(struct ehr_private) ||
           data.rlim_cur / PART < sizeof(struct ehr_private);
}

/* MAP_NORESERVE: a window of 64 MB, of which most programs touch little. */
static void *map_shared(int fd, size_t size, uint64_t offset)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, (off_t)offset);
    return p == MAP_FAILED ? NULL : p;
}

/* map_own maps what is private; it returns null if the kernel cannot empty it in children (MADV_WIPEONFORK,
 * Linux 4.14): a child would continue its parent's stacks and locks. */
static struct ehr_private *map_own(void)
{
    struct ehr_private *own = ehu_map_(sizeof *own);
    if (!own || madvise(own, sizeof *own, MADV_WIPEONFORK) == 0)
        return own;
    munmap(own, sizeof *own);
    return NULL;
}

/* refused tells the recorder that this process, of another user or container, cannot open its memory: who sends a datagram needs no right to a file. */
static void refused(const struct place *p)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX}; /* the name begins with a zero: it is no file's */
    struct refusal text = {.token = p->token};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    size_t n = strlen(p->path);
    memcpy(to.sun_path + 1, p->path, n);
    prctl(PR_GET_NAME, text.comm);
    if (fd >= 0) {
        sendto(fd, &text, sizeof text, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&to,
            (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n));
        close(fd);
    }
}

/* claim takes a chunk for this process; it returns null if there is none. */
static struct ehr_chunk *claim(uint32_t kind, struct ehr_process *p)
{
    struct ehr_window *w = (struct ehr_window *)(void *)window;
    uint64_t i = atomic_fetch_add(&w->next, 1);
    if (i >= EHR_CHUNKS) {
        ehr_add_(&w->refused, 1);
        return NULL;
    }
    struct ehr_chunk *c = (struct ehr_chunk *)(void *)(window + EHR_PAGE + i * EHR_CHUNK);
    c->kind = kind;
    c->pid = pid;
    c->process = p ? (uint64_t)((char *)p - window - EHR_PAGE) / EHR_CHUNK : i;
    return c;
}

/* publish makes a chunk visible to the recorder, which reads it while the program runs: token tells written
 * chunks from the file's zeros. */
static void publish(struct ehr_chunk *c) { atomic_store_explicit(&c->ready, settings.token, memory_order_release); }

/*
 * ehr_write_maps_ writes /proc/self/maps as it is now, in as many chunks as it needs, without a cancellation point.
 * What was written before is not written again, and nothing where stacks would soon have no room: then they have no
 * names.
 */
void ehr_write_maps_(struct ehr_process *p)
{
    enum { MANY = 64 };
    static struct { /* children of fork inherit it */
        uint64_t hash, number;
    } written[MANY];
    struct ehr_window *w = (struct ehr_window *)(void *)window;
    uint64_t hash = ehu_table_of_(atomic_load(&ehu_current_))->hash;
    ehr_bare_ = !ehu_depends_on_caller_("", NULL);
    for (int i = 0; i < MANY; i++)
        if (written[i].hash == hash) {
            atomic_store(&generation, written[i].number);
            return;
        }
    uint64_t number = atomic_fetch_add(&w->generations, 1) + 1;
    written[number % MANY].hash = hash;
    written[number % MANY].number = number;
    long fd = atomic_load(&w->next) > EHR_CHUNKS / 4 * 3 ? -1 : syscall(SYS_openat, (long)AT_FDCWD, "/proc/self/maps",
        (long)(O_RDONLY | O_CLOEXEC)), n = fd < 0 ? 0 : 1;
    while (n > 0) {
        struct ehr_chunk *c = claim(EHR_MAPS, p);
        if (!c)
            break;
        uint64_t used = sizeof *c;
        while (used < EHR_CHUNK && (n = syscall(SYS_read, fd, (char *)c + used, EHR_CHUNK - used)) > 0)
            used += (uint64_t)n;
        c->generation = number;
        c->used = used;
        publish(c);
    }
    if (fd >= 0)
        syscall(SYS_close, fd);
    atomic_store(&generation, number);
}

/* pthread_atfork of glibc; weak as those of alloc.c. */
int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *) __attribute__((weak));

/* in_child learns the process's number without a system call: a lock's owner is the thread, which is the only one. */
static void in_child(void)
{
    pthread_mutex_t m = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    pthread_mutex_lock(&m);
    pid = (uint32_t)m.__data.__owner;
    pthread_mutex_unlock(&m);
}

/* ehr_begin_ maps what is shared, and what is not. The constructor calls it. */
bool ehr_begin_(void)
{
    struct place p;
    struct stat st;
    if (!parse(getenv("EHASM_RECORD"), &p))
        return false;
    bool sealed = confined(p.filters);
    int fd = open(p.path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        if (!sealed)
            refused(&p);
        return false;
    }
    struct ehr_region *r = fstat(fd, &st) == 0 && st.st_size >= EHR_PAGE ? map_shared(fd, EHR_PAGE, 0) : NULL;
    struct ehr_private *own = NULL;
    if (r && r->magic == EHR_MAGIC && r->version == EHR_VERSION && r->token == p.token) {
        memcpy(&settings, r, sizeof settings);
        uint64_t i = sealed || limited() ? UINT64_MAX : atomic_fetch_add(&r->next, 1),
            windows = (uint64_t)(st.st_size - EHR_PAGE) / EHR_WINDOW;
        window = i < windows ? map_shared(fd, EHR_WINDOW, EHR_PAGE + i * EHR_WINDOW) : NULL;
        own = window ? map_own() : NULL;
        if (!own)
            atomic_fetch_add(&r->declined, 1);
    }
    close(fd);
    if (!own) {
        if (window)
            munmap(window, EHR_WINDOW);
        if (r)
            munmap(r, EHR_PAGE);
        return false;
    }
    madvise(r, EHR_PAGE, MADV_DONTDUMP);
    madvise(window, EHR_WINDOW, MADV_DONTDUMP);
    madvise(own, sizeof *own, MADV_DONTDUMP);
    __register_atfork(NULL, NULL, in_child, NULL);
    pid = (uint32_t)getpid();
    prctl(PR_GET_NAME, comm);
    region = r;
    ehr_private_ = own;
    return true;
}

/* ehr_process_ returns this process's chunk, and makes it if there is none yet; null:
   that is not possible, or not now. */
struct ehr_process *ehr_process_(void)
{
    enum { NONE, MAKING, IMPOSSIBLE };
    uintptr_t p = atomic_load_explicit(&ehr_private_->process, memory_order_acquire);
    if (p > IMPOSSIBLE)
        return (struct ehr_process *)p;
    if (p != NONE || !atomic_compare_exchange_strong(&ehr_private_->process, &p, MAKING))
        return NULL;
    struct ehr_process *made = (struct ehr_process *)(void *)claim(EHR_PROCESS, NULL);
    if (made) {
        memcpy(made->comm, comm, sizeof comm);
        atomic_store(&ehr_private_->free, (uint64_t)((char *)(made + 1) - window));
        publish(&made->chunk);
    }
    atomic_store_explicit(&ehr_private_->process, made ? (uintptr_t)made : IMPOSSIBLE, memory_order_release);
    return made;
}

/* ------------------------------------------------------------------------------ the stacks */

/* chunk_end is where the chunk that a place in the window belongs to ends: a chunk that is full ends at its free place. */
static uint64_t chunk_end(uint64_t offset) { return EHR_PAGE + (offset - EHR_PAGE + EHR_CHUNK - 1) / EHR_CHUNK * EHR_CHUNK; }

/* room returns place for a stack. */
static struct ehr_stack *room(struct ehr_process *p, size_t frames)
{
    size_t size = (sizeof(struct ehr_stack) + frames * sizeof(uint64_t) + EHR_LINE - 1) & ~(size_t)(EHR_LINE - 1);
    uint64_t offset = atomic_load(&ehr_private_->free);
    while (offset + size <= chunk_end(offset))
        if (atomic_compare_exchange_weak(&ehr_private_->free, &offset, offset + size))
            return (struct ehr_stack *)(void *)(window + offset);
    struct ehr_chunk *next = claim(EHR_STACKS, p);
    if (!next)
        return NULL;
    publish(next);
    uint64_t begin = (uint64_t)((char *)(next + 1) - window);
    /* else another thread has one, too, and this one is for one stack */
    atomic_compare_exchange_strong(&ehr_private_->free, &offset, begin + size);
    return (struct ehr_stack *)(void *)(window + begin);
}

/* ehr_look_ looks up newly loaded objects. One thread does it, for others, too, and none waits for it, or for the loader's lock. */
void ehr_look_(void)
{
    enum { TURNS = 1000 }; /* for others that have the loader's lock */
    int saved = errno;
    uintptr_t before = atomic_load(&ehu_current_);
    struct ehr_process *p = ehr_process_();
    if (!p || atomic_fetch_add(&ehr_private_->looking, 1) > 0)
        return;
    int asked;
    do {
        asked = atomic_load(&ehr_private_->looking);
        for (int i = 0; i < TURNS && !ehu_up_to_date_(); i++)
            ;
    } while (!atomic_compare_exchange_strong(&ehr_private_->looking, &asked, 0));
    if (atomic_load(&ehu_current_) != before)
        ehr_write_maps_(p);
    errno = saved;
}

/* take_scratch returns room for a deep walk, or null if all are in use: threads and handlers that sample at
 * the same time. */
static struct ehr_scratch *take_scratch(struct ehr_private *own)
{
    for (int i = 0; i < EHR_SCRATCHES; i++)
        if (!atomic_exchange_explicit(&own->scratch[i].taken, 1, memory_order_acquire))
            return &own->scratch[i];
    return NULL;
}

/* hash_of mixes the pcs with the number of what was mapped: equal addresses of other mappings are another
 * stack. */
static uint64_t hash_of(const uint64_t *pc, size_t n, uint64_t mapped)
{
    uint64_t h = mapped;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ pc[i]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    return h;
}

/* same compares a stack. Behind the last chunk that is taken there is another, since others can have changed s->frames. */
static bool same(const struct ehr_stack *s, const uint64_t *pc, size_t n, uint64_t mapped)
{
    return s->frames == n && s->generation == mapped && memcmp(s->pc, pc, n * sizeof *pc) == 0;
}

/* ehr_stack_of_ returns the stack of a frame and its callers, and makes it if it is new. */
struct ehr_stack *ehr_stack_of_(struct ehr_process *p, const eh_elf_regs_t *regs)
{
    /* Beyond TRIES a stack is in no place of the index, and written again each time; the reader adds equal
     * ones up. */
    enum { FEW = 48, TRIES = 32, MASK = (1 << EHR_INDEX_BITS) - 1 };
    struct ehr_private *own = ehr_private_;
    uint64_t few[FEW]; /* a stack may be short of room */
    struct ehr_scratch *scratch = take_scratch(own);
    uint64_t *pc = scratch ? scratch->pc : few;
    size_t most = scratch ? EHR_MAX_FRAMES : FEW;
    struct ehu_end end;
    size_t n = ehu_backtrace_end_((void **)(void *)pc, settings.max_frames < most ? settings.max_frames : most, regs,
        &end);
    uint64_t mapped = atomic_load(&generation), hash = hash_of(pc, n, mapped);
    struct ehr_stack *s = NULL;
    _Atomic(struct ehr_stack *) *place = NULL;
    for (uint64_t i = 0; i < TRIES; i++) {
        place = &own->index[(hash + i) & MASK];
        s = atomic_load_explicit(place, memory_order_acquire);
        if (!s || (s->hash == hash && same(s, pc, n, mapped)))
            break;
        place = NULL;
        s = NULL;
    }
    if (!s && (s = room(p, n))) {
        struct ehr_stack *expected = NULL;
        s->frames = (uint32_t)n;
        s->end = (int16_t)end.status;
        s->guessed = end.guessed;
        s->generation = mapped;
        s->hash = hash;
        memcpy(s->pc, pc, n * sizeof *pc);
        atomic_store_explicit(&s->ready, settings.token, memory_order_release);
        if (place)
            atomic_compare_exchange_strong(place, &expected, s); /* else another is there: the reader adds them up */
    }
    if (scratch)
        atomic_store_explicit(&scratch->taken, 0, memory_order_release);
    return s;
}
