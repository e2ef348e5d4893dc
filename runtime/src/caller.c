/*
 * The loader looks at the caller of dlopen: by the return address it finds the object whose
 * DT_RUNPATH and DT_RPATH apply to a name without a slash, and whose folder is $ORIGIN. A
 * call from a library that stands in between would have that library as its caller.
 */
#include <link.h>
#include <string.h>
#include <sys/auxv.h>

#include "internal.h"

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
    d->found = d->found || (runpath ? (d->caller == 0 && info->dlpi_addr != getauxval(AT_SYSINFO_EHDR)) ||
        contains(info, d->caller) : rpath && !d->first);
    d->first = false;
    return d->found;
}

bool ehu_depends_on_caller_(const char *path, const void *caller)
{
    struct dependence d = {(uint64_t)(uintptr_t)caller, true, false};
    if (strchr(path, '$'))
        return true;
    if (strchr(path, '/'))
        return false;
    dl_iterate_phdr(look, &d);
    return d.found;
}
