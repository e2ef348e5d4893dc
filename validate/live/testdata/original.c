/*
 * A client that knows nothing but the original interface: a struct given and
 * returned by value, a function found with dlsym, and a callback that reads words.
 * It declares both itself, as such clients do.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "original.h"
#include "stacks.h"

struct context {
    uint8_t flags;
    uintptr_t rip, rsp, rbp, rbx;
};
typedef uintptr_t (*deref_t)(uintptr_t);
typedef struct context (*step_t)(struct context, uintptr_t, deref_t);
typedef struct context (*direct_t)(struct context, uintptr_t);

enum { RIP = 1 << 0, RSP = 1 << 1, RBP = 1 << 2, RBX = 1 << 3, ERROR = 1 << 7 };

static long words;

static uintptr_t deref(uintptr_t addr)
{
    words++;
    if (!readable(addr)) {
        fail("_eh_elf reads %#lx", (unsigned long)addr);
        return 0;
    }
    return *(const uintptr_t *)addr;
}

enum way { CALLBACK, NULL_CALLBACK, DIRECT };

static struct context one_step(struct context c, const struct object *o, enum way way)
{
    const uintptr_t pc = c.rip - o->bias - 1; /* a return address */
    c.flags = 0;
    if (way == DIRECT)
        return ((direct_t)(uintptr_t)o->step)(c, pc);
    return ((step_t)(uintptr_t)o->step)(c, pc, way == CALLBACK ? deref : NULL);
}

static struct stack full, unwound;

/* A register that was lost is lost until it has another value: "same value" of a
 * lost one says nothing. */
static bool still_lost(bool lost, bool known, uintptr_t before, uintptr_t now)
{
    return !known || (lost && before == now);
}

/* take walks from start and compares with the full interface and with libunwind. */
static void take(const eh_elf_regs_t *start, enum way way)
{
    struct context c = {0, start->reg[EH_ELF_RIP], start->reg[EH_ELF_RSP], start->reg[EH_ELF_RBP],
        start->reg[EH_ELF_RBX]};
    bool rbp_lost = false, rbx_lost = false;
    int i = 0;
    for (;; i++) {
        const eh_elf_regs_t *want = &full.frame[i];
        if (i >= full.len || c.rip != want->reg[EH_ELF_RIP] || c.rsp != want->reg[EH_ELF_RSP] ||
            (!rbp_lost && c.rbp != want->reg[EH_ELF_RBP]) || (!rbx_lost && c.rbx != want->reg[EH_ELF_RBX])) {
            fail("_eh_elf, way %d, frame %d of %d: rip %#lx rsp %#lx rbp %#lx rbx %#lx", way, i, full.len,
                 (unsigned long)c.rip, (unsigned long)c.rsp, (unsigned long)c.rbp, (unsigned long)c.rbx);
            return;
        }
        if (i < unwound.len) {
            if (c.rip != unwound.frame[i].reg[EH_ELF_RIP] || c.rsp != unwound.frame[i].reg[EH_ELF_RSP])
                fail("_eh_elf, way %d, frame %d: libunwind has another", way, i);
            count("original-frames-as-libunwind", 1);
        }
        const struct object *o = object_of(c.rip - 1);
        if (!o || !o->step)
            break;
        const struct context next = one_step(c, o, way);
        if (next.flags & ERROR) {
            fail("_eh_elf, way %d, frame %d: error", way, i);
            return;
        }
        if (!(next.flags & RIP))
            break; /* the end of the stack */
        if (!(next.flags & RSP))
            fail("_eh_elf, way %d, frame %d: no rsp", way, i);
        rbp_lost = still_lost(rbp_lost, next.flags & RBP, c.rbp, next.rbp);
        rbx_lost = still_lost(rbx_lost, next.flags & RBX, c.rbx, next.rbx);
        c = next;
    }
    if (i + 1 != full.len)
        fail("_eh_elf, way %d: %d frames of %d", way, i + 1, full.len);
    count("original-frames", i + 1);
    count("original-rbx-lost", rbx_lost);
    count("original-rbp-lost", rbp_lost);
}

static bool direct_only;

__attribute__((noinline)) static void here(void)
{
    eh_elf_regs_t start;
    capture(&start);
    check_stack(&start, NULL, true);
    take_eh_elf(&start, MEM_WINDOW, &full);
    take_libunwind(&start, &unwound);
    if (direct_only) {
        take(&start, DIRECT);
        return;
    }
    take(&start, CALLBACK);
    take(&start, NULL_CALLBACK);
}

/* original walks all call chains; direct says that the eh_elfs were built without
 * the deref argument. */
void original(bool direct)
{
    scenario(direct ? "original-no-deref" : "original");
    direct_only = direct;
    at_bottom = here;
    for (int depth = 0; depth <= 100; depth++)
        chain(depth);
    count("original-words", words);
}
