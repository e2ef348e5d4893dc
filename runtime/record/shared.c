/* The shared memory, and the stacks in it. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "record.h"

struct ehr_region *ehr_region_;
static uint8_t none[1 << EHR_FILTER_BITS]; /* no object is a sampled one */
struct ehr_private *ehr_private_ = (struct ehr_private *)(void *)none;
_Atomic uint64_t ehr_opened_;

static char path[64];           /* of the shared memory */
static dev_t device;
static ino_t inode;
static _Atomic uint64_t opened; /* calls of dlopen and dlclose that the table of objects knows */
static _Atomic int looks; /* times to make it again regardless */
static _Atomic int refreshing;

/* The shared memory is opened again for each chunk, since a program may close descriptors
   that it has not opened. */
static int open_region(void)
{
    struct stat st;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) == 0 && (inode == 0 || (st.st_dev == device && st.st_ino == inode))) {
        device = st.st_dev;
        inode = st.st_ino;
        return fd;
    }
    close(fd);
    return -1;
}

/* parse takes the shared memory's path and token from "PATH:TOKEN", the token in hexadecimal. */
static uint64_t parse(const char *text)
{
    const char *colon = strrchr(text, ':');
    if (!colon || (size_t)(colon - text) >= sizeof path)
        return 0;
    memcpy(path, text, (size_t)(colon - text));
    return strtoull(colon + 1, NULL, 16);
}

/* ehr_begin_ maps what is shared, and what is not. The constructor calls it. */
bool ehr_begin_(void)
{
    const char *text = getenv("EHASM_RECORD");
    uint64_t token = text ? parse(text) : 0;
    if (token == 0)
        return false;
    int fd = open_region();
    if (fd < 0)
        return false;
    struct ehr_region *r = mmap(NULL, EHR_HEAD, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (r == MAP_FAILED)
        return false;
    struct ehr_private *own = ehu_map_(sizeof *own);
    if (r->magic != EHR_MAGIC || r->version != EHR_VERSION || r->token != token || !own ||
        madvise(own, sizeof *own, MADV_WIPEONFORK) != 0) {
        munmap(r, EHR_HEAD);
        if (own)
            ehu_unmap_(own, sizeof *own);
        return false;
    }
    ehr_region_ = r;
    ehr_private_ = own;
    return true;
}

/* claim takes a chunk for this process; it returns null if there is none. */
static struct ehr_chunk *claim(uint32_t kind, struct ehr_process *p)
{
    struct ehr_region *r = ehr_region_;
    uint64_t i = atomic_fetch_add(&r->next, 1);
    int fd = i < r->chunks ? open_region() : -1;
    struct ehr_chunk *c = MAP_FAILED;
    if (fd >= 0) {
        c = mmap(NULL, EHR_CHUNK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(EHR_HEAD + i * EHR_CHUNK));
        close(fd);
    }
    if (c == MAP_FAILED) {
        ehr_add_(&r->refused, 1);
        return NULL;
    }
    c->kind = kind;
    c->pid = (uint32_t)getpid();
    c->process = p ? p->chunk.process : i;
    c->used = kind == EHR_PROCESS ? sizeof(struct ehr_process) : sizeof *c;
    return c;
}

static void publish(struct ehr_chunk *c) { atomic_store_explicit(&c->ready, ehr_region_->token, memory_order_release); }

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
        ehu_stats_t s;
        prctl(PR_GET_NAME, made->comm);
        ehu_stats(&s);
        made->objects = s.objects;
        made->eh_elfs = s.eh_elfs;
        publish(&made->chunk);
    }
    atomic_store(&ehr_private_->chunk, (uintptr_t)made);
    atomic_store_explicit(&ehr_private_->process, made ? (uintptr_t)made : IMPOSSIBLE, memory_order_release);
    return made;
}

/* room returns place for a stack. */
static struct ehr_stack *room(struct ehr_process *p, size_t frames)
{
    size_t size = (sizeof(struct ehr_stack) + frames * sizeof(uint64_t) + EHR_LINE - 1) & ~(size_t)(EHR_LINE - 1);
    uintptr_t at = atomic_load(&ehr_private_->chunk);
    struct ehr_chunk *c = (struct ehr_chunk *)at;
    uint64_t used = atomic_load(&c->used);
    while (used + size <= EHR_CHUNK)
        if (atomic_compare_exchange_weak(&c->used, &used, used + size))
            return (struct ehr_stack *)(void *)((char *)c + used);
    struct ehr_chunk *next = claim(EHR_STACKS, p);
    if (!next)
        return NULL;
    next->used += size;
    publish(next);
    atomic_compare_exchange_strong(&ehr_private_->chunk, &at, (uintptr_t)next); /* else another thread has one, too, and this one is for one stack */
    return (struct ehr_stack *)(void *)(next + 1);
}

/* write_maps writes /proc/self/maps as it is now, in as many chunks as it needs. */
static void write_maps(struct ehr_process *p, uint64_t generation)
{
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    for (bool more = true; more;) {
        struct ehr_chunk *c = claim(EHR_MAPS, p);
        if (!c)
            break;
        uint64_t used = sizeof *c;
        c->generation = generation;
        while (used < EHR_CHUNK) {
            ssize_t n = read(fd, (char *)c + used, EHR_CHUNK - used);
            more = n > 0;
            if (!more)
                break;
            used += (uint64_t)n;
        }
        atomic_store(&c->used, used);
        publish(c);
        munmap(c, EHR_CHUNK);
    }
    close(fd);
}

/*
 * look looks up newly loaded objects. One thread does it, and none waits for it. A dlopen is
 * noticed when it is called, so the first look may be too early; therefore it looks several times.
 */
static void look(struct ehr_private *own)
{
    enum { MORE = 64 };
    uint64_t now = atomic_load(&ehr_opened_);
    if (now == atomic_load_explicit(&opened, memory_order_relaxed) && atomic_load_explicit(&looks, memory_order_relaxed) <= 0)
        return;
    if (atomic_exchange(&refreshing, 1))
        return;
    if (now != atomic_exchange(&opened, now))
        atomic_store(&looks, MORE);
    atomic_fetch_sub(&looks, 1);
    if (ehu_refresh() == 1)
        atomic_fetch_add(&own->generation, 1);
    atomic_store(&refreshing, 0);
}

static struct ehr_scratch *take_scratch(struct ehr_private *own)
{
    for (int i = 0; i < EHR_SCRATCHES; i++)
        if (!atomic_exchange_explicit(&own->scratch[i].taken, 1, memory_order_acquire))
            return &own->scratch[i];
    return NULL;
}

static uint64_t hash_of(const uint64_t *pc, size_t n, uint64_t generation)
{
    uint64_t h = generation;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ pc[i]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    return h;
}

static bool same(const struct ehr_stack *s, const uint64_t *pc, size_t n, uint64_t generation)
{
    return s->frames == n && s->generation == generation && memcmp(s->pc, pc, n * sizeof *pc) == 0;
}

/* ehr_stack_of_ returns the stack of a frame and its callers, and makes it if it is new. */
struct ehr_stack *ehr_stack_of_(struct ehr_process *p, const eh_elf_regs_t *regs)
{
    enum { FEW = 48, TRIES = 32, MASK = (1 << EHR_INDEX_BITS) - 1 };
    struct ehr_private *own = ehr_private_;
    uint64_t few[FEW]; /* a stack may be short of room */
    look(own);
    struct ehr_scratch *scratch = take_scratch(own);
    uint64_t *pc = scratch ? scratch->pc : few;
    size_t max = scratch ? ehr_region_->max_frames : FEW;
    struct ehu_end end;
    size_t n = ehu_backtrace_end_((void **)(void *)pc, max < EHR_MAX_FRAMES ? max : EHR_MAX_FRAMES, regs, &end);
    if (end.status == EHU_NO_OBJECT) /* of something that was loaded another way, perhaps */
        atomic_store(&looks, 1);
    uint64_t generation = atomic_load(&own->generation) + 1, hash = hash_of(pc, n, generation);
    struct ehr_stack *s = NULL;
    _Atomic(struct ehr_stack *) *place = NULL;
    for (uint64_t i = 0; i < TRIES; i++) {
        place = &own->index[(hash + i) & MASK];
        s = atomic_load_explicit(place, memory_order_acquire);
        if (!s || (s->hash == hash && same(s, pc, n, generation)))
            break;
        place = NULL;
        s = NULL;
    }
    if (!s && (s = room(p, n))) {
        struct ehr_stack *expected = NULL;
        s->frames = (uint32_t)n;
        s->end = (int16_t)end.status;
        s->guessed = end.guessed;
        s->generation = generation;
        s->hash = hash;
        memcpy(s->pc, pc, n * sizeof *pc);
        atomic_store_explicit(&s->ready, ehr_region_->token, memory_order_release);
        if (place)
            atomic_compare_exchange_strong(place, &expected, s); /* else another is there: the reader adds them up */
        uint64_t written = atomic_load(&own->written);
        if (written < generation && atomic_compare_exchange_strong(&own->written, &written, generation))
            write_maps(p, generation);
    }
    if (scratch)
        atomic_store_explicit(&scratch->taken, 0, memory_order_release);
    return s;
}
