/*
 * Declarations shared by the files of libehunwind-record, a library that `ehasm record --alloc`
 * preloads into the program. It counts stacks in memory that ehasm has made and reads: a
 * file without a name, divided into chunks, which processes take in turn. A process writes only into
 * its own chunks.
 *
 * Nothing in a hook waits for a lock, or allocates except by system calls. If two threads,
 * or a thread and a handler that interrupts it, want something at the same time, one of them
 * gets it; the other goes without, and counts what it leaves out.
 */
#ifndef EHR_RECORD_H
#define EHR_RECORD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../src/internal.h"

/* ---------------------------------------------- the shared memory; internal/record/inside.go reads it */

enum { EHR_VERSION = 1, EHR_CHUNK = 1 << 18, EHR_HEAD = 4096, EHR_LINE = 64 };
#define EHR_MAGIC 0x6365726d73616865u /* "ehasmrec" */

/* The first page. */
struct ehr_region {
    uint64_t magic, version;
    uint64_t token;          /* of this recording */
    uint64_t period;         /* bytes between two samples of allocations, on average */
    uint64_t max_frames;
    uint64_t chunks;         /* how many there are; chunk i begins at EHR_HEAD + i * EHR_CHUNK */
    _Atomic uint64_t next; /* the first free chunk */
    _Atomic uint64_t refused; /* times that there was none left */
    _Atomic uint64_t stop; /* take no more samples */
};

enum ehr_kind { EHR_PROCESS = 1, EHR_STACKS, EHR_MAPS };

struct ehr_chunk {
    _Atomic uint64_t ready;   /* the token: what follows is valid */
    uint32_t kind, pid;
    uint64_t process;         /* number of its process's chunk of the kind EHR_PROCESS */
    _Atomic uint64_t used;    /* bytes, this header included */
    uint64_t generation;      /* of EHR_MAPS */
    uint64_t more[3];
};

/* What an EHR_PROCESS has before its stacks. */
struct ehr_process {
    struct ehr_chunk chunk;
    char comm[16];
    _Atomic uint64_t own_malloc; /* 1: the program has its own malloc, and this one is not called */
    _Atomic uint64_t taken;      /* samples */
    _Atomic uint64_t no_room;    /* samples without a place for their stack */
    _Atomic uint64_t no_live;    /* samples that are counted as freed: there was no place to remember them */
    uint64_t objects, eh_elfs;   /* when it began */
    uint64_t unused[8];
};
_Static_assert(sizeof(struct ehr_chunk) == EHR_LINE && sizeof(struct ehr_process) == 3 * EHR_LINE, "internal/record/inside.go");

/* A stack, of as many lines as it needs. Objects are counted in units of 1 / EHR_UNIT. */
enum { EHR_UNIT = 1 << 16 };
struct ehr_stack {
    _Atomic uint64_t ready; /* the token */
    uint32_t frames;
    int16_t end; /* why the walk stopped: EH_ELF_* or EHU_* */
    uint8_t guessed, unused;
    uint64_t generation; /* which EHR_MAPS its addresses are of */
    _Atomic uint64_t objects, bytes, freed_objects, freed_bytes;
    uint64_t hash;
    uint64_t pc[]; /* innermost first */
};
_Static_assert(sizeof(struct ehr_stack) == EHR_LINE, "internal/record/inside.go");

/* -------------------------------------------------------------------------------- shared.c */

/* State private to the process: a child of fork finds it empty, and starts over. */
enum { EHR_FILTER_BITS = 16, EHR_FILTER_SHIFT = 9, EHR_LIVE_BITS = 19, EHR_INDEX_BITS = 16, EHR_SCRATCHES = 16, EHR_MAX_FRAMES = 1024 };

/* A live sampled object. */
struct ehr_live {
    _Atomic uint64_t address; /* 0: never used; 1: free again; 2: being written */
    struct ehr_stack *stack;
    uint64_t objects, bytes;
};

struct ehr_scratch {
    _Atomic uint32_t taken;
    uint32_t unused;
    uint64_t pc[EHR_MAX_FRAMES];
};

struct ehr_private {
    uint8_t filter[1 << EHR_FILTER_BITS]; /* how many sampled objects are there, by address, so that neighbours share cache lines; see entry.S */
    _Atomic uintptr_t process;            /* its struct ehr_process; 0: none yet; 1: it is being made; 2: there cannot be one */
    _Atomic uintptr_t chunk;              /* where stacks are written */
    _Atomic uint64_t generation, written; /* of what is mapped: now, and the last that is in an EHR_MAPS */
    struct ehr_scratch scratch[EHR_SCRATCHES];
    struct ehr_live live[1 << EHR_LIVE_BITS];
    _Atomic(struct ehr_stack *) index[1 << EHR_INDEX_BITS]; /* stacks by their hash */
};

extern struct ehr_region *ehr_region_; /* null: nothing is recorded */
extern struct ehr_private *ehr_private_;
extern _Atomic uint64_t ehr_opened_; /* calls of dlopen and dlclose; see entry.S */

bool ehr_begin_(void);
struct ehr_process *ehr_process_(void);
struct ehr_stack *ehr_stack_of_(struct ehr_process *p, const eh_elf_regs_t *regs);
#define EHR_TLS __attribute__((tls_model("initial-exec"))) /* no access to it allocates */
static inline void ehr_add_(_Atomic uint64_t *to, uint64_t n) { atomic_fetch_add_explicit(to, n, memory_order_relaxed); }

#endif
