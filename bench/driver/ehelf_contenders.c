/* Contenders that use eh_elfs or the like, and the frame-pointer walk. All of
 * them start at the stack's innermost frame. */
#include "bench.h"

/* Whole stacks, at most step frames with a call: a call for each change of object
 * where step is MAX_FRAMES. */
static inline size_t walk_with(const struct stack *s, uint64_t *pcs, size_t max, int variant, size_t step)
{
	eh_elf_regs_t r = s->regs;
	eh_elf_memory_t mem = {r.reg[DW_RSP], s->hi - r.reg[DW_RSP], (const void *)r.reg[DW_RSP], 0, 0};
	size_t n = 0;
	while (n < max) {
		const struct module *at = find_module(r.reg[DW_RIP] - !r.exact);
		if (!at)
			break;
		eh_elf_walk_t *walk = at->walk[variant];
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
		eh_elf_step_t *step = at->step[variant];
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
	static size_t walk_##i(const struct stack *s, uint64_t *p, size_t max) { return walk_with(s, p, max, i, MAX_FRAMES); } \
	static size_t single_##i(const struct stack *s, uint64_t *p, size_t max) { return walk_with(s, p, max, i, 1); } \
	static size_t step_##i(const struct stack *s, uint64_t *p, size_t max) { return step_with(s, p, max, i, deref); }
VARIANT(0)
VARIANT(1)
VARIANT(4)

/* The same made from .sframe: whole stacks only. */
static size_t walk_2(const struct stack *s, uint64_t *p, size_t max) { return walk_with(s, p, max, 2, MAX_FRAMES); }
static size_t walk_3(const struct stack *s, uint64_t *p, size_t max) { return walk_with(s, p, max, 3, MAX_FRAMES); }

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

/* _eh_elf_walk's interface with a frame-pointer walk inside, on the chain: what a
 * walk takes that needs no table and restores rbp alone. The object is given in the
 * place of its bias. */
static __attribute__((noipa)) size_t fp_walk(eh_elf_regs_t *r, const eh_elf_memory_t *mem, const struct module *at,
    uint64_t *pcs, size_t max)
{
	uint64_t fp = r->reg[DW_RBP], ra = r->reg[DW_RIP], pc = ra - !r->exact;
	uint64_t lo = mem->lo, hi = mem->lo + mem->size;
	size_t n = 0;
	int status = 0;
	while (n < max) {
		if (pc - at->start >= at->size) {
			status = -1;
			break;
		}
		if (fp < lo || fp > hi - 16 || (fp & 7) != 0) {
			status = -2;
			break;
		}
		lo = fp + 16;
		pcs[n++] = ra = ((const uint64_t *)fp)[1];
		pc = ra - 1;
		fp = *(const uint64_t *)fp;
	}
	if (n > 0) {
		r->reg[DW_RBP] = fp;
		r->reg[DW_RIP] = ra;
		r->reg[DW_RSP] = lo;
		r->exact = 0;
	}
	r->status = (int16_t)status;
	return n;
}

static size_t walk_floor(const struct stack *s, uint64_t *pcs, size_t max)
{
	eh_elf_regs_t r = s->regs;
	eh_elf_memory_t mem = {s->chain_lo, s->chain_hi - s->chain_lo, (const void *)s->chain_lo, 0, 0};
	size_t n = 0;
	r.reg[DW_RBP] = (uint64_t)s->chain;
	while (n < max) {
		const struct module *at = find_module(r.reg[DW_RIP] - !r.exact);
		if (!at)
			break;
		size_t k = fp_walk(&r, &mem, at, pcs + n, max - n);
		n += k;
		if (k == 0 || (r.status != 0 && r.status != -1))
			break;
	}
	return n;
}

/* The same for _eh_elf: two words through the callback. */
static __attribute__((noipa)) unwind_context_t fp_step(unwind_context_t c, uintptr_t pc, deref_func_t fn)
{
	unwind_context_t out = {0, 0, c.rbp + 16, 0, c.rbx};
	(void)pc;
	if (c.rbp == 0)
		return out;
	out.rip = fn(c.rbp + 8);
	out.rbp = fn(c.rbp);
	out.flags = 15;
	return out;
}

static size_t step_floor(const struct stack *s, uint64_t *pcs, size_t max)
{
	unwind_context_t c = {0, s->regs.reg[DW_RIP], s->regs.reg[DW_RSP], (uint64_t)s->chain, s->regs.reg[DW_RBX]};
	size_t n = 0;
	while (n < max) {
		const struct module *at = find_module(c.rip - 1);
		if (!at)
			break;
		c = fp_step(c, c.rip - 1 - at->bias, deref);
		if (c.flags & 0x80 || !(c.flags & 1))
			break;
		pcs[n++] = c.rip;
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
	{"walk-floor", walk_floor, 0},
	{"step-floor", step_floor, 0},
	{"walk-tree", walk_0, 0},
	{"walk1-tree", single_0, 0},
	{"step-tree", step_0, 0},
	{"walk-packed", walk_1, 0},
	{"walk1-packed", single_1, 0},
	{"step-packed", step_1, 0},
	{"walk-earlier", walk_4, 0},
	{"walk1-earlier", single_4, 0},
	{"step-earlier", step_4, 0},
	{"walk-sframe-tree", walk_2, 0},
	{"walk-sframe-packed", walk_3, 0},
	{0, 0, 0},
};
