/*
 * Samples of processor time, for when the kernel's performance events are not available: each
 * thread has a timer on its own processor clock, whose signal interrupts it. The kernel
 * checks such timers only at its ticks, so at most HZ stacks per second are taken; each
 * counts as many samples as the timer has expired since the one before.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "record.h"

static bool on;
static pthread_key_t at_end; /* of a thread: its timer goes */
static __thread timer_t timer EHR_TLS;
static __thread bool has_timer EHR_TLS;

static void on_timer(int sig, siginfo_t *info, void *context)
{
    int saved = errno;
    (void)sig;
    struct ehr_region *r = ehr_region_;
    struct ehr_process *p = info->si_code == SI_TIMER && !r->stop ? ehr_process_() : NULL;
    if (p) {
        uint64_t times = 1 + (uint64_t)(info->si_overrun > 0 ? info->si_overrun : 0);
        eh_elf_regs_t regs;
        ehu_regs_of_(&regs, context);
        struct ehr_stack *s = ehr_stack_of_(p, &regs, true);
        if (s) {
            ehr_add_(&p->taken, times);
            ehr_add_(&s->objects, times * EHR_UNIT);
            ehr_add_(&s->bytes, times * r->interval);
        } else {
            ehr_add_(&p->no_room, 1);
        }
        ehr_add_(&p->overruns, times - 1);
    }
    errno = saved;
}

/* start gives the calling thread a timer. One that has the signal blocked will not be seen. */
static void start(void)
{
    struct ehr_process *p = ehr_process_();
    uint64_t interval = ehr_region_->interval;
    struct sigevent event;
    sigset_t blocked;
    if (!p)
        return;
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGPROF;
    event._sigev_un._tid = (int)syscall(SYS_gettid);
    if (timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer) != 0) {
        ehr_add_(&p->missed, 1);
        return;
    }
    const time_t second = 1000000000;
    const struct timespec t = {(time_t)interval / second, (long)((time_t)interval % second)};
    const struct itimerspec again = {t, t};
    timer_settime(timer, 0, &again, NULL);
    has_timer = true;
    ehr_add_(&p->threads, 1);
    pthread_setspecific(at_end, &timer);
    if (pthread_sigmask(SIG_BLOCK, NULL, &blocked) == 0 && sigismember(&blocked, SIGPROF) == 1)
        ehr_add_(&p->blocked, 1);
}

static void end(void *unused)
{
    (void)unused;
    if (has_timer)
        timer_delete(timer);
    has_timer = false;
}

/* in_child is for a child of fork, which has no timers. */
static void in_child(void)
{
    has_timer = false;
    start();
}

struct begin {
    void *(*fn)(void *);
    void *arg;
};

static void *started(void *arg)
{
    struct begin b = *(struct begin *)arg;
    free(arg);
    start();
    return b.fn(b.arg);
}

__attribute__((visibility("default"))) int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    static int (*_Atomic original)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!original) {
        int (*found)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
        void *address = dlsym(RTLD_NEXT, "pthread_create");
        memcpy(&found, &address, sizeof found);
        original = found;
    }
    struct begin *b = on ? malloc(sizeof *b) : NULL;
    if (!b)
        return original(thread, attr, fn, arg);
    *b = (struct begin){fn, arg};
    int failed = original(thread, attr, started, b);
    if (failed)
        free(b);
    return failed;
}

/* ehr_timers_ begins with the thread that calls it. */
void ehr_timers_(struct ehr_process *p)
{
    struct sigaction sa;
    memset(&sa, 0, sizeof sa);
    sa.sa_sigaction = on_timer;
    sa.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
    if (pthread_key_create(&at_end, end) != 0 || sigaction(SIGPROF, &sa, NULL) != 0 || pthread_atfork(NULL, NULL, in_child) != 0) {
        ehr_add_(&p->missed, 1);
        return;
    }
    on = true;
    start();
}
