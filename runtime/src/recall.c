/*
 * Walks by rows that the thread remembers. The rows of return addresses are learnt from eh_elfs, as far as they are
 * plain, and lie in the order in which walks met them. So the processor knows the next row before it has loaded the
 * return address, and a frame takes a few instructions. PROOF.md has the conditions under which these walks find what
 * the eh_elfs find.
 */
#include <string.h>

#include "internal.h"

/* The row of a return address: how to step from it. */
struct row {
    uint64_t pc;
    int32_t to; /* bytes from rsp or rbp to the word with the caller's return address */
    int8_t rbp; /* words from there to the caller's rbp; 0: it is the same */
    enum __attribute__((packed)) { OTHER, RSP, RBP, END } base; /* OTHER: not plain, or an empty row, of address 0 */
    uint16_t at; /* in memory.row: its place in the trail */
};

/*
 * A thread's memory. Only the thread that owns the slot uses it, and only one walk at a time (busy): a handler that
 * interrupts one that uses it, and all later walks if that handler never returns, go without. The trail has the rows of
 * walks in their order, one walk behind the other. Where a walk leaves it, the row is looked up by the address. A miss
 * costs what MISS frames gain; where misses cost more than there is to gain, walks go without, up to MOST_IDLE of them
 * for one. A walk like one with many misses writes the trail.
 */
enum { ROW_BITS = 9, TRAIL = 1024, START_BITS = 7, MISS = 12, LEARNING = 16 /* misses */, MOST_GAIN = 256,
    MOST_IDLE = 255, WRITE = TRAIL + 1 };
static struct memory {
    uint64_t generation; /* of the table that the rows are from */
    volatile bool busy;
    uint8_t backoff;       /* how many walks went without the last time */
    uint16_t tail;         /* where the trail was written last */
    int misses, gain;      /* of this walk; of the last ones, in frames */
    /* by pc and rsp: where a walk that begins there lies in the trail; WRITE: it is to write it */
    uint16_t start[1 << START_BITS];
    struct row row[1 << ROW_BITS];   /* by the address */
    struct row trail[TRAIL + 2];     /* the first and the last, at WRITE, stay empty */
} memories[NUM_SLOTS];

static inline uint64_t hash(uint64_t of, unsigned bits) { return of * 0x9e3779b97f4a7c15u >> (64 - bits); }

/* learn asks the eh_elf of a return address for its row, and reports whether there is one. */
static bool learn(struct memory *m, const struct ehu_table *t, uint64_t pc, struct row *row)
{
    const struct ehu_object *o = ehu_object_of_(t, pc - 1);
    struct ehu_plain p;
    if (!o || !o->walk || pc == ehu_context_start_)
        return false;
    m->misses += LEARNING;
    *row = (struct row){.pc = pc, .base = OTHER};
    if (ehu_plain_step_(o, pc, false, &p)) {
        int below = p.rbp > 0 ? p.rbp - 1 : 0;
        if (8 * below <= RED_ZONE && (p.base == BASE_RBP || p.cfa >= 8)) /* words further down may not be readable */
            *row = (struct row){.pc = pc, .to = p.cfa - 8, .rbp = (int8_t)-below,
                .base = p.base == BASE_RBP ? RBP : RSP};
    } else if (ehu_row_(o, pc, false) == EH_ELF_OUTERMOST) {
        row->base = END;
    }
    return true;
}

/*
 * after finds the row of a return address that does not lie behind *before, the one of the frame before. A walk that
 * writes the trail goes on to do so. Null: the address has no row.
 */
__attribute__((noinline)) static const struct row *after(struct memory *m, const struct ehu_table *t,
    const struct row *before, uint64_t pc)
{
    struct row *r = &m->row[hash(pc, ROW_BITS)];
    m->misses++;
    if (r->pc != pc && !learn(m, t, pc, r))
        return NULL;
    if (before != &m->trail[m->tail] && m->trail[r->at].pc == pc)
        return &m->trail[r->at];
    m->tail = m->tail < TRAIL ? m->tail + 1 : 1;
    r->at = m->tail;
    m->trail[m->tail] = *r;
    return &m->trail[m->tail];
}

/*
 * steps takes steps as far as rows are remembered or can be learnt; the word at last is the stack's last. The rest is as
 * in ehu_recall_.
 */
__attribute__((noinline, no_sanitize("address"))) static size_t steps(struct memory *m, const struct ehu_table *t,
    const eh_elf_regs_t *start, eh_elf_regs_t *regs, uint64_t last, uint64_t *pcs, uint64_t *full)
{
    uint64_t pc = start->reg[EH_ELF_RIP], rsp = start->reg[EH_ELF_RSP], rbp = start->reg[EH_ELF_RBP], *to = pcs;
    uint16_t *begin = &m->start[hash(pc ^ rsp << 16, START_BITS)];
    const struct row *r = &m->trail[*begin];
    bool writes = *begin == WRITE;
    m->misses = 0;
    if (r->pc != pc && (r = after(m, t, &m->trail[writes ? m->tail : 0], pc)))
        *begin = (uint16_t)(r - m->trail);
    while (r && to != full) {
        uint64_t at = rsp + (uint64_t)(int64_t)r->to;
        if (__builtin_expect(r->base != RSP, 0)) {
            at = rbp + (uint64_t)(int64_t)r->to;
            if (r->base != RBP || at < rsp)
                break;
        }
        if (at > last)
            break;
        const uint64_t *word = (const uint64_t *)(uintptr_t)at;
        pc = *word;
        if (r->rbp)
            rbp = word[r->rbp];
        rsp = at + 8;
        *to++ = pc;
        r = __builtin_expect(r[1].pc == pc, 1) ? r + 1 : after(m, t, r, pc);
    }
    regs->reg[EH_ELF_RIP] = pc;
    regs->reg[EH_ELF_RSP] = rsp;
    regs->reg[EH_ELF_RBP] = rbp;
    regs->valid = 1 << EH_ELF_RIP | 1 << EH_ELF_RSP | 1 << EH_ELF_RBP;
    regs->exact = 0;
    regs->status = r && to != full && r->base == END ? EH_ELF_OUTERMOST : EH_ELF_OK;
    int n = (int)(to - pcs);
    if (m->misses * 4 > n && !writes)
        *begin = WRITE;
    m->gain += n - MISS * m->misses;
    return (size_t)n;
}

size_t ehu_recall_(const struct ehu_table *t, struct ehu_slot *own, const eh_elf_regs_t *start, eh_elf_regs_t *regs,
    uint64_t *pcs, size_t max)
{
#ifdef __SANITIZE_THREAD__ /* which does not know that a thread has ended before another has its thread pointer */
    return 0;
#endif
    struct memory *m = &memories[own - ehu_slots_];
    uint64_t rsp = start->reg[EH_ELF_RSP], end = ehu_own_stack_.hi;
    __asm__("" : "+r"(m)); /* else each address in it is made of two parts */
    /* Only on the thread's own stack: a thread made by a bare clone, with the thread pointer of its maker, has another. */
    if (start->exact || m->busy || rsp >= end || rsp - RED_ZONE < ehu_own_stack_.lo || ehu_own_stack_.hi != end)
        return 0;
    m->busy = true;
    atomic_signal_fence(memory_order_seq_cst);
    if (m->generation != t->generation) {
        memset(&m->backoff, 0, sizeof *m - offsetof(struct memory, backoff));
        m->generation = t->generation;
    }
    size_t n = steps(m, t, start, regs, end - 8, pcs, pcs + max);
    if (m->gain > MOST_GAIN) {
        m->gain = MOST_GAIN;
        m->backoff = 0;
    } else if (m->gain < 0) {
        m->gain = 0;
        own->idle = m->backoff = (m->backoff * 2 + 1) & MOST_IDLE;
    }
    atomic_signal_fence(memory_order_seq_cst);
    m->busy = false;
    return n;
}
