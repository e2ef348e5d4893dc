/* Timing. Time stamps are the processor's, scaled to the monotonic clock. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <valgrind/callgrind.h>
#include <x86intrin.h>

#include "bench.h"

enum { BATCHES = 5, FLUSH_BYTES = 48 << 20, BATCH_NS = 20000 };
static double ns_per_tick;
static char *flush_area;
static volatile uint64_t sink;

static inline uint64_t now(void)
{
	_mm_lfence();
	uint64_t t = __rdtsc();
	_mm_lfence();
	return t;
}

static double clock_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC_RAW, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

void bench_measure_init(void)
{
	double a = clock_ns(), b;
	uint64_t t = now();
	while ((b = clock_ns()) - a < 2e7)
		;
	ns_per_tick = (b - a) / (double)(now() - t);
	flush_area = malloc(FLUSH_BYTES);
	memset(flush_area, 1, FLUSH_BYTES);
}

/* flush writes to every line of more memory than the caches hold. */
static void flush(void)
{
	for (size_t i = 0; i < FLUSH_BYTES; i += 64)
		flush_area[i]++;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static double median(double *v, int n)
{
	qsort(v, (size_t)n, sizeof *v, ascending);
	return v[n / 2];
}

struct job {
	const struct contender *c;
	const struct stack *s;
	uint64_t pcs[MAX_FRAMES];
	size_t n;
	double ns;
};

static size_t once(void *arg)
{
	struct job *j = arg;
	return j->n = j->c->walk(j->s, j->pcs, MAX_FRAMES);
}

/* hot: the same stack again and again. */
static size_t hot(void *arg)
{
	struct job *j = arg;
	double t[BATCHES];
	once(j);
	uint64_t begin = now();
	once(j);
	double one = (double)(now() - begin) * ns_per_tick;
	int reps = one < BATCH_NS ? (int)(BATCH_NS / (one + 1)) + 1 : 1;
	for (int i = 0; i < reps / 2; i++)
		once(j);
	for (int b = 0; b < BATCHES; b++) {
		begin = now();
		for (int i = 0; i < reps; i++)
			once(j);
		t[b] = (double)(now() - begin) * ns_per_tick / reps;
	}
	j->ns = median(t, BATCHES);
	return 0;
}

/* cold: caches full of something else before each walk. */
static size_t cold(void *arg)
{
	struct job *j = arg;
	uint64_t begin = now();
	once(j);
	j->ns = (double)(now() - begin) * ns_per_tick;
	return 0;
}

/* pass walks each stack of the set once. */
static uint64_t pass(struct job *j, const struct set *set)
{
	uint64_t frames = 0;
	for (int i = 0; i < set->count; i++) {
		j->s = set->stack[i];
		bench_on(j->s, once, j);
		frames += j->n;
	}
	return frames;
}

static void turn(struct job *j, const struct set *set, struct measure *m)
{
	double t[BATCHES];
	pass(j, set);
	uint64_t begin = now();
	m->frames = pass(j, set);
	double one = (double)(now() - begin) * ns_per_tick;
	if (one > 2000 * BATCH_NS) { /* long enough */
		m->ns = one;
		return;
	}
	int reps = one < 10 * BATCH_NS ? (int)(10 * BATCH_NS / (one + 1)) + 1 : 1;
	for (int b = 0; b < BATCHES; b++) {
		begin = now();
		for (int i = 0; i < reps; i++)
			pass(j, set);
		t[b] = (double)(now() - begin) * ns_per_tick / reps;
	}
	m->ns = median(t, BATCHES);
}

int bench_measure(const struct contender *c, const struct set *set, const char *pattern, struct measure *m)
{
	struct job j = {.c = c};
	*m = (struct measure){0};
	if (strcmp(pattern, "turn") == 0) {
		turn(&j, set, m);
		return 1;
	}
	int is_cold = strcmp(pattern, "cold") == 0;
	if (!is_cold && strcmp(pattern, "hot") != 0)
		return 0;
	if (is_cold)
		pass(&j, set); /* what is found once and kept is found */
	for (int i = 0; i < set->count; i++) {
		j.s = set->stack[i];
		if (is_cold)
			flush();
		bench_on(j.s, is_cold ? cold : hot, &j);
		m->ns += j.ns;
		m->frames += j.n;
	}
	return 1;
}

void bench_count(const struct contender *c, const struct set *set, const char *label, struct measure *m)
{
	struct job j = {.c = c};
	*m = (struct measure){0};
	pass(&j, set);
	CALLGRIND_ZERO_STATS;
	CALLGRIND_TOGGLE_COLLECT;
	m->frames = pass(&j, set);
	CALLGRIND_TOGGLE_COLLECT;
	CALLGRIND_DUMP_STATS_AT(label);
}

/* Single steps at random pcs. The file holds records of three words: pc (a
 * link-time address, looked up as it is), rsp and rbp as offsets into a block
 * of readable memory. */
enum { RANDOM_MEMORY = 1 << 16 };
struct sample {
	uint64_t pc, rsp, rbp;
};

static uintptr_t read_word(uintptr_t addr) { return *(uintptr_t *)addr; }

int bench_random(const char *what, int variant, const struct module *m, const char *file, struct measure *out)
{
	static uint64_t memory[RANDOM_MEMORY / 8];
	FILE *f = fopen(file, "rb");
	if (!f)
		return 0;
	fseek(f, 0, SEEK_END);
	long size = ftell(f);
	rewind(f);
	struct sample *v = malloc((size_t)size);
	size_t count = fread(v, sizeof *v, (size_t)size / sizeof *v, f);
	fclose(f);
	int onetree = strcmp(what, "onetree") == 0, step = strcmp(what, "step") == 0, original = strcmp(what, "original") == 0;
	eh_elf_walk_t *walk = onetree ? m->onetree : m->walk[variant];
	eh_elf_step_t *fn = original ? m->original : m->step[variant];
	int nothing = strcmp(what, "nothing") == 0;
	if (!nothing && ((step || original) ? !fn : !walk)) {
		free(v);
		return 0;
	}
	uint64_t base = (uint64_t)memory;
	eh_elf_memory_t mem = {base, sizeof memory, memory, 0, 0};
	for (int round = 0; round < 2; round++) { /* the first warms what fits */
		uint64_t begin = now();
		for (size_t i = 0; i < count; i++) {
			if (step || original) {
				unwind_context_t c = {0, 0, v[i].rsp + base, v[i].rbp + base, 0};
				c = fn(c, v[i].pc, read_word);
				sink += c.flags;
			} else {
				eh_elf_regs_t r;
				uint64_t pcs[1];
				r.reg[DW_RBX] = r.reg[DW_R12] = r.reg[DW_R13] = r.reg[DW_R14] = r.reg[DW_R15] = 0;
				r.reg[DW_RSP] = v[i].rsp + base;
				r.reg[DW_RBP] = v[i].rbp + base;
				r.reg[DW_RIP] = v[i].pc + m->bias;
				r.valid = CALLEE_SAVED | 1 << DW_RSP | 1 << DW_RIP;
				r.exact = 1;
				if (!nothing)
					sink += walk(&r, &mem, m->bias, pcs, 1);
				else
					sink += ((volatile eh_elf_regs_t *)&r)->valid;
			}
		}
		out->ns = (double)(now() - begin) * ns_per_tick;
	}
	out->frames = count;
	free(v);
	return 1;
}
