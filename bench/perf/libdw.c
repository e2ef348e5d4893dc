/* libdw over stored stacks, used as perf uses it: a Dwfl to which objects are
 * reported when a pc first lies in one, callbacks for registers and memory, and
 * dwfl_getthread_frames.
 *
 * The Dwfl is kept for as long as the process lives; with PER_SAMPLE it is made
 * again for each sample, as perf 6.1 does. */
#define _GNU_SOURCE
#include "flat.h"

#include <elfutils/libdwfl.h>
#include <stdlib.h>

enum { THREAD = 1 };

struct space {
	Dwfl *dwfl;
	int attached;
	/* of the sample that is being unwound */
	struct sample *sample;
	uint64_t *pcs;
	size_t n;
};

static struct space *spaces;
static char *debuginfo_path;

static const Dwfl_Callbacks offline = {
	.find_debuginfo = dwfl_standard_find_debuginfo,
	.debuginfo_path = &debuginfo_path,
	.section_address = dwfl_offline_section_address,
};

/* Reports the object that pc lies in, if that has not been done. */
static int report(struct space *sp, uint64_t pc)
{
	const struct mapping *m = find_mapping(sp->sample->maps, pc);
	if (!m || !m->object->data)
		return 0;
	if (!dwfl_addrmodule(sp->dwfl, pc))
		dwfl_report_elf(sp->dwfl, m->object->path, m->object->path, -1, m->start - m->offset, false);
	return dwfl_addrmodule(sp->dwfl, pc) ? 0 : -1;
}

static pid_t next_thread(Dwfl *dwfl, void *arg, void **thread)
{
	(void)dwfl;
	if (*thread)
		return 0;
	*thread = arg;
	return THREAD;
}

static bool memory_read(Dwfl *dwfl, Dwarf_Addr addr, Dwarf_Word *word, void *arg)
{
	(void)dwfl;
	return read_word(((struct space *)arg)->sample, addr, word) == 0;
}

static bool set_registers(Dwfl_Thread *thread, void *arg)
{
	return dwfl_thread_state_registers(thread, 0, FLAT_REGS, ((struct space *)arg)->sample->regs);
}

static const Dwfl_Thread_Callbacks callbacks = {
	.next_thread = next_thread,
	.memory_read = memory_read,
	.set_initial_registers = set_registers,
};

static int frame(Dwfl_Frame *state, void *arg)
{
	struct space *sp = arg;
	Dwarf_Addr pc;
	bool activation;
	if (!dwfl_frame_pc(state, &pc, &activation))
		return DWARF_CB_ABORT;
	sp->pcs[sp->n++] = pc;
	return sp->n == MAX_FRAMES || report(sp, activation ? pc : pc - 1) != 0 ? DWARF_CB_ABORT : DWARF_CB_OK;
}

void contender_open(size_t n)
{
	spaces = calloc(n, sizeof *spaces);
}

size_t contender_unwind(struct sample *s, uint64_t pcs[MAX_FRAMES])
{
	struct space *sp = &spaces[s->space];
	sp->sample = s;
	sp->pcs = pcs;
	sp->n = 0;
	if (!sp->dwfl)
		sp->dwfl = dwfl_begin(&offline);
	size_t n;
	if (report(sp, s->regs[FLAT_RIP]) == 0) {
		if (!sp->attached)
			sp->attached = dwfl_attach_state(sp->dwfl, NULL, THREAD, &callbacks, sp);
		dwfl_getthread_frames(sp->dwfl, THREAD, frame, sp);
	}
	n = sp->n;
#ifdef PER_SAMPLE
	dwfl_end(sp->dwfl);
	*sp = (struct space){0};
#endif
	if (n == 0)
		pcs[n++] = s->regs[FLAT_RIP];
	return n;
}
