/*
 * Declarations shared by the files of libehunwind-preload. The library is libehunwind
 * plus these: functions with names of glibc, libgcc and libunwind, which do the same
 * with eh_elfs, or else hand the call on to the next function of that name in the
 * program's scope: the original.
 */
#ifndef EHP_PRELOAD_H
#define EHP_PRELOAD_H

#include <stddef.h>
#include <unwind.h>

#include "../src/internal.h"

#define EHP_EXPORT __attribute__((visibility("default")))

/* ------------------------------------------------------------------------ originals.c */

/*
 * libunwind's types, declared here so that building does not need libunwind. A cursor
 * is the caller's memory, CURSOR_WORDS opaque words.
 */
enum { CURSOR_WORDS = 127 };
typedef struct {
    uint64_t word[CURSOR_WORDS];
} ehp_unw_cursor_t;
enum { UNW_BAD_VALUE = -8, UNW_NO_INFO = -10 }; /* what libunwind's functions return: -UNW_EINVAL, -UNW_ENOINFO */

/*
 * The originals; null if the program has none. ORIGINALS_* list them as
 * X(member, symbol, type of the result, types of the parameters); the first of a list
 * is the one by which its library is found.
 */
#define ORIGINALS_LIBC(X)                                   \
    X(backtrace, "backtrace", int, (void **, int))          \
    X(dlopen, "dlopen", void *, (const char *, int))        \
    X(prctl, "prctl", int, (int, ...))
#define ORIGINALS_UNWIND(X)                                                                       \
    X(unwind_backtrace, "_Unwind_Backtrace", _Unwind_Reason_Code, (_Unwind_Trace_Fn, void *))     \
    X(get_gr, "_Unwind_GetGR", _Unwind_Word, (struct _Unwind_Context *, int))                     \
    X(set_gr, "_Unwind_SetGR", void, (struct _Unwind_Context *, int, _Unwind_Word))               \
    X(get_ip, "_Unwind_GetIP", _Unwind_Ptr, (struct _Unwind_Context *))                           \
    X(get_ip_info, "_Unwind_GetIPInfo", _Unwind_Ptr, (struct _Unwind_Context *, int *))           \
    X(set_ip, "_Unwind_SetIP", void, (struct _Unwind_Context *, _Unwind_Ptr))                     \
    X(get_cfa, "_Unwind_GetCFA", _Unwind_Word, (struct _Unwind_Context *))                        \
    X(get_lsda, "_Unwind_GetLanguageSpecificData", void *, (struct _Unwind_Context *))            \
    X(get_region_start, "_Unwind_GetRegionStart", _Unwind_Ptr, (struct _Unwind_Context *))        \
    X(get_data_rel_base, "_Unwind_GetDataRelBase", _Unwind_Ptr, (struct _Unwind_Context *))       \
    X(get_text_rel_base, "_Unwind_GetTextRelBase", _Unwind_Ptr, (struct _Unwind_Context *))
#define ORIGINALS_LIBUNWIND(X)                                                                    \
    X(init_local, "_ULx86_64_init_local", int, (ehp_unw_cursor_t *, ucontext_t *))                \
    X(init_local2, "_ULx86_64_init_local2", int, (ehp_unw_cursor_t *, ucontext_t *, int))         \
    X(step, "_ULx86_64_step", int, (ehp_unw_cursor_t *))                                          \
    X(get_reg, "_ULx86_64_get_reg", int, (ehp_unw_cursor_t *, int, uint64_t *))                   \
    X(set_reg, "_ULx86_64_set_reg", int, (ehp_unw_cursor_t *, int, uint64_t))                     \
    X(get_fpreg, "_ULx86_64_get_fpreg", int, (ehp_unw_cursor_t *, int, long double *))            \
    X(set_fpreg, "_ULx86_64_set_fpreg", int, (ehp_unw_cursor_t *, int, long double))              \
    X(get_save_loc, "_ULx86_64_get_save_loc", int, (ehp_unw_cursor_t *, int, void *))             \
    X(get_proc_name, "_ULx86_64_get_proc_name", int, (ehp_unw_cursor_t *, char *, size_t, uint64_t *)) \
    X(get_proc_info, "_ULx86_64_get_proc_info", int, (ehp_unw_cursor_t *, void *))                \
    X(is_signal_frame, "_ULx86_64_is_signal_frame", int, (ehp_unw_cursor_t *))                    \
    X(resume, "_ULx86_64_resume", int, (ehp_unw_cursor_t *))                                      \
    X(reg_states_iterate, "_ULx86_64_reg_states_iterate", int, (ehp_unw_cursor_t *, void *, void *)) \
    X(apply_reg_state, "_ULx86_64_apply_reg_state", int, (ehp_unw_cursor_t *, void *))            \
    X(unw_backtrace, "unw_backtrace", int, (void **, int))

#define EHP_MEMBER(member, symbol, result, parameters) result(*member) parameters;
struct ehp_originals {
    ORIGINALS_LIBC(EHP_MEMBER)
    ORIGINALS_UNWIND(EHP_MEMBER)
    ORIGINALS_LIBUNWIND(EHP_MEMBER)
};
extern struct ehp_originals ehp_original_;

/* How the original _Unwind_Backtrace calls back at the end of a stack. */
enum ehp_style {
    STYLE_OTHER, /* not known: each call is handed on */
    STYLE_LIBGCC, /* once more, with pc 0 */
    STYLE_LIBUNWIND
};
extern enum ehp_style ehp_style_;

/*
 * Looks up the originals that are missing: in the program's scope if in_scope, and in
 * the loaded libraries that are known to have them. It takes the loader's locks.
 */
void ehp_resolve_(bool in_scope);
/* An original, looked up if it is missing; null if there is none. */
#define EHP_ORIGINAL(member)                                    \
    (__atomic_load_n(&ehp_original_.member, __ATOMIC_ACQUIRE)   \
         ? ehp_original_.member                                 \
         : (ehp_resolve_(true), __atomic_load_n(&ehp_original_.member, __ATOMIC_ACQUIRE)))

/* Whether an address lies in the code of the original libunwind. */
bool ehp_in_libunwind_(const void *address);

/* ---------------------------------------------------------------------------- stats.c */

enum ehp_kind { KIND_BACKTRACE, KIND_UNWIND_BACKTRACE, KIND_UNW_BACKTRACE, KIND_UNW_CURSOR, NUM_KINDS };
extern _Atomic uint64_t ehp_taken_[NUM_KINDS], ehp_handed_[NUM_KINDS];
extern _Atomic uint64_t ehp_followed_, ehp_not_followed_; /* calls of dlopen */
static inline void ehp_add_(_Atomic uint64_t *n) { atomic_fetch_add_explicit(n, 1, memory_order_relaxed); }
extern _Atomic uint64_t ehp_stopped_; /* the address at which the walk of the last handed-on call ended; 0: none */
static inline void ehp_hand_on_(enum ehp_kind kind, uint64_t stopped)
{
    ehp_add_(&ehp_handed_[kind]);
    atomic_store_explicit(&ehp_stopped_, stopped, memory_order_relaxed);
}
void ehp_stats_init_(void);

/* Set once the table of objects exists; until then each call is handed on. */
extern _Atomic bool ehp_ready_;
/* Reports whether the table has all objects. A walk with an outdated one could lead through an object that is there no more. */
static inline bool ehp_can_walk_(void)
{
    return atomic_load_explicit(&ehp_ready_, memory_order_acquire) && ehu_up_to_date_();
}

/* ---------------------------------------------------------------------------- entry.S */

/*
 * What a function tells its entry, which has saved the caller's frame: return value,
 * or jump to original with the original arguments and return address, so that the
 * original finds the stack as if it had been called directly.
 */
struct ehp_answer {
    long value;
    void *original;
};
struct ehp_answer ehp_backtrace_(void **pcs, int n, const eh_elf_regs_t *regs);
struct ehp_answer ehp_unw_backtrace_(void **pcs, int n, const eh_elf_regs_t *regs);
struct ehp_answer ehp_unwind_backtrace_(_Unwind_Trace_Fn trace, void *arg, const eh_elf_regs_t *regs);
/* Returns the function that the entry of dlopen jumps to. */
void *ehp_dlopen_(const char *path, int mode, const void *caller);

#endif
