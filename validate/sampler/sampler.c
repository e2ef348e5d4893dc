/*
 * A sampler that is preloaded into an unmodified program. A timer interrupts each of
 * its threads; the handler takes the interrupted stack with libehunwind, as a whole
 * and frame by frame, and with libunwind, and compares the pc and rsp of every frame.
 * At exit a report is appended to $SAMPLER_OUT. $SAMPLER_HZ is the rate.
 *
 * The report's lines: "samples CLASS COUNT", "frames COUNT", and for each place at
 * which stacks differ "differ CLASS COUNT MODULE+OFFSET SYMBOL ...".
 */
#define UNW_LOCAL_ONLY
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libunwind.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "ehunwind.h"

enum { MAX_FRAMES = 512, MAX_PLACES = 4096 };

enum class {
    IDENTICAL,
    GUESSED,     /* identical, with steps by frame pointer: some object has no eh_elf */
    GUESS_DIFFERS, /* another pc after that step */
    NO_TABLE,    /* libehunwind ends at code that has no unwind table at all: generated at run time */
    STALE,       /* objects came or went since the last ehu_refresh */
    SHORTER,     /* libehunwind found fewer frames */
    LONGER,      /* libunwind found fewer frames */
    OTHER_PC,    /* the frames differ */
    OTHER_RSP,
    SELF,        /* ehu_backtrace_from and the cursor differ */
    NUM_CLASSES
};
static const char *const class_name[NUM_CLASSES] = {
    "identical", "identical-guessed", "guess-differs", "no-table", "stale", "shorter", "longer", "other-pc",
        "other-rsp", "self",
};

/* Handlers of all threads count at once. */
static _Atomic long samples[NUM_CLASSES], frames;

/* Where stacks differ: the last frame that was the same in both. */
static struct place {
    _Atomic uint64_t pc; /* 0: free */
    _Atomic long count;
    enum class class;
    int depth, exact, mine, theirs; /* of the first sample: number of the frame, the two steps from it */
    uint64_t first, my_pc, their_pc, my_rsp, their_rsp, rsp; /* first is frame 0's pc, rsp belongs to the frame of pc */
} places[MAX_PLACES];

/* note counts a place in a table by hash without a lock: it runs in signal handlers, of several threads at
 * once. The first sample at a place fills it in; another thread may count before
 * that is done, but only report reads the rest. A full table drops places. */
static void note(const struct place *p)
{
    for (uint64_t i = p->pc * 0x9e3779b97f4a7c15u >> 52, tries = 0; tries < MAX_PLACES; i = (i + 1) % MAX_PLACES,
        tries++) {
        uint64_t expected = 0;
        if (atomic_compare_exchange_strong(&places[i].pc, &expected, p->pc)) {
            places[i].class = p->class;
            places[i].depth = p->depth;
            places[i].exact = p->exact;
            places[i].mine = p->mine;
            places[i].theirs = p->theirs;
            places[i].first = p->first;
            places[i].my_pc = p->my_pc;
            places[i].their_pc = p->their_pc;
            places[i].my_rsp = p->my_rsp;
            places[i].their_rsp = p->their_rsp;
            places[i].rsp = p->rsp;
        } else if (expected != p->pc) {
            continue;
        }
        places[i].count++;
        return;
    }
}

/* --------------------------------------------------------------------- what is loaded */

static _Atomic uint64_t seen; /* adds and subs of dl_iterate_phdr at the last refresh */

static int see(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    *(uint64_t *)arg = info->dlpi_adds << 32 | info->dlpi_subs;
    return 1;
}

/* loaded returns a number that changes with each dlopen and dlclose. dl_iterate_phdr takes the loader's
 * lock, which is recursive: a handler that interrupts dlopen passes. */
static uint64_t loaded(void)
{
    uint64_t now = 0;
    dl_iterate_phdr(see, &now);
    return now;
}

/* The number is taken before: what is loaded meanwhile counts as stale, not as known. */
static void refresh(void)
{
    uint64_t now = loaded();
    ehu_refresh();
    seen = now;
}

struct in_object { uint64_t pc; bool found; };

static int look(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct in_object *in = arg;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X &&
            in->pc - (info->dlpi_addr + info->dlpi_phdr[i].p_vaddr) < info->dlpi_phdr[i].p_memsz)
            in->found = true;
    return in->found;
}

/* known_code reports whether a loaded object has code at a pc; a compiler at run time makes code outside of
 * them. */
static bool known_code(uint64_t pc)
{
    struct in_object in = {pc, false};
    dl_iterate_phdr(look, &in);
    return in.found;
}

/* ------------------------------------------------------------------------ each thread */

/* Samples per second of real time in each thread: threads that wait have stacks, too. */
static long rate = 1000;
static bool on;

/* Initial-exec, since other models may allocate in the handler's first access. */
static __thread timer_t timer __attribute__((tls_model("initial-exec")));

/* Each handler sets the timer again, so that the program progresses however long a
   handler takes. */
static void set_timer(void)
{
    const struct itimerspec once = {{0, 0}, {0, 1000000000 / rate - 1}};
    timer_settime(timer, 0, &once, NULL);
}

static void start_timer(void)
{
    struct sigevent event;
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGPROF;
    event._sigev_un._tid = (int)syscall(SYS_gettid);
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) == 0)
        set_timer();
}

/* ---------------------------------------------------------------------------- a sample */

/* by_pcs reports whether a cursor that is asked for pcs alone gives the same n as an array. */
static bool by_pcs(const ucontext_t *context, void **pcs, size_t n)
{
    ehu_cursor_t c;
    uint64_t pc;
    size_t i = 0;
    ehu_cursor_init_from(&c, context);
    do {
        ehu_get_reg(&c, EH_ELF_RIP, &pc);
        if (i >= n || (uint64_t)(uintptr_t)pcs[i++] != pc)
            return false;
    } while (i < MAX_FRAMES && ehu_step(&c) == 1);
    return i == n;
}

/* compare takes the interrupted stack three ways, frame by frame, up to the first difference, which it
 * describes in at. In the handler of each thread. */
static enum class compare(const ucontext_t *context, struct place *at)
{
    void *pcs[MAX_FRAMES];
    ehu_cursor_t e;
    unw_context_t copy = *context;
    unw_cursor_t u;
    size_t n = ehu_backtrace_from(context, pcs, MAX_FRAMES);
    ehu_cursor_init_from(&e, context);
    unw_init_local2(&u, &copy, UNW_INIT_SIGNAL_FRAME);
    for (at->depth = 0;; at->depth++) {
        unw_word_t ip, sp;
        unw_get_reg(&u, UNW_REG_IP, &ip);
        unw_get_reg(&u, UNW_REG_SP, &sp);
        at->my_rsp = 0;
        ehu_get_reg(&e, EH_ELF_RIP, &at->my_pc);
        ehu_get_reg(&e, EH_ELF_RSP, &at->my_rsp);
        at->their_pc = ip;
        at->their_rsp = sp;
        if (at->my_pc != ip)
            return ehu_is_guessed(&e) ? GUESS_DIFFERS : OTHER_PC;
        if (at->my_rsp != sp && !ehu_is_guessed(&e)) /* after a guess libunwind's rsp is not the CFA */
            return OTHER_RSP;
        if ((size_t)at->depth >= n || (uint64_t)(uintptr_t)pcs[at->depth] != ip)
            return SELF;
        frames++;
        if (at->depth + 1 == MAX_FRAMES)
            break;
        at->pc = ip;
        at->exact = ehu_is_signal_frame(&e);
        at->rsp = at->my_rsp;
        at->mine = ehu_step(&e);
        at->theirs = unw_step(&u);
        if (at->theirs > 0) {
            unw_get_reg(&u, UNW_REG_IP, &ip);
            at->their_pc = ip;
            if (ip == 0)
                at->theirs = 0;
        }
        if (at->mine <= 0 && at->theirs <= 0) /* both end here, each with its own reason */
            break;
        if (at->mine <= 0)
            return !known_code(at->pc) || !known_code(at->their_pc) ? NO_TABLE : SHORTER;
        if (at->theirs <= 0) {
            ehu_get_reg(&e, EH_ELF_RIP, &at->my_pc);
            ehu_get_reg(&e, EH_ELF_RSP, &at->my_rsp);
            return LONGER;
        }
    }
    if ((size_t)at->depth + 1 != n || !by_pcs(context, pcs, n))
        return SELF;
    return ehu_is_guessed(&e) ? GUESSED : IDENTICAL;
}

/* errno is the interrupted code's. */
static void on_timer(int sig, siginfo_t *info, void *context)
{
    int saved = errno;
    struct place at = {.first = (uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP]};
    (void)sig;
    (void)info;
    enum class class = compare(context, &at);
    if (class > GUESS_DIFFERS && class != SELF && loaded() != seen)
        class = STALE;
    samples[class]++;
    at.class = class;
    if (class >= GUESS_DIFFERS && class != STALE && at.pc)
        note(&at);
    if (on)
        set_timer();
    errno = saved;
}

struct start { void *(*fn)(void *); void *arg; };

static void *started(void *arg)
{
    struct start s = *(struct start *)arg;
    free(arg);
    start_timer();
    return s.fn(s.arg);
}

/* Before the sampler is on, threads go without a timer; memory that malloc refuses costs one thread's
 * samples. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    struct start *s = on ? malloc(sizeof *s) : NULL;
    if (!s)
        return real(thread, attr, fn, arg);
    *s = (struct start){fn, arg};
    int failed = real(thread, attr, started, s);
    if (failed)
        free(s);
    return failed;
}

void *dlopen(const char *path, int flags)
{
    void *(*real)(const char *, int);
    *(void **)&real = dlsym(RTLD_NEXT, "dlopen");
    void *handle = real(path, flags);
    if (on)
        refresh();
    return handle;
}

int dlclose(void *handle)
{
    int (*real)(void *);
    *(void **)&real = dlsym(RTLD_NEXT, "dlclose");
    int failed = real(handle);
    if (on)
        refresh();
    return failed;
}

/* ------------------------------------------------------------------------------ report */

static void symbol(char *to, size_t size, uint64_t pc)
{
    Dl_info info;
    if (!dladdr((void *)(uintptr_t)pc, &info) || !info.dli_fname) {
        snprintf(to, size, "%#lx", (unsigned long)pc);
        return;
    }
    const char *slash = strrchr(info.dli_fname, '/');
    snprintf(to, size, "%s+%#lx(%s)", slash ? slash + 1 : info.dli_fname,
             (unsigned long)(pc - (uintptr_t)info.dli_fbase), info.dli_sname ? info.dli_sname : "?");
}

/* report runs once, at exit or in _exit, in whichever thread comes first. SIGPROF is ignored from then on,
 * so the places no longer change but for handlers that have begun. */
static void report(void)
{
    static _Atomic int once;
    const char *path = getenv("SAMPLER_OUT");
    if (!on || once++ || !path)
        return;
    on = false;
    signal(SIGPROF, SIG_IGN);
    FILE *out = fopen(path, "ae");
    if (!out)
        return;
    fprintf(out, "program %s %d\nframes %ld\n", program_invocation_short_name, (int)getpid(), frames);
    for (int c = 0; c < NUM_CLASSES; c++)
        fprintf(out, "samples %s %ld\n", class_name[c], samples[c]);
    for (int i = 0; i < MAX_PLACES; i++) {
        const struct place *p = &places[i];
        char at[512], first[512], mine[512], theirs[512];
        if (!p->count)
            continue;
        symbol(at, sizeof at, p->pc);
        symbol(first, sizeof first, p->first);
        symbol(mine, sizeof mine, p->my_pc);
        symbol(theirs, sizeof theirs, p->their_pc);
        fprintf(out, "differ %s %ld %s frame %d exact %d steps %d %d to %s %s rsp %+ld %+ld from %s\n",
            class_name[p->class], p->count, at,
                p->depth, p->exact, p->mine, p->theirs, mine, theirs, (long)(p->my_rsp - p->rsp),
                (long)(p->their_rsp - p->rsp), first);
    }
    fclose(out);
}

/* Programs that leave by _exit, such as workers of servers, run no atexit. */
void _exit(int status)
{
    report();
    syscall(SYS_exit_group, status);
    __builtin_unreachable();
}

static void in_child(void) /* a child inherits no timers, and must not inherit the figures */
{
    memset(samples, 0, sizeof samples);
    memset(places, 0, sizeof places);
    frames = 0;
    start_timer();
}

__attribute__((constructor)) static void start(void)
{
    struct sigaction sa;
    const char *hz = getenv("SAMPLER_HZ");
    if (hz && atol(hz) > 0)
        rate = atol(hz);
    if (ehu_init() != 0)
        return;
    unw_set_caching_policy(unw_local_addr_space, UNW_CACHE_NONE); /* its cache mixes up a pc and a return address */
    seen = loaded();
    memset(&sa, 0, sizeof sa);
    sa.sa_sigaction = on_timer;
    sa.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(SIGPROF, &sa, NULL);
    pthread_atfork(NULL, NULL, in_child);
    atexit(report);
    on = true;
    start_timer();
}
