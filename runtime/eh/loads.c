/*
 * The loader's count of what it has loaded. dl_iterate_phdr gives it (dlpi_adds), but takes the loader's lock, which
 * all threads share. The word itself is one of _rtld_global, somewhere: it is the one that has the count before and
 * after the real libgcc is loaded. If it is not seen to be there, once, the loader is asked at each throw.
 */
#include <dlfcn.h>
#include <link.h>

#include "eh.h"

const uint64_t *ehx_loads_;

static int take_adds(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    *(uint64_t *)arg = info->dlpi_adds;
    return 1;
}

uint64_t ehx_ask_loads_(void)
{
    uint64_t adds = 0;
    dl_iterate_phdr(take_adds, &adds);
    return adds;
}

enum { MAX_WORDS = 1024 };
static const uint64_t *words;
static size_t num_words;
static uint64_t before;
static bool had[MAX_WORDS];

void ehx_loads_before_(void)
{
    Dl_info info;
    const ElfW(Sym) *symbol = NULL;
    void *global = dlvsym(RTLD_DEFAULT, "_rtld_global", "GLIBC_PRIVATE");
    if (!global || dladdr1(global, &info, (void **)&symbol, RTLD_DL_SYMENT) == 0 || !symbol)
        return;
    words = global;
    num_words = symbol->st_size / sizeof *words;
    if (num_words > MAX_WORDS)
        num_words = MAX_WORDS;
    before = ehx_ask_loads_();
    for (size_t i = 0; i < num_words; i++)
        had[i] = __atomic_load_n(&words[i], __ATOMIC_RELAXED) == before;
}

void ehx_loads_after_(void)
{
    uint64_t after = ehx_ask_loads_();
    const uint64_t *found = NULL;
    for (size_t i = 0; i < num_words && after != before; i++) {
        /* how many are loaded now, which is the same as long as none was unloaded, comes after the first of them */
        if (i > 0 && words[i - 1] == (uint64_t)(uintptr_t)_r_debug.r_map)
            continue;
        if (!had[i] || __atomic_load_n(&words[i], __ATOMIC_RELAXED) != after)
            continue;
        if (found)
            return; /* two of them */
        found = &words[i];
    }
    ehx_loads_ = found;
}

/* ---------------------------------------------------------------------------------- code made at run time */

static int take_subs(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    *(uint64_t *)arg = info->dlpi_subs;
    return 1;
}

/*
 * Code that is registered may be where an object was that has gone, which the count of loads does not tell: the table
 * is made anew, and nothing remembered. What another thread notes meanwhile is of code that is on its stack.
 */
static void registers(void)
{
    static _Atomic uint64_t seen;
    uint64_t subs = 0;
    if (!ehx_active_)
        return;
    dl_iterate_phdr(take_subs, &subs);
    if (atomic_load(&seen) == subs || ehu_refresh() < 0)
        return;
    ehx_forget_();
    atomic_store(&seen, subs);
}

#define REGISTERS(name, member, params, args)                       \
    __attribute__((visibility("default"))) void name params;        \
    void name params                                                \
    {                                                               \
        registers();                                                \
        ehx_real_.member args;                                      \
    }

REGISTERS(__register_frame, frame, (void *begin), (begin))
REGISTERS(__register_frame_table, frame_table, (void *begin), (begin))
REGISTERS(__register_frame_info, info, (void *begin, void *object), (begin, object))
REGISTERS(__register_frame_info_table, info_table, (void *begin, void *object), (begin, object))
REGISTERS(__register_frame_info_bases, bases, (void *begin, void *object, void *text, void *data), (begin, object, text, data))
REGISTERS(__register_frame_info_table_bases, table_bases, (void *begin, void *object, void *text, void *data),
          (begin, object, text, data))
