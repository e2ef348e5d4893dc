#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stacks.h"

enum { MAX_OBJECTS = 64 };
static struct object objects[MAX_OBJECTS];
static int num_objects;

static int found(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    (void)arg;
    if (num_objects == MAX_OBJECTS)
        abort();
    struct object *o = &objects[num_objects];
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_LOAD && p->p_flags & PF_X) {
            o->bias = info->dlpi_addr;
            o->low = info->dlpi_addr + p->p_vaddr;
            o->high = o->low + p->p_memsz;
        }
    }
    char self[PATH_MAX];
    const char *path = info->dlpi_name;
    if (path[0] == 0) {
        ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
        if (n < 0)
            abort();
        self[n] = 0;
        path = self;
    }
    for (int i = 0; i < num_objects; i++)
        if (objects[i].low == o->low)
            return 0; /* known since an earlier call */
    o->path = strdup(path);
    const char *slash = strrchr(o->path, '/');
    o->name = slash ? slash + 1 : o->path;
    num_objects++;
    return 0;
}

/*
 * Loads DIR/NAME.eh_elf.so for every object of the process; the eh_elfs loaded
 * thereby are objects, too, and may have eh_elfs of their own. Objects that came
 * since the last call are added.
 */
void load_eh_elfs(const char *dir)
{
    int before;
    do {
        before = num_objects;
        dl_iterate_phdr(found, NULL);
        for (int i = 0; i < num_objects; i++) {
            struct object *o = &objects[i];
            char path[PATH_MAX];
            snprintf(path, sizeof path, "%s/%s" EH_ELF_SUFFIX, dir, o->name);
            if (o->walk || access(path, R_OK) != 0)
                continue;
            void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
            if (!handle) {
                fail("%s", dlerror());
                continue;
            }
            *(void **)&o->walk = dlsym(handle, "_eh_elf_walk");
            *(void **)&o->step = dlsym(handle, "_eh_elf");
            o->chain = dlsym(handle, "_eh_elf_chain_1");
            if (!o->walk || !o->step || !o->chain)
                fail("%s: %s", path, dlerror());
        }
    } while (before != num_objects);
    for (int i = 0; i < num_objects; i++)
        if (!objects[i].walk && !strstr(objects[i].name, EH_ELF_SUFFIX))
            fail("%s: no eh_elf in %s", objects[i].path, dir);
}

/* object_of finds the object that has pc in its code. */
const struct object *object_of(uint64_t pc)
{
    for (int i = 0; i < num_objects; i++)
        if (pc >= objects[i].low && pc < objects[i].high)
            return &objects[i];
    return NULL;
}

void print_pc(FILE *out, uint64_t pc)
{
    const struct object *o = object_of(pc);
    Dl_info info;
    fprintf(out, "%#lx", (unsigned long)pc);
    if (!o)
        return;
    fprintf(out, " %s+%#lx", o->name, (unsigned long)(pc - o->bias));
    if (dladdr((void *)(uintptr_t)pc, &info) && info.dli_sname)
        fprintf(out, " (%s+%#lx)", info.dli_sname, (unsigned long)(pc - (uintptr_t)info.dli_saddr));
}
