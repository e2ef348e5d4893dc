/*
 * The content of an object: what its tables are made from. It is read from memory, since the
 * file may have been replaced after it was mapped. The hashed bytes lie in a segment that is
 * not writable, so that memory equals the mapped file, unless the object has text
 * relocations or was patched; then the eh_elf is refused.
 */
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "internal.h"

/* ----------------------------------------------------------------- XXH64, seed 0 */

/* github.com/Cyan4973/xxHash, doc/xxhash_spec.md; package abi uses github.com/cespare/xxhash. */
#define PRIME_1 0x9E3779B185EBCA87u
#define PRIME_2 0xC2B2AE3D27D4EB4Fu
#define PRIME_3 0x165667B19E3779F9u
#define PRIME_4 0x85EBCA77C2B2AE63u
#define PRIME_5 0x27D4EB2F165667C5u

static uint64_t rotate(uint64_t x, int by) { return x << by | x >> (64 - by); }

static uint64_t word(const uint8_t *p)
{
    uint64_t w;
    memcpy(&w, p, sizeof w);
    return w;
}

/* mix is the round of the specification, word the little-endian load. */
static uint64_t mix(uint64_t lane, uint64_t w) { return rotate(lane + w * PRIME_2, 31) * PRIME_1; }

uint64_t ehu_xxh64_(const void *bytes, size_t n)
{
    const uint8_t *p = bytes, *end = p + n;
    uint64_t h = PRIME_5, lane[4] = {PRIME_1 + PRIME_2, PRIME_2, 0, 0 - PRIME_1};
    if (n >= 32) {
        for (; end - p >= 32; p += 32)
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                lane[i] = mix(lane[i], word(p + 8 * i));
        h = rotate(lane[0], 1) + rotate(lane[1], 7) + rotate(lane[2], 12) + rotate(lane[3], 18);
        for (int i = 0; i < 4; i++)
            h = (h ^ mix(0, lane[i])) * PRIME_1 + PRIME_4;
    }
    h += n;
    for (; end - p >= 8; p += 8)
        h = rotate(h ^ mix(0, word(p)), 27) * PRIME_1 + PRIME_4;
    if (end - p >= 4) {
        uint32_t w;
        memcpy(&w, p, sizeof w);
        h = rotate(h ^ w * PRIME_1, 23) * PRIME_2 + PRIME_3;
        p += 4;
    }
    for (; p < end; p++)
        h = rotate(h ^ *p * PRIME_5, 11) * PRIME_1;
    h = (h ^ h >> 33) * PRIME_2;
    h = (h ^ h >> 29) * PRIME_3;
    return h ^ h >> 32;
}

/* ------------------------------------------------------------------- the object */

struct look {
    const struct ehu_elf *elf; /* null: only hash is wanted */
    uint64_t bias;
    const void *headers;
    uint64_t hash; /* of the segment PT_GNU_EH_FRAME */
    bool found;    /* the eh_elf's parts have the hashes that it gives, or there is a segment of that kind */
};

/* Under valgrind these instructions set rdx to 1; otherwise they do nothing
   (valgrind/valgrind.h). */
bool ehu_in_valgrind_(void)
{
    enum { RUNNING_ON_VALGRIND = 0x1001 };
    volatile uint64_t request[6] = {RUNNING_ON_VALGRIND};
    uint64_t result = 0;
    __asm__ volatile("rolq $3, %%rdi; rolq $13, %%rdi; rolq $61, %%rdi; rolq $51, %%rdi; xchgq %%rbx, %%rbx"
                     : "+d"(result)
                     : "a"(&request)
                     : "cc", "memory");
    return result != 0;
}

/*
 * ehu_readable_ reports whether an address can be read. A file may have been cut since it was mapped: what lies behind
 * its end raises SIGBUS. The kernel reads a set of signals, and refuses to do anything with it. valgrind would report
 * that, and is not asked.
 */
bool ehu_readable_(uint64_t address)
{
    enum { NOTHING = -1, SET = 8 };
    if (ehu_in_valgrind_())
        return true;
    int before = errno;
    /* or a file's name */
    long got = ehu_quiet_ ? syscall(SYS_openat, (long)NOTHING, address, (long)(O_PATH | O_CLOEXEC))
                          : syscall(SYS_rt_sigprocmask, (long)NOTHING, address & ~(uint64_t)(SET - 1), NULL, (long)SET);
    bool can = got >= 0 || errno != EFAULT;
    if (ehu_quiet_ && got >= 0)
        syscall(SYS_close, got);
    errno = before;
    return can;
}

/* hash stores the hash of a range that is mapped from the file by a segment that is not writable, or returns false. */
static bool hash(const struct dl_phdr_info *info, uint64_t low, uint64_t size, uint64_t *hash)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_LOAD && (p->p_flags & (PF_R | PF_W)) == PF_R && low >= p->p_vaddr && size > 0 &&
            low - p->p_vaddr <= p->p_filesz && size <= p->p_filesz - (low - p->p_vaddr)) {
            if (!ehu_readable_(info->dlpi_addr + low + size - 1))
                return false;
            *hash = ehu_xxh64_((const void *)(uintptr_t)(info->dlpi_addr + low), size);
            return true;
        }
    }
    return false;
}

static int look(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct look *l = arg;
    (void)size;
    if (info->dlpi_addr != l->bias || info->dlpi_phdr != l->headers)
        return 0;
    l->found = l->elf && l->elf->num_parts > 0;
    for (int i = 0; l->elf && i < l->elf->num_parts && l->found; i++) {
        const eh_elf_part_t *part = &l->elf->part[i];
        uint64_t now;
        l->found = hash(info, part->low, part->size, &now) && now == part->hash;
    }
    for (int i = 0; !l->elf && i < info->dlpi_phnum && !l->found; i++)
        if (info->dlpi_phdr[i].p_type == PT_GNU_EH_FRAME)
            l->found = hash(info, info->dlpi_phdr[i].p_vaddr, info->dlpi_phdr[i].p_memsz, &l->hash);
    return 1;
}

/* ehu_same_content_ compares while the loader's lock keeps the object mapped. */
bool ehu_same_content_(const struct ehu_elf *elf, uint64_t bias, const void *headers)
{
    struct look l = {.elf = elf, .bias = bias, .headers = headers};
    ehu_iterate_(look, &l);
    return l.found;
}

/*
 * ehu_table_key_ stores the key by which a cache finds the eh_elf of an object without a build-id: abi.TableKey, its
 * highest byte first. It returns false if the object has none.
 */
bool ehu_table_key_(uint64_t bias, const void *headers, uint8_t key[TABLE_KEY])
{
    struct look l = {.bias = bias, .headers = headers};
    ehu_iterate_(look, &l);
    for (int i = 0; i < TABLE_KEY; i++)
        key[i] = (uint8_t)(l.hash >> (56 - 8 * i));
    return l.found;
}
