/*
 * The loader's counts. dl_iterate_phdr gives how many objects it has loaded (dlpi_adds) and unloaded (dlpi_subs), but
 * takes the loader's lock, which all threads share. It has two words in _rtld_global: how many it has loaded, and how
 * many of these there are in the first namespace, next to the first of them. Each is recognised as a word that agrees
 * with dl_iterate_phdr before and after the real libgcc is loaded. If they are not found then, the loader is asked at
 * each throw.
 */
#include <dlfcn.h>
#include <link.h>

#include "eh.h"

const uint64_t *ehx_loads_;
const uint32_t *ehx_loaded_;

struct counts {
    uint64_t adds, subs;
};

static int take_counts(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    *(struct counts *)arg = (struct counts){info->dlpi_adds, info->dlpi_subs};
    return 1;
}

static struct counts ask(void)
{
    struct counts c = {0};
    dl_iterate_phdr(take_counts, &c);
    return c;
}

uint64_t ehx_ask_loads_(void)
{
    struct counts c = ask();
    return c.adds + c.subs;
}

enum { MAX_WORDS = 1024 };
static const uint64_t *words;
static size_t num_words;
static struct counts before;
static bool had[MAX_WORDS];

static uint64_t word(size_t i) { return __atomic_load_n(&words[i], __ATOMIC_RELAXED); }

/* loaded_at reports whether a word begins with the number of loaded objects; that follows
   a pointer to the first of them. */
static bool loaded_at(size_t i, const struct counts *c)
{
    return i > 0 && words[i - 1] == (uint64_t)(uintptr_t)_r_debug.r_map && (uint32_t)word(i) == c->adds - c->subs;
}

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
    before = ask();
    for (size_t i = 0; i < num_words; i++)
        had[i] = word(i) == before.adds || loaded_at(i, &before);
}

void ehx_loads_after_(void)
{
    struct counts after = ask();
    const uint64_t *adds = NULL, *loaded = NULL;
    int found = 0;
    for (size_t i = 0; i < num_words && after.adds != before.adds; i++) {
        if (!had[i])
            continue;
        if (loaded_at(i, &after))
            loaded = &words[i];
        else if (word(i) == after.adds && (found++, true)) /* as many as are loaded, as long as none was unloaded */
            adds = &words[i];
    }
    if (found != 1 || !loaded)
        return;
    ehx_loads_ = adds;
    ehx_loaded_ = (const uint32_t *)(const void *)loaded;
}

/* ---------------------------------------------------------------------------------- code made at run time */

/*
 * Registered code may be where an unloaded object was: the table is made again, and everything is forgotten. What
 * another thread stores meanwhile is about code on its stack.
 */
static void registers(void)
{
    static _Atomic uint64_t seen;
    if (!ehx_active_)
        return;
    struct counts now = ask();
    if (atomic_load(&seen) == now.subs || !ehu_catch_up_(now.adds + now.subs))
        return;
    ehx_forget_();
    atomic_store(&seen, now.subs);
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
