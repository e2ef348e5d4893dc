/*
 * The loader's counts. dl_iterate_phdr gives how many objects it has loaded (dlpi_adds) and unloaded (dlpi_subs), but
 * takes the loader's lock, which all threads share. Its data has two such words: the number of loaded objects, behind
 * its locks, and the number of those in the first namespace, beside the pointer to the first of them. If a word cannot be
 * found, or disagrees with dl_iterate_phdr, the loader is asked at each throw.
 */
#include <link.h>
#include <pthread.h>

#include "eh.h"

const uint64_t *ehx_loads_;
const uint32_t *ehx_loaded_;
const uint64_t *ehx_entry_loads_;

uint64_t ehx_ask_loads_(void)
{
    struct ehu_counts c;
    return ehu_ask_loader_(&c) ? c.adds + c.subs : 0;
}

/* adds_word follows the lock that was found, or another one behind it: glibc 2.35 has three. */
static const uint64_t *adds_word(uint64_t adds)
{
    const pthread_mutex_t *lock = ehu_loader_.lock;
    for (int i = 1; lock && i <= 2; i++) {
        const uint64_t *word = (const void *)(lock + i);
        if (__atomic_load_n(word, __ATOMIC_RELAXED) == adds)
            return word;
    }
    return NULL;
}

/* loaded_word begins with the number of loaded objects; it follows a pointer to the first of them. */
static const uint32_t *loaded_word(uint64_t loaded)
{
    const uint64_t *word = NULL;
    for (size_t i = 1; i < ehu_loader_.n; i++) {
        const uint64_t *w = &ehu_loader_.words[i];
        if (w[-1] != (uint64_t)(uintptr_t)_r_debug.r_map || (uint32_t)__atomic_load_n(w, __ATOMIC_RELAXED) != loaded)
            continue;
        if (word)
            return NULL;
        word = w;
    }
    return (const void *)word;
}

void ehx_loads_init_(void)
{
    struct ehu_counts c;
    if (!ehu_ask_loader_(&c))
        return;
    const uint64_t *adds = adds_word(c.adds);
    const uint32_t *loaded = loaded_word(c.adds - c.subs);
    if (!adds || !loaded)
        return;
    ehx_loads_ = adds;
    ehx_loaded_ = loaded;
}

/* ---------------------------------------------------------------------------------- code made at run time */

/*
 * Registered code may lie where an unloaded object was: make the table again and forget all slots. What another thread
 * stores in the meantime stays valid, since it concerns code on that thread's stack.
 */
static void registers(void)
{
    static _Atomic uint64_t seen;
    if (!ehx_active_)
        return;
    struct ehu_counts now;
    if (!ehu_ask_loader_(&now) || atomic_load(&seen) == now.subs || !ehu_catch_up_(now.adds + now.subs))
        return;
    ehx_forget_();
    atomic_store(&seen, now.subs);
}

#define REGISTERS(name, params, args)                        \
    void libgcc_##name params;                               \
    __attribute__((visibility("default"))) void name params; \
    void name params                                         \
    {                                                        \
        registers();                                         \
        libgcc_##name args;                                  \
    }

REGISTERS(__register_frame, (void *begin), (begin))
REGISTERS(__register_frame_table, (void *begin), (begin))
REGISTERS(__register_frame_info, (void *begin, void *object), (begin, object))
REGISTERS(__register_frame_info_table, (void *begin, void *object), (begin, object))
REGISTERS(__register_frame_info_bases, (void *begin, void *object, void *text, void *data), (begin, object, text, data))
REGISTERS(__register_frame_info_table_bases, (void *begin, void *object, void *text, void *data), (begin, object, text, data))
