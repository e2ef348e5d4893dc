#define _GNU_SOURCE
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "stacks.h"

static struct { uint64_t low, high; } stacks[16];
static int num_stacks;

/* add_stack makes [low, low+size) readable. */
void add_stack(const void *low, size_t size)
{
    for (int i = 0; i < num_stacks; i++)
        if (stacks[i].low == (uintptr_t)low)
            return;
    if (num_stacks == sizeof stacks / sizeof stacks[0])
        abort();
    stacks[num_stacks].low = (uintptr_t)low;
    stacks[num_stacks].high = (uintptr_t)low + size;
    num_stacks++;
}

void add_main_stack(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    while (maps && fgets(line, sizeof line, maps)) {
        uint64_t low, high;
        if (strstr(line, "[stack]") && sscanf(line, "%" SCNx64 "-%" SCNx64, &low, &high) == 2) {
            low = high - (4 << 20); /* it grows; rsp bounds what is read */
            add_stack((void *)(uintptr_t)low, high - low);
        }
    }
    if (maps)
        fclose(maps);
}

static uint64_t floor_; /* nothing below is read from the stack that holds it */

bool readable(uint64_t addr)
{
    for (int i = 0; i < num_stacks; i++) {
        uint64_t low = stacks[i].low, high = stacks[i].high;
        if (floor_ >= low && floor_ < high)
            low = floor_;
        if (addr >= low && addr <= high - 8)
            return true;
    }
    return false;
}

static int read_word(void *arg, uint64_t addr, uint64_t *word)
{
    (void)arg;
    if (!readable(addr))
        return -1;
    memcpy(word, (const void *)(uintptr_t)addr, 8);
    return 0;
}

static char copy[1 << 20];

/* make_memory describes the memory that a walk from a frame with this rsp may read. */
void make_memory(enum memory_kind kind, uint64_t rsp, eh_elf_memory_t *mem)
{
    enum { RED_ZONE = 128 };
    uint64_t end = rsp, low = kind == MEM_SAMPLE ? rsp : rsp - RED_ZONE;
    memset(mem, 0, sizeof *mem);
    floor_ = low;
    for (int i = 0; i < num_stacks; i++)
        if (rsp >= stacks[i].low && rsp < stacks[i].high)
            end = stacks[i].high;
    mem->read = read_word;
    mem->lo = low;
    switch (kind) {
    case MEM_ALL:
        mem->lo = 0;
        mem->size = UINT64_MAX;
        mem->read = NULL;
        break;
    case MEM_WINDOW:
        mem->size = end - low;
        mem->bytes = (const void *)(uintptr_t)low;
        break;
    case MEM_COPY:
    case MEM_SAMPLE:
        mem->size = end - low < sizeof copy ? end - low : sizeof copy;
        memcpy(copy, (const void *)(uintptr_t)low, mem->size);
        mem->bytes = copy;
        break;
    default:
        break;
    }
}
