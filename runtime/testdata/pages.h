/* The size of the process. */
#ifndef PAGES_H
#define PAGES_H

#include <stdio.h>
#include <stdlib.h>

static long pages(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    long n;
    if (!f || fscanf(f, "%ld", &n) != 1)
        exit(2);
    fclose(f);
    return n;
}

#endif
