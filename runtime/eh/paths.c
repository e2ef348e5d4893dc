/* Paths over several frames, stored when they are taken for the first time. */
#include "paths.h"

struct ehx_stride ehx_strides_[STRIDE_SLOTS];
struct ehx_trail ehx_trails_[TRAIL_SLOTS];
uint16_t ehx_hints_[TRAIL_SLOTS];

/* ehx_forget_ makes all slots invalid by a number of loads that never occurs, 0. Slots in other threads'
 * hands are skipped: what these store concerns their own stacks. */
void ehx_forget_(void)
{
    uint64_t turn;
    for (size_t i = 0; i < KNOWN_SLOTS; i++)
        __atomic_store_n(&ehx_known_[i].loads, 0, __ATOMIC_RELAXED);
    for (size_t i = 0; i < STRIDE_SLOTS; i++)
        if (ehx_begin_writing_(&ehx_strides_[i].turn, &turn)) {
            __atomic_store_n(&ehx_strides_[i].loads, 0, __ATOMIC_RELAXED);
            ehx_end_writing_(&ehx_strides_[i].turn, turn);
        }
    for (size_t i = 0; i < TRAIL_SLOTS; i++)
        if (ehx_begin_writing_(&ehx_trails_[i].turn, &turn)) {
            __atomic_store_n(&ehx_trails_[i].loads, 0, __ATOMIC_RELAXED);
            ehx_end_writing_(&ehx_trails_[i].turn, turn);
        }
}

static void write_stride(struct ehx_stride *t, const struct ehx_stride *new)
{
    uint64_t turn;
    if (!ehx_begin_writing_(&t->turn, &turn))
        return;
    ehx_copy_to_(&t->start, &new->start, sizeof *t - offsetof(struct ehx_stride, start));
    ehx_end_writing_(&t->turn, turn);
}

static void write_trail(struct ehx_trail *t, const struct ehx_trail *new)
{
    uint64_t turn;
    if (!ehx_begin_writing_(&t->turn, &turn))
        return;
    ehx_copy_to_(&t->type, &new->type, sizeof *t - offsetof(struct ehx_trail, type));
    ehx_end_writing_(&t->turn, turn);
}

/*
 * step_on takes the plain step of a frame whose CFA is rsp plus an offset. It stores where the return address is, in
 * words from start, and with reg where registers are. It returns false for any other step, and if an offset is too
 * large.
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

/* find looks up what is known of a frame, without learning it. */
static bool find(struct ehx_seen *s, uint64_t pc, uint64_t loads)
{
    size_t i = ehx_slot_(pc * 2);
    return ehx_in_slot_(s, &ehx_known_[i], pc * 2, loads) || ehx_in_slot_(s, &ehx_known_[i ^ 1], pc * 2, loads);
}

/* ehx_learn_stride_ stores the stride that begins at the frame f, whose slot is from, as far as its frames
 * are known. All of it is read again from the stack, since the walk that asks has kept nothing. */
__attribute__((noinline, cold)) void ehx_learn_stride_(struct ehx_stride *t, struct ehx_frame f, struct ehx_known *from,
    uint64_t loads)
{
    struct ehx_stride new = {.start = f.pc * 2, .loads = loads};
    struct ehx_seen s;
    uint64_t start = f.rsp;
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
                return; /* it will be known the next time */
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
    if (EHX_GET(t->start) == new.start && EHX_GET(t->loads) == loads && n < EHX_GET(t->n) && !ehx_seldom_())
        return; /* the longer one may be used again */
    if (n < STRIDE_MIN)
        new.kinds = STRIDE_NONE;
    else
        new.up = 8 * (uint64_t)new.at[n - 1] + 8, new.pc_after = new.pc[n - 1];
    /* The last group repeats the last frame, so that groups are compared without counting. */
    for (int i = n; n >= STRIDE_MIN && i % STRIDE_GROUP != 0; i++) {
        new.at[i] = new.at[n - 1];
        new.pc[i] = new.pc[n - 1];
    }
    write_stride(t, &new);
}

/* ehx_learn_trail_ walks the path of a throw that has just found its handler once more, and stores it. */
__attribute__((noinline, cold)) void ehx_learn_trail_(struct ehx_trail *t, struct ehx_frame f, struct ehx_exception *e,
    uint64_t type,
                                                      uint64_t loads)
{
    struct ehx_trail new = {.type = type, .loads = loads};
    uint64_t start = f.rsp;
    if (ehx_is_pointer_(type))
        return; /* the handler's object would not follow from where the exception is */
    bool found = false, landed = false;
    for (unsigned i = 0; i <= TRAIL_MAX && !found; i++) {
        struct ehx_seen s;
        enum ehx_verdict said = VERDICT_UNKNOWN;
        if (!find(&s, f.pc, loads))
            return;
        new.pc[i] = f.pc;
        unsigned kind = ehx_kind_(&s.step);
        bool lands = kind == KIND_CLEANUP;
        if (kind == KIND_ACTION || kind == KIND_ACTION_CLEANUP) {
            said = ehx_recall_(e, type, f.pc * 2, loads);
            if (said == VERDICT_UNKNOWN)
                return;
            lands = said == VERDICT_CATCHES || kind == KIND_ACTION_CLEANUP;
        } else if (kind != KIND_SKIP && !lands) {
            break;
        }
        if (lands && !landed) {
            uint64_t rsp = i == 0 ? UINT64_MAX : new.at[i - 1] + 1 + ehx_args_(s.pad);
            if (rsp > UINT16_MAX)
                break;
            landed = true;
            new.pad = ehx_pad_(s.pad);
            new.cleanup = said != VERDICT_CATCHES;
            new.rsp = (uint16_t)rsp;
        }
        if (said == VERDICT_CATCHES) {
            ehx_get_(e, &new.selector, &new.caught);
            new.n = (uint8_t)i;
            found = true;
        } else if (i == TRAIL_MAX || !step_on(&f, start, &s.step, &new.at[i], landed ? NULL : new.reg)) {
            break;
        }
    }
    write_trail(t, &new);
}
