/*
 * Slots that are written while they are read, between any two instructions of the reader: it is single-stepped, and
 * handlers write. What the reader says must match one of the contents, and no word beyond the stack may be read: there
 * is no memory. Prints the names of the cases; the last are readers of the table of objects that come and go in
 * handlers, as stacks that a handler switches to do. With an argument threads write and read, for the thread sanitizer.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ucontext.h>

#include "../context.c"
#include "../../src/plain.c"
#include "../known.c"
#include "../paths.c"

/* What belongs to the parts that are not here. */
struct ehu_slot ehu_slots_[NUM_SLOTS];
_Atomic uintptr_t ehu_current_;
_Atomic uint64_t ehx_counters_[NUM_EHX_COUNTERS];
bool ehx_counting_, ehx_active_ = true;
static uint64_t loads_word = 4;
static uint32_t loaded_word = 1;
const uint64_t *ehx_loads_ = &loads_word, *ehx_entry_loads_ = &loads_word;
const uint32_t *ehx_loaded_ = &loaded_word;
_Atomic uint64_t ehx_table_loads_ = 7;
ehx_personality *ehx_gxx_ = (ehx_personality *)8;
void ehx_site_(const struct ehu_table *t, const struct ehu_object *o, uint64_t pc, struct ehx_what *is)
{
    (void)t, (void)o, (void)pc, (void)is;
}
bool ehx_is_pointer_(uint64_t type) { return (void)type, false; }
enum ehx_verdict ehx_recall_(struct ehx_exception *e, uint64_t type, uint64_t place, uint64_t loads)
{
    (void)e, (void)type, (void)place, (void)loads;
    return VERDICT_UNKNOWN;
}

/* ------------------------------------------------------------------------------- steps */

static volatile int step, first, second;
static void (*writes[2])(void);
static const char *failed_case;

static void on_trap(int sig, siginfo_t *info, void *context)
{
    (void)sig, (void)info;
    step++;
    if (step == first)
        writes[0]();
    if (step == second) {
        writes[1]();
        ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~0x100; /* the rest is not stepped */
    }
}

static void on_fault(int sig)
{
    printf("%s: signal %d with writers at %d and %d\n", failed_case, sig, first, second);
    fflush(stdout);
    _Exit(1);
}

#define STEPPED(call)                                                        \
    do {                                                                     \
        __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory"); \
        call;                                                                \
        __asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory"); \
    } while (0)

static void wrong(const char *what)
{
    printf("%s: %s, writers at %d and %d\n", failed_case, what, first, second);
    exit(1);
}

/* run calls the reader with a writer at each of its steps, and another after it. */
static void run(const char *name, void (*before)(void), void (*reader)(void), bool (*used)(void))
{
    static const int behind[] = {2, 12, 1000};
    int uses = 0;
    failed_case = name;
    step = first = 1;
    for (; step >= first; first++) /* until the reader ends before */
        for (size_t i = 0; i < sizeof behind / sizeof *behind; i++) {
            before();
            second = first + behind[i];
            step = 0;
            STEPPED(reader());
            uses += used();
        }
    if (first <= 10 || uses == 0)
        wrong("not stepped, or never used");
    printf("%s\n", name);
}

/* ------------------------------------------------------------------------------- a stack */

enum { WORDS = 64, LOADS = 7, FAR = 4000, KEY = 0x1000, RETURNS = 0x2000, TYPE = 0x3000, PAD = 0x4000 };
static uint64_t *stack; /* the last WORDS of memory */

static void make_stack(void)
{
    char *p = mmap(NULL, 4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p, 2 * PAGE, PROT_READ | PROT_WRITE) != 0)
        exit(2);
    stack = (uint64_t *)(void *)(p + 2 * PAGE) - WORDS;
    for (int i = 0; i < WORDS; i++)
        stack[i] = RETURNS + 16 * (uint64_t)i;
}

/* ------------------------------------------------------------------------------- known */

static struct ehx_known *slot;
static struct ehx_what one = {.step = {.cfa = 16, .others = {2}}, .pad = 1},
    two = {.step = {.cfa = 8 * FAR, .kind = KIND_CLEANUP, .others = {3}}, .pad = 2};
static __thread struct ehx_seen seen;
static __thread struct ehx_what all;
static __thread bool found;

static void write_one(void) { write_known(slot, &one, KEY * 2, LOADS); }
static void write_two(void) { write_known(slot, &two, KEY * 2 + 64, LOADS); }
static void write_old(void) { write_known(slot, &two, KEY * 2, LOADS - 2); }
static __attribute__((noinline)) void read_known(void) { found = ehx_in_slot_(&seen, slot, KEY * 2, LOADS); }
static __attribute__((noinline)) void read_all(void) { found = all_in(&all, slot, KEY * 2, LOADS); }
static bool used_known(void)
{
    if (found && (seen.step.cfa != 16 || seen.step.kind != KIND_SKIP || seen.step.others[0] != 2 || seen.pad != 1 ||
        seen.slot != slot))
        wrong("not what was written for it");
    return found;
}
static bool used_all(void)
{
    if (found && (memcmp(&all.step, &one.step, sizeof one.step) != 0 || all.pad != 1 || all.function || all.lsda ||
        all.personality))
        wrong("not what was written for it");
    return found;
}

static void known(void)
{
    void (*others[])(void) = {write_two, write_old};
    for (int i = 0; i < 2; i++) {
        writes[0] = others[i];
        writes[1] = write_one;
        run("known, there and back", write_one, read_known, used_known);
        run("known, all of it", write_one, read_all, used_all);
        writes[0] = write_one;
        writes[1] = others[i];
        run("known, only for a while", others[i], read_known, used_known);
    }
}

/* ------------------------------------------------------------------------------- strides */

static struct ehx_stride near_stride, far_stride;
static struct ehx_known *from;
static __thread struct ehx_frame frame;
static uint64_t rbp_before;

static void write_near(void) { write_stride(&ehx_strides_[5], &near_stride); }
static void write_far(void) { write_stride(&ehx_strides_[5], &far_stride); }
static __attribute__((noinline)) void read_stride(void)
{
    seen.slot = from;
    frame = (struct ehx_frame){.rsp = (uint64_t)(uintptr_t)stack, .pc = KEY, .rbp = rbp_before};
    found = ehx_stride_(&frame, &seen, LOADS, 1 << KIND_SKIP);
}
static bool used_stride(void)
{
    if (found && (frame.rsp != (uint64_t)(uintptr_t)(stack + 13) || frame.pc != stack[12] ||
        seen.slot != &ehx_known_[9] || frame.rbp != stack[10]))
        wrong("not the frame that it leads to");
    if (!found && (frame.rsp != (uint64_t)(uintptr_t)stack || frame.pc != KEY || frame.rbp != rbp_before))
        wrong("changed");
    return found;
}

static void make_strides(void)
{
    from = &ehx_known_[5];
    /* The same first frame: one way that is on this stack, and one whose return addresses are far away. */
    near_stride = (struct ehx_stride){.start = KEY * 2, .loads = LOADS, .n = 6, .kinds = 1, .last = 9, .reg = {11},
        .up = 13 * 8, .pc_after = stack[12]};
    far_stride = near_stride;
    for (int i = 0; i < 8; i++) {
        int at = i < 6 ? 2 * i + 2 : 12;
        near_stride.at[i] = (uint16_t)at;
        near_stride.pc[i] = stack[at];
        far_stride.at[i] = (uint16_t)(i == 0 ? 2 : FAR + at);
        far_stride.pc[i] = i == 0 ? 1 : 2;
    }
    far_stride.reg[0] = FAR;
    far_stride.up = 8 * FAR;
    far_stride.last = 10;
}

static void strides(void)
{
    writes[0] = write_near, writes[1] = write_far;
    run("stride, far to near to far", write_far, read_stride, used_stride);
    writes[0] = write_far, writes[1] = write_near;
    run("stride, near to far to near", write_near, read_stride, used_stride);
}

/* ------------------------------------------------------------------------------- trails */

static struct ehx_trail near_trail, far_trail, *trail;
static __thread struct ehx_landing landing;
static __thread struct ehx_cxa thrown;

static void write_near_trail(void) { write_trail(trail, &near_trail); }
static void write_far_trail(void) { write_trail(trail, &far_trail); }
static __attribute__((noinline)) void read_trail(void)
{
    struct ehx_trail *learn;
    thrown = (struct ehx_cxa){.type = TYPE, .e = {.class = CLASS_GNU}};
    landing = (struct ehx_landing){.frame = {.rsp = (uint64_t)(uintptr_t)stack, .pc = KEY, .rbp = rbp_before}};
    found = ehx_follow_(&landing, &thrown.e, LOADS, &learn);
}
static bool used_trail(void)
{
    const struct ehx_frame *f = &landing.frame;
    if (found && (f->rsp != (uint64_t)(uintptr_t)(stack + 7) || f->pc != PAD || f->rbp != stack[5] ||
        landing.rdx != 3 || thrown.selector != 3 ||
                  thrown.caught.pad != PAD || thrown.e.private_2 != (uint64_t)(uintptr_t)(stack + 7)))
        wrong("not where it leads to");
    if (!found && (f->rsp != (uint64_t)(uintptr_t)stack || f->pc != KEY || f->rbp != rbp_before ||
        thrown.selector != 0))
        wrong("changed");
    return found;
}

static void make_trails(void)
{
    slot = &ehx_known_[ehx_slot_(KEY * 2)];
    write_one();
    trail = &ehx_trails_[(stack[1] * KNOWN_HASH ^ TYPE * 0xc2b2ae3d27d4eb4fu) >> 55];
    near_trail = (struct ehx_trail){.type = TYPE, .loads = LOADS, .n = 3, .pc = {KEY, stack[1], stack[3], stack[6]},
        .at = {1, 3, 6},
                                    .rsp = 7, .reg = {6}, .selector = 3, .pad = PAD, .caught = {.pad = PAD}};
    far_trail = near_trail;
    for (int i = 1; i <= 3; i++) {
        far_trail.pc[i] = 1;
        far_trail.at[i - 1] = (uint16_t)(i == 1 ? 1 : FAR + i);
    }
    far_trail.selector = 4;
    far_trail.reg[0] = far_trail.rsp = FAR;
    far_trail.caught.pad = far_trail.pad = PAD + 1;
}

static void trails(void)
{
    writes[0] = write_near_trail, writes[1] = write_far_trail;
    run("trail, far to near to far", write_far_trail, read_trail, used_trail);
    writes[0] = write_far_trail, writes[1] = write_near_trail;
    run("trail, near to far to near", write_near_trail, read_trail, used_trail);
}

/* ------------------------------------------------------------------------------- _Unwind_Resume and _Unwind_RaiseException */

/* resume calls it with the stack as if a frame of cfa 16 had, whose caller has a cleanup: at pad, or somewhere else. */
void _Unwind_Resume(struct ehx_exception *e);
void _Unwind_RaiseException(struct ehx_exception *e);
uint64_t pad(struct ehx_exception *e, uint64_t *stack, void (*function)(struct ehx_exception *));
void slow_pad(void), wrong_pad(void);
__asm__(".text\n"
        "pad: push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15; mov %rsp, saved(%rip); mov %rsi, %rsp; xor %r12d, %r12d\n"
        "xor %ebp, %ebp; jmp *%rdx\n"
        "good_pad: mov %rdx, seen_rdx(%rip); mov %rbp, seen_rbp(%rip); mov %r12, seen_r12(%rip); mov %rsp, seen_rsp(%rip); mov $1, %eax; jmp 1f\n"
        "wrong_pad: mov $2, %eax; jmp 1f\n"
        "slow_pad: mov $3, %eax\n"
        "1: mov saved(%rip), %rsp; pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx; ret\n");
void good_pad(void);
uint64_t saved, seen_rdx, seen_rbp, seen_r12, seen_rsp;
static uint64_t resumed;
static struct ehx_what caller = {.step = {.cfa = 16, .kind = KIND_CLEANUP}};
static struct ehx_known *caller_slot, *callee_slot;

struct ehx_answer ehx_resume_(struct ehx_exception *e, struct ehx_landing *to)
{
    (void)e;
    to->frame.pc = (uint64_t)(uintptr_t)slow_pad;
    return (struct ehx_answer){ANSWER_LAND, 0};
}
struct ehx_answer ehx_raise_(struct ehx_exception *e, struct ehx_landing *to) { return ehx_resume_(e, to); }
struct ehx_answer ehx_rethrow_(void) { abort(); }
struct ehx_answer ehx_forced_(void) { abort(); }
void ehx_learn_sizes_(void) { abort(); }
void ehx_fill_(struct ehx_context *c) { c->filled = true; }

static __attribute__((noinline)) void read_resume(void)
{
    static struct ehx_exception e;
    resumed = pad(&e, stack, _Unwind_Resume);
}
static bool used_resume(void)
{
    if (resumed == 2 || resumed == 0 ||
        (resumed == 1 && (seen_r12 != stack[2 - 1] || seen_rsp != (uint64_t)(uintptr_t)(stack + 3))))
        wrong("not where it goes on");
    return resumed == 1;
}
static void write_callee(void)
{
    write_known(callee_slot, &one, stack[0] * 2, LOADS); callee_slot->next[0] = (uint16_t)(caller_slot - ehx_known_);
}
static void write_callee_two(void)
{
    struct ehx_what other = two;
    other.step.kind = KIND_SKIP;
    write_known(callee_slot, &other, stack[0] * 2 + 64, LOADS);
}
static void write_caller(void) { write_known(caller_slot, &caller, stack[2] * 2, LOADS); }
static void write_caller_two(void)
{
    struct ehx_what other = caller;
    other.pad = (uint64_t)(uintptr_t)wrong_pad;
    write_known(caller_slot, &other, stack[2] * 2 + 64, LOADS);
}
static void write_both(void) { write_callee(), write_caller(); }

/* The caller is the handler's frame: then the pad is the exception's, too. */
static struct ehx_what catcher = {.step = {.cfa = 16, .kind = KIND_ACTION}, .personality = (ehx_personality *)8};
static void write_catcher(void) { write_callee(), write_known(caller_slot, &catcher, stack[2] * 2, LOADS); }
static void write_catcher_two(void)
{
    struct ehx_what other = catcher;
    other.pad = (uint64_t)(uintptr_t)wrong_pad;
    write_known(caller_slot, &other, stack[2] * 2 + 64, LOADS);
}
static __attribute__((noinline)) void read_handler(void)
{
    thrown = (struct ehx_cxa){.selector = 3, .caught = {.pad = catcher.pad},
        .e = {.class = CLASS_GNU, .private_2 = (uint64_t)(uintptr_t)(stack + 3)}};
    resumed = pad(&thrown.e, stack, _Unwind_Resume);
}
static bool used_handler(void) { return used_resume() && (seen_rdx == 3 || (wrong("another selector"), false)); }

static void write_near_raise(void)
{
    struct ehx_trail t = near_trail;
    t.pad = t.caught.pad = (uint64_t)(uintptr_t)good_pad;
    write_trail(&ehx_trails_[2], &t);
}
static void write_far_raise(void)
{
    struct ehx_trail t = far_trail;
    t.pad = t.caught.pad = (uint64_t)(uintptr_t)wrong_pad;
    write_trail(&ehx_trails_[2], &t);
}
/* read_raise has the call's return address at stack[0], below the frame of the trail. */
static __attribute__((noinline)) void read_raise(void)
{
    thrown = (struct ehx_cxa){.type = TYPE, .e = {.class = CLASS_GNU}};
    stack[0] = KEY;
    resumed = pad(&thrown.e, stack, _Unwind_RaiseException);
}
static bool used_raise(void)
{
    bool used = resumed == 1;
    stack[0] = RETURNS;
    if (resumed == 2 || resumed == 0)
        wrong("not where it goes on");
    if (used && (seen_rsp != (uint64_t)(uintptr_t)(stack + 1 + 7) || seen_rbp != stack[1 + 5] || seen_rdx != 3 ||
        thrown.selector != 3 ||
                 thrown.caught.pad != (uint64_t)(uintptr_t)good_pad ||
                 thrown.e.private_2 != (uint64_t)(uintptr_t)(stack + 1 + 7)))
        wrong("not where it leads to");
    if (!used && (thrown.selector != 0 || thrown.caught.pad != 0 || thrown.e.private_2 != 0))
        wrong("changed");
    return used;
}

/* A writer that has begun, with another pad, and ends later, with another key. */
static uint64_t begun;
static void finish(void)
{
    if (atomic_load(&ehx_trails_[2].turn) % 2) {
        __atomic_store_n(&ehx_trails_[2].type, 1, __ATOMIC_RELAXED);
        ehx_end_writing_(&ehx_trails_[2].turn, begun);
    }
    if (atomic_load(&caller_slot->turn) % 2) {
        __atomic_store_n(&caller_slot->key, 1, __ATOMIC_RELAXED);
        ehx_end_writing_(&caller_slot->turn, begun);
    }
}
static void write_raise(void) { finish(), write_near_raise(); }
static void begin_raise(void)
{
    ehx_begin_writing_(&ehx_trails_[2].turn, &begun);
    __atomic_store_n(&ehx_trails_[2].pad, (uint64_t)(uintptr_t)wrong_pad, __ATOMIC_RELAXED);
}
static void write_resume(void) { finish(), write_both(); }
static void begin_resume(void)
{
    ehx_begin_writing_(&caller_slot->turn, &begun);
    __atomic_store_n(&caller_slot->pad, (uint64_t)(uintptr_t)wrong_pad, __ATOMIC_RELAXED);
}

static void raises(void)
{
    for (int i = 1; i <= 3; i++) /* from one word higher */
        near_trail.pc[i] = stack[near_trail.at[i - 1] + 1];
    ehx_hints_[(uint64_t)(uintptr_t)stack / 16 % TRAIL_SLOTS] = (uint16_t)(2 * (sizeof *trail >> TRAIL_UNIT));
    writes[0] = write_near_raise, writes[1] = write_far_raise;
    run("raise, far to near to far", write_far_raise, read_raise, used_raise);
    writes[0] = write_far_raise, writes[1] = write_near_raise;
    run("raise, near to far to near", write_near_raise, read_raise, used_raise);
    writes[0] = begin_raise, writes[1] = finish;
    run("raise, half written", write_raise, read_raise, used_raise);
    writes[0] = begin_resume, writes[1] = finish;
    run("resume, half written", write_resume, read_resume, used_resume);
}

static void resumes(void)
{
    callee_slot = &ehx_known_[ehx_slot_(stack[0] * 2)];
    caller_slot = &ehx_known_[ehx_slot_(stack[2] * 2)];
    caller.pad = (uint64_t)(uintptr_t)good_pad;
    writes[0] = write_callee_two, writes[1] = write_callee;
    run("resume, of the first frame", write_both, read_resume, used_resume);
    writes[0] = write_caller_two, writes[1] = write_caller;
    run("resume, of the second", write_both, read_resume, used_resume);
    catcher.pad = caller.pad;
    writes[0] = write_catcher_two, writes[1] = write_catcher;
    run("resume, to a handler", write_catcher, read_handler, used_handler);
}

/* ------------------------------------------------------------------------------- readers of the table */

/* Another stack of the thread enters while this one leaves, and the other way round. */
static struct ehu_reading mine, other;
static bool other_in;
static void enters(void)
{
    other = ehu_enter_(0);
    other_in = true;
}
static void leaves(void) { ehu_leave_(other), other_in = false; }
static uint64_t readers(void)
{
    uint64_t n = 0;
    for (int i = 0; i < NUM_SLOTS; i++)
        n += atomic_load(&ehu_slots_[i].count[0]) + ehu_own_(&ehu_slots_[i], 0);
    return n;
}
static void nothing(void) {}
static __attribute__((noinline)) void read_table(void)
{
    mine = ehu_enter_(0);
    ehu_leave_(mine);
}
static bool used_table(void)
{
    if (readers() != (uint64_t)other_in)
        wrong("another number of readers");
    if (other_in)
        leaves();
    return readers() == 0;
}

static void tables(void)
{
    writes[0] = enters, writes[1] = nothing;
    run("table, one comes", nothing, read_table, used_table);
    writes[0] = leaves, writes[1] = nothing;
    run("table, one goes", enters, read_table, used_table);
    writes[0] = enters, writes[1] = leaves;
    run("table, one comes and goes", nothing, read_table, used_table);
}

/* ------------------------------------------------------------------------------- threads */

static _Atomic int readers_left = 2;
static void *writer(void *arg)
{
    while (atomic_load(&readers_left) > 0) {
        write_two(), write_one(), write_old(), write_one();
        write_far(), write_near();
        write_far_trail(), write_near_trail();
    }
    return arg;
}
static void *reader(void *arg)
{
    long *uses = arg;
    for (long i = 0; i < 50000 || (i < 50000000 && !(uses[0] && uses[1] && uses[2] && uses[3])); i++) {
        read_known(), uses[0] += used_known();
        read_all(), uses[1] += used_all();
        read_stride(), uses[2] += used_stride();
        read_trail(), uses[3] += used_trail();
    }
    atomic_fetch_sub(&readers_left, 1);
    return NULL;
}

static void threads(void)
{
    pthread_t t[4];
    long uses[2][4] = {{0}};
    failed_case = "threads";
    for (int i = 0; i < 4; i++)
        if (pthread_create(&t[i], NULL, i < 2 ? writer : reader, i < 2 ? NULL : uses[i - 2]) != 0)
            exit(2);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    for (int i = 0; i < 4; i++)
        if (uses[0][i] + uses[1][i] == 0)
            wrong("never used");
    puts("threads");
}

int main(int argc, char **argv)
{
    (void)argv;
    static char alternate[64 << 10];
    stack_t ss = {.ss_sp = alternate, .ss_size = sizeof alternate};
    struct sigaction trap = {.sa_sigaction = on_trap, .sa_flags = SA_ONSTACK | SA_SIGINFO},
        fault = {.sa_handler = on_fault, .sa_flags = SA_ONSTACK};
    sigaltstack(&ss, NULL);
    sigaction(SIGTRAP, &trap, NULL);
    sigaction(SIGSEGV, &fault, NULL);
    sigaction(SIGBUS, &fault, NULL);
    make_stack();
    make_strides();
    make_trails();
    if (argc > 1) {
        threads();
        return 0;
    }
    known();
    strides();
    trails();
    resumes();
    raises();
    tables();
    return 0;
}
