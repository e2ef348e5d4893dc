#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "preload.h"

_Atomic uint64_t ehp_taken_[NUM_KINDS], ehp_handed_[NUM_KINDS];
_Atomic uint64_t ehp_followed_, ehp_not_followed_;

static void print(void)
{
    static const char *const names[NUM_KINDS] = {"backtrace", "_Unwind_Backtrace", "unw_backtrace", "unw_init_local"};
    char text[512];
    int n = 0;
    for (int i = 0; i < NUM_KINDS; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s %s %" PRIu64 "/%" PRIu64, i > 0 ? "," : "", names[i],
                      ehp_taken_[i], ehp_handed_[i]);
    ehu_say_("ehunwind: taken over/handed on:%s; dlopen followed %" PRIu64 ", not followed %" PRIu64 "\n", text, ehp_followed_,
             ehp_not_followed_);
}

void ehp_stats_init_(void)
{
    const char *wanted = ehu_getenv_(getauxval(AT_SECURE) != 0, "EHASM_STATS");
    if (wanted && strcmp(wanted, "1") == 0)
        atexit(print);
}
