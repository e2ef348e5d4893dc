/* Real stacks: call chains through callbacks of libraries, each on its own
 * stack, stopped for good at its innermost frame. */
#define _GNU_SOURCE
#include <alloca.h>
#include <dirent.h>
#include <dlfcn.h>
#include <search.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

struct chain *bench_chain;
static void (*plugin_call)(void (*)(void), unsigned);
static int have_python;

unsigned bench_roll(unsigned n)
{
	struct chain *c = bench_chain;
	c->rng = c->rng * 1103515245u + 12345u;
	return (c->rng >> 16) % n;
}

/* How deep the stacks are, frames of the harness included. */
enum { MIN_DEPTH = 25, MAX_DEPTH = 63 };

#define KEEP __attribute__((noinline, noclone))
static volatile int sink;

/* Frames of the program's own, of several shapes. */
KEEP static int plain_small(int a) { bench_hop(); return a + sink; }
KEEP static int plain_array(int a)
{
	volatile char buf[360];
	buf[a & 255] = 1;
	bench_hop();
	return buf[a & 127];
}
KEEP static int plain_alloca(int a)
{
	volatile char *buf = alloca(16 + (a & 63));
	buf[0] = 1;
	bench_hop();
	return buf[0];
}
KEEP static int plain_live(int a)
{
	int b = sink, c = sink * 3, d = sink ^ 5, e = sink + 7, f = sink - a;
	for (int i = 0; i < 1 + (a & 1); i++) {
		b += c * i, c ^= d, d += e, e -= f, f += b;
		plain_small(b);
	}
	return a + b + c + d + e + f;
}

static int compare(const void *a, const void *b)
{
	bench_hop();
	return *(const int *)a - *(const int *)b;
}
static int compare_arg(const void *a, const void *b, void *arg)
{
	sink = *(int *)arg;
	plain_small(1);
	return *(const int *)a - *(const int *)b;
}
static void visit(const void *node, VISIT which, int depth)
{
	(void)node, (void)which;
	plain_array(depth);
}
static int filter(const struct dirent *d)
{
	bench_hop();
	return d->d_type;
}
static ssize_t cookie_write(void *cookie, const char *buf, size_t n)
{
	(void)cookie, (void)buf;
	plain_live((int)n);
	return (ssize_t)n;
}
static void on_signal(int sig) { plain_array(sig); }

static int words[8] = {5, 3, 9, 1, 7, 2, 8, 4};

static void hop_c(void)
{
	int copy[8], n = 8, key = 3;
	memcpy(copy, words, sizeof copy);
	switch (bench_roll(9)) {
	case 0: sink = plain_alloca((int)bench_roll(100)); break;
	case 1: sink = plain_live((int)bench_roll(100)); break;
	case 2: qsort(copy, 8, sizeof *copy, compare); break;
	case 3: qsort_r(copy, 8, sizeof *copy, compare_arg, &n); break;
	case 4: bsearch(&key, words, 8, sizeof *words, compare); break;
	case 5: {
		size_t count = 8;
		lfind(&key, words, &count, sizeof *words, compare);
		break;
	}
	case 6: {
		void *root = NULL;
		for (int i = 0; i < 3; i++)
			tsearch(&words[i], &root, i ? compare : compare);
		twalk(root, visit);
		break;
	}
	case 7: {
		struct dirent **names;
		sink = scandir("/", &names, filter, NULL);
		break;
	}
	case 8: {
		FILE *f = fopencookie(NULL, "w", (cookie_io_functions_t){.write = cookie_write});
		setvbuf(f, NULL, _IONBF, 0);
		fprintf(f, "%d of %s\n", n, "many");
		break;
	}
	}
	sink = copy[0];
}

KEEP void bench_leaf(void)
{
	bench_capture(bench_chain->out);
	sink++;
}

KEEP void bench_hop(void)
{
	struct chain *c = bench_chain;
	if (c->left-- <= 0) {
		if (c->kinds & KIND_SIGNAL) {
			c->kinds &= ~KIND_SIGNAL;
			c->left = 1;
			signal(SIGUSR1, on_signal);
			raise(SIGUSR1);
		}
		bench_leaf();
		return;
	}
	unsigned kinds = c->kinds & 15u, pick;
	do
		pick = 1u << bench_roll(4);
	while (!(kinds & pick));
	switch (pick) {
	case KIND_C: hop_c(); break;
	case KIND_CXX: bench_hop_cxx(); break;
	case KIND_PLUGIN: plugin_call(bench_hop, bench_roll(1000)); break;
	case KIND_PYTHON:
		c->kinds = (c->kinds & ~(unsigned)KIND_PYTHON) | KIND_C;
		bench_python_hop(2 + (int)bench_roll(3));
		break;
	}
	sink++;
}

static void begin(void *arg)
{
	bench_chain = arg;
	bench_hop();
}

static size_t count_frames(void *arg)
{
	(void)arg;
	return bench_frame_count();
}

/* capture builds one stack and returns its depth. */
static size_t capture(struct stack *s, unsigned kinds, unsigned seed, const char *name)
{
	char *mem = bench_stack_memory();
	struct chain c = {.rng = seed * 2654435761u + 1, .kinds = kinds, .out = s};
	c.left = 5 + (int)(seed * 7 % 8);
	if (kinds & KIND_PYTHON)
		c.left = 2 + (int)(seed % 5);
	s->name = name;
	s->hi = (uint64_t)(mem + STACK_BYTES - 64);
	bench_start(mem + STACK_BYTES - 64, begin, &c);
	s->regs.valid = CALLEE_SAVED | 1 << DW_RSP | 1 << DW_RIP;
	bench_prepare(s);
	return bench_on(s, count_frames, NULL);
}

int bench_chains(struct stack *stacks, int max, const char *plugin)
{
	static const struct {
		unsigned kinds;
		int count;
		const char *name;
	} plans[] = {
		{KIND_C, 16, "c"},
		{KIND_C | KIND_CXX, 14, "c, c++"},
		{KIND_C | KIND_PLUGIN, 6, "c, plugin"},
		{KIND_C | KIND_CXX | KIND_PLUGIN, 8, "c, c++, plugin"},
		{KIND_PYTHON, 14, "python, c"},
		{KIND_C | KIND_SIGNAL, 2, "c, signal"},
	};
	char why[256] = "";
	void *h = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
	if (h)
		plugin_call = (void (*)(void (*)(void), unsigned))dlsym(h, "plugin_call");
	if (!plugin_call)
		printf("skip plugin %s\n", dlerror());
	have_python = bench_python_init(why, sizeof why);
	if (!have_python)
		printf("skip python %s\n", why);
	int n = 0;
	unsigned seed = 1;
	for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
		if ((plans[i].kinds & KIND_PLUGIN && !plugin_call) || (plans[i].kinds & KIND_PYTHON && !have_python))
			continue;
		for (int k = 0; k < plans[i].count && n < max;) {
			size_t depth = capture(&stacks[n], plans[i].kinds, seed++, plans[i].name);
			if (depth >= MIN_DEPTH && depth <= MAX_DEPTH)
				n++, k++;
		}
	}
	return n;
}
