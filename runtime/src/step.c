/*
 * Frame by frame: the common step, steps ahead, and the queries of a cursor.
 *
 * Most clients ask each frame for its pc alone. For them a walk of several steps fills c->pcs,
 * and ehu_step hands these out: c->pcs[c->at] is the frame's pc while at < end, and c->walk.regs are
 * the registers of the last frame of these, which is the cursor's own once at == end. The cursor has taken
 * c->walk.depth + c->at steps.
 *
 * What else a client may ask, and any frame that tables alone do not lead from, needs what such
 * walks leave out: registers in between, which frames a signal interrupted, and what their
 * registers were then. So c->origin keeps the registers with which the first walk began, if
 * c->began, and settle goes from there to the cursor's frame by single steps. A client that
 * asked once will ask again: from then on the cursor takes single steps.
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

_Static_assert(offsetof(eh_elf_regs_t, valid) == 8 * EH_ELF_NUM_REGS &&
    sizeof(eh_elf_regs_t) == 8 * EH_ELF_NUM_REGS + 8, "saved.last");

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

static inline void restore(eh_elf_regs_t *r, const struct saved *s)
{
    r->reg[EH_ELF_RBX] = s->rbx;
    r->reg[EH_ELF_RBP] = s->rbp;
    r->reg[EH_ELF_RSP] = s->rsp;
    r->reg[EH_ELF_RIP] = s->rip;
    _mm_storeu_si128((__m128i *)(void *)&r->reg[EH_ELF_R12], s->r12);
    _mm_storeu_si128((__m128i *)(void *)&r->reg[EH_ELF_R14], s->r14);
    *last_of(r) = s->last;
}

/*
 * plain_step takes the common step: by a row, between two called frames, in known objects, with a
 * known window. Otherwise it leaves the cursor unchanged for ehu_run_one_, which handles all
 * cases.
 */
__attribute__((always_inline)) static inline bool plain_step(struct ehu_walk *c, const struct ehu_table *t)
{
    eh_elf_regs_t *r = &c->regs;
    uint64_t rsp = r->reg[EH_ELF_RSP], rip = r->reg[EH_ELF_RIP], exact = r->exact, pc;
    if (r->valid & CALLER_SAVED || rip == ehu_context_start_ || rsp - c->memory.lo >= c->memory.size)
        return false;
    const struct ehu_object *o = ehu_object_of_(t, rip - !exact);
    if (!o || !o->walk)
        return false;
    struct saved before;
    save(&before, r);
    if (o->walk(r, &c->memory, o->bias, &pc, 1) == 1) {
        uint64_t to = r->reg[EH_ELF_RSP];
        if (!r->exact && to >= rsp && to - rsp >= 8 * (1 - exact) && ehu_object_of_(t, pc - 1))
            return true;
    }
    restore(r, &before);
    return false;
}

/* one takes a step, whatever the frame is; see ehu_run_one_. */
__attribute__((noinline)) static size_t one(struct ehu_walk *c, const struct ehu_table *t)
{
    return plain_step(c, t) ? 1 : ehu_run_one_(c, t);
}

/* Values of c->next: how many steps to take ahead; 0 stands for FIRST. */
enum { FIRST = 8, MOST = sizeof((ehu_cursor_t *)0)->pcs / sizeof(uint64_t), NEVER = UINT16_MAX };

/* is_start reports whether one of n pcs is where a makecontext's function returns to, beyond
   which there is no frame. */
static bool is_start(const uint64_t *pcs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (pcs[i] == ehu_context_start_)
            return true;
    return false;
}

/*
 * ahead takes steps by tables alone, of which the client gets the first. It begins only in a
 * called frame. If it returns false, the registers are unchanged: there is no such step, or one
 * of them has to be looked at.
 */
__attribute__((noinline)) static bool ahead(ehu_cursor_t *c, const struct ehu_table *t)
{
    eh_elf_regs_t *r = &c->walk.regs;
    uint64_t rsp = r->reg[EH_ELF_RSP], rip = r->reg[EH_ELF_RIP];
    size_t max = c->next ? c->next : FIRST;
    if (r->valid & CALLER_SAVED || r->exact || rip == ehu_context_start_)
        return false;
    if (rsp - c->walk.memory.lo >= c->walk.memory.size && !ehu_window_(rsp, &c->walk.memory, &c->walk.flags))
        return false;
    const struct ehu_object *o = ehu_object_of_(t, rip - 1);
    if (!o || !o->walk)
        return false;
    struct saved before;
    save(&before, r);
    if (max > EHU_MAX_DEPTH - c->walk.depth)
        max = EHU_MAX_DEPTH - c->walk.depth;
    size_t k = o->chain ? ehu_chain_(r, &c->walk.memory, o, c->pcs, max, t) : o->walk(r, &c->walk.memory, o->bias,
        c->pcs, max);
    uint64_t to = r->reg[EH_ELF_RSP];
    bool odd = !(r->valid & 1u << EH_ELF_RBP); /* clients may take that for the end of the stack */
    if (k == 0 || odd || to < rsp || to - rsp < 8 * k || is_start(c->pcs, k - 1) ||
        !ehu_is_code_(&c->walk, t, c->pcs[k - 1] - !r->exact)) {
        restore(r, &before);
        c->next = FIRST;
        return false;
    }
    if (!c->began) {
        restore(&c->origin, &before);
        c->origin_depth = c->walk.depth;
        c->began = 1;
    }
    c->outermost = r->status == EH_ELF_OUTERMOST;
    r->status = EH_ELF_OK;
    c->end = (uint16_t)(k - 1);
    c->next = MOST;
    return true;
}

/* take_up makes the last of the frames taken ahead the cursor's. */
static inline void take_up(ehu_cursor_t *c)
{
    c->walk.depth += c->at;
    c->at = c->end = 0;
}

/*
 * settle makes c->walk.regs the registers of the cursor's frame. It returns false if single steps do
 * not lead there: the table has changed since, or one of the steps led down and later ones up
 * again. Then the cursor has only pcs until it has handed out all, and goes on from there.
 */
static bool settle(ehu_cursor_t *c, const struct ehu_table *t)
{
    if (!c->began)
        return c->at == c->end;
    const eh_elf_regs_t last = c->walk.regs;
    uint64_t pc = ehu_pc_(c);
    uint32_t flags = c->walk.flags, kept_valid = c->walk.kept_valid, n = ehu_depth_(c) - c->origin_depth;
    c->walk.regs = c->origin;
    c->began = 0;
    while (t && n > 0 && one(&c->walk, t) == 1)
        n--;
    if (n == 0 && c->walk.regs.reg[EH_ELF_RIP] == pc) {
        take_up(c);
        c->outermost = 0;
        return true;
    }
    c->walk.regs = last;
    c->walk.flags = flags;
    c->walk.kept_valid = kept_valid;
    return false;
}

/* look takes a step that neither tables alone take nor plain_step. */
__attribute__((noinline)) static size_t look(ehu_cursor_t *c, const struct ehu_table *t)
{
    settle(c, t);
    return c->next == NEVER ? ehu_run_one_(&c->walk, t) : one(&c->walk, t);
}

/*
 * asked is set if steps were taken ahead for a client that then asked for registers. The next
 * cursor may be of the same client: it waits for that question in its first two steps.
 */
static _Atomic bool asked;

static inline bool waits(const ehu_cursor_t *c)
{
    if (c->next != 0 || !atomic_load_explicit(&asked, memory_order_relaxed))
        return false;
    if (c->walk.depth < 2)
        return true;
    atomic_store_explicit(&asked, false, memory_order_relaxed);
    return false;
}

/* step_on is ehu_step if no step was taken ahead. */
__attribute__((noinline)) static int step_on(ehu_cursor_t *c)
{
    size_t k = 0;
    struct ehu_reading reading = ehu_enter_(c->walk.flags & EHU_COUNTED ? 0 : ONE_WALK);
    const struct ehu_table *t = reading.table;
    c->walk.flags |= EHU_COUNTED;
    take_up(c);
    if (!t)
        c->walk.regs.status = EH_ELF_NO_INFO;
    else if (c->walk.depth == EHU_MAX_DEPTH)
        c->walk.regs.status = EHU_TOO_DEEP;
    else if (c->outermost)
        c->walk.regs.status = EH_ELF_OUTERMOST;
    else
        k = (c->next == NEVER || waits(c) ? plain_step(&c->walk, t) : ahead(c, t)) ? 1 : look(c, t);
    ehu_leave_(reading);
    if (k == 1) {
        c->walk.depth++;
        return 1;
    }
    ehu_count_end_(c->walk.regs.status);
    return c->walk.regs.status == EH_ELF_OUTERMOST ? 0 : c->walk.regs.status;
}

int ehu_step(ehu_cursor_t *c) { return ehu_hand_out_(c) ? 1 : step_on(c); }

bool ehu_settle_(ehu_cursor_t *c)
{
    c->next = NEVER;
    if (!c->began)
        return c->at == c->end;
    atomic_store_explicit(&asked, true, memory_order_relaxed);
    struct ehu_reading reading = ehu_enter_(0);
    bool settled = settle(c, reading.table);
    ehu_leave_(reading);
    return settled;
}

/* known returns -1 for a register whose value the walk has lost. */
static inline int known(const ehu_cursor_t *c, unsigned reg, uint64_t *value)
{
    if (!(c->walk.regs.valid & 1u << reg))
        return -1;
    *value = c->walk.regs.reg[reg];
    return 0;
}

__attribute__((noinline)) static int settled(ehu_cursor_t *c, unsigned reg, uint64_t *value)
{
    return ehu_settle_(c) ? known(c, reg, value) : -1;
}

int ehu_get_reg(ehu_cursor_t *c, int reg, uint64_t *value)
{
    if (reg == EH_ELF_RIP) {
        *value = ehu_pc_(c);
        return 0;
    }
    if (reg < 0 || reg > EH_ELF_RIP)
        return -1;
    c->next = NEVER;
    return c->at == c->end ? known(c, (unsigned)reg, value) : settled(c, (unsigned)reg, value);
}

int ehu_is_signal_frame(ehu_cursor_t *c)
{
    c->next = NEVER;
    return (c->at == c->end || ehu_settle_(c)) && c->walk.regs.exact;
}

int ehu_is_guessed(const ehu_cursor_t *c) { return (c->walk.flags & EHU_GUESSED) != 0; }

int ehu_status(const ehu_cursor_t *c) { return c->walk.regs.status; }
