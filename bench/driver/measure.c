/* Timing. Time stamps are the processor's, scaled to the monotonic clock. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <valgrind/callgrind.h>
#include <x86intrin.h>

#include "bench.h"

enum { BATCHES = 5, BATCH_NS = 20000, SETTLE_NS = 2000000 /* in which caches and memories have filled */ };
static double ns_per_tick;
static char *flush_area;
static size_t cache_bytes, flush_bytes;

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

/* The kernel's figure for the largest cache of the first processor; glibc's
 * sysconf has 0 under some hypervisors. The unit is K, or M. */
static size_t read_cache_bytes(void)
{
	size_t largest = 0;
	for (int i = 0; i < 8; i++) {
		char path[80], unit = 0;
		size_t n = 0;
		snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
		FILE *f = fopen(path, "r");
		if (!f)
			continue;
		if (fscanf(f, "%zu%c", &n, &unit) >= 1)
			n <<= unit == 'K' ? 10 : unit == 'M' ? 20 : 0;
		fclose(f);
		largest = n > largest ? n : largest;
	}
	return largest;
}

size_t bench_cache_bytes(void) { return cache_bytes; }
size_t bench_flush_bytes(void) { return flush_bytes; }

void bench_measure_init(void)
{
	/* Twice the cache, since what replaces lines is not exactly least recent use. */
	enum { LEAST_FLUSH = 48 << 20 }; /* where the kernel says nothing of caches */
	cache_bytes = read_cache_bytes();
	flush_bytes = 2 * cache_bytes > LEAST_FLUSH ? 2 * cache_bytes : LEAST_FLUSH;
	double a = clock_ns(), b;
	uint64_t t = now();
	while ((b = clock_ns()) - a < 2e7)
		;
	ns_per_tick = (b - a) / (double)(now() - t);
	flush_area = malloc(flush_bytes);
	if (!flush_area) {
		fprintf(stderr, "driver: no memory to flush the caches with\n");
		exit(1);
	}
	memset(flush_area, 1, flush_bytes);
}

/* flush writes to every line of more memory than the caches hold. */
static void flush(void)
{
	for (size_t i = 0; i < flush_bytes; i += 64)
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
	uint64_t begin;
	double one = INFINITY, spent = 0;
	once(j); /* which may fill the contender's own tables: not counted */
	do {
		begin = now();
		once(j);
		double last = (double)(now() - begin) * ns_per_tick;
		spent += last;
		one = last < one ? last : one; /* the last may have been interrupted */
	} while (spent < SETTLE_NS / 20);
	int reps = one < BATCH_NS ? (int)(BATCH_NS / (one + 1)) + 1 : 1;
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

/* settle walks the stacks in turn for a while, and returns the least that one pass takes, in ns. */
static double settle(struct job *j, const struct set *set, uint64_t *frames)
{
	double one = INFINITY, spent = 0;
	pass(j, set); /* as in hot */
	do {
		uint64_t begin = now();
		*frames = pass(j, set);
		double last = (double)(now() - begin) * ns_per_tick;
		spent += last;
		one = last < one ? last : one;
	} while (spent < SETTLE_NS);
	return one;
}

static void turn(struct job *j, const struct set *set, struct measure *m)
{
	double t[BATCHES];
	uint64_t begin;
	double one = settle(j, set, &m->frames);
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
	uint64_t frames;
	if (is_cold)
		settle(&j, set, &frames); /* what is found once and kept is found */
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
