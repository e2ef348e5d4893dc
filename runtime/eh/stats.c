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

/* The pc of the frame at which the last throw was handed over; 0: none. */
_Atomic uint64_t ehx_stopped_;

/* What libehunwind-preload.so asks at exit. */
__attribute__((visibility("default"))) void ehasm_throws(uint64_t *taken, uint64_t *handed, uint64_t *stopped);
void ehasm_throws(uint64_t *taken, uint64_t *handed, uint64_t *stopped)
{
    *taken = count(COUNT_THROWS);
    *handed = count(COUNT_THROWS_HANDED_OVER);
    *stopped = atomic_load(&ehx_stopped_);
}

/* print writes at exit what docs/exceptions.md explains. It uses write, since stdio's streams may be closed. */
static void print(void)
{
    char line[512];
    bool eh_elf = false;
    uint64_t stopped = atomic_load(&ehx_stopped_);
    const char *path = ehu_object_path_(stopped, &eh_elf);
    int n = snprintf(line, sizeof line,
                     "ehasm: exceptions: %s, %lu throws taken over, %lu handed over, %lu frames learnt, %lu calls handed over, %lu routines asked\n",
                     ehx_active_ ? "on" : "off", count(COUNT_THROWS), count(COUNT_THROWS_HANDED_OVER),
                     count(COUNT_LEARNED),
                     count(COUNT_HANDED_OVER), count(COUNT_ASKED));
    if (path)
        n += snprintf(line + n, sizeof line - (size_t)n,
            "ehasm: exceptions: the last throw was handed over at %#lx in %.200s, %s\n", stopped, path,
                      eh_elf ? "where its eh_elf does not say what to do" : "which has no eh_elf");
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
