/* Plain steps, by asking eh_elfs about made-up frames. */
#include <string.h>

#include "internal.h"

/*
 * The memory of a made-up frame is read through a callback. Each word encodes its address, and so shows where a
 * register came from. Two frames with different registers, words and alignment tell steps that only look plain.
 */
static const uint64_t word_mark[2] = {0x5a5a000000000000, 0x2b2b000000000000};

/* marked_word is the read callback of a walk in a made-up frame. It never fails. */
static int marked_word(void *arg, uint64_t address, uint64_t *word)
{
    *word = *(const uint64_t *)arg ^ address;
    return 0;
}

static const uint8_t regs_kept[] = {EH_ELF_RBP, EH_ELF_RBX, EH_ELF_R12, EH_ELF_R13, EH_ELF_R14, EH_ELF_R15};
enum { NUM_KEPT = sizeof regs_kept };
_Static_assert(offsetof(struct ehu_plain, others) == offsetof(struct ehu_plain, rbp) + 2,
    "the registers lie in this order");

/* try_step reports whether the step from made-up frame i is a plain one. Plain means what struct ehu_plain
 * can hold: the CFA is rsp or rbp plus less than 1 GB, the return address at CFA-8, and each saved register
 * in one of the 255 words below. i numbers the two frames. */
static bool try_step(const struct ehu_object *o, uint64_t pc, bool exact, int i, struct ehu_plain *p)
{
    eh_elf_regs_t r = {.valid = FRAME_MASK, .exact = exact};
    uint64_t mark = word_mark[i], rsp = i ? 0x7600001238 : 0x1200000000, rbp = i ? 0x340000005678 : 0x2100000000000;
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
        *p = (struct ehu_plain){.base = BASE_RSP, .cfa = (int32_t)by_rsp};
    else if (by_rbp > -(1 << 30) && by_rbp < 1 << 30)
        *p = (struct ehu_plain){.base = BASE_RBP, .cfa = (int32_t)by_rbp};
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
        (&p->rbp)[k] = (uint8_t)(below / 8);
    }
    return true;
}

/* ehu_plain_step_ reports whether the row at pc is a plain step, and fills it in. It runs the eh_elf's code,
 * twice. */
bool ehu_plain_step_(const struct ehu_object *o, uint64_t pc, bool exact, struct ehu_plain *p)
{
    struct ehu_plain again;
    return try_step(o, pc, exact, 0, p) && try_step(o, pc, exact, 1, &again) && memcmp(p, &again, sizeof again) == 0;
}

/* ehu_row_ returns the status of a step from pc: EH_ELF_NO_INFO, for one, if no row covers it. Only the pc
 * of the frame is set. */
int ehu_row_(const struct ehu_object *o, uint64_t pc, bool exact)
{
    uint64_t mark = word_mark[0];
    eh_elf_regs_t r = {.valid = FRAME_MASK, .exact = exact};
    eh_elf_memory_t m = {.read = marked_word, .arg = &mark};
    r.reg[EH_ELF_RIP] = pc;
    return o->walk(&r, &m, o->bias, NULL, 1) == 1 ? EH_ELF_OK : r.status;
}
