/* Figures, and stand-ins for the parts of libehunwind that are not used here. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "eh.h"

struct ehu_slot ehu_slots_[NUM_SLOTS];
_Atomic uint64_t ehu_counters_[NUM_COUNTERS];
_Atomic uint64_t ehx_counters_[NUM_EHX_COUNTERS];
bool ehx_counting_;

static uint64_t count(enum ehx_counter c) { return atomic_load_explicit(&ehx_counters_[c], memory_order_relaxed); }

static void print(void)
{
    char line[256];
    int n = snprintf(line, sizeof line, "ehasm: exceptions: %s, %lu frames learnt, %lu calls handed over, %lu cleanups asked for\n",
                     ehx_active_ ? "on" : "off", count(COUNT_LEARNED), count(COUNT_HANDED_OVER), count(COUNT_ASKED));
    if (n > 0 && write(2, line, (size_t)n) < 0)
        return;
}

void ehx_stats_init_(bool secure)
{
    const char *value = ehu_getenv_(secure, "EHASM_STATS");
    ehx_counting_ = value && strcmp(value, "1") == 0;
    if (ehx_counting_)
        atexit(print);
}

/* Walks of this library read only their own stack, and know only code of objects. */
void ehu_stats_init_(bool secure) { (void)secure; }
void ehu_stack_init_(void) {}
void ehu_thread_init(void) {}
void ehu_maps_init_(void) {}
void ehu_maps_child_(void) {}
void ehu_note_files_(struct ehu_table *t) { (void)t; }
