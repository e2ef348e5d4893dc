/*
 * Paths over several frames that were taken before, of two kinds: strides and trails. A path stores the offsets of the
 * return addresses from the stack pointer at its start, so that the processor can read them all at once; if all
 * addresses are as stored, so are the frames. The CFA of each frame is rsp plus an offset.
 *
 * Slots work as in eh.h. Before a word of the stack is read, its offset and the expected address are read and the turn
 * is checked.
 */
#ifndef EHX_PATHS_H
#define EHX_PATHS_H

#include "eh.h"

#pragma GCC visibility push(hidden)

/* In the order of struct ehx_step. */
enum { PATH_RBP, PATH_RBX, PATH_R12, PATH_R13, PATH_R14, PATH_R15, PATH_REGS };

/* A stride leads from a frame over frames of KIND_SKIP and KIND_CLEANUP. Offsets are in words. */
enum { STRIDE_MAX = 16, STRIDE_MIN = 3, STRIDE_SLOTS = 256, STRIDE_GROUP = 4 /* frames that are looked at together */,
    STRIDE_NONE = 1 << 7 };
struct ehx_stride {
    _Alignas(64) _Atomic uint64_t turn;
    uint64_t start, loads;    /* the first frame's key, as in struct ehx_known */
    uint16_t at[STRIDE_MAX];  /* offset of each frame's return address; an incomplete group repeats the last */
    uint16_t reg[PATH_REGS]; /* 1 plus the offset where the register was saved last; 0: not saved */
    uint16_t last;            /* number of the last frame's struct ehx_known */
    uint8_t n, kinds; /* kinds: a bit for each that occurs; STRIDE_NONE: no stride starts here */
    uint64_t up, pc_after; /* the last frame's rsp minus rsp at the start, and its pc */
    uint64_t pc[STRIDE_MAX];
};
_Static_assert(sizeof(struct ehx_stride) == 256 && offsetof(struct ehx_stride, at) % 8 == 0 &&
    offsetof(struct ehx_stride, reg) % 8 == 0 &&
                   offsetof(struct ehx_stride, last) == offsetof(struct ehx_stride, reg) + 12,
               "four cache lines, read by words");

/* A trail is the whole way of a throw of one type, from the call of _Unwind_RaiseException to the first landing pad. */
enum { TRAIL_MAX = 10, TRAIL_SLOTS = 1 << TRAIL_BITS };
struct ehx_trail {
    _Alignas(64) _Atomic uint64_t turn;
    uint64_t type, loads;
    uint64_t pc[TRAIL_MAX + 1]; /* of each frame; the last has the handler */
    uint16_t at[TRAIL_MAX];     /* offset of the word that holds pc[i+1] */
    uint8_t n; /* steps; 0: no trail */
    bool cleanup;               /* the landing pad is not the handler's */
    uint16_t rsp;               /* at the landing pad, as an offset */
    uint16_t reg[PATH_REGS]; /* at the landing pad, as in a stride */
    int32_t selector;
    uint64_t pad;
    struct ehx_caught caught;
};
_Static_assert(sizeof(struct ehx_trail) <= 256 && offsetof(struct ehx_trail, reg) % 8 == 0 &&
    offsetof(struct ehx_trail, selector) == offsetof(struct ehx_trail, reg) + 12,
               "four cache lines, read by words");

extern struct ehx_stride ehx_strides_[STRIDE_SLOTS];
_Static_assert(offsetof(struct ehx_trail, type) == TRAIL_TYPE && offsetof(struct ehx_trail, loads) == TRAIL_LOADS &&
    offsetof(struct ehx_trail, pc) == TRAIL_PC &&
                   offsetof(struct ehx_trail, at) == TRAIL_AT && offsetof(struct ehx_trail, n) == TRAIL_N &&
                   offsetof(struct ehx_trail, cleanup) == TRAIL_N + 1 &&
                   offsetof(struct ehx_trail, rsp) == TRAIL_RSP && offsetof(struct ehx_trail, reg) == TRAIL_REG &&
                   offsetof(struct ehx_trail, pad) == TRAIL_PAD &&
                   offsetof(struct ehx_trail, caught) == TRAIL_CAUGHT &&
                   sizeof(struct ehx_trail) % (1 << TRAIL_UNIT) == 0,
               "entry.S");

extern struct ehx_trail ehx_trails_[TRAIL_SLOTS];
/* by stack pointer: the trail that _Unwind_RaiseException tries, see entry.S */
extern uint16_t ehx_hints_[TRAIL_SLOTS];
void ehx_learn_stride_(struct ehx_stride *t, struct ehx_frame f, struct ehx_known *from, uint64_t loads);
void ehx_learn_trail_(struct ehx_trail *t, struct ehx_frame f, struct ehx_exception *e, uint64_t type, uint64_t loads);

/* ehx_restore_ loads registers from the offsets in reg of a path, which is passed as two words: rbp, rbx,
 * r12 to r15, 16 bits each. An offset is in words from rsp, plus 1: 0 leaves the register as it is. */
static inline __attribute__((always_inline)) void ehx_restore_(struct ehx_frame *f, uint64_t rsp, const uint64_t reg[2])
{
    rsp -= 8;
    if ((uint32_t)reg[0]) {
        if (reg[0] & 0xffff)
            f->rbp = ehx_word_(rsp + 8 * (reg[0] & 0xffff));
        if (reg[0] >> 16 & 0xffff)
            f->rbx = ehx_word_(rsp + 8 * (reg[0] >> 16 & 0xffff));
    }
    if (reg[0] >> 32 | (uint32_t)reg[1]) {
        if (reg[0] >> 32 & 0xffff)
            f->r12 = ehx_word_(rsp + 8 * (reg[0] >> 32 & 0xffff));
        if (reg[0] >> 48)
            f->r13 = ehx_word_(rsp + 8 * (reg[0] >> 48));
        if (reg[1] & 0xffff)
            f->r14 = ehx_word_(rsp + 8 * (reg[1] & 0xffff));
        if (reg[1] >> 16 & 0xffff)
            f->r15 = ehx_word_(rsp + 8 * (reg[1] >> 16 & 0xffff));
    }
}

/*
 * ehx_stride_ takes strides from the frame that s describes to another one; an exception passes over both. It reports
 * whether it took any; of s, only the slot is then valid.
 */
static inline __attribute__((always_inline)) bool ehx_stride_(struct ehx_frame *f, struct ehx_seen *s, uint64_t loads,
    unsigned kinds)
{
    size_t slot = (size_t)(s->slot - ehx_known_);
    uint64_t rsp = f->rsp, key = f->pc * 2;
    struct ehx_stride *t;
    enum { NOTED, NOT_NOTED, CHANGED } found = NOTED;
    for (;;) {
        t = &ehx_strides_[slot % STRIDE_SLOTS];
        uint64_t turn = ehx_begin_reading_(&t->turn);
        if (EHX_GET(t->start) != key || EHX_GET(t->loads) != loads || EHX_GET(t->kinds) & ~kinds) {
            found = EHX_GET(t->start) == key && EHX_GET(t->kinds) != STRIDE_NONE ? CHANGED : NOT_NOTED;
            break;
        }
        uint64_t reg[2], up = EHX_GET(t->up), pc = EHX_GET(t->pc_after);
        ehx_copy_from_(reg, t->reg, sizeof reg); /* last and n are above the last two */
        const uint64_t *want = t->pc;
        const ehx_any *group = (const ehx_any *)(const void *)t->at;
        int left = reg[1] >> 48 & 0xff;
        found = NOTED;
        do { /* an offset is valid if all addresses before it are the same */
            uint64_t a = EHX_GET(*group), first = EHX_GET(want[0]), second = EHX_GET(want[1]), third = EHX_GET(want[2]),
                fourth = EHX_GET(want[3]);
            if (!ehx_unchanged_(&t->turn, turn)) {
                found = CHANGED;
                break;
            }
            if (ehx_word_(rsp + 8 * (a & 0xffff)) != first || ehx_word_(rsp + 8 * (a >> 16 & 0xffff)) != second ||
                ehx_word_(rsp + 8 * (a >> 32 & 0xffff)) != third || ehx_word_(rsp + 8 * (a >> 48)) != fourth) {
                found = NOT_NOTED;
                break;
            }
            group++;
            want += STRIDE_GROUP;
            left -= STRIDE_GROUP;
        } while (left > 0);
        if (unlikely(found != NOTED))
            break;
        ehx_restore_(f, rsp, reg);
        rsp += up;
        key = pc * 2;
        slot = (reg[1] >> 32) % KNOWN_SLOTS;
    }
    struct ehx_known *k = &ehx_known_[slot];
    bool any = rsp != f->rsp;
    f->rsp = rsp;
    f->pc = key / 2;
    s->slot = k;
    if (unlikely(EHX_GET(t->loads) != loads) || (found == NOT_NOTED && ehx_seldom_()))
        ehx_learn_stride_(t, *f, k, loads);
    return any;
}

/*
 * ehx_follow_ follows a trail. If it returns false it has changed nothing; learn is then null or a place to store the
 * path of this throw.
 */
static inline __attribute__((always_inline)) bool ehx_follow_(struct ehx_landing *to, struct ehx_exception *e,
    uint64_t loads,
                                                              struct ehx_trail **learn)
{
    struct ehx_frame *f = &to->frame;
    uint64_t type = ehx_raw_type_(e), rsp = f->rsp, key = f->pc * 2;
    const struct ehx_known *k = &ehx_known_[ehx_slot_(key)];
    *learn = NULL;
    if (unlikely(type == 0))
        return false;
    uint64_t turn = ehx_begin_reading_(&k->turn);
    if (EHX_GET(k->key) != key) {
        k = &ehx_known_[ehx_slot_(key) ^ 1];
        turn = ehx_begin_reading_(&k->turn);
        if (EHX_GET(k->key) != key)
            return false;
    }
    bool now = EHX_GET(k->loads) == loads;
    uint64_t step = EHX_GET(k->step), cfa = rsp + (uint64_t)(int64_t)(int32_t)step;
    if (unlikely(!ehx_unchanged_(&k->turn, turn) || !now || (step >> 32 & 0xffff) != 0 || cfa <= rsp))
        return false; /* BASE_RSP and KIND_SKIP are 0 */
    struct ehx_trail *t = &ehx_trails_[(ehx_word_(cfa - 8) * KNOWN_HASH ^ type * 0xc2b2ae3d27d4eb4fu) >> (64 - TRAIL_BITS)];
    turn = ehx_begin_reading_(&t->turn);
    if (unlikely(EHX_GET(t->type) != type || EHX_GET(t->loads) != loads || EHX_GET(t->pc[0]) != f->pc)) {
        if (EHX_GET(t->loads) != loads || ehx_seldom_())
            *learn = t;
        return false;
    }
    unsigned n = EHX_GET(t->n), i = 0;
    uint64_t at = 0;
    while (i < n) { /* an offset is valid if all before it were */
        uint64_t want = EHX_GET(t->pc[i + 1]);
        at = EHX_GET(t->at[i]);
        if (!ehx_unchanged_(&t->turn, turn))
            return false;
        if (ehx_word_(rsp + 8 * at) != want)
            break;
        i++;
    }
    if (unlikely(i < n || n == 0)) {
        if (ehx_seldom_())
            *learn = t;
        return false;
    }
    uint64_t reg[2], up = EHX_GET(t->rsp), pad = EHX_GET(t->pad);
    struct ehx_caught caught;
    bool cleanup = EHX_GET(t->cleanup);
    ehx_copy_from_(reg, t->reg, sizeof reg); /* the selector is above the last two */
    ehx_copy_from_(&caught, &t->caught, sizeof caught);
    if (!ehx_unchanged_(&t->turn, turn))
        return false;
    uint16_t *hint = &ehx_hints_[(rsp - 8) / 16 % TRAIL_SLOTS],
        this = (uint16_t)(((char *)t - (char *)ehx_trails_) >> TRAIL_UNIT);
    if (EHX_GET(*hint) != this && (EHX_GET(*hint) == 0 || ehx_seldom_()))
        __atomic_store_n(hint, this, __ATOMIC_RELAXED);
    int32_t selector = (int32_t)(reg[1] >> 32);
    ehx_restore_(f, rsp, reg);
    f->rsp = rsp + 8 * up;
    f->pc = pad;
    ehx_put_(e, selector, &caught);
    e->private_1 = 0;
    e->private_2 = rsp + 8 * at + 8; /* what libgcc has there: see raise.c */
    to->rax = (uint64_t)(uintptr_t)e;
    to->rdx = cleanup ? 0 : (uint64_t)(int64_t)selector;
    return true;
}

/*
 * ehx_run_ takes plain steps from the frame that s describes, over frames of the given kinds, as long as the callee's
 * slot leads to each, and up to a limit. It returns 1 if s describes the frame reached, 0 if that frame must still be
 * looked up, and a negative value if the stack does not rise. s->slot must not be null, and the first step must be a
 * plain one.
 */
static inline __attribute__((always_inline)) int ehx_run_(struct ehx_frame *f, struct ehx_seen *s, uint64_t loads,
    unsigned kinds)
{
    struct ehx_known *k = s->slot;
    uint64_t step = ehx_first_word_(&s->step); /* kinds has KIND_SKIP */
    uint64_t rsp = f->rsp, rbp = f->rbp, rbx = f->rbx, r12 = f->r12, r13 = f->r13, r14 = f->r14, r15 = f->r15, pc;
    uint32_t others;
    int found = 0;
    memcpy(&others, s->step.others, sizeof others);
    for (int steps = 0;; steps++) {
        uint64_t cfa = (step >> 32 & 1 ? rbp : rsp) + (uint64_t)(int64_t)(int32_t)step;
        if (unlikely(cfa <= rsp)) {
            found = -1;
            pc = f->pc;
            break;
        }
        if (step >> 48) {
            if (step >> 48 & 0xff)
                rbp = ehx_word_(cfa - 8 * (step >> 48 & 0xff));
            if (step >> 56)
                rbx = ehx_word_(cfa - 8 * (step >> 56));
        }
        if (others) {
            if (others & 0xff)
                r12 = ehx_word_(cfa - 8 * (uint64_t)(others & 0xff));
            if (others >> 8 & 0xff)
                r13 = ehx_word_(cfa - 8 * (uint64_t)(others >> 8 & 0xff));
            if (others >> 16 & 0xff)
                r14 = ehx_word_(cfa - 8 * (uint64_t)(others >> 16 & 0xff));
            if (others >> 24)
                r15 = ehx_word_(cfa - 8 * (uint64_t)(others >> 24));
        }
        pc = ehx_word_(cfa - 8);
        rsp = cfa;
        struct ehx_known *n = ehx_next_(k, 0);
        uint64_t turn = ehx_begin_reading_(&n->turn);
        if (EHX_GET(n->key) != pc * 2) {
            n = ehx_next_(k, 1);
            turn = ehx_begin_reading_(&n->turn);
            if (EHX_GET(n->key) != pc * 2)
                break;
        }
        if (unlikely(EHX_GET(n->loads) != loads))
            break;
        uint64_t pad = EHX_GET(n->pad);
        step = EHX_GET(n->step);
        others = EHX_GET(n->others);
        if (!ehx_unchanged_(&n->turn, turn))
            break;
        k = n;
        if (unlikely((!ehx_passes_(step) && (!(kinds >> (step >> 40 & 7) & 1) || (step >> 32 & 3) == BASE_WALK)) ||
            steps == STRIDE_MAX)) {
            memcpy(&s->step, &step, sizeof step);
            memcpy(s->step.others, &others, sizeof others);
            s->pad = pad;
            found = 1;
            break;
        }
    }
    s->slot = k;
    *f = (struct ehx_frame){.rsp = rsp, .rbp = rbp, .pc = pc, .rbx = rbx, .r12 = r12, .r13 = r13, .r14 = r14,
        .r15 = r15};
    return found;
}

/* ehx_advance_ goes on to the next frame of another kind than kinds and describes it in s. It returns a negative value if
   that is not possible. */
static inline __attribute__((always_inline)) int ehx_advance_(struct ehx_frame *f, struct ehx_seen *s, bool *exact,
    uint64_t loads, unsigned kinds)
{
    do {
        if (likely(s->slot && s->step.base != BASE_WALK)) {
            if (likely(!*exact) && ehx_stride_(f, s, loads, kinds) &&
                (unlikely(!ehx_in_slot_(s, s->slot, f->pc * 2, loads)) || s->step.base == BASE_WALK)) {
                ehx_look_again_(s, f->pc, false, loads);
                continue;
            }
            int found = ehx_run_(f, s, loads, kinds);
            *exact = false;
            if (found > 0)
                continue;
            if (unlikely(found < 0))
                return EHU_NOT_RISING;
            ehx_look_again_(s, f->pc, false, loads);
        } else {
            int status = ehx_step_(f, exact, &s->step);
            if (status != EH_ELF_OK)
                return status;
            ehx_look_(s, f->pc, *exact, loads);
        }
    } while (kinds >> s->step.kind & 1);
    return EH_ELF_OK;
}

#pragma GCC visibility pop
#endif
