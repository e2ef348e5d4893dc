/*
 * A program that does what `ehasm record --alloc` must not change: allocating MODE ROUNDS. On stdout is what came of
 * it, which is the same with and without a recorder; on stderr, how many bytes it has allocated, by its own count.
 */
#include <atomic>
#include <cerrno>
#include <cfenv>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <new>
#include <pthread.h>
#include <spawn.h>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))

static std::atomic<uint64_t> *bytes; /* shared with children of fork */
static std::atomic<long> faults;

static void *count(size_t n, void *p)
{
    if (p)
        bytes->fetch_add(n, std::memory_order_relaxed);
    __asm__ volatile("" : : "r"(p) : "memory");
    return p;
}

static void check(bool right, const char *what)
{
    if (!right && faults++ < 20)
        dprintf(1, "WRONG: %s, errno %d\n", what, errno);
}

/* Of each operator new the C library's malloc is called. */
void *operator new(size_t n)
{
    void *p = count(n, malloc(n));
    if (!p)
        throw std::bad_alloc();
    return p;
}
void operator delete(void *p) noexcept { free(p); }
void operator delete(void *p, size_t) noexcept { free(p); }

/* deep allocates below n more frames. */
APART static void *deep(int n, size_t size)
{
    volatile char room[16];
    room[0] = (char)n;
    void *p = n > 0 ? deep(n - 1, size) : count(size, malloc(size));
    room[1] = room[0];
    return p;
}

static void work(int n)
{
    for (int i = 0; i < n; i++) {
        errno = 42;
        void *p = deep(i % 60, 20000 + (size_t)i % 20000);
        check(errno == 42, "errno");
        memset(p, 1, 100);
        p = count(30000, realloc(p, 30000));
        free(p);
    }
}

/* child runs f in a child of fork, which must end with 17. */
template <class F> static void child(const char *what, F f)
{
    pid_t pid = fork();
    if (pid == 0) {
        f();
        exit(17);
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 17) {
        check(false, what);
        dprintf(1, "status %#x\n", status);
    }
}

/* -------------------------------------------------------------------------------- the modes */

struct Counted {
    int *n;
    explicit Counted(int *to) : n(to) { ++*n; }
    ~Counted()
    {
        --*n;
        free(count(25000, malloc(25000)));
    }
};

static void thrown(int i)
{
    enum { HEADER = 128 }; /* of an exception: struct __cxa_refcounted_exception */
    std::string s(3000 + (size_t)i % 1000, 'x'), got;
    try {
        bytes->fetch_add(HEADER + sizeof s);
        throw s;
    } catch (std::string &t) {
        got = t;
    }
    check(got == s, "what was caught");
}

static void throwing(int rounds)
{
    auto run = [](void *arg) -> void * {
        for (int i = 0; i < *(int *)arg * 1000; i++)
            thrown(i);
        return nullptr;
    };
    pthread_t t[4];
    for (auto &x : t)
        pthread_create(&x, nullptr, run, &rounds);
    for (auto x : t)
        pthread_join(x, nullptr);
}

static void *until_cancelled(void *arg)
{
    Counted c((int *)arg);
    for (int i = 0;; i++) {
        Counted d((int *)arg);
        thrown(i);
        const timespec t = {0, 20000};
        nanosleep(&t, nullptr);
    }
}

/* pending has a cancellation to come while it allocates and loads: neither is a place for it. */
static void *pending(void *arg)
{
    pthread_cancel(pthread_self());
    void *h = dlopen("libutil.so.1", RTLD_NOW | RTLD_LOCAL);
    work(5);
    if (h)
        dlclose(h);
    work(5);
    ++*(int *)arg;
    pthread_testcancel();
    return nullptr;
}

static void cancelling(int rounds)
{
    for (int i = 0; i < rounds * 40; i++) {
        pthread_t t;
        void *end = nullptr;
        int live = 0, came = 0;
        pthread_create(&t, nullptr, until_cancelled, &live);
        if (i % 2)
            usleep(500);
        pthread_cancel(t);
        void *h = dlopen("libutil.so.1", RTLD_NOW);
        if (h)
            dlclose(h);
        pthread_join(t, &end);
        check(end == PTHREAD_CANCELED && live == 0, "a cancelled thread");
        pthread_create(&t, nullptr, pending, &came);
        pthread_join(t, &end);
        check(end == PTHREAD_CANCELED && came == 1, "a thread whose cancellation is pending");
    }
}

static void forking(int rounds)
{
    for (int i = 0; i < rounds * 30; i++)
        child("a child", [] {
            work(30);
            child("a grandchild", [] { work(30); });
        });
}

static void spawning(int rounds)
{
    char name[] = "true", *args[] = {name, nullptr};
    for (int i = 0; i < rounds * 15; i++) {
        int status = 0;
        pid_t pid = vfork();
        if (pid == 0) {
            execv("/bin/true", args);
            _exit(99);
        }
        check(waitpid(pid, &status, 0) == pid && status == 0, "vfork");
        work(20);
        check(posix_spawn(&pid, "/bin/true", nullptr, nullptr, args, environ) == 0 && waitpid(pid, &status, 0) == pid &&
            status == 0, "posix_spawn");
    }
}

static std::atomic<bool> over;

static void *worker(void *)
{
    while (!over)
        work(10);
    return nullptr;
}

static void loading(int rounds)
{
    const char *names[] = {"libutil.so.1", "libresolv.so.2", "libanl.so.1", "libBrokenLocale.so.1"};
    pthread_t t[3];
    over = false;
    for (auto &x : t)
        pthread_create(&x, nullptr, worker, nullptr);
    for (int i = 0; i < rounds * 100; i++) {
        void *h = dlopen(names[i % 4], RTLD_NOW);
        check(h != nullptr, "dlopen");
        work(2);
        if (h)
            dlclose(h);
        if (i % 20 == 0)
            child("a child beside dlopen", [] { work(5); });
    }
    over = true;
    for (auto x : t)
        pthread_join(x, nullptr);
}

static void dropping(int rounds)
{
    for (int i = 0; i < rounds; i++)
        child("another user", [] {
            if (getuid() == 0)
                check(setgid(65534) == 0 && setuid(65534) == 0, "setuid");
            work(2000);
            child("its child", [] { work(500); });
        });
}

static void confining(int rounds)
{
    for (int i = 0; i < rounds; i++)
        child("another root folder", [] {
            if (getuid() == 0)
                check(chroot("/usr/share") == 0 && chdir("/") == 0, "chroot");
            work(1000);
            check(!dlopen("/lib/x86_64-linux-gnu/libutil.so.1", RTLD_NOW), "dlopen in there");
            work(1000);
            child("its child", [] { work(500); });
        });
}

static ucontext_t home, routine[50];

static void in_routine(int i)
{
    for (;;) {
        work(3);
        swapcontext(&routine[i], &home);
    }
}

static void switching(int rounds)
{
    enum { SIZE = 65536 };
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < 50; i++) {
            ucontext_t &r = routine[i];
            getcontext(&r);
            r.uc_stack.ss_sp = mmap(nullptr, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            r.uc_stack.ss_size = SIZE;
            makecontext(&r, (void (*)())in_routine, 1, i);
        }
        for (int i = 0; i < 20; i++)
            for (auto &r : routine)
                swapcontext(&home, &r);
        for (auto &r : routine)
            munmap(r.uc_stack.ss_sp, SIZE);
    }
}

static std::atomic<long> signals;

static void on_signal(int)
{
    signals++;
    errno = 7;
}

static void keep_errno(int s)
{
    int saved = errno;
    on_signal(s);
    errno = saved;
}

static void interrupting(int rounds)
{
    struct sigaction sa = {};
    sa.sa_handler = keep_errno;
    sa.sa_flags = SA_RESTART | SA_ONSTACK;
    sigaction(SIGALRM, &sa, nullptr);
    const char *hz = getenv("HZ");
    const long every = 1000000 / (hz ? atol(hz) : 20000);
    itimerval it = {{0, every}, {0, every}};
    setitimer(ITIMER_REAL, &it, nullptr);
    pthread_t t[2];
    over = false;
    for (auto &x : t)
        pthread_create(&x, nullptr, worker, nullptr);
    work(rounds * 2000);
    forking(1);
    over = true;
    for (auto x : t)
        pthread_join(x, nullptr);
    it = {};
    setitimer(ITIMER_REAL, &it, nullptr);
    check(signals > 0, "signals");
}

struct AtThreadEnd {
    std::string text = std::string(5000, 'y');
    ~AtThreadEnd() { work(2); }
};
static thread_local AtThreadEnd at_thread_end;

static void *short_lived(void *arg)
{
    check(at_thread_end.text.size() == 5000, "thread_local");
    work(10);
    if ((uintptr_t)arg % 2)
        pthread_exit(arg);
    return arg;
}

static void crowding(int rounds)
{
    enum { MANY = 500 };
    static pthread_t t[MANY];
    pthread_attr_t a;
    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, 64 << 10);
    for (int round = 0; round < rounds; round++) {
        for (uintptr_t i = 0; i < MANY; i++)
            check(pthread_create(&t[i], &a, short_lived, (void *)i) == 0, "pthread_create");
        for (uintptr_t i = 0; i < MANY; i++) {
            void *end = nullptr;
            check(pthread_join(t[i], &end) == 0 && end == (void *)i, "a thread's end");
        }
    }
}

static void closing(int rounds)
{
    for (int i = 0; i < rounds; i++)
        child("without descriptors", [] {
            syscall(SYS_close_range, 0, ~0u, 0);
            work(500);
            int a = open("/dev/null", O_RDWR), b = dup(a);
            work(500);
            int c = dup(b);
            child("its child", [] { work(100); });
            if (a != 0 || b != 1 || c != 2)
                _exit(1);
        });
}

static void calculating(int rounds)
{
    for (int i = 0; i < rounds; i++)
        child("arithmetic", [] {
            fesetround(FE_UPWARD);
            feclearexcept(FE_ALL_EXCEPT);
            feenableexcept(FE_ALL_EXCEPT);
            work(1000);
            check(fetestexcept(FE_ALL_EXCEPT) == 0 && fegetround() == FE_UPWARD &&
                fegetexcept() == FE_ALL_EXCEPT, "fenv");
            if (faults)
                _exit(1);
        });
}

static void small(int n)
{
    for (int i = 0; i < n; i++)
        free(count(900, malloc(900)));
}

/* by_hand is prctl without the C library, which a library in between would notice. */
static long by_hand(long option, long a, const void *b)
{
    long result = SYS_prctl;
    register long none __asm__("r10") = 0, nothing __asm__("r8") = 0;
    __asm__ volatile("syscall" : "+a"(result) : "D"(option), "S"(a), "d"(b), "r"(none), "r"(nothing) : "rcx", "r11",
        "memory");
    return result;
}

static const int to_allocate[] = {SYS_exit_group, SYS_exit, SYS_brk, SYS_mmap, SYS_munmap, SYS_mremap, SYS_madvise, -1};
static const int to_load[] = {SYS_openat, SYS_read, SYS_newfstatat, SYS_fstat, SYS_mprotect, SYS_close, SYS_pread64,
    SYS_write, -1};
static const int to_fork[] = {SYS_clone, SYS_set_robust_list, SYS_wait4, SYS_futex, -1};

static const int to_begin[] = {SYS_execve, SYS_access, SYS_faccessat, SYS_arch_prctl, SYS_set_tid_address,
    SYS_set_robust_list, SYS_rseq,
                               SYS_prlimit64, SYS_getrandom, SYS_futex, SYS_readlink, SYS_fadvise64, SYS_lseek, -1};

/* filter lets the kernel kill for any other call. */
static void filter(std::initializer_list<const int *> allowed)
{
    sock_filter f[64] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
    unsigned short n = 1;
    for (const int *nr : allowed)
        for (; *nr >= 0; nr++) {
            f[n++] = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)*nr, 0, 1);
            f[n++] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
        }
    f[n++] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    const sock_fprog p = {n, f};
    check(by_hand(PR_SET_NO_NEW_PRIVS, 1, nullptr) == 0 &&
        by_hand(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p) == 0, "a filter");
}

static void *sealed(void *strict)
{
    dlopen("libutil.so.1", RTLD_NOW);
    free(malloc(3000));
    if (strict)
        by_hand(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, nullptr);
    else
        filter({to_allocate});
    small(5000);
    if (!strict)
        work(500);
    syscall(SYS_exit, 17);
    return nullptr;
}

static void sealing(int rounds)
{
    for (int i = 0; i < rounds; i++) {
        for (uintptr_t strict = 0; strict < 2; strict++) {
            child(strict ? "strict mode" : "a filter", [=] { sealed((void *)strict); });
            child(strict ? "strict mode, a thread" : "a filter, a thread", [=] {
                pthread_t t;
                pthread_create(&t, nullptr, sealed, (void *)strict);
                usleep(100000);
                if (!strict)
                    small(1000);
                pthread_join(t, nullptr);
            });
        }
        child("a filter, loading", [] {
            filter({to_allocate, to_load});
            for (const char *name : {"libutil.so.1", "libresolv.so.2", "libm.so.6", "libnone.so"}) {
                dlopen(name, RTLD_NOW);
                work(100);
            }
            _exit(17);
        });
        child("a filter, and another program", [] {
            pid_t pid = fork();
            if (pid == 0) {
                filter({to_allocate, to_load, to_begin});
                execl("/bin/true", "true", nullptr);
            }
            int status = 0;
            check(waitpid(pid, &status, 0) == pid && status == 0, "a program in a filter");
            if (faults)
                _exit(1);
        });
        child("a filter, and children", [] {
            dlopen("libutil.so.1", RTLD_NOW);
            filter({to_allocate, to_fork});
            for (int j = 0; j < 3; j++) {
                dlopen("libm.so.6", RTLD_NOW);
                thrown(j);
                child("a child in there", [] { work(100); _exit(17); });
            }
            _exit(17);
        });
    }
}

static void limiting(int rounds)
{
    for (int i = 0; i < rounds; i++)
        child("limits", [] {
            const rlimit one = {1, 1}, none = {0, 0}, most = {2ull << 30, 2ull << 30};
            setrlimit(RLIMIT_NOFILE, &one);
            setrlimit(RLIMIT_FSIZE, &none);
            setrlimit(RLIMIT_AS, &most);
            work(500);
            errno = 0;
            void *volatile p = malloc(3ull << 30);
            check(!p && errno == ENOMEM, "more than the limit");
            p = count(1ull << 20, malloc(1ull << 20));
            check(p != nullptr, "less than the limit");
            if (faults)
                _exit(1);
        });
}

static void kinds(int rounds)
{
    volatile size_t most = SIZE_MAX, none = 0;
    for (int i = 0; i < rounds * 300; i++) {
        void *p = nullptr;
        check(posix_memalign(&p, 3, 100) == EINVAL && !p, "posix_memalign of 3");
        check(posix_memalign(&p, 4096, 30000) == 0 && (uintptr_t)p % 4096 == 0, "posix_memalign");
        free(count(30000, p));
        p = count(32768, aligned_alloc(8192, 32768));
        check((uintptr_t)p % 8192 == 0, "aligned_alloc");
        free(p);
        p = count(20000, memalign(128, 20000));
        check((uintptr_t)p % 128 == 0 && malloc_usable_size(p) >= 20000, "memalign");
        p = count(40000, reallocarray(p, 4, 10000));
        check(p != nullptr, "reallocarray");
        errno = 0;
        check(!reallocarray(p, most / 2, 3) && errno == ENOMEM, "reallocarray of too much");
        errno = 0;
        check(!realloc(p, most - 10) && errno == ENOMEM, "realloc of too much");
        check(!realloc(p, none), "realloc of 0");
        free(count(5000, valloc(5000)));
        free(count(5000, pvalloc(5000)));
        errno = 0;
        check(!calloc(most / 2, 3) && errno == ENOMEM, "calloc of too much");
        errno = 0;
        check(!malloc(most) && errno == ENOMEM, "malloc of too much");
        p = count(0, malloc(none));
        check(p != nullptr, "malloc of 0");
        free(p);
        free(nullptr);
        char *c = (char *)count(60000, calloc(3, 20000));
        check(c && c[0] == 0 && c[59999] == 0, "calloc");
        free(c);
    }
}

struct AtExit {
    pid_t pid = getpid();
    std::string *text = nullptr;
    ~AtExit()
    {
        if (text) {
            work(100);
            delete text;
            dprintf(1, "at exit, %ld wrong\n", faults.load());
        }
        if (pid == getpid())
            dprintf(2, "bytes %lu\n", bytes->load());
    }
};
static AtExit at_exit;

static void ending(int)
{
    at_exit.text = new std::string(100000, 'z');
    atexit([] { work(100); });
    pthread_t t;
    auto leave = [](void *) -> void * {
        work(100);
        exit(23);
    };
    pthread_create(&t, nullptr, leave, nullptr);
    pthread_join(t, nullptr);
}

static const struct {
    const char *name;
    void (*run)(int);
} modes[] = {
    {"throwing", throwing},   {"cancelling", cancelling},     {"forking", forking},   {"spawning", spawning},
        {"loading", loading},
    {"dropping", dropping},   {"confining", confining},       {"switching", switching}, {"interrupting", interrupting},
    {"crowding", crowding},
    {"closing", closing},     {"calculating", calculating},   {"sealing", sealing},   {"limiting", limiting},
    {"kinds", kinds},
    {"ending", ending},
};

int main(int argc, char **argv)
{
    int ran = 0;
    if (argc != 3)
        return 2;
    bytes = new (mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<uint64_t>;
    for (const auto &m : modes)
        if (strcmp(argv[1], m.name) == 0) {
            m.run(atoi(argv[2]));
            ran++;
        }
    printf("%s: %ld wrong\n", argv[1], faults.load());
    return ran != 1 || faults > 0;
}
