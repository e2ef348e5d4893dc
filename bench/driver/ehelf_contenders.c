/* Contenders that use eh_elfs or the like, and the frame-pointer walk. All of
 * them start at the stack's innermost frame. */
#include "bench.h"

/* Whole stacks, at most step frames with a call: a call for each change of object
 * where step is MAX_FRAMES. */
static inline size_t walk_with(const struct stack *s, uint64_t *pcs, size_t max, int variant, size_t step, int onetree)
{
	eh_elf_regs_t r = s->regs;
	eh_elf_memory_t mem = {r.reg[DW_RSP], s->hi - r.reg[DW_RSP], (const void *)r.reg[DW_RSP], 0, 0};
	size_t n = 0;
	while (n < max) {
		const struct module *at = find_module(r.reg[DW_RIP] - !r.exact);
		if (!at)
			break;
		eh_elf_walk_t *walk = onetree ? at->onetree : at->walk[variant];
		if (!walk)
			break;
		size_t k = walk(&r, &mem, at->bias, pcs + n, step < MAX_FRAMES ? step : max - n);
		n += k;
		if (k == 0 || (r.status != 0 && r.status != -1))
			break;
	}
	return n;
}

/* _eh_elf as the stack walker of the original project calls it. */
static uintptr_t deref(uintptr_t addr) { return *(uintptr_t *)addr; }

static inline size_t step_with(const struct stack *s, uint64_t *pcs, size_t max, int variant, deref_func_t fn)
{
	unwind_context_t c = {0, s->regs.reg[DW_RIP], s->regs.reg[DW_RSP], s->regs.reg[DW_RBP], s->regs.reg[DW_RBX]};
	size_t n = 0;
	while (n < max) {
		const struct module *at = find_module(c.rip - 1);
		if (!at)
			break;
		eh_elf_step_t *step = variant < 0 ? at->original : at->step[variant];
		if (!step)
			break;
		c = step(c, c.rip - 1 - at->bias, fn);
		if (c.flags & 0x80 || !(c.flags & 1))
			break;
		pcs[n++] = c.rip;
	}
	return n;
}

#define VARIANT(i) \
	static size_t walk_##i(const struct stack *s, uint64_t *p, size_t max) { return walk_with(s, p, max, i, MAX_FRAMES, 0); } \
	static size_t single_##i(const struct stack *s, uint64_t *p, size_t max) { return walk_with(s, p, max, i, 1, 0); } \
	static size_t step_##i(const struct stack *s, uint64_t *p, size_t max) { return step_with(s, p, max, i, deref); }
VARIANT(0)
VARIANT(1)

static size_t original(const struct stack *s, uint64_t *p, size_t max) { return step_with(s, p, max, -1, deref); }
static size_t onetree(const struct stack *s, uint64_t *p, size_t max) { return walk_with(s, p, max, 0, MAX_FRAMES, 1); }

/* The floor: the same number of frames at the same distances, linked by frame
 * pointers, with the checks that a walk needs to be safe. */
static size_t frame_pointers(const struct stack *s, uint64_t *pcs, size_t max)
{
	const uint64_t *fp = s->chain;
	uint64_t lo = s->chain_lo, hi = s->chain_hi;
	size_t n = 0;
	while (n < max && (uint64_t)fp >= lo && (uint64_t)fp <= hi - 16 && ((uint64_t)fp & 7) == 0) {
		lo = (uint64_t)fp + 16;
		pcs[n++] = fp[1];
		fp = (const uint64_t *)fp[0];
	}
	return n;
}

static size_t nothing(const struct stack *s, uint64_t *pcs, size_t max)
{
	(void)max;
	pcs[0] = s->hi;
	return 1;
}

struct contender bench_ehelf[] = {
	{"nothing", nothing, 0},
	{"frame-pointers", frame_pointers, 0},
	{"walk-tree", walk_0, 0},
	{"walk1-tree", single_0, 0},
	{"step-tree", step_0, 0},
	{"walk-packed", walk_1, 0},
	{"walk1-packed", single_1, 0},
	{"step-packed", step_1, 0},
	{"original", original, 0},
	{"onetree", onetree, 0},
	{0, 0, 0},
};
