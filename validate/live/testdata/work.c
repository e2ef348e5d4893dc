/* Library functions of many sorts, for signals and single steps to interrupt. */
#define _GNU_SOURCE
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

#include "stacks.h"

static volatile double result;

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void texts(void)
{
    char buf[256], *words[12];
    for (int i = 0; i < 12; i++) {
        words[i] = malloc(16);
        snprintf(words[i], 16, "w%d", (i * 37) % 101);
    }
    qsort(words, 12, sizeof words[0], by_text);
    char *p = buf;
    for (int i = 0; i < 12; i++) {
        p = stpcpy(p, words[i]);
        free(words[i]);
    }
    if (strstr(buf, "w37") == NULL || strchr(buf, '#') || memchr(buf, 'w', 4) != buf)
        abort();
    wchar_t wide[64];
    if (swprintf(wide, 64, L"%ls %d", L"wide", 5) != 6 || wcslen(wide) != 6)
        abort();
}

static void numbers(void)
{
    char buf[128];
    snprintf(buf, sizeof buf, "%.17g %e %a %ld %s %*d", 3.14159265358979, 1e300, 0.1, 123456789L, "text", 12, 7);
    result += strtod(buf, NULL) + (double)strtol("123456", NULL, 10) + sin(0.5) + pow(1.5, 3.3) + exp(1.1) + fmod(9.7,
        2.3);
    if (sscanf("17 0x1f 2.5", "%d %x %lf", &(int){0}, &(unsigned){0}, &(double){0}) != 3)
        abort();
}

static void copies(void)
{
    static char from[2500], to[2500];
    const size_t sizes[] = {0, 1, 3, 8, 15, 16, 33, 64, 100, 200, 300, 700, 2100};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        memset(from, (int)i, sizes[i]);
        memcpy(to, from, sizes[i]);
        memmove(to + 1, to, sizes[i]);
        if (memcmp(from, to, sizes[i] / 2) != 0)
            abort();
    }
}

/*
 * clocks calls the vDSO, but not its clock_gettime: that begins again if the kernel
 * updates the time meanwhile, which it always does where single steps are slow.
 */
static void clocks(void)
{
    unsigned cpu, node;
    struct tm tm;
    if (getcpu(&cpu, &node) != 0)
        abort();
    time_t now = time(NULL);
    gmtime_r(&now, &tm);
    result += (double)cpu + tm.tm_year + getpid();
}

void busywork(void)
{
    texts();
    numbers();
    copies();
    clocks();
}

static void nothing(void) { result++; }

/*
 * Calls that are bound when they are first made (through _dl_runtime_resolve) and
 * are then made once more; the shapes; the vDSO.
 */
void stepped_calls(void)
{
    result += (double)lib_lazy(1);
    result += (double)lib_lazy(2);
    result += (double)lib_tls(3);
    result += (double)lib_tls(4);
    at_bottom = nothing;
    chain(21);
    clocks();
}

/* The same, and library functions. */
void stepped_work(void)
{
    stepped_calls();
    busywork();
}
