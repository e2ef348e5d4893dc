/*
 * Stacks taken in signal handlers while threads throw, load, fork, are cancelled and switch stacks: storm SECONDS;
 * built with -fno-plt. Functions note their return addresses; the handler compares what ehu_backtrace_from finds with
 * these. Prints how many stacks were right, and where others came from; one that is wrong makes the exit status 1. A
 * short one has no wrong frame, but not all: a library whose constructors run is not known yet.
 */
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include <alloca.h>
#include <atomic>
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "ehunwind.h"

namespace {

constexpr int signal_number = 40, interval = 150000 /* ns */, max_depth = 64, max_frames = 256;
volatile sig_atomic_t judging, over;

// ------------------------------------------------------------------------- what functions note

// The return addresses of functions of this program that have not returned, outermost first.
struct Chain {
    void *to[max_depth];
    volatile int n;
};
thread_local Chain own_chain;
thread_local Chain *volatile chain; // null: another stack is being switched to
std::atomic<void *> met[256];       // each that was ever noted

__attribute__((always_inline)) inline void meet(void *to)
{
    for (size_t i = size_t(to) / 4 % 256;; i = (i + 1) % 256) {
        void *none = nullptr;
        if (met[i].load(std::memory_order_relaxed) == to || met[i].compare_exchange_strong(none, to) || none == to)
            return;
    }
}

bool was_met(void *to)
{
    for (auto &m : met)
        if (m.load(std::memory_order_relaxed) == to)
            return true;
    return false;
}

struct Note {
    __attribute__((always_inline)) explicit Note(void *to)
    {
        Chain *c = chain;
        meet(to);
        c->to[c->n] = to;
        __asm__ volatile("" ::: "memory");
        c->n = c->n + 1;
    }
    __attribute__((always_inline)) ~Note() { chain->n = chain->n - 1; }
    Note(const Note &) = delete;
    Note &operator=(const Note &) = delete;
};
#define NOTED Note noted_here(__builtin_return_address(0))
#define FRAME __attribute__((noinline, noclone))

// ------------------------------------------------------------------------- the handler

uint64_t text_low, text_high; // of this program
std::atomic<unsigned long> right, wrong, shorter, undecided, installing;

bool is_text(void *pc) { return uint64_t(pc) - text_low < text_high - text_low; }

// same reports whether n of the stack's pcs are those noted; fewer: that they are the first of them.
bool same(void *const *got, int n, const Chain *c, bool fewer)
{
    int k = 0;
    for (int i = c->n; i-- > 0;) {
        if (!is_text(c->to[i]))
            continue;
        if (k == n)
            return fewer;
        if (got[k++] != c->to[i])
            return false;
    }
    return k == n;
}

// While libgcc's functions install a frame, to which ours have handed a throw over, they overwrite their own. in_libgcc
// reports whether a stack is in one of them.
struct Range {
    uint64_t low, high;
} installers[4];
int num_installers;

bool in_libgcc(void *const *pcs, int n)
{
    for (int i = 0; i < n; i++)
        for (const Range &r : installers)
            if (uint64_t(pcs[i]) - r.low < r.high - r.low)
                return true;
    return false;
}

// find_installers asks nm where these functions are in our libgcc_s, by names that it does not export.
bool find_installers()
{
    static const char *const functions[] = {"RaiseException", "Resume", "Resume_or_Rethrow", "ForcedUnwind"};
    Dl_info info;
    char command[4096], name[200];
    unsigned long at, size;
    if (!dladdr(dlsym(RTLD_DEFAULT, "_Unwind_Resume"), &info))
        return false;
    snprintf(command, sizeof command, "LD_LIBRARY_PATH= nm -S '%s'", info.dli_fname);
    FILE *symbols = popen(command, "r");
    for (char line[4096]; symbols && fgets(line, sizeof line, symbols);)
        for (const char *function : functions)
            if (sscanf(line, "%lx %lx t libgcc__Unwind_%199s", &at, &size, name) == 3 && strcmp(name, function) == 0 &&
                num_installers < 4)
                installers[num_installers++] = {uint64_t(info.dli_fbase) + at, uint64_t(info.dli_fbase) + at + size};
    return symbols && pclose(symbols) == 0 && num_installers == 4;
}

// judge compares this program's frames of a stack. The first is in the last function that has noted itself, or in one
// called by it that has not yet, or not any more.
void judge(void *const *pcs, int n, const Chain *c)
{
    void *got[max_frames];
    int k = 0;
    for (int i = 0; i < n; i++)
        if (is_text(pcs[i]))
            got[k++] = pcs[i];
    bool called = k > 1 && was_met(got[1]);
    if (k > 0 && (same(got + 1, k - 1, c, false) || (called && same(got + 2, k - 2, c, false)))) {
        right++;
        return;
    }
    if (in_libgcc(pcs, n)) {
        installing++;
        return;
    }
    bool cut = k == 0 || same(got + 1, k - 1, c, true) || (called && same(got + 2, k - 2, c, true));
    if ((cut ? shorter++ : wrong++) >= 20)
        return;
    char line[2000];
    int at = snprintf(line, sizeof line, "%s:", cut ? "short" : "WRONG");
    for (int i = 0; i < n && i < 20; i++) {
        Dl_info info = {};
        dladdr(pcs[i], &info);
        const char *slash = info.dli_fname ? strrchr(info.dli_fname, '/') : nullptr;
        at += snprintf(line + at, sizeof line - size_t(at), " %s+%lx", slash ? slash + 1 : "?",
            (unsigned long)(uint64_t(pcs[i]) - uint64_t(info.dli_fbase)));
    }
    at += snprintf(line + at, sizeof line - size_t(at), ", noted");
    for (int i = c->n; i-- > 0 && at < 1900;)
        at += snprintf(line + at, sizeof line - size_t(at), " %lx", (unsigned long)(uint64_t(c->to[i]) - text_low));
    line[at++] = '\n';
    if (syscall(SYS_write, 2, line, size_t(at)) < 0) // write is a place to be cancelled at
        abort();
}

void handler(int, siginfo_t *, void *context)
{
    int saved = errno;
    void *pcs[max_frames];
    if (const Chain *c = judging ? chain : nullptr)
        judge(pcs, int(ehu_backtrace_from(static_cast<ucontext_t *>(context), pcs, max_frames)), c);
    else
        undecided++;
    errno = saved;
}

struct Timer {
    timer_t id;
    __attribute__((always_inline)) Timer()
    {
        sigevent e = {};
        e.sigev_notify = SIGEV_THREAD_ID;
        e.sigev_signo = signal_number;
        e._sigev_un._tid = int(syscall(SYS_gettid));
        itimerspec every = {{0, interval}, {0, interval}};
        if (timer_create(CLOCK_MONOTONIC, &e, &id) != 0 || timer_settime(id, 0, &every, nullptr) != 0)
            abort();
    }
    __attribute__((always_inline)) ~Timer() { timer_delete(id); }
    Timer(const Timer &) = delete;
    Timer &operator=(const Timer &) = delete;
};

// ------------------------------------------------------------------------- what threads do

volatile int sink;

struct Cleanup {
    ~Cleanup() { sink = sink + 1; }
};

FRAME void many_registers(int n);
FRAME void frame_pointer(int n)
{
    NOTED;
    volatile char *room = static_cast<char *>(alloca(size_t(n) * 16 + 16));
    room[0] = 1;
    many_registers(n - 1);
    sink = room[0];
}
FRAME void plain(int n)
{
    NOTED;
    many_registers(n - 1);
    sink = sink + 1;
}
FRAME void many_registers(int n)
{
    NOTED;
    long a = sink, b = a + sink, c = b + sink, d = c + sink, e = d + sink;
    Cleanup cleanup;
    if (n <= 0)
        throw 7;
    if (n % 3 == 0)
        frame_pointer(n);
    else
        plain(n);
    sink = int(a ^ b ^ c ^ d ^ e);
}
FRAME void again(int n)
{
    NOTED;
    try {
        many_registers(n);
    } catch (int) {
        sink = sink + 1;
        throw;
    }
}
FRAME bool catching(int n)
{
    NOTED;
    try {
        again(n);
    } catch (int &x) {
        return x == 7;
    }
    return false;
}
FRAME void throwing(int i)
{
    NOTED;
    if (!catching(i % 17))
        abort();
}

FRAME void loading(int i)
{
    NOTED;
    static const char *const libraries[] = {"libz.so.1", "liblzma.so.5", "libbz2.so.1.0", "libcrypt.so.1", "libm.so.6"};
    void *handle = dlopen(libraries[i % 5], RTLD_NOW);
    ehu_refresh();
    if (handle)
        dlclose(handle);
    ehu_refresh();
}

FRAME void forking(int)
{
    NOTED;
    pid_t child = fork();
    if (child == 0) {
        void *pcs[max_frames];
        _exit(ehu_backtrace(pcs, max_frames) < 3);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (child < 0 || status != 0)
        abort();
}

FRAME void waits(int n)
{
    NOTED;
    Cleanup cleanup;
    if (n > 0)
        waits(n - 1);
    while (n == 0) {
        int state;
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state); // else it may end in a handler
        usleep(50);
        pthread_setcancelstate(state, nullptr);
        pthread_testcancel();
    }
}
void *cancelled(void *)
{
    chain = &own_chain;
    Timer timer;
    waits(8);
    return nullptr;
}
FRAME void cancelling(int i)
{
    NOTED;
    pthread_t t;
    void *result = nullptr;
    if (pthread_create(&t, nullptr, cancelled, nullptr) != 0)
        abort();
    usleep(unsigned(i * 37 % 1000));
    if (pthread_cancel(t) != 0 || pthread_join(t, &result) != 0 || result != PTHREAD_CANCELED)
        abort();
}

thread_local ucontext_t caller, coroutine;
thread_local Chain coroutine_chain;
__attribute__((always_inline)) inline void swap(ucontext_t *from, ucontext_t *to, Chain *from_chain)
{
    chain = nullptr;
    if (swapcontext(from, to) != 0)
        abort();
    chain = from_chain;
}
FRAME void coroutine_below(int i)
{
    NOTED;
    catching(i % 5);
    swap(&coroutine, &caller, &coroutine_chain);
}
void run_coroutine()
{
    chain = &coroutine_chain;
    for (int i = 0;; i++)
        coroutine_below(i);
}
FRAME void switching(int)
{
    NOTED;
    constexpr size_t size = 262144;
    void *stack = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    getcontext(&coroutine);
    coroutine.uc_stack.ss_sp = stack;
    coroutine.uc_stack.ss_size = size;
    coroutine.uc_link = nullptr;
    coroutine_chain.n = 0;
    makecontext(&coroutine, run_coroutine, 0);
    for (int i = 0; i < 20; i++)
        swap(&caller, &coroutine, &own_chain);
    munmap(stack, size);
}

void (*const jobs[])(int) = {throwing, throwing, throwing, loading, forking, cancelling, switching};
constexpr int num_jobs = sizeof jobs / sizeof *jobs;
std::atomic<unsigned long> done[num_jobs];

void *worker(void *job)
{
    long which = long(job);
    chain = &own_chain;
    Timer timer;
    for (int i = 0; i == 0 || !over; i++) {
        jobs[which](i);
        done[which]++;
    }
    return nullptr;
}

int note_text(dl_phdr_info *info, size_t, void *)
{
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X) {
            text_low = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            text_high = text_low + info->dlpi_phdr[i].p_memsz;
        }
    return 1; // the program is the first
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    dl_iterate_phdr(note_text, nullptr);
    if (!find_installers()) {
        fprintf(stderr, "storm: no libgcc_s.so.1 of ours with symbols: set LD_LIBRARY_PATH\n");
        return 2;
    }
    if (ehu_init() != 0)
        return 2;
    struct sigaction action = {};
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(signal_number, &action, nullptr);
    chain = &own_chain;
    for (auto job : jobs) // so that all return addresses were met
        for (int i = 0; i < 20; i++)
            job(i);
    judging = 1;
    pthread_t t[num_jobs];
    for (long i = 0; i < num_jobs; i++)
        if (pthread_create(&t[i], nullptr, worker, reinterpret_cast<void *>(i)) != 0)
            abort();
    sleep(unsigned(atoi(argv[1])));
    over = 1;
    for (auto &thread : t)
        pthread_join(thread, nullptr);
    printf("%lu stacks right, %lu while stacks were switched, %lu not whole in libgcc's functions, %lu short, %lu wrong; rounds", right.load(),
           undecided.load(), installing.load(), shorter.load(), wrong.load());
    for (auto &n : done)
        printf(" %lu", n.load());
    puts("");
    return wrong != 0;
}
