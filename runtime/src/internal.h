/*
 * Declarations shared by the files of libehunwind. Names that end in _ are not
 * exported from the shared library; tests link the static one and may call them.
 */
#ifndef EHU_INTERNAL_H
#define EHU_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/ucontext.h>

#include "chain.h"
#include "ehunwind.h"

#pragma GCC visibility push(hidden) /* no address of these is in the global offset table */

enum { PAGE = 4096, RED_ZONE = 128, MAX_BUILD_ID = 64, TABLE_KEY = 8, ROW_BITS = 12 };

/* ---------------------------------------------------------------- trust.c, search.c, content.c, load.c */

/* The object for which an eh_elf is searched. */
struct ehu_wanted {
    uint64_t bias;
    /* its program headers, as dl_iterate_phdr gives them; they may be gone, and then only identify it */
    const void *headers;
    const char *path; /* of the object */
    const char *name; /* the last part of path */
    uint8_t build_id[MAX_BUILD_ID];
    size_t build_id_size; /* 0: the object has none */
};

/* A mapped eh_elf. */
struct ehu_elf {
    struct ehu_elf *next;
    unsigned refs; /* objects of tables that use it */
    dev_t dev;
    ino_t ino;
    char *base;
    size_t size;
    uint64_t low, high; /* its code, run-time addresses */
    eh_elf_walk_t *walk;
    const char *chain; /* may be null */
    bool exceptions;   /* as in ehu_object */
    uint32_t sites_size;
    const uint8_t *sites;
    uint8_t build_id[MAX_BUILD_ID]; /* of the object */
    size_t build_id_size;
    eh_elf_part_t part[EH_ELF_MAX_PARTS]; /* of the object */
    int num_parts;
};

const char *ehu_getenv_(bool secure, const char *name);
bool ehu_trusted_(const struct stat *st, uid_t self);
int ehu_open_trusted_(const char *path, uid_t self, struct stat *st);
void ehu_keep_folder_(void);
void ehu_forget_folder_(void);
bool ehu_secure_(void);
uid_t ehu_self_(bool secure);
size_t ehu_build_id_(const void *notes, size_t size, size_t align, uint8_t id[MAX_BUILD_ID]);
struct ehu_elf *ehu_load_(int fd, const struct stat *st);
void ehu_unload_(struct ehu_elf *elf);
void ehu_abandon_elfs_(void);
bool ehu_fits_(const struct ehu_elf *elf, const struct ehu_wanted *wanted);
uint64_t ehu_xxh64_(const void *bytes, size_t n);
bool ehu_readable_(uint64_t address);
/* Reports whether what dlopen finds may depend on who calls it; null: on any caller. */
bool ehu_depends_on_caller_(const char *path, const void *caller);
bool ehu_in_valgrind_(void);
bool ehu_table_key_(uint64_t bias, const void *headers, uint8_t key[TABLE_KEY]);
bool ehu_same_content_(const struct ehu_elf *elf, uint64_t bias, const void *headers);
/* Reads the environment. */
void ehu_search_init_(bool secure);
/* Calls take with each possible path of the eh_elf until it returns true. */
void ehu_search_(const struct ehu_wanted *wanted, bool secure, bool (*take)(const char *path, void *arg), void *arg);

/* ----------------------------------------------------------------------------- memory.c */

/*
 * Returns zeroed memory from the kernel, or null if there is none. The library does not use malloc, whose calls
 * the program's profiler may count.
 */
void *ehu_map_(size_t size);

/* ------------------------------------------------------------------------------- lock.c */

enum ehu_lock { LOCK_TABLE, LOCK_MAPS, NUM_LOCKS };
/*
 * ehu_lock_ takes a lock, also one held by a thread that has ended or that only the parent of this process has. It
 * returns false in a handler that interrupted the holder, and if another thread has it and wait is false.
 */
bool ehu_lock_(enum ehu_lock which, bool wait);
void ehu_unlock_(enum ehu_lock which);
/* Reports whether a thread does not exist in this process: a child of fork has one. */
bool ehu_gone_(uint32_t thread);

/* ----------------------------------------------------------------------------- loader.c */

/* How many objects the dynamic loader has ever loaded and unloaded. */
struct ehu_counts {
    unsigned long long adds, subs;
};
/*
 * ehu_ask_loader_ takes the loader's lock. It returns false, and the loader must not be asked for its objects, if that
 * lock belongs to a thread that this process does not have.
 */
bool ehu_ask_loader_(struct ehu_counts *counts);

/* The loader's data, and in them the lock; null until the loader was asked and the lock found. */
extern struct ehu_loader {
    const uint64_t *words;
    size_t n;
    const void *lock;
    uint64_t first;         /* pointer to the first object of its list */
    const uint64_t *adds;   /* how many objects it has ever loaded; null unless ehu_find_counts_ has found both */
    const uint32_t *loaded; /* how many are loaded */
    bool hurry, refused;    /* see ehu_iterate_; under the lock of table.c */
} ehu_loader_;
/*
 * ehu_iterate_ is dl_iterate_phdr. In a hurry it waits for no lock: if another thread has the loader's, or the code
 * that a handler interrupted, it calls f for no object and sets refused.
 */
struct dl_phdr_info;
void ehu_iterate_(int (*f)(struct dl_phdr_info *, size_t, void *), void *arg);
void ehu_find_counts_(void);

/* ------------------------------------------------------------------------------ table.c */

/* An executable range of an object. */
struct ehu_object {
    uint64_t low, high; /* run-time addresses, half-open */
    uint64_t bias;
    eh_elf_walk_t *walk; /* null: it has no eh_elf */
    const char *chain; /* null: it has no eh_elf, or one without it */
    /* the code of an eh_elf, which begins at bias: its frame pointer belongs to the stack it walks */
    bool eh_elf;
    bool exceptions; /* its eh_elf says what an exception does in its frames */
    uint32_t sites_size; /* bytes; 0: exceptions pass over all its frames */
    const uint8_t *sites;
    char unused[8];
};
_Static_assert(sizeof(struct ehu_object) == 1 << OBJECT_SHIFT && offsetof(struct ehu_object, low) == OBJECT_LOW &&
                   offsetof(struct ehu_object, high) == OBJECT_HIGH &&
                   offsetof(struct ehu_object, bias) == OBJECT_BIAS &&
                   offsetof(struct ehu_object, chain) == OBJECT_CHAIN,
               "chain.h");

/* The file that an executable range is mapped from. */
struct ehu_file {
    uint64_t dev, ino;
    uint64_t origin; /* where its first byte would be mapped */
};

/* The table that walks use: the ranges sorted by address. It does not change once
   published, except for the cache and the rows. */
struct ehu_table {
    size_t n;
    struct ehu_object *object;
    uint32_t cache[CACHED_PAGES]; /* chain.S: the object of a page of code, as its distance from the first one */
    struct ehu_file *file; /* of each; ino is 0 if there is none */
    uint64_t generation; /* no other table of the process ever has the same */
    uint64_t row[1 << ROW_BITS]; /* recall.c: rows of return addresses */
    /* The rest is used by the refresher only. */
    size_t size; /* bytes of the memory that holds this and all it points to */
    struct ehu_loaded *loaded;
    size_t num_loaded;
    unsigned long long adds, subs; /* of dl_iterate_phdr */
    uint64_t hash;                 /* of what is loaded where */
    unsigned column;               /* of ehu_slot.count */
    struct ehu_table *next;        /* retired ones */
    uint64_t idle;                 /* bit i: slot i was seen without a reader since this was retired */
};
_Static_assert(offsetof(struct ehu_table, n) == TABLE_N && offsetof(struct ehu_table, object) == TABLE_OBJECT &&
                   offsetof(struct ehu_table, cache) == TABLE_CACHE,
               "chain.h");

/*
 * ehu_catch_up_ renews the table as ehu_refresh does, unless another thread is doing so: that one may wait for the
 * loader, which may wait for the caller. It reports whether the table now reflects at least that many loads and
 * unloads; it does not in a handler that interrupted a refresh.
 */
bool ehu_catch_up_(uint64_t loads);
/*
 * ehu_up_to_date_ reports whether the table has the objects that are loaded now. If it does not, and that takes no lock
 * that is not free, ehu_up_to_date_ renews it: it may be called in a handler.
 */
bool ehu_up_to_date_(void);

/* Returns the path of the object that holds pc, or null if none does, and stores whether it has an eh_elf. Not for handlers. */
const char *ehu_object_path_(uint64_t pc, bool *eh_elf);

void ehu_count_objects_(const struct ehu_table *t, uint64_t *objects, uint64_t *eh_elfs);

static inline const struct ehu_object *ehu_find_(const struct ehu_table *t, uint64_t pc)
{
    size_t low = 0, n = t->n; /* the last range that begins at or below pc is in [low-1, low+n) */
    while (n > 0) {
        size_t half = n / 2;
        if (t->object[low + half].low <= pc) {
            low += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    if (low == 0 || pc >= t->object[low - 1].high)
        return NULL;
    return &t->object[low - 1];
}

/* ehu_object_of_ does the same with the table's cache. Threads may store at the same time: each value is a correct one. */
static inline const struct ehu_object *ehu_object_of_(const struct ehu_table *t, uint64_t pc)
{
    uint32_t *cached = (uint32_t *)(uintptr_t)&t->cache[(pc >> PAGE_BITS) % CACHED_PAGES];
    const struct ehu_object *o = (const void *)((const char *)t->object + __atomic_load_n(cached, __ATOMIC_RELAXED));
    if (pc - o->low < o->high - o->low)
        return o;
    o = ehu_find_(t, pc);
    if (o)
        __atomic_store_n(cached, (uint32_t)((const char *)o - (const char *)t->object), __ATOMIC_RELAXED);
    return o;
}

/*
 * A walk is counted while it uses a table, so that the refresher knows when a replaced table
 * has no reader left. Threads are spread over slots, each with its own cache line; sharing
 * one is correct, only slower. Each table has its own column of the counts, if one is free: a
 * walk that never ends, because a handler that interrupted it did not return, keeps its
 * table, and those that share its column.
 */
enum { NUM_SLOTS = 64, NUM_COLUMNS = 8, ONE_WALK = 1 << 16 };
struct ehu_slot {
    _Alignas(64) _Atomic uint64_t count[NUM_COLUMNS]; /* readers now + ONE_WALK * walks so far */
    /* the same, for the thread that owns the slot; includes walks that left */
    _Alignas(64) _Atomic uint64_t own[NUM_COLUMNS];
    _Atomic uint64_t left[NUM_COLUMNS];               /* how many left */
    _Atomic uint64_t owner;                           /* its thread pointer; 0: none yet */
};
extern struct ehu_slot ehu_slots_[NUM_SLOTS];

/* ehu_own_ returns own minus left. It is never too small: left is read before own. */
static inline uint64_t ehu_own_(struct ehu_slot *s, unsigned column)
{
    uint64_t left = atomic_load(&s->left[column]);
    return atomic_load(&s->own[column]) - left;
}

/* The table that walks see, which begins a page, plus its column. */
extern _Atomic uintptr_t ehu_current_;
extern _Atomic uint64_t ehu_generation_; /* of it, published after it */
static inline const struct ehu_table *ehu_table_of_(uintptr_t current)
{
    return (const struct ehu_table *)(current & ~(uintptr_t)(NUM_COLUMNS - 1));
}

static inline uint64_t ehu_thread_pointer_(void)
{
    uint64_t fs;
    __asm__ volatile("mov %%fs:0, %0" : "=r"(fs));
    return fs;
}

/* ehu_slot_of_ returns the slot of a thread. */
static inline struct ehu_slot *ehu_slot_of_(uint64_t thread)
{
    return &ehu_slots_[thread * 0x9e3779b97f4a7c15u >> 58];
}

struct ehu_reading {
    const struct ehu_table *table; /* null before ehu_init */
    _Atomic uint64_t *count;
    struct ehu_slot *own; /* the slot, if the thread owns it */
};

/*
 * ehu_owns_ reports whether a thread owns a slot, and makes it the owner if there is none. A thread that
 * has ended still owns its slot, and so does the next one with the same thread pointer. Threads that run
 * at the same time never have the same thread pointer, since their data lie there.
 */
static inline bool ehu_owns_(struct ehu_slot *s, uint64_t thread)
{
    uint64_t owner = atomic_load_explicit(&s->owner, memory_order_relaxed);
    return owner == thread || (owner == 0 && atomic_compare_exchange_strong(&s->owner, &owner, thread));
}

/* ehu_enter_ counts a reader, and then checks that the table it counted for is still
   current. */
static inline struct ehu_reading ehu_enter_(uint64_t walks)
{
    uint64_t thread = ehu_thread_pointer_();
    struct ehu_slot *s = ehu_slot_of_(thread);
    bool own = ehu_owns_(s, thread);
    _Atomic uint64_t *counts = own ? s->own : s->count;
    for (;;) {
        uintptr_t current = atomic_load(&ehu_current_);
        _Atomic uint64_t *count = &counts[current % NUM_COLUMNS];
        atomic_fetch_add(count, 1 + walks);
        if (atomic_load(&ehu_current_) == current)
            return (struct ehu_reading){ehu_table_of_(current), count, own ? s : NULL};
        atomic_fetch_sub(count, 1 + walks);
    }
}

/*
 * ehu_leave_ need not lock the bus where no other thread counts, but has to be one instruction: a handler that comes in
 * between may go on with another stack, whose walk comes or leaves. It may also go on with this one in another thread.
 * If that happens behind the comparison, one that left may be forgotten, and a table is kept; none is freed that is
 * read, for only who left is counted without a lock.
 */
static inline void ehu_leave_(struct ehu_reading r)
{
    _Atomic uint64_t *left = r.count + offsetof(struct ehu_slot, left) / sizeof *r.count - offsetof(struct ehu_slot,
        own) / sizeof *r.count;
    if (r.own && atomic_load_explicit(&r.own->owner, memory_order_relaxed) == ehu_thread_pointer_())
#ifdef __SANITIZE_THREAD__ /* which does not see the instruction */
        atomic_fetch_add_explicit(left, 1, memory_order_release);
#else
        __asm__ volatile("incq %0" : "+m"(*left) : : "memory", "cc");
#endif
    else
        atomic_fetch_sub_explicit(r.count, 1, memory_order_release);
}

/* ----------------------------------------------------------------------- maps.c, code.c */

/* An executable mapping. */
struct ehu_mapping {
    uint64_t low, high;
    uint64_t dev, ino, origin; /* of the file, as in ehu_file */
    bool file; /* it has a file that still exists */
};
bool ehu_map_lines_(bool (*take)(const char *line, size_t len, void *arg), void *arg);
bool ehu_mappings_(bool (*take)(const struct ehu_mapping *m, void *arg), void *arg);
bool ehu_executable_(const struct ehu_table *t, uint64_t pc, struct ehu_mapping *m);
void ehu_maps_init_(void);
void ehu_note_files_(struct ehu_table *t);
const struct ehu_object *ehu_code_at_(struct ehu_walk *c, const struct ehu_table *t, uint64_t pc,
    struct ehu_object *code);
bool ehu_is_code_(struct ehu_walk *c, const struct ehu_table *t, uint64_t pc); /* of an object or none */

/* ------------------------------------------------------------------------------ stack.c */

void ehu_stack_init_(void);
extern uint64_t ehu_context_start_; /* return address of a makecontext's function: the outermost frame */
bool ehu_answers_(void); /* whether the kernel says what memory can be read */
/*
 * From ehu_be_quiet_ on, a walk makes no system call, and ehu_up_to_date_ those that dlopen makes: a sandbox may forbid
 * all others. The caller lets one thread at a time into ehu_up_to_date_, which has no lock then. Not for handlers.
 */
extern bool ehu_quiet_;
void ehu_be_quiet_(void);
int ehu_probe_word_(void *arg, uint64_t addr, uint64_t *word);

/* Bits of ehu_walk.flags. */
enum {
    EHU_GUESSED = 1 << 0,
    EHU_OTHER_STACK = 1 << 1, /* the window is not on the thread's own stack; it may end before the stack does */
    EHU_NOT_BY_TABLE = 1 << 2, /* no table ended the stack, but a return address of 0 or makecontext's */
    EHU_ONLY_TABLES = 1 << 3,  /* guess no step, and do not look for code in no object */
    EHU_COUNTED = 1 << 4,      /* the statistics have the walk: a cursor's from its first step on */
    EHU_DESCENTS_SHIFT = 16 /* from this bit on: how many steps led down */
};

/*
 * The part of the thread's own stack that is known to be readable, and a range
 * below its end that is known not to belong to it. A handler may interrupt a
 * change: hi is 0 while lo is being written, and a reader checks hi before and
 * after.
 */
struct ehu_own_stack {
    volatile uint64_t lo, hi;
    volatile uint64_t not_lo, not_hi;
    struct ehu_memory *memory; /* of the slot that the thread owns; null: not asked for yet, or none */
};
extern __thread struct ehu_own_stack ehu_own_stack_ __attribute__((tls_model("initial-exec")));

bool ehu_feel_out_(uint64_t rsp, eh_elf_memory_t *mem, uint32_t *flags);

/*
 * ehu_window_ makes the window of the stack that holds rsp: from the red zone up.
 * It returns false if there is none. If the stack overflowed, the window begins
 * above rsp.
 */
static inline bool ehu_window_(uint64_t rsp, eh_elf_memory_t *mem, uint32_t *flags)
{
    uint64_t hi = ehu_own_stack_.hi, lo = ehu_own_stack_.lo, from = rsp - RED_ZONE;
    *flags &= ~(uint32_t)EHU_OTHER_STACK;
    if (hi != ehu_own_stack_.hi || rsp >= hi || from < lo || from > rsp)
        return ehu_feel_out_(rsp, mem, flags);
    mem->lo = from;
    mem->size = hi - from;
    mem->bytes = (const void *)(uintptr_t)from;
    return true;
}

/* ------------------------------------------------------------------------------ stats.c */

enum ehu_counter {
    COUNT_REFRESHES, COUNT_FULL, COUNT_NO_INFO, COUNT_UNREADABLE, COUNT_BAD_REGISTER, COUNT_NOT_COMPILED,
    COUNT_NO_OBJECT, COUNT_NOT_RISING, COUNT_TOO_DEEP, COUNT_GUESSED, COUNT_OTHER_STACKS, COUNT_PROBES, COUNT_LOOKS,
    NUM_COUNTERS
};
extern _Atomic uint64_t ehu_counters_[NUM_COUNTERS];
static inline void ehu_count_(enum ehu_counter c)
{
    atomic_fetch_add_explicit(&ehu_counters_[c], 1, memory_order_relaxed);
}
void ehu_stats_init_(bool secure);
/* Writes to stderr, if it is still the file that it was when the program started. */
__attribute__((format(printf, 1, 2))) void ehu_say_(const char *format, ...);

/* ------------------------------------------------------------------------------ chain.S */

/* Takes up to max steps from a frame in o, as far as eh_elfs lead, without checking the
   results. */
size_t ehu_chain_(eh_elf_regs_t *regs, const eh_elf_memory_t *mem, const struct ehu_object *o, uint64_t *pcs,
    size_t max,
                  const struct ehu_table *t);

/* ----------------------------------------------------------------------- plain.c, recall.c, norow.c, ownrow.c, walk.c, step.c */

/* The registers that functions may change. */
enum {
    CALLER_SAVED = 1 << EH_ELF_RAX | 1 << EH_ELF_RDX | 1 << EH_ELF_RCX | 1 << EH_ELF_RSI | 1 << EH_ELF_RDI | 1 << EH_ELF_R8 |
                   1 << EH_ELF_R9 | 1 << EH_ELF_R10 | 1 << EH_ELF_R11
};

/* what save.h saves */
enum { FRAME_MASK = 1 << EH_ELF_RBX | 1 << EH_ELF_RBP | 1 << EH_ELF_RSP | 0xf << EH_ELF_R12 | 1 << EH_ELF_RIP };

/* A plain step: the CFA is rsp or rbp plus an offset, the return address is below the CFA, and registers are unchanged or below that. */
enum { BASE_RSP, BASE_RBP };
struct ehu_plain {
    int32_t cfa;
    uint8_t base;
    uint8_t rbp, rbx;  /* words below the CFA where the register is saved; 0: it is the same */
    uint8_t others[4]; /* r12 to r15 */
};
/* ehu_plain_step_ reports whether the step from a pc is plain; ehu_row_ returns EH_ELF_OK, or why there is none. */
bool ehu_plain_step_(const struct ehu_object *o, uint64_t pc, bool exact, struct ehu_plain *p);
int ehu_row_(const struct ehu_object *o, uint64_t pc, bool exact);

/*
 * ehu_own_row_ takes a step from the code of an eh_elf, which is mapped from o->bias to o->high; mapped: and stays so
 * during the walk. It returns 1; or it returns 0 and leaves the registers as they were.
 */
size_t ehu_own_row_(struct ehu_walk *c, const struct ehu_object *o, bool mapped);
/* ehu_eh_elf_of_ returns where the eh_elf begins whose code, with pc, a mapping is, or 0 if it is of something else. */
uint64_t ehu_eh_elf_of_(const struct ehu_mapping *m, uint64_t pc);
size_t ehu_without_row_(struct ehu_walk *c, const struct ehu_table *t, const struct ehu_object *o, uint64_t *pc);
size_t ehu_run_one_(struct ehu_walk *c, const struct ehu_table *t);
void ehu_count_end_(int status);
void ehu_regs_of_(eh_elf_regs_t *regs, const ucontext_t *context);

/*
 * The pc of a cursor's frame. The other registers are in regs, and those known when a signal came
 * in kept, once ehu_settle_ has returned true.
 */
static inline uint64_t ehu_pc_(const ehu_cursor_t *c)
{
    return c->at < c->end ? c->pcs[c->at] : c->walk.regs.reg[EH_ELF_RIP];
}
bool ehu_settle_(ehu_cursor_t *c);
static inline uint32_t ehu_depth_(const ehu_cursor_t *c) { return c->walk.depth + c->at; }
/* ehu_hand_out_ is ehu_step if the step was taken ahead, and otherwise false. */
static inline bool ehu_hand_out_(ehu_cursor_t *c)
{
    if (c->at >= c->end)
        return false;
    c->at++;
    return true;
}

struct ehu_end {
    int status; /* why the last step was not taken; 0: the array is full */
    bool guessed;
};
/* ehu_backtrace_end_ is ehu_backtrace from the frame *regs, and stores how the walk ended unless end is null. */
size_t ehu_backtrace_end_(void **pcs, size_t n, const eh_elf_regs_t *regs, struct ehu_end *end);
void ehu_cursor_start_(ehu_cursor_t *cursor);                                /* called by capture.S */

/* The result of a walk by tables alone. */
enum ehu_worth {
    EHU_PARTIAL, /* it ended where another unwinder may find more */
    EHU_WHOLE,   /* to the frame whose table says that it is the outermost, or of the length asked for */
    EHU_ASTRAY   /* the tables led to a word or a return address in memory that cannot be read */
};
/*
 * ehu_try_ takes up to max steps from regs, without guesses, for callers with another unwinder,
 * and says how good they are. With to_end it goes on to the end, but stores no more than max.
 * *stopped is the address at which a walk ended that is not whole.
 */
size_t ehu_try_(const eh_elf_regs_t *regs, uint64_t *pcs, size_t max, bool to_end, enum ehu_worth *worth,
    uint64_t *stopped);
void ehu_cursor_retry_(ehu_cursor_t *cursor, const eh_elf_regs_t *regs); /* a cursor for what ehu_try_ walked */

/*
 * What a walk has come to along the frames that its thread remembers. ehu_recall_on_ goes on along them, and returns
 * how many steps the walk has taken then. After a step, *regs has rsp, rbp and the pc, and the status is
 * EH_ELF_OUTERMOST if the last frame's row says so. The other two go on with all of a walk.
 */
struct ehu_way {
    struct ehu_memory *m; /* null: without */
    struct ehu_entry *e;      /* null: its first frame is not among them */
    uint64_t *to;
};
void ehu_recall_none_(void); /* instead, without */
size_t ehu_recall_on_(struct ehu_way way, const eh_elf_regs_t *start, eh_elf_regs_t *regs, uint64_t *pcs,
    uint64_t *full);
size_t ehu_backtrace_on_(struct ehu_way way, uint64_t *pcs, uint64_t *full, const eh_elf_regs_t *regs,
    struct ehu_end *end);
size_t ehu_try_on_(struct ehu_way way, const eh_elf_regs_t *regs, uint64_t *pcs, uint64_t *full, bool to_end,
    enum ehu_worth *worth, uint64_t *stopped);
uint64_t ehu_recalled_walks_(void); /* which used no table */

#pragma GCC visibility pop

#endif
