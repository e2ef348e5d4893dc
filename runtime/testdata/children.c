/*
 * children N fork|share|namespace LIBRARY...: N children walk and refresh while another thread loads libraries,
 * refreshes, unloads them and refreshes. Children of fork have that thread's locks without the thread; those that share
 * the memory have it all, but do not see its id where they begin a pid namespace. Prints what is wrong.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ehunwind.h"

static _Atomic int stop;

static void *loader(void *paths)
{
    while (!stop)
        for (char **path = paths; *path; path++) {
            void *handle = dlopen(*path, RTLD_NOW);
            ehu_refresh();
            if (handle)
                dlclose(handle);
            ehu_refresh();
        }
    return NULL;
}

static int child(void *unused)
{
    void *pcs[32];
    (void)unused;
    if (ehu_backtrace(pcs, 32) < 2)
        return 3;
    ehu_refresh();
    return ehu_backtrace(pcs, 32) < 2 ? 4 : 0;
}

static pid_t start(const char *how)
{
    static _Alignas(16) char stack[1 << 18];
    int namespaces = strcmp(how, "namespace") == 0 ? CLONE_NEWPID | (geteuid() == 0 ? 0 : CLONE_NEWUSER) : 0;
    if (strcmp(how, "fork") != 0)
        return clone(child, stack + sizeof stack, namespaces | CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        _exit(child(NULL));
    }
    return pid;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    void *pcs[32];
    if (argc < 4 || ehu_init() != 0 || pthread_create(&thread, NULL, loader, argv + 3) != 0)
        return 2;
    for (int i = 0; i < atoi(argv[1]); i++) {
        int status = -1;
        pid_t pid = start(argv[2]);
        if (pid < 0 && errno == EPERM) {
            puts("no namespaces");
            break;
        }
        if (waitpid(pid, &status, 0) < 0 || status != 0)
            printf("child %d: status %x\n", i, status);
        if (ehu_backtrace(pcs, 32) < 2)
            printf("short\n");
    }
    stop = 1;
    pthread_join(thread, NULL);
    return 0;
}
