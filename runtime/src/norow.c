/*
 * Steps from code without a row: by its instructions if they are known, otherwise by
 * frame pointer, which is a guess.
 *
 * Known are procedure linkage tables, for which lld and mold write no rows, nor does GNU ld
 * with --no-ld-generated-unwind-info, and the code that a signal handler returns to, which
 * has rows in glibc but none in Go and musl. Both are a few instructions that are always
 * the same.
 */
#include <string.h>

#include "internal.h"

/* ------------------------------------------------------------------------- instructions */

enum { WORD = 8, CODE_WORDS = 6, CODE = CODE_WORDS * WORD };

/*
 * read_code reads the code around pc, from at least 8 bytes before it to at least 32 after, and
 * returns the place of pc in code, or null if the instruction at pc is none of those below. It
 * reads through the kernel, which reports an error where a load would crash: for execute-only
 * memory, or an object that is gone. Words that cannot be read are zeros. They are aligned, so
 * that none is in two pages: the memory before a table may not be mapped.
 */
static const uint8_t *read_code(uint64_t pc, uint8_t code[CODE])
{
    uint64_t from = pc - pc % WORD - WORD, word;
    const uint8_t *p = code + (pc - from);
    memset(code, 0, CODE);
    if (ehu_probe_word_(NULL, from + WORD, &word) != 0)
        return NULL;
    memcpy(code + WORD, &word, WORD);
    switch (*p) {
    case 0xf3: case 0xf2: case 0xe9: case 0xff: case 0x68: case 0x41: /* of a table */
    case 0x48: case 0xb8: case 0x0f: break;                           /* of a signal's return */
    default: return NULL;
    }
    for (size_t i = 0; i < CODE; i += WORD)
        if (i != WORD && ehu_probe_word_(NULL, from + i, &word) == 0)
            memcpy(code + i, &word, WORD);
    return p;
}

#define IS(p, insns) (memcmp(p, insns, sizeof(insns) - 1) == 0)

/* How instructions begin, and how long they are (L_). */
#define ENDBR64 "\xf3\x0f\x1e\xfa"
#define BND 0xf2                 /* prefix of a jump */
#define JMP "\xe9"               /* jmp rel32 */
#define JMP_MEMORY "\xff\x25"    /* jmp *disp32(%rip) */
#define PUSH_MEMORY "\xff\x35"   /* push disp32(%rip) */
#define PUSH_NUMBER "\x68"       /* push $imm32 */
#define PUSH_R11 "\x41\x53"
#define NUMBER_TO_R11 "\x41\xbb" /* mov $imm32,%r11d */
#define NOP2 "\x66\x90"
#define MOV_15_RAX "\x48\xc7\xc0\x0f\x00\x00\x00"
#define MOV_15_EAX "\xb8\x0f\x00\x00\x00"
#define SYSCALL "\x0f\x05"
enum { L_ENDBR64 = 4, L_JMP = 5, L_MEMORY = 6, L_PUSH_NUMBER = 5, L_PUSH_R11 = 2, L_NUMBER_TO_R11 = 6 };

/* ------------------------------------------------------------- procedure linkage tables */

static const uint8_t *without_bnd(const uint8_t *p) { return *p == BND ? p + 1 : p; }

static bool is_jmp_memory(const uint8_t *p) { return IS(without_bnd(p), JMP_MEMORY); }

/* is_jmp_to_first reports whether the instruction at p, whose address is pc, is a jump to
   a first entry. */
static bool is_jmp_to_first(const uint8_t *p, uint64_t pc)
{
    const uint8_t *jmp = without_bnd(p);
    int32_t distance;
    uint64_t first;
    if (!IS(jmp, JMP))
        return false;
    memcpy(&distance, jmp + 1, sizeof distance);
    first = pc + (uint64_t)(jmp - p) + L_JMP + (uint64_t)(int64_t)distance;
    return ehu_probe_word_(NULL, first, &first) == 0 && IS(&first, PUSH_MEMORY);
}

static bool is_first(const uint8_t *p) { return IS(p, PUSH_MEMORY) && is_jmp_memory(p + L_MEMORY); }

static bool is_push_number(const uint8_t *p, uint64_t pc)
{
    return IS(p, PUSH_NUMBER) && is_jmp_to_first(p + L_PUSH_NUMBER, pc + L_PUSH_NUMBER);
}

/* mold's entries have the number in r11, and the first one pushes that. */
static bool is_number_to_r11(const uint8_t *p) { return IS(p, NUMBER_TO_R11) && is_jmp_memory(p + L_NUMBER_TO_R11); }
static bool is_push_r11(const uint8_t *p) { return IS(p, PUSH_R11) && is_first(p + L_PUSH_R11); }

/*
 * plt_cfa returns CFA minus rsp in an entry of the tables of ld, lld and mold (x86-64 psABI 5.2,
 * 13.2), or 0 if pc is in none. Sections are not known here, so an instruction counts only with
 * its neighbours in a table around it.
 */
static uint64_t plt_cfa(const uint8_t *p, uint64_t pc)
{
    if (is_jmp_memory(p)) {
        const uint8_t *next = without_bnd(p) + L_MEMORY;
        if (IS(p - L_MEMORY, PUSH_MEMORY))
            return 24;
        bool entry = IS(p - L_ENDBR64, ENDBR64) || IS(p - L_NUMBER_TO_R11, NUMBER_TO_R11) || IS(next, NOP2) ||
                     (*p == BND && *next == 0x90) ||
                     (IS(next, PUSH_NUMBER) && IS(without_bnd(next + L_PUSH_NUMBER), JMP));
        return entry ? 8 : 0;
    }
    if (is_first(p))
        return 16;
    if (IS(p - L_PUSH_NUMBER, PUSH_NUMBER) && is_jmp_to_first(p, pc))
        return 16;
    if (IS(p, ENDBR64)) {
        p += L_ENDBR64;
        pc += L_ENDBR64;
        if (is_jmp_memory(p))
            return 8;
    }
    return is_push_number(p, pc) || is_number_to_r11(p) || is_push_r11(p) ? 8 : 0;
}


static bool in_window(const eh_elf_memory_t *m, uint64_t addr, uint64_t size)
{
    return addr >= m->lo && addr - m->lo < m->size && size <= m->size - (addr - m->lo);
}

/*
 * leave_plt takes the step from a table. Nothing in a table calls, so only a signal can
 * have interrupted it. It is not a guess: the instructions determine the step.
 */
static size_t leave_plt(struct ehu_walk *c, const uint8_t *p)
{
    eh_elf_regs_t *r = &c->regs;
    uint64_t cfa = plt_cfa(p, r->reg[EH_ELF_RIP]), slot = r->reg[EH_ELF_RSP] + cfa - WORD, pc;
    if (cfa == 0)
        return 0;
    if (in_window(&c->memory, slot, WORD)) {
        memcpy(&pc, (const void *)(uintptr_t)slot, WORD);
    } else if (ehu_probe_word_(NULL, slot, &pc) != 0) {
        r->status = EH_ELF_UNREADABLE;
        return 0;
    }
    r->reg[EH_ELF_RIP] = pc;
    r->reg[EH_ELF_RSP] = slot + WORD;
    r->valid &= ~(uint32_t)CALLER_SAVED;
    r->exact = 0;
    return 1;
}

/* ---------------------------------------------------------------------- signals' returns */

/* Places in gregset_t of the registers by DWARF number. */
static const uint8_t place[EH_ELF_NUM_REGS] = {
    REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP, REG_R8,
    REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP,
};

/* ehu_regs_of_ fills *regs with the interrupted frame of a context. */
void ehu_regs_of_(eh_elf_regs_t *regs, const ucontext_t *context)
{
    for (int i = 0; i < EH_ELF_NUM_REGS; i++)
        regs->reg[i] = (uint64_t)context->uc_mcontext.gregs[place[i]];
    regs->valid = (1u << EH_ELF_NUM_REGS) - 1;
    regs->exact = 1;
    regs->status = EH_ELF_OK;
}

/* is_sigreturn reports whether p is in the instructions that call rt_sigreturn (system
   call 15) after a handler. */
static bool is_sigreturn(const uint8_t *p)
{
    return IS(p, MOV_15_RAX SYSCALL) || IS(p, MOV_15_EAX SYSCALL) ||
           (IS(p, SYSCALL) && (IS(p - sizeof MOV_15_RAX + 1, MOV_15_RAX) || IS(p - sizeof MOV_15_EAX + 1, MOV_15_EAX)));
}

/* leave_handler takes the step to the interrupted frame: the kernel has put its context
   at rsp. */
static size_t leave_handler(struct ehu_walk *c, const uint8_t *p)
{
    uint64_t rsp = c->regs.reg[EH_ELF_RSP];
    if (!is_sigreturn(p))
        return 0;
    if (rsp % WORD != 0 || !in_window(&c->memory, rsp, offsetof(ucontext_t, uc_mcontext.fpregs))) {
        c->regs.status = EH_ELF_UNREADABLE;
        return 0;
    }
    ehu_regs_of_(&c->regs, (const ucontext_t *)(uintptr_t)rsp);
    return 1;
}

/* ------------------------------------------------------------------------------- guesses */

/*
 * guess takes a step by frame pointer. The two words must look like a frame: above
 * rsp, in the window, with a return address into known code.
 */
static size_t guess(struct ehu_walk *c, const struct ehu_table *t)
{
    eh_elf_regs_t *r = &c->regs;
    uint64_t rbp = r->reg[EH_ELF_RBP], frame[2];
    if (c->flags & EHU_ONLY_TABLES || !(r->valid & 1u << EH_ELF_RBP) || rbp < r->reg[EH_ELF_RSP] || rbp % 8 != 0 ||
        !in_window(&c->memory, rbp, sizeof frame))
        return 0;
    memcpy(frame, (const void *)(uintptr_t)rbp, sizeof frame);
    if (!ehu_is_code_(c, t, frame[1] - 1))
        return 0;
    r->reg[EH_ELF_RBP] = frame[0];
    r->reg[EH_ELF_RSP] = rbp + sizeof frame;
    r->reg[EH_ELF_RIP] = frame[1];
    r->valid = 1 << EH_ELF_RBP | 1 << EH_ELF_RSP | 1 << EH_ELF_RIP;
    r->exact = 0;
    c->flags |= EHU_GUESSED;
    ehu_count_(COUNT_GUESSED);
    return 1;
}

/*
 * ehu_without_row_ takes a step from code in o that has no row; o is null if the code is in no
 * object. It returns 1; or it returns 0, leaves the registers unchanged, and sets the status
 * to the reason.
 */
size_t ehu_without_row_(struct ehu_walk *c, const struct ehu_table *t, const struct ehu_object *o, uint64_t *pc)
{
    eh_elf_regs_t *r = &c->regs;
    uint8_t code[CODE];
    uint64_t rsp = r->reg[EH_ELF_RSP];
    size_t k = 0;
    if (!(in_window(&c->memory, rsp, 1) || ehu_window_(rsp, &c->memory, &c->flags))) {
        if (o && o->walk)
            r->status = EH_ELF_UNREADABLE;
        return 0;
    }
    /* Do not ask the kernel for each frame of an object without an eh_elf, nor about code
       made at run time. */
    bool loaded = (uintptr_t)o - (uintptr_t)t->object < t->n * sizeof *o, eh_elf = o && o->eh_elf;
    const uint8_t *p = loaded && !eh_elf && (r->exact || o->walk) ? read_code(r->reg[EH_ELF_RIP], code) : NULL;
    if (eh_elf)
        k = ehu_own_row_(c, o, loaded);
    else if (p && r->exact)
        k = leave_plt(c, p);
    if (p && k == 0 && r->status == EH_ELF_NO_INFO)
        k = leave_handler(c, p);
    if (k == 0 && r->status == EH_ELF_NO_INFO && !eh_elf)
        k = guess(c, t);
    if (k == 0)
        return 0;
    r->status = EH_ELF_OK;
    if (pc)
        *pc = r->reg[EH_ELF_RIP];
    return 1;
}
