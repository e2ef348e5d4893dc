/* The loaded objects, sorted by address. */
#define _GNU_SOURCE
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

struct module bench_modules[MAX_MODULES];
const struct module *bench_module_cache[MODULE_CACHE];

const struct module *bench_search_module(uint64_t pc, const struct module **slot)
{
	int lo = 0, hi = bench_module_count;
	while (lo < hi) {
		int mid = (lo + hi) / 2;
		if (bench_modules[mid].end <= pc)
			lo = mid + 1;
		else
			hi = mid;
	}
	const struct module *m = &bench_modules[lo];
	if (lo == bench_module_count || pc < m->start)
		return NULL;
	return *slot = m;
}
int bench_module_count;

static int add(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct module *m = &bench_modules[bench_module_count];
	uint64_t lo = UINT64_MAX, hi = 0;
	(void)size, (void)arg;
	if (bench_module_count == MAX_MODULES)
		return 1;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		if (p->p_type != PT_LOAD || !(p->p_flags & PF_X))
			continue;
		uint64_t at = info->dlpi_addr + p->p_vaddr;
		if (at < lo)
			lo = at;
		if (at + p->p_memsz > hi)
			hi = at + p->p_memsz;
	}
	if (!hi)
		return 0;
	memset(m, 0, sizeof *m);
	m->start = lo, m->end = hi, m->size = hi - lo, m->bias = info->dlpi_addr;
	m->path = strdup(bench_module_count == 0 && !*info->dlpi_name ? "/proc/self/exe" : info->dlpi_name);
	bench_module_count++;
	return 0;
}

static int by_start(const void *a, const void *b)
{
	const struct module *x = a, *y = b;
	return x->start < y->start ? -1 : x->start > y->start;
}

void bench_find_modules(void)
{
	static const struct module none;
	for (int i = 0; i < MODULE_CACHE; i++)
		bench_module_cache[i] = &none;
	bench_module_count = 0;
	dl_iterate_phdr(add, NULL);
	qsort(bench_modules, (size_t)bench_module_count, sizeof *bench_modules, by_start);
}
