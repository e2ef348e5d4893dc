/*
 * The walks. Nothing here or in its callees takes a lock, allocates, or calls a
 * function of the C library except memcpy and wrappers of system calls.
 */
#include <string.h>
#include <sys/ucontext.h>

#include "internal.h"

/*
 * Frames taken by one call of an eh_elf. A stack that was overwritten to lead in
 * circles is noticed only after a call: by the CFA, which must have risen, and
 * because the next call does not read below the frame that this one reached.
 */
enum { RUN = 64 };

static uint64_t pc_of(const eh_elf_regs_t *r) { return r->reg[EH_ELF_RIP] - !r->exact; }

static bool in_window(const eh_elf_memory_t *m, uint64_t rsp) { return rsp - m->lo < m->size; }

/* raise_floor ends the window's readable part below the frame. */
static void raise_floor(struct ehu_walk *c)
{
    eh_elf_memory_t *m = &c->memory;
    uint64_t lo = c->regs.reg[EH_ELF_RSP] - RED_ZONE;
    if (!in_window(m, lo))
        return;
    m->size -= lo - m->lo;
    m->lo = lo;
    m->bytes = (const void *)(uintptr_t)lo;
}

/*
 * rose reports whether the CFA rose, from rsp on, as k steps raise it. Each step
 * passes a return address, except the first from an interrupted frame (exact): vfork
 * keeps its own in a register.
 */
static bool rose(uint64_t from, uint64_t exact, const eh_elf_regs_t *after, size_t k)
{
    uint64_t to = after->reg[EH_ELF_RSP];
    return to >= from && to - from >= 8 * (k - exact);
}

/*
 * lawful reports whether a step from *before is possible on a real stack. The CFA rises,
 * except after a signal frame, whose handler may have had its own stack. A stack can lead in
 * circles only through signal frames, so few of them may lead down, and none to itself. That
 * bounds a walk by the size of the stacks that it meets.
 */
static bool lawful(struct ehu_walk *c, const eh_elf_regs_t *before)
{
    /* Handlers on their own stacks nest once or twice; sixteen is beyond any real stack. */
    enum { MOST = 16, ONE = 1 << EHU_DESCENTS_SHIFT };
    const eh_elf_regs_t *after = &c->regs;
    if (rose(before->reg[EH_ELF_RSP], before->exact, after, 1))
        return !after->exact || !before->exact || after->reg[EH_ELF_RSP] != before->reg[EH_ELF_RSP] ||
               after->reg[EH_ELF_RIP] != before->reg[EH_ELF_RIP];
    c->flags += ONE;
    return after->exact && c->flags < MOST * ONE;
}

/* undo restores a cursor whose CFA did not rise. */
static size_t undo(struct ehu_walk *c, const eh_elf_regs_t *before)
{
    c->regs = *before;
    c->regs.status = EHU_NOT_RISING;
    return 0;
}

/* one_step takes a step from the registers *before, which are the cursor's, and undoes it
   if it is not lawful. */
static size_t one_step(struct ehu_walk *c, const struct ehu_object *o, uint64_t *pc, const eh_elf_regs_t *before)
{
    size_t k = o->walk(&c->regs, &c->memory, o->bias, pc, 1);
    return k == 1 && !lawful(c, before) ? undo(c, before) : k;
}

/* without_row does the same if there is no row; see ehu_without_row_. */
static size_t without_row(struct ehu_walk *c, const struct ehu_table *t, const struct ehu_object *o, uint64_t *pc)
{
    eh_elf_regs_t before = c->regs;
    size_t k = ehu_without_row_(c, t, o, pc);
    return k == 1 && !lawful(c, &before) ? undo(c, &before) : k;
}

/*
 * beyond_window takes a step for which the window is too small: the frame is on another
 * stack, the stack may be longer than its known part, or an expression reads other memory.
 */
static size_t beyond_window(struct ehu_walk *c, const struct ehu_object *o, uint64_t *pcs)
{
    uint64_t end = c->memory.lo + c->memory.size, rsp = c->regs.reg[EH_ELF_RSP];
    bool outside = !in_window(&c->memory, rsp);
    eh_elf_regs_t before = c->regs;
    if (outside || c->flags & EHU_OTHER_STACK) {
        bool known = ehu_window_(rsp, &c->memory, &c->flags);
        if (outside && !known)
            return 0;
        if (outside || (known && c->memory.lo + c->memory.size > end)) {
            size_t k = one_step(c, o, pcs, &before);
            if (k == 1 || c->regs.status != EH_ELF_UNREADABLE)
                return k;
        }
    }
    c->memory.read = ehu_probe_word_;
    size_t k = one_step(c, o, pcs, &before);
    c->memory.read = NULL;
    return k;
}

/*
 * steps takes up to max steps from an object; the status is the last step's. If the
 * CFA did not rise over them, the registers are lost and the status is EHU_NOT_RISING:
 * the stack is corrupt, or a signal frame is among them.
 */
static inline size_t steps(struct ehu_walk *c, const struct ehu_table *t, const struct ehu_object *o, uint64_t *pcs,
    size_t max)
{
    uint64_t rsp = c->regs.reg[EH_ELF_RSP], exact = c->regs.exact;
    if (max > RUN)
        max = RUN;
    size_t k = o->chain ? ehu_chain_(&c->regs, &c->memory, o, pcs, max, t) : o->walk(&c->regs, &c->memory, o->bias, pcs,
        max);
    if (k == 0)
        return c->regs.status == EH_ELF_UNREADABLE ? beyond_window(c, o, pcs) : 0;
    if (rose(rsp, exact, &c->regs, k))
        return k;
    c->regs.status = EHU_NOT_RISING;
    return 0;
}

/*
 * object_at finds the object that holds pc, or the code in no object, which it describes
 * in *code. It is null if pc leads to no code that is known.
 */
static inline const struct ehu_object *object_at(struct ehu_walk *c, const struct ehu_table *t, uint64_t pc,
    struct ehu_object *code)
{
    const struct ehu_object *o = ehu_object_of_(t, pc);
    return o ? o : ehu_code_at_(c, t, pc, code);
}

/*
 * keep saves the registers that no table can recover in a caller. They are known
 * in an interrupted frame, and lost with the first step from it.
 */
static void keep(struct ehu_walk *c)
{
    uint32_t known = c->regs.valid & CALLER_SAVED;
    if (known == 0)
        return;
    for (int i = 0; i < EH_ELF_RIP; i++)
        if (known & 1u << i)
            c->kept[i] = c->regs.reg[i];
    c->kept_valid |= known;
}

/*
 * guess_registers takes a step that needs an unknown register, on the assumption that
 * the functions called from here left it alone. Assembly does that: it has helpers
 * with private conventions, and may have its CFA in rax across a call of one.
 */
static size_t guess_registers(struct ehu_walk *c, const struct ehu_table *t, const struct ehu_object *o)
{
    eh_elf_regs_t before = c->regs;
    uint32_t guessed = c->flags & EHU_ONLY_TABLES ? 0 : c->kept_valid & ~c->regs.valid;
    for (int i = 0; i < EH_ELF_RIP; i++)
        if (guessed & 1u << i)
            c->regs.reg[i] = c->kept[i];
    c->regs.valid |= guessed;
    if (guessed != 0 && one_step(c, o, NULL, &before) == 1 && ehu_is_code_(c, t, pc_of(&c->regs))) {
        c->flags |= EHU_GUESSED;
        ehu_count_(COUNT_GUESSED);
        return 1;
    }
    c->regs = before;
    c->regs.status = EH_ELF_BAD_REGISTER;
    return 0;
}

void ehu_count_end_(int status)
{
    switch (status) {
    case EH_ELF_OK: ehu_count_(COUNT_FULL); break;
    case EH_ELF_NO_INFO: ehu_count_(COUNT_NO_INFO); break;
    case EH_ELF_UNREADABLE: ehu_count_(COUNT_UNREADABLE); break;
    case EH_ELF_BAD_REGISTER: ehu_count_(COUNT_BAD_REGISTER); break;
    case EH_ELF_NOT_COMPILED: ehu_count_(COUNT_NOT_COMPILED); break;
    case EHU_NO_OBJECT: ehu_count_(COUNT_NO_OBJECT); break;
    case EHU_NOT_RISING: ehu_count_(COUNT_NOT_RISING); break;
    case EHU_TOO_DEEP: ehu_count_(COUNT_TOO_DEEP); break;
    default: break; /* a walk should end at the outermost frame */
    }
}

static bool is_context_start(const struct ehu_walk *c)
{
    return c->regs.reg[EH_ELF_RIP] == ehu_context_start_ && !c->regs.exact;
}

/*
 * ehu_run_one_ takes a step. It returns 1; or it returns 0, leaves the registers
 * unchanged, and sets the status to the reason.
 */
size_t ehu_run_one_(struct ehu_walk *c, const struct ehu_table *t)
{
    struct ehu_object code;
    if (is_context_start(c)) {
        c->flags |= EHU_NOT_BY_TABLE;
        c->regs.status = EH_ELF_OUTERMOST;
        return 0;
    }
    const struct ehu_object *o = object_at(c, t, pc_of(&c->regs), &code);
    eh_elf_regs_t before = c->regs;
    size_t k = 0;
    keep(c);
    c->regs.status = EH_ELF_NO_INFO;
    if (o && o->walk) {
        k = one_step(c, o, NULL, &before);
        if (k == 0 && c->regs.status == EH_ELF_UNREADABLE)
            k = beyond_window(c, o, NULL);
    }
    if (k == 0 && c->regs.status == EH_ELF_NO_INFO)
        k = without_row(c, t, o, NULL);
    if (k == 0 && c->regs.status == EH_ELF_BAD_REGISTER)
        k = guess_registers(c, t, o);
    if (k == 1 && !ehu_is_code_(c, t, pc_of(&c->regs))) {
        int status = c->regs.reg[EH_ELF_RIP] == 0 ? EH_ELF_OUTERMOST : EHU_NO_OBJECT;
        c->flags |= status == EH_ELF_OUTERMOST ? EHU_NOT_BY_TABLE : 0;
        c->regs = before;
        c->regs.status = (int16_t)status;
        return 0;
    }
    if (k == 1)
        c->regs.status = EH_ELF_OK;
    return k;
}

/* astray ends a walk whose last step led to no code, which is not counted. */
__attribute__((noinline)) static size_t astray(struct ehu_walk *c, const uint64_t *pcs, size_t n)
{
    /* libc's eh_elf does not stop at the start of a context that began in libc */
    bool outermost = c->regs.reg[EH_ELF_RIP] == 0 || (n > 1 && pcs[n - 2] == ehu_context_start_);
    c->flags |= outermost ? EHU_NOT_BY_TABLE : 0;
    c->regs.status = outermost ? EH_ELF_OUTERMOST : EHU_NO_OBJECT;
    return n - 1;
}

/*
 * go_on goes on after n steps and takes up to max in all, as many as possible with each call of an eh_elf. The
 * status is the reason why it stopped, or 0 if it took all. A call of it would take 25 instructions of each walk.
 */
__attribute__((always_inline)) static inline size_t go_on(struct ehu_walk *c, const struct ehu_table *t, uint64_t *pcs,
    size_t n, size_t max)
{
    struct ehu_object code;
    const struct ehu_object *o = object_at(c, t, pc_of(&c->regs), &code);
    if (!o && n > 0)
        return astray(c, pcs, n);
    while (n < max) {
        if (is_context_start(c)) {
            c->flags |= EHU_NOT_BY_TABLE;
            c->regs.status = EH_ELF_OUTERMOST;
            return n;
        }
        size_t k = 0;
        c->regs.status = EH_ELF_NO_INFO;
        if (o && o->walk)
            k = steps(c, t, o, pcs + n, max - n);
        if (k == 0 && c->regs.status == EH_ELF_NO_INFO)
            k = without_row(c, t, o, pcs + n);
        if (k == 0)
            return n;
        n += k;
        if (c->regs.status == EH_ELF_OUTERMOST) /* by a row of an object */
            return n;
        o = object_at(c, t, pc_of(&c->regs), &code);
        if (!o)
            return astray(c, pcs, n);
        raise_floor(c);
    }
    c->regs.status = EH_ELF_OK;
    return n;
}

static size_t run(struct ehu_walk *c, const struct ehu_table *t, uint64_t *pcs, size_t max)
{
    return go_on(c, t, pcs, 0, max);
}

/* copy copies registers, a caller's in the words in which save.h has just written them: a load across two stores waits for both. */
static inline void copy(eh_elf_regs_t *to, const eh_elf_regs_t *from)
{
    if (from->valid & CALLER_SAVED) {
        *to = *from;
        return;
    }
    to->reg[EH_ELF_RBX] = from->reg[EH_ELF_RBX];
    to->reg[EH_ELF_RBP] = from->reg[EH_ELF_RBP];
    to->reg[EH_ELF_RSP] = from->reg[EH_ELF_RSP];
    for (int i = EH_ELF_R12; i <= EH_ELF_RIP; i++)
        to->reg[i] = from->reg[i];
    to->valid = from->valid;
    to->exact = from->exact;
    to->status = from->status;
}

/* begin resets the walk except for its registers. */
static inline void begin(struct ehu_walk *c, uint32_t flags)
{
    uint64_t rsp = c->regs.reg[EH_ELF_RSP];
    memset(&c->memory, 0, sizeof c->memory);
    c->depth = 0;
    c->flags = flags;
    c->kept_valid = 0;
    memset(c->code, 0, sizeof c->code);
    /* of the unknown stack of a caller, the rest of the page below rsp */
    if (!ehu_window_(rsp, &c->memory, &c->flags) && !c->regs.exact)
        c->memory = (eh_elf_memory_t){.bytes = (const void *)(uintptr_t)rsp, .lo = rsp, .size = -rsp % PAGE};
}

/* by_steps walks again from the start, with the checks and records of single steps. */
static size_t by_steps(struct ehu_walk *c, const struct ehu_table *t, uint64_t *pcs, size_t max)
{
    size_t n = 0;
    while (n < max && ehu_run_one_(c, t) == 1)
        pcs[n++] = c->regs.reg[EH_ELF_RIP];
    return n;
}

/* A way to take up to max steps: run or by_steps. */
typedef size_t walk_fn(struct ehu_walk *c, const struct ehu_table *t, uint64_t *pcs, size_t max);

/* on goes on with a walk of n steps to its end, without an array for the pcs. It returns the number of all steps. */
__attribute__((noinline)) static size_t on(walk_fn *how, struct ehu_walk *c, const struct ehu_table *t, size_t n)
{
    uint64_t part[RUN];
    while (c->regs.status == EH_ELF_OK && n < EHU_MAX_DEPTH)
        n += how(c, t, part, RUN);
    return n;
}

/* again takes a walk from *start by single steps. */
__attribute__((noinline)) static size_t again(struct ehu_walk *c, const struct ehu_table *t, const eh_elf_regs_t *start,
    uint64_t *pcs, size_t max, bool to_end)
{
    c->regs = *start;
    begin(c, c->flags & EHU_ONLY_TABLES);
    size_t k = by_steps(c, t, pcs, max);
    return to_end ? on(by_steps, c, t, k) : k;
}

/* walk takes a walk from *start, and with to_end goes on to the end, without the pcs. It returns how many steps. */
__attribute__((always_inline)) static inline size_t walk(struct ehu_walk *c, struct ehu_way way,
    const eh_elf_regs_t *start, uint32_t flags, uint64_t *pcs, uint64_t *full, bool to_end)
{
    size_t k = 0, max = (size_t)(full - pcs);
    if (way.m)
        k = ehu_recall_on_(way, start, &c->regs, pcs, full);
    else
        ehu_recall_none_();
    c->flags = flags;
    if (k > 0 && c->regs.status == EH_ELF_OUTERMOST)
        return k;
    struct ehu_reading reading = ehu_enter_(ONE_WALK);
    const struct ehu_table *t = reading.table;
    if (k == 0)
        copy(&c->regs, start);
    if (!t) {
        c->regs.status = EH_ELF_NO_INFO;
    } else {
        begin(c, flags);
        k = go_on(c, t, pcs, k, max);
        if (to_end)
            k = on(run, c, t, k);
        if (c->regs.status == EH_ELF_BAD_REGISTER || c->regs.status == EHU_NOT_RISING)
            k = again(c, t, start, pcs, max, to_end);
    }
    ehu_leave_(reading);
    if (c->regs.status != EH_ELF_OUTERMOST)
        ehu_count_end_(c->regs.status);
    return k;
}

size_t ehu_backtrace_on_(struct ehu_way way, uint64_t *pcs, uint64_t *full, const eh_elf_regs_t *regs,
    struct ehu_end *end)
{
    struct ehu_walk w;
    size_t k = walk(&w, way, regs, 0, pcs, full, false);
    if (end)
        *end = (struct ehu_end){w.regs.status, (w.flags & EHU_GUESSED) != 0};
    return k;
}

/*
 * Known instructions are as good as a row: libgcc and libunwind recognise signal frames by them, too, and libunwind
 * procedure linkage tables, at which libgcc ends.
 */
size_t ehu_try_on_(struct ehu_way way, const eh_elf_regs_t *regs, uint64_t *pcs, uint64_t *full, bool to_end,
    enum ehu_worth *worth, uint64_t *stopped)
{
    struct ehu_walk w, *c = &w;
    size_t k = walk(c, way, regs, EHU_ONLY_TABLES, pcs, full, to_end);
    int status = c->regs.status;
    uint64_t word;
    *stopped = pc_of(&c->regs);
    if (c->flags & EHU_NOT_BY_TABLE)
        *worth = EHU_PARTIAL;
    else if (status == EH_ELF_OUTERMOST || (status == EH_ELF_OK && !to_end))
        *worth = EHU_WHOLE;
    else if (!ehu_answers_())
        *worth = EHU_PARTIAL; /* no source says "unreadable" */
    else if (status == EH_ELF_UNREADABLE ||
        (status == EHU_NO_OBJECT && ehu_probe_word_(NULL, c->regs.reg[EH_ELF_RIP], &word) != 0))
        *worth = EHU_ASTRAY;
    else
        *worth = EHU_PARTIAL;
    return k;
}

/* For handlers: context is the third argument of an SA_SIGINFO handler. The first pc is the interrupted one
 * (ehunwind.h). */
size_t ehu_backtrace_from(const ucontext_t *context, void **pcs, size_t n)
{
    eh_elf_regs_t regs;
    ehu_regs_of_(&regs, context);
    return ehu_backtrace_end_(pcs, n, &regs, NULL);
}

/* start makes a cursor, of which only the registers are set, one that has not taken a step. */
static void start(ehu_cursor_t *c, uint32_t flags)
{
    begin(&c->walk, flags);
    c->at = c->end = c->next = 0;
    c->began = c->outermost = 0;
}

/* ehu_cursor_start_ begins at the registers that the caller has set in c->walk.regs. */
void ehu_cursor_start_(ehu_cursor_t *c)
{
    start(c, 0);
}

/* ehu_cursor_retry_ begins again at regs, by tables alone, and is not counted. */
void ehu_cursor_retry_(ehu_cursor_t *c, const eh_elf_regs_t *regs)
{
    c->walk.regs = *regs;
    start(c, EHU_ONLY_TABLES | EHU_COUNTED);
}

void ehu_cursor_init_from(ehu_cursor_t *c, const ucontext_t *context)
{
    ehu_regs_of_(&c->walk.regs, context);
    ehu_cursor_start_(c);
}
