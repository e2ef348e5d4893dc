/*
 * libunwind's cursors. init_local makes a cursor of this library in the caller's
 * unw_cursor_t; the other functions distinguish it from libunwind's own by its first
 * words.
 *
 * libunwind does what a cursor of this library cannot do: become_theirs makes a libunwind
 * cursor in its place, from the context that the walk began with, and steps it up to the
 * same frame. Context and frames are still there, since libunwind, too, reads them on
 * demand; so this can wait until it is needed, which is mostly never. Checking at
 * init_local whether a walk reaches its end would cost that walk, and a client that takes
 * two steps in a deep stack would pay for all of it.
 */
#include <string.h>

#include "preload.h"

/* libunwind's cursors begin with two pointers; these values cannot be pointers. */
static const uint64_t magic[2] = {0xe4e1f0c0de0002c7u, 0x9be5c0a1e5ced002u};

enum { UNW_SIGNAL_FRAME = 1 /* flag of init_local2: the pc was executing */, UNW_CFA = 17 /* the register number */ };

/* In a unw_cursor_t. It may be copied, so nothing points into it. */
struct cursor {
    uint64_t magic[2];
    ucontext_t *context; /* that the walk began with */
    int flags;           /* of init_local2 */
    bool at_end;         /* the last step found the outermost frame */
    ehu_cursor_t at;
};

_Static_assert(sizeof(struct cursor) <= sizeof(ehp_unw_cursor_t), "a cursor of ours is larger than libunwind's");

static struct cursor *ours(ehp_unw_cursor_t *u)
{
    return u->word[0] == magic[0] && u->word[1] == magic[1] ? (struct cursor *)(void *)u : NULL;
}

/* their_init begins a cursor of libunwind's own; UNW_NO_INFO if there is no libunwind. */
static int their_init(ehp_unw_cursor_t *u, ucontext_t *context, int flags)
{
    if (flags == 0)
        return EHP_ORIGINAL(init_local) ? ehp_original_.init_local(u, context) : UNW_NO_INFO;
    return EHP_ORIGINAL(init_local2) ? ehp_original_.init_local2(u, context, flags) : UNW_NO_INFO;
}

/* become_theirs returns a negative value if libunwind cannot make a cursor. */
static int become_theirs(struct cursor *c)
{
    ehp_unw_cursor_t *u = (ehp_unw_cursor_t *)(void *)c;
    ucontext_t *context = c->context;
    uint32_t steps = ehu_depth_(&c->at) + c->at_end;
    ehp_hand_on_(KIND_UNW_CURSOR, ehu_pc_(&c->at) - !(c->at.at == c->at.end && c->at.walk.regs.exact));
    int status = their_init(u, context, c->flags);
    if (status < 0)
        return status;
    while (steps-- > 0 && ehp_original_.step(u) > 0)
        ;
    return 0;
}

/* THEIRS hands a call on to libunwind, with libunwind's own cursor. */
#define THEIRS(u, call)                                                                       \
    do {                                                                                      \
        struct cursor *mine = ours(u);                                                        \
        int status = mine ? become_theirs(mine) : EHP_ORIGINAL(init_local) ? 0 : UNW_NO_INFO; \
        return status < 0 ? status : ehp_original_.call;                                      \
    } while (0)

/* ---------------------------------------------------------------------------- beginning */

static int begin(ehp_unw_cursor_t *u, ucontext_t *context, int flags, const void *caller)
{
    /* libunwind itself calls these names, and then looks into its cursor; its address
       range is known with the originals */
    bool known = flags == 0 || flags == UNW_SIGNAL_FRAME;
    if (!EHP_ORIGINAL(init_local) || !known || ehp_in_libunwind_(caller))
        return their_init(u, context, flags);
    if (!ehp_can_walk_()) {
        ehp_hand_on_(KIND_UNW_CURSOR, 0);
        return their_init(u, context, flags);
    }
    struct cursor *c = (struct cursor *)(void *)u;
    memcpy(c->magic, magic, sizeof magic);
    c->context = context;
    c->flags = flags;
    c->at_end = false;
    ehu_cursor_init_from(&c->at, context);
    c->at.walk.regs.exact = flags == UNW_SIGNAL_FRAME;
    c->at.walk.flags |= EHU_ONLY_TABLES;
    ehp_add_(&ehp_taken_[KIND_UNW_CURSOR]);
    return 0;
}

EHP_EXPORT int _ULx86_64_init_local(ehp_unw_cursor_t *u, ucontext_t *context)
{
    return begin(u, context, 0, __builtin_return_address(0));
}

EHP_EXPORT int _ULx86_64_init_local2(ehp_unw_cursor_t *u, ucontext_t *context, int flags)
{
    return begin(u, context, flags, __builtin_return_address(0));
}

/* ----------------------------------------------------------------------- what ours can do */

/* step_on is _ULx86_64_step if no step was taken ahead. */
__attribute__((noinline)) static int step_on(ehp_unw_cursor_t *u)
{
    struct cursor *c = ours(u);
    if (c && !c->at_end) {
        int status = ehu_step(&c->at);
        if (status == 0 && !(c->at.walk.flags & EHU_NOT_BY_TABLE)) {
            c->at_end = true;
            return 0;
        }
        if (status == 1) {
            if (c->at.at < c->at.end || c->at.walk.regs.valid & 1u << EH_ELF_RBP)
                return 1;
            c->at.walk.depth--; /* libunwind takes a frame whose rbp is undefined for the end of the stack */
        }
    }
    THEIRS(u, step(u));
}

EHP_EXPORT int _ULx86_64_step(ehp_unw_cursor_t *u)
{
    struct cursor *c = ours(u);
    return c && !c->at_end && ehu_hand_out_(&c->at) ? 1 : step_on(u);
}

/*
 * A register that a call may change has no value in the caller. Like libunwind, this
 * returns the last known value.
 */
__attribute__((noinline)) static int other_reg(ehp_unw_cursor_t *u, int reg, uint64_t *value)
{
    struct cursor *c = ours(u);
    if (c && !c->at_end && reg >= 0) {
        if (reg == UNW_CFA)
            reg = EH_ELF_RSP;
        if (ehu_get_reg(&c->at, reg, value) == 0)
            return 0;
        if (reg < EH_ELF_RIP && ehu_settle_(&c->at) && c->at.walk.kept_valid & 1u << reg) {
            *value = c->at.walk.kept[reg];
            return 0;
        }
    }
    THEIRS(u, get_reg(u, reg, value));
}

EHP_EXPORT int _ULx86_64_get_reg(ehp_unw_cursor_t *u, int reg, uint64_t *value)
{
    struct cursor *c = ours(u);
    if (!c || c->at_end || reg != EH_ELF_RIP)
        return other_reg(u, reg, value);
    *value = ehu_pc_(&c->at);
    return 0;
}

/* libunwind returns 0 for the frame that a walk begins at, however it was begun. */
EHP_EXPORT int _ULx86_64_is_signal_frame(ehp_unw_cursor_t *u)
{
    struct cursor *c = ours(u);
    if (c && !c->at_end && ehu_settle_(&c->at))
        return ehu_depth_(&c->at) > 0 && c->at.walk.regs.exact;
    THEIRS(u, is_signal_frame(u));
}

/* ------------------------------------------------- what libunwind knows of the frame's pc */

/* at_pc makes a libunwind cursor from a context with only the frame's pc and rsp. */
static bool at_pc(struct cursor *c, ehp_unw_cursor_t *u, ucontext_t *context)
{
    if (!ehu_settle_(&c->at))
        return false;
    memset(context->uc_mcontext.gregs, 0, sizeof context->uc_mcontext.gregs);
    context->uc_mcontext.gregs[REG_RIP] = (greg_t)c->at.walk.regs.reg[EH_ELF_RIP];
    context->uc_mcontext.gregs[REG_RSP] = (greg_t)c->at.walk.regs.reg[EH_ELF_RSP];
    return their_init(u, context, c->at.walk.regs.exact ? UNW_SIGNAL_FRAME : 0) >= 0;
}

EHP_EXPORT int _ULx86_64_get_proc_name(ehp_unw_cursor_t *u, char *name, size_t size, uint64_t *offset)
{
    struct cursor *c = ours(u);
    if (c && !c->at_end) {
        ehp_unw_cursor_t temporary;
        ucontext_t context;
        return at_pc(c, &temporary, &context) ? ehp_original_.get_proc_name(&temporary, name, size,
            offset) : UNW_NO_INFO;
    }
    THEIRS(u, get_proc_name(u, name, size, offset));
}

EHP_EXPORT int _ULx86_64_get_proc_info(ehp_unw_cursor_t *u, void *info)
{
    struct cursor *c = ours(u);
    if (c && !c->at_end) {
        ehp_unw_cursor_t temporary;
        ucontext_t context;
        return at_pc(c, &temporary, &context) ? ehp_original_.get_proc_info(&temporary, info) : UNW_NO_INFO;
    }
    THEIRS(u, get_proc_info(u, info));
}

/* ---------------------------------------------------------------------- what it cannot do */

EHP_EXPORT int _ULx86_64_set_reg(ehp_unw_cursor_t *u, int reg, uint64_t value) { THEIRS(u, set_reg(u, reg, value)); }

EHP_EXPORT int _ULx86_64_get_fpreg(ehp_unw_cursor_t *u, int reg, long double *value)
{
    THEIRS(u, get_fpreg(u, reg, value));
}

EHP_EXPORT int _ULx86_64_set_fpreg(ehp_unw_cursor_t *u, int reg, long double value)
{
    THEIRS(u, set_fpreg(u, reg, value));
}

EHP_EXPORT int _ULx86_64_get_save_loc(ehp_unw_cursor_t *u, int reg, void *place)
{
    THEIRS(u, get_save_loc(u, reg, place));
}

EHP_EXPORT int _ULx86_64_resume(ehp_unw_cursor_t *u) { THEIRS(u, resume(u)); }

EHP_EXPORT int _ULx86_64_reg_states_iterate(ehp_unw_cursor_t *u, void *callback, void *token)
{
    THEIRS(u, reg_states_iterate(u, callback, token));
}

EHP_EXPORT int _ULx86_64_apply_reg_state(ehp_unw_cursor_t *u, void *data) { THEIRS(u, apply_reg_state(u, data)); }
