/* The table of sites of an eh_elf: docs/abi.md, section 6. Every number is checked before it is used. */
#include <dlfcn.h>
#include <link.h>

#include "eh.h"

ehx_personality *ehx_gxx_;

enum { HEADER = 24, PERSONALITY = 16, GROUP = 8, PER_GROUP = 32, INDIRECT = 1, CALL_SIZE = 5, ALIGNMENT = 16 };
enum { FORM_SKIP, FORM_CLEANUP, FORM_OTHER, FORMS }; /* of a site: either of CALL_SIZE; size and kind follow */
/* in the place of a kind: bytes of arguments and the kind follow; words */
enum { ARGS_FOLLOW = 6, ARGS_MAX = UINT16_MAX };

struct reader {
    const uint8_t *p, *end;
    bool bad;
};

/* uleb reads an unsigned LEB128 number. At the end, or beyond 64 bits, it returns 0 and marks the reader as
 * bad; later reads do the same, so a caller checks once. */
static uint64_t uleb(struct reader *r)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64 && r->p < r->end; shift += 7) {
        uint8_t b = *r->p++;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80)
            return v;
    }
    r->bad = true;
    return 0;
}

static uint32_t u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static uint64_t u64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* arguments reads a site's arguments and the kind that follows; it returns their words. */
static uint64_t arguments(struct reader *r, uint64_t *kind)
{
    uint64_t size = uleb(r);
    *kind = uleb(r);
    bool pops = *kind == KIND_CLEANUP || *kind == KIND_ACTION || *kind == KIND_ACTION_CLEANUP || *kind == KIND_ASK;
    r->bad = r->bad || !pops || size % 8 != 0 || size == 0 || size / 8 > ARGS_MAX;
    return size / 8;
}

/* in_function reads the sites of the function from start on, of size bytes, until pc is found. A pc between
 * sites is "ask": in C++ the routine terminates there, since a call that is in no site must not throw. */
static void in_function(struct reader *r, uint64_t pc, uint64_t start, uint64_t size, uint64_t bias,
    struct ehx_what *is)
{
    is->step.kind = KIND_ASK;
    for (uint64_t pos = start; r->p < r->end;) {
        uint64_t gap = uleb(r), form = gap % FORMS, n = CALL_SIZE,
            kind = form == FORM_CLEANUP ? KIND_CLEANUP : KIND_SKIP, up = size, args = 0;
        pos += gap / FORMS;
        if (form == FORM_OTHER) {
            n = uleb(r);
            kind = n & 7;
            n >>= 3;
        }
        if (kind == ARGS_FOLLOW)
            args = arguments(r, &kind);
        if (kind == KIND_CLEANUP || kind == KIND_ACTION || kind == KIND_ACTION_CLEANUP)
            up = uleb(r);
        if (r->bad || kind > KIND_ASK || up == 0 || up > size) {
            is->step.kind = KIND_HAND_OVER;
            return;
        }
        if (pc < pos)
            return;
        if (pc - pos < n) {
            is->step.kind = (uint8_t)(kind | (args != 0 ? KIND_ARGS : 0));
            is->pad = ehx_pad_(bias + start + (size - up)) | args << PAD_BITS;
            return;
        }
        pos += n;
    }
}

bool ehx_named_(const struct link_map *map, int64_t tag, const char *prefix)
{
    uint64_t names = 0;
    for (const ElfW(Dyn) *d = map->l_ld; d && d->d_tag != DT_NULL; d++)
        if (d->d_tag == DT_STRTAB)
            names = d->d_un.d_ptr;
    if (names < map->l_addr) /* the loader has not relocated a section that it may not write to */
        names += map->l_addr;
    for (const ElfW(Dyn) *d = map->l_ld; d && d->d_tag != DT_NULL; d++)
        if (d->d_tag == tag && strncmp((const char *)(uintptr_t)(names + d->d_un.d_val), prefix, strlen(prefix)) == 0)
            return true;
    return false;
}

/*
 * take_personality reads the address of a personality routine, which must be code of an object, or of the pointer to
 * it, which must lie in an object. AddressSanitizer must not check it: the word may lie between variables.
 *
 * Its object must need a libgcc_s or a libunwind, of whose names ours are the first, or be this library: one with a
 * static libgcc reads contexts of libgcc's form only. known reports whether the object is what the loader gives a
 * program for a language's library. Any other can do what it likes, under whatever name: an eh_elf's kinds are not for
 * it.
 */
__attribute__((no_sanitize("address"))) static bool take_personality(struct ehx_what *is, const struct ehu_table *table,
    const struct ehu_object *o,
                                                                     const uint8_t *p, bool *known)
{
    static const char libgcc[] = "libgcc_s.so.";
    struct dl_find_object in;
    uint64_t address = o->bias + u64(p), own = (uint64_t)(uintptr_t)libgcc;
    if (u64(p + 8) & INDIRECT) {
        if (_dl_find_object((void *)(uintptr_t)address, &in) != 0 ||
            (uint64_t)(uintptr_t)in.dlfo_map_end - address < sizeof address)
            return false;
        memcpy(&address, (const void *)(uintptr_t)address, sizeof address);
    }
    const struct ehu_object *code = ehu_find_(table, address);
    if (!code || code->eh_elf || _dl_find_object((void *)(uintptr_t)address, &in) != 0)
        return false;
    const struct link_map *map = in.dlfo_link_map;
    is->personality = (ehx_personality *)(uintptr_t)address;
    if ((*known = is->personality == ehx_gxx_))
        return true;
    bool cxx = ehx_named_(map, DT_SONAME, LIBSTDCXX);
    *known = cxx || ehx_named_(map, DT_SONAME, "libc++abi.so.") || ehx_named_(map, DT_SONAME, libgcc);
    /* e.g. an extension of Python has brought libstdc++, for itself alone; it has no other routine */
    if (cxx && !ehx_gxx_)
        __atomic_store_n(&ehx_gxx_, is->personality, __ATOMIC_RELAXED);
    return (own >= (uint64_t)(uintptr_t)in.dlfo_map_start && own < (uint64_t)(uintptr_t)in.dlfo_map_end) ||
           ehx_named_(map, DT_NEEDED, libgcc) || ehx_named_(map, DT_NEEDED, "libunwind.so");
}

void ehx_site_(const struct ehu_table *table, const struct ehu_object *o, uint64_t lookup_pc, struct ehx_what *is)
{
    uint64_t pc = lookup_pc - o->bias;
    const uint8_t *t = o->sites;
    is->step.kind = KIND_HAND_OVER;
    if (!o->exceptions)
        return;
    if (o->sites_size == 0) {
        is->step.kind = KIND_SKIP;
        return;
    }
    if (o->sites_size < HEADER)
        return;
    uint64_t base = u64(t), groups = u32(t + 12), personalities = u32(t + 16), size = u32(t + 20);
    if (HEADER + personalities * PERSONALITY + groups * GROUP + size > o->sites_size)
        return;
    const uint8_t *routine = t + HEADER, *group = routine + personalities * PERSONALITY,
        *stream = group + groups * GROUP;
    is->step.kind = KIND_SKIP;
    if (groups == 0 || pc < base || pc - base > UINT32_MAX)
        return;
    size_t low = 0, n = groups; /* the last group that begins at or below pc is in [low-1, low+n) */
    while (n > 0) {
        size_t half = n / 2;
        if (u32(group + (low + half) * GROUP) <= pc - base) {
            low += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    if (low == 0)
        return;
    group += (low - 1) * GROUP;
    uint64_t pos = base + u32(group), lsda = base, offset = u32(group + 4);
    if (offset > size)
        goto bad;
    struct reader r = {stream + offset, stream + size, false};
    uint64_t which = personalities + 1; /* the first of a group says which */
    for (int i = 0; i < PER_GROUP && r.p < r.end; i++) {
        uint64_t gap = uleb(&r), length = uleb(&r), body = uleb(&r);
        uint64_t aligned = (pos + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
        uint64_t start = gap & 2 ? pos + (gap >> 2) : aligned + (gap >> 2) * ALIGNMENT;
        if (r.bad || body > (uint64_t)(r.end - r.p))
            goto bad;
        struct reader b = {r.p, r.p + body, false};
        r.p += body;
        if (pc < start)
            return;
        if (gap & 1)
            which = uleb(&b);
        if (which != 0)
            lsda += uleb(&b);
        if (b.bad || which > personalities)
            goto bad;
        pos = start + length;
        if (pc >= pos)
            continue;
        if (which == 0)
            goto bad; /* all of it is to be handed over */
        bool known;
        if (o->bias + start < o->low || length > o->high - (o->bias + start) ||
            !take_personality(is, table, o, routine + (which - 1) * PERSONALITY, &known))
            goto bad;
        is->function = o->bias + start;
        is->lsda = lsda != 0 ? o->bias + lsda : 0;
        in_function(&b, pc, start, length, o->bias, is);
        if (!known && is->step.kind != KIND_HAND_OVER)
            is->step.kind = (uint8_t)(KIND_ASK | (is->step.kind & KIND_ARGS));
        return;
    }
    return;
bad:
    is->step.kind = KIND_HAND_OVER;
}
