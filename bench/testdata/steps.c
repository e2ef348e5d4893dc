/* Reads frames and prints what the code under test makes of them. A frame: pc as
 * looked up, rsp, rbp, rbx, r12-r15, as offsets from the memory for rsp and rbp.
 * Built with _eh_elf (STEP) or _eh_elf_walk. The memory word at i holds 1000+i. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../../include/eh_elf.h"

enum { WORDS = 1 << 13 };
static uint64_t memory[WORDS];

#ifdef STEP
static uintptr_t deref(uintptr_t addr) { return *(uintptr_t *)addr; }
#endif

int main(void)
{
	uint64_t v[8], base = (uint64_t)memory;
	for (int i = 0; i < WORDS; i++)
		memory[i] = 1000 + (uint64_t)i;
	while (scanf("%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, v, v + 1, v + 2, v + 3,
		     v + 4, v + 5, v + 6, v + 7) == 8) {
#ifdef STEP
		unwind_context_t c = {0, v[0], base + v[1], base + v[2], v[3]};
		c = _eh_elf(c, v[0], deref);
		printf("%d %" PRIu64 " %" PRId64 " %" PRIu64 " %" PRIu64 "\n", c.flags, c.rip, (int64_t)(c.rsp - base),
		       c.rbp == base + v[2] ? v[2] : c.rbp, c.rbx);
#else
		eh_elf_regs_t r;
		eh_elf_memory_t mem = {base, sizeof memory, memory, 0, 0};
		uint64_t pc = 0;
		memset(&r, 0, sizeof r);
		r.reg[16] = v[0], r.reg[7] = base + v[1], r.reg[6] = base + v[2], r.reg[3] = v[3];
		for (int i = 0; i < 4; i++)
			r.reg[12 + i] = v[4 + i];
		r.valid = 0x1f0c8;
		r.exact = 1;
		size_t n = _eh_elf_walk(&r, &mem, 0, &pc, 1);
		printf("%zu %d %" PRIu64 " %" PRId64 " %" PRIu64 " %" PRIu64, n, r.status, r.reg[16], (int64_t)(r.reg[7] - base),
		       r.reg[6] == base + v[2] ? v[2] : r.reg[6], r.reg[3]);
		for (int i = 0; i < 4; i++)
			printf(" %" PRIu64, r.reg[12 + i]);
		printf("\n");
#endif
	}
	return 0;
}
