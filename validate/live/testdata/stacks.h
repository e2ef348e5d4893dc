/*
 * Stacks of a live process, taken with eh_elfs and with the unwinders that the
 * machine has, and their comparison frame by frame.
 */
#ifndef STACKS_H
#define STACKS_H

#include <stdbool.h>
#include <stdio.h>
#include <ucontext.h>

#include "eh_elf.h"

enum { MAX_FRAMES = 512 };

/* The registers that a call preserves, by DWARF number, and their bits. */
enum { NUM_SAVED = 6 };
extern const int saved[NUM_SAVED];
#define SAVED_BITS 0xf048u

/* A stack: frame[0] is where it was taken, end the status at the last frame. */
struct stack {
    int len;
    int end;
    eh_elf_regs_t frame[MAX_FRAMES];
};

/* objects.c: the objects of this process and their eh_elfs. */
struct object {
    const char *path;
    const char *name;
    uint64_t bias, low, high; /* run-time addresses */
    eh_elf_walk_t *walk;
    eh_elf_step_t *step;
    char *chain; /* _eh_elf_chain_1, see package abi */
};
void load_eh_elfs(const char *dir);
const struct object *object_of(uint64_t pc);
void print_pc(FILE *out, uint64_t pc);

/* memory.c: the stacks that may be read, and the memory handed to a walk. */
enum memory_kind {
    MEM_WINDOW, /* the stack from the red zone up, in place; other stacks through read */
    MEM_COPY,   /* the same at another address */
    MEM_READ,   /* no window */
    MEM_ALL,    /* the whole address space, no read */
    MEM_SAMPLE, /* the stack from rsp up, as a profiler's sample has it; others through read */
    NUM_MEM
};
void add_stack(const void *low, size_t size);
void add_main_stack(void);
void make_memory(enum memory_kind kind, uint64_t rsp, eh_elf_memory_t *mem);
bool readable(uint64_t addr);

/* unwind.c */
void take_eh_elf(const eh_elf_regs_t *start, enum memory_kind kind, struct stack *out);
void walk_eh_elf(const eh_elf_regs_t *start, enum memory_kind kind, bool want_pcs, struct stack *out, uint64_t *pcs);
void take_libunwind(const eh_elf_regs_t *start, struct stack *out);
bool take_libgcc(const eh_elf_regs_t *start, struct stack *out);
void regs_of_context(const ucontext_t *uc, eh_elf_regs_t *regs);

/* compare.c: frames known from elsewhere than an unwinder, innermost first. */
struct known {
    int len;
    eh_elf_regs_t frame[MAX_FRAMES]; /* pc, rsp and saved registers */
};
void scenario(const char *name);
bool check_stack(const eh_elf_regs_t *start, const struct known *known, bool libgcc);
void count(const char *what, long n);
void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
int summary(void);
extern int expected_end; /* status at the last frame of a stack */

/* regs.S */
void capture(eh_elf_regs_t *regs); /* the registers here; the pc is the return address */
void step_call(void (*fn)(void));  /* calls fn with known registers and the trap flag set */
void quiet_call(void (*fn)(void)); /* the same without the trap flag */
extern const char step_return[];   /* where fn returns to */
extern uint64_t step_sp;           /* rsp there */
extern const uint64_t step_saved[NUM_SAVED]; /* saved registers there */
void on_stack(void *top, void (*fn)(long), long arg); /* calls fn on another stack */
void cfa_in_r11(void (*fn)(void));

/* A stack taken here. */
#define CHECK_HERE(libgcc)                        \
    do {                                          \
        eh_elf_regs_t here_;                      \
        capture(&here_);                          \
        check_stack(&here_, NULL, (libgcc));      \
    } while (0)

/* shapes.c: call chains of all sorts of frames. */
extern void (*at_bottom)(void); /* called by the innermost frame */
void chain(long depth);         /* every shape in turn, depth frames and more */
void jumps(long depth);         /* the same through functions that do not return */
void busywork(void);            /* library functions of many sorts */
void stepped_work(void);        /* what is single-stepped */
void stepped_calls(void);       /* the first part of it */

/* lib.c */
long lib_bounce(void (*fn)(long), long depth);
long lib_lazy(long n);
long lib_tls(long n);
void lib_sort(long depth, void (*fn)(long));
extern void (*lib_hook)(void);

#endif
