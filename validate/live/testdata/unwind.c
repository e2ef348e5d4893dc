#define _GNU_SOURCE
#define UNW_LOCAL_ONLY
#include <dlfcn.h>
#include <libunwind.h>
#include <stdlib.h>
#include <string.h>
#include <unwind.h>

#include "stacks.h"

const int saved[NUM_SAVED] = {EH_ELF_RBX, EH_ELF_RBP, EH_ELF_R12, EH_ELF_R13, EH_ELF_R14, EH_ELF_R15};

/* Places in gregset_t of the registers by DWARF number. */
static const int greg[EH_ELF_NUM_REGS] = {
    REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP, REG_R8,
    REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP,
};

/* regs_of_context gives the registers of a frame that a signal interrupted. */
void regs_of_context(const ucontext_t *uc, eh_elf_regs_t *regs)
{
    memset(regs, 0, sizeof *regs);
    for (int i = 0; i < EH_ELF_NUM_REGS; i++)
        regs->reg[i] = (uint64_t)uc->uc_mcontext.gregs[greg[i]];
    regs->valid = (1u << EH_ELF_NUM_REGS) - 1;
    regs->exact = 1;
}

/* take_eh_elf takes a stack one step at a time. */
void take_eh_elf(const eh_elf_regs_t *start, enum memory_kind kind, struct stack *out)
{
    eh_elf_memory_t mem;
    make_memory(kind, start->reg[EH_ELF_RSP], &mem);
    eh_elf_regs_t regs = *start;
    out->len = 0;
    for (;;) {
        out->frame[out->len++] = regs;
        uint64_t pc = regs.reg[EH_ELF_RIP] - !regs.exact;
        const struct object *o = object_of(pc);
        if (!o || !o->walk) {
            out->end = EH_ELF_NO_INFO;
            return;
        }
        o->walk(&regs, &mem, o->bias, NULL, 1);
        out->end = regs.status;
        if (regs.status != EH_ELF_OK || out->len == MAX_FRAMES)
            return;
    }
}

/*
 * walk_eh_elf takes a stack object after object: out holds the frame that each
 * walk stopped at and the last, pcs those of all callers (they are as many as
 * out->len says).
 */
void walk_eh_elf(const eh_elf_regs_t *start, enum memory_kind kind, bool want_pcs, struct stack *out, uint64_t *pcs)
{
    eh_elf_memory_t mem;
    make_memory(kind, start->reg[EH_ELF_RSP], &mem);
    eh_elf_regs_t regs = *start;
    out->len = 0;
    for (;;) {
        const struct object *o = object_of(regs.reg[EH_ELF_RIP] - !regs.exact);
        size_t n = 0;
        if (!o || !o->walk)
            regs.status = EH_ELF_NO_INFO;
        else
            n = o->walk(&regs, &mem, o->bias, want_pcs ? pcs + out->len : NULL, (size_t)(MAX_FRAMES - 1 - out->len));
        out->len += (int)n;
        if (n > 0 && !want_pcs)
            pcs[out->len - 1] = regs.reg[EH_ELF_RIP];
        if (n == 0 || regs.status != EH_ELF_NO_INFO || out->len == MAX_FRAMES - 1)
            break;
    }
    out->end = regs.status;
    out->frame[0] = regs;
}

/*
 * take_libunwind takes the stack with unw_step. Its cache of rules is not used:
 * the cache is by pc alone, whether that was executing or is a return address.
 */
void take_libunwind(const eh_elf_regs_t *start, struct stack *out)
{
    static bool ready;
    if (!ready) {
        unw_set_caching_policy(unw_local_addr_space, UNW_CACHE_NONE);
        ready = true;
    }
    static unw_context_t context;
    memset(&context, 0, sizeof context);
    for (int i = 0; i < EH_ELF_NUM_REGS; i++)
        if (start->valid & 1u << i)
            context.uc_mcontext.gregs[greg[i]] = (greg_t)start->reg[i];
    static unw_cursor_t cursor;
    int ret = start->exact ? unw_init_local2(&cursor, &context, UNW_INIT_SIGNAL_FRAME) : unw_init_local(&cursor,
        &context);
    out->len = 0;
    bool exact = start->exact;
    while (ret >= 0 && out->len < MAX_FRAMES) {
        eh_elf_regs_t *f = &out->frame[out->len];
        memset(f, 0, sizeof *f);
        f->exact = exact;
        for (int i = 0; i < EH_ELF_NUM_REGS; i++) {
            unw_word_t word;
            if (unw_get_reg(&cursor, i, &word) == 0) {
                f->reg[i] = word;
                f->valid |= 1u << i;
            }
        }
        if (f->reg[EH_ELF_RIP] == 0)
            break;
        out->len++;
        ret = unw_step(&cursor);
        if (ret == 0)
            break;
        exact = unw_is_signal_frame(&cursor) > 0; /* whether the step left one */
    }
    out->end = ret < 0 ? ret : 0;
}

/* libgcc's unwinder by address: libunwind exports functions of the same names. */
static struct {
    __typeof__(_Unwind_Backtrace) *backtrace;
    __typeof__(_Unwind_GetIPInfo) *ip;
    __typeof__(_Unwind_GetCFA) *cfa;
    __typeof__(_Unwind_GetGR) *reg;
} libgcc;

static void find_libgcc(void)
{
    void *handle = dlopen("libgcc_s.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!handle)
        abort(); /* the program is linked with it */
    *(void **)&libgcc.backtrace = dlsym(handle, "_Unwind_Backtrace");
    *(void **)&libgcc.ip = dlsym(handle, "_Unwind_GetIPInfo");
    *(void **)&libgcc.cfa = dlsym(handle, "_Unwind_GetCFA");
    *(void **)&libgcc.reg = dlsym(handle, "_Unwind_GetGR");
}

/* What the callback of libgcc's unwinder fills. */
struct backtrace {
    const eh_elf_regs_t *start;
    struct stack *out;
};

static _Unwind_Reason_Code traced(struct _Unwind_Context *context, void *arg)
{
    struct backtrace *b = arg;
    int exact = 0;
    uint64_t pc = libgcc.ip(context, &exact), rsp = libgcc.cfa(context);
    if (pc == 0 || b->out->len == MAX_FRAMES)
        return _URC_END_OF_STACK;
    if (b->out->len == 0) {
        if (rsp != b->start->reg[EH_ELF_RSP] || exact != b->start->exact || (exact && pc != b->start->reg[EH_ELF_RIP]))
            return _URC_NO_REASON; /* still in the frames of the test itself */
        if (!exact) { /* the frame is at another call of its function */
            b->out->frame[b->out->len++] = *b->start;
            return _URC_NO_REASON;
        }
    }
    eh_elf_regs_t *f = &b->out->frame[b->out->len++];
    memset(f, 0, sizeof *f);
    f->reg[EH_ELF_RIP] = pc;
    f->reg[EH_ELF_RSP] = rsp;
    f->exact = (uint16_t)exact;
    for (int i = 0; i < NUM_SAVED; i++)
        f->reg[saved[i]] = libgcc.reg(context, saved[i]);
    f->valid = SAVED_BITS | 1u << EH_ELF_RIP | 1u << EH_ELF_RSP;
    return _URC_NO_REASON;
}

/*
 * take_libgcc takes the stack with _Unwind_Backtrace. That begins here; the frame
 * start must be among the callers, be it of a signal handler.
 */
bool take_libgcc(const eh_elf_regs_t *start, struct stack *out)
{
    struct backtrace b = {start, out};
    out->len = 0;
    out->end = 0;
    if (!libgcc.backtrace)
        find_libgcc();
    libgcc.backtrace(traced, &b);
    return out->len > 0;
}
