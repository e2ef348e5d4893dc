/* The loader's counts, see loader.c. If they cannot be found, or disagree with dl_iterate_phdr, the loader is asked at each throw. */
#include "eh.h"

const uint64_t *ehx_loads_;
const uint32_t *ehx_loaded_;
const uint64_t *ehx_entry_loads_;

uint64_t ehx_ask_loads_(void)
{
    struct ehu_counts c;
    return ehu_ask_loader_(&c) ? c.adds + c.subs : 0;
}

void ehx_loads_init_(void)
{
    ehu_find_counts_();
    ehx_loads_ = ehu_loader_.adds;
    ehx_loaded_ = ehu_loader_.loaded;
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
REGISTERS(__register_frame_info_table_bases, (void *begin, void *object, void *text, void *data),
    (begin, object, text, data))
