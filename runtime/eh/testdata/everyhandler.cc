/*
 * A program that runs a throw, a walk or the end of a thread one instruction at a time, with a signal handler that
 * walks, throws, loads or forks. It prints what happened. Instructions of the C library and of the loader are left out,
 * and those of functions that they call: there, handlers may not allocate, whoever unwinds.
 *
 *   everyhandler JOB HANDLER warm|cold fork|alone|many EVERY LIBRARY
 *
 * fork: at each EVERYth instruction a child runs the handler and goes on unstepped. alone: a child for each EVERYth
 * instruction steps to it, runs the handler, and steps on. many: one child runs the handler at each EVERYth
 * instruction. LIBRARY is what handlers load.
 */
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unwind.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "ehunwind.h"

enum { MAX = 256, MAX_RANGES = 16, SHOWN = 20, TRAP_FLAG = 0x100, GOOD = 7, BAD = 8 };
#define OWN_FRAME __attribute__((noinline, noclone))

/* What a child tells its parent. */
struct Figures {
    long steps, signals, left_out, shorter, bad;
    uint64_t pc;
};
static Figures *figures;

static volatile int sink;
static long cleanups;
struct Cleanup {
    ~Cleanup() { cleanups++; }
};

/* ------------------------------------------------------------------------------- handlers */

static const char *library;

OWN_FRAME static void thrower(int n)
{
    Cleanup c;
    if (n == 0)
        throw 7L;
    thrower(n - 1);
    sink = n;
}

static bool throws_and_catches()
{
    long before = cleanups, got = 0;
    try {
        thrower(3);
    } catch (long v) {
        got = v;
    }
    bool good = got == 7 && cleanups == before + 4;
    cleanups = before;
    return good;
}

static bool loads(bool throws)
{
    void *h = dlopen(library, RTLD_NOW);
    void (*f)() = h ? (void (*)())dlsym(h, "dl_throw") : nullptr;
    bool good = f != nullptr;
    if (good && throws) {
        good = false;
        try {
            f();
        } catch (std::exception &) {
            good = true;
        }
    }
    return h && dlclose(h) == 0 && good;
}

static bool forks()
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        void *pcs[MAX];
        _exit(throws_and_catches() && ehu_backtrace(pcs, MAX) > 3 && (!library || loads(true)) ? GOOD : BAD);
    }
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == GOOD;
}

static bool does(const char *what)
{
    if (strcmp(what, "throw") == 0)
        return throws_and_catches();
    if (strcmp(what, "load") == 0)
        return loads(false);
    if (strcmp(what, "fork") == 0)
        return forks();
    return strcmp(what, "walk") == 0 || (loads(true) && throws_and_catches() && forks() && loads(false));
}

/* ------------------------------------------------------------------------------- jobs */

typedef bool Job();
static void *pcs[MAX];
static int frames;
static size_t wanted; /* of a walk that is not stepped */

static bool deep(size_t n)
{
    if (wanted == 0)
        wanted = n;
    return n > 6 && n == wanted;
}

static _Unwind_Reason_Code collect(_Unwind_Context *c, void *)
{
    if (frames < MAX)
        pcs[frames++] = (void *)_Unwind_GetIP(c);
    return _URC_NO_REASON;
}

static bool throws() { throw std::runtime_error("x"); }
static bool rethrows()
{
    try {
        throws();
    } catch (...) {
        throw;
    }
    return false;
}
static bool walks() { return deep(ehu_backtrace(pcs, MAX)); }
static bool backtraces() { return deep((size_t)backtrace(pcs, MAX)); }
static bool unwinds()
{
    frames = 0;
    _Unwind_Backtrace(collect, nullptr);
    return deep((size_t)frames);
}
static bool exits() { pthread_exit(pcs); }
static bool is_cancelled()
{
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state); /* else a signal comes, whose handler is not stepped */
    pthread_cancel(pthread_self());
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
    pthread_testcancel();
    return false;
}

static const struct Named {
    const char *name;
    Job *job;
    bool thread;
} jobs[] = {{"throw", throws, false}, {"rethrow", rethrows, false}, {"walk", walks, false},
    {"backtrace", backtraces, false},
            {"unwind", unwinds, false}, {"exit", exits, true}, {"cancel", is_cancelled, true}};

OWN_FRAME static bool f4(Job *j)
{
    Cleanup c;
    bool good = j();
    sink = sink + 1;
    return good;
}
OWN_FRAME static bool f3(Job *j)
{
    volatile char a[64];
    a[sink & 1] = 1;
    bool good = f4(j);
    sink = a[0];
    return good;
}
OWN_FRAME static bool f2(Job *j)
{
    long a = sink, b = a + sink, c = b + sink, d = c + sink, e = d + sink, f = e + sink;
    Cleanup g;
    bool good = f3(j);
    sink = (int)(a ^ b ^ c ^ d ^ e ^ f);
    return good;
}
OWN_FRAME static bool f1(Job *j)
{
    bool good = f2(j);
    sink = sink + 1;
    return good;
}

OWN_FRAME static bool act(Job *j)
{
    long before = cleanups;
    bool good;
    try {
        good = f1(j);
    } catch (std::runtime_error &) {
        good = true;
    }
    return good && cleanups == before + 2;
}

/* ------------------------------------------------------------------------------- steps */

static struct {
    uint64_t low, high;
} ranges[MAX_RANGES]; /* of code in which nothing is done */
static int num_ranges;
static uint64_t libc_low, libc_high, phdrs; /* dl_iterate_phdr, whose callbacks run with the loader's lock */

static int note(struct dl_phdr_info *info, size_t, void *)
{
    bool libc = strstr(info->dlpi_name, "/libc.so"), ld = strstr(info->dlpi_name, "/ld-linux");
    for (int i = 0; i < info->dlpi_phnum && (libc || ld) && num_ranges < MAX_RANGES; i++) {
        const ElfW(Phdr) &p = info->dlpi_phdr[i];
        if (p.p_type != PT_LOAD || !(p.p_flags & PF_X))
            continue;
        ranges[num_ranges++] = {info->dlpi_addr + p.p_vaddr, info->dlpi_addr + p.p_vaddr + p.p_memsz};
        if (libc)
            libc_low = ranges[num_ranges - 1].low, libc_high = ranges[num_ranges - 1].high;
    }
    return 0;
}

static bool off_limits(uint64_t pc)
{
    for (int i = 0; i < num_ranges; i++)
        if (pc >= ranges[i].low && pc < ranges[i].high)
            return true;
    return false;
}

static volatile bool stepping;
static long at, target, every; /* instructions of this run; where the handler runs */
static enum { FORK, ALONE, MANY } mode;
static bool in_thread, in_child;
static uint64_t mask; /* what the program has blocked: the kernel would end it at a trap that is blocked */
static const char *handler;
OWN_FRAME static bool stepped(Job *j, bool steps);
enum { STEPPED_SIZE = 512 };

/* allowed reports whether a handler may do anything here. A stack that does not lead to the function that steps is short. */
static bool allowed(ucontext_t *uc, uint64_t pc)
{
    void *got[MAX];
    if (off_limits(pc) || (mask >> (SIGUSR1 - 1) & 1))
        return false;
    int n = (int)ehu_backtrace_from(uc, got, MAX);
    for (int i = 0; i < n; i++) {
        uint64_t f = (uint64_t)got[i];
        if (f - (uint64_t)stepped < STEPPED_SIZE)
            return true;
        bool end_of_thread = in_thread && f >= libc_low && f < libc_high && f - phdrs > 1024;
        if (off_limits(f) && !end_of_thread)
            return false;
    }
    figures->shorter++;
    figures->pc = pc;
    return true;
}

/* skip_masks does what a system call that changes the mask does, without it. */
static void skip_masks(greg_t *regs)
{
    enum { SIGPROCMASK = 14, LENGTH = 2 };
    if (memcmp((const void *)regs[REG_RIP], "\x0f\x05", LENGTH) != 0 || regs[REG_RAX] != SIGPROCMASK ||
        (uint64_t)regs[REG_RDI] > SIG_SETMASK)
        return;
    const uint64_t *set = (const uint64_t *)regs[REG_RSI];
    uint64_t *old = (uint64_t *)regs[REG_RDX], before = mask;
    if (set && regs[REG_RDI] == SIG_BLOCK)
        mask |= *set;
    else if (set)
        mask = regs[REG_RDI] == SIG_UNBLOCK ? mask & ~*set : *set;
    if (old)
        *old = before;
    regs[REG_RIP] += LENGTH;
    regs[REG_RAX] = 0;
}

static long dead, hung, wrong;
static void judge(pid_t pid, long where);

/* handle runs the handler here, or in a child that goes on from here. */
static void handle(greg_t *regs)
{
    figures->pc = (uint64_t)regs[REG_RIP];
    figures->signals++;
    if (mode == FORK) {
        pid_t pid = fork();
        if (pid != 0) {
            judge(pid, at - 1);
            return;
        }
        in_child = true;
        regs[REG_EFL] &= ~TRAP_FLAG;
    }
    if (!does(handler))
        figures->bad++;
}

static void on_trap(int, siginfo_t *, void *context)
{
    ucontext_t *uc = (ucontext_t *)context;
    greg_t *regs = uc->uc_mcontext.gregs;
    if (!stepping)
        return;
    skip_masks(regs);
    bool here = mode == ALONE ? at == target : at % every == 0;
    at++;
    if (!here)
        return;
    if (!allowed(uc, (uint64_t)regs[REG_RIP])) {
        figures->left_out++;
        return;
    }
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state); /* functions called here are where threads are cancelled */
    handle(regs);
    pthread_setcancelstate(state, &state);
}

#define TRAPS(op) asm volatile("pushfq; " op ", (%%rsp); popfq; nop" ::: "memory", "cc")

/* Stepping ends when the frame is left, in whatever way. */
struct Stepped {
    long before = cleanups;
    explicit Stepped(bool steps)
    {
        if (steps)
            at = 0;
        stepping = steps;
    }
    ~Stepped()
    {
        stepping = false;
        TRAPS("andq $~0x100");
        if (in_child && in_thread)
            _exit(cleanups == before + 2 ? GOOD : BAD);
    }
};

OWN_FRAME static bool stepped(Job *j, bool steps)
{
    Stepped s(steps);
    if (steps)
        TRAPS("orq $0x100");
    return act(j);
}

struct Run {
    Job *job;
    bool steps;
};

OWN_FRAME static void *run_in_thread(void *arg)
{
    Run *r = (Run *)arg;
    stepped(r->job, r->steps);
    return nullptr;
}

static bool run(const Named &n, bool steps)
{
    if (!n.thread)
        return stepped(n.job, steps);
    Run r = {n.job, steps};
    pthread_t t;
    void *result = nullptr;
    long before = cleanups;
    if (pthread_create(&t, nullptr, run_in_thread, &r) != 0 || pthread_join(t, &result) != 0)
        abort();
    return result == (n.job == exits ? (void *)pcs : PTHREAD_CANCELED) && cleanups == before + 2;
}

/* ------------------------------------------------------------------------------- children */

/* process_time returns the seconds of processor time that a process has taken. */
static double process_time(pid_t pid)
{
    clockid_t clock;
    timespec t = {};
    if (clock_getcpuclockid(pid, &clock) == 0)
        clock_gettime(clock, &t);
    return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

/*
 * end_of returns the status of a child. One that takes no processor time for a minute hangs, and so does one that takes
 * ten minutes of it: on a busy machine, a good one may last long.
 */
static int end_of(pid_t pid)
{
    enum { PAUSE = 100, IDLE = 60 * (1000000 / PAUSE), BUSY = 600 };
    int status;
    double before = -1;
    for (long pauses = 1;; pauses++) {
        pid_t ended = waitpid(pid, &status, WNOHANG);
        if (ended == pid)
            return status;
        if (ended != 0)
            abort();
        usleep(PAUSE);
        if (pauses % IDLE != 0)
            continue;
        double now = process_time(pid);
        if (now == before || now > BUSY)
            kill(pid, SIGALRM);
        before = now;
    }
}

static void judge(pid_t pid, long where)
{
    const char *what = nullptr;
    if (pid < 0)
        abort();
    int status = end_of(pid);
    if (WIFSIGNALED(status)) {
        (WTERMSIG(status) == SIGALRM ? hung : dead)++;
        what = WTERMSIG(status) == SIGALRM ? "hung" : "dead";
        figures->steps = where + 1;
    } else if (WEXITSTATUS(status) != GOOD) {
        wrong++;
        what = "wrong";
    }
    if (what && dead + hung + wrong < SHOWN) {
        Dl_info in = {};
        dladdr((void *)figures->pc, &in);
        printf("%s at %ld: status %x, pc %#lx of %s %s\n", what, where, status, figures->pc - (uint64_t)in.dli_fbase,
            in.dli_fname, in.dli_sname);
    }
}

/* child runs a job in a child, and once more without steps. */
static void child(const Named &n)
{
    pid_t pid = fork();
    if (pid == 0) {
        bool good = run(n, true);
        figures->steps = at;
        _exit(good && run(n, false) ? GOOD : BAD);
    }
    judge(pid, target);
}

static long children(const Named &n)
{
    long count = 0;
    if (mode == MANY) {
        child(n);
        return 1;
    }
    if (mode == ALONE) {
        for (figures->steps = 1; target < figures->steps; target += every, count++)
            child(n);
        return count;
    }
    bool good = run(n, true);
    if (in_child)
        _exit(good && run(n, false) ? GOOD : BAD);
    figures->steps = at;
    wrong += !good;
    return figures->signals;
}

static const Named *named(const char *name)
{
    for (const Named &n : jobs)
        if (strcmp(n.name, name) == 0)
            return &n;
    exit(2);
}

int main(int argc, char **argv)
{
    if (argc < 7)
        return 2;
    const Named *n = named(argv[1]);
    handler = argv[2];
    mode = argv[4][0] == 'f' ? FORK : argv[4][0] == 'a' ? ALONE : MANY;
    every = atol(argv[5]);
    library = argv[6];
    in_thread = n->thread;
    figures = (Figures *)mmap(nullptr, sizeof *figures, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct sigaction sa = {};
    sa.sa_sigaction = on_trap;
    sa.sa_flags = SA_SIGINFO;
    sigaction(SIGTRAP, &sa, nullptr);
    ehu_init();
    phdrs = (uint64_t)dlsym(RTLD_DEFAULT, "dl_iterate_phdr");
    dl_iterate_phdr(note, nullptr);
    for (int i = 0; i < 20 && strcmp(argv[3], "warm") == 0; i++)
        if (!run(*n, false) || !throws_and_catches())
            abort();
    long runs = children(*n);
    printf("%s %s %s %s: %ld runs of %ld instructions, %ld signals, %ld left out; %ld short, %ld failed in handlers, %ld wrong, %ld hung, %ld dead\n", argv[1],
           argv[2], argv[3], argv[4], runs, figures->steps, figures->signals, figures->left_out, figures->shorter,
           figures->bad, wrong, hung, dead);
    return figures->shorter + figures->bad + wrong + hung + dead > 0;
}
