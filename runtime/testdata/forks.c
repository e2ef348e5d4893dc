/*
 * What meets a refresh: forks SCENARIO. Linked with --wrap=dl_iterate_phdr, which is called
 * within a refresh: there the scenario has its way.
 */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ehunwind.h"

typedef int visit_fn(struct dl_phdr_info *info, size_t size, void *arg);
int __real_dl_iterate_phdr(visit_fn *visit, void *arg);
int __wrap_dl_iterate_phdr(visit_fn *visit, void *arg);

static void (*within)(void); /* called by the next refresh, once */

int __wrap_dl_iterate_phdr(visit_fn *visit, void *arg)
{
    void (*now)(void) = within;
    within = NULL;
    if (now)
        now();
    return __real_dl_iterate_phdr(visit, arg);
}

static int failures;
static void expect(bool ok, const char *what)
{
    if (!ok) {
        printf("FAIL %s\n", what);
        failures++;
    }
}

static size_t frames(void)
{
    void *pcs[64];
    return ehu_backtrace(pcs, 64);
}

/* load has an object come, so that the next refresh has something to do. */
static void *load(void)
{
    void *handle = dlopen(getenv("PLUGIN"), RTLD_NOW);
    expect(handle != NULL, "dlopen");
    return handle;
}

/* wait_for reports whether a child says that all is well. */
static bool wait_for(pid_t child)
{
    int status = -1;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static bool in_handler; /* of this process */
static bool by_system_call; /* without what the C library does at fork */

static void fork_here(int sig)
{
    (void)sig;
    alarm(60); /* is not inherited */
    pid_t child = by_system_call ? (pid_t)syscall(SYS_fork) : fork();
    if (child == 0) {
        alarm(60);
        _exit(frames() < 3 ? 1 : ehu_refresh() < 0 ? 2 : frames() < 3 ? 3 : 0);
    }
    expect(wait_for(child), "the child of a handler");
    in_handler = true;
}

static void raise_it(void) { raise(SIGUSR1); }

/* handler: a handler that interrupted a refresh forks. */
static void handler(void)
{
    signal(SIGUSR1, fork_here);
    load();
    within = raise_it;
    expect(ehu_refresh() == 1, "the refresh that was interrupted");
    expect(in_handler, "the handler ran");
    expect(ehu_refresh() == 0, "the next");
}

static void raw(void)
{
    by_system_call = true;
    handler();
}

/* returns: the child goes on where the handler interrupted the refresh. */
static pid_t forked;
static void fork_and_return(int sig)
{
    (void)sig;
    forked = fork();
    if (forked == 0)
        expect(ehu_refresh() >= 0, "in the child's handler");
}

static void returns(void)
{
    signal(SIGUSR1, fork_and_return);
    load();
    within = raise_it;
    expect(ehu_refresh() >= 0, "the refresh that was interrupted");
    expect(frames() >= 3, "frames");
    void *again = load();
    dlclose(again);
    expect(ehu_refresh() >= 0, "another");
    if (forked == 0)
        _exit(failures);
    expect(wait_for(forked), "the child");
}

/* thread: another thread is in a refresh when this one forks. */
static sem_t reached, go_on;
static void wait_within(void)
{
    sem_post(&reached);
    sem_wait(&go_on);
}

static void *refresher(void *arg)
{
    (void)arg;
    load();
    within = wait_within;
    expect(ehu_refresh() == 1, "the thread's refresh");
    return NULL;
}

static void thread(void)
{
    pthread_t t;
    sem_init(&reached, 0, 0);
    sem_init(&go_on, 0, 0);
    expect(pthread_create(&t, NULL, refresher, NULL) == 0, "pthread_create");
    sem_wait(&reached);
    for (int i = 0; i < 2; i++) {
        pid_t child = i == 0 ? fork() : (pid_t)syscall(SYS_fork);
        if (child == 0) {
            alarm(60);
            int first = ehu_refresh(), second = ehu_refresh();
            _exit(first != 1 || second != 0 || frames() < 3);
        }
        expect(wait_for(child), "the child without the thread");
    }
    sem_post(&go_on);
    pthread_join(t, NULL);
    expect(ehu_refresh() == 0, "nothing more to do");
}

/* cancel: a thread is cancelled in a refresh. It ends after it. */
static void cancel_self(void) { pthread_cancel(pthread_self()); }

static bool done;
static void *cancelled(void *arg)
{
    load();
    within = cancel_self;
    done = ehu_refresh() == 1;
    pthread_testcancel();
    return arg;
}

static void cancel(void)
{
    pthread_t t;
    void *result;
    expect(pthread_create(&t, NULL, cancelled, &failures) == 0 && pthread_join(t, &result) == 0, "pthread_create");
    expect(done, "the refresh was not cut short");
    expect(result == PTHREAD_CANCELED, "the thread was cancelled");
    expect(ehu_refresh() == 0, "the next");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } all[] = {{"handler", handler}, {"raw", raw}, {"returns", returns}, {"thread", thread}, {"cancel", cancel}};
    alarm(60);
    if (ehu_init() != 0)
        return 2;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (argc > 1 && strcmp(argv[1], all[i].name) == 0) {
            all[i].run();
            printf("%s failures=%d\n", argv[1], failures);
            return failures != 0;
        }
    return 2;
}
