/* Scenarios of the program stacks in which something is not as usual. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "stacks.h"

/*
 * A thread runs out of its stack, and the handler, on an alternate stack, walks what
 * there is: rsp may be in the guard page.
 */
static sigjmp_buf out;

static void on_overflow(int sig, siginfo_t *info, void *context)
{
    static void *pcs[MAX_FRAMES];
    ehu_cursor_t c;
    int n = 1;
    (void)sig;
    (void)info;
    size_t got = ehu_backtrace_from(context, pcs, MAX_FRAMES);
    ehu_cursor_init_from(&c, context);
    while (ehu_step(&c) == 1)
        n++;
    check(ehu_status(&c) == EH_ELF_OUTERMOST && n > 100, "%d frames, status %d", n, ehu_status(&c));
    check(got == (size_t)(n < MAX_FRAMES ? n : MAX_FRAMES), "%zu of %d frames in the array", got, n);
    num_stacks++;
    siglongjmp(out, 1);
}

NOINLINE static long without_end(long depth)
{
    volatile char buffer[100];
    buffer[depth % 100] = 1;
    return sink == -1 ? 0 : without_end(depth + 1) + buffer[depth % 50];
}

static void *overflowing(void *arg)
{
    static char space[1 << 16];
    stack_t alt = {.ss_sp = space, .ss_size = sizeof space};
    (void)arg;
    sigaltstack(&alt, NULL);
    if (sigsetjmp(out, 1) == 0)
        sink = without_end(0);
    return NULL;
}

void overflow(void)
{
    struct sigaction sa;
    memset(&sa, 0, sizeof sa);
    sa.sa_sigaction = on_overflow;
    sa.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &sa, NULL);
    for (int i = 0; i < 3; i++) {
        pthread_t t;
        pthread_attr_t attr;
        pthread_attr_init(&attr);
        pthread_attr_setstacksize(&attr, 64 << (10 + i));
        if (pthread_create(&t, &attr, overflowing, NULL) != 0)
            abort();
        pthread_attr_destroy(&attr);
        pthread_join(t, NULL);
    }
}

/* A child takes its own stacks, from a thread too, and may refresh. */
static void *forking(void *arg)
{
    (void)arg;
    pid_t child = fork();
    if (child == 0) {
        bottom = check_here;
        chain(10);
        check(ehu_refresh() == 0, "nothing changed in the child");
        _exit(summary("child"));
    }
    int status = -1;
    check(child > 0 && waitpid(child, &status, 0) == child && status == 0, "child: status %d", status);
    num_stacks++;
    return NULL;
}

void forks(void)
{
    pthread_t t;
    forking(NULL);
    if (pthread_create(&t, NULL, forking, NULL) != 0)
        abort();
    pthread_join(t, NULL);
}

/* forbid_readv forbids process_vm_readv, as some containers do. */
void forbid_readv(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof rules / sizeof *rules, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
        printf("cannot forbid\n");
        exit(3);
    }
}
