/* The functions that personality routines call on a context: this library's, or those of
   libgcc, also of a static one. Those of entry.S jump here. */
#include "eh.h"

static inline bool ours(const struct ehx_context *c) { return likely(c->magic == EHX_MAGIC); }

uint64_t ehx_get_ip_(struct ehx_context *c) { return ours(c) ? c->frame->pc : libgcc__Unwind_GetIP(c); }

uint64_t ehx_get_ip_info_(struct ehx_context *c, int *before)
{
    if (!ours(c))
        return libgcc__Unwind_GetIPInfo(c, before);
    *before = c->exact;
    return c->frame->pc;
}

void ehx_set_ip_(struct ehx_context *c, uint64_t pc)
{
    if (ours(c))
        c->frame->pc = pc;
    else
        libgcc__Unwind_SetIP(c, pc);
}

uint64_t ehx_get_cfa_(struct ehx_context *c) { return ours(c) ? c->frame->rsp : libgcc__Unwind_GetCFA(c); }

/* A register that functions may change is known only if a routine has set it; reading another one gives what
 * was last written to any. The word is per thread, since threads throw at the same time. */
static uint64_t *place(struct ehx_context *c, int reg)
{
    static __thread uint64_t none __attribute__((tls_model("initial-exec")));
    switch (reg) {
    case EH_ELF_RAX: return &c->rax;
    case EH_ELF_RDX: return &c->rdx;
    case EH_ELF_RBX: return &c->frame->rbx;
    case EH_ELF_RBP: return &c->frame->rbp;
    case EH_ELF_RSP: return &c->frame->rsp;
    case EH_ELF_R12: return &c->frame->r12;
    case EH_ELF_R13: return &c->frame->r13;
    case EH_ELF_R14: return &c->frame->r14;
    case EH_ELF_R15: return &c->frame->r15;
    default: return &none;
    }
}

uint64_t ehx_get_gr_(struct ehx_context *c, int reg)
{
    if (ours(c))
        return *place(c, reg);
    ehx_learn_sizes_();
    return libgcc__Unwind_GetGR(c, reg);
}

void ehx_set_gr_(struct ehx_context *c, int reg, uint64_t value)
{
    if (ours(c)) {
        *place(c, reg) = value;
    } else {
        ehx_learn_sizes_();
        libgcc__Unwind_SetGR(c, reg, value);
    }
}

/* filled completes a context that was made for a stop function, which rarely asks for more than the pc. */
static inline struct ehx_context *filled(struct ehx_context *c)
{
    if (unlikely(!c->filled))
        ehx_fill_(c);
    return c;
}

uint64_t ehx_get_lsda_(struct ehx_context *c)
{
    return ours(c) ? filled(c)->lsda : libgcc__Unwind_GetLanguageSpecificData(c);
}

uint64_t ehx_get_start_(struct ehx_context *c)
{
    return ours(c) ? filled(c)->function : libgcc__Unwind_GetRegionStart(c);
}

/* On x86-64 nothing is relative to these. */
uint64_t ehx_get_text_(struct ehx_context *c) { return ours(c) ? 0 : libgcc__Unwind_GetTextRelBase(c); }
uint64_t ehx_get_data_(struct ehx_context *c) { return ours(c) ? 0 : libgcc__Unwind_GetDataRelBase(c); }

/* As libgcc's. The reason says that a catch clause of another language has ended. */
__attribute__((visibility("default"))) void _Unwind_DeleteException(struct ehx_exception *e)
{
    enum { FOREIGN_EXCEPTION_CAUGHT = 1 };
    if (e->cleanup)
        e->cleanup(FOREIGN_EXCEPTION_CAUGHT, e);
}
