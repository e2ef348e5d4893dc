/*
 * Code that is in no object: made at run time, or a second mapping of an object's file,
 * such as node makes of its builtins. Executable memory counts as code; a word that
 * points anywhere else is data.
 *
 * Such regions come and go without notice, so nothing is cached about them beyond a walk
 * (but see maps.c): the cursor has the two found last. A real return address on the stack
 * keeps its region mapped; a word that only looks like one may match a region that has
 * since gone.
 */
#include <string.h>

#include "internal.h"

/* ------------------------------------------------------- the files of objects, for their copies */

static bool note_file(const struct ehu_mapping *m, void *arg)
{
    struct ehu_table *t = arg;
    for (size_t i = 0; m->file && i < t->n; i++)
        if (t->object[i].low >= m->low && t->object[i].low < m->high)
            t->file[i] = (struct ehu_file){m->dev, m->ino, m->origin};
    return false;
}

/* ehu_note_files_ records which file is mapped at each range of the table. */
void ehu_note_files_(struct ehu_table *t) { ehu_mappings_(note_file, t); }

/* original finds the object that m is a second mapping of, and the distance from m's code
   to the object's. */
static bool original(const struct ehu_table *t, const struct ehu_mapping *m, uint64_t pc, uint64_t *shift)
{
    for (size_t i = 0; i < t->n; i++) {
        *shift = t->file[i].origin - m->origin;
        if (t->file[i].ino == m->ino && t->file[i].dev == m->dev && ehu_find_(t, pc + *shift) == &t->object[i])
            return true;
    }
    return false;
}

/* --------------------------------------------------------------------------------- walks */

/* A bit of ehu_walk.code.shift, whose rest is a multiple of the page size: the mapping is an eh_elf's, from shift on. */
enum { EH_ELF = 1 };

/* leads_back reports whether frame pointers lead to an object: if the kernel is not asked, code is told from data by that. */
static bool leads_back(const struct ehu_walk *c, const struct ehu_table *t)
{
    /* Frames in a row of code without tables. After more of them, code counts as data. */
    enum { MOST = 64 };
    const eh_elf_memory_t *m = &c->memory;
    uint64_t rbp = c->regs.reg[EH_ELF_RBP], frame[2];
    for (int i = 0; i < MOST && rbp % 8 == 0 && rbp - m->lo < m->size && m->size - (rbp - m->lo) >= sizeof frame; i++) {
        memcpy(frame, (const void *)(uintptr_t)rbp, sizeof frame);
        if (ehu_find_(t, frame[1] - 1))
            return true;
        if (frame[0] <= rbp)
            break;
        rbp = frame[0];
    }
    return false;
}

/* find asks the kernel, and puts the result first in the cursor. */
static bool find(struct ehu_walk *c, const struct ehu_table *t, uint64_t pc)
{
    struct ehu_mapping m = {.low = pc & ~(uint64_t)(PAGE - 1), .high = (pc & ~(uint64_t)(PAGE - 1)) + PAGE};
    uint64_t shift = 0, eh_elf;
    if (ehu_quiet_ ? !leads_back(c, t) : !ehu_executable_(t, pc, &m))
        return false;
    if (m.ino != 0 && (eh_elf = ehu_eh_elf_of_(&m, pc)) != 0)
        shift = eh_elf | EH_ELF;
    else if (m.file && !original(t, &m, pc, &shift))
        return false; /* a file of no known object may belong to one loaded since, which has tables */
    c->code[1] = c->code[0];
    c->code[0].low = m.low;
    c->code[0].size = m.high - m.low;
    c->code[0].shift = shift;
    return true;
}

static bool within(const struct ehu_walk *c, int i, uint64_t addr) { return addr - c->code[i].low < c->code[i].size; }

/*
 * ehu_code_at_ finds the code in no object that holds pc, and describes it in *code as if it
 * were an object. An executable stack does not count: it is full of pointers to itself.
 */
const struct ehu_object *ehu_code_at_(struct ehu_walk *c, const struct ehu_table *t, uint64_t pc,
    struct ehu_object *code)
{
    if (pc == (uint64_t)-1 || c->flags & EHU_ONLY_TABLES)
        return NULL;
    int i = within(c, 0, pc) ? 0 : 1;
    if (!within(c, i, pc)) {
        if (!find(c, t, pc))
            return NULL;
        i = 0;
    }
    if (within(c, i, c->regs.reg[EH_ELF_RSP] - (c->regs.exact ? 0 : 8))) /* where the return address was */
        return NULL;
    uint64_t shift = c->code[i].shift;
    if (shift & EH_ELF) {
        *code = (struct ehu_object){.low = c->code[i].low, .high = c->code[i].low + c->code[i].size,
            .bias = shift - EH_ELF, .eh_elf = true};
        return code;
    }
    const struct ehu_object *o = shift != 0 ? ehu_find_(t, pc + shift) : NULL;
    if (shift != 0 && !o)
        return NULL; /* in the mapping, but in none of the object's segments */
    if (o)
        *code = (struct ehu_object){.low = o->low - shift, .high = o->high - shift, .bias = o->bias - shift,
                                    .walk = o->walk, .chain = o->chain, .eh_elf = o->eh_elf};
    else
        *code = (struct ehu_object){.low = c->code[i].low, .high = c->code[i].low + c->code[i].size};
    return code;
}

bool ehu_is_code_(struct ehu_walk *c, const struct ehu_table *t, uint64_t pc)
{
    struct ehu_object code;
    return ehu_object_of_(t, pc) || ehu_code_at_(c, t, pc, &code);
}
