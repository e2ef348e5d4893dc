/*
 * Steps from an eh_elf's own code, which a signal or a call of its reader may have interrupted: by the .eh_frame
 * that the file has for that code (elfout/ehframe.go). It has one CIE, and rows with the CFA at rsp plus an offset.
 *
 * Eh_elfs that another library of the process has mapped, such as libgcc_s.so.1, are in no table of this one. Their
 * code is found as all code in no object is, and their memory is read only where the kernel says that it can be.
 */
#include <elf.h>
#include <string.h>

#include "internal.h"

enum { WORD = 8, RSP_CFA = 8, MAX_ENTRIES = 16, MAX_HEADERS = 16 };

/* An eh_elf's memory, and what of it has been read last. */
struct image {
    uint64_t base, high;
    bool mapped; /* it is in the table that is in use */
    uint64_t page;
    uint64_t origin; /* of its code: see ehu_mapping; once eh_frame was called */
};

/* get copies n bytes, at most a page, from an address of the image. */
static bool get(struct image *m, uint64_t addr, void *to, uint64_t n)
{
    uint64_t word;
    if (addr < m->base || addr > m->high || n > m->high - addr)
        return false;
    for (uint64_t page = addr - addr % PAGE; !m->mapped && page < addr + n; page += PAGE) {
        if (page != m->page && ehu_probe_word_(NULL, page, &word) != 0)
            return false;
        m->page = page;
    }
    memcpy(to, (const void *)(uintptr_t)addr, n);
    return true;
}

/* As elfout writes it: the CFA is rsp+8, the return address below it, the factors 1 and -8, addresses relative and of 4 bytes. */
static const uint8_t cie[] = {20, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, EH_ELF_RIP, 1, 0x1b, 0x0c, EH_ELF_RSP,
    RSP_CFA, 0x80 | EH_ELF_RIP, 1, 0, 0};

/* eh_frame returns the address of the image's .eh_frame, or 0. */
static uint64_t eh_frame(struct image *m)
{
    Elf64_Ehdr eh;
    Elf64_Phdr p;
    struct {
        uint8_t version, encodings[3];
        int32_t frame;
    } hdr;
    uint8_t first[sizeof cie];
    if (!get(m, m->base, &eh, sizeof eh) || memcmp(eh.e_ident, ELFMAG, SELFMAG) != 0 || eh.e_phentsize != sizeof p ||
        eh.e_phoff > PAGE)
        return 0;
    for (int i = 0; i < eh.e_phnum && i < MAX_HEADERS; i++) {
        if (!get(m, m->base + eh.e_phoff + (uint64_t)i * sizeof p, &p, sizeof p))
            return 0;
        if (p.p_type == PT_LOAD && p.p_flags & PF_X)
            m->origin = m->base + p.p_vaddr - p.p_offset;
        if (p.p_type != PT_GNU_EH_FRAME)
            continue;
        uint64_t addr = m->base + p.p_vaddr;
        if (!get(m, addr, &hdr, sizeof hdr))
            return 0;
        addr += offsetof(__typeof__(hdr), frame) + (uint64_t)(int64_t)hdr.frame;
        return get(m, addr, first, sizeof first) && memcmp(first, cie, sizeof cie) == 0 ? addr : 0;
    }
    return 0;
}

/* The instructions of an FDE. */
struct program {
    struct image *image;
    uint64_t addr, end;
    bool bad;
};

/* number reads n bytes, little-endian. */
static uint32_t number(struct program *p, uint64_t n)
{
    uint32_t value = 0;
    p->bad |= p->addr > p->end || n > p->end - p->addr || !get(p->image, p->addr, &value, n);
    p->addr += n;
    return value;
}

/* uleb reads an unsigned LEB128 number of at most 28 bits, four bytes: elfout writes no larger ones here. */
static uint32_t uleb(struct program *p)
{
    uint32_t value = 0, byte = 0x80;
    for (int shift = 0; byte & 0x80 && !p->bad; shift += 7) {
        byte = number(p, 1);
        p->bad |= shift > 21;
        value |= (byte & 0x7f) << shift;
    }
    return value;
}

/* find_fde finds the FDE of a pc, and its first address. */
static bool find_fde(struct image *m, uint64_t pc, struct program *p, uint64_t *start)
{
    struct {
        uint32_t length, cie;
        int32_t start;
        uint32_t size;
        uint8_t augmentation;
    } fde;
    enum { HEADER = 17 };
    uint64_t frame = eh_frame(m), addr = frame + sizeof cie;
    for (int i = 0; frame != 0 && i < MAX_ENTRIES && get(m, addr, &fde, HEADER); i++) {
        if (fde.length < HEADER - sizeof fde.length || fde.augmentation != 0 ||
            addr + sizeof fde.length - fde.cie != frame)
            return false;
        *start = addr + offsetof(__typeof__(fde), start) + (uint64_t)(int64_t)fde.start;
        *p = (struct program){m, addr + HEADER, addr + sizeof fde.length + fde.length, false};
        if (pc - *start < fde.size)
            return true;
        addr = p->end;
    }
    return false;
}

/* A row: where the CFA is above rsp, and how many words below the CFA each register is; 0: unchanged. */
struct row {
    uint32_t cfa, saved[EH_ELF_NUM_REGS];
};

/* interpret makes the row of a pc; see appendRows of elfout/ehframe.go. */
static bool interpret(struct program *p, uint64_t start, uint64_t pc, struct row *row)
{
    enum { NOP = 0, ADVANCE1 = 2, ADVANCE2 = 3, ADVANCE4 = 4, DEF_CFA_OFFSET = 14, ADVANCE = 1, OFFSET = 2,
        RESTORE = 3 };
    *row = (struct row){RSP_CFA, {[EH_ELF_RIP] = 1}};
    while (p->addr < p->end && !p->bad) {
        uint32_t op = number(p, 1), low = op & 63;
        if (op >> 6 > ADVANCE && low >= EH_ELF_NUM_REGS)
            return false;
        switch (op >> 6) {
        case ADVANCE: start += low; break;
        case OFFSET: row->saved[low] = uleb(p); break;
        case RESTORE: row->saved[low] = 0; break;
        default:
            switch (op) {
            case NOP: break;
            case ADVANCE1: start += number(p, 1); break;
            case ADVANCE2: start += number(p, 2); break;
            case ADVANCE4: start += number(p, 4); break;
            case DEF_CFA_OFFSET: row->cfa = uleb(p); break;
            default: return false;
            }
        }
        if (start > pc)
            break;
    }
    return !p->bad;
}

/* read_word reads a word of the stack: in the walk's window directly, elsewhere through the kernel. */
static bool read_word(const eh_elf_memory_t *m, uint64_t addr, uint64_t *word)
{
    if (addr - m->lo >= m->size || m->size - (addr - m->lo) < WORD)
        return ehu_probe_word_(NULL, addr, word) == 0;
    memcpy(word, (const void *)(uintptr_t)addr, WORD);
    return true;
}

/* ehu_eh_elf_of_ returns where an eh_elf that another library has mapped begins, or 0 if the mapping is
 * none. */
uint64_t ehu_eh_elf_of_(const struct ehu_mapping *m, uint64_t pc)
{
    /* code is up to a page further on than in the file, whose beginning it may show, too */
    for (uint64_t shift = 0; shift <= PAGE; shift += PAGE) {
        struct image image = {.base = m->origin - shift, .high = m->high};
        struct program p;
        uint64_t start;
        if (find_fde(&image, pc, &p, &start) && image.origin == m->origin)
            return image.base;
    }
    return 0;
}

/* ehu_own_row_ takes a step from code of an eh_elf. mapped says that the table in use keeps it mapped. It
 * returns 1; or 0 with the registers unchanged, if no row is found or, with EH_ELF_UNREADABLE, a word can't
 * be read. */
size_t ehu_own_row_(struct ehu_walk *c, const struct ehu_object *o, bool mapped)
{
    eh_elf_regs_t *r = &c->regs, caller = *r;
    struct image m = {.base = o->bias, .high = o->high, .mapped = mapped};
    struct program p;
    struct row row;
    uint64_t pc = r->reg[EH_ELF_RIP] - !r->exact, start;
    if (!find_fde(&m, pc, &p, &start) || !interpret(&p, start, pc, &row))
        return 0;
    uint64_t cfa = r->reg[EH_ELF_RSP] + row.cfa;
    for (unsigned i = 0; i < EH_ELF_NUM_REGS; i++) {
        if (row.saved[i] != 0 && !read_word(&c->memory, cfa - WORD * (uint64_t)row.saved[i], &caller.reg[i])) {
            r->status = EH_ELF_UNREADABLE;
            return 0;
        }
        if (row.saved[i] != 0)
            caller.valid |= 1u << i;
    }
    caller.reg[EH_ELF_RSP] = cfa;
    caller.valid &= ~(uint32_t)CALLER_SAVED;
    caller.exact = 0;
    *r = caller;
    return 1;
}
