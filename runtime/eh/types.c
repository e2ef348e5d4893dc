/*
 * The answers of libstdc++'s personality routine for a type of exception at a place. It is called once;
 * afterwards its answer is put into the exception as the routine itself would have done.
 */
#include <dlfcn.h>
#include <link.h>

#include "eh.h"

/* The thrown object: std::rethrow_exception throws another exception, whose first word says where the object is. */
static bool is_dependent(const struct ehx_exception *e) { return e->class == CLASS_DEPENDENT; }

static uint64_t thrown_object(const struct ehx_exception *e)
{
    enum { HEADER = 32 }; /* sizeof(_Unwind_Exception) */
    return is_dependent(e) ? ehx_cxa_(e)->type : (uint64_t)(uintptr_t)e + HEADER;
}

/* first_letter returns the first letter of a type's mangled name (Itanium C++ ABI, 5.1.5): P pointer, M
 * pointer to member, D decltype(nullptr), F function, A array, K const; class names begin with a digit or N,
 * builtin ones with a small letter. The name is the second word of std::type_info. A leading * says that
 * only its address identifies it. */
static char first_letter(uint64_t type)
{
    const char *name = (const char *)(uintptr_t)ehx_word_(type + 8);
    return name[*name == '*'];
}

/* ehx_type_ returns the type of an exception whose answers can be remembered, otherwise 0. For members,
 * functions, arrays and nullptr the handler's match depends on more than the type. CLASS_GNU guarantees
 * that the words in front of the exception are libstdc++'s. */
uint64_t ehx_type_(const struct ehx_exception *e)
{
    if ((e->class != CLASS_GNU && !is_dependent(e)) || !ehx_gxx_)
        return 0;
    uint64_t type = is_dependent(e) ? ehx_word_(thrown_object(e) - sizeof(struct ehx_cxa)) : ehx_cxa_(e)->type;
    char first = first_letter(type);
    return first == 'M' || first == 'D' || first == 'F' || first == 'A' || first == 'K' ? 0 : type;
}

bool ehx_is_pointer_(uint64_t type) { return first_letter(type) == 'P'; }

/* libstdc++'s kinds of types, by the first word of a type_info; 0 if the program began without libstdc++. */
static struct {
    uint64_t pointer, fundamental, enumeration, class, derived;
} kinds_of_types;

/*
 * points_plainly reports whether a pointer of a type is the same after any conversion that a handler may do: it points
 * to no class, or to one whose bases are single, public and not virtual, all the way up.
 */
static bool points_plainly(uint64_t type)
{
    /* Offsets of __pbase_type_info::__pointee and __si_class_type_info::__base_type (cxxabi.h). */
    enum { POINTEE = 24, BASE = 16 };
    if (kinds_of_types.pointer == 0 || ehx_word_(type) != kinds_of_types.pointer)
        return false;
    uint64_t to = ehx_word_(type + POINTEE), kind = ehx_word_(to);
    while (kind == kinds_of_types.derived) {
        to = ehx_word_(to + BASE);
        kind = ehx_word_(to);
    }
    return kind == kinds_of_types.class || kind == kinds_of_types.fundamental || kind == kinds_of_types.enumeration ||
        kind == kinds_of_types.pointer;
}

enum { TYPE_SLOTS = 512 };
enum { PASSES, CATCHES_OBJECT, CATCHES_POINTER /* the handler gets the pointer that was thrown */ };
/* caught.object is an offset from the thrown object, or from the thrown pointer. */
struct said {
    _Alignas(64) _Atomic uint64_t turn;
    struct answer {
        uint64_t place, type, loads;
        struct ehx_caught caught;
        int32_t selector;
        uint32_t verdict;
    } is;
};
static struct said said[TYPE_SLOTS];

/* slot mixes place and type by two odd constants of 64 bits; the upper 9 bits number 512 slots. */
static struct said *slot(uint64_t type, uint64_t place)
{
    return &said[(place * 0x9e3779b97f4a7c15u ^ type * 0xc2b2ae3d27d4eb4fu) >> 55];
}

/* Nothing is stored for type 0. */
enum ehx_verdict ehx_recall_(struct ehx_exception *e, uint64_t type, uint64_t place, uint64_t loads)
{
    struct said *s = slot(type, place);
    struct answer a;
    uint64_t turn = ehx_begin_reading_(&s->turn);
    ehx_copy_from_(&a, &s->is, sizeof a);
    if (!ehx_unchanged_(&s->turn, turn) || a.place != place || a.type != type || a.loads != loads)
        return VERDICT_UNKNOWN;
    if (a.verdict == PASSES)
        return VERDICT_PASSES;
    struct ehx_cxa *x = ehx_cxa_(e);
    a.caught.object += unlikely(a.verdict == CATCHES_POINTER) ? ehx_word_(thrown_object(e)) : thrown_object(e);
    x->selector = a.selector;
    x->caught = a.caught;
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

/* base_of fills in how a handler's object follows from what was thrown. Of a pointer, catch (...) gets the object that holds it. */
static bool base_of(struct answer *a, const struct ehx_exception *e)
{
    uint64_t object = thrown_object(e), got = a->caught.object;
    bool pointer = ehx_is_pointer_(a->type), own = got == object;
    a->verdict = CATCHES_OBJECT;
    a->caught.object = got - object;
    if (!pointer)
        return true;
    if (own == (got == ehx_word_(object)))
        return false; /* neither, or both */
    if (!own) {
        a->verdict = CATCHES_POINTER;
        a->caught.object = 0;
    }
    return own || points_plainly(a->type);
}

/* ehx_remember_ stores the routine's latest answer of the search phase. It stores nothing that would not be
 * the same next time: a type made at run time, a selector below 1 (an exception specification), or a pad
 * that the site table does not name. */
void ehx_remember_(struct ehx_exception *e, uint64_t type, uint64_t place, uint64_t loads, const struct ehx_what *is,
    bool catches)
{
    if (type == 0 || is->personality != ehx_gxx_ || !in_object(type))
        return;
    struct answer a = {.place = place, .type = type, .loads = loads};
    if (catches) {
        const struct ehx_cxa *x = ehx_cxa_(e);
        a.selector = x->selector;
        a.caught = x->caught;
        if (a.selector <= 0 || a.caught.pad != ehx_pad_(is->pad) || a.caught.lsda != is->lsda || !base_of(&a, e))
            return;
    }
    write_said(slot(type, place), &a);
}

/* ehx_caught_ reports whether the routine has stored in the exception the place of the
   handler that the search phase found. */
bool ehx_caught_(const struct ehx_exception *e, const struct ehx_what *is, uint64_t pad)
{
    if (is->personality != ehx_gxx_ || (e->class | 1) != CLASS_DEPENDENT || !ehx_gxx_)
        return false;
    const struct ehx_cxa *x = ehx_cxa_(e);
    return x->selector > 0 && x->caught.pad == pad && pad != 0;
}

/* vptr returns the first word of a type_info of a kind. A vtable begins with two words, the offset to the
 * top and the type_info, before what objects point to (Itanium C++ ABI, 2.5.2). */
static uint64_t vptr(const char *vtable)
{
    uint64_t address = (uint64_t)(uintptr_t)dlsym(RTLD_DEFAULT, vtable);
    return address ? address + 16 : 0;
}

/* ehx_types_init_ finds libstdc++'s routine and kinds of types among the program's symbols. RTLD_DEFAULT
 * finds what is loaded at the start; one that comes by dlopen is noticed when a frame with its routine is
 * met (take_personality), without its types. */
void ehx_types_init_(void)
{
    struct dl_find_object o;
    void *routine = dlvsym(RTLD_DEFAULT, "__gxx_personality_v0", "CXXABI_1.3");
    if (!routine || _dl_find_object(routine, &o) != 0 || !ehx_named_(o.dlfo_link_map, DT_SONAME, LIBSTDCXX))
        return;
    ehx_gxx_ = (ehx_personality *)(uintptr_t)routine;
    kinds_of_types.fundamental = vptr("_ZTVN10__cxxabiv123__fundamental_type_infoE");
    kinds_of_types.enumeration = vptr("_ZTVN10__cxxabiv116__enum_type_infoE");
    kinds_of_types.class = vptr("_ZTVN10__cxxabiv117__class_type_infoE");
    kinds_of_types.derived = vptr("_ZTVN10__cxxabiv120__si_class_type_infoE");
    kinds_of_types.pointer = vptr("_ZTVN10__cxxabiv119__pointer_type_infoE");
}
