/* The driver: builds the stacks, then obeys commands on its standard input, one
 * line each, and answers each with lines that end in "ok" or "error TEXT". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench.h"

enum { MAX_SETS = 32 };
static struct stack stacks[MAX_STACKS];
static int stack_count;
static struct set sets[MAX_SETS];
static int set_count;

static int fail(const char *why)
{
	printf("error %s\n", why ? why : "unknown");
	return 0;
}

void bench_prepare(struct stack *s)
{
	/* The pair that bench_on points rbp at. */
	uint64_t *top = (uint64_t *)s->regs.reg[DW_RSP];
	top[-1] = s->regs.reg[DW_RIP];
	top[-2] = s->regs.reg[DW_RBP];
}

/* make_chain lays the frame-pointer chain out in separate memory: a pair for
 * each frame, at the distances that the frames have, but 16 bytes at least. It
 * returns the end of the memory that it used. */
static char *make_chain(struct stack *s, const uint64_t *cfa, const uint64_t *pc, size_t n, char *mem)
{
	uint64_t below = s->regs.reg[DW_RSP];
	uint64_t *previous = (uint64_t *)&s->chain;
	s->chain_lo = (uint64_t)mem;
	for (size_t i = 0; i < n; i++) {
		uint64_t *pair = (uint64_t *)mem;
		*previous = (uint64_t)pair;
		pair[1] = pc[i];
		previous = pair;
		mem += cfa[i] - below > 16 ? cfa[i] - below : 16;
		below = cfa[i];
	}
	*previous = 0;
	s->chain_hi = (uint64_t)mem;
	return mem;
}

static const struct contender *find_contender(const char *name)
{
	const struct contender *all[] = {bench_ehelf, bench_system, bench_ehunwind, bench_sframe};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		for (const struct contender *c = all[i]; c->name; c++)
			if (strcmp(c->name, name) == 0)
				return c;
	return NULL;
}

static struct set *find_set(const char *name)
{
	for (int i = 0; i < set_count; i++)
		if (strcmp(sets[i].name, name) == 0)
			return &sets[i];
	return NULL;
}

static struct set *new_set(const char *name, int count)
{
	if (set_count == MAX_SETS || find_set(name))
		return NULL;
	struct set *s = &sets[set_count++];
	snprintf(s->name, sizeof s->name, "%s", name);
	s->stack = calloc((size_t)count, sizeof *s->stack);
	return s;
}

static int cmd_modules(void)
{
	for (int i = 0; i < bench_module_count; i++) {
		const struct module *m = &bench_modules[i];
		printf("module %d %#" PRIx64 " %#" PRIx64 " %#" PRIx64 " %s\n", i, m->start, m->end, m->bias, m->path);
	}
	return 1;
}

static int cmd_stacks(void)
{
	for (int i = 0; i < stack_count; i++)
		printf("stack %d %#" PRIx64 " %#" PRIx64 " %s\n", i, stacks[i].regs.reg[DW_RSP], stacks[i].hi, stacks[i].name);
	return 1;
}

/* dump writes, for each stack, its registers, its end and its memory. */
static int cmd_dump(const char *path)
{
	FILE *f = fopen(path, "wb");
	if (!f)
		return fail(strerror(errno));
	for (int i = 0; i < stack_count; i++) {
		const struct stack *s = &stacks[i];
		fwrite(&s->regs, sizeof s->regs, 1, f);
		fwrite(&s->hi, 8, 1, f);
		fwrite((void *)s->regs.reg[DW_RSP], 1, s->hi - s->regs.reg[DW_RSP], f);
	}
	return fclose(f) == 0 ? 1 : fail(strerror(errno));
}

static int cmd_load(char *args)
{
	char path[1024];
	int variant, index;
	if (sscanf(args, "%d %d %1023s", &variant, &index, path) != 3 || index < 0 || index >= bench_module_count ||
	    variant < 0 || variant >= MAX_VARIANTS)
		return fail("usage: load VARIANT MODULE PATH");
	struct module *m = &bench_modules[index];
	void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!h)
		return fail(dlerror());
	void *walk = dlsym(h, "_eh_elf_walk"), *step = dlsym(h, "_eh_elf");
	m->walk[variant] = (eh_elf_walk_t *)walk;
	m->step[variant] = (eh_elf_step_t *)step;
	return walk && step ? 1 : fail("a function is missing");
}

/* sframe MODULE ADDR FILE: the .sframe of a module, made for that link-time address. */
static int cmd_sframe(char *args)
{
	char path[1024];
	int index;
	uint64_t addr;
	if (sscanf(args, "%d %" SCNi64 " %1023s", &index, &addr, path) != 3 || index < 0 || index >= bench_module_count)
		return fail("usage: sframe MODULE ADDR FILE");
	const char *why = bench_sframe_load(&bench_modules[index], addr, path);
	return why ? fail(why) : 1;
}

/* fake START END BIAS: an object that is not loaded, above all others. */
static int cmd_fake(char *args)
{
	struct module m = {.path = "fake"};
	if (sscanf(args, "%" SCNi64 " %" SCNi64 " %" SCNi64, &m.start, &m.end, &m.bias) != 3 ||
	    bench_module_count == MAX_MODULES)
		return fail("usage: fake START END BIAS");
	m.size = m.end - m.start;
	bench_modules[bench_module_count++] = m;
	return 1;
}

static int cmd_set(char *args)
{
	char *name = strtok(args, " ");
	struct set *s = name ? new_set(name, MAX_STACKS) : NULL;
	if (!s)
		return fail("set exists");
	for (char *id; (id = strtok(NULL, " "));)
		s->stack[s->count++] = &stacks[atoi(id) % MAX_STACKS];
	return 1;
}

/* chain ID CFA PC ...: the frames of a real stack, for the frame-pointer chain. */
static int cmd_chain(char *args)
{
	uint64_t cfa[MAX_FRAMES], pc[MAX_FRAMES];
	size_t n = 0;
	char *word = strtok(args, " ");
	struct stack *s = word ? &stacks[atoi(word) % MAX_STACKS] : NULL;
	while (n < MAX_FRAMES && (word = strtok(NULL, " "))) {
		cfa[n] = strtoull(word, NULL, 16);
		pc[n++] = (word = strtok(NULL, " ")) ? strtoull(word, NULL, 16) : 0;
	}
	if (!s || !n)
		return fail("usage: chain ID CFA PC ...");
	make_chain(s, cfa, pc, n, aligned_alloc(64, (s->hi - s->regs.reg[DW_RSP] + 16 * n + 63) & ~(uint64_t)63));
	return 1;
}

/* synth NAME FILE: stacks made by the harness. The file: base, bytes, stacks,
 * frames; per stack registers (17 words), end, first frame, frames; per frame
 * CFA and pc; the memory. All words of 8 bytes. */
static int cmd_synth(char *args)
{
	char name[32], path[1024];
	uint64_t head[4];
	FILE *f = NULL;
	if (sscanf(args, "%31s %1023s", name, path) != 2 || !(f = fopen(path, "rb")) || fread(head, 8, 4, f) != 4)
		return fail("cannot read the file");
	uint64_t(*rec)[20] = malloc(head[2] * sizeof *rec), (*frame)[2] = malloc(head[3] * sizeof *frame);
	char *mem = mmap((void *)head[0], head[1], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
	    -1, 0);
	char *chains = mmap(NULL, head[1] + 16 * head[3], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct set *set = new_set(name, (int)head[2]);
	if (mem != (char *)head[0] || chains == MAP_FAILED || !set || fread(rec, sizeof *rec, head[2], f) != head[2] ||
	    fread(frame, sizeof *frame, head[3], f) != head[3] || fread(mem, 1, head[1], f) != head[1])
		return fail("bad file, or its addresses are taken");
	fclose(f);
	struct stack *s = calloc(head[2], sizeof *s);
	uint64_t cfa[MAX_FRAMES], pc[MAX_FRAMES];
	for (size_t i = 0; i < head[2]; i++, s++) {
		memcpy(s->regs.reg, rec[i], sizeof s->regs.reg);
		s->regs.valid = CALLEE_SAVED | 1 << DW_RSP | 1 << DW_RIP;
		s->hi = rec[i][17];
		s->name = name;
		for (size_t k = 0; k < rec[i][19] && k < MAX_FRAMES; k++)
			cfa[k] = frame[rec[i][18] + k][0], pc[k] = frame[rec[i][18] + k][1];
		bench_prepare(s);
		chains = make_chain(s, cfa, pc, rec[i][19], chains);
		set->stack[set->count++] = s;
	}
	free(rec), free(frame);
	return 1;
}

static size_t get_pcs(void *arg)
{
	void **a = arg;
	return ((const struct contender *)a[0])->walk(a[1], a[2], MAX_FRAMES);
}

/* pcs CONTENDER SET: what the contender finds on each stack. */
static int cmd_pcs(char *args)
{
	char contender[32], name[32];
	if (sscanf(args, "%31s %31s", contender, name) != 2)
		return fail("usage: pcs CONTENDER SET");
	const struct contender *c = find_contender(contender);
	const struct set *s = find_set(name);
	if (!c || !s || c->absent)
		return fail(c && c->absent ? c->absent : "no such contender or set");
	for (int i = 0; i < s->count; i++) {
		uint64_t pcs[MAX_FRAMES];
		void *a[] = {(void *)c, s->stack[i], pcs};
		size_t n = bench_on(s->stack[i], get_pcs, a);
		printf("pcs %d", i);
		for (size_t k = 0; k < n; k++)
			printf(" %" PRIx64, pcs[k]);
		printf("\n");
	}
	return 1;
}

static int cmd_run(char *args, int count)
{
	char contender[32], name[32], pattern[32];
	struct measure m;
	if (sscanf(args, "%31s %31s %31s", contender, name, pattern) != 3)
		return fail("usage: run CONTENDER SET PATTERN");
	const struct contender *c = find_contender(contender);
	const struct set *s = find_set(name);
	if (!c || !s || c->absent)
		return fail(c && c->absent ? c->absent : "no such contender or set");
	if (count)
		bench_count(c, s, pattern, &m);
	else if (!bench_measure(c, s, pattern, &m))
		return fail("no such pattern");
	printf("result %.1f %" PRIu64 "\n", m.ns, m.frames);
	return 1;
}

static int obey(char *line)
{
	char *args = strchr(line, ' ');
	if (args)
		*args++ = 0;
	else
		args = line + strlen(line);
	if (strcmp(line, "modules") == 0)
		return cmd_modules();
	if (strcmp(line, "cache") == 0) {
		printf("cache %zu %zu\n", bench_cache_bytes(), bench_flush_bytes());
		return 1;
	}
	if (strcmp(line, "stacks") == 0)
		return cmd_stacks();
	if (strcmp(line, "dump") == 0)
		return cmd_dump(args);
	if (strcmp(line, "load") == 0)
		return cmd_load(args);
	if (strcmp(line, "set") == 0)
		return cmd_set(args);
	if (strcmp(line, "chain") == 0)
		return cmd_chain(args);
	if (strcmp(line, "synth") == 0)
		return cmd_synth(args);
	if (strcmp(line, "pcs") == 0)
		return cmd_pcs(args);
	if (strcmp(line, "run") == 0)
		return cmd_run(args, 0);
	if (strcmp(line, "count") == 0)
		return cmd_run(args, 1);
	if (strcmp(line, "sframe") == 0)
		return cmd_sframe(args);
	if (strcmp(line, "fake") == 0)
		return cmd_fake(args);
	if (strcmp(line, "ehunwind") == 0) {
		bench_ehunwind_init(args);
		return 1;
	}
	return fail("unknown command");
}

static char **arguments;

/* work is all that the driver does. */
static void *work(void *arg)
{
	char *line = NULL;
	size_t size = 0;
	stack_count = bench_chains(stacks, MAX_STACKS, arguments[1]);
	bench_system_init(arguments[2], arguments[3]);
	bench_ehunwind_open(arguments[2]);
	bench_measure_init();
	bench_find_modules();
	printf("ok\n");
	fflush(stdout);
	while (getline(&line, &size, stdin) > 0) {
		line[strcspn(line, "\n")] = 0;
		if (strcmp(line, "quit") == 0)
			break;
		if (obey(line))
			printf("ok\n");
		fflush(stdout);
	}
	_exit(0); /* the stacks hold locks that destructors would wait for */
	return arg;
}

/*
 * The work is done by a thread with a large stack. It needs the upper end; the lower
 * one is given out to the real stacks, so that they are deeper parts of its stack to
 * whoever looks at the bounds of a stack.
 */
enum { ALL_STACKS = 512 << 20 };
static char *lowest, *highest;

char *bench_stack_memory(void)
{
	char *mem = lowest;
	lowest += STACK_BYTES;
	if (lowest + 16 * STACK_BYTES > highest) {
		fprintf(stderr, "driver: no room for more stacks\n");
		exit(1);
	}
	return mem;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	pthread_attr_t attr;
	if (argc != 4) {
		fprintf(stderr, "usage: %s PLUGIN LIBUNWIND-FOLDER LLVM-LIBUNWIND\n", argv[0]);
		return 2;
	}
	arguments = argv;
	lowest = mmap(NULL, ALL_STACKS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	highest = lowest + ALL_STACKS;
	pthread_attr_init(&attr);
	if (lowest == MAP_FAILED || pthread_attr_setstack(&attr, lowest, ALL_STACKS) != 0 ||
	    pthread_create(&thread, &attr, work, NULL) != 0) {
		perror("driver: thread");
		return 1;
	}
	pthread_join(thread, NULL);
	return 1;
}
