/* Figures of walks: for ehu_stats, and for people with EHASM_STATS=1. Counters are relaxed: they say how
 * often, not in which order. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

struct ehu_slot ehu_slots_[NUM_SLOTS];
_Atomic uint64_t ehu_counters_[NUM_COUNTERS];

static uint64_t counter(enum ehu_counter c) { return atomic_load_explicit(&ehu_counters_[c], memory_order_relaxed); }

void ehu_stats(ehu_stats_t *s)
{
    memset(s, 0, sizeof *s);
    s->walks = ehu_recalled_walks_();
    for (int i = 0; i < NUM_SLOTS; i++)
        for (int c = 0; c < NUM_COLUMNS; c++)
            s->walks += atomic_load_explicit(&ehu_slots_[i].count[c], memory_order_relaxed) / ONE_WALK +
                        ehu_own_(&ehu_slots_[i], (unsigned)c) / ONE_WALK;
    s->refreshes = counter(COUNT_REFRESHES);
    s->full = counter(COUNT_FULL);
    s->no_info = counter(COUNT_NO_INFO);
    s->unreadable = counter(COUNT_UNREADABLE);
    s->bad_register = counter(COUNT_BAD_REGISTER);
    s->not_compiled = counter(COUNT_NOT_COMPILED);
    s->no_object = counter(COUNT_NO_OBJECT);
    s->not_rising = counter(COUNT_NOT_RISING);
    s->too_deep = counter(COUNT_TOO_DEEP);
    s->guessed = counter(COUNT_GUESSED);
    s->other_stacks = counter(COUNT_OTHER_STACKS);
    s->probes = counter(COUNT_PROBES);
    s->looks = counter(COUNT_LOOKS);
    struct ehu_reading reading = ehu_enter_(0);
    if (reading.table)
        ehu_count_objects_(reading.table, &s->objects, &s->eh_elfs);
    ehu_leave_(reading);
}

/* ---------------------------------------------------------------------- at exit */

/* The identity of stderr when the program started. Figures go nowhere else: after a close
   the number may be any file. */
static struct {
    bool open;
    dev_t dev, device;
    ino_t ino;
} start;

__attribute__((constructor)) static void note_stderr(void)
{
    struct stat st;
    start.open = fstat(STDERR_FILENO, &st) == 0;
    if (start.open) {
        start.dev = st.st_dev;
        start.device = st.st_rdev;
        start.ino = st.st_ino;
    }
}

/* ehu_say_ writes a line to stderr with write, since stdio's buffer is the program's. Longer text is cut. */
void ehu_say_(const char *format, ...)
{
    char text[1024], *p = text;
    struct stat st;
    va_list args;
    if (!start.open || fstat(STDERR_FILENO, &st) != 0 || st.st_dev != start.dev || st.st_rdev != start.device ||
        st.st_ino != start.ino)
        return;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ssize_t left = n < 0 ? 0 : (size_t)n < sizeof text ? n : (ssize_t)sizeof text - 1;
    while (left > 0) {
        ssize_t wrote = write(STDERR_FILENO, p, (size_t)left);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return;
        p += wrote;
        left -= wrote;
    }
}

static void print(void)
{
    ehu_stats_t s;
    ehu_stats(&s);
    ehu_say_("ehunwind: %" PRIu64 " walks; %" PRIu64 " of %" PRIu64 " objects have an eh_elf; list of objects read %" PRIu64 " times\n"
             "ehunwind: ended early: no room in the array %" PRIu64 ", no information %" PRIu64 ", memory not readable %" PRIu64
             ", register not known %" PRIu64 ", rule not compiled %" PRIu64 ", object not known %" PRIu64 ", stack corrupt %" PRIu64
             ", too deep %" PRIu64 "\n"
             "ehunwind: callers by frame pointer %" PRIu64 "; walks on other stacks %" PRIu64
             "; the kernel was asked for bounds %" PRIu64 " times, what is code %" PRIu64 " times%s\n",
             s.walks, s.eh_elfs, s.objects, s.refreshes, s.full, s.no_info, s.unreadable, s.bad_register,
             s.not_compiled,
             s.no_object, s.not_rising, s.too_deep, s.guessed, s.other_stacks, s.probes, s.looks,
             ehu_answers_() ? "" : "; the kernel may no longer be asked");
}

void ehu_stats_init_(bool secure)
{
    const char *wanted = ehu_getenv_(secure, "EHASM_STATS");
    if (wanted && strcmp(wanted, "1") == 0)
        atexit(print);
}
