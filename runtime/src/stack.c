/*
 * Which part of the stack can be read. A walk reads in a window without asking,
 * so the window must hold only readable memory, whatever the stack contains.
 *
 * There is no function to ask for the bounds of a stack in a signal handler:
 * pthread_getattr_np allocates and reads files. Instead a handler uses where a
 * stack must end: the main thread's at the address that ehu_init recorded; a
 * pthread's below its thread pointer, since glibc puts the thread's data at the top
 * of its stack. The kernel is asked once whether all pages from rsp up to there are
 * readable, and the answer is kept in the thread: its own stack lives as long as
 * the thread.
 *
 * Any other stack (sigaltstack, makecontext) may be gone at the next walk, so
 * answers about it are not kept: each walk asks again, a system call for 32 pages.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/ucontext.h>
#include <sys/uio.h>
#include <unistd.h>

#include "internal.h"

enum {
    CHUNK = 32,      /* pages asked for by one system call */
    AHEAD = 8, /* pages asked for at a time, of a stack that is not the thread's own */
    GUARD_PAGES = 16 /* the stack may begin this far above an unreadable rsp */
};

static uint64_t main_top; /* where the main thread's stack ends */
static uint64_t main_floor; /* all memory between the two above an executing frame is that stack */
static uint64_t main_tp;  /* the main thread's thread pointer, which is not on its stack; 0 if unknown */
/* A bound on the size of a thread's own stack: Linux's default limit, or RLIMIT_STACK up to 1 GB. */
static uint64_t largest = 8 << 20;

/*
 * How to ask the kernel whether memory can be read. RATIONALE.md has figures and the
 * alternatives. BY_SIGPROCMASK works under most seccomp filters: rt_sigprocmask reads the
 * set before it rejects the operation, and the C library needs that call. BY_READV is used
 * if rt_sigprocmask does not do that (DynamoRIO), or reports it (valgrind). NOT_AT_ALL:
 * neither is allowed, or no longer; only memory known to be readable is read.
 */
enum asking { BY_SIGPROCMASK, BY_READV, NOT_AT_ALL };
static _Atomic enum asking asking;

bool ehu_answers_(void) { return atomic_load_explicit(&asking, memory_order_relaxed) != NOT_AT_ALL; }

void ehu_be_quiet_(void)
{
    ehu_quiet_ = true;
    atomic_store(&asking, NOT_AT_ALL);
}

__thread struct ehu_own_stack ehu_own_stack_ __attribute__((tls_model("initial-exec")));

/* set_own notes the thread's own stack. A handler may come between the stores: hi, which every reader looks
 * at first, is 0 meanwhile. */
static void set_own(uint64_t lo, uint64_t hi)
{
    ehu_own_stack_.hi = 0;
    ehu_own_stack_.lo = lo;
    ehu_own_stack_.hi = hi;
}

/* by_sigprocmask reports whether 8 bytes, or those up to the end of the page, can be read. */
static bool by_sigprocmask(uint64_t addr)
{
    long got = syscall(SYS_rt_sigprocmask, ~0L, addr, NULL, 8L);
    if (got == 0 || errno == EINVAL)
        return true;
    if (errno != EFAULT) /* a filter was installed since: this is no answer */
        atomic_store(&asking, NOT_AT_ALL);
    return false;
}

/*
 * by_readv returns how many of n pages from addr on are readable: it reads a byte
 * of each through the kernel, which reports an error where a load would crash.
 */
static size_t by_readv(uint64_t addr, size_t n)
{
    char sink[CHUNK];
    struct iovec to = {sink, n}, from[CHUNK];
    for (size_t i = 0; i < n; i++)
        from[i] = (struct iovec){(void *)(uintptr_t)(addr + i * PAGE), 1};
    ehu_count_(COUNT_PROBES);
    long got = syscall(SYS_process_vm_readv, (long)getpid(), &to, 1L, from, (long)n, 0L);
    if (got < 0 && errno != EFAULT)
        atomic_store(&asking, NOT_AT_ALL);
    return got < 0 ? 0 : (size_t)got;
}

/* readable_pages returns how many of n pages from addr on are readable; n is at most
   CHUNK. */
static size_t readable_pages(uint64_t addr, size_t n)
{
    size_t got = 0;
    switch (atomic_load_explicit(&asking, memory_order_relaxed)) {
    case BY_SIGPROCMASK:
        for (; got < n; got++) {
            ehu_count_(COUNT_PROBES);
            if (!by_sigprocmask(addr + got * PAGE))
                break;
        }
        return got;
    case BY_READV: return by_readv(addr, n);
    default: return 0;
    }
}

/* readable_until returns the address of the first unreadable page in [lo, hi), or hi.
   Both are multiples of the page size. */
static uint64_t readable_until(uint64_t lo, uint64_t hi)
{
    int saved = errno;
    while (lo < hi) {
        size_t n = (hi - lo) / PAGE < CHUNK ? (hi - lo) / PAGE : CHUNK, got = readable_pages(lo, n);
        lo += got * PAGE;
        if (got < n)
            break;
    }
    errno = saved;
    return lo;
}

/* copy_word reads a word that the kernel has just reported readable; sanitizers do not
   check it. */
static uint64_t copy_word(uint64_t addr)
{
    uint64_t word;
    __asm__ volatile("mov (%1), %0" : "=r"(word) : "r"(addr) : "memory");
    return word;
}

/* ehu_probe_word_ is the read function of a walk that needs a word outside its window. */
int ehu_probe_word_(void *arg, uint64_t addr, uint64_t *word)
{
    (void)arg;
    int saved = errno;
    bool ok = false;
    switch (atomic_load_explicit(&asking, memory_order_relaxed)) {
    case BY_SIGPROCMASK:
        ehu_count_(COUNT_PROBES);
        ok = addr != 0 && addr <= UINT64_MAX - 7 && by_sigprocmask(addr); /* of no set, the kernel reads none */
        if (ok)
            *word = copy_word(addr);
        break;
    case BY_READV: {
        struct iovec to = {word, 8}, from = {(void *)(uintptr_t)addr, 8};
        ehu_count_(COUNT_PROBES);
        long got = syscall(SYS_process_vm_readv, (long)getpid(), &to, 1L, &from, 1L, 0L);
        ok = got == 8;
        if (got < 0 && errno != EFAULT)
            atomic_store(&asking, NOT_AT_ALL);
        break;
    }
    default: break;
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

/* own_end returns the end of the stack that holds rsp if that is the thread's own, or 0
   if it cannot be. */
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
 * lowest_readable returns the lowest readable page that a frame with this rsp may use:
 * usually its red zone's. A stack that overflowed has its rsp in the guard page
 * or below, and its frames above that. It returns 0 if there is no such page.
 */
static uint64_t lowest_readable(uint64_t rsp)
{
    uint64_t lo = (rsp - RED_ZONE) & ~(uint64_t)(PAGE - 1);
    for (int i = 0; i < GUARD_PAGES; i++, lo += PAGE)
        if (readable_until(lo, lo + PAGE) != lo)
            return lo;
    return 0;
}

/*
 * holds_stack reports whether a pthread's stack, which ends at its thread pointer, holds an address. glibc has there
 * the stack's begin, size and guard size one after the other. Their sum tells them from other words, and begin a page:
 * a null pointer before one to the thread's data has the sum, too.
 */
static bool holds_stack(uint64_t tp, uint64_t address)
{
    enum { WORDS = 2304 / 8 }; /* struct pthread has at least as many */
    const uint64_t *w = (const void *)(uintptr_t)tp;
    for (size_t i = 0; tp != main_tp && address < tp && i + 2 < WORDS; i++) {
        uint64_t end = w[i] + w[i + 1];
        if (w[i] != 0 && w[i] <= address && end > tp && end - tp <= 2 * PAGE && w[i + 2] < w[i + 1] &&
            (w[i] | w[i + 2]) % PAGE == 0)
            return true;
    }
    return false;
}

/*
 * above_here reports whether rsp is in the thread's own stack, above the frame that is being
 * executed. All memory from here to its end is readable, and the kernel is not asked: a sandbox
 * may end the process for that.
 */
static bool above_here(uint64_t rsp)
{
    uint64_t here = (uint64_t)(uintptr_t)__builtin_frame_address(0), tp = ehu_thread_pointer_();
    uint64_t end = here >= main_floor && here < main_top ? main_top : holds_stack(tp, here) ? tp : 0;
    if (rsp < here || rsp >= end)
        return false;
    uint64_t lo = here & ~(uint64_t)(PAGE - 1);
    if (ehu_own_stack_.hi != end || lo < ehu_own_stack_.lo)
        set_own(lo, end);
    return true;
}

/* ehu_feel_out_ finds a window, and asks the kernel if necessary. */
bool ehu_feel_out_(uint64_t rsp, eh_elf_memory_t *mem, uint32_t *flags)
{
    if (rsp < 2 * PAGE || rsp >= (uint64_t)1 << 47)
        return false;
    if (above_here(rsp))
        return set_window(mem, ehu_own_stack_.lo, rsp, ehu_own_stack_.hi);
    uint64_t end = own_end(rsp), lo = ehu_answers_() ? lowest_readable(rsp) : 0;
    if (lo == 0)
        return false;
    if (end != 0 && end == ehu_own_stack_.hi && rsp < end) {
        uint64_t known = ehu_own_stack_.lo;
        if (lo >= known || readable_until(lo, known) == known) { /* deeper than before */
            if (lo < known)
                set_own(lo, end);
            return set_window(mem, lo, rsp, end);
        }
    } else if (end != 0 && !(rsp >= ehu_own_stack_.not_lo && rsp < ehu_own_stack_.not_hi)) {
        uint64_t last = end & ~(uint64_t)(PAGE - 1); /* the page of the thread pointer is in use */
        uint64_t until = readable_until(lo, last);
        if (until >= last) {
            set_own(lo, end);
            return set_window(mem, lo, rsp, end);
        }
        ehu_own_stack_.not_lo = lo;
        ehu_own_stack_.not_hi = until;
    }
    ehu_count_(COUNT_OTHER_STACKS);
    uint64_t until = readable_until(lo, lo + (atomic_load(&asking) == BY_READV ? CHUNK : AHEAD) * PAGE);
    if (until <= rsp)
        return false; /* the other side of a gap */
    *flags |= EHU_OTHER_STACK;
    return set_window(mem, lo, rsp, until);
}

uint64_t ehu_context_start_;

/*
 * note_context_start finds the return address that makecontext gives its function. No
 * call precedes it, so no table describes it as a return address; by glibc's tables a
 * stack would continue from there with whatever lies above.
 */
#pragma weak getcontext
#pragma weak makecontext /* musl has neither */
static void note_context_start(void)
{
    static ucontext_t made;
    static char space[4096];
    if (!makecontext || getcontext(&made) != 0)
        return;
    made.uc_stack.ss_sp = space;
    made.uc_stack.ss_size = sizeof space;
    made.uc_link = NULL;
    makecontext(&made, ehu_stack_init_, 0); /* never entered */
    memcpy(&ehu_context_start_, (const void *)(uintptr_t)made.uc_mcontext.gregs[REG_RSP], sizeof ehu_context_start_);
}

/* Finds in /proc/self/maps the mapping that holds the data that the kernel put on the
   first stack. */
struct stack_look {
    uint64_t inside, below; /* below: where the mapping before it ends */
};

static bool note_main_stack(const char *line, size_t len, void *arg)
{
    struct stack_look *l = arg;
    char *end;
    (void)len;
    uint64_t low = strtoull(line, &end, 16), high = *end == '-' ? strtoull(end + 1, NULL, 16) : 0;
    if (l->inside >= high) {
        l->below = high;
        return false;
    }
    if (l->inside >= low) {
        main_top = high;
        main_floor = high > largest ? high - largest : 0;
        if (main_floor < l->below + GUARD_PAGES * PAGE)
            main_floor = l->below + GUARD_PAGES * PAGE;
    }
    return true;
}

/* choose_asking finds a way to ask that gives correct answers. */
static void choose_asking(void)
{
    static const uint64_t nowhere = 8; /* an address in the first page, which is never mapped */
    char here = 0, there = 1;
    struct iovec to = {&there, 1}, from = {&here, 1};
    if (!ehu_in_valgrind_() && by_sigprocmask((uint64_t)(uintptr_t)&to) && !by_sigprocmask(nowhere) && ehu_answers_())
        return;
    bool can = syscall(SYS_process_vm_readv, (long)getpid(), &to, 1L, &from, 1L, 0L) == 1;
    atomic_store(&asking, can ? BY_READV : NOT_AT_ALL);
}

/* ehu_stack_init_ records where stacks end. */
void ehu_stack_init_(void)
{
    struct rlimit limit;
    struct stack_look look = {.inside = getauxval(AT_RANDOM)};
    if (getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur > largest)
        largest = limit.rlim_cur < 1u << 30 ? limit.rlim_cur : 1u << 30;
    ehu_map_lines_(note_main_stack, &look);
    note_context_start();
    if (syscall(SYS_gettid) == getpid())
        main_tp = ehu_thread_pointer_();
    choose_asking();
}

void ehu_thread_init(void)
{
    eh_elf_memory_t mem;
    uint32_t flags = 0;
    ehu_window_((uint64_t)(uintptr_t)__builtin_frame_address(0), &mem, &flags);
}
