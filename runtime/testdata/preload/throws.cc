// Exceptions of all sorts, while a sampler takes stacks in a signal handler. Prints how
// many of each were thrown and caught; a case that goes wrong is reported.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <exception>
#include <execinfo.h>
#include <functional>
#include <future>
#include <pthread.h>
#include <stdexcept>
#include <sys/time.h>
#include <sys/wait.h>
#include <thread>
#include <typeinfo>
#include <unistd.h>
#include <unwind.h>
#include <vector>

#include "throws.h"

namespace {

volatile int sink;
int failures;

void check(bool ok, const char *what)
{
    if (!ok && failures++ < 10)
        std::fprintf(stderr, "FAIL: %s\n", what);
}

// ------------------------------------------------------------------------- stacks, taken

_Unwind_Reason_Code count(_Unwind_Context *context, void *arg)
{
    sink = static_cast<int>(_Unwind_GetIP(context) + _Unwind_GetCFA(context));
    ++*static_cast<int *>(arg);
    return _URC_NO_REASON;
}

// take_stacks takes one with each interface and returns the number of frames.
__attribute__((noinline)) int take_stacks()
{
    void *pcs[256];
    int n = backtrace(pcs, 256), calls = 0;
    check(_Unwind_Backtrace(count, &calls) == _URC_END_OF_STACK, "the end of the stack");
    check(calls == n + 1, "as many frames"); // and one with pc 0
    return n;
}

volatile sig_atomic_t samples, frames;

void sample(int)
{
    void *pcs[64];
    frames = frames + backtrace(pcs, 64);
    samples = samples + 1;
}

void sampler()
{
    struct sigaction sa = {};
    sa.sa_handler = sample;
    sa.sa_flags = SA_RESTART;
    sigaction(SIGPROF, &sa, nullptr);
    itimerval every = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_PROF, &every, nullptr);
}

// --------------------------------------------------------------------------------- cases

// Witness counts how many were destroyed, and takes stacks while an exception is under way.
struct Witness {
    static int gone;
    ~Witness()
    {
        if (++gone % 8 == 0)
            take_stacks();
    }
};
int Witness::gone;

__attribute__((noinline)) void deep(int depth)
{
    Witness w;
    if (depth == 0)
        throw std::runtime_error("bottom");
    deep(depth - 1);
    sink = depth;
}

void nested()
{
    Witness::gone = 0;
    int caught = 0;
    try {
        try {
            try {
                deep(20);
            } catch (const std::logic_error &) {
                check(false, "wrong type");
            }
        } catch (const std::exception &e) {
            check(std::strcmp(e.what(), "bottom") == 0, "what");
            take_stacks();
            std::throw_with_nested(std::logic_error("around"));
        }
    } catch (const std::logic_error &e) {
        try {
            std::rethrow_if_nested(e);
        } catch (const std::runtime_error &) {
            caught = Witness::gone;
        }
    }
    check(caught == 21, "nested");
}

void rethrown()
{
    int passed = 0;
    std::function<void(int)> rise = [&](int n) {
        try {
            if (n == 0)
                throw 42;
            rise(n - 1);
        } catch (...) {
            passed++;
            throw;
        }
    };
    try {
        rise(10);
    } catch (int i) {
        check(i == 42 && passed == 11, "rethrow");
    }
}

int compare(const void *a, const void *b)
{
    int x = *static_cast<const int *>(a), y = *static_cast<const int *>(b);
    if (x + y == 13)
        throw Special(x * y);
    return x - y;
}

void through_qsort()
{
    int numbers[] = {9, 1, 7, 5, 6, 8, 2, 3, 4};
    bool caught = false;
    try {
        std::qsort(numbers, 9, sizeof *numbers, compare);
    } catch (const Special &s) {
        caught = s.value > 0;
    }
    check(caught, "through qsort");
}

void through_plugin()
{
    void *handle = dlopen(std::getenv("THROWER"), RTLD_NOW);
    check(handle != nullptr, "dlopen");
    if (!handle)
        return;
    auto pass = reinterpret_cast<pass_fn *>(dlsym(handle, "pass"));
    Witness::gone = 0;
    int caught = 0;
    for (int i = 0; i < 3; i++)
        try {
            pass(i, [](int n) { deep(n); });
        } catch (const std::runtime_error &e) {
            caught += std::strcmp(e.what(), i == 1 ? "plugin" : "bottom") == 0;
        } catch (const Special &s) {
            caught += s.value == 2;
        }
    check(caught == 3 && Witness::gone > 3, "through a plugin");
    dlclose(handle);
}

#if __cplusplus < 201703L
void only_int() throw(int, std::bad_exception) { throw "text"; }

void specified()
{
    std::set_unexpected([] {
        take_stacks();
        throw 7;
    });
    bool caught = false;
    try {
        only_int();
    } catch (int i) {
        caught = i == 7;
    }
    check(caught, "exception specification");
}
#else
#error the dynamic exception specifications are those of C++14
#endif

void across_threads()
{
    std::exception_ptr p;
    std::thread([&] {
        try {
            deep(5);
        } catch (...) {
            p = std::current_exception();
        }
    }).join();
    auto later = std::async(std::launch::async, [p] { std::rethrow_exception(p); });
    int caught = 0;
    try {
        later.get();
    } catch (const std::runtime_error &) {
        caught++;
    }
    try {
        std::rethrow_exception(p);
    } catch (const std::exception &) {
        caught++;
    }
    check(caught == 2, "across threads");
}

int forced;

void *cancelled(void *arg)
{
    Witness w;
    try {
        if (arg)
            pthread_exit(arg);
        for (;;)
            usleep(1000000);
    } catch (...) {
        forced++;
        take_stacks();
        throw;
    }
}

void forced_unwind()
{
    pthread_t t;
    void *result = nullptr;
    Witness::gone = forced = 0;
    if (pthread_create(&t, nullptr, cancelled, nullptr) != 0)
        std::abort();
    pthread_cancel(t);
    pthread_join(t, &result);
    check(result == PTHREAD_CANCELED, "cancelled");
    if (pthread_create(&t, nullptr, cancelled, &forced) != 0)
        std::abort();
    pthread_join(t, &result);
    check(result == &forced, "pthread_exit");
    check(forced == Witness::gone && forced >= 1, "forced unwind"); // the first may be cancelled before it begins
}

// stop is the stop function of a forced unwind of our own: libgcc's contexts, not those of a backtrace.
_Unwind_Reason_Code stop(int, _Unwind_Action actions, _Unwind_Exception_Class, _Unwind_Exception *,
    _Unwind_Context *context,
                         void *arg)
{
    int before;
    auto ip = _Unwind_GetIP(context), cfa = _Unwind_GetCFA(context);
    if (!(actions & _UA_END_OF_STACK)) {
        check(ip == _Unwind_GetIPInfo(context, &before), "pc of a frame");
        check(_Unwind_GetRegionStart(context) <= ip, "function of a frame");
        check(_Unwind_FindEnclosingFunction(reinterpret_cast<void *>(ip)) != nullptr, "enclosing function");
    }
    if (cfa >= reinterpret_cast<_Unwind_Word>(arg)) // the caller of forcing
        pthread_exit(nullptr);
    return _URC_NO_REASON;
}

void *forcing(void *)
{
    static thread_local _Unwind_Exception exception;
    Witness w;
    std::memset(&exception, 0, sizeof exception);
    _Unwind_ForcedUnwind(&exception, stop, static_cast<char *>(__builtin_frame_address(0)) + 16);
    return nullptr;
}

void own_forced_unwind()
{
    pthread_t t;
    Witness::gone = 0;
    if (pthread_create(&t, nullptr, forcing, nullptr) != 0)
        std::abort();
    pthread_join(t, nullptr);
    check(Witness::gone == 1, "forced unwind of our own");
}

// ends runs something in a child that should end by its terminate handler.
template <typename F> void ends(F what, const char *name)
{
    pid_t child = fork();
    if (child == 0) {
        std::set_terminate([] { _exit(take_stacks() > 3 && failures == 0 ? 42 : 1); });
        what();
        _exit(2);
    }
    int status = 0;
    while (waitpid(child, &status, 0) != child)
        ;
    check(WIFEXITED(status) && WEXITSTATUS(status) == 42, name);
}

void not_thrown() noexcept { deep(3); }

struct Destroys {
    ~Destroys() noexcept(false) { throw 2; }
};

void terminated()
{
    ends(not_thrown, "noexcept");
    ends([] { deep(3); throw 1; }, "uncaught");
    ends(
        [] {
            try {
                Destroys d;
                throw 1;
            } catch (...) {
            }
        },
        "thrown by a destructor in a throw");
    ends([] { std::thread([] { deep(2); }).join(); }, "uncaught in a thread");
}

void on_fault(int sig)
{
    take_stacks();
    throw Special(sig);
}

__attribute__((noinline)) int faulting(volatile int *p)
{
    Witness w;
    return *p;
}

void out_of_a_handler()
{
    struct sigaction sa = {};
    sa.sa_handler = on_fault;
    sa.sa_flags = SA_NODEFER;
    sigaction(SIGSEGV, &sa, nullptr);
    sigaction(SIGUSR1, &sa, nullptr);
    int (*volatile by_raise)(int) = raise; // whose declaration says that it does not throw
    Witness::gone = 0;
    int caught = 0;
    try {
        sink = faulting(nullptr);
    } catch (const Special &s) {
        caught += s.value == SIGSEGV;
    }
    try {
        by_raise(SIGUSR1); // through the frames of libc
    } catch (const Special &s) {
        caught += s.value == SIGUSR1;
    }
    check(caught == 2 && Witness::gone == 1, "out of a handler");
    std::signal(SIGSEGV, SIG_DFL);
}

struct Base {
    virtual ~Base() = default;
};
struct Derived : virtual Base {};
struct Other : virtual Base {};

void library_throws()
{
    int caught = 0;
    Base b;
    try {
        sink = typeid(dynamic_cast<Derived &>(b)).name() == nullptr;
    } catch (const std::bad_cast &) {
        caught++;
    }
    try {
        std::vector<int>(3).at(7) = 1;
    } catch (const std::out_of_range &) {
        caught++;
    }
    try {
        throw Derived();
    } catch (const Other &) {
    } catch (const Base &) {
        caught++;
    }
    check(caught == 3, "thrown by the library");
}

// A callback may throw out of _Unwind_Backtrace.
_Unwind_Reason_Code throwing(_Unwind_Context *context, void *arg)
{
    int *left = static_cast<int *>(arg);
    if (--*left == 0)
        throw Special(static_cast<int>(_Unwind_GetCFA(context) != 0));
    return _URC_NO_REASON;
}

void out_of_a_callback()
{
    int left = 3, caught = 0;
    Witness::gone = 0;
    try {
        Witness w;
        _Unwind_Backtrace(throwing, &left);
    } catch (const Special &s) {
        caught = s.value;
    }
    check(caught == 1 && Witness::gone == 1, "out of a callback");
}

} // namespace

int main(int argc, char **argv)
{
    int wanted = argc > 1 ? std::atoi(argv[1]) : 0, rounds = 0;
    if (wanted > 0)
        sampler();
    do {
        nested();
        rethrown();
        through_qsort();
        through_plugin();
        specified();
        across_threads();
        forced_unwind();
        own_forced_unwind();
        if (rounds % 20 == 0)
            terminated();
        out_of_a_handler();
        library_throws();
        out_of_a_callback();
        rounds++;
    } while (samples < wanted && failures == 0);
    itimerval off = {};
    setitimer(ITIMER_PROF, &off, nullptr);
    check(frames >= 3 * samples, "samples have frames");
    std::printf("sampled=%d failures=%d\n", samples >= wanted, failures);
    return failures != 0;
}
