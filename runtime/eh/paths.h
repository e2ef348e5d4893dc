/*
 * Ways over several frames that were gone before. The offsets of the return addresses from the stack pointer at the
 * start are known, so the processor need not find one frame to look at the next; that all addresses are what they were
 * says that all frames are. Both kinds are only of frames whose CFA is rsp plus an offset.
 *
 * As with what is known of a return address, slots are shared by all threads. turn is odd while one is written; who reads
 * looks at it again before an offset is used.
 */
#ifndef EHX_PATHS_H
#define EHX_PATHS_H

#include "eh.h"

#pragma GCC visibility push(hidden)

enum { PATH_RBP, PATH_RBX, PATH_R12, PATH_R13, PATH_R14, PATH_R15, PATH_REGS };

/* A stride: from a frame over frames of SKIP and CLEANUP. Offsets are in words. */
enum { STRIDE_MAX = 16, STRIDE_MIN = 3, STRIDE_SLOTS = 256, STRIDE_GROUP = 4 /* frames that are looked at together */, STRIDE_NONE = 1 << 7 };
struct ehx_stride {
    _Alignas(64) _Atomic uint64_t turn;
    uint64_t start, loads;    /* the first frame's key, as in struct ehx_known */
    uint16_t at[STRIDE_MAX];  /* of the return address of each frame; in a group that is not full, the last again */
    uint16_t reg[PATH_REGS];  /* 1 more than where the register was saved last; 0: it was not */
    uint16_t last;            /* number of the last frame's struct ehx_known */
    uint8_t n, kinds;         /* kinds: a bit for each; STRIDE_NONE where it is known that there is none */
    uint64_t up, pc_after;    /* of the last frame: rsp, less that at the start, and pc */
    uint64_t pc[STRIDE_MAX];
};
_Static_assert(sizeof(struct ehx_stride) == 256, "four cache lines");

/* A trail: all that a throw of a type does, from the call of _Unwind_RaiseException to the first landing pad. */
enum { TRAIL_MAX = 10, TRAIL_SLOTS = 512 };
struct ehx_trail {
    _Alignas(64) _Atomic uint64_t turn;
    uint64_t type, loads;
    uint64_t pc[TRAIL_MAX + 1]; /* of the frames, the handler's last */
    uint16_t at[TRAIL_MAX];     /* pc[i+1] is there */
    uint8_t n;                  /* steps; 0 where it is known that there is none */
    bool cleanup;               /* the landing pad is not that of the handler */
    uint16_t rsp;               /* at the landing pad, as an offset */
    uint16_t reg[PATH_REGS]; /* up to there, as in a stride */
    int32_t selector;
    uint64_t pad;
    struct ehx_caught caught;
};
_Static_assert(sizeof(struct ehx_trail) <= 256, "four cache lines");

extern struct ehx_stride ehx_strides_[STRIDE_SLOTS];
extern struct ehx_trail ehx_trails_[TRAIL_SLOTS];
void ehx_learn_stride_(struct ehx_stride *t, struct ehx_frame f, struct ehx_known *from, uint64_t loads);
void ehx_learn_trail_(struct ehx_trail *t, struct ehx_frame f, struct ehx_exception *e, uint64_t type, uint64_t loads);

/* ehx_restore_ takes registers from where reg of a path says, which is two words here. */
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

/* Whether to write where there is something: now and then. */
static inline bool ehx_seldom_(void) { return __builtin_ia32_rdtsc() % 64 == 0; }

/*
 * ehx_stride_ takes strides from the frame that s describes, which is passed over, to another that is. It returns whether it took any; then s
 * has only the slot.
 */
static inline __attribute__((always_inline)) bool ehx_stride_(struct ehx_frame *f, struct ehx_seen *s, uint64_t loads, unsigned kinds)
{
    size_t slot = (size_t)(s->slot - ehx_known_);
    uint64_t rsp = f->rsp, key = f->pc * 2;
    struct ehx_stride *t;
    bool as_noted = true;
    for (;;) {
        t = &ehx_strides_[slot % STRIDE_SLOTS];
        uint64_t turn = atomic_load_explicit(&t->turn, memory_order_acquire);
        if (t->start != key || t->loads != loads || t->kinds & ~kinds) {
            as_noted = t->start == key && t->kinds != STRIDE_NONE;
            break;
        }
        uint64_t at[STRIDE_MAX / STRIDE_GROUP], reg[2] = {0}, last = t->last, up = t->up, pc = t->pc_after;
        unsigned n = t->n;
        memcpy(at, t->at, sizeof at);
        memcpy(reg, t->reg, sizeof t->reg);
        atomic_thread_fence(memory_order_acquire);
        if (unlikely(turn % 2 != 0 || n > STRIDE_MAX || atomic_load_explicit(&t->turn, memory_order_relaxed) != turn))
            break;
        const uint64_t *group = at, *want = t->pc, *end = want + n;
        as_noted = true;
        do { /* an offset is good if all addresses before it are the same */
            uint64_t a = *group++;
            if (ehx_word_(rsp + 8 * (a & 0xffff)) != want[0] || ehx_word_(rsp + 8 * (a >> 16 & 0xffff)) != want[1] ||
                ehx_word_(rsp + 8 * (a >> 32 & 0xffff)) != want[2] || ehx_word_(rsp + 8 * (a >> 48)) != want[3]) {
                as_noted = false;
                break;
            }
            want += STRIDE_GROUP;
        } while (want < end);
        atomic_thread_fence(memory_order_acquire);
        if (unlikely(!as_noted || atomic_load_explicit(&t->turn, memory_order_relaxed) != turn))
            break;
        ehx_restore_(f, rsp, reg);
        rsp += up;
        key = pc * 2;
        slot = last % KNOWN_SLOTS;
    }
    struct ehx_known *k = &ehx_known_[slot];
    bool any = rsp != f->rsp;
    f->rsp = rsp;
    f->pc = key / 2;
    s->slot = k;
    if (unlikely(t->loads != loads) || (!as_noted && ehx_seldom_()))
        ehx_learn_stride_(t, *f, k, loads);
    return any;
}

/*
 * ehx_follow_ goes a trail. Where it returns false it has changed nothing; learn is then null or where the way of this throw may
 * be noted.
 */
static inline __attribute__((always_inline)) bool ehx_follow_(struct ehx_landing *to, struct ehx_exception *e, uint64_t loads,
                                                              struct ehx_trail **learn)
{
    struct ehx_frame *f = &to->frame;
    uint64_t type = ehx_raw_type_(e), rsp = f->rsp, key = f->pc * 2;
    const struct ehx_known *k = &ehx_known_[ehx_slot_(key)];
    *learn = NULL;
    if (unlikely(type == 0))
        return false;
    if (atomic_load_explicit(&k->key, memory_order_acquire) != key) {
        k = &ehx_known_[ehx_slot_(key) ^ 1];
        if (atomic_load_explicit(&k->key, memory_order_acquire) != key)
            return false;
    }
    uint64_t step;
    bool now = atomic_load_explicit(&k->loads, memory_order_acquire) == loads;
    memcpy(&step, &k->is.step, sizeof step);
    atomic_thread_fence(memory_order_acquire);
    uint64_t cfa = rsp + (uint64_t)(int64_t)(int32_t)step;
    if (unlikely(!now || atomic_load_explicit(&k->key, memory_order_relaxed) != key || (step >> 32 & 0xffff) != 0 || cfa <= rsp))
        return false; /* BASE_RSP and KIND_SKIP are 0 */
    struct ehx_trail *t = &ehx_trails_[(ehx_word_(cfa - 8) * KNOWN_HASH ^ type * 0xc2b2ae3d27d4eb4fu) >> 55];
    uint64_t turn = atomic_load_explicit(&t->turn, memory_order_acquire);
    if (unlikely(turn % 2 != 0))
        return false;
    if (unlikely(t->type != type || t->loads != loads || t->pc[0] != f->pc)) {
        if (t->loads != loads || ehx_seldom_())
            *learn = t;
        return false;
    }
    unsigned n = t->n < TRAIL_MAX ? t->n : TRAIL_MAX, i = 0;
    uint16_t at[TRAIL_MAX];
    memcpy(at, t->at, sizeof at);
    atomic_thread_fence(memory_order_acquire);
    if (unlikely(atomic_load_explicit(&t->turn, memory_order_relaxed) != turn))
        return false;
    while (i < n && ehx_word_(rsp + 8 * (uint64_t)at[i]) == t->pc[i + 1]) /* an offset is good if all before it were */
        i++;
    if (unlikely(i < n || n == 0)) {
        if (ehx_seldom_())
            *learn = t;
        return false;
    }
    uint64_t reg[2] = {0}, up = t->rsp, pad = t->pad, selector = (uint64_t)(int64_t)t->selector;
    struct ehx_caught caught = t->caught;
    bool cleanup = t->cleanup;
    memcpy(reg, t->reg, sizeof t->reg);
    atomic_thread_fence(memory_order_acquire);
    if (unlikely(atomic_load_explicit(&t->turn, memory_order_relaxed) != turn))
        return false;
    ehx_restore_(f, rsp, reg);
    f->rsp = rsp + 8 * up;
    f->pc = pad;
    ehx_put_(e, (int32_t)selector, &caught);
    e->private_1 = 0;
    e->private_2 = rsp + 8 * (uint64_t)at[n - 1] + 8; /* what libgcc has there: see raise.c */
    to->rax = (uint64_t)(uintptr_t)e;
    to->rdx = cleanup ? 0 : selector;
    return true;
}

/*
 * ehx_run_ takes plain steps from a frame that s describes, over frames whose kind is one of kinds, as long as each
 * is found by its callee, and not many at once. It returns 1 at a frame that s describes, 0 at one that is yet to be looked up,
 * less than 0 where the stack does not rise. s->slot must not be null, and the step a plain one.
 */
static inline __attribute__((always_inline)) int ehx_run_(struct ehx_frame *f, struct ehx_seen *s, uint64_t loads, unsigned kinds)
{
    struct ehx_known *k = s->slot;
    uint64_t step, rest; /* struct ehx_step: cfa, base, kind, rbp, rbx from bit 0, 32, 40, 48, 56 on; r12 to r15, next */
    uint64_t rsp = f->rsp, rbp = f->rbp, rbx = f->rbx, r12 = f->r12, r13 = f->r13, r14 = f->r14, r15 = f->r15, pc;
    int found = 0;
    memcpy(&step, &s->step, sizeof step);
    memcpy(&rest, s->step.others, sizeof rest);
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
        if ((uint32_t)rest) {
            if (rest & 0xff)
                r12 = ehx_word_(cfa - 8 * (rest & 0xff));
            if (rest >> 8 & 0xff)
                r13 = ehx_word_(cfa - 8 * (rest >> 8 & 0xff));
            if (rest >> 16 & 0xff)
                r14 = ehx_word_(cfa - 8 * (rest >> 16 & 0xff));
            if (rest >> 24 & 0xff)
                r15 = ehx_word_(cfa - 8 * (rest >> 24 & 0xff));
        }
        pc = ehx_word_(cfa - 8);
        rsp = cfa;
        struct ehx_known *n = ehx_next_(rest, 0);
        if (atomic_load_explicit(&n->key, memory_order_acquire) != pc * 2) {
            n = ehx_next_(rest, 1);
            if (atomic_load_explicit(&n->key, memory_order_acquire) != pc * 2)
                break;
        }
        if (unlikely(atomic_load_explicit(&n->loads, memory_order_acquire) != loads))
            break;
        memcpy(&step, &n->is.step, sizeof step);
        rest = __atomic_load_n((const uint64_t *)(const void *)n->is.step.others, __ATOMIC_RELAXED);
        uint64_t pad = n->is.pad;
        atomic_thread_fence(memory_order_acquire);
        if (unlikely(atomic_load_explicit(&n->key, memory_order_relaxed) != pc * 2))
            break;
        k = n;
        if (unlikely(!(kinds >> (step >> 40 & 7) & 1) || (step >> 32 & 3) == BASE_WALK || steps == STRIDE_MAX)) {
            memcpy(&s->step, &step, sizeof step);
            memcpy(s->step.others, &rest, sizeof rest);
            s->pad = pad;
            found = 1;
            break;
        }
    }
    s->slot = k;
    *f = (struct ehx_frame){.rsp = rsp, .rbp = rbp, .pc = pc, .rbx = rbx, .r12 = r12, .r13 = r13, .r14 = r14, .r15 = r15};
    return found;
}

/* ehx_go_ goes on to the next frame that is not of kinds, and describes it in s; less than 0 where that cannot be done. */
static inline __attribute__((always_inline)) int ehx_go_(struct ehx_frame *f, struct ehx_seen *s, bool *exact, uint64_t loads, unsigned kinds)
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
