/*
 * libehunwind: stacks of the calling process, taken with eh_elfs.
 *
 * C11 and C++11, x86-64 Linux with glibc. Call ehu_init once; from then on the
 * functions marked [signal] may be called anywhere, in signal handlers too: they
 * take no lock, allocate nothing and preserve errno. The others must not be
 * called in a handler. docs/runtime.md has examples and the limits.
 */
#ifndef EHUNWIND_H
#define EHUNWIND_H

#include <stddef.h>
#include <stdint.h>
#include <ucontext.h>

#include "eh_elf.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EHU_API __attribute__((visibility("default")))

/* Why a walk stopped, besides the statuses of eh_elf.h. */
enum {
    EHU_NO_OBJECT = -16,  /* the return address lies neither in a known object nor in code made at run time */
    EHU_NOT_RISING = -17, /* the caller's CFA is not above the frame's: the stack is corrupt */
    EHU_TOO_DEEP = -18    /* a cursor has taken EHU_MAX_DEPTH steps */
};

enum { EHU_MAX_DEPTH = 1 << 20 };

/* ------------------------------------------------------------------------ objects */

/*
 * Finds the objects of the process and their eh_elfs. A second call does what
 * ehu_refresh does. Returns 0, or -1 if there is no memory.
 */
EHU_API int ehu_init(void);

/*
 * Updates the objects after loads and unloads: call it after dlopen and dlclose.
 * If nothing changed it costs one callback of dl_iterate_phdr. Returns 1 if
 * something changed, 0 if not, or -1 if there is no memory.
 */
EHU_API int ehu_refresh(void);

/*
 * Records the bounds of the calling thread's stack. Optional: without it, the
 * thread's first walk takes a few system calls, and so does each walk that begins
 * at least a page deeper in its stack than all before.
 */
EHU_API void ehu_thread_init(void);

/* ----------------------------------------------------------------------- whole stacks */

/*
 * Writes the return addresses of the calling function and its callers, innermost
 * first, at most n, and returns their number. [signal]
 */
EHU_API size_t ehu_backtrace(void **pcs, size_t n);

/* The same from the context of a signal handler: pcs[0] is its pc. [signal] */
EHU_API size_t ehu_backtrace_from(const ucontext_t *context, void **pcs, size_t n);

/* ------------------------------------------------------------------------ frame by frame */

/*
 * A frame of the calling thread. It is valid until the function returns in which it
 * began. All of it is private: a cursor that is asked only for pcs takes steps ahead, so
 * that the registers in it need not be those of its frame.
 */
struct ehu_walk {
    eh_elf_regs_t regs;
    eh_elf_memory_t memory;
    uint32_t depth;
    uint32_t flags;
    uint32_t kept_valid;
    uint64_t kept[16];
    struct {
        uint64_t low, size, shift;
    } code[2];
};

typedef struct {
    struct ehu_walk walk;
    uint16_t at, end, next;
    uint8_t began, outermost;
    uint32_t origin_depth;
    eh_elf_regs_t origin;
    uint64_t pcs[48];
} ehu_cursor_t;

/* Begins at the frame of the caller. [signal] */
EHU_API void ehu_cursor_init(ehu_cursor_t *cursor);

/* Begins at a context. [signal] */
EHU_API void ehu_cursor_init_from(ehu_cursor_t *cursor, const ucontext_t *context);

/*
 * Goes to the caller's frame. Returns 1; 0 at the outermost frame; or a
 * negative status, after which the cursor is unchanged. [signal]
 */
EHU_API int ehu_step(ehu_cursor_t *cursor);

/*
 * Stores a register by DWARF number, EH_ELF_RIP for the pc. Returns 0, or -1 if
 * its value is not known. The first call for another register than the pc takes the
 * steps since the beginning again, and from then on each step is slower. [signal]
 */
EHU_API int ehu_get_reg(ehu_cursor_t *cursor, int reg, uint64_t *value);

/* 1 if a signal interrupted the frame: its pc was executing and is not a return address.
   It costs what ehu_get_reg does for another register than the pc. [signal] */
EHU_API int ehu_is_signal_frame(ehu_cursor_t *cursor);

/*
 * 1 if the frame, or one on the way to it, was found without a table: by frame
 * pointer, or by a register that a table needs and that no table describes as kept.
 * [signal]
 */
EHU_API int ehu_is_guessed(const ehu_cursor_t *cursor);

/* The status of the last ehu_step: EH_ELF_* or EHU_*. [signal] */
EHU_API int ehu_status(const ehu_cursor_t *cursor);

/* ------------------------------------------------------------------------------ figures */

/* Since ehu_init. EHASM_STATS=1 in the environment prints them to stderr at exit. */
typedef struct {
    uint64_t objects;      /* objects of the process, now */
    uint64_t eh_elfs; /* objects that have an eh_elf */
    uint64_t refreshes; /* times that objects were looked up */
    uint64_t walks;        /* ehu_backtrace*, cursors that stepped; all but those below ended at the outermost frame */
    uint64_t full; /* ended because the array was full */
    uint64_t no_info;      /* ended at a pc without unwind information */
    uint64_t unreadable;   /* ended at memory that cannot be read */
    uint64_t bad_register; /* ended because a register was not valid */
    uint64_t not_compiled; /* ended at a rule that could not be compiled */
    uint64_t no_object;    /* ended at a return address in no known object */
    uint64_t not_rising;   /* ended at a CFA that does not rise */
    uint64_t too_deep;     /* ended at EHU_MAX_DEPTH */
    uint64_t guessed;      /* steps that were guesses */
    uint64_t other_stacks; /* times that a stack was not the thread's own, and its bounds had to be probed */
    uint64_t probes; /* system calls made to find bounds */
    uint64_t looks; /* queries of /proc/self/maps for what memory is code */
} ehu_stats_t;

EHU_API void ehu_stats(ehu_stats_t *stats); /* [signal] */

#ifdef __cplusplus
}
#endif

#endif
