/*
 * The answers of libstdc++'s personality routine for a type of exception at a place. It is called once;
 * afterwards its answer is put into the exception as the routine itself would have done.
 */
#include <dlfcn.h>
#include <link.h>

#include "eh.h"

ehx_personality *ehx_gxx_;

/*
 * ehx_type_ returns the type of an exception whose answers can be remembered, otherwise 0. For a pointer the
 * handler gets the pointer's value, which differs each time.
 */
uint64_t ehx_type_(const struct ehx_exception *e)
{
    if (e->class != CLASS_GNU || !ehx_gxx_)
        return 0;
    uint64_t type = ehx_cxa_(e)->type;
    const char *name = (const char *)(uintptr_t)ehx_word_(type + 8);
    if (*name == '*')
        name++;
    return *name == 'P' || *name == 'M' || *name == 'D' || *name == 'F' || *name == 'A' || *name == 'K' ? 0 : type;
}

enum { TYPE_SLOTS = 512 };
struct said {
    _Alignas(64) _Atomic uint64_t turn;
    struct answer {
        uint64_t place, type, loads;
        struct ehx_caught caught;
        int32_t selector;
        uint32_t catches;
    } is;
};
static struct said said[TYPE_SLOTS];

static struct said *slot(uint64_t type, uint64_t place)
{
    return &said[(place * 0x9e3779b97f4a7c15u ^ type * 0xc2b2ae3d27d4eb4fu) >> 55];
}

enum ehx_verdict ehx_recall_(struct ehx_exception *e, uint64_t type, uint64_t place, uint64_t loads)
{
    struct said *s = slot(type, place);
    struct answer a;
    uint64_t turn = ehx_begin_reading_(&s->turn);
    ehx_copy_from_(&a, &s->is, sizeof a);
    if (type == 0 || !ehx_unchanged_(&s->turn, turn) || a.place != place || a.type != type || a.loads != loads)
        return VERDICT_UNKNOWN;
    if (!a.catches)
        return VERDICT_PASSES;
    ehx_put_(e, a.selector, &a.caught);
    return VERDICT_CATCHES;
}

static void write_said(struct said *s, const struct answer *a)
{
    uint64_t turn;
    if (!ehx_begin_writing_(&s->turn, &turn))
        return;
    ehx_copy_to_(&s->is, a, sizeof *a);
    ehx_end_writing_(&s->turn, turn);
}

/* in_object reports whether an address lies in an object: the loader's counts do not tell when a type made at run time changes. */
static bool in_object(uint64_t address)
{
    struct dl_find_object o;
    return _dl_find_object((void *)(uintptr_t)address, &o) == 0;
}

/* ehx_remember_ stores the routine's latest answer of the search phase. */
void ehx_remember_(struct ehx_exception *e, uint64_t type, uint64_t place, uint64_t loads, const struct ehx_what *is, bool catches)
{
    if (type == 0 || is->personality != ehx_gxx_ || !in_object(type))
        return;
    struct answer a = {.place = place, .type = type, .loads = loads, .catches = catches};
    if (catches) {
        ehx_get_(e, &a.selector, &a.caught);
        if (a.selector <= 0 || a.caught.pad != ehx_pad_(is->pad) || a.caught.lsda != is->lsda)
            return;
    }
    write_said(slot(type, place), &a);
}

/* ehx_caught_ reports whether the routine has stored in the exception the place of the
   handler that the search phase found. */
bool ehx_caught_(const struct ehx_exception *e, const struct ehx_what *is, uint64_t pad)
{
    if (is->personality != ehx_gxx_ || e->class != CLASS_GNU || !ehx_gxx_)
        return false;
    const struct ehx_cxa *x = ehx_cxa_(e);
    return x->selector > 0 && x->caught.pad == pad && pad != 0;
}

void ehx_types_init_(void)
{
    struct dl_find_object o;
    void *allocate = dlvsym(RTLD_DEFAULT, "__cxa_allocate_exception", "CXXABI_1.3");
    if (allocate && _dl_find_object(allocate, &o) == 0 && strstr(o.dlfo_link_map->l_name, "libstdc++"))
        ehx_gxx_ = (ehx_personality *)(uintptr_t)dlvsym(RTLD_DEFAULT, "__gxx_personality_v0", "CXXABI_1.3");
}
