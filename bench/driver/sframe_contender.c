/* A walk over .sframe as it is stored, by libsframe of binutils, which a set of stacks
 * in objects with an SFrame section is measured with. The library is opened with
 * dlopen: its headers come with another package. Version 1 of the format (2.40). */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"

struct row { /* sframe_frame_row_entry of sframe-api.h */
	uint32_t start;
	unsigned char offsets[12], info;
};

enum { BASE_SP = 1 };

static struct {
	void *(*decode)(const char *, size_t, int *);
	int (*find)(void *, int32_t, struct row *);
	uint8_t (*base)(struct row *, int *);
	int32_t (*cfa)(void *, struct row *, int *), (*fp)(void *, struct row *, int *);
	int8_t (*ra)(void *); /* the one of the header: x86-64 has no other in version 1 */
} sframe;

static int open_library(void)
{
	const char *names[] = {"sframe_decode", "sframe_find_fre", "sframe_fre_get_base_reg_id", "sframe_fre_get_cfa_offset",
		"sframe_fre_get_fp_offset", "sframe_decoder_get_fixed_ra_offset"};
	void **into = (void **)&sframe, *h = dlopen("libsframe.so.0", RTLD_NOW | RTLD_LOCAL);
	for (size_t i = 0; h && i < sizeof names / sizeof *names; i++)
		if (!(into[i] = dlsym(h, names[i])))
			return 0;
	return h != NULL;
}

const char *bench_sframe_load(struct module *m, uint64_t addr, const char *path)
{
	int err = 0;
	FILE *f = fopen(path, "rb");
	if (!f || fseek(f, 0, SEEK_END) != 0)
		return "cannot read the section";
	size_t size = (size_t)ftell(f);
	char *b = malloc(size);
	rewind(f);
	if (!b || fread(b, 1, size, f) != size)
		return "cannot read the section";
	fclose(f);
	if (!sframe.ra && !open_library())
		return "no libsframe.so.0";
	m->sframe = sframe.decode(b, size, &err);
	m->sframe_at = m->bias + addr;
	return m->sframe ? NULL : "libsframe does not read the section";
}

static size_t walk(const struct stack *s, uint64_t *pcs, size_t max)
{
	uint64_t pc = s->regs.reg[DW_RIP], rsp = s->regs.reg[DW_RSP], rbp = s->regs.reg[DW_RBP];
	size_t n = 0;
	while (n < max) {
		const struct module *m = find_module(pc - 1);
		struct row r;
		int err = 0;
		if (!m || !m->sframe || sframe.find(m->sframe, (int32_t)(pc - 1 - m->sframe_at), &r) != 0)
			break;
		uint64_t base = sframe.base(&r, &err) == BASE_SP ? rsp : rbp;
		uint64_t cfa = base + (uint64_t)(int64_t)sframe.cfa(m->sframe, &r, &err);
		uint64_t ra = cfa + (uint64_t)(int64_t)sframe.ra(m->sframe);
		if (err || cfa <= rsp || cfa > s->hi || ra < rsp || ra > s->hi - 8)
			break;
		int32_t fp = sframe.fp(m->sframe, &r, &err);
		if (!err && cfa + (uint64_t)(int64_t)fp >= rsp && cfa + (uint64_t)(int64_t)fp <= s->hi - 8)
			rbp = *(const uint64_t *)(cfa + (uint64_t)(int64_t)fp);
		pcs[n++] = pc = *(const uint64_t *)ra;
		rsp = cfa;
	}
	return n;
}

struct contender bench_sframe[] = {{"libsframe", walk, 0}, {0, 0, 0}};
