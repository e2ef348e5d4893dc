/*
 * Finding the originals: by RTLD_NEXT, to which the program's own calls would have been
 * bound without this library. It does not see libraries loaded by dlopen, so if it
 * finds nothing, a loaded libgcc or libunwind is searched by name.
 *
 * This is done in the constructor and after each dlopen that is followed, since a lookup
 * takes the loader's locks. An original that is still missing when it is needed is looked
 * up then, even in a signal handler: it belongs to a library that was loaded unseen. But
 * nothing is looked up that may not exist, since a failed search allocates: the caller
 * may be a malloc that holds its lock, or one that counts.
 */
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <string.h>

#include "preload.h"

#define LIBGCC "libgcc_s.so"
#define LIBUNWIND "libunwind.so.8"

struct ehp_originals ehp_original_;
enum ehp_style ehp_style_;
_Atomic bool ehp_ready_;

static uint64_t libunwind_low, libunwind_high; /* its code */
static bool starting;                          /* in the constructor */

/*
 * Functions that this library does not define and that are in the files of the
 * originals: not null if the program was loaded with the library, whatever its
 * name.
 */
extern char has_libunwind[] __asm__("_Ux86_64_getcontext") __attribute__((weak, visibility("default")));
extern char has_unwind[] __asm__("_Unwind_RaiseException") __attribute__((weak, visibility("default")));
static _Thread_local bool resolving __attribute__((tls_model("initial-exec")));

bool ehp_in_libunwind_(const void *address)
{
    uint64_t a = (uint64_t)(uintptr_t)address;
    return a >= libunwind_low && a < libunwind_high;
}

/* open_loaded returns a handle of a library that is already loaded, and keeps it loaded. */
static void *open_loaded(const char *path) { return ehp_original_.dlopen(path, RTLD_LAZY | RTLD_NOLOAD); }

struct named {
    const char *prefix; /* of the file's name */
    char path[PATH_MAX];
};

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* find_named ends the search at the first object whose file name begins with the prefix. */
static int find_named(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct named *n = arg;
    (void)size;
    if (strncmp(file_name(info->dlpi_name), n->prefix, strlen(n->prefix)) != 0 ||
        strlen(info->dlpi_name) >= sizeof n->path)
        return 0;
    strcpy(n->path, info->dlpi_name);
    return 1;
}

/*
 * home returns the handle in which to look up the functions of the library that has this
 * symbol, or null if none has. linked is not null if the program was loaded with that
 * library. *keep is the path of a library that might be unloaded, or null: it is to be
 * opened once its functions are known, since the program's malloc may call them meanwhile.
 */
static void *home(const char *symbol, const char *prefix, bool in_scope, const void *linked, const char **keep)
{
    Dl_info info, stays = {0};
    struct named n = {.prefix = prefix};
    bool loaded = dl_iterate_phdr(find_named, &n) != 0;
    void *found = in_scope && (loaded || (starting && linked)) ? dlsym(RTLD_NEXT, symbol) : NULL;
    if (found) {
        /* Libraries that the program was loaded with stay, as do all those loaded before
           the constructor; opening allocates. */
        if (linked)
            dladdr(linked, &stays);
        if ((starting || atomic_load(&ehp_ready_)) && dladdr(found, &info) != 0 && info.dli_fname &&
            info.dli_fbase != stays.dli_fbase)
            *keep = info.dli_fname;
        return RTLD_NEXT;
    }
    return loaded ? open_loaded(n.path) : NULL;
}

struct range {
    uint64_t inside, low, high;
};

/* find_range finds the executable segment that holds an address. */
static int find_range(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct range *r = arg;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uint64_t low = info->dlpi_addr + p->p_vaddr;
        if (p->p_type == PT_LOAD && p->p_flags & PF_X && r->inside - low < p->p_memsz) {
            r->low = low;
            r->high = low + p->p_memsz;
            return 1;
        }
    }
    return 0;
}

/* style_of returns to which library an _Unwind_Backtrace belongs. */
static enum ehp_style style_of(void *function)
{
    Dl_info info;
    if (ehp_in_libunwind_(function))
        return STYLE_LIBUNWIND;
    if (dladdr(function, &info) == 0 || !info.dli_fname)
        return STYLE_OTHER;
    return strncmp(file_name(info.dli_fname), LIBGCC, strlen(LIBGCC)) == 0 ? STYLE_LIBGCC : STYLE_OTHER;
}

#define LOOK_UP(member, symbol, result, parameters) *(void **)&found.member = dlsym(where, symbol);
#define COPY(member, symbol, result, parameters) __atomic_store_n(&ehp_original_.member, found.member, __ATOMIC_RELEASE);

static void resolve_libc(void)
{
    struct ehp_originals found;
    void *where = RTLD_NEXT;
    ORIGINALS_LIBC(LOOK_UP)
    ORIGINALS_LIBC(COPY)
}

static void resolve_libunwind(bool in_scope, const char **keep)
{
    struct ehp_originals found;
    void *where = home("_ULx86_64_init_local", LIBUNWIND, in_scope, has_libunwind, keep);
    if (!where)
        return;
    ORIGINALS_LIBUNWIND(LOOK_UP)
    struct range r = {.inside = (uint64_t)(uintptr_t)found.init_local};
    if (!found.init_local || dl_iterate_phdr(find_range, &r) == 0)
        return;
    libunwind_low = r.low;
    libunwind_high = r.high;
    ORIGINALS_LIBUNWIND(COPY)
}

static void resolve_unwind(bool in_scope, const char **keep)
{
    struct ehp_originals found;
    void *where = home("_Unwind_Backtrace", LIBGCC, in_scope, has_unwind, keep);
    if (!where)
        where = home("_Unwind_Backtrace", "libunwind.so", false, NULL, keep);
    if (!where)
        return;
    ORIGINALS_UNWIND(LOOK_UP)
    if (!found.unwind_backtrace)
        return;
    ehp_style_ = style_of(*(void **)&found.unwind_backtrace);
    ORIGINALS_UNWIND(COPY)
}

/*
 * The code below may allocate, and the program's malloc may ask for a stack: that call
 * goes to the originals that are known by then.
 */
void ehp_resolve_(bool in_scope)
{
    const char *keep[2] = {NULL, NULL};
    if (resolving)
        return;
    resolving = true;
    if (!ehp_original_.dlopen)
        resolve_libc();
    if (!ehp_original_.init_local)
        resolve_libunwind(in_scope, &keep[0]);
    if (!ehp_original_.unwind_backtrace)
        resolve_unwind(in_scope, &keep[1]);
    for (int i = 0; i < 2; i++)
        if (keep[i])
            open_loaded(keep[i]);
    if (starting || !in_scope)
        dlsym(RTLD_DEFAULT, "dlsym"); /* its success clears the error of a search that failed, which is not the program's;
                                         dlerror would allocate */
    resolving = false;
}

__attribute__((constructor)) static void start(void)
{
    starting = true;
    ehp_resolve_(true);
    starting = false;
    bool good = ehu_init() == 0;
    ehu_find_counts_();
    ehp_stats_init_();
    atomic_store(&ehp_ready_, good);
}
