/*
 * Declarations shared by the files of libehunwind-record, a library that `ehasm heap`
 * preloads into the program. It counts stacks in memory that ehasm has made and reads: a file
 * without a name, divided into windows, and these into chunks. A program takes a window when it
 * starts, and shares it with its children of fork; each process takes chunks of it.
 *
 * The library maps the window once. After that it needs neither a name nor a descriptor, which the
 * program may lose with its user, root folder, namespace or limits. Nothing in a hook waits for a
 * lock, calls a cancellation point, or allocates. After the start the library makes no system call, since a
 * sandbox may have begun unnoticed: a walk reads what is known to be readable. Only in dlopen it makes
 * those that dlopen makes, too.
 *
 * If two threads, or a thread and a handler that interrupts it, want something at the same time,
 * one of them gets it; the other goes without, and counts what it leaves out.
 *
 * Other processes with other rights write to the shared memory, too. So nothing that the library
 * reads there chooses an address: positions are in private memory.
 */
#ifndef EHR_RECORD_H
#define EHR_RECORD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../src/internal.h"

/* ------------------------- the shared memory; internal/profile/record/region.go reads it */

enum {
    EHR_VERSION = 2,
    EHR_PAGE = 4096,
    EHR_LINE = 64,
    EHR_WINDOW = 1 << 26,
    EHR_CHUNK = 1 << 14,
    EHR_CHUNKS = EHR_WINDOW / EHR_CHUNK - 2, /* see same in shared.c */
    EHR_MAX_FRAMES = 1024 /* of a stack; it fits in a chunk */
};
#define EHR_MAGIC 0x6365726d73616865u /* "ehasmrec" */

/* The first page. Window i begins at EHR_PAGE + i * EHR_WINDOW. */
struct ehr_region {
    uint64_t magic, version;
    uint64_t token; /* of this recording */
    uint64_t period; /* bytes between two samples, on average */
    uint64_t max_frames;
    _Atomic uint64_t next; /* the first free window */
    _Atomic uint64_t declined; /* programs whose limits or sandbox leave no room */
    _Atomic uint64_t stop; /* take no more samples */
};

/* What a program sends that cannot open the memory. */
struct refusal {
    uint64_t token;
    char comm[16];
};

/* The first page of a window. Chunk i begins at EHR_PAGE + i * EHR_CHUNK. */
struct ehr_window {
    _Atomic uint64_t next;        /* the first free chunk */
    _Atomic uint64_t refused;     /* times that there was none left */
    _Atomic uint64_t generations; /* of what processes have mapped */
};

enum ehr_kind { EHR_PROCESS = 1, EHR_STACKS, EHR_MAPS };

struct ehr_chunk {
    _Atomic uint64_t ready; /* the token: what follows is valid */
    uint32_t kind, pid;
    uint64_t process;    /* number of its process's chunk of the kind EHR_PROCESS */
    uint64_t generation; /* of EHR_MAPS */
    uint64_t used;       /* of EHR_MAPS: bytes, this header included */
    uint64_t unused[3];
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
_Static_assert(sizeof(struct ehr_chunk) == EHR_LINE && sizeof(struct ehr_process) == 3 * EHR_LINE, "region.go");

/* A stack, of as many lines as it needs, at a multiple of EHR_LINE behind the chunk's header.
   Objects are counted in units of 1 / EHR_UNIT. */
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
_Static_assert(sizeof(struct ehr_stack) == EHR_LINE, "region.go");
_Static_assert(sizeof(struct ehr_process) + sizeof(struct ehr_stack) + EHR_MAX_FRAMES * 8 <= EHR_CHUNK, "a stack fits");

/* -------------------------------------------------------------------------------- shared.c */

/* State private to the process: a child of fork finds it empty, and starts over. */
enum { EHR_FILTER_BITS = 16, EHR_FILTER_SHIFT = 9, EHR_LIVE_BITS = 19, EHR_INDEX_BITS = 16, EHR_SCRATCHES = 16 };

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
    /* how many sampled objects are there, by address, so that neighbours share cache lines; see entry.S */
    uint8_t filter[1 << EHR_FILTER_BITS];
    /* its struct ehr_process; 0: none yet; 1: it is being made; 2: there cannot be one */
    _Atomic uintptr_t process;
    _Atomic uint64_t free;                /* where the next stack is written, as a distance in the window */
    _Atomic int looking;
    struct ehr_scratch scratch[EHR_SCRATCHES];
    struct ehr_live live[1 << EHR_LIVE_BITS];
    _Atomic(struct ehr_stack *) index[1 << EHR_INDEX_BITS]; /* stacks by their hash */
};

extern struct ehr_private *ehr_private_;

bool ehr_begin_(void);
void ehr_end_(void);
bool ehr_stopped_(void);
uint64_t ehr_period_(void);
uint64_t ehr_seed_(void);
struct ehr_process *ehr_process_(void);
void ehr_write_maps_(struct ehr_process *p);
void ehr_look_(void);
extern _Atomic bool ehr_bare_; /* whoever opens an object by its bare name gets the same */
struct ehr_stack *ehr_stack_of_(struct ehr_process *p, const eh_elf_regs_t *regs);
#define EHR_TLS __attribute__((tls_model("initial-exec"))) /* no access to it allocates */
static inline void ehr_add_(_Atomic uint64_t *to, uint64_t n)
{
    atomic_fetch_add_explicit(to, n, memory_order_relaxed);
}

#endif
