/*
 * What libstdc++'s personality routine said of a type of exception at a place. It is asked once; its answer goes
 * into the exception as the routine itself would have put it there.
 */
#include <dlfcn.h>

#include "eh.h"

ehx_personality *ehx_gxx_;

/* libstdc++'s __cxa_exception, whose end is the ehx_exception (unwind-cxx.h): part of its binary interface, since
 * exceptions of one libstdc++ are caught by code that another one throws from. */
struct cxa {
    uint64_t type;
    void *destructor, *unexpected, *terminate, *next;
    int32_t handlers, selector;
    uint64_t action, lsda, pad, object;
    struct ehx_exception e;
};
_Static_assert(offsetof(struct cxa, e) == 80 && sizeof(struct cxa) == 112, "unwind-cxx.h");

static struct cxa *cxa_of(const struct ehx_exception *e) { return (struct cxa *)(uintptr_t)((uintptr_t)e - offsetof(struct cxa, e)); }

#define CLASS_GNU 0x474e5543432b2b00u /* "GNUCC++", and no dependent exception */

/*
 * ehx_type_ is the type of an exception whose answers can be remembered, else 0. Of pointers what is caught is the
 * pointer's value, which is another each time.
 */
uint64_t ehx_type_(const struct ehx_exception *e)
{
    if (e->class != CLASS_GNU || !ehx_gxx_)
        return 0;
    uint64_t type = cxa_of(e)->type;
    const char *name = (const char *)(uintptr_t)ehx_word_(type + 8);
    if (*name == '*')
        name++;
    return *name == 'P' || *name == 'M' || *name == 'D' || *name == 'F' || *name == 'A' || *name == 'K' ? 0 : type;
}

/* Slots as those of known.c. */
enum { TYPE_SLOTS = 512 };
struct said {
    _Atomic uint64_t turn; /* odd while it is written; 0: nothing is there */
    struct answer {
        uint64_t place, type, loads;
        uint64_t action, object; /* the object that is caught, less the exception */
        int32_t selector;
        bool catches;
    } is;
};
_Static_assert(sizeof(struct said) <= 64, "a cache line");
static _Alignas(64) struct said said[TYPE_SLOTS];

static struct said *slot(uint64_t type, uint64_t place)
{
    return &said[(place * 0x9e3779b97f4a7c15u ^ type * 0xc2b2ae3d27d4eb4fu) >> 55];
}

enum ehx_verdict ehx_recall_(struct ehx_exception *e, uint64_t type, uint64_t place, uint64_t loads, const struct ehx_what *is)
{
    if (type == 0 || is->personality != ehx_gxx_)
        return VERDICT_UNKNOWN;
    struct said *s = slot(type, place);
    uint64_t turn = atomic_load_explicit(&s->turn, memory_order_acquire);
    struct answer a = s->is;
    atomic_thread_fence(memory_order_acquire);
    if (turn % 2 != 0 || atomic_load_explicit(&s->turn, memory_order_relaxed) != turn || a.place != place || a.type != type ||
        a.loads != loads)
        return VERDICT_UNKNOWN;
    if (!a.catches)
        return VERDICT_PASSES;
    struct cxa *x = cxa_of(e);
    x->selector = a.selector;
    x->action = a.action;
    x->lsda = is->lsda;
    x->pad = is->pad;
    x->object = (uint64_t)(uintptr_t)e + a.object;
    return VERDICT_CATCHES;
}

/* ehx_remember_ notes what the routine has just said in the search phase. */
void ehx_remember_(struct ehx_exception *e, uint64_t type, uint64_t place, uint64_t loads, const struct ehx_what *is, bool catches)
{
    if (type == 0 || is->personality != ehx_gxx_)
        return;
    struct answer a = {.place = place, .type = type, .loads = loads, .catches = catches};
    if (catches) {
        const struct cxa *x = cxa_of(e);
        if (x->selector <= 0 || x->pad != is->pad || x->lsda != is->lsda)
            return;
        a.selector = x->selector;
        a.action = x->action;
        a.object = x->object - (uint64_t)(uintptr_t)e;
    }
    struct said *s = slot(type, place);
    uint64_t turn = atomic_load_explicit(&s->turn, memory_order_relaxed);
    if (turn % 2 != 0 || !atomic_compare_exchange_strong(&s->turn, &turn, turn + 1))
        return;
    s->is = a;
    atomic_store_explicit(&s->turn, turn + 2, memory_order_release);
}

/* ehx_caught_ tells where the handler is that the search phase found, which the routine noted in the exception. */
bool ehx_caught_(const struct ehx_exception *e, const struct ehx_what *is, uint64_t *pad, uint64_t *selector)
{
    if (is->personality != ehx_gxx_ || e->class != CLASS_GNU || !ehx_gxx_)
        return false;
    const struct cxa *x = cxa_of(e);
    *pad = x->pad;
    *selector = (uint64_t)(int64_t)x->selector;
    return x->selector > 0 && x->pad == is->pad && x->pad != 0;
}

void ehx_types_init_(void)
{
    Dl_info info;
    void *allocate = dlvsym(RTLD_DEFAULT, "__cxa_allocate_exception", "CXXABI_1.3");
    if (allocate && dladdr(allocate, &info) != 0 && info.dli_fname && strstr(info.dli_fname, "libstdc++"))
        ehx_gxx_ = (ehx_personality *)(uintptr_t)dlvsym(RTLD_DEFAULT, "__gxx_personality_v0", "CXXABI_1.3");
}
