/* Processes, threads and objects that come and go: life SCENARIO. */
#define UNW_LOCAL_ONLY
#include <dlfcn.h>
#include <execinfo.h>
#include <libunwind.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unwind.h>

enum { MAX_FRAMES = 64 };

static _Atomic int failures;

static void check(bool ok, const char *what, int n)
{
    if (!ok && failures++ < 10)
        fprintf(stderr, "FAIL: %s: %d\n", what, n);
}

/* -------------------------------------------------------------------- the four interfaces */

static _Unwind_Reason_Code count(struct _Unwind_Context *context, void *arg)
{
    if (_Unwind_GetIP(context) != 0)
        ++*(int *)arg;
    return _URC_NO_REASON;
}

static int by_backtrace(void)
{
    void *pcs[MAX_FRAMES];
    return backtrace(pcs, MAX_FRAMES);
}

static inline __attribute__((always_inline)) int unwind_here(void)
{
    int n = 0;
    _Unwind_Backtrace(count, &n);
    return n;
}

static int by_unwind(void) { return unwind_here(); }

static int by_unw_backtrace(void)
{
    void *pcs[MAX_FRAMES];
    return unw_backtrace(pcs, MAX_FRAMES);
}

static int by_unw_step(void)
{
    unw_context_t context;
    unw_cursor_t cursor;
    int n = 1;
    unw_getcontext(&context);
    unw_init_local(&cursor, &context);
    while (unw_step(&cursor) > 0)
        n++;
    return n;
}

static int (*const ways[])(void) = {by_backtrace, by_unwind, by_unw_backtrace, by_unw_step};
enum { NUM_WAYS = sizeof ways / sizeof *ways };

__attribute__((noinline)) static int all_ways(int expected)
{
    int n = ways[0]();
    for (int i = 1; i < NUM_WAYS; i++) {
        int other = ways[i]();
        check(other == n, "frames by another way", other - n);
    }
    check(expected == 0 || n == expected, "frames", n - expected);
    return n;
}

/* -------------------------------------------------------------------------------- sampler */

static volatile sig_atomic_t samples, frames;

static void sample(int sig)
{
    void *pcs[MAX_FRAMES];
    (void)sig;
    frames += backtrace(pcs, MAX_FRAMES);
    samples++;
}

static void sampler(long microseconds)
{
    struct sigaction sa;
    struct itimerval every = {{0, microseconds}, {0, microseconds}};
    memset(&sa, 0, sizeof sa);
    sa.sa_handler = sample;
    sa.sa_flags = SA_RESTART;
    sigaction(SIGPROF, &sa, NULL);
    setitimer(ITIMER_PROF, &every, NULL);
}

/* ------------------------------------------------------------------------------ scenarios */

static void *thread(void *arg)
{
    int n = all_ways(0);
    if (arg)
        *(int *)arg = n;
    return NULL;
}

static void run_thread(int *n, size_t size)
{
    pthread_t t;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    if (size > 0)
        pthread_attr_setstacksize(&attr, size);
    if (pthread_create(&t, &attr, thread, n) != 0)
        abort();
    pthread_attr_destroy(&attr);
    pthread_join(t, NULL);
}

static void threads(void)
{
    int n = 0, first = 0;
    for (int i = 0; i < 200; i++) {
        run_thread(&n, i % 2 ? 64 << 10 : 0);
        check(i == 0 || n == first, "frames of a thread", n - first);
        first = n;
    }
}

static void in_child(int n, bool again)
{
    int m = 0, status = -1;
    pid_t child = fork();
    if (child == 0) {
        all_ways(n);
        run_thread(&m, 0);
        if (again) {
            in_child(0, false);
            execl("/proc/self/exe", "life", "exec", NULL);
        }
        exit(failures != 0);
    }
    check(child > 0 && waitpid(child, &status, 0) == child && status == 0, "child", status);
}

static void *forking(void *arg)
{
    (void)arg;
    for (int i = 0; i < 5; i++)
        in_child(0, i % 2);
    return NULL;
}

static void forks(void)
{
    pthread_t t;
    forking(NULL);
    if (pthread_create(&t, NULL, forking, NULL) != 0)
        abort();
    pthread_join(t, NULL);
}

/* exec: what a child that was forked in this program runs. */
static void after_exec(void) { all_ways(0); }

static void plugin_calls(int depth)
{
    if (depth > 0)
        plugin_calls(depth - 1);
    all_ways(0);
}

static void loading(void)
{
    int n = 0;
    sampler(1000);
    while (n < 20 || samples < 100) {
        void *handle = dlopen(getenv("PLUGIN"), n % 2 ? RTLD_NOW : RTLD_LAZY | RTLD_GLOBAL);
        void (*plugin)(void (*)(int), int);
        if (!handle) {
            check(false, dlerror(), n);
            return;
        }
        check(dlerror() == NULL, "an error where there was none", n);
        *(void **)&plugin = dlsym(handle, "plugin");
        plugin(plugin_calls, 3);
        check(dlopen("/nowhere/plugin.so", RTLD_NOW) == NULL && dlerror() != NULL, "an error where there was one", n);
        dlclose(handle);
        n++;
    }
    sampler(0);
    check(frames > 3 * samples, "frames of samples", frames);
}

/* stack measures how much of the stack each way uses, in a thread with 64 KiB. */
static void *measure(void *arg)
{
    static const char *const names[] = {"backtrace", "_Unwind_Backtrace", "unw_backtrace", "unw_step"};
    enum { SPACE = 40 << 10, OWN = 512 };
    unsigned char *here = __builtin_frame_address(0);
    (void)arg;
    for (int i = 0; i < NUM_WAYS; i++) {
        ways[i]();
        for (volatile unsigned char *p = here - SPACE; p < here - OWN; p++)
            *p = 0xa5;
        ways[i]();
        volatile unsigned char *p = here - SPACE;
        while (*p == 0xa5)
            p++;
        printf("%s=%d ", names[i], (int)(here - OWN - p));
    }
    return NULL;
}

static void stack(void)
{
    pthread_t t;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 64 << 10);
    if (pthread_create(&t, &attr, measure, NULL) != 0)
        abort();
    pthread_join(t, NULL);
    pthread_attr_destroy(&attr);
}

/* resume: what changes the program goes through a cursor of libunwind's own. */
__attribute__((noinline)) static int by_resume(int value)
{
    unw_context_t context;
    unw_cursor_t cursor;
    unw_getcontext(&context);
    unw_init_local(&cursor, &context);
    if (unw_step(&cursor) <= 0 || unw_set_reg(&cursor, UNW_X86_64_RAX, (unw_word_t)value) != 0)
        return -1;
    unw_resume(&cursor);
    return -2;
}

static void resume(void)
{
    for (int i = 0; i < 10; i++)
        check(by_resume(i) == i, "returned by unw_resume", i);
}

/*
 * Functions whose tables lead to an address that cannot be read, and to a return address
 * that is none: what a signal may meet in the last instructions of libgcc's _Unwind_Resume.
 */
void to_nowhere(void (*function)(void)), to_no_code(void (*function)(void));
__asm__(".text\n"
        ".type to_nowhere, @function\n"
        "to_nowhere:\n"
        ".cfi_startproc\n"
        "push %rbx\n"
        "mov $0x1000, %ebx\n"
        ".cfi_def_cfa %rbx, 0\n"
        "call *%rdi\n"
        "pop %rbx\n"
        ".cfi_def_cfa %rsp, 8\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size to_nowhere, .-to_nowhere\n"
        ".type to_no_code, @function\n"
        "to_no_code:\n"
        ".cfi_startproc\n"
        "push $0x1000\n" /* where the table has the return address */
        "call *%rdi\n"
        "add $8, %rsp\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size to_no_code, .-to_no_code\n");

static void take_astray(void) /* unwind_here has no frame */
{
    int n = by_backtrace();
    printf("%d/%d ", n, unwind_here());
}

static void astray(void)
{
    to_nowhere(take_astray);
    to_no_code(take_astray);
}

int main(int argc, char **argv)
{
    static const struct { const char *name; void (*run)(void); } scenarios[] = {
        {"threads", threads}, {"forks", forks}, {"exec", after_exec}, {"loading", loading}, {"stack", stack},
        {"astray", astray}, {"resume", resume},
    };
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (argc > 1 && strcmp(argv[1], scenarios[i].name) == 0) {
            scenarios[i].run();
            printf("%s failures=%d\n", argv[1], failures);
            return failures != 0;
        }
    return 2;
}
