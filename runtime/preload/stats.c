/* What ehasm preload says at a program's exit: figures with EHASM_STATS=1, and if nothing was taken over,
 * why not. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    ehu_say_("ehunwind: taken over/handed on:%s; dlopen followed %" PRIu64 ", not followed %" PRIu64 "\n", text,
        ehp_followed_,
             ehp_not_followed_);
}

/* ----------------------------------------------------------- when nothing was taken over */

_Atomic uint64_t ehp_stopped_;

/* Of ehasm's libgcc_s.so.1; null without it. */
extern void ehasm_throws(uint64_t *taken, uint64_t *handed,
    uint64_t *stopped) __attribute__((weak, visibility("default")));

/* say_why prints what the last call lacked: where its walk stopped, or, if that is 0, another reason. */
static void say_why(const char *what, uint64_t stopped, const char *otherwise)
{
    char why[PATH_MAX + 100];
    bool eh_elf = false;
    const char *path = stopped != 0 ? ehu_object_path_(stopped, &eh_elf) : NULL;
    if (!ehp_ready_)
        strcpy(why, "there is no memory for a table of objects");
    else if (stopped == 0)
        strcpy(why, otherwise);
    else if (!path)
        strcpy(why, "the last leads through code of no object");
    else if (!eh_elf)
        snprintf(why, sizeof why, "there is no eh_elf for %s; 'ehasm build --cache PATH' makes one, or says why not",
            path);
    else
        snprintf(why, sizeof why, "the last leads through %s, whose table ends at %#" PRIx64, path, stopped);
    ehu_say_("ehunwind: %s: none of %s was taken over: %s\n", program_invocation_short_name, what, why);
}

static pid_t began; /* this process, not a child, which inherits the counts */
static pid_t wanted_of; /* the process that ehasm preload has become; 0 if that is another's launcher */

/* explain says why, in the process that ehasm preload has started alone: children inherit the counts and the
 * exit handler. */
static void explain(void)
{
    char stacks[64];
    uint64_t handed = 0, thrown = 0, thrown_handed = 0, stopped = 0;
    if (getpid() != began)
        return;
    for (int i = 0; i < NUM_KINDS; i++) {
        /* libunwind's cursors are counted when they begin, and again when they become its own */
        if (ehp_taken_[i] > (i == KIND_UNW_CURSOR ? ehp_handed_[i] : 0))
            return;
        handed += ehp_handed_[i];
    }
    if (ehasm_throws)
        ehasm_throws(&thrown, &thrown_handed, &stopped);
    if (thrown > 0)
        return;
    snprintf(stacks, sizeof stacks, "%" PRIu64 " stacks", handed);
    if (handed > 0)
        say_why(stacks, atomic_load(&ehp_stopped_), "they were asked for before the library was ready");
    else if (thrown_handed > 0)
        say_why("its exceptions", stopped, "other threads were loading objects");
    else if (wanted_of == getpid())
        ehu_say_("ehunwind: %s: nothing was taken over: no call of backtrace, _Unwind_Backtrace, unw_backtrace or unw_step came here, and %s\n",
                 program_invocation_short_name,
                 ehasm_throws ? "no exception (none does with EHASM_EXCEPTIONS=0, a static libgcc, or no eh_elf for libgcc)" : "exceptions are the system's libgcc's");
}

void ehp_stats_init_(void)
{
    bool secure = ehu_secure_();
    const char *wanted = ehu_getenv_(secure, "EHASM_STATS"), *pid = ehu_getenv_(secure, "EHASM_PRELOADED");
    if (wanted && strcmp(wanted, "1") == 0)
        atexit(print);
    if (pid) {
        began = getpid();
        wanted_of = (pid_t)strtol(pid, NULL, 10);
        atexit(explain);
    }
}
