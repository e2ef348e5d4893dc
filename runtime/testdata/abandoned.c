/*
 * Walks that never end, as a handler leaves behind that interrupts one and does not
 * return: each keeps the table that it has, and what comes and goes later is freed.
 * Says by how many pages the process has grown meanwhile.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "../src/internal.h"
#include "pages.h"

enum { ABANDONED = NUM_COLUMNS - 1 };

static void come_and_go(const char *path, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        void *handle = dlopen(path, RTLD_NOW);
        if (!handle || ehu_refresh() != 1 || dlclose(handle) != 0 || ehu_refresh() != 1)
            exit(2);
    }
}

int main(int argc, char **argv)
{
    struct ehu_reading left[ABANDONED];
    size_t objects = 0;
    if (argc < 2 || ehu_init() != 0)
        return 2;
    for (int i = 0; i < ABANDONED; i++) {
        left[i] = ehu_enter_(ONE_WALK);
        come_and_go(argv[1], 2);
    }
    long some = pages();
    come_and_go(argv[1], 100);
    printf("pages %+ld\n", pages() - some);
    for (int i = 0; i < ABANDONED; i++)
        objects += left[i].table->n > 0; /* they are there still */
    return objects != ABANDONED;
}
