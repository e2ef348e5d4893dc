/*
 * libgcc's _Unwind_Backtrace, and the functions that take an _Unwind_Context. The latter
 * get contexts of two kinds: this library's, which _Unwind_Backtrace passes to its
 * callback, and libgcc's, which it passes to the personality routines of an exception.
 */
#include <stdlib.h>
#include <string.h>

#include "preload.h"

/*
 * A context of this library begins with two words that are not addresses; those of
 * libgcc and libunwind begin with two words that are null or addresses.
 */
static const uint64_t magic[2] = {0xe4e1f0c0de0001c7u, 0x9be5c0a1e5ced001u};

struct _Unwind_Context {
    uint64_t magic[2];
    uint64_t ip; /* the frame's pc */
    const eh_elf_regs_t *first; /* of the first frame */
    size_t index; /* number of the frame */
    bool followed; /* the cursor is at the frame: most callbacks ask for the pc alone */
    bool at_end; /* past the outermost frame, where libgcc calls back once more */
    ehu_cursor_t cursor;
};

/* What a walk has found: the pcs of the first of its frames are kept, and its worth. */
enum { KEPT_PCS = 64 };
struct walked {
    uint64_t pc[KEPT_PCS];
    size_t steps;
    enum ehu_worth worth;
};

/* ours reports whether a context was made by call_back: two words that are no addresses. */
static bool ours(const struct _Unwind_Context *c) { return c->magic[0] == magic[0] && c->magic[1] == magic[1]; }

/* follow brings the cursor to the frame. */
static bool follow(struct _Unwind_Context *c)
{
    if (c->followed)
        return true;
    ehu_cursor_retry_(&c->cursor, c->first);
    for (size_t i = 0; i < c->index; i++)
        if (ehu_step(&c->cursor) != 1)
            return false;
    c->followed = true;
    return true;
}

/* next goes to the next frame. */
static bool next(struct _Unwind_Context *c, const struct walked *w)
{
    if (c->index == KEPT_PCS && !follow(c))
        return false;
    if (c->followed && ehu_step(&c->cursor) != 1)
        return false;
    c->ip = c->followed ? ehu_pc_(&c->cursor) : w->pc[c->index];
    c->index++;
    return true;
}

/* call_back calls the program's function for each frame, from _Unwind_Backtrace's caller on. It returns what
 * libgcc returns: a callback that ends the walk counts as an error of phase 1. */
static _Unwind_Reason_Code call_back(_Unwind_Trace_Fn trace, void *arg, const eh_elf_regs_t *regs,
    const struct walked *w)
{
    struct _Unwind_Context c;
    memcpy(c.magic, magic, sizeof magic);
    c.first = regs;
    c.index = 0;
    c.followed = c.at_end = false;
    c.ip = regs->reg[EH_ELF_RIP];
    for (;;) {
        if (trace(&c, arg) != _URC_NO_REASON)
            return _URC_FATAL_PHASE1_ERROR;
        if (c.index == w->steps)
            break;
        if (!next(&c, w))
            return _URC_FATAL_PHASE1_ERROR;
    }
    if (w->worth != EHU_WHOLE)
        return _URC_FATAL_PHASE1_ERROR;
    c.at_end = true;
    c.ip = 0;
    if (ehp_style_ == STYLE_LIBGCC && trace(&c, arg) != _URC_NO_REASON)
        return _URC_FATAL_PHASE1_ERROR;
    return _URC_END_OF_STACK;
}

/*
 * First walks the stack without calling back, to find out whether the walk reaches its
 * end, or memory that cannot be read, where libgcc would crash: see arrays.c.
 */
struct ehp_answer ehp_unwind_backtrace_(_Unwind_Trace_Fn trace, void *arg, const eh_elf_regs_t *regs)
{
    struct ehp_answer answer = {_URC_FATAL_PHASE1_ERROR, NULL};
    _Unwind_Reason_Code (*original)(_Unwind_Trace_Fn, void *) = EHP_ORIGINAL(unwind_backtrace);
    struct walked w;
    uint64_t stopped = 0;
    w.worth = EHU_PARTIAL;
    if (ehp_style_ != STYLE_OTHER && ehp_can_walk_())
        w.steps = ehu_try_(regs, w.pc, KEPT_PCS, true, &w.worth, &stopped);
    if (w.worth == EHU_WHOLE || (w.worth == EHU_ASTRAY && ehp_style_ == STYLE_LIBGCC)) {
        ehp_add_(&ehp_taken_[KIND_UNWIND_BACKTRACE]);
        answer.value = call_back(trace, arg, regs, &w);
        return answer;
    }
    ehp_hand_on_(KIND_UNWIND_BACKTRACE, stopped);
    memcpy(&answer.original, &original, sizeof original);
    return answer;
}

/* ------------------------------------------------------------- what a frame does not have */

struct question {
    struct _Unwind_Context *context;
    uint64_t (*ask)(struct _Unwind_Context *, int);
    int index;
    uint64_t answer;
};

/* is_it is the callback of the original's walk: it asks when the original is at the frame in question. */
static _Unwind_Reason_Code is_it(struct _Unwind_Context *c, void *arg)
{
    struct question *q = arg;
    _Unwind_Ptr ip = ehp_original_.get_ip(c);
    uint64_t cfa = ehp_original_.get_cfa(c);
    if (!q->context->at_end && (!follow(q->context) || ehu_get_reg(&q->context->cursor, EH_ELF_RSP, &cfa) != 0))
        return _URC_NO_REASON;
    if (q->context->at_end ? ip != 0 : ip != ehu_pc_(&q->context->cursor) || ehp_original_.get_cfa(c) != cfa)
        return _URC_NO_REASON;
    q->answer = q->ask(c, q->index);
    return _URC_END_OF_STACK;
}

/*
 * ask_original makes the original walk up to the same frame, which is still on the
 * stack, and asks there. It takes as long as the original's walk.
 */
static uint64_t ask_original(struct _Unwind_Context *c, uint64_t (*ask)(struct _Unwind_Context *, int), int index)
{
    struct question q = {c, ask, index, 0};
    if (EHP_ORIGINAL(unwind_backtrace))
        ehp_original_.unwind_backtrace(is_it, &q);
    return q.answer;
}

static uint64_t ask_gr(struct _Unwind_Context *c, int index) { return ehp_original_.get_gr(c, index); }
static uint64_t ask_cfa(struct _Unwind_Context *c, int index) { return (void)index, ehp_original_.get_cfa(c); }
static uint64_t ask_lsda(struct _Unwind_Context *c, int index)
{
    return (void)index, (uint64_t)(uintptr_t)ehp_original_.get_lsda(c);
}
static uint64_t ask_region(struct _Unwind_Context *c, int index)
{
    return (void)index, ehp_original_.get_region_start(c);
}
static uint64_t ask_data(struct _Unwind_Context *c, int index)
{
    return (void)index, ehp_original_.get_data_rel_base(c);
}
static uint64_t ask_text(struct _Unwind_Context *c, int index)
{
    return (void)index, ehp_original_.get_text_rel_base(c);
}

/* ------------------------------------------------------------------------------ questions */

EHP_EXPORT _Unwind_Ptr _Unwind_GetIP(struct _Unwind_Context *c)
{
    if (!ours(c))
        return EHP_ORIGINAL(get_ip)(c);
    return c->ip;
}

EHP_EXPORT _Unwind_Ptr _Unwind_GetIPInfo(struct _Unwind_Context *c, int *ip_before_insn)
{
    if (!ours(c))
        return EHP_ORIGINAL(get_ip_info)(c, ip_before_insn);
    *ip_before_insn = !c->at_end && follow(c) && ehu_is_signal_frame(&c->cursor);
    return c->ip;
}

EHP_EXPORT _Unwind_Word _Unwind_GetCFA(struct _Unwind_Context *c)
{
    if (!ours(c))
        return EHP_ORIGINAL(get_cfa)(c);
    uint64_t cfa;
    return !c->at_end && follow(c) &&
        ehu_get_reg(&c->cursor, EH_ELF_RSP, &cfa) == 0 ? cfa : ask_original(c, ask_cfa, 0);
}

/* libgcc knows a place of rsp only if a table names one; otherwise asking for it is an
   error. */
EHP_EXPORT _Unwind_Word _Unwind_GetGR(struct _Unwind_Context *c, int index)
{
    uint64_t value;
    if (!ours(c))
        return EHP_ORIGINAL(get_gr)(c, index);
    if (!c->at_end && follow(c) && ehu_get_reg(&c->cursor, index, &value) == 0)
        return value;
    return ask_original(c, ask_gr, index);
}

EHP_EXPORT void *_Unwind_GetLanguageSpecificData(struct _Unwind_Context *c)
{
    return ours(c) ? (void *)(uintptr_t)ask_original(c, ask_lsda, 0) : EHP_ORIGINAL(get_lsda)(c);
}

EHP_EXPORT _Unwind_Ptr _Unwind_GetRegionStart(struct _Unwind_Context *c)
{
    return ours(c) ? ask_original(c, ask_region, 0) : EHP_ORIGINAL(get_region_start)(c);
}

EHP_EXPORT _Unwind_Ptr _Unwind_GetDataRelBase(struct _Unwind_Context *c)
{
    return ours(c) ? ask_original(c, ask_data, 0) : EHP_ORIGINAL(get_data_rel_base)(c);
}

EHP_EXPORT _Unwind_Ptr _Unwind_GetTextRelBase(struct _Unwind_Context *c)
{
    return ours(c) ? ask_original(c, ask_text, 0) : EHP_ORIGINAL(get_text_rel_base)(c);
}

/*
 * Setters are for exceptions, whose contexts are installed; those of a backtrace are
 * not. A pc that is set is returned from then on; a register is not set: libgcc would
 * change it on the stack, in the frame that saved it.
 */
EHP_EXPORT void _Unwind_SetIP(struct _Unwind_Context *c, _Unwind_Ptr value)
{
    if (!ours(c))
        EHP_ORIGINAL(set_ip)(c, value);
    else
        c->ip = value;
}

EHP_EXPORT void _Unwind_SetGR(struct _Unwind_Context *c, int index, _Unwind_Word value)
{
    if (!ours(c))
        EHP_ORIGINAL(set_gr)(c, index, value);
}
