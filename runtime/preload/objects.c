/*
 * Loading. Walks may run in signal handlers, where lookups of functions should not begin, so the originals
 * in new objects are looked up when the program loads them, in dlopen. The table of objects is renewed by the first
 * walk that needs it: most programs that load take no stack.
 *
 * The loader looks at the caller of dlopen: by the return address it finds the object whose
 * DT_RUNPATH and DT_RPATH apply to a name without a slash, and whose folder is $ORIGIN. A
 * call from here would have this library as its caller. So if the result may depend on the
 * caller, the call is not followed: the entry jumps to the original.
 */
#include <link.h>
#include <stdarg.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload.h"

struct dependence {
    uint64_t caller;
    bool first; /* object: the program itself, whose DT_RPATH applies to all */
    bool found;
};

static bool contains(const struct dl_phdr_info *info, uint64_t address)
{
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD &&
            address - (info->dlpi_addr + info->dlpi_phdr[i].p_vaddr) < info->dlpi_phdr[i].p_memsz)
            return true;
    return false;
}

/* look finds search paths that depend on the calling object. */
static int look(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct dependence *d = arg;
    bool rpath = false, runpath = false;
    (void)size;
    d->found = !ehu_readable_((uint64_t)(uintptr_t)info->dlpi_phdr); /* its file was cut: it may have any path */
    for (int i = 0; !d->found && i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_DYNAMIC)
            continue;
        uint64_t dynamic = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if ((d->found = !ehu_readable_(dynamic)))
            break;
        const ElfW(Dyn) *dyn = (const void *)(uintptr_t)dynamic;
        for (; dyn->d_tag != DT_NULL; dyn++) {
            rpath |= dyn->d_tag == DT_RPATH;
            runpath |= dyn->d_tag == DT_RUNPATH;
        }
    }
    /* DT_RPATH applies also to calls by what the object has loaded; DT_RUNPATH does not */
    d->found = d->found || (runpath ? contains(info, d->caller) : rpath && !d->first);
    d->first = false;
    return d->found;
}

static bool depends_on_caller(const char *path, const void *caller)
{
    struct dependence d = {(uint64_t)(uintptr_t)caller, true, false};
    if (strchr(path, '$'))
        return true;
    if (strchr(path, '/'))
        return false;
    dl_iterate_phdr(look, &d);
    return d.found;
}

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
        if (atomic_load(&ehp_ready_) && !depends_on_caller(path, caller))
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
        a[i] = va_arg(args, unsigned long); /* arguments not passed are whatever the registers hold, as for the original */
    va_end(args);
    if ((option == PR_SET_SECCOMP || option == PR_SET_NO_NEW_PRIVS) && atomic_load(&ehp_ready_)) {
        ehu_refresh();
        ehu_thread_init();
    }
    /* Not looked up here: an allocator may call this (jemalloc names its memory) during a
       lookup. */
    int (*original)(int, ...) = __atomic_load_n(&ehp_original_.prctl, __ATOMIC_ACQUIRE);
    return original ? original(option, a[0], a[1], a[2], a[3]) : (int)syscall(SYS_prctl, (long)option, a[0], a[1], a[2], a[3]);
}
