/*
 * ehu_chain_ against calls of one eh_elf after the other, on stacks that lead to and fro
 * between this program and libc, as they are and with each return address replaced.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/internal.h"

enum { MAX = 64, WORDS = 1024 };

static long failures, walks, changes, ends[3];

struct walk {
    eh_elf_regs_t regs;
    uint64_t pcs[MAX];
    size_t n;
};

static const struct ehu_object *object_of(const struct ehu_table *t, const eh_elf_regs_t *r)
{
    return ehu_find_(t, r->reg[EH_ELF_RIP] - !r->exact);
}

static void one_by_one(const struct ehu_table *t, const eh_elf_memory_t *mem, size_t max, struct walk *w)
{
    const struct ehu_object *o = object_of(t, &w->regs);
    for (w->n = 0; w->n < max;) {
        size_t k = o->walk(&w->regs, mem, o->bias, w->pcs + w->n, max - w->n);
        w->n += k;
        const struct ehu_object *next = object_of(t, &w->regs);
        if (k == 0 || w->regs.status != EH_ELF_NO_INFO || !next || !next->walk || next == o ||
            w->regs.reg[EH_ELF_RIP] == ehu_context_start_)
            return;
        changes++;
        o = next;
    }
}

static void same(const struct walk *a, const struct walk *b, const char *what)
{
    bool ok = a->n == b->n && memcmp(a->pcs, b->pcs, a->n * sizeof *a->pcs) == 0 && a->regs.status == b->regs.status &&
              a->regs.valid == b->regs.valid && a->regs.exact == b->regs.exact;
    for (int i = 0; i < EH_ELF_NUM_REGS; i++)
        ok = ok && (!(a->regs.valid & 1u << i) || a->regs.reg[i] == b->regs.reg[i]);
    if (!ok && failures++ < 10)
        printf("FAIL %s: %zu steps to status %d, not %zu to %d\n", what, a->n, a->regs.status, b->n, b->regs.status);
}

static void compare(const struct ehu_table *t, const eh_elf_regs_t *from, const eh_elf_memory_t *mem, const char *what)
{
    for (size_t max = MAX; max > 0; max = max > 16 ? 16 : max - 1) {
        struct walk chain = {.regs = *from}, want = {.regs = *from};
        chain.n = ehu_chain_(&chain.regs, mem, object_of(t, from), chain.pcs, max, t);
        one_by_one(t, mem, max, &want);
        same(&chain, &want, what);
        walks++;
        ends[want.regs.status == EH_ELF_OK ? 0 : want.regs.status == EH_ELF_OUTERMOST ? 1 : 2]++;
    }
}

__attribute__((noinline)) static void look(void)
{
    static uint64_t copy[WORDS];
    ehu_cursor_t c;
    ehu_cursor_init(&c);
    const struct ehu_table *t = ehu_table_of_(atomic_load(&ehu_current_));
    uint64_t rsp = c.walk.regs.reg[EH_ELF_RSP];
    if (!ehu_window_(rsp, &c.walk.memory, &c.walk.flags) || !object_of(t, &c.walk.regs)->chain) {
        printf("FAIL no chain\n");
        failures++;
        return;
    }
    compare(t, &c.walk.regs, &c.walk.memory, "as it is");
    size_t size = c.walk.memory.size - (rsp - c.walk.memory.lo);
    if (size > sizeof copy)
        size = sizeof copy;
    memcpy(copy, (const void *)(uintptr_t)rsp, size);
    const eh_elf_memory_t mem = {rsp, size, copy, NULL, NULL};
    struct walk w = {.regs = c.walk.regs};
    one_by_one(t, &mem, MAX, &w);
    /* What a return address may be instead: nothing, in no object, the outermost one, or in another function. */
    const uint64_t others[] = {0, 0x1234, (uint64_t)-1, ehu_context_start_, (uint64_t)(uintptr_t)look + 1,
        (uint64_t)(uintptr_t)qsort + 1,
                               t->object[0].low + 1, t->object[t->n - 1].high};
    for (size_t i = 0, at = 0; i < w.n; i++, at++) {
        while (at < WORDS && copy[at] != w.pcs[i])
            at++;
        for (size_t j = 0; at < WORDS && j < sizeof others / sizeof *others; j++) {
            uint64_t was = copy[at];
            copy[at] = others[j];
            compare(t, &c.walk.regs, &mem, "with another return address");
            copy[at] = was;
        }
    }
}

static int depth;
static int by_qsort(const void *a, const void *b)
{
    int numbers[] = {1, 2};
    if (depth-- > 0)
        qsort(numbers, 2, sizeof *numbers, by_qsort);
    else if (depth == -1)
        look();
    return *(const int *)a - *(const int *)b;
}

int main(void)
{
    if (ehu_init() != 0)
        return 1;
    for (int d = 0; d < 8; d++) {
        int numbers[] = {1, 2};
        depth = d;
        qsort(numbers, 2, sizeof *numbers, by_qsort);
    }
    printf("walks=%ld full=%ld outermost=%ld others=%ld changes=%s failures=%ld\n", walks, ends[0], ends[1], ends[2],
           changes > 10 * 1000 ? "many" : "few", failures);
    return failures != 0;
}
