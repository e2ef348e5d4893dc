/*
 * Two signals, the second in the handler of the first. The handler of the second writes
 * what a recording has: what is mapped, the registers, and the stack from rsp up; before
 * these, what the first handler was told of the registers that it interrupted.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

static greg_t interrupted[NGREG];
static volatile int depth;

static void put(const void *from, size_t size)
{
    if (write(1, from, size) < 0)
        _exit(1);
}

static void dump(const greg_t *gregs)
{
    static char maps[1 << 16];
    uint64_t size = 0;
    int fd = open("/proc/self/maps", O_RDONLY);
    for (ssize_t n; (n = read(fd, maps + size, sizeof maps - size)) > 0;)
        size += (uint64_t)n;
    put(interrupted, sizeof interrupted);
    put(gregs, sizeof interrupted);
    put(&size, sizeof size);
    put(maps, size);
    /* Word by word: a pipe takes nothing of the page that the stack ends in. */
    const uint64_t *word = (const uint64_t *)gregs[REG_RSP];
    for (int i = 0; i < 1 << 12 && write(1, word + i, sizeof *word) == sizeof *word; i++) {
    }
    _exit(0);
}

static void handler(int sig, siginfo_t *info, void *context)
{
    const greg_t *gregs = ((const ucontext_t *)context)->uc_mcontext.gregs;
    (void)sig;
    (void)info;
    if (depth++ > 0)
        dump(gregs);
    memcpy(interrupted, gregs, sizeof interrupted);
    __asm__ volatile("mov $1, %%rbx; mov $2, %%r12; int3" ::: "rbx", "r12", "memory");
}

__attribute__((noinline)) static int work(int n)
{
    __asm__ volatile("mov $3, %%rbx; int3" ::: "rbx", "memory");
    return n + 1;
}

int main(int argc, char **argv)
{
    struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_NODEFER};
    (void)argv;
    sigaction(SIGTRAP, &sa, NULL);
    return work(argc) + 1;
}
