/* libunwind over stored stacks, used as perf uses it: one address space with the
 * global cache per process, accessors that find the table of an object in its
 * .eh_frame_hdr, and the search that the library exports for such tables.
 *
 * With NO_SIGPROCMASK the two system calls around each step do nothing. */
#define _GNU_SOURCE
#include "flat.h"

#include <elf.h>
#include <libunwind.h>
#include <stdlib.h>
#include <string.h>

#ifdef NO_SIGPROCMASK
#include <signal.h>
/* The program comes first in the search for symbols. */
int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	(void)how, (void)set, (void)old;
	return 0;
}
#endif

/* Exported for perf and debuggers; no public header has it. */
#define search_table UNW_OBJ(dwarf_search_unwind_table)
int search_table(unw_addr_space_t, unw_word_t ip, unw_dyn_info_t *, unw_proc_info_t *, int need_info, void *arg);

/* What .eh_frame_hdr says; all are link-time addresses. */
struct table {
	uint64_t bias_of; /* file offset less address, of the segment with the header */
	uint64_t header;  /* address of .eh_frame_hdr */
	uint64_t sorted;  /* address of its sorted table */
	uint64_t fdes;
};

static unw_addr_space_t *spaces;

/* Reads a value of a DW_EH_PE encoding: those that linkers write there. */
static int read_encoded(const unsigned char **p, unsigned encoding)
{
	switch (encoding & 0x0f) {
	case 0x03: case 0x0b: { /* udata4, sdata4 */
		int32_t v;
		memcpy(&v, *p, sizeof v);
		*p += sizeof v;
		return v;
	}
	default:
		return -1;
	}
}

/* The table of an object, or null if it has none. */
static const struct table *table_of(struct object *o)
{
	static struct table none;
	if (o->own || !o->data)
		return o->own == &none ? NULL : o->own;
	o->own = &none;
	const Elf64_Ehdr *eh = (const Elf64_Ehdr *)o->data;
	const Elf64_Phdr *ph = (const Elf64_Phdr *)(o->data + eh->e_phoff);
	for (int i = 0; i < eh->e_phnum; i++) {
		const unsigned char *p = o->data + ph[i].p_offset;
		/* version 1; the sorted table of pairs of sdata4 relative to the header */
		if (ph[i].p_type != PT_GNU_EH_FRAME || p[0] != 1 || p[3] != 0x3b)
			continue;
		struct table *t = calloc(1, sizeof *t);
		const unsigned char *q = p + 4;
		read_encoded(&q, p[1]);
		t->fdes = (uint64_t)read_encoded(&q, p[2]);
		t->header = ph[i].p_vaddr;
		t->sorted = ph[i].p_vaddr + (uint64_t)(q - p);
		t->bias_of = ph[i].p_offset - ph[i].p_vaddr;
		o->own = t;
	}
	return table_of(o);
}

static int find_proc_info(unw_addr_space_t as, unw_word_t ip, unw_proc_info_t *pi, int need_info, void *arg)
{
	const struct sample *s = arg;
	const struct mapping *m = find_mapping(s->maps, ip);
	const struct table *t = m ? table_of(m->object) : NULL;
	if (!t)
		return -UNW_ENOINFO;
	uint64_t base = m->start - m->offset + t->bias_of;
	unw_dyn_info_t di = {
		.format = UNW_INFO_FORMAT_REMOTE_TABLE,
		.start_ip = m->start,
		.end_ip = m->end,
		.u.rti.segbase = base + t->header,
		.u.rti.table_data = base + t->sorted,
		.u.rti.table_len = t->fdes * 2 * sizeof(int32_t) / sizeof(unw_word_t),
	};
	return search_table(as, ip, &di, pi, need_info, arg);
}

static void put_unwind_info(unw_addr_space_t as, unw_proc_info_t *pi, void *arg)
{
	(void)as, (void)pi, (void)arg;
}

static int get_dyn_info_list(unw_addr_space_t as, unw_word_t *list, void *arg)
{
	(void)as, (void)list, (void)arg;
	return -UNW_ENOINFO;
}

static int access_mem(unw_addr_space_t as, unw_word_t addr, unw_word_t *word, int write, void *arg)
{
	(void)as;
	return write || read_word(arg, addr, word) != 0 ? -UNW_EINVAL : 0;
}

static int access_reg(unw_addr_space_t as, unw_regnum_t reg, unw_word_t *word, int write, void *arg)
{
	(void)as;
	if (write || reg < 0 || reg >= FLAT_REGS)
		return -UNW_EBADREG;
	*word = ((const struct sample *)arg)->regs[reg];
	return 0;
}

static int access_fpreg(unw_addr_space_t as, unw_regnum_t reg, unw_fpreg_t *value, int write, void *arg)
{
	(void)as, (void)reg, (void)value, (void)write, (void)arg;
	return -UNW_EINVAL;
}

static int resume(unw_addr_space_t as, unw_cursor_t *cursor, void *arg)
{
	(void)as, (void)cursor, (void)arg;
	return -UNW_EINVAL;
}

static int get_proc_name(unw_addr_space_t as, unw_word_t ip, char *buf, size_t size, unw_word_t *offset, void *arg)
{
	(void)as, (void)ip, (void)buf, (void)size, (void)offset, (void)arg;
	return -UNW_EINVAL;
}

void contender_open(size_t n)
{
	static unw_accessors_t accessors = {
		.find_proc_info = find_proc_info,
		.put_unwind_info = put_unwind_info,
		.get_dyn_info_list_addr = get_dyn_info_list,
		.access_mem = access_mem,
		.access_reg = access_reg,
		.access_fpreg = access_fpreg,
		.resume = resume,
		.get_proc_name = get_proc_name,
	};
	spaces = calloc(n, sizeof *spaces);
	for (size_t i = 0; i < n; i++) {
		spaces[i] = unw_create_addr_space(&accessors, 0);
		unw_set_caching_policy(spaces[i], UNW_CACHE_GLOBAL);
	}
}

size_t contender_unwind(struct sample *s, uint64_t pcs[MAX_FRAMES])
{
	unw_cursor_t cursor;
	size_t n = 0;
	pcs[n++] = s->regs[FLAT_RIP];
	if (unw_init_remote(&cursor, spaces[s->space], s) != 0)
		return n;
	while (n < MAX_FRAMES && unw_step(&cursor) > 0) {
		unw_word_t ip;
		unw_get_reg(&cursor, UNW_REG_IP, &ip);
		unw_is_signal_frame(&cursor); /* perf asks, to take one off return addresses */
		pcs[n++] = ip;
	}
	return n;
}
