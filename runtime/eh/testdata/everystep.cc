/*
 * A program that runs a walk or a throw one instruction at a time, and walks from each: as a profiler does whose signal
 * comes there. The stacks are compared with the calls and returns that were executed. It prints how many instructions
 * were met, and where, and stacks that are wrong.
 *
 *   everystep walk|throw warm|cold [TIMES]
 *   everystep exit|cancel warm     the end of a thread
 *   everystep walk threads [N]     each N-th instruction in a new thread, whose first walk is this one
 */
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "ehunwind.h"

extern "C" char _start[];

enum { MAX = 256, MAX_OBJECTS = 64, SHOWN = 20 };
#define OWN_FRAME __attribute__((noinline, noclone))

/* ------------------------------------------------------------------------------- what is stepped */

static volatile int sink;
static void *array[MAX];

struct Cleanup {
    ~Cleanup() { sink = sink + 1; }
};

typedef void job();
static void walks()
{
    if (ehu_backtrace(array, MAX) < 8)
        abort();
    sink = 0;
}
static void throws() { throw std::runtime_error("x"); }
static void exits() { pthread_exit(array); }
static void is_cancelled()
{
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state); /* else a signal comes, whose handler is not stepped */
    pthread_cancel(pthread_self());
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
    pthread_testcancel();
}
static const struct {
    const char *name;
    job *j;
} jobs[] = {{"walk", walks}, {"throw", throws}, {"exit", exits}, {"cancel", is_cancelled}};

OWN_FRAME static void f4(job *j)
{
    Cleanup c;
    j();
    sink = sink + 1;
}
OWN_FRAME static void f3(job *j)
{
    volatile char a[64];
    a[sink & 1] = 1;
    f4(j);
    sink = a[0];
}
/* All registers that functions preserve are in use. */
OWN_FRAME static void f2(job *j)
{
    long a = sink, b = a + sink, c = b + sink, d = c + sink, e = d + sink, f = e + sink;
    Cleanup g;
    f3(j);
    sink = (int)(a ^ b ^ c ^ d ^ e ^ f);
}
OWN_FRAME static void f1(job *j)
{
    f2(j);
    sink = sink + 1;
}

static bool caught;
OWN_FRAME static void act(job *j)
{
    caught = false;
    try {
        f1(j);
    } catch (std::runtime_error &) {
        caught = true;
    }
}

/* ------------------------------------------------------------------------------- the calls, as executed */

struct Call {
    uint64_t slot, to; /* where the return address is, and what it is */
};
static Call calls[MAX];
static int depth;
static void *base[MAX]; /* the frames above */
static int above;

enum Kind { OTHER, CALL, RETURN, JUMP };

/* kind_of says whether an instruction is a call, a return or an indirect jump. */
static Kind kind_of(const uint8_t *p)
{
    while (*p == 0x66 || *p == 0xf2 || *p == 0xf3 || *p == 0x2e || *p == 0x3e || (*p & 0xf0) == 0x40)
        p++;
    if (*p == 0xe8 || (*p == 0xff && (p[1] >> 3 & 7) == 2))
        return CALL;
    if (*p == 0xc3 || *p == 0xc2)
        return RETURN;
    return *p == 0xff && (p[1] >> 3 & 7) == 4 ? JUMP : OTHER;
}

/*
 * What changes the stack, to go on at a landing pad, jumps there afterwards: until then the pad's frame is live, and
 * its pc is where the jump will lead. landing says so, and pad is what walks have said.
 */
static bool landing;
static uint64_t pad;

static long wrong, shorter;

static void report(const char *what, uint64_t pc, void *const *got, int n)
{
    if (wrong + shorter > SHOWN)
        return;
    printf("%s at %p:", what, (void *)pc);
    for (int i = 0; i < n && i < 12; i++)
        printf(" %p", got[i]);
    printf(", called:");
    for (int i = depth; i-- > 0;)
        printf(" %p", (void *)calls[i].to);
    puts("");
}

/* follow takes note of an instruction that was executed at before, with the stack at rsp_before. */
static void follow(uint64_t before, Kind kind, uint64_t rsp_before, uint64_t pc, uint64_t rsp)
{
    int n = depth;
    while (depth > 0 && calls[depth - 1].slot < rsp)
        depth--;
    if (landing && kind == JUMP) {
        landing = false;
        if (pad != 0 && pad != pc) {
            wrong++;
            report("another landing pad", before, (void **)&pad, 1);
        }
    } else if (depth < n && kind != RETURN) {
        landing = true;
        pad = 0;
    }
    if (kind == CALL && rsp == rsp_before - 8 && depth < MAX) {
        memcpy(&calls[depth].to, (const void *)rsp, 8);
        calls[depth++].slot = rsp;
    }
}

/* compare compares a stack from pc with the calls. */
static void compare(uint64_t pc, void *const *got, int n)
{
    int want = 1 + landing + depth + above, i = 1;
    bool same = n > 0 && got[0] == (void *)pc;
    if (landing && n > 1) {
        same = same && (pad == 0 || got[1] == (void *)pad);
        pad = (uint64_t)got[i++];
    }
    for (int d = depth; d-- > 0 && i < n; i++)
        same = same && got[i] == (void *)calls[d].to;
    for (int d = 0; d < above && i < n; i++, d++)
        same = same && got[i] == base[d];
    if (same && n == want)
        return;
    if (same && n < want) {
        shorter++;
        report("short", pc, got, n);
        return;
    }
    wrong++;
    report("wrong", pc, got, n);
}

/* ------------------------------------------------------------------------------- steps */

static struct {
    uint64_t low, high;
    bool libgcc;
} objects[MAX_OBJECTS];
static int num_objects;

static int note(struct dl_phdr_info *info, size_t, void *)
{
    for (int i = 0; i < info->dlpi_phnum && num_objects < MAX_OBJECTS; i++) {
        const ElfW(Phdr) &p = info->dlpi_phdr[i];
        if (p.p_type == PT_LOAD && p.p_flags & PF_X)
            objects[num_objects++] = {info->dlpi_addr + p.p_vaddr, info->dlpi_addr + p.p_vaddr + p.p_memsz,
                                      strstr(info->dlpi_name, "libgcc_s.so.1") != NULL};
    }
    return 0;
}

static long steps, in_eh_elfs, in_libgcc, landings;
static volatile bool stepping;

static void count(uint64_t pc)
{
    steps++;
    landings += landing;
    for (int i = 0; i < num_objects; i++)
        if (pc >= objects[i].low && pc < objects[i].high) {
            in_libgcc += objects[i].libgcc;
            return;
        }
    in_eh_elfs++; /* which no loader knows */
}

/* skip_masks leaves out a system call that blocks signals: without the trap the kernel would end the program. */
static void skip_masks(greg_t *regs)
{
    enum { SIGPROCMASK = 14, LENGTH = 2 };
    if (memcmp((const void *)regs[REG_RIP], "\x0f\x05", LENGTH) == 0 && regs[REG_RAX] == SIGPROCMASK &&
        (uint64_t)regs[REG_RDI] <= SIG_SETMASK) {
        regs[REG_RIP] += LENGTH;
        regs[REG_RAX] = 0;
    }
}

static long at, only = -1; /* instructions of this run; the one to walk from, or all */

static void look(ucontext_t *uc, uint64_t pc)
{
    void *got[MAX];
    ehu_cursor_t c;
    int n = 0;
    count(pc);
    compare(pc, got, (int)ehu_backtrace_from(uc, got, MAX));
    ehu_cursor_init_from(&c, uc);
    do {
        uint64_t value;
        ehu_get_reg(&c, EH_ELF_RIP, &value);
        got[n++] = (void *)value;
    } while (n < MAX && ehu_step(&c) == 1);
    compare(pc, got, n);
}

static void on_trap(int, siginfo_t *, void *context)
{
    static uint64_t pc, rsp;
    static Kind kind;
    ucontext_t *uc = (ucontext_t *)context;
    greg_t *regs = uc->uc_mcontext.gregs;
    if (!stepping) {
        pc = 0;
        return;
    }
    if (pc != 0)
        follow(pc, kind, rsp, (uint64_t)regs[REG_RIP], (uint64_t)regs[REG_RSP]);
    skip_masks(regs);
    pc = (uint64_t)regs[REG_RIP];
    rsp = (uint64_t)regs[REG_RSP];
    kind = kind_of((const uint8_t *)pc);
    if (only < 0 || at == only)
        look(uc, pc);
    at++;
}

#define TRAPS(op) asm volatile("pushfq; " op ", (%%rsp); popfq; nop" ::: "memory", "cc")

/* Stepping ends when the frame is left, in whatever way. */
struct Stepping {
    Stepping()
    {
        at = 0;
        stepping = true;
    }
    ~Stepping()
    {
        stepping = false;
        TRAPS("andq $~0x100");
    }
};

OWN_FRAME static void stepped(job *j)
{
    if (above == 0) {
        above = (int)ehu_backtrace(base, MAX) - 1; /* the first is in here */
        memmove(base, base + 1, sizeof *base * (size_t)above);
    }
    Stepping s;
    TRAPS("orq $0x100");
    act(j);
}

OWN_FRAME static void *in_thread(void *j)
{
    stepped((job *)j);
    return NULL;
}

OWN_FRAME static void *unstepped(void *j)
{
    act((job *)j);
    return NULL;
}

static void run_thread(void *(*f)(void *), job *j)
{
    pthread_t t;
    void *result;
    if (pthread_create(&t, NULL, f, (void *)j) != 0 || pthread_join(t, &result) != 0 ||
        result != (j == exits ? array : j == is_cancelled ? PTHREAD_CANCELED : NULL))
        abort();
}

static void in_threads(job *j, int every)
{
    for (only = 0; only == 0 || at >= only; only += every)
        run_thread(in_thread, j);
}

static job *job_named(const char *name)
{
    for (auto &n : jobs)
        if (strcmp(n.name, name) == 0)
            return n.j;
    exit(2);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    job *j = job_named(argv[1]);
    int n = argc > 3 ? atoi(argv[3]) : 1;
    bool warm = strcmp(argv[2], "warm") == 0, threads = strcmp(argv[2], "threads") == 0, ends = j == exits ||
        j == is_cancelled;
    struct sigaction sa = {};
    sa.sa_sigaction = on_trap;
    sa.sa_flags = SA_SIGINFO;
    sigaction(SIGTRAP, &sa, NULL);
    ehu_init();
    dl_iterate_phdr(note, NULL);
    for (int i = 0; i < 20 && warm; i++)
        ends ? run_thread(unstepped, j) : act(j);
    if (threads)
        in_threads(j, n);
    for (int times = n; times > 0 && !threads; times--)
        ends ? run_thread(in_thread, j) : stepped(j);
    if (caught != (j == throws) || above < 2 ||
        (!threads && !ends && (uint64_t)base[above - 1] - (uint64_t)_start > 64))
        abort();
    printf("%ld instructions, %ld in eh_elfs, %ld in libgcc_s, %ld landing; %ld short, %ld wrong\n", steps, in_eh_elfs,
        in_libgcc, landings, shorter, wrong);
    return wrong + shorter > 0;
}
