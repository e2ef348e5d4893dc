/*
 * Loading. Walks may run in signal handlers, where lookups of functions should not begin, so the originals
 * in new objects are looked up when the program loads them, in dlopen. The table of objects is renewed by the first
 * walk that needs it: most programs that load take no stack.
 * A call whose result may depend on the caller is not followed: the entry jumps to the original.
 */
#include <stdarg.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload.h"

static void *followed(const char *path, int mode)
{
    void *handle = ehp_original_.dlopen(path, mode);
    if (handle) /* otherwise dlerror has a message, which must stay */
        ehp_resolve_(false);
    ehp_add_(&ehp_followed_);
    return handle;
}

void *ehp_dlopen_(const char *path, int mode, const void *caller)
{
    void *(*target)(const char *, int) = EHP_ORIGINAL(dlopen);
    void *address;
    (void)mode;
    if (path && path[0] != 0) { /* else it is the program, which is loaded */
        if (atomic_load(&ehp_ready_) && !ehu_depends_on_caller_(path, caller))
            target = followed;
        else
            ehp_add_(&ehp_not_followed_);
    }
    memcpy(&address, &target, sizeof address);
    return address;
}

/*
 * A thread that enters seccomp's strict mode can no longer ask which part of its stack is
 * readable, so this asks before. The main thread need not ask, and others may have asked already.
 * A filter may forbid opening files, so the table is renewed before; who has no right to set a
 * filter must give up new ones first.
 */
EHP_EXPORT int prctl(int option, ...)
{
    unsigned long a[4];
    va_list args;
    va_start(args, option);
    for (int i = 0; i < 4; i++)
        /* arguments not passed are whatever the registers hold, as for the original */
        a[i] = va_arg(args, unsigned long);
    va_end(args);
    if ((option == PR_SET_SECCOMP || option == PR_SET_NO_NEW_PRIVS) && atomic_load(&ehp_ready_)) {
        ehu_refresh();
        ehu_thread_init();
    }
    /* Not looked up here: an allocator may call this (jemalloc names its memory) during a
       lookup. */
    int (*original)(int, ...) = __atomic_load_n(&ehp_original_.prctl, __ATOMIC_ACQUIRE);
    return original ? original(option, a[0], a[1], a[2], a[3]) : (int)syscall(SYS_prctl, (long)option, a[0], a[1], a[2],
        a[3]);
}
