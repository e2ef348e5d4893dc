/* What the files of the driver share. */
#ifndef BENCH_H
#define BENCH_H

#include <stddef.h>
#include <stdint.h>

#include "../../runtime/include/eh_elf.h"

/* DWARF register numbers, short. */
enum { DW_RBX = 3, DW_RBP = 6, DW_RSP = 7, DW_R12 = 12, DW_R13, DW_R14, DW_R15, DW_RIP };
enum { CALLEE_SAVED = 1 << 3 | 1 << 6 | 0xf << 12 };

#ifdef __cplusplus
extern "C" {
#endif

enum { MAX_FRAMES = 512, STACK_BYTES = 1 << 20, MAX_STACKS = 128 };

/* A stack to walk: the registers of its innermost frame, and its memory. */
struct stack {
	eh_elf_regs_t regs; /* first: switch.S knows the layout */
	uint64_t hi;        /* one past the highest address of its memory */
	const char *name;   /* the libraries that the chain goes through */
	uint64_t *chain;    /* the frame-pointer chain of the same shape: its first pair */
	uint64_t chain_lo, chain_hi;
};

/* switch.S. The first three use one place to keep the caller's stack pointer, bench_on_stack another. */
void bench_start(void *top, void (*fn)(void *), void *arg); /* fn(arg) on a new stack, until bench_capture */
/* note the caller's registers, go back to bench_start's caller */
void bench_capture(struct stack *);
/* fn(arg), as if called from the stack's innermost frame */
size_t bench_on(const struct stack *, size_t (*fn)(void *), void *arg);
/* the same, on that stack; a real one only */
size_t bench_on_stack(const struct stack *, size_t (*fn)(void *), void *arg);

void bench_prepare(struct stack *);                         /* write what bench_on needs below the stack */

/* chains.c, chains.cc, python.c: real stacks. */
struct chain {
	unsigned rng;
	int left; /* hops still to make */
	unsigned kinds;
	struct stack *out;
};
enum { KIND_C = 1, KIND_CXX = 2, KIND_PLUGIN = 4, KIND_PYTHON = 8, KIND_SIGNAL = 16 };
extern struct chain *bench_chain; /* the one being built */
void bench_hop(void);
unsigned bench_roll(unsigned n); /* below n */
void bench_hop_cxx(void);
int bench_python_init(char *why, size_t n);
void bench_python_hop(int levels);
int bench_chains(struct stack *stacks, int max, const char *plugin); /* their number */
char *bench_stack_memory(void); /* STACK_BYTES of the thread's stack, which it does not use */

/* modules.c: the loaded objects and their eh_elfs. */
enum { MAX_VARIANTS = 5, MAX_MODULES = 64 };
struct module {
	uint64_t start, end, bias; /* of the executable segments */
	uint64_t size;             /* end - start */
	eh_elf_walk_t *walk[MAX_VARIANTS];
	eh_elf_step_t *step[MAX_VARIANTS];
	const char *path;
	void *sframe;       /* libsframe's decoder of its .sframe; null: none */
	uint64_t sframe_at; /* run-time address that the section is said to have */
};
extern struct module bench_modules[MAX_MODULES];
extern int bench_module_count;
void bench_find_modules(void);

/* find_module: a binary search over the sorted modules behind a direct-mapped cache
 * by 64 KiB of text, since a stack goes to and fro between a few modules. An
 * unused place holds a module of no size. */
enum { MODULE_CACHE = 256 };
extern const struct module *bench_module_cache[MODULE_CACHE];
const struct module *bench_search_module(uint64_t pc, const struct module **slot);

static inline const struct module *find_module(uint64_t pc)
{
	const struct module **slot = &bench_module_cache[(pc >> 16 ^ pc >> 26) % MODULE_CACHE];
	const struct module *m = *slot;
	return pc - m->start < m->size ? m : bench_search_module(pc, slot);
}

/* The contenders. walk returns the number of pcs; where it starts at its own
 * frame, those of the harness come first. */
struct contender {
	const char *name;
	size_t (*walk)(const struct stack *, uint64_t *pcs, size_t max);
	const char *absent; /* why it cannot run here; null: it can */
};
extern struct contender bench_ehelf[], bench_system[], bench_ehunwind[], bench_sframe[]; /* ended by a null name */
const char *bench_sframe_load(struct module *, uint64_t addr, const char *path); /* why not; null: loaded */
size_t bench_frame_count(void); /* of the stack it is called on, by libgcc */
void bench_system_init(const char *libs, const char *llvm);
void bench_ehunwind_open(const char *libs);
void bench_ehunwind_init(const char *eh_elfs); /* the folder with the eh_elfs of the modules */

/* measure.c */
struct set {
	char name[32];
	struct stack **stack;
	int count;
};
struct measure {
	double ns;       /* for all walks of one pass over the set */
	uint64_t frames; /* in one pass */
};
void bench_measure_init(void);
int bench_measure(const struct contender *, const struct set *, const char *pattern, struct measure *);
void bench_count(const struct contender *, const struct set *, const char *label, struct measure *);
size_t bench_cache_bytes(void); /* of the last-level cache */
size_t bench_flush_bytes(void); /* what is written before each cold walk */

#ifdef __cplusplus
}
#endif
#endif
