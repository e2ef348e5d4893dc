/*
 * Signals at a high rate while a program does what disturbs an unwinder: signals MODE SECONDS HZ.
 * Each thread has a timer; its handler takes stacks, by the functions that the preload takes over
 * or, compiled with -DDIRECT, by libehunwind. Says what it did; what is wrong makes the exit status 1.
 */
#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <spawn.h>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>
#ifdef DIRECT
#include "ehunwind.h"
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h> // it must be told of coroutines
#else
static void *__tsan_create_fiber(unsigned) { return nullptr; }
static void *__tsan_get_current_fiber() { return nullptr; }
static void __tsan_switch_to_fiber(void *, unsigned) {}
static void __tsan_destroy_fiber(void *) {}
#endif

extern char **environ;

namespace {

constexpr int signal_number = 40, mark = 4711;
// overruns: timers that expired while a signal was still due
std::atomic<unsigned long> samples, overruns, frames, rounds, wrong;
std::atomic<long> armed;                                            // nanoseconds, of all timers
long rate;
double until;

double now()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

bool going() { return now() < until; }

void expect(bool ok, const char *what)
{
    if (!ok && wrong++ < 10)
        fprintf(stderr, "WRONG: %s\n", what);
}

// ------------------------------------------------------------------------- stacks

#ifdef DIRECT
int take(unsigned long turn, void *context)
{
    void *pcs[128];
    auto *u = static_cast<ucontext_t *>(context);
    switch (u ? turn % 4 : 1) {
    case 0: return int(ehu_backtrace_from(u, pcs, 128));
    case 1: return int(ehu_backtrace(pcs, 128));
    case 2: return int(ehu_backtrace_from(u, pcs, 1 + turn / 4 % 7));
    }
    ehu_cursor_t c;
    int n = 1;
    ehu_cursor_init_from(&c, u);
    while (n < 300 && ehu_step(&c) == 1)
        n++;
    return n;
}
void changed() { ehu_refresh(); }
#else
_Unwind_Reason_Code count(_Unwind_Context *c, void *arg)
{
    int *n = static_cast<int *>(arg);
    (void)_Unwind_GetIP(c);
    return ++*n > 200 ? _URC_END_OF_STACK : _URC_NO_REASON;
}
int take(unsigned long turn, void *)
{
    void *pcs[128];
    int n = 0;
    switch (turn % 3) {
    case 0: return backtrace(pcs, 128);
    case 1: return backtrace(pcs, 2);
    }
    _Unwind_Backtrace(count, &n);
    return n;
}
void changed() {}
#endif

std::atomic<int> fork_every;

void handler(int, siginfo_t *info, void *context)
{
    int saved = errno;
    errno = mark;
    overruns += unsigned(info->si_overrun);
    unsigned long turn = samples++;
    frames += unsigned(take(turn, context));
    if (errno != mark)
        wrong++;
    if (int every = fork_every; every > 0 && turn % unsigned(every) == 0) { // whatever was interrupted
        pid_t child = fork();
        if (child == 0)
            _exit(take(0, context) < 1);
        int status = 0;
        if (child > 0 && waitpid(child, &status, 0) == child && status != 0)
            wrong++;
    }
    errno = saved;
}

struct timer {
    timer_t id;
    double begin;
};

timer start_timer()
{
    sigevent e = {};
    e.sigev_notify = SIGEV_THREAD_ID;
    e.sigev_signo = signal_number;
    e._sigev_un._tid = int(syscall(SYS_gettid));
    timer_t t;
    itimerspec every = {};
    every.it_interval.tv_nsec = 1000000000 / rate;
    every.it_value = every.it_interval;
    if (timer_create(CLOCK_MONOTONIC, &e, &t) != 0 || timer_settime(t, 0, &every, nullptr) != 0) {
        perror("timer");
        exit(3);
    }
    return {t, now()};
}

void end_timer(void *t)
{
    auto *ended = static_cast<timer *>(t);
    timer_delete(ended->id);
    armed += long((now() - ended->begin) * 1e9);
}

// -------------------------------------------------------------------------- modes

const char *const libraries[] = {"libm.so.6", "libz.so.1", "liblzma.so.5", "libbz2.so.1.0", "libcrypt.so.1"};

void loading()
{
    while (going())
        for (const char *name : libraries) {
            void *handle = dlopen(name, RTLD_NOW);
            changed();
            if (handle) {
                dlsym(handle, "nothing");
                dlclose(handle);
                changed();
            }
            rounds++;
        }
}

void forking()
{
    while (going()) {
        pid_t child = fork();
        if (child == 0)
            _exit(take(0, nullptr) < 3);
        int status = 0;
        expect(child > 0 && waitpid(child, &status, 0) == child && status == 0, "a child");
        rounds++;
    }
}

void spawning()
{
    char name[] = "/bin/true", *args[] = {name, nullptr};
    while (going()) {
        pid_t child;
        if (posix_spawn(&child, name, nullptr, nullptr, args, environ) == 0)
            waitpid(child, nullptr, 0);
        child = vfork();
        if (child == 0) {
            execve(name, args, environ);
            _exit(1);
        }
        int status = 0;
        expect(child > 0 && waitpid(child, &status, 0) == child && status == 0, "a child of vfork");
        rounds++;
    }
}

__attribute__((noinline)) int thrower(int n)
{
    std::string s(size_t(n), 'x');
    if (n == 0)
        throw std::runtime_error("thrown");
    return thrower(n - 1) + int(s.size());
}

void throwing()
{
    while (going())
        for (int i = 0; i < 50; i++) {
            bool caught = false;
            try {
                thrower(i % 20);
            } catch (std::exception &) {
                caught = true;
            }
            expect(caught, "an exception");
            rounds++;
        }
}

__attribute__((noinline)) int jump(jmp_buf to, int n)
{
    volatile char room[200];
    room[n] = 1;
    if (n <= 0) {
        if (n == 0)
            longjmp(to, 1);
        return n;
    }
    return jump(to, n - 1) + room[n];
}

void jumping()
{
    while (going())
        for (volatile int i = 0; i < 100; i = i + 1) {
            jmp_buf to;
            sigjmp_buf there;
            if (setjmp(to) == 0)
                jump(to, i % 30);
            if (sigsetjmp(there, 1) == 0)
                siglongjmp(there, 1);
            rounds++;
        }
}

void *map(size_t size) { return mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }

thread_local ucontext_t caller, coroutine;
thread_local void *caller_fiber;
void run_coroutine()
{
    for (;;) {
        volatile char room[500];
        room[3] = 1;
        __tsan_switch_to_fiber(caller_fiber, 0);
        expect(swapcontext(&coroutine, &caller) == 0 && room[3] == 1, "a coroutine");
    }
}

void switching()
{
    constexpr size_t size = 65536;
    while (going()) {
        void *stack = map(size);
        getcontext(&coroutine);
        coroutine.uc_stack.ss_sp = stack;
        coroutine.uc_stack.ss_size = size;
        coroutine.uc_link = nullptr;
        makecontext(&coroutine, run_coroutine, 0);
        caller_fiber = __tsan_get_current_fiber();
        void *fiber = __tsan_create_fiber(0);
        for (int i = 0; i < 50; i++) {
            __tsan_switch_to_fiber(fiber, 0);
            swapcontext(&caller, &coroutine);
        }
        __tsan_destroy_fiber(fiber);
        munmap(stack, size);
        rounds++;
    }
}

void alternating()
{
    constexpr size_t size = 65536;
    while (going()) {
        stack_t s = {}, none = {};
        none.ss_flags = SS_DISABLE;
        s.ss_sp = map(size);
        s.ss_size = size;
        sigaltstack(&s, nullptr);
        for (double end = now() + 20e-6; now() < end;)
            ;
        while (sigaltstack(&none, nullptr) != 0)
            ;
        munmap(s.ss_sp, size);
        rounds++;
    }
}

bool cancelled_load = true;

void *cancelled(void *loads)
{
    timer t = start_timer();
    pthread_cleanup_push(end_timer, &t);
    for (;;) {
        usleep(50);
        pthread_testcancel();
        if (loads) { // a refresh is no place to end at
            void *handle = dlopen("libm.so.6", RTLD_NOW);
            changed();
            if (handle)
                dlclose(handle);
        }
        free(malloc(1000));
    }
    pthread_cleanup_pop(1);
    return nullptr;
}

void cancelling()
{
    while (going()) {
        pthread_t t;
        pthread_attr_t a;
        pthread_attr_init(&a);
        pthread_attr_setstacksize(&a, 131072);
        void *loads = cancelled_load && rounds % 2 ? &a : nullptr, *result = nullptr;
        if (pthread_create(&t, &a, cancelled, loads) == 0) {
            usleep(unsigned(rand() % 1500));
            pthread_cancel(t);
            pthread_join(t, &result);
            expect(result == PTHREAD_CANCELED, "a cancelled thread");
        }
        pthread_attr_destroy(&a);
        rounds++;
    }
}

void *in_small_stack(void *)
{
    for (int i = 0; i < 20; i++)
        take(unsigned(i) & 1, nullptr);
    return nullptr;
}

__attribute__((noinline)) int deep(int n)
{
    volatile char room[600];
    room[n % 600] = 1;
    return n > 0 ? deep(n - 1) + room[0] : 0;
}

void recursing()
{
    while (going()) {
        deep(rand() % 10000);
        rounds++;
    }
}

void starting()
{
    while (going()) {
        pthread_t t;
        pthread_attr_t a;
        pthread_attr_init(&a);
        pthread_attr_setstacksize(&a, 20480);
        if (pthread_create(&t, &a, in_small_stack, nullptr) == 0)
            pthread_join(t, nullptr);
        pthread_attr_destroy(&a);
        rounds++;
    }
}

/*
 * Modes at the same time. libgcc crashes if a signal interrupts the last instructions of its throws or of swapcontext:
 * rows are wrong there, and lead libgcc to read code anywhere. While an object is loaded, the preload hands stacks on
 * to libgcc. So under the preload, as without it, some threads may load, or others throw and switch, not both.
 */
enum { ALL_LOADING = 1, ALL_THROWING = 2, ALL = 4, ANY = ALL_LOADING | ALL_THROWING | ALL };
struct {
    const char *name;
    void (*run)();
    int fork_every; // in the handler; 0: never
    int together;   // in which of these it takes part
} modes[] = {
    {"loading", loading, 0, ALL | ALL_LOADING},    {"loading-forks", loading, 20, 0},
    {"forking", forking, 0, 0},                    {"spawning", spawning, 0, ANY},
    {"throwing", throwing, 0, ALL | ALL_THROWING}, {"jumping", jumping, 0, ANY},
    {"switching", switching, 0, ALL | ALL_THROWING}, {"alternating", alternating, 0, ANY},
    {"cancelling", cancelling, 0, ALL | ALL_THROWING}, {"recursing", recursing, 0, ANY},
    {"starting", starting, 0, ANY},
};
const struct {
    const char *name;
    int bit;
} sets[] = {{"all-loading", ALL_LOADING}, {"all-throwing", ALL_THROWING}, {"all", ALL}};

void *with_timer(void *mode)
{
    timer t = start_timer();
    static_cast<decltype(&modes[0])>(mode)->run();
    end_timer(&t);
    return nullptr;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    until = now() + atof(argv[2]);
    rate = atol(argv[3]);
#ifdef DIRECT
    if (ehu_init() != 0)
        return 2;
#endif
    for (unsigned long i = 0; i < 4; i++) // loads what the first stack loads
        if (i % 4 != 0)
            take(1, nullptr);
    void *first[4];
    backtrace(first, 4);
    struct sigaction action = {};
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
    sigaction(signal_number, &action, nullptr);
    bool known = false;
    for (auto &set : sets) {
        if (strcmp(argv[1], set.name) != 0)
            continue;
        pthread_t t[16];
        int n = 0;
        cancelled_load = set.bit != ALL_THROWING;
        for (auto &m : modes)
            if (m.together & set.bit && pthread_create(&t[n], nullptr, with_timer, &m) == 0)
                n++;
        forking();
        for (int i = 0; i < n; i++)
            pthread_join(t[i], nullptr);
        known = true;
    }
    for (auto &m : modes)
        if (strcmp(argv[1], m.name) == 0) {
            fork_every = m.fork_every;
            with_timer(&m);
            known = true;
        }
    printf("%s: %lu samples, %.0f a second and timer, %lu overrun, %lu frames, %lu rounds, %lu wrong\n", argv[1],
        samples.load(),
           double(samples) / (double(armed) * 1e-9), overruns.load(), frames.load(), rounds.load(), wrong.load());
    return !known || wrong != 0;
}
