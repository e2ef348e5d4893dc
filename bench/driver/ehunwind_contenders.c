/* libehunwind. It looks at the bounds of the stack that it runs on, so it runs on the
 * stack that it walks. To the driver's thread this is a deeper part of its stack. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../runtime/include/ehunwind.h"
#include "bench.h"

static struct {
	int (*init)(void);
	void (*thread_init)(void);
	size_t (*backtrace)(void **, size_t);
	void (*cursor_init)(ehu_cursor_t *);
	int (*step)(ehu_cursor_t *);
	int (*get_reg)(ehu_cursor_t *, int, uint64_t *);
} ehu;

struct space {
	uint64_t *pcs;
	size_t max;
	int registers; /* each frame is asked for rsp, too */
};

static size_t backtrace_here(void *arg)
{
	struct space *s = arg;
	return ehu.backtrace((void **)s->pcs, s->max);
}

static size_t ehu_backtrace_(const struct stack *s, uint64_t *pcs, size_t max)
{
	struct space space = {pcs, max, 0};
	return bench_on_stack(s, backtrace_here, &space);
}

static size_t step_here(void *arg)
{
	struct space *s = arg;
	ehu_cursor_t c;
	size_t n = 0;
	ehu.cursor_init(&c);
	uint64_t rsp;
	while (n < s->max && ehu.step(&c) > 0) {
		ehu.get_reg(&c, EH_ELF_RIP, &s->pcs[n++]);
		if (s->registers)
			ehu.get_reg(&c, EH_ELF_RSP, &rsp);
	}
	return n;
}

static size_t ehu_step_(const struct stack *s, uint64_t *pcs, size_t max)
{
	struct space space = {pcs, max, 0};
	return bench_on_stack(s, step_here, &space);
}

static size_t ehu_step_registers(const struct stack *s, uint64_t *pcs, size_t max)
{
	struct space space = {pcs, max, 1};
	return bench_on_stack(s, step_here, &space);
}

struct contender bench_ehunwind[] = {
	{"ehu-backtrace", ehu_backtrace_, 0},
	{"ehu-step", ehu_step_, 0},
	{"ehu-step-registers", ehu_step_registers, 0},
	{0, 0, 0},
};

static void absent(const char *why)
{
	for (struct contender *c = bench_ehunwind; c->name; c++)
		c->absent = why;
}

#define GET(h, to, name) ((to) = (__typeof__(to))dlsym(h, name))

void bench_ehunwind_open(const char *libs)
{
	char path[1024];
	snprintf(path, sizeof path, "%s/libehunwind.so", libs);
	void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!h || !GET(h, ehu.init, "ehu_init") || !GET(h, ehu.thread_init, "ehu_thread_init") ||
	    !GET(h, ehu.backtrace, "ehu_backtrace") || !GET(h, ehu.cursor_init, "ehu_cursor_init") ||
	    !GET(h, ehu.step, "ehu_step") || !GET(h, ehu.get_reg, "ehu_get_reg"))
		ehu.init = NULL;
	absent(ehu.init ? "libehunwind has no eh_elfs yet" : "libehunwind cannot be opened or lacks a function");
}

void bench_ehunwind_init(const char *eh_elfs)
{
	if (!ehu.init)
		return;
	setenv("EHASM_PATH", eh_elfs, 1);
	if (ehu.init() != 0) {
		absent("ehu_init fails");
		return;
	}
	ehu.thread_init();
	absent(NULL);
}
