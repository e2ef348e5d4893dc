/*
 * A program that forbids itself system calls while it runs: sandbox WHAT [thread]. It says how
 * many frames its stacks have, deep ones and shallow ones.
 */
#include <errno.h>
#include <execinfo.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <unwind.h>

static const char *what;

static _Unwind_Reason_Code count(struct _Unwind_Context *context, void *arg)
{
    if (_Unwind_GetIP(context) != 0)
        ++*(int *)arg;
    return _URC_NO_REASON;
}

__attribute__((noinline)) static int deep(int n, const char *when)
{
    volatile char room[2000];
    room[n % 2000] = 1;
    if (n > 0) {
        int got = deep(n - 1, when);
        return got + room[n % 2000] - 1; /* after the call, so that it is none of a tail */
    }
    void *pcs[64];
    char line[64];
    int by_unwind = 0, by_backtrace = backtrace(pcs, 64);
    _Unwind_Backtrace(count, &by_unwind);
    int len = snprintf(line, sizeof line, "%s: %d %d\n", when, by_backtrace, by_unwind);
    return (int)syscall(SYS_write, 1L, line, (long)len);
}

static void filter(unsigned number, unsigned action)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        printf("cannot forbid\n");
        exit(3);
    }
}

static void *other_thread(void *arg)
{
    deep(1, "thread");
    return arg;
}

static void *run(void *arg)
{
    deep(3, "before");
    if (strcmp(what, "strict") == 0) {
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
        deep(3, "as deep");
        deep(20, "deeper");
        syscall(SYS_exit, 0L);
    }
    filter(strstr(what, "readv") ? SYS_process_vm_readv : SYS_rt_sigprocmask,
           strstr(what, "kill") ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | (strstr(what,
           "nosys") ? ENOSYS : EPERM));
    deep(3, "as deep");
    deep(20, "deeper");
    return arg;
}

int main(int argc, char **argv)
{
    pthread_t t;
    void *pcs[4];
    what = argv[1];
    setvbuf(stdout, NULL, _IONBF, 0);
    backtrace(pcs, 4); /* loads libgcc */
    if (argc > 2) {
        pthread_create(&t, NULL, run, NULL);
        pthread_join(t, NULL);
    } else {
        run(NULL);
    }
    if (strstr(what, "readv") && (pthread_create(&t, NULL, other_thread, NULL) != 0 || pthread_join(t, NULL) != 0))
        return 2;
    return 0;
}
