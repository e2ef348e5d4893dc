/* Stacks through code that is in no object: jit SCENARIO. */
#define UNW_LOCAL_ONLY
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libunwind.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include "check.h"
#include "jit.h"

enum { SIZE = 16384, AT = 100 };

/* It calls its first argument with its second, and keeps a frame pointer. */
static const unsigned char calls[] = {
    0x55,             /* push %rbp */
    0x48, 0x89, 0xe5, /* mov %rsp, %rbp */
    0x48, 0x89, 0xf8, /* mov %rdi, %rax */
    0x89, 0xf7,       /* mov %esi, %edi */
    0xff, 0xd0,       /* call *%rax */
    0x5d,             /* pop %rbp */
    0xc3,             /* ret */
};

code_fn *code;
static char *region;

/* put_code makes the code at AT in a separate region. */
static void put_code(int fd)
{
    int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    region = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (region == MAP_FAILED)
        abort();
    memcpy(region + AT, calls, sizeof calls);
    mprotect(region, SIZE, PROT_READ | PROT_EXEC);
    *(void **)&code = region + AT;
}

static long in_region(uint64_t pc) { return pc - (uintptr_t)region < SIZE; }

/* ------------------------------------------------------------------------- calls through it */

static int depth_wanted, end_wanted;

/* compare compares the pcs with libunwind's, which goes by frame pointer here, too. */
static void compare(const ucontext_t *context)
{
    void *pcs[MAX_FRAMES];
    ehu_cursor_t e;
    unw_context_t copy = *context;
    unw_cursor_t u;
    long through = 0, depth = 0;
    size_t n = ehu_backtrace_from(context, pcs, MAX_FRAMES);
    ehu_cursor_init_from(&e, context);
    unw_init_local2(&u, &copy, UNW_INIT_SIGNAL_FRAME);
    int mine, theirs;
    do {
        uint64_t pc;
        unw_word_t ip;
        ehu_get_reg(&e, EH_ELF_RIP, &pc);
        unw_get_reg(&u, UNW_REG_IP, &ip);
        check(pc == ip, "frame %ld: pc %#lx, libunwind %#lx", depth, (long)pc, (long)ip);
        check((size_t)depth < n && pc == (uintptr_t)pcs[depth], "frame %ld is not in the array of %zu", depth, n);
        check(through == 0 || ehu_is_guessed(&e), "frame %ld is not marked as guessed", depth);
        through += in_region(pc);
        depth++;
        num_frames++;
        mine = ehu_step(&e);
        theirs = unw_step(&u);
    } while (mine == 1 && theirs > 0);
    num_stacks++;
    check(mine == end_wanted && (theirs <= 0 || end_wanted != 0), "after frame %ld: step %d, libunwind %d", depth, mine,
        theirs);
    check((size_t)depth == n, "%ld frames, array of %zu", depth, n);
    check(through == depth_wanted, "%ld frames in the region, not %d", through, depth_wanted);
}

static void on_signal(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    (void)info;
    compare(context);
}

static void down(int depth)
{
    char buffer[64];
    memset(buffer, depth, sizeof buffer);
    if (depth == 0)
        raise(SIGUSR1);
    else
        code(down, depth - 1);
    __asm__ volatile("" : : "r"(buffer) : "memory");
}

static void call(int depth, int through)
{
    depth_wanted = through;
    down(depth);
}

/* settle waits until what a list that is read now and then says has been read again. */
static void settle(void)
{
    if (no_query())
        usleep(100000);
}

static void calls_through(void)
{
    for (int depth = 0; depth < 20; depth++)
        call(depth, depth);
}

static int a_file(bool deleted)
{
    char path[] = "/tmp/ehasm-jit-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0 || ftruncate(fd, SIZE) != 0)
        abort();
    if (deleted)
        unlink(path);
    return fd;
}

static void through_regions(void)
{
    struct sigaction sa = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &sa, NULL);
    put_code(-1);
    calls_through();
    munmap(region, SIZE);
    int fd = memfd_create("jit", 0);
    if (fd < 0 || ftruncate(fd, SIZE) != 0)
        abort();
    put_code(fd);
    settle();
    calls_through();
    close(fd);
    munmap(region, SIZE);
    put_code(fd = a_file(true));
    settle();
    calls_through();
    close(fd);
    munmap(region, SIZE);
}

/* A file that is there and no object's may be one's that ehu_refresh has yet to take up. */
static void through_file(void)
{
    struct sigaction sa = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    char path[64], name[4096] = "";
    sigaction(SIGUSR1, &sa, NULL);
    int fd = a_file(false);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (readlink(path, name, sizeof name - 1) < 0)
        abort();
    put_code(fd);
    end_wanted = EHU_NO_OBJECT;
    call(3, 0);
    end_wanted = 0;
    unlink(name);
    settle();
    call(3, 3);
    close(fd);
    munmap(region, SIZE);
}

/* --------------------------------------------------------------------- instruction by instruction */

static void on_step(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    (void)info;
    if (in_region((uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP]))
        compare(context);
}

static void nothing(int n) { (void)n; }

/* With a frame pointer: where the code has not pushed its own or has popped it, the caller's is what there is. */
#define WITH_FRAME_POINTER __attribute__((optimize("no-omit-frame-pointer"), noinline))

WITH_FRAME_POINTER static void stepping(void)
{
    __asm__ volatile("pushf; orl $0x100, (%%rsp); popf" : : : "memory", "cc");
    code(nothing, 1);
    __asm__ volatile("pushf; andl $~0x100, (%%rsp); popf" : : : "memory", "cc");
}

WITH_FRAME_POINTER static void each_instruction(void)
{
    struct sigaction sa = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &sa, NULL);
    put_code(-1);
    depth_wanted = 1;
    stepping();
    munmap(region, SIZE);
}

/* ------------------------------------------------------------------------ what is not a frame */

enum { FAKE = 16384 };
static uint64_t *fake; /* a stack, of FAKE bytes */

/* walk_fake walks from code in the region with rbp at word at of the fake stack, rsp at word 100. */
static size_t walk_fake(uint64_t rbp)
{
    void *pcs[16];
    ucontext_t context;
    memset(&context, 0, sizeof context);
    context.uc_mcontext.gregs[REG_RIP] = (greg_t)(uintptr_t)(region + AT + 11);
    context.uc_mcontext.gregs[REG_RSP] = (greg_t)(uintptr_t)(fake + 100);
    context.uc_mcontext.gregs[REG_RBP] = (greg_t)rbp;
    num_stacks++;
    return ehu_backtrace_from(&context, pcs, 16);
}

static uint64_t frame_at(int word, uint64_t rbp, uint64_t pc)
{
    fake[word] = rbp;
    fake[word + 1] = pc;
    return (uint64_t)(uintptr_t)(fake + word);
}

static void returns_to(const char *what, const void *to, size_t want)
{
    size_t n = walk_fake(frame_at(110, 0, (uint64_t)(uintptr_t)to));
    check(n == want, "a return to %s: %zu frames, not %zu", what, n, want);
}

static void *mapped(int prot)
{
    char *p = mmap(NULL, SIZE, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        abort();
    return p;
}

static void not_frames(void)
{
    put_code(-1);
    fake = mapped(PROT_READ | PROT_WRITE);
    settle();
    returns_to("the region", region + AT + 11, 2);
    returns_to("its first byte", region, 1); /* minus 1 is outside */
    returns_to("behind its end", region + SIZE, 2);
    returns_to("data", (char *)mapped(PROT_READ | PROT_WRITE) + 100, 1);
    returns_to("what may only be read", (char *)mapped(PROT_READ) + 100, 1);
    returns_to("what is reserved", (char *)mapped(PROT_NONE) + 100, 1);
    char *heap = malloc(100);
    if (!getenv("VALGRIND")) /* which makes it executable */
        returns_to("the heap", heap + 8, 1);
    free(heap);
    returns_to("a variable", &depth_wanted, 1);
    returns_to("the stack", &heap, 1);
    returns_to("that stack", fake + 200, 1);
    mprotect(fake, FAKE, PROT_READ | PROT_WRITE | PROT_EXEC);
    settle();
    returns_to("that stack, executable", fake + 200, 1);
    mprotect(fake, FAKE, PROT_READ | PROT_WRITE);
    returns_to("nothing", (void *)8, 1);
    returns_to("the kernel", (void *)0xffffffffff600010, 1);
    returns_to("no address", (void *)0x123456789abcdef0, 1);
    returns_to("a number", (void *)0x7fffffffffff, 1);

    uint64_t good = frame_at(110, 0, (uint64_t)(uintptr_t)(region + AT + 11));
    check(walk_fake(good) == 2, "a good frame pointer");
    check(walk_fake(good + 4) == 1, "one not aligned");
    check(walk_fake(frame_at(90, 0, fake[111])) == 1, "one below rsp");
    check(walk_fake(frame_at(FAKE / 8 - 2, 0, fake[111])) == 2, "one at the end of the stack");
    check(walk_fake((uint64_t)(uintptr_t)(fake + FAKE / 8 - 1)) == 1, "one across it");
    check(walk_fake((uint64_t)(uintptr_t)(fake + FAKE / 8)) == 1, "one behind it");
    check(walk_fake((uint64_t)(uintptr_t)region) == 1, "one in the region");
    check(walk_fake(0) == 1 && walk_fake(~(uint64_t)7) == 1 && walk_fake((uint64_t)1 << 63) == 1, "none");
    check(walk_fake(frame_at(110, good, fake[111])) == 2, "one that leads to itself");
    frame_at(120, good, fake[111]);
    check(walk_fake(frame_at(110, (uint64_t)(uintptr_t)(fake + 120), fake[111])) == 3, "two in a circle");

    munmap(region, SIZE); /* pc and return address in nothing */
    settle();
    check(walk_fake(good) == 1, "a region that is gone");
    put_code(-1);
    munmap(region, SIZE);
    munmap(fake, FAKE);
}

/* ------------------------------------------------------------------- regions come and go */

static _Atomic int stop;

static void *coming_and_going(void *arg)
{
    char *place = arg;
    for (int i = 0; i < 3000; i++) {
        mprotect(place, SIZE, i % 2 ? PROT_READ | PROT_EXEC : PROT_NONE);
        if (i % 10 == 0) {
            mmap(place, SIZE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
            munmap(place, SIZE);
        }
    }
    stop = 1;
    return NULL;
}

static _Atomic long sampled;

static void on_timer(int sig, siginfo_t *info, void *context)
{
    void *pcs[64];
    int saved = errno;
    (void)sig;
    (void)info;
    errno = 123;
    size_t n = ehu_backtrace_from(context, pcs, 64);
    check(n > 0 && n < 64 && errno == 123, "%zu frames, errno %d", n, errno);
    errno = saved;
    sampled++;
}

static void spin(int n)
{
    for (volatile int i = 0; i < n * 100; i++)
        ;
}

static void vanishing(void)
{
    pthread_t t;
    put_code(-1);
    char *place = region;
    fake = mapped(PROT_READ | PROT_WRITE);
    if (pthread_create(&t, NULL, coming_and_going, place) != 0)
        abort();
    while (!stop) {
        size_t n = walk_fake(frame_at(110, 0, (uint64_t)(uintptr_t)(place + AT + 11)));
        check(n == 1 || n == 2, "%zu frames", n);
    }
    pthread_join(t, NULL);
    mmap(place, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    settle();
    check(walk_fake(frame_at(110, 0, (uint64_t)(uintptr_t)(place + AT + 11))) == 1, "a frame in what is reserved");
    munmap(place, SIZE);
    munmap(fake, FAKE);

    struct sigaction sa = {.sa_sigaction = on_timer, .sa_flags = SA_SIGINFO | SA_RESTART};
    const struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGPROF, &sa, NULL);
    setitimer(ITIMER_PROF, &often, NULL);
    for (int i = 0; i < 200 || sampled < 50; i++) {
        put_code(-1);
        code(spin, 100);
        munmap(region, SIZE);
    }
    setitimer(ITIMER_PROF, &never, NULL);
}

/* ------------------------------------------------------------------------------------- all */

static int open_files(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    closedir(d);
    return n;
}

WITH_FRAME_POINTER int main(int argc, char **argv)
{
    static const struct { const char *name; void (*run)(void); } scenarios[] = {
        {"regions", through_regions}, {"file", through_file}, {"instructions", each_instruction},
        {"copy", through_copy},
        {"not-frames", not_frames},
        {"vanishing", vanishing},
    };
    ehu_stats_t before, after;
    void *pcs[16];
    unw_set_caching_policy(unw_local_addr_space, UNW_CACHE_NONE);
    int files = open_files();
    if (ehu_init() != 0)
        return 2;
    forbid_query();
    ehu_stats(&before);
    ehu_backtrace(pcs, 16);
    ehu_stats(&after);
    check(after.looks == before.looks, "a look for code in a stack of known objects");
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (argc > 1 && strcmp(argv[1], scenarios[i].name) == 0)
            scenarios[i].run();
    ehu_stats(&after);
    check(after.looks > before.looks, "no look for code");
    check(open_files() == files, "files were left open");
    return num_stacks + sampled == 0 ? 2 : summary(argv[1]);
}
