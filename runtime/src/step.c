/*
 * Frame by frame: the common step, and the queries of a cursor.
 */
#include <emmintrin.h>

#include "internal.h"

/*
 * struct saved holds what a step can change in a frame that has only callee-saved
 * registers. Words are copied in the sizes in which eh_elfs write them, since a load
 * across two stores waits for both.
 */
struct saved {
    uint64_t rbx, rbp, rsp, rip, last;
    __m128i r12, r14; /* and r13, r15 */
};

_Static_assert(offsetof(eh_elf_regs_t, valid) == 8 * EH_ELF_NUM_REGS && sizeof(eh_elf_regs_t) == 8 * EH_ELF_NUM_REGS + 8, "saved.last");

static inline uint64_t *last_of(const eh_elf_regs_t *r) { return (uint64_t *)(void *)&r->valid; }

static inline void save(struct saved *s, const eh_elf_regs_t *r)
{
    s->rbx = r->reg[EH_ELF_RBX];
    s->rbp = r->reg[EH_ELF_RBP];
    s->rsp = r->reg[EH_ELF_RSP];
    s->rip = r->reg[EH_ELF_RIP];
    s->r12 = _mm_loadu_si128((const __m128i *)(const void *)&r->reg[EH_ELF_R12]);
    s->r14 = _mm_loadu_si128((const __m128i *)(const void *)&r->reg[EH_ELF_R14]);
    s->last = *last_of(r);
}

static void restore(eh_elf_regs_t *r, const struct saved *s)
{
    r->reg[EH_ELF_RBX] = s->rbx;
    r->reg[EH_ELF_RBP] = s->rbp;
    r->reg[EH_ELF_RSP] = s->rsp;
    r->reg[EH_ELF_RIP] = s->rip;
    _mm_storeu_si128((__m128i *)(void *)&r->reg[EH_ELF_R12], s->r12);
    _mm_storeu_si128((__m128i *)(void *)&r->reg[EH_ELF_R14], s->r14);
    *last_of(r) = s->last;
}

static inline bool holds(const struct ehu_object *o, uint64_t pc) { return pc - o->low < o->high - o->low; }

/* object_of finds the object of a pc in the cursor's cache, or by a search. */
static inline const struct ehu_object *object_of(ehu_cursor_t *c, const struct ehu_table *t, uint64_t pc)
{
    uint16_t first = c->hint[0], second = c->hint[1];
    if (first < t->n && holds(&t->object[first], pc))
        return &t->object[first];
    c->hint[0] = second;
    c->hint[1] = first;
    if (second < t->n && holds(&t->object[second], pc))
        return &t->object[second];
    const struct ehu_object *o = ehu_find_(t, pc);
    if (o)
        c->hint[0] = (uint16_t)(o - t->object);
    return o;
}

/*
 * plain_step takes the common step: by a row, between two called frames, in known objects, with a
 * known window. Otherwise it leaves the cursor unchanged for ehu_run_one_, which handles all
 * cases.
 */
static inline bool plain_step(ehu_cursor_t *c, const struct ehu_table *t)
{
    eh_elf_regs_t *r = &c->regs;
    uint64_t rsp = r->reg[EH_ELF_RSP], rip = r->reg[EH_ELF_RIP], exact = r->exact, pc;
    if (r->valid & CALLER_SAVED || rip == ehu_context_start_ || rsp - c->memory.lo >= c->memory.size)
        return false;
    const struct ehu_object *o = object_of(c, t, rip - !exact);
    if (!o || !o->walk)
        return false;
    struct saved before;
    save(&before, r);
    if (o->walk(r, &c->memory, o->bias, &pc, 1) == 1) {
        uint64_t to = r->reg[EH_ELF_RSP];
        if (!r->exact && to >= rsp && to - rsp >= 8 * (1 - exact) && (holds(o, pc - 1) || object_of(c, t, pc - 1)))
            return true;
    }
    restore(r, &before);
    return false;
}

int ehu_step(ehu_cursor_t *c)
{
    size_t k = 0;
    struct ehu_reading reading = ehu_enter_(0);
    const struct ehu_table *t = reading.table;
    if (!t)
        c->regs.status = EH_ELF_NO_INFO;
    else if (c->depth == EHU_MAX_DEPTH)
        c->regs.status = EHU_TOO_DEEP;
    else
        k = plain_step(c, t) ? 1 : ehu_run_one_(c, t);
    ehu_leave_(reading);
    if (k == 1) {
        c->depth++;
        return 1;
    }
    ehu_count_end_(c->regs.status);
    return c->regs.status == EH_ELF_OUTERMOST ? 0 : c->regs.status;
}

int ehu_get_reg(const ehu_cursor_t *c, int reg, uint64_t *value)
{
    if (reg < 0 || reg >= EH_ELF_NUM_REGS || !(c->regs.valid & 1u << reg))
        return -1;
    *value = c->regs.reg[reg];
    return 0;
}

int ehu_is_signal_frame(const ehu_cursor_t *c) { return c->regs.exact; }

int ehu_is_guessed(const ehu_cursor_t *c) { return (c->flags & EHU_GUESSED) != 0; }

int ehu_status(const ehu_cursor_t *c) { return c->regs.status; }
