/* What is known of return addresses, learnt from eh_elfs. */
#include <dlfcn.h>
#include <link.h>

#include "eh.h"

_Alignas(128) struct ehx_known ehx_known_[KNOWN_SLOTS]; /* an address has two slots, side by side */
uint64_t ehx_slot_mask_ = KNOWN_FEW - 1;

__thread uint32_t ehx_seed_;

/* ------------------------------------------------------------------------------- plain steps */

/*
 * To find out whether the step from a pc is a plain one, take it in a made-up frame whose memory is read through a
 * callback: each word encodes its address, and so shows where a register came from. Take it twice, with different
 * registers, to be certain.
 */
static const uint64_t word_mark[2] = {0x5a5a000000000000, 0x2b2b000000000000};

static int marked_word(void *arg, uint64_t address, uint64_t *word)
{
    *word = *(const uint64_t *)arg ^ address;
    return 0;
}

static const uint8_t regs_kept[] = {EH_ELF_RBP, EH_ELF_RBX, EH_ELF_R12, EH_ELF_R13, EH_ELF_R14, EH_ELF_R15};
enum {
    NUM_KEPT = sizeof regs_kept,
    KEPT_MASK = 1 << EH_ELF_RBP | 1 << EH_ELF_RBX | 1 << EH_ELF_R12 | 1 << EH_ELF_R13 | 1 << EH_ELF_R14 | 1 << EH_ELF_R15,
    FRAME_MASK = KEPT_MASK | 1 << EH_ELF_RSP | 1 << EH_ELF_RIP
};

struct plain {
    int32_t cfa;
    uint8_t base, at[NUM_KEPT];
};

/* try_step reports whether the step from made-up frame i is a plain one. */
static bool try_step(const struct ehu_object *o, uint64_t pc, bool exact, int i, struct plain *p)
{
    eh_elf_regs_t r = {.valid = FRAME_MASK, .exact = exact};
    uint64_t mark = word_mark[i], rsp = i ? 0x7600000000 : 0x1200000000, rbp = i ? 0x340000000000 : 0x2100000000000;
    for (int k = 0; k < NUM_KEPT; k++)
        r.reg[regs_kept[k]] = 0x1111000000000001 * (uint64_t)(k + 2 + i);
    r.reg[EH_ELF_RSP] = rsp;
    r.reg[EH_ELF_RBP] = rbp;
    r.reg[EH_ELF_RIP] = pc;
    eh_elf_regs_t before = r;
    eh_elf_memory_t m = {.read = marked_word, .arg = &mark};
    if (o->walk(&r, &m, o->bias, NULL, 1) != 1 || r.exact || (r.valid & FRAME_MASK) != FRAME_MASK)
        return false;
    uint64_t cfa = r.reg[EH_ELF_RSP];
    int64_t by_rsp = (int64_t)(cfa - rsp), by_rbp = (int64_t)(cfa - rbp);
    if (by_rsp > 0 && by_rsp < 1 << 30)
        *p = (struct plain){.base = BASE_RSP, .cfa = (int32_t)by_rsp};
    else if (by_rbp > -(1 << 30) && by_rbp < 1 << 30)
        *p = (struct plain){.base = BASE_RBP, .cfa = (int32_t)by_rbp};
    else
        return false;
    if (r.reg[EH_ELF_RIP] != (mark ^ (cfa - 8)))
        return false;
    for (int k = 0; k < NUM_KEPT; k++) {
        uint64_t now = r.reg[regs_kept[k]], below = cfa - (now ^ mark);
        if (now == before.reg[regs_kept[k]])
            continue;
        if (below % 8 != 0 || below / 8 < 2 || below / 8 > 255)
            return false;
        p->at[k] = (uint8_t)(below / 8);
    }
    return true;
}

static void learn_step(struct ehx_what *is, const struct ehu_object *o, uint64_t pc, bool exact)
{
    struct plain p = {0}, again = {0};
    if (!try_step(o, pc, exact, 0, &p) || !try_step(o, pc, exact, 1, &again) || memcmp(&p, &again, sizeof p) != 0)
        return;
    is->step.base = p.base;
    is->step.cfa = p.cfa;
    is->step.rbp = p.at[0];
    is->step.rbx = p.at[1];
    memcpy(is->step.others, p.at + 2, sizeof is->step.others);
}

/* ------------------------------------------------------------------------------- other steps */

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

/* row_at returns EH_ELF_OK, or why there is no step from the pc: without a row an exception
   finds the end of the stack. */
static int row_at(const struct ehu_object *o, uint64_t pc, bool exact)
{
    uint64_t mark = word_mark[0];
    eh_elf_regs_t r = {.valid = FRAME_MASK, .exact = exact};
    eh_elf_memory_t m = {.read = marked_word, .arg = &mark};
    r.reg[EH_ELF_RIP] = pc;
    return o->walk(&r, &m, o->bias, NULL, 1) == 1 ? EH_ELF_OK : r.status;
}

/* has_table reports whether libgcc finds the object's rows: by PT_GNU_EH_FRAME, or because they are registered. */
static bool has_table(uint64_t pc)
{
    struct dl_find_object found;
    return _dl_find_object((void *)(uintptr_t)pc, &found) == 0 && found.dlfo_eh_frame;
}

static void write_known(struct ehx_known *k, const struct ehx_what *is, uint64_t key, uint64_t loads)
{
    uint64_t pc = key / 2, turn;
    struct ehx_known new = {.key = key, .loads = loads, .pad = is->pad, .personality = (uint64_t)(uintptr_t)is->personality};
    if ((is->function && pc - is->function >= UINT32_MAX) || (is->lsda && (uint64_t)(int64_t)(int32_t)(is->lsda - pc) != is->lsda - pc))
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

static bool in_use(const struct ehx_known *k, uint64_t loads) { return EHX_GET(k->key) != 0 && EHX_GET(k->loads) == loads; }

/*
 * note stores what was learnt in one of the address's two slots: an empty or outdated one, else the one that the address
 * chooses. If both are in use while few slots are (KNOWN_FEW), all slots are used from then on, and entries are learnt again.
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

__attribute__((noinline, cold)) void ehx_learn_(struct ehx_what *is, uint64_t pc, bool exact, uint64_t loads)
{
    memset(is, 0, sizeof *is);
    is->step.kind = KIND_HAND_OVER;
    is->step.base = BASE_WALK;
    struct ehu_reading reading = ehu_enter_(0);
    const struct ehu_object *o = reading.table ? ehu_find_(reading.table, pc - !exact) : NULL;
    if (o && o->walk && o->exceptions) {
        ehx_site_(reading.table, o, pc - !exact, is);
        int status = row_at(o, pc, exact);
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
