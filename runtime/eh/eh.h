/*
 * Exceptions with eh_elfs: a libgcc_s.so.1 that throws through frames whose rows and sites
 * are known, and hands everything else over to libgcc's own functions, which are linked in. See docs/exceptions.md.
 *
 * Nothing here takes a lock, allocates, or writes memory that other threads use, once the
 * return addresses that a throw meets are known and as long as no object is loaded.
 */
#ifndef EHX_H
#define EHX_H

/* Offsets in struct ehx_frame, for entry.S. */
#define FRAME_RSP 0
#define FRAME_RBP 8
#define FRAME_PC 16
#define FRAME_RBX 24
#define FRAME_R12 32
#define FRAME_R13 40
#define FRAME_R14 48
#define FRAME_R15 56
#define FRAME_SIZE 64
#define NUM_ACCESSORS 10
#define LANDING_RAX 64
#define LANDING_RDX 72

/* struct ehx_answer.what, for entry.S. */
#define ANSWER_RETURN 0
#define ANSWER_LAND 1
#define ANSWER_JUMP 2

/* struct ehx_known, KNOWN_SLOTS and kinds, for entry.S. */
#define KNOWN_KEY 8
#define KNOWN_LOADS 16
#define KNOWN_STEP 24
#define KNOWN_KIND 29
#define KNOWN_REST 32
#define KNOWN_PAD 40
#define KNOWN_BITS 11
#define KNOWN_HASH 0x9e3779b97f4a7c15
#define KNOWN_PERSONALITY 56
#define CLEANUP_KIND 1
#define ACTION_KIND 2 /* and 3, with a cleanup */

/* struct ehx_exception, and what is before it in struct ehx_cxa. */
#define EXCEPTION_PRIVATE_1 16
#define EXCEPTION_PRIVATE_2 24
#define CXA_TYPE (-80)
#define CXA_SELECTOR (-36)
#define CXA_CAUGHT (-32)
#define CXA_PAD (-16)
#define CXA_OBJECT (-8)
#define CLASS_GNU 0x474e5543432b2b00 /* "GNUCC++", and no dependent exception */
#define CLASS_DEPENDENT 0x474e5543432b2b01

/* struct ehx_trail. */
#define TRAIL_TYPE 8
#define TRAIL_LOADS 16
#define TRAIL_PC 24
#define TRAIL_AT 112
#define TRAIL_N 132
#define TRAIL_RSP 134
#define TRAIL_REG 136
#define TRAIL_PAD 152
#define TRAIL_CAUGHT 160
#define TRAIL_BITS 9
#define TRAIL_UNIT 6 /* a hint is a trail's offset, shifted by that */

#ifndef __ASSEMBLER__
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "../src/internal.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#pragma GCC visibility push(hidden)

/* ------------------------------------------------ the unwinder's ABI: Itanium C++ ABI, Exception Handling, level I */

typedef int ehx_reason;
enum {
    NO_REASON = 0, FATAL_PHASE2_ERROR = 2, FATAL_PHASE1_ERROR = 3, END_OF_STACK = 5, HANDLER_FOUND = 6,
        INSTALL_CONTEXT = 7,
    CONTINUE_UNWIND = 8
};
enum { SEARCH_PHASE = 1, CLEANUP_PHASE = 2, HANDLER_FRAME = 4, FORCE_UNWIND = 8, AT_END_OF_STACK = 16 };

/* private_1 and private_2 hold what libgcc has in them, so that a throw can go over to it: the stop function and its
 * argument of a forced unwinding, or 0 and what identifies the frame of the handler. */
struct ehx_exception {
    uint64_t class;
    void (*cleanup)(ehx_reason, struct ehx_exception *);
    uint64_t private_1, private_2;
};

/* The callee-saved registers of a frame, and its pc. Beyond functions that end the stack, values may be stale. */
struct ehx_frame {
    uint64_t rsp, rbp, pc, rbx, r12, r13, r14, r15;
};
_Static_assert(sizeof(struct ehx_frame) == FRAME_SIZE && offsetof(struct ehx_frame, r15) == FRAME_R15, "entry.S");

/* The frame that called in, which becomes the frame to continue in. */
struct ehx_landing {
    struct ehx_frame frame;
    uint64_t rax, rdx;
};
_Static_assert(offsetof(struct ehx_landing, rax) == LANDING_RAX &&
    offsetof(struct ehx_landing, rdx) == LANDING_RDX, "entry.S");

struct ehx_answer {
    /* ANSWER_RETURN: value is the result; ANSWER_LAND: at frame.pc, with rax and rdx; ANSWER_JUMP: to value */
    uint64_t what;
    uint64_t value;
};

/* The context of a personality routine; its first word distinguishes it from libgcc's,
   where it is a pointer. */
struct ehx_context {
    uint64_t magic;
    struct ehx_frame *frame;
    uint64_t rax, rdx; /* for the landing pad */
    uint64_t function, lsda; /* if filled */
    bool exact, filled;
};
void ehx_fill_(struct ehx_context *c);
#define EHX_MAGIC 0x8ea15f6c5d04b7e3u /* not an address */

typedef ehx_reason ehx_personality(int version, int actions, uint64_t class, struct ehx_exception *e,
    struct ehx_context *c);
typedef ehx_reason ehx_stop(int version, int actions, uint64_t class, struct ehx_exception *e, struct ehx_context *c,
    void *arg);

/* ------------------------------------------------------------------------------- known.c */

/* abi.md, section 6. */
enum ehx_kind { KIND_SKIP, KIND_CLEANUP, KIND_ACTION, KIND_ACTION_CLEANUP, KIND_HAND_OVER, KIND_ASK,
    KIND_ARGS = 8 /* with one of these: see pad */ };

/* BASE_RSP and BASE_RBP are struct ehu_plain's; BASE_WALK: the step is none of these, and ehx_walk_ takes
 * it. */
enum { BASE_WALK = BASE_RBP + 1 };

/*
 * A return address, or with exact another pc: the effect of an exception in its frame, and the step to
 * its caller if that is a plain one: the CFA is rsp or rbp plus an offset, the return address is below
 * the CFA, and registers are unchanged or in words below that.
 */
struct ehx_what {
    struct ehx_step {
        int32_t cfa;
        uint8_t base, kind;
        uint8_t rbp, rbx;  /* words below the CFA where the register is saved; 0: it is the same */
        uint8_t others[4]; /* r12 to r15 */
    } step;
    uint64_t pad; /* with KIND_ARGS, the words of arguments that are popped before it are in its upper 16 bits */
    uint64_t function, lsda;
    ehx_personality *personality;
};

/* ehx_kind_ returns the kind without the mark of arguments. */
static inline unsigned ehx_kind_(const struct ehx_step *s) { return s->kind & ~(unsigned)KIND_ARGS; }
/* User addresses have 47 bits, so a pad leaves 16 for the words of arguments. */
#define PAD_BITS 48
static inline uint64_t ehx_pad_(uint64_t pad) { return pad & (((uint64_t)1 << PAD_BITS) - 1); }
static inline uint64_t ehx_args_(uint64_t pad) { return pad >> PAD_BITS; }

/*
 * Everything remembered is in slots that all threads share. A writer makes the turn of a slot odd, and skips a slot
 * whose turn is odd; a reader takes a copy and uses it only after it has seen that the turn is even and unchanged.
 * Turns only grow, so a slot that was rewritten in between is detected even if its content is the same. All but the
 * turns is loaded and stored relaxed, between fences.
 */
static inline bool ehx_begin_writing_(_Atomic uint64_t *turn, uint64_t *now)
{
    *now = atomic_load_explicit(turn, memory_order_relaxed);
    if (*now % 2 != 0 || !atomic_compare_exchange_strong(turn, now, *now + 1))
        return false;
    atomic_thread_fence(memory_order_release);
    return true;
}

static inline void ehx_end_writing_(_Atomic uint64_t *turn, uint64_t now)
{
    atomic_store_explicit(turn, now + 2, memory_order_release);
}

/* ehx_begin_reading_ returns a slot's turn for ehx_unchanged_; a turn that is odd counts as changed. */
static inline __attribute__((always_inline)) uint64_t ehx_begin_reading_(const _Atomic uint64_t *turn)
{
    return atomic_load_explicit(turn, memory_order_acquire) & ~(uint64_t)1;
}

static inline __attribute__((always_inline)) bool ehx_unchanged_(const _Atomic uint64_t *turn, uint64_t then)
{
    atomic_thread_fence(memory_order_acquire);
    return likely(atomic_load_explicit(turn, memory_order_relaxed) == then);
}

/* A word of a slot, and a smaller part of one. */
typedef uint64_t __attribute__((may_alias)) ehx_any;
/* EHX_GET reads a word of a slot that others may write: relaxed, so it compiles to a plain load and is no
 * data race. */
#define EHX_GET(what) __atomic_load_n(&(what), __ATOMIC_RELAXED)

static inline __attribute__((always_inline)) void ehx_copy_from_(void *to, const void *slot, size_t size)
{
#pragma GCC unroll 16
    for (size_t i = 0; i < size / sizeof(ehx_any); i++)
        ((ehx_any *)to)[i] = __atomic_load_n((const ehx_any *)slot + i, __ATOMIC_RELAXED);
}

static inline void ehx_copy_to_(void *slot, const void *from, size_t size)
{
    for (size_t i = 0; i < size / sizeof(ehx_any); i++)
        __atomic_store_n((ehx_any *)slot + i, ((const ehx_any *)from)[i], __ATOMIC_RELAXED);
}

/*
 * A slot also has the numbers of two other slots, in which callers were found earlier. Looking there first saves
 * waiting for the return address to be read; the key in that slot tells whether it is the right one. The numbers are
 * written if they are 0, and now and then (ehx_seldom_).
 */
struct ehx_known {
    _Alignas(64) _Atomic uint64_t turn;
    uint64_t key;   /* pc * 2 + exact; 0: none */
    uint64_t loads; /* of loads.c, when it was stored */
    uint64_t step;  /* the first 8 bytes of struct ehx_step */
    uint32_t others;
    uint16_t next[2];
    uint64_t pad;
    uint32_t function; /* pc minus the function's start, plus 1; 0: none */
    int32_t lsda; /* minus the pc; 0: none */
    uint64_t personality;
};
_Static_assert(sizeof(struct ehx_known) == 64 && sizeof(struct ehx_step) == 12, "a cache line");
_Static_assert(offsetof(struct ehx_known, key) == KNOWN_KEY && offsetof(struct ehx_known, loads) == KNOWN_LOADS &&
                   offsetof(struct ehx_known, step) == KNOWN_STEP &&
                   KNOWN_KIND == KNOWN_STEP + offsetof(struct ehx_step, kind) &&
                   offsetof(struct ehx_known, others) == KNOWN_REST &&
                   offsetof(struct ehx_known, next) == KNOWN_REST + 4 &&
                   offsetof(struct ehx_known, pad) == KNOWN_PAD && KIND_CLEANUP == CLEANUP_KIND &&
                   KIND_ACTION == ACTION_KIND && KIND_ACTION_CLEANUP == ACTION_KIND + 1 &&
                   offsetof(struct ehx_known, personality) == KNOWN_PERSONALITY &&
                   offsetof(struct ehx_exception, private_1) == EXCEPTION_PRIVATE_1 &&
                   offsetof(struct ehx_exception, private_2) == EXCEPTION_PRIVATE_2,
               "entry.S");

/* 2,048 return addresses take 128 KB. Most programs throw through fewer than a hundred, whose 16 KB are
 * touched at the start. */
enum { KNOWN_SLOTS = 1 << KNOWN_BITS, KNOWN_FEW = 256 };
extern struct ehx_known ehx_known_[KNOWN_SLOTS];
/* Until they are full, only the first KNOWN_FEW slots are used, whose pages are touched at the start. */
extern uint64_t ehx_slot_mask_;

/* ehx_seldom_ says whether to overwrite an entry in use: at random, once in 64 times. */
extern __thread uint32_t ehx_seed_ __attribute__((tls_model("initial-exec")));
static inline bool ehx_seldom_(void)
{
    ehx_seed_ = ehx_seed_ * 1664525 + 1013904223;
    return ehx_seed_ >> 26 == 0;
}

/* ehx_slot_ is Fibonacci hashing: the upper bits of a product with 2^64 divided by the golden ratio. */
static inline size_t ehx_slot_(uint64_t key)
{
    return (key * KNOWN_HASH) >> (64 - KNOWN_BITS) & EHX_GET(ehx_slot_mask_);
}
static inline struct ehx_known *ehx_next_(const struct ehx_known *k, int i)
{
    return &ehx_known_[EHX_GET(k->next[i]) % KNOWN_SLOTS];
}

/* The result of a lookup. */
struct ehx_seen {
    struct ehx_step step;
    uint64_t pad;
    struct ehx_known *slot; /* null: in no slot */
};

void ehx_learn_(struct ehx_what *is, uint64_t pc, bool exact, uint64_t loads);
void ehx_look_again_(struct ehx_seen *s, uint64_t pc, bool exact, uint64_t loads);
/* fills in all that is known of a pc */
void ehx_describe_(struct ehx_what *is, uint64_t pc, bool exact, uint64_t loads);

static inline __attribute__((always_inline)) bool ehx_in_slot_(struct ehx_seen *s, struct ehx_known *k, uint64_t key,
    uint64_t loads)
{
    uint64_t turn = ehx_begin_reading_(&k->turn);
    if (EHX_GET(k->key) != key)
        return false;
    bool now = EHX_GET(k->loads) == loads;
    uint64_t step = EHX_GET(k->step), pad = EHX_GET(k->pad);
    uint32_t others = EHX_GET(k->others);
    if (!ehx_unchanged_(&k->turn, turn) || !now)
        return false;
    memcpy(&s->step, &step, sizeof step);
    memcpy(s->step.others, &others, sizeof others);
    s->pad = pad;
    s->slot = k;
    return true;
}

/* ehx_look_ looks a frame up; s->slot is the slot of its callee, or null. */
static inline __attribute__((always_inline)) void ehx_look_(struct ehx_seen *s, uint64_t pc, bool exact, uint64_t loads)
{
    if (!s->slot || !ehx_in_slot_(s, ehx_next_(s->slot, 0), pc * 2 + exact, loads))
        ehx_look_again_(s, pc, exact, loads);
}

/* ehx_walk_ goes from a frame to its caller by any row. It returns EH_ELF_OK, EH_ELF_OUTERMOST, or a
   negative value. */
int ehx_walk_(struct ehx_frame *f, bool *exact);

/* ehx_word_ reads a word of the running thread's stack, which a throw through these frames may always read. */
static inline uint64_t ehx_word_(uint64_t address) { return *(const uint64_t *)(uintptr_t)address; }

/* The first word of struct ehx_step: cfa, base, kind, rbp, rbx from bit 0, 32, 40, 48, 56 on. */
static inline uint64_t ehx_first_word_(const struct ehx_step *s)
{
    uint64_t step;
    memcpy(&step, s, sizeof step);
    return step;
}
_Static_assert(BASE_RSP == 0 && BASE_RBP == 1 && BASE_WALK == 2 && KIND_SKIP == 0, "bits of the word");

/* ehx_passes_ reports whether an exception passes over the frame (KIND_SKIP) by a plain step. */
static inline bool ehx_passes_(uint64_t step) { return (step >> 33 & 0x7fff) == 0; }

/* ehx_saved_ loads the registers saved in words below the CFA. two has a byte each for rbp and rbx, others for r12 to r15. */
static inline __attribute__((always_inline)) void ehx_saved_(struct ehx_frame *f, uint64_t cfa, uint64_t two,
    uint32_t others)
{
    const uint64_t *top = (const uint64_t *)(uintptr_t)cfa;
    if (two) {
        if (two & 0xff)
            f->rbp = top[-(int64_t)(two & 0xff)];
        if (two >> 8)
            f->rbx = top[-(int64_t)(two >> 8)];
    }
    if (others) {
        if (others & 0xff)
            f->r12 = top[-(int64_t)(others & 0xff)];
        if (others >> 8 & 0xff)
            f->r13 = top[-(int64_t)(others >> 8 & 0xff)];
        if (others >> 16 & 0xff)
            f->r14 = top[-(int64_t)(others >> 16 & 0xff)];
        if (others >> 24)
            f->r15 = top[-(int64_t)(others >> 24)];
    }
}

/* ehx_step_ takes the step to the caller. A CFA that does not rise would be a loop: EHU_NOT_RISING, which
 * hands over. */
static inline __attribute__((always_inline)) int ehx_step_(struct ehx_frame *f, bool *exact, const struct ehx_step *s)
{
    uint64_t step = ehx_first_word_(s);
    if (unlikely(step >> 32 & BASE_WALK))
        return ehx_walk_(f, exact);
    uint64_t cfa = (step >> 32 & BASE_RBP ? f->rbp : f->rsp) + (uint64_t)(int64_t)(int32_t)step;
    if (unlikely(cfa <= f->rsp))
        return EHU_NOT_RISING;
    uint32_t others;
    memcpy(&others, s->others, sizeof others);
    ehx_saved_(f, cfa, step >> 48, others);
    f->pc = ehx_word_(cfa - 8);
    f->rsp = cfa;
    *exact = false;
    return EH_ELF_OK;
}

/* ------------------------------------------------------------------------------- sites.c */

/* ehx_site_ finds the site of a lookup pc in an object's table; with a malformed one, or a personality routine that is no
   code of an object of table, it is hand over. */
void ehx_site_(const struct ehu_table *table, const struct ehu_object *o, uint64_t lookup_pc, struct ehx_what *is);

/* ehx_named_ reports whether an object's dynamic section has a name of a kind (DT_SONAME, DT_NEEDED) with a prefix. */
struct link_map;
bool ehx_named_(const struct link_map *map, int64_t tag, const char *prefix);
#define LIBSTDCXX "libstdc++.so."
/* libstdc++'s routine; null until a frame with it is met, if the program began without libstdc++ */
extern ehx_personality *ehx_gxx_;

/* ------------------------------------------------------------------------------- types.c */

/* A personality routine's answer for an exception of a type at a place. */
enum ehx_verdict { VERDICT_UNKNOWN, VERDICT_PASSES, VERDICT_CATCHES };

uint64_t ehx_type_(const struct ehx_exception *e);
bool ehx_is_pointer_(uint64_t type);
/* ehx_recall_ puts into the exception what the routine has put there before; verdicts are
   only for frames of ehx_gxx_. */
enum ehx_verdict ehx_recall_(struct ehx_exception *e, uint64_t type, uint64_t place, uint64_t loads);
void ehx_remember_(struct ehx_exception *e, uint64_t type, uint64_t key, uint64_t loads, const struct ehx_what *is,
    bool catches);
bool ehx_caught_(const struct ehx_exception *e, const struct ehx_what *is, uint64_t pad);
void ehx_types_init_(void);

/* What libstdc++'s routine stores about a handler in the exception, besides the selector. */
struct ehx_caught {
    uint64_t action, lsda, pad, object; /* object: absolute in an exception; minus its address where remembered */
};

/* libstdc++'s __cxa_exception, whose end is the ehx_exception (unwind-cxx.h): part of its binary interface, since
 * exceptions of one libstdc++ are caught by code that another one throws from. */
struct ehx_cxa {
    uint64_t type;
    void *destructor, *unexpected, *terminate, *next;
    int32_t handlers, selector;
    struct ehx_caught caught;
    struct ehx_exception e;
};
_Static_assert(offsetof(struct ehx_cxa, e) == 80 && sizeof(struct ehx_cxa) == 112, "unwind-cxx.h");
_Static_assert(offsetof(struct ehx_cxa, selector) == 80 + CXA_SELECTOR &&
    offsetof(struct ehx_cxa, caught) == 80 + CXA_CAUGHT &&
                   offsetof(struct ehx_cxa, caught.pad) == 80 + CXA_PAD &&
                   offsetof(struct ehx_cxa, caught.object) == 80 + CXA_OBJECT,
               "entry.S");

static inline struct ehx_cxa *ehx_cxa_(const struct ehx_exception *e)
{
    return (struct ehx_cxa *)(uintptr_t)((uintptr_t)e - offsetof(struct ehx_cxa, e));
}

/* ehx_raw_type_ returns the type, whose answers may not be rememberable, or 0. */
static inline uint64_t ehx_raw_type_(const struct ehx_exception *e)
{
    return e->class == CLASS_GNU && ehx_gxx_ ? ehx_cxa_(e)->type : 0;
}

static inline void ehx_get_(const struct ehx_exception *e, int32_t *selector, struct ehx_caught *c)
{
    *selector = ehx_cxa_(e)->selector;
    *c = ehx_cxa_(e)->caught;
    c->object -= (uint64_t)(uintptr_t)e;
}

static inline void ehx_put_(struct ehx_exception *e, int32_t selector, const struct ehx_caught *c)
{
    struct ehx_cxa *x = ehx_cxa_(e);
    x->selector = selector;
    x->caught = *c;
    x->caught.object += (uint64_t)(uintptr_t)e;
}

/* ------------------------------------------------------------------------------- loads.c */

/*
 * The number of objects that the loader has ever loaded and unloaded, called loads everywhere. What is remembered of an
 * address is valid for one such number. ehx_loads_ points to the loader's count of loaded objects, and ehx_loaded_ to
 * its count of objects still loaded; they are null if they were not found and the loader must be asked, which takes its
 * lock.
 */
extern const uint64_t *ehx_loads_;
extern const uint32_t *ehx_loaded_;
/* ehx_loads_ for entry.S; null if throws are counted, which entry.S cannot do */
extern const uint64_t *ehx_entry_loads_;
/* libehunwind's table is at least this recent; 0: unknown, or libgcc does everything */
extern _Atomic uint64_t ehx_table_loads_;
void ehx_begin_(void); /* prepares the table early: at the first throw, the system calls for it may be forbidden */
uint64_t ehx_ask_loads_(void); /* 0: the loader does not say */
void ehx_forget_(void); /* forgets all slots */
void ehx_loads_init_(void);

/* ------------------------------------------------------------------------------- libgcc.sh */

/* libgcc's functions, from its static library. They depend on nothing else, so they work before constructors have run. */
void libgcc__Unwind_RaiseException(void), libgcc__Unwind_Resume(void), libgcc__Unwind_Resume_or_Rethrow(void),
    libgcc__Unwind_ForcedUnwind(void);
uint64_t libgcc__Unwind_GetGR(void *, int), libgcc__Unwind_GetIP(void *), libgcc__Unwind_GetIPInfo(void *, int *),
    libgcc__Unwind_GetCFA(void *);
uint64_t libgcc__Unwind_GetLanguageSpecificData(void *), libgcc__Unwind_GetRegionStart(void *);
uint64_t libgcc__Unwind_GetTextRelBase(void *), libgcc__Unwind_GetDataRelBase(void *);
void libgcc__Unwind_SetGR(void *, int, uint64_t), libgcc__Unwind_SetIP(void *, uint64_t);
int libgcc__Unwind_Backtrace(ehx_reason (*)(void *, void *), void *);
void *libgcc__Unwind_FindEnclosingFunction(void *pc);
int libgcc___cpu_indicator_init(void);
extern uint32_t libgcc___cpu_model[4];

/* ------------------------------------------------------------------------------- start.c */

/* ehx_learn_sizes_ makes libgcc walk once, which sets its table of register sizes: code of libgcc that is linked into the
 * program may call libgcc's accessors before libgcc has walked. */
void ehx_learn_sizes_(void);
extern void *ehx_accessors_[NUM_ACCESSORS]; /* of context.c, or libgcc's */
uint64_t ehx_get_gr_(struct ehx_context *c, int reg), ehx_get_ip_(struct ehx_context *c),
    ehx_get_ip_info_(struct ehx_context *c, int *before);
uint64_t ehx_get_cfa_(struct ehx_context *c), ehx_get_lsda_(struct ehx_context *c),
    ehx_get_start_(struct ehx_context *c);
uint64_t ehx_get_text_(struct ehx_context *c), ehx_get_data_(struct ehx_context *c);
void ehx_set_gr_(struct ehx_context *c, int reg, uint64_t value), ehx_set_ip_(struct ehx_context *c, uint64_t pc);
extern bool ehx_active_; /* false: everything goes to libgcc */

/* ------------------------------------------------------------------------------- stats.c */

enum ehx_counter { COUNT_LEARNED, COUNT_HANDED_OVER, COUNT_ASKED, COUNT_THROWS, COUNT_THROWS_HANDED_OVER,
    NUM_EHX_COUNTERS };
void ehx_stats_init_(bool secure);
extern _Atomic uint64_t ehx_counters_[NUM_EHX_COUNTERS];
/* Only if figures are wanted, since threads share the words. */
extern bool ehx_counting_;
static inline void ehx_count_(enum ehx_counter c)
{
    if (unlikely(ehx_counting_))
        atomic_fetch_add_explicit(&ehx_counters_[c], 1, memory_order_relaxed);
}

/* ehx_count_throw_ counts a throw; if figures are off, it only notes that there was one. */
static inline void ehx_count_throw_(enum ehx_counter c)
{
    ehx_count_(c);
    if (unlikely(atomic_load_explicit(&ehx_counters_[c], memory_order_relaxed) == 0))
        atomic_store_explicit(&ehx_counters_[c], 1, memory_order_relaxed);
}

/* The pc at which the last throw was handed over to libgcc; 0: none was, or not because of a pc. */
extern _Atomic uint64_t ehx_stopped_;

#pragma GCC visibility pop
#endif
#endif
