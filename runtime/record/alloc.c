/*
 * Samples of allocations. Bytes are sampled as a Poisson process: the distance from one to the
 * next has an exponential distribution, so an object of n bytes is sampled with the
 * probability 1 - exp(-n / period), and stands for the inverse of that many. No size is
 * favoured, nor any pattern of calls.
 */
#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "record.h"

/* A countdown in each thread: an allocation costs a subtraction and a comparison (entry.S), and only one in
 * period bytes comes here. Memory of the library is its own (ehu_map_), so it never samples itself. */
__thread int64_t ehr_left_ EHR_TLS; /* bytes up to the thread's next sample */
static __thread uint64_t seed EHR_TLS;
static __thread bool finding EHR_TLS;
static bool begun; /* the constructor has run */

/* ------------------------------------------------------------------------ the originals */

extern void *(*ehr_malloc_)(size_t), *(*ehr_calloc_)(size_t, size_t), *(*ehr_realloc_)(void *, size_t);
extern void *(*ehr_memalign_)(size_t, size_t), *(*ehr_aligned_alloc_)(size_t, size_t), *(*ehr_valloc_)(size_t),
    *(*ehr_pvalloc_)(size_t);
extern int (*ehr_posix_memalign_)(void **, size_t, size_t);
extern void (*ehr_free_)(void *);
extern void *(*ehr_dlopen_)(const char *, int);

/* glibc's own; weak, since musl does not start a program with a library that needs what it lacks. */
#pragma weak __libc_malloc
#pragma weak __libc_calloc
#pragma weak __libc_realloc
#pragma weak __libc_free
void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void __libc_free(void *);

/* find looks up the next definition behind this library, so that another malloc (jemalloc, tcmalloc) stays
 * in use. */
static void find(const char *name, void *to)
{
    void *address = dlsym(RTLD_NEXT, name);
    if (address)
        memcpy(to, &address, sizeof address);
}

/* ehr_find_ finds the functions that the program would call. Allocations of dlsym itself
   meanwhile go to glibc's. */
void ehr_find_(void)
{
    int saved = errno;
    if (finding) {
        ehr_malloc_ = __libc_malloc;
        ehr_calloc_ = __libc_calloc;
        ehr_realloc_ = __libc_realloc;
        ehr_free_ = __libc_free;
        return;
    }
    finding = true;
    find("dlopen", &ehr_dlopen_);
    find("posix_memalign", &ehr_posix_memalign_);
    find("aligned_alloc", &ehr_aligned_alloc_);
    find("memalign", &ehr_memalign_);
    find("valloc", &ehr_valloc_);
    find("pvalloc", &ehr_pvalloc_);
    find("free", &ehr_free_);
    find("realloc", &ehr_realloc_);
    find("calloc", &ehr_calloc_);
    find("malloc", &ehr_malloc_);
    finding = false;
    errno = saved;
}

/* ------------------------------------------------------------------------------- chance */

/* The x87 computes logarithm and power: the C library's are in libm, which programs may not have. It is the
 * natural logarithm: ln 2 times log2 x. */
static double log_of(double x)
{
    double y;
    __asm__("fldln2\n\tfldl %1\n\tfyl2x\n\tfstpl %0" : "=m"(y) : "m"(x) : "st", "st(1)");
    return y;
}

/* probability returns 1 - exp(-x). Beyond 40 the rest is less than a double can show. 2^y is made of f2xm1,
 * for |y| <= 1 (SDM Vol. 2, F2XM1), and fscale. */
static double probability(double x)
{
    enum { SURE = 40 };
    double y = x;
    if (x >= SURE)
        return 1;
    __asm__("fldl2e\n\tfmull %0\n\tfchs\n\tfld %%st(0)\n\tfrndint\n\tfxch\n\tfsub %%st(1), %%st\n\tf2xm1\n\t"
            "fld1\n\tfaddp\n\tfscale\n\tfstp %%st(1)\n\tfld1\n\tfsubp\n\tfstpl %0"
            : "+m"(y) : : "st", "st(1)", "st(2)", "st(3)");
    return y;
}

/* uniform returns a number above 0 and at most 1: splitmix64. */
static double uniform(void)
{
    enum { BITS = 53 };
    uint64_t z = seed += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (double)((z >> (64 - BITS)) + 1) / (double)(1ull << BITS);
}

/* gap draws the bytes up to the next sample: an exponential distribution with the period as its mean, by
 * inversion. */
static int64_t gap(void) { return (int64_t)(-log_of(uniform()) * (double)ehr_period_()); }

/* ----------------------------------------------------------------- the objects that are there */

/* WINDOW: slots looked at for an address; if all are taken, the sample counts as freed, and no_live says how
 * many. */
enum { FREE_AGAIN = 1, BEING_WRITTEN = 2, WINDOW = 64, MASK = (1 << EHR_LIVE_BITS) - 1, MOST = 255 };

static uint64_t hash_of(const void *p) { return (uint64_t)(uintptr_t)p * 0x9e3779b97f4a7c15u; }

static struct ehr_live *live_at(uint64_t hash, uint64_t i)
{
    return &ehr_private_->live[((hash >> (64 - EHR_LIVE_BITS)) + i) & MASK];
}

/* step_filter counts in the filter; a count that has reached the maximum stays. */
static void step_filter(const void *p, int by)
{
    uint8_t *cell = &ehr_private_->filter[(uintptr_t)p >> EHR_FILTER_SHIFT & ((1 << EHR_FILTER_BITS) - 1)],
        was = __atomic_load_n(cell, __ATOMIC_RELAXED);
    while (was != MOST && !(by < 0 && was == 0) &&
           !__atomic_compare_exchange_n(cell, &was, (uint8_t)(was + by), true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        ;
}

/*
 * remember adds an object to the live ones. No other thread has its address yet, so no other call about it
 * can come before. It returns false if there is no room.
 */
static bool remember(const void *p, const struct ehr_live *what)
{
    uint64_t hash = hash_of(p);
    for (uint64_t i = 0; i < WINDOW; i++) {
        struct ehr_live *l = live_at(hash, i);
        uint64_t was = atomic_load_explicit(&l->address, memory_order_relaxed);
        if (was > FREE_AGAIN || !atomic_compare_exchange_strong(&l->address, &was, BEING_WRITTEN))
            continue;
        l->stack = what->stack;
        l->objects = what->objects;
        l->bytes = what->bytes;
        atomic_store_explicit(&l->address, (uint64_t)(uintptr_t)p, memory_order_release);
        step_filter(p, 1);
        return true;
    }
    return false;
}

/* take removes an object from the live ones, if it is one. It is called before the object
   is freed. */
static bool take(const void *p, struct ehr_live *what)
{
    uint64_t hash = hash_of(p), address = (uint64_t)(uintptr_t)p;
    if (address <= BEING_WRITTEN)
        return false;
    for (uint64_t i = 0; i < WINDOW; i++) {
        struct ehr_live *l = live_at(hash, i);
        uint64_t was = atomic_load_explicit(&l->address, memory_order_acquire);
        if (was == 0)
            break;
        if (was != address)
            continue;
        what->stack = l->stack;
        what->objects = l->objects;
        what->bytes = l->bytes;
        atomic_store(&l->address, FREE_AGAIN);
        step_filter(p, -1);
        return true;
    }
    return false;
}

/* freed counts an object as freed in the stack that allocated it. */
static void freed(const struct ehr_live *l)
{
    ehr_add_(&l->stack->freed_objects, l->objects);
    ehr_add_(&l->stack->freed_bytes, l->bytes);
}

/* ehr_forget_ is called for what may be a sampled object that is about to be freed. entry.S asks the filter
 * first: of all frees, few come here. */
void ehr_forget_(const void *p)
{
    struct ehr_live l;
    if (take(p, &l))
        freed(&l);
}

/* ---------------------------------------------------------------------------- the samples */

/* sample takes a sample of an object of n bytes at p, null if the allocation failed. It runs in the thread
 * that allocates, possibly in a handler, and calls nothing of the program. */
static void sample(const void *p, size_t n, const eh_elf_regs_t *regs)
{
    if (seed == 0) { /* the thread's first */
        seed = ehr_seed_() | 1;
        ehr_left_ = gap();
        if (p && n <= (uint64_t)ehr_left_) {
            ehr_left_ -= (int64_t)n;
            return;
        }
    }
    ehr_left_ = gap();
    struct ehr_process *process = p ? ehr_process_() : NULL;
    if (!process)
        return;
    double likely = probability((double)n / (double)ehr_period_());
    struct ehr_live l = {.stack = ehr_stack_of_(process, regs)};
    if (!l.stack) {
        ehr_add_(&process->no_room, 1);
        return;
    }
    /* In units of 1/EHR_UNIT of an object: small ones stand for many, large ones for one. */
    l.objects = (uint64_t)(EHR_UNIT / likely + 0.5);
    l.bytes = (uint64_t)((double)n / likely + 0.5);
    ehr_add_(&process->taken, 1);
    ehr_add_(&l.stack->objects, l.objects);
    ehr_add_(&l.stack->bytes, l.bytes);
    if (!remember(p, &l)) {
        ehr_add_(&process->no_live, 1);
        freed(&l);
    }
}

/*
 * ehr_sample_ is called when n bytes would end the countdown, after their allocation at p. The program may have chosen
 * a rounding mode, wait for exceptions of its arithmetic, or look at their flags.
 */
void ehr_sample_(const void *p, size_t n, const eh_elf_regs_t *regs)
{
    if (ehr_stopped_()) {
        ehr_left_ = begun ? INT64_MAX / 2 : 0; /* before that, what follows may have to be counted */
        return;
    }
    int saved = errno;
    const uint32_t usual = 0x1f80; /* MXCSR at a program's start: Intel SDM Vol. 1, 10.2.3 */
    uint32_t mxcsr;
    uint8_t x87[28]; /* FNSTENV also masks the exceptions of the x87, and FNINIT rounds to nearest */
    __asm__ volatile("fnstenv %0\n\tfninit\n\tstmxcsr %1\n\tldmxcsr %2" : "=m"(x87), "=m"(mxcsr) : "m"(usual));
    sample(p, n, regs);
    __asm__ volatile("fldenv %0\n\tldmxcsr %1" : : "m"(x87), "m"(mxcsr));
    errno = saved;
}

/* counted is for calls that do not go through entry.S's countdown. */
static void *counted(void *p, size_t n, const eh_elf_regs_t *regs)
{
    if (ehr_left_ < 0 || n > (uint64_t)ehr_left_) /* n may be any number if there is no object */
        ehr_sample_(p, n, regs);
    else
        ehr_left_ -= (int64_t)n;
    return p;
}

/* ehr_reallocate_ is realloc of what may be a sampled object. As soon as it is done, another thread may have the old address. */
void *ehr_reallocate_(void *old, size_t n, size_t unused, const eh_elf_regs_t *regs)
{
    struct ehr_live l;
    bool sampled = take(old, &l);
    (void)unused;
    void *p = ehr_realloc_(old, n);
    if (sampled && (p || n == 0 || !remember(old, &l)))
        freed(&l);
    return counted(p, n, regs);
}

int ehr_do_posix_memalign_(void **p, size_t align, size_t n, const eh_elf_regs_t *regs)
{
    int failed = ehr_posix_memalign_(p, align, n);
    if (!failed)
        counted(*p, n, regs);
    return failed;
}

/* followed opens an object and looks up its eh_elf at once: later, in a sandbox, it could not be opened. */
static void *followed(const char *path, int mode)
{
    void *handle = ehr_dlopen_(path, mode);
    if (handle) /* otherwise dlerror has a message, which must stay */
        ehr_look_();
    return handle;
}

/* ehr_to_open_ returns what to call for a dlopen. New objects are looked up there and then, or if the loader would look for them elsewhere then, in the next one. */
void *(*ehr_to_open_(const char *path))(const char *, int)
{
    return path && !strchr(path, '$') && (strchr(path, '/') || (path[0] != 0 && ehr_bare_)) ? followed : ehr_dlopen_;
}

/* ------------------------------------------------------------------------------ the start */

/*
 * The runtime of a sanitizer has its own malloc, and is left alone. AddressSanitizer's shared runtime ends a program
 * that has another library before it, unless this function turns the check off; ASAN_OPTIONS overrides it.
 */
int __sanitizer_get_ownership(const volatile void *) __attribute__((weak));
const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__asan_default_options(void) { return "verify_asan_link_order=0"; }

/* has_own_malloc allocates as the program does, and checks whether that is counted. It leaves no trace in the profile. */
static bool has_own_malloc(void)
{
    enum { SOME = 16 };
    void *(*its_malloc)(size_t);
    void (*its_free)(void *);
    if (__sanitizer_get_ownership)
        return true;
    void *m = dlsym(RTLD_DEFAULT, "malloc"), *f = dlsym(RTLD_DEFAULT, "free");
    if (!m || !f)
        return false;
    memcpy(&its_malloc, &m, sizeof m);
    memcpy(&its_free, &f, sizeof f);
    const int64_t before = ehr_left_, far = INT64_MAX;
    ehr_left_ = far;
    void *p = its_malloc(SOME);
    bool same = ehr_left_ == far;
    its_free(p);
    ehr_left_ = before;
    return same;
}

/* begin runs before the program's own constructors where the loader lets it, in the main thread.
 * ehu_be_quiet_ forbids all system calls of walks from then on: a sandbox may punish them. */
__attribute__((constructor)) static void begin(void)
{
    int saved = errno;
    ehr_find_();
    struct ehr_process *p = __libc_malloc && ehr_begin_() && ehu_init() == 0 ? ehr_process_() : NULL;
    if (p) {
        ehu_stats_t s;
        ehu_stats(&s);
        p->objects = s.objects;
        p->eh_elfs = s.eh_elfs;
        ehr_write_maps_(p);
        p->own_malloc = has_own_malloc();
        if (p->own_malloc)
            ehr_end_();
        ehu_be_quiet_();
    }
    begun = true;
    errno = saved;
}
