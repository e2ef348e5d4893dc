/*
 * hostile SITES CASES: reads damaged tables of sites. Built with sanitizers; a table has no byte more than it says.
 * Prints how many lookups ended in which kind.
 */
#include "../sites.c"

#include <stdio.h>
#include <stdlib.h>

ehx_personality *ehx_gxx_;

static uint64_t state = 1;
static uint64_t next(uint64_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
}

static int routine(void) { return 0; }
static int (*const pointer)(void) = routine;

int main(int argc, char **argv)
{
    static uint8_t whole[1 << 20];
    FILE *f = argc == 3 ? fopen(argv[1], "rb") : NULL;
    size_t n = f ? fread(whole, 1, sizeof whole, f) : 0;
    if (n < HEADER)
        return 1;
    uint64_t base = u64(whole), personalities = u32(whole + 16), groups = u32(whole + 12), span = 1 << 22;
    uint64_t bias = (uint64_t)(uintptr_t)&pointer - 0x100000;
    for (uint64_t i = 0; i < personalities; i++) { /* they are the program's own */
        uint64_t address = 0x100000, flags = INDIRECT;
        memcpy(whole + HEADER + i * PERSONALITY, &address, 8);
        memcpy(whole + HEADER + i * PERSONALITY + 8, &flags, 8);
    }
    struct ehu_object code = {.low = (uint64_t)(uintptr_t)routine, .high = (uint64_t)(uintptr_t)routine + 1};
    struct ehu_table table = {.n = 1, .object = &code};
    ehx_gxx_ = (ehx_personality *)(uintptr_t)routine;
    unsigned long kinds[8] = {0}, cases = strtoul(argv[2], NULL, 10);
    for (unsigned long c = 0; c < cases; c++) {
        size_t size = next(8) == 0 ? next(n + 1) : n, damaged = c == 0 ? 0 : 1 + next(16);
        if (c == 0)
            size = n;
        uint8_t *t = malloc(size + 1), *copy = realloc(t, size ? size : 1);
        memcpy(copy, whole, size);
        for (size_t i = 0; i < damaged && size > 0; i++) {
            size_t head = HEADER + personalities * PERSONALITY,
                at = next(4) == 0 ? next(size < head ? size : head) : next(size);
            copy[at] = next(3) == 0 ? (uint8_t)(next(2) ? 0xff : 0x80) : (uint8_t)next(256);
        }
        struct ehu_object o = {.low = bias + base, .high = bias + base + span, .bias = bias, .exceptions = true,
            .sites = copy, .sites_size = (uint32_t)size};
        for (int i = 0; i < 100; i++) {
            uint64_t group = u32(whole + HEADER + personalities * PERSONALITY + next(groups) * GROUP);
            uint64_t pc = bias + base + group + next(next(4) ? 512 : 1 << 16);
            struct ehx_what is = {0};
            ehx_site_(&table, &o, pc, &is);
            kinds[is.step.kind & 7]++;
            unsigned kind = ehx_kind_(&is.step);
            uint64_t pad = ehx_pad_(is.pad);
            bool lands = kind == KIND_CLEANUP || kind == KIND_ACTION || kind == KIND_ACTION_CLEANUP;
            if (kind > KIND_ASK || (lands && (pad < o.low || pad >= o.high || is.function > pc)) ||
                (ehx_args_(is.pad) != 0) != (kind != is.step.kind) ||
                (is.step.kind != KIND_HAND_OVER && is.personality && is.function == 0)) {
                printf("case %lu: pc %#lx: kind %d, pad %#lx, function %#lx\n", c, pc - bias, is.step.kind,
                    is.pad - bias, is.function - bias);
                return 2;
            }
        }
        free(copy);
    }
    printf("skip %lu cleanup %lu action %lu both %lu handed over %lu ask %lu\n", kinds[0], kinds[1], kinds[2], kinds[3],
        kinds[4], kinds[5]);
    return 0;
}
