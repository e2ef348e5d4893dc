/*
 * The two phases of a throw. They do what libgcc's do, in the same order, with the same results in the exception. If a
 * frame needs more than is known here, libgcc's function takes over, unless that would run code of the program twice.
 */
#include <stdlib.h>

#include "paths.h"

static inline struct ehx_answer result(ehx_reason r)
{
    return (struct ehx_answer){ANSWER_RETURN, (uint64_t)(int64_t)r};
}
static struct ehx_answer hand_over(void (*to)(void))
{
    ehx_count_(COUNT_HANDED_OVER);
    return (struct ehx_answer){ANSWER_JUMP, (uint64_t)(uintptr_t)to};
}

/* loads_now returns how many objects were ever loaded and unloaded: loaded ones are adds less subs, so twice
 * the adds less those is the sum of both. Two words of the loader's memory are read without its lock: the
 * loader counts an object before any of its code runs, and its unloading after. */
static inline uint64_t loads_now(void)
{
    if (unlikely(!ehx_loads_))
        return ehx_ask_loads_();
    return 2 * __atomic_load_n(ehx_loads_, __ATOMIC_RELAXED) - __atomic_load_n(ehx_loaded_, __ATOMIC_RELAXED);
}

_Atomic uint64_t ehx_table_loads_;

/* refresh brings libehunwind's table up to date after a dlopen or dlclose. It takes a lock and maps files,
 * once for each change. 0 hands over to libgcc: the loader does not count, or a child of fork may have
 * inherited a lock that is held. */
static __attribute__((noinline, cold)) uint64_t refresh(uint64_t loads)
{
    if (loads == 0 || !ehu_catch_up_(loads))
        return 0;
    atomic_store(&ehx_table_loads_, loads);
    return loads;
}

/* begin returns the number of loads so far, or 0 if the table may be outdated, so that
   nothing can be learnt from it. */
static inline uint64_t begin(void)
{
    uint64_t loads = loads_now();
    if (unlikely(atomic_load_explicit(&ehx_table_loads_, memory_order_relaxed) != loads))
        return refresh(loads);
    return loads;
}

void ehx_begin_(void) { begin(); }

/* What libgcc puts into private_2 for the frame of the handler (uw_identify_context). */
static inline uint64_t identity(const struct ehx_frame *f, bool exact) { return f->rsp - exact; }

/* ask calls a personality routine (Itanium C++ ABI, Exception Handling, 1.6: version 1). It is code of the
 * program: it may throw itself, and in the cleanup phase it changes the context to continue in. */
static __attribute__((noinline)) ehx_reason ask(int actions, struct ehx_exception *e, struct ehx_frame *f, bool exact,
                                                const struct ehx_what *is, struct ehx_context *c)
{
    *c = (struct ehx_context){.magic = EHX_MAGIC, .frame = f, .function = is->function, .lsda = is->lsda,
        .exact = exact, .filled = true};
    return is->personality(1, actions, e->class, e, c);
}

/* land sets a frame to continue at a landing pad. rax and rdx are the registers of
 * __builtin_eh_return_data_regno(0) and (1), which GCC's and clang's pads read. */
static inline struct ehx_answer land(struct ehx_landing *to, struct ehx_frame *f, uint64_t pad, uint64_t rax,
    uint64_t rdx)
{
    f->pc = pad;
    to->rax = rax;
    to->rdx = rdx;
    return (struct ehx_answer){ANSWER_LAND, 0};
}

/* land_cleanup lands at a cleanup's pad: without an action rdx, the selector, is 0. */
static inline struct ehx_answer land_cleanup(struct ehx_landing *to, struct ehx_frame *f, uint64_t pad,
    struct ehx_exception *e)
{
    return land(to, f, pad, (uint64_t)(uintptr_t)e, 0);
}

/* pop_args pops the arguments that a site has on the stack, and returns its pad. DW_CFA_GNU_args_size: code
 * built with -mno-accumulate-outgoing-args or -Os pushes arguments, which a pad does not pop. */
static inline uint64_t pop_args(struct ehx_frame *f, uint64_t pad)
{
    f->rsp += 8 * ehx_args_(pad);
    return ehx_pad_(pad);
}

/* land_handler lands at the place that libstdc++'s routine has stored in the exception, for which
 * ehx_caught_ or ehx_recall_ has vouched. */
static inline struct ehx_answer land_handler(struct ehx_landing *to, struct ehx_frame *f, struct ehx_exception *e)
{
    const struct ehx_cxa *x = ehx_cxa_(e);
    return land(to, f, x->caught.pad, (uint64_t)(uintptr_t)e, (uint64_t)(int64_t)x->selector);
}

/* ehx_fill_ looks up the function and LSDA that a stop function may ask for, as it can with libgcc. */
void ehx_fill_(struct ehx_context *c)
{
    struct ehx_what is = {.function = 0};
    uint64_t loads = begin();
    if (loads != 0)
        ehx_describe_(&is, c->frame->pc, c->exact, loads);
    c->lsda = is.lsda;
    c->function = is.function ? is.function : (uint64_t)(uintptr_t)libgcc__Unwind_FindEnclosingFunction((void *)(uintptr_t)(c->frame->pc + c->exact));
    c->filled = true;
}

/* install continues where a personality routine has set the context to, which is the pad of a site. */
static struct ehx_answer install(struct ehx_landing *to, struct ehx_frame *f, uint64_t pad, const struct ehx_context *c)
{
    pop_args(f, pad);
    return land(to, f, f->pc, c->rax, c->rdx);
}

/* handler enters the handler that the search phase found in this frame. If libstdc++ has not stored its place
 * (e.g. of a foreign exception), the routine is asked for it, as libgcc asks. */
static struct ehx_answer handler(struct ehx_landing *to, struct ehx_exception *e, struct ehx_frame *f, bool exact,
    const struct ehx_what *is)
{
    if (likely(ehx_caught_(e, is, is->pad)))
        return land_handler(to, f, e);
    if (is->step.kind & KIND_ARGS && ehx_caught_(e, is, ehx_pad_(is->pad))) {
        pop_args(f, is->pad);
        return land_handler(to, f, e);
    }
    struct ehx_context c;
    if (!is->personality || ask(CLEANUP_PHASE | HANDLER_FRAME, e, f, exact, is, &c) != INSTALL_CONTEXT)
        return result(FATAL_PHASE2_ERROR);
    return install(to, f, is->pad, &c);
}

/*
 * cleanup runs the cleanup phase from a frame up to the first landing pad. to_libgcc takes over what it cannot do:
 * libgcc's phase starts at the call again, and asks personality routines once more that have answered "continue".
 */
static struct ehx_answer cleanup(struct ehx_landing *to, struct ehx_exception *e, struct ehx_frame *f, bool exact,
    uint64_t loads,
                                 void (*to_libgcc)(void))
{
    struct ehx_seen s = {.slot = NULL};
    int status = EH_ELF_OK;
    for (ehx_look_again_(&s, f->pc, exact, loads); status == EH_ELF_OK; status = ehx_advance_(f, &s, &exact, loads,
        1 << KIND_SKIP)) {
        if (s.step.kind == KIND_SKIP)
            continue;
        if (s.step.kind == KIND_CLEANUP)
            return land_cleanup(to, f, s.pad, e);
        if (unlikely(s.step.kind >= KIND_HAND_OVER)) {
            if (s.step.kind == KIND_HAND_OVER)
                return hand_over(to_libgcc);
            if (ehx_kind_(&s.step) == KIND_CLEANUP)
                return land_cleanup(to, f, pop_args(f, s.pad), e);
        }
        struct ehx_what is;
        ehx_describe_(&is, f->pc, exact, loads);
        if (identity(f, exact) == e->private_2)
            return handler(to, e, f, exact, &is);
        enum ehx_verdict said = VERDICT_UNKNOWN;
        if (ehx_kind_(&is.step) != KIND_ASK)
            said = ehx_recall_(e, ehx_type_(e), f->pc * 2 + exact, loads);
        if (said == VERDICT_PASSES && ehx_kind_(&is.step) == KIND_ACTION_CLEANUP)
            return land_cleanup(to, f, pop_args(f, is.pad), e);
        if (said != VERDICT_PASSES && is.personality) {
            struct ehx_context c;
            ehx_count_(COUNT_ASKED);
            ehx_reason r = ask(CLEANUP_PHASE, e, f, exact, &is, &c);
            if (r == INSTALL_CONTEXT)
                return install(to, f, is.pad, &c);
            if (r != CONTINUE_UNWIND)
                return result(FATAL_PHASE2_ERROR);
        }
    }
    return hand_over(to_libgcc);
}

/* give_up hands a throw that is stuck at a pc over to libgcc. Nothing of the program has run since the throw
 * but personality routines, which libgcc asks again. ehasm preload's message at exit names the pc. */
static __attribute__((noinline, cold)) struct ehx_answer give_up(uint64_t pc)
{
    atomic_store_explicit(&ehx_stopped_, pc, memory_order_relaxed);
    return hand_over(libgcc__Unwind_RaiseException);
}

/* What the search phase has found of a frame. */
struct found {
    enum ehx_verdict says;
    bool recalled;      /* as for an exception of this type before */
    uint64_t pad;       /* landing pad at which the cleanup phase stops; 0: it asks the personality routine */
    struct ehx_what is; /* unless recalled */
};

/* search finds whether a frame catches: as it did before, or by its personality routine. It returns false if
 * the routine reports an error, for which libgcc's search returns FATAL_PHASE1_ERROR. */
static inline bool search(struct found *d, struct ehx_exception *e, const struct ehx_frame *f, bool exact, bool asks,
    uint64_t loads)
{
    uint64_t place = f->pc * 2 + exact, type = ehx_type_(e);
    d->says = asks ? VERDICT_UNKNOWN : ehx_recall_(e, type, place, loads);
    d->recalled = d->says != VERDICT_UNKNOWN;
    if (likely(d->recalled))
        return true;
    ehx_describe_(&d->is, f->pc, exact, loads);
    if (!d->is.personality)
        return true;
    struct ehx_context c;
    /* The routine may set registers of its context even in the search phase, which must not change the
     * frame. */
    struct ehx_frame copy = *f;
    ehx_count_(COUNT_ASKED);
    ehx_reason r = ask(SEARCH_PHASE, e, &copy, exact, &d->is, &c);
    if (r != HANDLER_FOUND && r != CONTINUE_UNWIND)
        return false;
    d->says = r == HANDLER_FOUND ? VERDICT_CATCHES : VERDICT_PASSES;
    if (!asks)
        ehx_remember_(e, type, place, loads, &d->is, r == HANDLER_FOUND);
    if (type == 0 || d->is.personality != ehx_gxx_)
        d->pad = 0;
    return true;
}

/* enter enters the handler in the frame that the search phase has found, if no frame before it has a cleanup. */
static inline struct ehx_answer enter(struct ehx_landing *to, struct ehx_exception *e, const struct ehx_frame *f,
    bool exact, const struct ehx_step *step, uint64_t pad, const struct found *d)
{
    to->frame = *f;
    if (unlikely(!d->recalled))
        return handler(to, e, &to->frame, exact, &d->is);
    if (unlikely(step->kind & KIND_ARGS))
        pop_args(&to->frame, pad);
    return land_handler(to, &to->frame, e);
}

/* throw_by_frames throws frame by frame, without a trail. It stores the trail in learn, if not null. It is
 * one pass: while it searches for the handler, it notes the first frame in which the cleanup phase has to
 * stop, so that that phase need not begin at the throw. */
static __attribute__((noinline)) struct ehx_answer throw_by_frames(struct ehx_exception *e, struct ehx_landing *to,
    uint64_t loads, struct ehx_trail *learn)
{
    struct ehx_seen s = {.slot = NULL};
    struct ehx_frame f = to->frame, first = f; /* first: the first frame in which the cleanup phase stops, if stops */
    bool exact = false, first_exact = false, stops = false;
    uint64_t first_pad = 0; /* landing pad of first, if it is a mere cleanup */
    unsigned passed = 1 << KIND_SKIP; /* kinds that ehx_advance_ need not show */
    for (ehx_look_again_(&s, f.pc, false, loads);; ) {
        unsigned kind = s.step.kind;
        bool stop = kind != KIND_SKIP;
        struct found d;
        d.pad = s.pad;
        if (unlikely(kind >= KIND_HAND_OVER)) {
            if (kind == KIND_HAND_OVER)
                return give_up(f.pc - !exact);
            if ((kind = ehx_kind_(&s.step)) == KIND_ASK)
                d.pad = 0;
        }
        if (stop && kind != KIND_CLEANUP) {
            if (unlikely(!search(&d, e, &f, exact, kind == KIND_ASK, loads)))
                return result(FATAL_PHASE1_ERROR);
            if (d.says == VERDICT_CATCHES) {
                e->private_1 = 0;
                e->private_2 = identity(&f, exact);
                if (unlikely(d.recalled && learn))
                    ehx_learn_trail_(learn, to->frame, e, ehx_type_(e), loads);
                if (stops)
                    break;
                return enter(to, e, &f, exact, &s.step, s.pad, &d);
            }
            if (d.says == VERDICT_PASSES)
                stop = kind != KIND_ACTION || d.pad == 0;
        }
        if (stop && !stops) {
            stops = true;
            /* The first stop is known, and cleanups behind it are the cleanup phase's. */
            passed |= 1 << KIND_CLEANUP;
            first = f;
            first_exact = exact;
            first_pad = d.pad;
        }
        if (unlikely(ehx_advance_(&f, &s, &exact, loads, passed) != EH_ELF_OK))
            return give_up(f.pc - !exact);
    }
    to->frame = first;
    if (first_pad != 0)
        return land_cleanup(to, &to->frame, pop_args(&to->frame, first_pad), e);
    return cleanup(to, e, &to->frame, first_exact, loads, libgcc__Unwind_RaiseException);
}

static inline struct ehx_answer raise_(struct ehx_exception *e, struct ehx_landing *to)
{
    struct ehx_trail *learn;
    uint64_t loads = begin();
    if (unlikely(loads == 0))
        return give_up(0);
    if (likely(ehx_follow_(to, e, loads, &learn)))
        return (struct ehx_answer){ANSWER_LAND, 0};
    return throw_by_frames(e, to, loads, learn);
}

struct ehx_answer ehx_raise_(struct ehx_exception *e, struct ehx_landing *to)
{
    struct ehx_answer a = raise_(e, to);
    if (likely(a.what == ANSWER_LAND))
        ehx_count_throw_(COUNT_THROWS);
    else if (a.what == ANSWER_JUMP)
        ehx_count_throw_(COUNT_THROWS_HANDED_OVER);
    return a;
}

/* ---------------------------------------------------------------------------------- forced unwinding */

/* What was seen of the first frames before a stop function ran: pthread_exit and pthread_cancel have two or
 * three of glibc's own. */
enum { MAX_AHEAD = 4 };
struct ahead {
    int n;
    struct ehx_seen seen[MAX_AHEAD];
};

/*
 * reaches reports whether all frames are known up to the first that may have a landing pad, or to the end of the stack.
 * It is asked in advance: once a stop function has run, libgcc cannot start over.
 */
static bool reaches(struct ahead *a, struct ehx_frame f, uint64_t loads)
{
    bool exact = false;
    struct ehx_seen s = {.slot = NULL};
    int status = EH_ELF_OK;
    a->n = 0;
    ehx_look_again_(&s, f.pc, false, loads);
    while (status == EH_ELF_OK) {
        if (a->n < MAX_AHEAD)
            a->seen[a->n++] = s;
        if (s.step.kind == KIND_HAND_OVER)
            return false;
        if (s.step.kind == KIND_CLEANUP)
            return true;
        if (a->n == MAX_AHEAD) {
            status = ehx_advance_(&f, &s, &exact, loads, 1 << KIND_SKIP);
        } else {
            status = ehx_step_(&f, &exact, &s.step);
            if (status == EH_ELF_OK)
                ehx_look_(&s, f.pc, exact, loads);
        }
    }
    return status == EH_ELF_OUTERMOST;
}

/* forced_on is the fast part of forced: it goes on from a frame, after its stop function, over frames of
 * KIND_SKIP that a plain step and the callee's slot lead to, with s in registers. It returns a status for
 * forced to act on. EHU_NOT_RISING ends the unwinding as an error; EH_ELF_OK leaves f before the step that s
 * says. */
static int forced_on(struct ehx_frame *f, struct ehx_seen *s, struct ehx_context *c, struct ehx_exception *e,
    uint64_t loads, ehx_stop *stop, void *arg)
{
    struct ehx_known *k = s->slot;
    uint64_t step = ehx_first_word_(&s->step);
    uint32_t others;
    memcpy(&others, s->step.others, sizeof others);
    c->exact = false;
    for (;;) {
        uint64_t rsp = f->rsp, cfa = (step >> 32 & BASE_RBP ? f->rbp : rsp) + (uint64_t)(int64_t)(int32_t)step;
        if (unlikely(cfa <= rsp))
            break;
        uint64_t pc = ehx_word_(cfa - 8);
        struct ehx_known *n = ehx_next_(k, 0);
        uint64_t turn = ehx_begin_reading_(&n->turn);
        if (EHX_GET(n->key) != pc * 2 || EHX_GET(n->loads) != loads)
            break;
        uint64_t next = EHX_GET(n->step);
        uint32_t next_others = EHX_GET(n->others);
        if (!ehx_unchanged_(&n->turn, turn) || !ehx_passes_(next))
            break;
        ehx_saved_(f, cfa, step >> 48, others);
        f->pc = pc;
        f->rsp = cfa;
        step = next;
        others = next_others;
        k = n;
        c->filled = false;
        if (stop(1, FORCE_UNWIND | CLEANUP_PHASE, e->class, e, c, arg) != NO_REASON)
            return EHU_NOT_RISING;
    }
    memcpy(&s->step, &step, sizeof step);
    memcpy(s->step.others, &others, sizeof others);
    s->slot = k;
    return EH_ELF_OK;
}

/* forced is the one phase of a forced unwinding (Itanium C++ ABI, Exception Handling, 1.3): the stop
 * function is asked at each frame, then the personality routine. A frame of which nothing is known is an
 * error there, since neither can be asked twice; reaches has looked ahead up to the first landing pad. */
static struct ehx_answer forced(struct ehx_landing *to, struct ehx_exception *e, uint64_t loads, const struct ahead *a)
{
    ehx_stop *stop = (ehx_stop *)(uintptr_t)e->private_1;
    void *arg = (void *)(uintptr_t)e->private_2;
    struct ehx_frame *f = &to->frame;
    bool exact = false;
    struct ehx_seen s = {.slot = NULL};
    struct ehx_context c = {.magic = EHX_MAGIC, .frame = f};
    for (int i = 0;; i++) {
        if (i < a->n)
            s = a->seen[i];
        else
            ehx_look_(&s, f->pc, exact, loads);
        if (s.step.kind == KIND_HAND_OVER)
            return result(FATAL_PHASE2_ERROR);
        c.exact = exact;
        c.filled = false;
        if (stop(1, FORCE_UNWIND | CLEANUP_PHASE, e->class, e, &c, arg) != NO_REASON)
            return result(FATAL_PHASE2_ERROR);
        if (unlikely(!ehx_passes_(ehx_first_word_(&s.step)))) {
            struct ehx_what is;
            if (s.step.kind == KIND_CLEANUP)
                return land_cleanup(to, f, s.pad, e);
            if (s.step.kind != KIND_SKIP && (ehx_describe_(&is, f->pc, exact, loads), is.personality)) {
                ehx_reason r = ask(FORCE_UNWIND | CLEANUP_PHASE, e, f, exact, &is, &c);
                if (r == INSTALL_CONTEXT)
                    return install(to, f, is.pad, &c);
                if (r != CONTINUE_UNWIND)
                    return result(FATAL_PHASE2_ERROR);
            }
        }
        int status = i >= a->n && s.slot &&
            !(s.step.base & BASE_WALK) ? forced_on(f, &s, &c, e, loads, stop, arg) : EH_ELF_OK;
        if (status == EH_ELF_OK)
            status = ehx_step_(f, &exact, &s.step);
        if (status == EH_ELF_OUTERMOST) { /* libgcc ends here, too: the caller's pc is 0, for which there is no FDE */
            f->rsp += 8;
            f->pc = 0;
            struct ehx_context end = {.magic = EHX_MAGIC, .frame = f, .filled = true};
            ehx_reason r = stop(1, FORCE_UNWIND | CLEANUP_PHASE | AT_END_OF_STACK, e->class, e, &end, arg);
            return result(r != NO_REASON ? FATAL_PHASE2_ERROR : END_OF_STACK);
        }
        if (status != EH_ELF_OK)
            return result(FATAL_PHASE2_ERROR);
    }
}

/* ehx_forced_ is _Unwind_ForcedUnwind: pthread_exit, pthread_cancel, and thread ends of language run-times. */
struct ehx_answer ehx_forced_(struct ehx_exception *e, struct ehx_landing *to, ehx_stop *stop, void *arg)
{
    struct ahead a;
    uint64_t loads = begin();
    if (loads == 0 || !reaches(&a, to->frame, loads))
        return hand_over(libgcc__Unwind_ForcedUnwind);
    e->private_1 = (uint64_t)(uintptr_t)stop;
    e->private_2 = (uint64_t)(uintptr_t)arg;
    return forced(to, e, loads, &a);
}

/* ---------------------------------------------------------------------------------- going on */

/* ehx_resume_ continues after a cleanup, unless entry.S knows that the next frame has a cleanup, too. A pad
 * calls _Unwind_Resume, which does not return: where the stack ends meanwhile, libgcc aborts, too. */
struct ehx_answer ehx_resume_(struct ehx_exception *e, struct ehx_landing *to)
{
    uint64_t loads = begin();
    if (loads == 0)
        return hand_over(libgcc__Unwind_Resume);
    struct ehx_answer a;
    if (likely(e->private_1 == 0)) {
        a = cleanup(to, e, &to->frame, false, loads, libgcc__Unwind_Resume);
    } else {
        struct ahead ahead;
        if (!reaches(&ahead, to->frame, loads))
            return hand_over(libgcc__Unwind_Resume);
        a = forced(to, e, loads, &ahead);
    }
    if (unlikely(a.what == ANSWER_RETURN))
        abort();
    return a;
}

/* ehx_rethrow_ is _Unwind_Resume_or_Rethrow, which __cxa_rethrow calls: a throw anew, or a forced unwinding
 * that goes on. */
struct ehx_answer ehx_rethrow_(struct ehx_exception *e, struct ehx_landing *to)
{
    if (e->private_1 == 0) {
        struct ehx_answer a = ehx_raise_(e, to);
        if (a.what == ANSWER_JUMP)
            a.value = (uint64_t)(uintptr_t)libgcc__Unwind_Resume_or_Rethrow;
        return a;
    }
    struct ahead a;
    uint64_t loads = begin();
    if (loads == 0 || !reaches(&a, to->frame, loads))
        return hand_over(libgcc__Unwind_Resume_or_Rethrow);
    return forced(to, e, loads, &a);
}
