/* The functions that fill an array: glibc's backtrace and libunwind's unw_backtrace. */
#include <string.h>

#include "preload.h"

/*
 * fill fills the array if it can do so without the original, and returns the number of frames, or 0. If the tables lead
 * to memory that cannot be read, glibc's backtrace would follow them and crash: libgcc reads
 * wherever the tables lead, and looks at the code at an unknown return address. That
 * happens if a signal interrupts the few instructions at the end of libgcc's own
 * _Unwind_Resume that its tables describe wrongly. Only the frames before are available.
 * libunwind asks the kernel before it reads, so the call is handed on to it.
 */
static inline long fill(enum ehp_kind kind, void **pcs, int n, const eh_elf_regs_t *regs)
{
    enum ehu_worth worth = EHU_PARTIAL;
    uint64_t stopped = 0;
    size_t k = 0;
    if (n > 0 && ehp_can_walk_())
        k = ehu_try_(regs, (uint64_t *)(void *)(pcs + 1), (size_t)n - 1, false, &worth, &stopped);
    if (worth == EHU_PARTIAL || (worth == EHU_ASTRAY && kind == KIND_UNW_BACKTRACE)) {
        ehp_hand_on_(kind, stopped);
        return 0;
    }
    ehp_add_(&ehp_taken_[kind]);
    pcs[0] = (void *)(uintptr_t)regs->reg[EH_ELF_RIP];
    return (long)k + 1;
}

/*
 * The first call of glibc's backtrace loads libgcc, which is why programs that want to
 * call it in a signal handler call it once before. That must still work, since a later
 * call may be handed on.
 */
static void warm_up(int (*original)(void **, int))
{
    static _Atomic bool warm;
    void *pc;
    if (!atomic_load_explicit(&warm, memory_order_relaxed) && !atomic_exchange(&warm, true))
        original(&pc, 1);
}

struct ehp_answer ehp_backtrace_(void **pcs, int n, const eh_elf_regs_t *regs)
{
    int (*original)(void **, int) = EHP_ORIGINAL(backtrace);
    if (original && n > 0)
        warm_up(original);
    struct ehp_answer answer = {fill(KIND_BACKTRACE, pcs, n, regs), NULL};
    if (answer.value == 0)
        memcpy(&answer.original, &original, sizeof original);
    return answer;
}

struct ehp_answer ehp_unw_backtrace_(void **pcs, int n, const eh_elf_regs_t *regs)
{
    struct ehp_answer answer = {fill(KIND_UNW_BACKTRACE, pcs, n, regs), NULL};
    if (answer.value == 0) {
        int (*original)(void **, int) = EHP_ORIGINAL(unw_backtrace);
        memcpy(&answer.original, &original, sizeof original);
    }
    return answer;
}
