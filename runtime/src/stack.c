/*
 * What of the stack may be read. A walk reads in a window without asking, so the
 * window must hold nothing but readable memory, whatever the stack leads it to.
 *
 * There is no function to ask for the bounds of a stack in a signal handler:
 * pthread_getattr_np allocates and reads files. Instead a handler goes by where a
 * stack has to end: the main thread's at the address that ehu_init noted; a
 * pthread's below its thread pointer, since glibc puts the thread's data at the top
 * of its stack. That all pages from rsp up to there are readable is asked of the
 * kernel, once, and kept in the thread: its own stack stays as long as the thread.
 *
 * Any other stack (sigaltstack, makecontext) may be gone at the next walk, so what
 * is known of it is not kept: each walk asks again, a system call for 32 pages.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/ucontext.h>
#include <sys/uio.h>
#include <unistd.h>

#include "internal.h"

enum {
    CHUNK = 32,      /* pages asked for by one system call */
    GUARD_PAGES = 16 /* how far above an unreadable rsp the stack may begin */
};

static uint64_t main_top; /* where the main thread's stack ends */
static uint64_t main_tp;  /* the main thread's thread pointer, which is not on its stack; 0 if unknown */
static uint64_t largest = 8 << 20; /* what a thread's own stack is not larger than, in a guess */
static bool use_sigprocmask;  /* process_vm_readv is forbidden here */

/*
 * The thread's own stack, as far as it is known to be readable, and a range below
 * its end that is known not to belong to it. A handler may interrupt a change:
 * hi is 0 while lo is being written, and a reader looks at hi before and after.
 */
static __thread struct {
    volatile uint64_t lo, hi;
    volatile uint64_t not_lo, not_hi;
} own __attribute__((tls_model("initial-exec")));

static void set_own(uint64_t lo, uint64_t hi)
{
    own.hi = 0;
    own.lo = lo;
    own.hi = hi;
}

/*
 * read_pages tells how many of n pages, the first of them at addr, are readable:
 * a byte of each is read through the kernel, which reports what would be a crash.
 */
static size_t read_pages(uint64_t addr, size_t n)
{
    char sink[CHUNK];
    struct iovec to = {sink, n}, from[CHUNK];
    for (size_t i = 0; i < n; i++)
        from[i] = (struct iovec){(void *)(uintptr_t)(addr + i * PAGE), 1};
    ehu_count_(COUNT_PROBES);
    long got = syscall(SYS_process_vm_readv, (long)getpid(), &to, 1L, from, (long)n, 0L);
    return got < 0 ? 0 : (size_t)got;
}

/*
 * The way round where process_vm_readv is forbidden, as in some containers:
 * rt_sigprocmask reads the set before it finds that the operation is none.
 */
static bool readable_by_sigprocmask(uint64_t addr)
{
    ehu_count_(COUNT_PROBES);
    return syscall(SYS_rt_sigprocmask, ~0L, addr, NULL, 8L) == 0 || errno != EFAULT;
}

/* readable_until returns where in [lo, hi), both multiples of the page size, the first unreadable page is. */
static uint64_t readable_until(uint64_t lo, uint64_t hi)
{
    int saved = errno;
    while (lo < hi) {
        size_t n = (hi - lo) / PAGE < CHUNK ? (hi - lo) / PAGE : CHUNK, got = 0;
        if (!use_sigprocmask)
            got = read_pages(lo, n);
        else
            while (got < n && readable_by_sigprocmask(lo + got * PAGE))
                got++;
        lo += got * PAGE;
        if (got < n)
            break;
    }
    errno = saved;
    return lo;
}

/* ehu_probe_word_ is the read function of a walk that needs a word outside its window. */
int ehu_probe_word_(void *arg, uint64_t addr, uint64_t *word)
{
    (void)arg;
    int saved = errno;
    bool ok;
    if (!use_sigprocmask) {
        struct iovec to = {word, 8}, from = {(void *)(uintptr_t)addr, 8};
        ehu_count_(COUNT_PROBES);
        ok = syscall(SYS_process_vm_readv, (long)getpid(), &to, 1L, &from, 1L, 0L) == 8;
    } else {
        ok = readable_by_sigprocmask(addr);
        if (ok)
            memcpy(word, (const void *)(uintptr_t)addr, 8);
    }
    errno = saved;
    return ok ? 0 : -1;
}

static bool set_window(eh_elf_memory_t *mem, uint64_t lo, uint64_t rsp, uint64_t hi)
{
    if (lo < rsp - RED_ZONE)
        lo = rsp - RED_ZONE;
    mem->lo = lo;
    mem->size = hi - lo;
    mem->bytes = (const void *)(uintptr_t)lo;
    return true;
}

/* own_end is where the stack that holds rsp ends if it is the thread's own; 0 if it cannot be. */
static uint64_t own_end(uint64_t rsp)
{
    if (rsp < main_top && main_top - rsp <= largest)
        return main_top;
    uint64_t tp = ehu_thread_pointer_(); /* what is above are the thread's data */
    if (tp != main_tp && rsp < tp && tp - rsp <= largest)
        return tp;
    return 0;
}

/*
 * lowest_readable is the lowest page that a frame with this rsp may use and that can
 * be read: that of its red zone, as a rule. A stack that overflowed has its rsp in the
 * guard page or below, and its frames above that. It is 0 where there is none.
 */
static uint64_t lowest_readable(uint64_t rsp)
{
    uint64_t lo = (rsp - RED_ZONE) & ~(uint64_t)(PAGE - 1);
    for (int i = 0; i < GUARD_PAGES; i++, lo += PAGE)
        if (readable_until(lo, lo + PAGE) != lo)
            return lo;
    return 0;
}

/* feel_out finds a window by asking the kernel. */
static bool feel_out(uint64_t rsp, eh_elf_memory_t *mem, uint32_t *flags)
{
    if (rsp < 2 * PAGE || rsp >= (uint64_t)1 << 47)
        return false;
    uint64_t end = own_end(rsp), lo = lowest_readable(rsp);
    if (lo == 0)
        return false;
    if (end != 0 && end == own.hi && rsp < end) {
        uint64_t known = own.lo;
        if (lo >= known || readable_until(lo, known) == known) { /* deeper than before */
            if (lo < known)
                set_own(lo, end);
            return set_window(mem, lo, rsp, end);
        }
    } else if (end != 0 && !(rsp >= own.not_lo && rsp < own.not_hi)) {
        uint64_t last = end & ~(uint64_t)(PAGE - 1); /* the page of the thread pointer is in use */
        uint64_t until = readable_until(lo, last);
        if (until >= last) {
            set_own(lo, end);
            return set_window(mem, lo, rsp, end);
        }
        own.not_lo = lo;
        own.not_hi = until;
    }
    ehu_count_(COUNT_OTHER_STACKS);
    uint64_t until = readable_until(lo, lo + CHUNK * PAGE);
    if (until <= rsp)
        return false; /* the other side of a gap */
    *flags |= EHU_OTHER_STACK;
    return set_window(mem, lo, rsp, until);
}

/*
 * ehu_window_ makes the window of the stack that holds rsp: from the red zone up.
 * It returns false where there is none. Where a stack overflowed, it begins above rsp.
 */
bool ehu_window_(uint64_t rsp, eh_elf_memory_t *mem, uint32_t *flags)
{
    *flags &= ~(uint32_t)EHU_OTHER_STACK;
    uint64_t hi = own.hi, lo = own.lo;
    if (hi == own.hi && rsp < hi && lo <= rsp - RED_ZONE && rsp >= RED_ZONE)
        return set_window(mem, lo, rsp, hi);
    return feel_out(rsp, mem, flags);
}

uint64_t ehu_context_start_;

/*
 * note_context_start finds the return address that makecontext gives its function. No
 * call precedes it, so no table describes it as a return address; in glibc's tables a
 * stack goes on from there to whatever lies above.
 */
static void note_context_start(void)
{
    static ucontext_t made;
    static char space[4096];
    if (getcontext(&made) != 0)
        return;
    made.uc_stack.ss_sp = space;
    made.uc_stack.ss_size = sizeof space;
    made.uc_link = NULL;
    makecontext(&made, ehu_stack_init_, 0); /* never entered */
    memcpy(&ehu_context_start_, (const void *)(uintptr_t)made.uc_mcontext.gregs[REG_RSP], sizeof ehu_context_start_);
}

/* note_main_top finds the end of the main thread's stack in a line of /proc/self/maps. */
static bool note_main_top(const char *line, size_t len, void *arg)
{
    static const char name[] = "[stack]";
    size_t n = sizeof name - 1;
    (void)arg;
    if (len < n || memcmp(line + len - n, name, n) != 0)
        return false;
    main_top = strtoull(strchr(line, '-') + 1, NULL, 16);
    return true;
}

/* ehu_stack_init_ notes where stacks end. */
void ehu_stack_init_(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur > largest)
        largest = limit.rlim_cur < 1u << 30 ? limit.rlim_cur : 1u << 30;
    ehu_map_lines_(note_main_top, NULL);
    note_context_start();
    if (syscall(SYS_gettid) == getpid())
        main_tp = ehu_thread_pointer_();
    char here = 0, there = 1;
    struct iovec to = {&there, 1}, from = {&here, 1};
    use_sigprocmask = syscall(SYS_process_vm_readv, (long)getpid(), &to, 1L, &from, 1L, 0L) != 1;
}

void ehu_thread_init(void)
{
    eh_elf_memory_t mem;
    uint32_t flags = 0;
    uint64_t here = (uint64_t)(uintptr_t)__builtin_frame_address(0);
    pthread_attr_t attr;
    void *lo;
    size_t size;
    if (here < main_top && main_top - here <= largest) {
        ehu_window_(here, &mem, &flags); /* of the main thread's stack not all is mapped */
        return;
    }
    if (pthread_getattr_np(pthread_self(), &attr) != 0)
        return;
    if (pthread_attr_getstack(&attr, &lo, &size) == 0 && here - (uintptr_t)lo < size)
        set_own((uintptr_t)lo, (uintptr_t)lo + size);
    pthread_attr_destroy(&attr);
}
