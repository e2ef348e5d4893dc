/* What libgcc and this library do when a program starts. */
#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>

#include "eh.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

bool ehx_active_;

/* Programs of gcc 4.8 to 5 read this one; others have their own hidden copy. */
__attribute__((visibility("default"))) uint32_t ehx_cpu_model[4];
__asm__(".symver ehx_cpu_model, __cpu_model@GCC_4.8.0, remove");

/* They call this one first, also in resolvers of indirect functions. */
__attribute__((visibility("default"))) int ehx_cpu_indicator_init(void);
__asm__(".symver ehx_cpu_indicator_init, __cpu_indicator_init@GCC_4.8.0, remove");
int ehx_cpu_indicator_init(void)
{
    int result = libgcc___cpu_indicator_init();
    memcpy(ehx_cpu_model, libgcc___cpu_model, sizeof ehx_cpu_model);
    return result;
}

/* With shadow stacks, a throw would have to pop these, too. Without them rdsspq does nothing (Intel SDM
 * volume 2, RDSSPD/RDSSPQ), and leaves 0. */
static bool has_shadow_stack(void)
{
    uint64_t ssp = 0;
    __asm__("rdsspq %0" : "+r"(ssp));
    return ssp != 0;
}

static ehx_reason stop_at_once(void *context, void *arg)
{
    (void)context;
    (void)arg;
    return END_OF_STACK;
}

void ehx_learn_sizes_(void)
{
    static _Atomic bool learnt;
    if (atomic_load_explicit(&learnt, memory_order_acquire))
        return;
    libgcc__Unwind_Backtrace(stop_at_once, NULL);
    atomic_store_explicit(&learnt, true, memory_order_release);
}

/* has_sites reports whether any object's eh_elf was built for exceptions: otherwise every throw would be
 * handed over, after work. */
static bool has_sites(void)
{
    struct ehu_reading r = ehu_enter_(0);
    bool found = false;
    for (size_t i = 0; r.table && i < r.table->n && !found; i++)
        found = r.table->object[i].exceptions;
    ehu_leave_(r);
    return found;
}

/* turn_on reports whether throws are taken over. */
static bool turn_on(bool secure)
{
    const char *off = ehu_getenv_(secure, "EHASM_EXCEPTIONS");
    if ((off && strcmp(off, "0") == 0) || has_shadow_stack() || ehu_init() != 0)
        return false;
    void *find = dlsym(RTLD_DEFAULT, "_Unwind_Find_FDE");
    struct dl_find_object a, b;
    if (!find || _dl_find_object(find, &a) != 0 || _dl_find_object((void *)(uintptr_t)&turn_on, &b) != 0 ||
        a.dlfo_map_start != b.dlfo_map_start)
        return false; /* the program has its own way to find tables */
    if (!has_sites())
        return false;
    ehx_loads_init_();
    ehx_types_init_();
    ehx_begin_();
    /* Touch the pages now: a first throw, perhaps of bad_alloc or under a cgroup's limit, must not need new
     * ones. Kernels before Linux 5.14 do not know the request; there, throws touch them one by one. */
    uintptr_t from = (uintptr_t)ehx_known_ & ~(uintptr_t)(PAGE - 1);
    madvise((void *)from, (uintptr_t)(ehx_known_ + KNOWN_FEW) - from, MADV_POPULATE_WRITE);
    return true;
}

/* 101 is the earliest priority that the implementation does not reserve: constructors of the program's
 * objects may throw. */
__attribute__((constructor(101))) static void start(void)
{
    static void *const accessors[NUM_ACCESSORS] = {
        libgcc__Unwind_GetGR, libgcc__Unwind_SetGR, libgcc__Unwind_GetIP, libgcc__Unwind_GetIPInfo,
            libgcc__Unwind_SetIP, libgcc__Unwind_GetCFA,
        libgcc__Unwind_GetLanguageSpecificData, libgcc__Unwind_GetRegionStart, libgcc__Unwind_GetTextRelBase,
        libgcc__Unwind_GetDataRelBase};
    bool secure = ehu_secure_();
    ehx_cpu_indicator_init();
    ehx_stats_init_(secure);
    ehx_active_ = turn_on(secure);
    if (ehx_active_) {
        ehx_entry_loads_ = ehx_counting_ ? NULL : ehx_loads_;
        return;
    }
    ehx_learn_sizes_();
    memcpy(ehx_accessors_, accessors, sizeof ehx_accessors_);
}
