/*
 * Walks from memory. A thread's memory holds frames that its walks met, as pc and rsp, in their order. Where a walk
 * meets one of them, those behind it are its next frames as long as the words on the stack are the same: the processor
 * loads them at once, since their places are known. From a new frame, the walk steps by its row. Rows are learnt from
 * eh_elfs, as far as they are plain. PROOF.md has the conditions under which these walks find what the eh_elfs find.
 */
#include <string.h>

#include "internal.h"

/*
 * An entry of the trail. FRAME: a frame; those behind it are what walks found from it. CHECK: where the frame before
 * has its return address depends on rbp, which must be the same. LINK: the next frame is elsewhere in the trail. END:
 * the frame before is the stack's last. STOP: its caller is not in the trail.
 */
struct ehu_entry {
    uint64_t word; /* FRAME, LINK: the pc; CHECK: rbp */
    int32_t above; /* FRAME, LINK: rsp; CHECK: the end of the word with rbp; both from the end of the stack */
    uint16_t more; /* FRAME, CHECK: how many frames follow without another entry; LINK: place of the next frame */
    int8_t rbp;    /* FRAME, LINK: words from the return address below rsp to the saved rbp; 0: it was not saved */
    enum __attribute__((packed)) { STOP, FRAME, CHECK, LINK, END } kind;
};

/*
 * A thread's memory. Only the thread that owns the slot uses it, and only one walk at a time: a handler that
 * interrupts one that uses it, and all later walks if that handler never returns, go without. A new frame costs what
 * NEW known ones gain; where they cost more than there is to gain, walks go without, up to MOST_REST of them for one.
 * A known walk with links is written again.
 */
enum { TRAIL = 1664, PLACE_BITS = 11, NEW = 12, LEARNING = 6 /* new frames */, MOST_GAIN = 256, MOST_REST = 255,
    BUSY = INT32_MAX, ROOM = 4, AGAIN = TRAIL };
static struct ehu_memory {
    struct ehu_entry trail[TRAIL + 1]; /* the first and the last stay empty */
    /* by pc and rsp: where in the trail the frame is; AGAIN: a walk that begins there is to be written again */
    uint16_t place[1 << PLACE_BITS];
    uint16_t tail;       /* the entry that was written last */
    uint16_t first;      /* the first of the last ones whose number of more frames is not known */
    uint32_t backoff;    /* how many walks went without the last time */
    int64_t gain;        /* of the last walks, in known frames */
    /* the rest is not forgotten with the frames */
    uint32_t rest;       /* how many of the next walks go without; BUSY: all */
    uint64_t generation; /* of the table that the rows were from */
    uint64_t end;        /* of the stack */
    uint64_t walks;      /* which used no table */
} memories[NUM_SLOTS];

/* A walk: its frame and where its pcs go. */
struct walk {
    uint64_t pc, rsp, rbp, end, *to, *full;
    struct ehu_reading reading; /* a row needed the table */
    struct ehu_entry *gap;          /* a LINK to the frame may be there */
    int32_t saved;              /* as above in a CHECK; REGISTER: rbp is from no word */
    int8_t by;                  /* as rbp in a FRAME */
    bool writes;                /* the frame is the last entry of the trail */
    uint16_t *again;            /* its place, if it is written again, without links; it stays its own */
};
enum { REGISTER = INT32_MIN };

static inline uint64_t word(uint64_t at) { return *(const uint64_t *)(uintptr_t)at; }

/* ------------------------------------------------------------------------------- rows */

/*
 * The row of a return address is a word of the table. Its low bits have where the caller's return address is: to, in
 * words from rsp or rbp; and rbp as in a FRAME. Its high bits and its place have the address: the product of odd
 * factors has an inverse.
 */
enum { OTHER /* not plain, or none */, BY_RSP, BY_RBP, LAST };
enum { BASE_BITS = 2, RBP_BITS = 5, TO_BITS = 21, TAG_SHIFT = BASE_BITS + RBP_BITS + TO_BITS, PC_BITS = 48 };
_Static_assert(TAG_SHIFT == 64 - (PC_BITS - ROW_BITS), "a word has the rest of the address");

static uint64_t make_row(uint64_t tag, unsigned base, int64_t to, unsigned below)
{
    return tag << TAG_SHIFT | ((uint64_t)to & ((1 << TO_BITS) - 1)) << (BASE_BITS + RBP_BITS) | below << BASE_BITS |
        base;
}

/* row_of returns the row of a return address, or 0. */
static uint64_t row_of(struct ehu_memory *m, const struct ehu_table *t, uint64_t pc)
{
    uint64_t mixed = pc * 0x9e3779b97f4a7c15u & (((uint64_t)1 << PC_BITS) - 1), tag = mixed << TAG_SHIFT >> TAG_SHIFT;
    uint64_t *row = (uint64_t *)(uintptr_t)&t->row[mixed >> (PC_BITS - ROW_BITS)];
    uint64_t known = __atomic_load_n(row, __ATOMIC_RELAXED);
    if (known >> TAG_SHIFT == tag && pc >> PC_BITS == 0)
        return known;
    const struct ehu_object *o = ehu_object_of_(t, pc - 1);
    struct ehu_plain p;
    if (!o || pc >> PC_BITS != 0)
        return 0;
    m->gain -= LEARNING * NEW;
    known = make_row(tag, OTHER, 0, 0);
    if (o->walk && pc != ehu_context_start_) {
        if (ehu_plain_step_(o, pc, false, &p)) {
            int32_t to = p.cfa - 8;
            unsigned below = p.rbp > 0 ? p.rbp - 1 : 0;
            if (8 * below <= RED_ZONE && (p.base == BASE_RBP || to >= 0) && to % 8 == 0 &&
                to / 8 < 1 << (TO_BITS - 1) && to / 8 >= -(1 << (TO_BITS - 1)))
                known = make_row(tag, p.base == BASE_RBP ? BY_RBP : BY_RSP, to / 8, below);
        } else if (ehu_row_(o, pc, false) == EH_ELF_OUTERMOST) {
            known = make_row(tag, LAST, 0, 0);
        }
    }
    __atomic_store_n(row, known, __ATOMIC_RELAXED);
    return known;
}

/* ------------------------------------------------------------------------------- the trail */

static inline int32_t above(const struct walk *w) { return (int32_t)(w->rsp - w->end); }

static inline uint16_t *place_of(struct ehu_memory *m, uint64_t pc, uint64_t rsp)
{
    return &m->place[(pc ^ rsp << 16) * 0x9e3779b97f4a7c15u >> (64 - PLACE_BITS)];
}

static struct ehu_entry link_to(const struct walk *w, unsigned place)
{
    return (struct ehu_entry){.kind = LINK, .word = w->pc, .above = above(w), .rbp = w->by, .more = (uint16_t)place};
}

/* close_run gives the last entries of the trail their number of more frames, and adds one of another kind. */
static void close_run(struct ehu_memory *m, struct ehu_entry e)
{
    for (unsigned i = m->tail, n = 0; i >= m->first; i--)
        m->trail[i].more = (uint16_t)n++;
    m->first = ++m->tail;
    m->trail[m->tail] = e;
}

/* enter adds the frame to the trail. */
static void enter(struct ehu_memory *m, struct walk *w)
{
    if (m->tail > TRAIL - 1 - ROOM) {
        if (w->writes)
            close_run(m, (struct ehu_entry){.kind = STOP});
        m->tail = 0;
        w->writes = false;
    }
    m->tail++;
    if (!w->writes)
        m->first = m->tail;
    w->writes = true;
    m->trail[m->tail] = (struct ehu_entry){.kind = FRAME, .word = w->pc, .above = above(w), .rbp = w->by};
    uint16_t *place = place_of(m, w->pc, w->rsp);
    if (place != w->again || *place == AGAIN)
        *place = m->tail;
    if (w->gap && w->gap != &m->trail[m->tail])
        *w->gap = link_to(w, m->tail);
}

/*
 * step takes a step by the row of the frame. It returns false if it has none that is plain; *status says whether the
 * frame is the stack's last.
 */
__attribute__((no_sanitize("address"))) static bool step(struct ehu_memory *m, struct walk *w, int16_t *status)
{
    if (!w->reading.count)
        w->reading = ehu_enter_(0);
    if (!w->reading.table)
        return false;
    uint64_t row = row_of(m, w->reading.table, w->pc), base = row & 3;
    m->gain -= NEW;
    if (base == LAST) {
        if (w->writes)
            close_run(m, (struct ehu_entry){.kind = END});
        w->writes = false;
        *status = EH_ELF_OUTERMOST;
        return false;
    }
    int below = row >> BASE_BITS & ((1 << RBP_BITS) - 1);
    int64_t to = (int64_t)(row << (64 - TAG_SHIFT)) >> (64 - TO_BITS);
    uint64_t at = (base == BY_RBP ? w->rbp : w->rsp) + 8 * (uint64_t)to, save = at - 8 * (uint64_t)below;
    if (base == OTHER || at < w->rsp || at > w->end - 8 || save < w->rsp)
        return false;
    if (base == BY_RBP && w->writes)
        close_run(m, (struct ehu_entry){.kind = CHECK, .word = w->rbp, .above = w->saved});
    else if (base == BY_RBP && w->gap && w->gap[-1].kind != CHECK)
        w->gap = NULL;
    w->pc = word(at);
    w->rsp = at + 8;
    w->by = (int8_t)-below;
    if (below) {
        w->rbp = word(save);
        w->saved = (int32_t)(save + 8 - w->end);
    }
    *w->to++ = w->pc;
    return true;
}

/* ------------------------------------------------------------------------------- walks along it */

/* A walk along the trail. */
struct along {
    struct ehu_entry *e, *from; /* it has come to e from that frame, by no LINK */
    struct ehu_entry *next;     /* at which it ended */
    uint64_t rbp, pc, *to;  /* rbp in the frame of from; the pc at next */
    int32_t saved;          /* as in struct walk */
    bool links;             /* it went by one */
};

static inline uint64_t word_below(uint64_t end, const struct ehu_entry *e)
{
    return word(end + (uint64_t)(int64_t)e->above - 8);
}

/* restore finds rbp in the frame of e. */
__attribute__((always_inline)) static inline void restore(struct along *a, uint64_t end, const struct ehu_entry *e)
{
    for (; e != a->from; e--)
        if (e->rbp) {
            a->saved = e->above + 8 * e->rbp;
            a->rbp = word(end + (uint64_t)(int64_t)a->saved - 8);
            return;
        }
}

/*
 * follow returns the last of the frames behind e, up to stop, that is as the trail has it, or one of three before that,
 * and stores their pcs.
 */
__attribute__((always_inline, no_sanitize("address"))) static inline struct ehu_entry *follow(uint64_t end,
    struct ehu_entry *e, struct ehu_entry *stop, uint64_t **pcs)
{
    uint64_t pc, *to = *pcs;
#define SAME(n)                               \
    pc = word_below(end, e + (n));            \
    if (__builtin_expect(pc != e[n].word, 0)) \
        goto out;                             \
    to[(n) - 1] = pc;
    for (struct ehu_entry *four = e + ((stop - e) & ~3); e != four; e += 4, to += 4) {
        SAME(1) SAME(2) SAME(3) SAME(4)
    }
    for (; e != stop; e++, to++) {
        SAME(1)
    }
out:
    *pcs = to;
    return e;
}

/*
 * go_along goes as far as the stack is as the trail has it. FULL: the array is. ENDED: the frame is the last. MET: the
 * return address, at next, is another, or the LINK there is not right. STUCK: there is no caller in the trail. With
 * whole, it also ends as STUCK: before a LINK, and up to three frames before another return address.
 */
enum outcome { FULL, ENDED, MET, STUCK };
__attribute__((always_inline, no_sanitize("address"))) static inline enum outcome go_along(struct ehu_memory *m,
    struct along *a, uint64_t end, const uint64_t *full, bool whole)
{
    struct ehu_entry *e = a->e, *next;
    int32_t base = a->from->above;
    uint64_t *to = a->to;
    enum outcome o;
run:;
    size_t n = e->more, room = (size_t)(full - to);
    struct ehu_entry *stop = e + (n < room ? n : room);
    e = follow(end, e, stop, &to);
    next = e + 1;
    o = STUCK;
    if (whole && e != stop)
        goto out;
    for (; next->kind == CHECK && to != full; e = next++) {
        if ((next->above > base ? word_below(end, next) : a->rbp) != next->word)
            goto out;
        e = next++;
        if (e->more != 1)
            goto run;
        *to++ = a->pc = word_below(end, next);
        if (a->pc != next->word) {
            o = MET;
            goto out;
        }
    }
    if (to == full) {
        o = FULL;
    } else if (next->kind == END) {
        o = ENDED;
    } else if (!whole && next->kind == FRAME) {
        o = MET;
        *to++ = a->pc = word_below(end, next);
        if (a->pc != next->word)
            goto out;
        e = next;
        goto run;
    } else if (!whole && next->kind == LINK) {
        struct ehu_entry *there = &m->trail[next->more];
        o = MET;
        *to++ = a->pc = word_below(end, next);
        if (a->pc != next->word || there->word != a->pc || there->above != next->above || there->kind != FRAME)
            goto out;
        restore(a, end, next);
        a->links = true;
        a->from = e = there;
        base = e->above;
        goto run;
    }
out:
    a->e = e;
    a->next = next;
    a->to = to;
    return o;
}

static inline bool is_at(const struct ehu_entry *e, uint64_t pc, int64_t above)
{
    return e->word == pc && e->above == above && e->kind == FRAME;
}

/* off makes the walk's frame the one at which it came off the trail. */
__attribute__((no_sanitize("address"))) static void off(struct walk *w, struct along *a, enum outcome o)
{
    struct ehu_entry *e = o == MET ? a->next : a->e;
    restore(a, w->end, e);
    w->gap = NULL;
    if (o == MET) {
        w->pc = a->pc;
        w->by = e->rbp;
        if (e->kind == LINK && e->word == w->pc)
            w->gap = e;
    } else {
        if (a->next->kind == STOP)
            w->gap = a->next;
        if (e->kind == CHECK)
            e--;
        w->pc = e->word;
    }
    w->rsp = w->end + (uint64_t)(int64_t)e->above;
    w->rbp = a->rbp;
    w->saved = a->saved;
    w->to = a->to;
    w->writes = false;
}

/* steps goes on with a walk that came off the trail. */
__attribute__((noinline, no_sanitize("address"))) static int16_t steps(struct ehu_memory *m, struct walk *w,
    enum outcome o)
{
    int16_t status = EH_ELF_OK;
    while (w->to != w->full && (o != STUCK || step(m, w, &status)) && w->to != w->full) {
        uint16_t place = *place_of(m, w->pc, w->rsp);
        struct ehu_entry *e = &m->trail[place];
        /* not where the LINK would be */
        if (is_at(e, w->pc, above(w)) && !w->again && !(w->writes && place == m->tail + 1)) {
            if (w->writes)
                close_run(m, link_to(w, place));
            else if (w->gap)
                *w->gap = link_to(w, place);
            struct along a = {.e = e, .from = e, .rbp = w->rbp, .saved = w->saved, .to = w->to};
            o = go_along(m, &a, w->end, w->full, false);
            off(w, &a, o);
            if (o == ENDED)
                return EH_ELF_OUTERMOST;
        } else {
            enter(m, w);
            w->gap = NULL;
            o = STUCK;
        }
    }
    if (w->writes)
        close_run(m, (struct ehu_entry){.kind = STOP});
    return status;
}

void ehu_recall_none_(void)
{
    uint64_t thread = ehu_thread_pointer_();
    struct ehu_memory *m = ehu_own_stack_.memory;
    struct ehu_slot *s = ehu_slot_of_(thread);
    if (m)
        m->rest -= m->rest > 0 && m->rest < BUSY; /* a handler may do so meanwhile, too, which does not matter */
    else if (ehu_owns_(s, thread))
        ehu_own_stack_.memory = &memories[s - ehu_slots_];
}

__attribute__((no_sanitize("address")))
size_t ehu_recall_on_(struct ehu_way way, const eh_elf_regs_t *start, eh_elf_regs_t *regs, uint64_t *pcs,
    uint64_t *full)
{
    struct ehu_memory *m = way.m;
    uint64_t pc = start->reg[EH_ELF_RIP], rsp = start->reg[EH_ELF_RSP], end = ehu_own_stack_.hi;
    uint64_t generation = atomic_load_explicit(&ehu_generation_, memory_order_acquire);
    uint32_t rest = 0;
    size_t n = 0;
    if (end - rsp - 1 >= INT32_MAX)
        goto out;
    if (m->generation != generation || m->end != end) {
        memset(m, 0, offsetof(struct ehu_memory, rest));
        m->generation = generation;
        m->end = end;
        way.e = NULL; /* it may have been replaced since the walk began */
        way.to = pcs;
    }
    if (m->gain > MOST_GAIN)
        m->gain = MOST_GAIN;
    uint16_t *place = place_of(m, pc, rsp);
    struct along a = {.e = way.e, .from = &m->trail[*place], .rbp = start->reg[EH_ELF_RBP], .to = way.to,
        .saved = REGISTER};
    enum outcome o = a.e ? go_along(m, &a, end, full, false) : MET;
    if (o == ENDED) {
        regs->reg[EH_ELF_RIP] = a.e->word;
        regs->status = EH_ELF_OUTERMOST;
        if (a.links)
            *place = AGAIN;
    } else {
        struct walk w = {.pc = pc, .rsp = rsp, .rbp = a.rbp, .end = end, .to = pcs, .full = full, .saved = REGISTER,
            .again = *place == AGAIN ? place : NULL};
        if (a.e)
            off(&w, &a, o);
        regs->status = steps(m, &w, o);
        if (w.reading.count)
            ehu_leave_(w.reading);
        regs->reg[EH_ELF_RIP] = w.pc;
        regs->reg[EH_ELF_RSP] = w.rsp;
        regs->reg[EH_ELF_RBP] = w.rbp;
        a.to = w.to;
    }
    regs->valid = 1 << EH_ELF_RIP | 1 << EH_ELF_RSP | 1 << EH_ELF_RBP;
    regs->exact = 0;
    n = (size_t)(a.to - pcs);
    if (n > 0 && regs->status == EH_ELF_OUTERMOST)
        m->walks++;
    m->gain += (int64_t)n;
    if (m->gain > MOST_GAIN) {
        m->backoff = 0;
    } else if (m->gain < 0) {
        m->gain = 0;
        rest = m->backoff = (m->backoff * 2 + 1) & MOST_REST;
    }
out:
    atomic_signal_fence(memory_order_seq_cst);
    m->rest = rest;
    return n;
}

/*
 * recall takes a walk from *start if the thread remembers all of it, or what fills the array. It returns false if the
 * walk is to go on from *way.
 */
__attribute__((always_inline, no_sanitize("address"))) static inline bool recall(struct ehu_way *way,
    const eh_elf_regs_t *start, uint64_t *pcs, uint64_t *full)
{
    *way = (struct ehu_way){.to = pcs};
#ifdef __SANITIZE_THREAD__ /* which does not know that a thread has ended before another has its thread pointer */
    return false;
#endif
    struct ehu_memory *m = ehu_own_stack_.memory;
    uint64_t pc = start->reg[EH_ELF_RIP], rsp = start->reg[EH_ELF_RSP], end = ehu_own_stack_.hi;
    /* Only on the thread's own stack: one of a bare clone, with the thread pointer of its maker, has another. */
    if (!m || m->rest || start->exact || rsp < ehu_own_stack_.lo || ehu_own_stack_.hi != end)
        return false;
    m->rest = BUSY;
    atomic_signal_fence(memory_order_seq_cst);
    way->m = m;
    struct ehu_entry *e = &m->trail[*place_of(m, pc, rsp)];
    if (m->generation != atomic_load_explicit(&ehu_generation_, memory_order_acquire) || m->end != end ||
        !is_at(e, pc, (int64_t)(rsp - end)))
        return false;
    struct along a = {.e = e, .from = e, .rbp = start->reg[EH_ELF_RBP], .to = pcs};
    enum outcome o = go_along(m, &a, end, full, true);
    way->e = a.e;
    way->to = a.to - (o == MET);
    if (o == FULL ? a.next->kind == STOP : o != ENDED) /* the last of a full array may be no code */
        return false;
    m->walks++;
    m->gain += a.to - pcs;
    atomic_signal_fence(memory_order_seq_cst);
    m->rest = 0;
    return true;
}

__attribute__((no_sanitize("address")))
size_t ehu_backtrace_end_(void **array, size_t n, const eh_elf_regs_t *regs, struct ehu_end *end)
{
    uint64_t *pcs = (uint64_t *)(void *)array + 1, *full = pcs - 1 + n;
    struct ehu_way way;
    if (n == 0)
        return 0;
    pcs[-1] = regs->reg[EH_ELF_RIP];
    if (!recall(&way, regs, pcs, full))
        return 1 + ehu_backtrace_on_((struct ehu_way){way.m, way.e, way.to}, pcs, full, regs, end);
    if (way.to == full)
        ehu_count_(COUNT_FULL);
    if (end)
        *end = (struct ehu_end){way.to == full ? EH_ELF_OK : EH_ELF_OUTERMOST, false};
    return 1 + (size_t)(way.to - pcs);
}

__attribute__((no_sanitize("address")))
size_t ehu_try_(const eh_elf_regs_t *regs, uint64_t *pcs, size_t max, bool to_end, enum ehu_worth *worth,
    uint64_t *stopped)
{
    uint64_t *full = pcs + max;
    struct ehu_way way;
    bool whole = recall(&way, regs, pcs, full);
    if (whole && way.to == full && to_end) { /* it is walked again, by the table, which counts it */
        way.m->walks--;
        whole = false, way.m = NULL;
    }
    if (!whole)
        return ehu_try_on_((struct ehu_way){way.m, way.e, way.to}, regs, pcs, full, to_end, worth, stopped);
    if (way.to == full)
        ehu_count_(COUNT_FULL);
    *worth = EHU_WHOLE;
    return (size_t)(way.to - pcs);
}

uint64_t ehu_recalled_walks_(void)
{
    uint64_t n = 0;
    for (int i = 0; i < NUM_SLOTS; i++)
        n += *(volatile uint64_t *)&memories[i].walks;
    return n;
}
