/*
 * Damaged eh_elfs for the C loader: loader FILE COUNT [SEED]. Each is FILE with some bytes
 * changed, where a loader looks more often than elsewhere, or cut. It is opened as a refresh
 * opens it, and compared with an object; its code is not run. To be built with -fsanitize.
 */
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../src/internal.h"

enum { MOST_CHANGES = 8 };

/* A fixed start and the SEED argument make each run the same again. */
static uint64_t state = 0x9e3779b97f4a7c15u;
static uint64_t random_word(void) /* xorshift64* */
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545f4914f6cdd1du;
}

/* interesting gives values that lengths, offsets and addresses break at. */
static uint64_t interesting(uint64_t size)
{
    static const uint64_t values[] = {0, 1, 4, 7, 8, 16, 24, 56, 64, 0xfff, 0x1000, 0x7fffffff, 0x80000000, 0xffffffff,
                                      0x3fffffff, 0x40000000, 0x7fffffffffffffff, 0x8000000000000000, UINT64_MAX};
    uint64_t r = random_word();
    switch (r % 4) {
    case 0: return values[r / 4 % (sizeof values / sizeof *values)];
    case 1: return values[r / 4 % (sizeof values / sizeof *values)] - r % 9;
    case 2: return size - r / 4 % 64;
    default: return random_word() % (2 * size);
    }
}

/* change alters a byte, or a number of 2, 4 or 8 bytes, and returns where. */
static size_t change(uint8_t *b, size_t size, size_t head)
{
    uint64_t r = random_word(), value = interesting(size);
    size_t width = (size_t)1 << r % 4, at = (r >> 8) % 4 != 0 ? (r >> 16) % head : (r >> 16) % size;
    if ((r >> 4) % 2)
        at -= at % width;
    if (at + width > size)
        at = size - width;
    memcpy(b + at, &value, width);
    return at;
}

static struct ehu_wanted wanted = {.path = "/nonexistent", .name = "nonexistent"};

/* own takes the program itself for the object that eh_elfs are compared with. */
static int own(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    (void)arg;
    wanted.bias = info->dlpi_addr;
    wanted.headers = info->dlpi_phdr;
    return 1;
}

int main(int argc, char **argv)
{
    struct stat st;
    int in = argc > 2 ? open(argv[1], O_RDONLY) : -1, out = memfd_create("damaged", MFD_CLOEXEC);
    if (in < 0 || out < 0 || fstat(in, &st) != 0)
        return 2;
    size_t size = (size_t)st.st_size, head;
    uint8_t *good = malloc(size), *bad = malloc(size);
    if (!good || !bad || read(in, good, size) != st.st_size)
        return 2;
    head = size < 4096 ? size : 4096; /* headers, notes and symbols, which the loader reads */
    state ^= argc > 3 ? strtoull(argv[3], NULL, 10) * 0xff51afd7ed558ccdu : 0;
    long count = atol(argv[2]), loaded = 0, fit = 0, cut = 0;
    dl_iterate_phdr(own, NULL);
    for (long n = 0; n < count; n++) {
        memcpy(bad, good, size);
        for (uint64_t i = random_word() % MOST_CHANGES + 1; i > 0; i--)
            change(bad, size, head);
        size_t now = size;
        if (random_word() % 8 == 0) {
            now = random_word() % size;
            cut++;
        }
        if (ftruncate(out, 0) != 0 || pwrite(out, bad, now, 0) != (ssize_t)now || lseek(out, 0, SEEK_SET) != 0 ||
            fstat(out, &st) != 0)
            return 2;
        struct ehu_elf *elf = ehu_load_(out, &st);
        if (!elf)
            continue;
        loaded++;
        wanted.build_id_size = elf->build_id_size;
        memcpy(wanted.build_id, elf->build_id, wanted.build_id_size);
        fit += ehu_fits_(elf, &wanted);
        uint64_t walk = (uint64_t)(uintptr_t)elf->walk;
        if (walk < elf->low || walk >= elf->high || (uint64_t)(uintptr_t)elf->base + elf->size < elf->high)
            return 3; /* a function that is not in its code */
        ehu_unload_(elf);
    }
    printf("%ld files, %ld cut, %ld loaded, %ld fit this program\n", count, cut, loaded, fit);
    free(good);
    free(bad);
    return loaded < count / 4; /* the rest of the loader was not tried */
}
