#define UNW_LOCAL_ONLY
#include <libunwind.h>

#include "check.h"

static const int saved[] = {EH_ELF_RBX, EH_ELF_RBP, EH_ELF_R12, EH_ELF_R13, EH_ELF_R14, EH_ELF_R15};

/* same_frame compares the frame that both cursors are at. */
static bool same_frame(ehu_cursor_t *e, unw_cursor_t *u, int depth, bool first_pc)
{
    uint64_t mine, sp;
    unw_word_t theirs;
    unw_get_reg(u, UNW_REG_IP, &theirs);
    if (ehu_get_reg(e, EH_ELF_RIP, &mine) != 0 || (mine != theirs && (depth > 0 || first_pc))) {
        check(false, "frame %d: pc %#lx, libunwind %#lx", depth, (long)mine, (long)theirs);
        return false;
    }
    unw_get_reg(u, UNW_REG_SP, &theirs);
    if (ehu_get_reg(e, EH_ELF_RSP, &sp) != 0 || sp != theirs) {
        check(false, "frame %d at %#lx: rsp %#lx, libunwind %#lx", depth, (long)mine, (long)sp, (long)theirs);
        return false;
    }
    if (depth == 0 && !first_pc)
        return true; /* the cursors began at two calls, between which registers may change */
    for (size_t i = 0; i < sizeof saved / sizeof *saved; i++) {
        uint64_t value;
        if (ehu_get_reg(e, saved[i], &value) != 0) {
            check(expect_guesses, "frame %d at %#lx: register %d unknown", depth, (long)mine, saved[i]);
            continue;
        }
        unw_get_reg(u, saved[i], &theirs);
        check(value == theirs, "frame %d at %#lx: register %d is %#lx, libunwind %#lx", depth, (long)mine, saved[i],
              (long)value, (long)theirs);
        num_registers++;
    }
    if (depth > 0)
        check(ehu_is_signal_frame(e) == (unw_is_signal_frame(u) > 0), "frame %d at %#lx: signal frame %d", depth,
              (long)mine, ehu_is_signal_frame(e));
    return true;
}

/*
 * step_both steps both cursors up; pcs are those of ehu_backtrace. Up to a frame, the first
 * cursor is only asked for pcs; from there on for all.
 */
static void step_both(ehu_cursor_t *e, unw_cursor_t *u, void **pcs, size_t n, bool first_pc, int first)
{
    int depth = 0, mine, theirs;
    uint64_t pc;
    for (;; depth++) {
        if (depth >= first && !same_frame(e, u, depth, first_pc))
            return;
        if (ehu_get_reg(e, EH_ELF_RIP, &pc) != 0 || (size_t)depth >= n ||
            (depth > 0 && (uint64_t)(uintptr_t)pcs[depth] != pc)) {
            check(false, "frame %d at %#lx: not in the array of %zu; registers from %d on", depth, (long)pc, n, first);
            return;
        }
        if (first == 0) {
            num_frames++;
            num_guessed += ehu_is_guessed(e);
        }
        mine = ehu_step(e);
        theirs = unw_step(u);
        check(ehu_status(e) == (mine == 1 ? EH_ELF_OK : mine == 0 ? EH_ELF_OUTERMOST : mine), "step %d, status %d",
            mine, ehu_status(e));
        if (mine <= 0 || theirs <= 0)
            break;
    }
    num_stacks += first == 0;
    check(mine <= 0 && (theirs <= 0 || theirs_may_go_on), "after frame %d at %#lx: step %d, libunwind %d", depth,
        (long)pc, mine, theirs);
    check(mine == 0 || mine == expected_end, "status %d at the end", mine);
    check((size_t)depth + 1 == n, "%d frames, array of %zu", depth + 1, n);
    check(expect_guesses || !ehu_is_guessed(e), "guessed");
}

static void compare(ehu_cursor_t *e, unw_cursor_t *u, void **pcs, size_t n, bool first_pc)
{
    static unsigned turn;
    ehu_cursor_t copy = *e;
    unw_cursor_t theirs = *u;
    step_both(e, u, pcs, n, first_pc, 0);
    step_both(&copy, &theirs, pcs, n, first_pc, 1 + (int)(__atomic_fetch_add(&turn, 1, __ATOMIC_RELAXED) % 47));
}

__attribute__((noinline)) void check_here(void)
{
    void *pcs[MAX_FRAMES], *others[MAX_FRAMES];
    ehu_cursor_t e;
    unw_context_t context;
    unw_cursor_t u;
    size_t n = ehu_backtrace(pcs, MAX_FRAMES);
    ehu_cursor_init(&e);
    unw_getcontext(&context);
    unw_init_local(&u, &context);
    compare(&e, &u, pcs, n, false);
    int m = unw_backtrace(others, MAX_FRAMES);
    check((size_t)m == n || (theirs_may_go_on && (size_t)m > n), "%zu frames, unw_backtrace %d", n, m);
    for (size_t i = 1; i < n && i < (size_t)m; i++)
        check(pcs[i] == others[i], "pc %zu: %p, unw_backtrace %p", i, pcs[i], others[i]);
}

void check_context(const ucontext_t *context)
{
    void *pcs[MAX_FRAMES];
    ehu_cursor_t e;
    unw_context_t copy = *context;
    unw_cursor_t u;
    size_t n = ehu_backtrace_from(context, pcs, MAX_FRAMES);
    ehu_cursor_init_from(&e, context);
    check(ehu_is_signal_frame(&e), "a context is a signal's");
    unw_init_local2(&u, &copy, UNW_INIT_SIGNAL_FRAME);
    compare(&e, &u, pcs, n, true);
}
