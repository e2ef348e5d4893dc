/* Ways over several frames, noted when they are gone for the first time. */
#include "paths.h"

struct ehx_stride ehx_strides_[STRIDE_SLOTS];
struct ehx_trail ehx_trails_[TRAIL_SLOTS];

/* begin_writing takes a slot, unless another thread has. */
static bool begin_writing(_Atomic uint64_t *turn, uint64_t *now)
{
    *now = atomic_load_explicit(turn, memory_order_relaxed);
    if (*now % 2 != 0 || !atomic_compare_exchange_strong(turn, now, *now + 1))
        return false;
    atomic_thread_fence(memory_order_release);
    return true;
}

static void end_writing(_Atomic uint64_t *turn, uint64_t now) { atomic_store_explicit(turn, now + 2, memory_order_release); }

void ehx_forget_(void)
{
    uint64_t turn;
    for (size_t i = 0; i < KNOWN_SLOTS; i++)
        atomic_store(&ehx_known_[i].loads, 0);
    for (size_t i = 0; i < STRIDE_SLOTS; i++)
        if (begin_writing(&ehx_strides_[i].turn, &turn)) {
            ehx_strides_[i].loads = 0;
            end_writing(&ehx_strides_[i].turn, turn);
        }
    for (size_t i = 0; i < TRAIL_SLOTS; i++)
        if (begin_writing(&ehx_trails_[i].turn, &turn)) {
            ehx_trails_[i].loads = 0;
            end_writing(&ehx_trails_[i].turn, turn);
        }
}

/*
 * step_on takes the plain step of a frame whose CFA is rsp plus an offset. It tells where the return address is, in words from
 * start, and with reg notes where registers are; false where the step is another one, or too far.
 */
static bool step_on(struct ehx_frame *f, uint64_t start, const struct ehx_step *s, uint16_t *at, uint16_t *reg)
{
    uint64_t cfa = f->rsp + (uint64_t)(int64_t)s->cfa;
    if (s->base != BASE_RSP || cfa <= f->rsp || (cfa - start) % 8 != 0 || (cfa - start) / 8 >= UINT16_MAX)
        return false;
    const uint8_t below[PATH_REGS] = {s->rbp, s->rbx, s->others[0], s->others[1], s->others[2], s->others[3]};
    for (int r = 0; reg && r < PATH_REGS; r++) {
        if (below[r] == 0)
            continue;
        uint64_t word = cfa - 8 * (uint64_t)below[r];
        if (word < start)
            return false;
        reg[r] = (uint16_t)((word - start) / 8 + 1);
    }
    *at = (uint16_t)((cfa - 8 - start) / 8);
    f->rsp = cfa;
    f->pc = ehx_word_(cfa - 8);
    return true;
}

/* find finds what is known of a frame; it learns nothing. */
static bool find(struct ehx_seen *s, uint64_t pc, uint64_t loads)
{
    size_t i = ehx_slot_(pc * 2);
    return ehx_in_slot_(s, &ehx_known_[i], pc * 2, loads) || ehx_in_slot_(s, &ehx_known_[i ^ 1], pc * 2, loads);
}

__attribute__((noinline, cold)) void ehx_learn_stride_(struct ehx_stride *t, struct ehx_frame f, struct ehx_known *from, uint64_t loads)
{
    struct ehx_stride new = {.start = f.pc * 2, .loads = loads};
    struct ehx_seen s;
    uint64_t start = f.rsp, turn;
    if (!ehx_in_slot_(&s, from, f.pc * 2, loads))
        return;
    int n = 0;
    while (n < STRIDE_MAX) {
        uint16_t reg[PATH_REGS];
        memcpy(reg, new.reg, sizeof reg);
        if (!step_on(&f, start, &s.step, &new.at[n], reg))
            break;
        if (!find(&s, f.pc, loads)) {
            if (n < STRIDE_MIN)
                return; /* it will be, the next time */
            break;
        }
        if (s.step.kind != KIND_SKIP && s.step.kind != KIND_CLEANUP)
            break;
        memcpy(new.reg, reg, sizeof reg);
        new.pc[n++] = f.pc;
        new.kinds |= (uint8_t)(1 << s.step.kind);
        new.last = (uint16_t)(s.slot - ehx_known_);
    }
    new.n = (uint8_t)n;
    if (t->start == new.start && t->loads == loads && n < t->n && !ehx_seldom_())
        return; /* the longer one may be of use again */
    if (n < STRIDE_MIN)
        new.kinds = STRIDE_NONE;
    else
        new.up = 8 * (uint64_t)new.at[n - 1] + 8, new.pc_after = new.pc[n - 1];
    for (int i = n; n >= STRIDE_MIN && i % STRIDE_GROUP != 0; i++) {
        new.at[i] = new.at[n - 1];
        new.pc[i] = new.pc[n - 1];
    }
    if (!begin_writing(&t->turn, &turn))
        return;
    memcpy((char *)t + sizeof t->turn, (const char *)&new + sizeof new.turn, sizeof new - sizeof new.turn);
    end_writing(&t->turn, turn);
}

/* ehx_learn_trail_ goes once more the way of a throw that has just found its handler. */
__attribute__((noinline, cold)) void ehx_learn_trail_(struct ehx_trail *t, struct ehx_frame f, struct ehx_exception *e, uint64_t type,
                                                      uint64_t loads)
{
    struct ehx_trail new = {.type = type, .loads = loads};
    uint64_t start = f.rsp, turn;
    bool found = false, landed = false;
    for (unsigned i = 0; i <= TRAIL_MAX && !found; i++) {
        struct ehx_seen s;
        enum ehx_verdict said = VERDICT_UNKNOWN;
        if (!find(&s, f.pc, loads))
            return;
        new.pc[i] = f.pc;
        bool lands = s.step.kind == KIND_CLEANUP;
        if (s.step.kind == KIND_ACTION || s.step.kind == KIND_ACTION_CLEANUP) {
            said = ehx_recall_(e, type, f.pc * 2, loads);
            if (said == VERDICT_UNKNOWN)
                return;
            lands = said == VERDICT_CATCHES || s.step.kind == KIND_ACTION_CLEANUP;
        } else if (s.step.kind != KIND_SKIP && !lands) {
            break;
        }
        if (lands && !landed) {
            if (i == 0)
                break;
            landed = true;
            new.pad = s.pad;
            new.cleanup = said != VERDICT_CATCHES;
            new.rsp = (uint16_t)(new.at[i - 1] + 1);
        }
        if (said == VERDICT_CATCHES) {
            ehx_get_(e, &new.selector, &new.caught);
            new.n = (uint8_t)i;
            found = true;
        } else if (i == TRAIL_MAX || !step_on(&f, start, &s.step, &new.at[i], landed ? NULL : new.reg)) {
            break;
        }
    }
    if (!begin_writing(&t->turn, &turn))
        return;
    memcpy((char *)t + sizeof t->turn, (const char *)&new + sizeof new.turn, sizeof new - sizeof new.turn);
    end_writing(&t->turn, turn);
}
