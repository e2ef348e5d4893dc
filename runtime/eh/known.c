/* What is known of return addresses, learnt from eh_elfs. */
#include <dlfcn.h>
#include <link.h>

#include "eh.h"

_Alignas(128) struct ehx_known ehx_known_[KNOWN_SLOTS]; /* an address has two slots, side by side */
uint64_t ehx_slot_mask_ = KNOWN_FEW - 1;

__thread uint32_t ehx_seed_;

/* ------------------------------------------------------------------------------- learning a step */

/* learn_step notes the step to the caller if it is plain. Otherwise the base stays BASE_WALK: the eh_elf
 * takes it each time. */
static void learn_step(struct ehx_what *is, const struct ehu_object *o, uint64_t pc, bool exact)
{
    struct ehu_plain p;
    if (!ehu_plain_step_(o, pc, exact, &p))
        return;
    is->step.base = p.base;
    is->step.cfa = p.cfa;
    is->step.rbp = p.rbp;
    is->step.rbx = p.rbx;
    memcpy(is->step.others, p.others, sizeof is->step.others);
}

/* ------------------------------------------------------------------------------- other steps */

/* ehx_walk_ may read all of user space (47 bits) but its first page: these are frames of the running thread,
 * which the throw is about to enter, so their words can be read. */
int ehx_walk_(struct ehx_frame *f, bool *exact)
{
    static const eh_elf_memory_t all = {.lo = 4096, .size = ((uint64_t)1 << 47) - 8192, .bytes = (const void *)4096};
    eh_elf_regs_t r = {.valid = FRAME_MASK, .exact = *exact};
    int status = EHU_NO_OBJECT;
    r.reg[EH_ELF_RSP] = f->rsp;
    r.reg[EH_ELF_RBP] = f->rbp;
    r.reg[EH_ELF_RBX] = f->rbx;
    r.reg[EH_ELF_R12] = f->r12;
    r.reg[EH_ELF_R13] = f->r13;
    r.reg[EH_ELF_R14] = f->r14;
    r.reg[EH_ELF_R15] = f->r15;
    r.reg[EH_ELF_RIP] = f->pc;
    struct ehu_reading reading = ehu_enter_(0);
    const struct ehu_object *o = reading.table ? ehu_find_(reading.table, f->pc - !*exact) : NULL;
    if (o && o->walk)
        status = o->walk(&r, &all, o->bias, NULL, 1) == 1 ? EH_ELF_OK : r.status;
    ehu_leave_(reading);
    if (status != EH_ELF_OK)
        return status;
    if ((r.valid & FRAME_MASK) != FRAME_MASK)
        return EH_ELF_BAD_REGISTER;
    *f = (struct ehx_frame){.rsp = r.reg[EH_ELF_RSP], .rbp = r.reg[EH_ELF_RBP], .pc = r.reg[EH_ELF_RIP],
                            .rbx = r.reg[EH_ELF_RBX], .r12 = r.reg[EH_ELF_R12], .r13 = r.reg[EH_ELF_R13],
                            .r14 = r.reg[EH_ELF_R14], .r15 = r.reg[EH_ELF_R15]};
    *exact = r.exact != 0;
    return EH_ELF_OK;
}

/* ------------------------------------------------------------------------------- learning */

/* has_table reports whether the object has PT_GNU_EH_FRAME, by which libgcc finds its rows. Without it, a
 * frame ends libgcc's throw (unless rows were registered), so the throw is libgcc's. */
static bool has_table(uint64_t pc)
{
    struct dl_find_object found;
    return _dl_find_object((void *)(uintptr_t)pc, &found) == 0 && found.dlfo_eh_frame;
}

/* write_known stores what was learnt. A slot that another thread is writing stays as it is: the frame is
 * learnt again. */
static void write_known(struct ehx_known *k, const struct ehx_what *is, uint64_t key, uint64_t loads)
{
    uint64_t pc = key / 2, turn;
    struct ehx_known new = {.key = key, .loads = loads, .pad = is->pad,
        .personality = (uint64_t)(uintptr_t)is->personality};
    if ((is->function && pc - is->function >= UINT32_MAX) ||
        (is->lsda && (uint64_t)(int64_t)(int32_t)(is->lsda - pc) != is->lsda - pc))
        return; /* no object is that large */
    memcpy(&new.step, &is->step, sizeof new.step);
    memcpy(&new.others, is->step.others, sizeof new.others);
    new.function = is->function ? (uint32_t)(pc - is->function) + 1 : 0;
    new.lsda = is->lsda ? (int32_t)(is->lsda - pc) : 0;
    if (!ehx_begin_writing_(&k->turn, &turn))
        return;
    ehx_copy_to_(&k->key, &new.key, sizeof new - offsetof(struct ehx_known, key));
    ehx_end_writing_(&k->turn, turn);
}

/* in_use reports whether a slot holds an address that is still valid. */
static bool in_use(const struct ehx_known *k, uint64_t loads)
{
    return EHX_GET(k->key) != 0 && EHX_GET(k->loads) == loads;
}

/*
 * note stores what was learnt in one of the address's two slots: an empty or outdated one, else the one that the
 * address chooses. If both are in use while few slots are (KNOWN_FEW), all slots are used from then on, and entries are
 * learnt again.
 */
static void note(const struct ehx_what *is, uint64_t key, uint64_t loads)
{
    struct ehx_known *k = &ehx_known_[ehx_slot_(key)], *other = &ehx_known_[ehx_slot_(key) ^ 1];
    if (in_use(k, loads) && in_use(other, loads) && EHX_GET(ehx_slot_mask_) != KNOWN_SLOTS - 1) {
        __atomic_store_n(&ehx_slot_mask_, KNOWN_SLOTS - 1, __ATOMIC_RELAXED);
        k = &ehx_known_[ehx_slot_(key)];
        other = &ehx_known_[ehx_slot_(key) ^ 1];
    }
    if (in_use(k, loads) && (!in_use(other, loads) || (key >> 5) % 2))
        k = other;
    write_known(k, is, key, loads);
}

/* ehx_learn_ asks the eh_elf of a pc's object for its row and its site, some hundred nanoseconds; the
 * results are noted. Without an eh_elf, a row or a site table, the frame is to be handed over. */
__attribute__((noinline, cold)) void ehx_learn_(struct ehx_what *is, uint64_t pc, bool exact, uint64_t loads)
{
    memset(is, 0, sizeof *is);
    is->step.kind = KIND_HAND_OVER;
    is->step.base = BASE_WALK;
    struct ehu_reading reading = ehu_enter_(0);
    const struct ehu_object *o = reading.table ? ehu_find_(reading.table, pc - !exact) : NULL;
    if (o && o->walk && o->exceptions) {
        ehx_site_(reading.table, o, pc - !exact, is);
        int status = ehu_row_(o, pc, exact);
        if (status == EH_ELF_NO_INFO || status == EH_ELF_NOT_COMPILED || !has_table(pc - !exact))
            is->step.kind = KIND_HAND_OVER;
        else
            learn_step(is, o, pc, exact);
    }
    ehu_leave_(reading);
    ehx_count_(COUNT_LEARNED);
    if (o) /* code made at run time may be registered at any time */
        note(is, pc * 2 + exact, loads);
}

/* ehx_look_again_ looks in the slots of the address, and stores the place in the callee's
   slot the first time. */
__attribute__((noinline)) void ehx_look_again_(struct ehx_seen *s, uint64_t pc, bool exact, uint64_t loads)
{
    struct ehx_known *callee = s->slot;
    uint64_t key = pc * 2 + exact;
    size_t i = ehx_slot_(key);
    if (!ehx_in_slot_(s, &ehx_known_[i], key, loads) && !ehx_in_slot_(s, &ehx_known_[i ^ 1], key, loads)) {
        struct ehx_what is;
        ehx_learn_(&is, pc, exact, loads);
        s->step = is.step;
        s->pad = is.pad;
        s->slot = NULL;
        return;
    }
    if (!callee)
        return;
    int which = EHX_GET(callee->next[0]) == 0 ? 0 : 1;
    if (EHX_GET(callee->next[which]) == 0 || ehx_seldom_())
        __atomic_store_n(&callee->next[which], (uint16_t)(s->slot - ehx_known_), __ATOMIC_RELAXED);
}

/* all_in copies all that a slot knows, if it is the key's and still valid. */
static bool all_in(struct ehx_what *is, const struct ehx_known *k, uint64_t key, uint64_t loads)
{
    struct ehx_known copy;
    uint64_t turn = ehx_begin_reading_(&k->turn), pc = key / 2;
    ehx_copy_from_(&copy.key, &k->key, sizeof copy - offsetof(struct ehx_known, key));
    if (!ehx_unchanged_(&k->turn, turn) || copy.key != key || copy.loads != loads)
        return false;
    memcpy(&is->step, &copy.step, sizeof copy.step);
    memcpy(is->step.others, &copy.others, sizeof copy.others);
    is->pad = copy.pad;
    is->function = copy.function ? pc - (copy.function - 1) : 0;
    is->lsda = copy.lsda ? pc + (uint64_t)(int64_t)copy.lsda : 0;
    is->personality = (ehx_personality *)(uintptr_t)copy.personality;
    return true;
}

void ehx_describe_(struct ehx_what *is, uint64_t pc, bool exact, uint64_t loads)
{
    uint64_t key = pc * 2 + exact;
    size_t i = ehx_slot_(key);
    if (!all_in(is, &ehx_known_[i], key, loads) && !all_in(is, &ehx_known_[i ^ 1], key, loads))
        ehx_learn_(is, pc, exact, loads);
}
