/*
 * The real libgcc, whose name this library has. It is opened by its path, and does everything that is not done
 * here: the stubs of forward.S jump to it.
 */
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "eh.h"
#include "forward.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Its functions, or, until it is open, stubs of entry.S that open it: a throw may come before the constructor, from a
 * malloc of the program's that dlopen calls here. */
_Static_assert(sizeof ehx_real_ == 8 * NUM_REAL, "as many as entry.S has stubs");
bool ehx_active_;

/* Programs of gcc 4.8 to 5 read this one; others have their own hidden copy. */
__attribute__((visibility("default"))) uint32_t ehx_cpu_model[4];
__asm__(".symver ehx_cpu_model, __cpu_model@GCC_4.8.0, remove");

void *ehx_forward_[NUM_FORWARDS]; /* forward.S */
static void *_Atomic real;
static int (*real_backtrace)(int (*)(void *, void *), void *);
static _Atomic pid_t opening; /* the thread that does, or 0 */

static const char *const places[] = {
#ifdef EHX_REAL
    EHX_REAL,
#endif
    "/lib/x86_64-linux-gnu/libgcc_s.so.1", "/usr/lib/x86_64-linux-gnu/libgcc_s.so.1", "/lib64/libgcc_s.so.1",
    "/usr/lib64/libgcc_s.so.1", "/usr/lib/libgcc_s.so.1"};

void ehx_no_real_(void)
{
    static const char text[] = "ehasm: libgcc_s.so.1: the real one cannot be opened; EHASM_LIBGCC names it\n";
    if (write(2, text, sizeof text - 1) < 0)
        _exit(127);
    abort();
}

static bool itself(const char *path)
{
    struct dl_find_object o;
    struct stat a, b;
    return _dl_find_object((void *)(uintptr_t)&itself, &o) == 0 && stat(o.dlfo_link_map->l_name, &a) == 0 && stat(path, &b) == 0 &&
           a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static void *try_open(const char *path)
{
    void *h = path && path[0] == '/' && !itself(path) ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    return h && dlsym(h, "_Unwind_RaiseException") ? h : NULL;
}

static int check_build(struct dl_phdr_info *info, size_t size, void *arg)
{
    uint64_t *bias = arg;
    uint8_t id[MAX_BUILD_ID];
    (void)size;
    if (info->dlpi_addr != *bias)
        return 0;
    *bias = 0;
    for (int i = 0; i < info->dlpi_phnum && *bias == 0; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_NOTE && ehu_build_id_((const void *)(uintptr_t)(info->dlpi_addr + p->p_vaddr), p->p_memsz, p->p_align, id) == sizeof ehx_build_id_ &&
            memcmp(id, ehx_build_id_, sizeof ehx_build_id_) == 0)
            *bias = info->dlpi_addr;
    }
    return 1;
}

/* known_bias is the load bias if the real libgcc is the one that forward.h was made from, whose addresses are in that; else 0. */
static uint64_t known_bias(void *h)
{
    const struct link_map *m;
    if (NUM_FORWARDS == 0 || dlinfo(h, RTLD_DI_LINKMAP, &m) != 0 ||
        dlvsym(h, ehx_names_[0].name, ehx_names_[0].version) != (void *)(uintptr_t)(m->l_addr + ehx_names_[0].address))
        return 0;
    uint64_t bias = m->l_addr;
    return dl_iterate_phdr(check_build, &bias) != 0 ? bias : 0;
}

static void open_real(void)
{
    opening = gettid();
    void *h = try_open(ehu_getenv_(ehu_secure_(), "EHASM_LIBGCC"));
    for (size_t i = 0; !h && i < sizeof places / sizeof *places; i++)
        h = try_open(places[i]);
    opening = 0;
    if (!h)
        return;
    uint64_t bias = known_bias(h);
    for (int i = 0; i < NUM_FORWARDS; i++)
        ehx_forward_[i] = bias ? (void *)(uintptr_t)(bias + ehx_names_[i].address) : dlvsym(h, ehx_names_[i].name, ehx_names_[i].version);
    const void *model = dlvsym(h, "__cpu_model", "GCC_4.8.0");
    if (model)
        memcpy(ehx_cpu_model, model, sizeof ehx_cpu_model);
#define TAKE(member, name) *(void **)&ehx_real_.member = dlsym(h, name)
    TAKE(raise, "_Unwind_RaiseException");
    TAKE(resume, "_Unwind_Resume");
    TAKE(rethrow, "_Unwind_Resume_or_Rethrow");
    TAKE(forced, "_Unwind_ForcedUnwind");
    TAKE(get_gr, "_Unwind_GetGR");
    TAKE(set_gr, "_Unwind_SetGR");
    TAKE(get_ip, "_Unwind_GetIP");
    TAKE(get_ip_info, "_Unwind_GetIPInfo");
    TAKE(set_ip, "_Unwind_SetIP");
    TAKE(get_cfa, "_Unwind_GetCFA");
    TAKE(get_lsda, "_Unwind_GetLanguageSpecificData");
    TAKE(get_start, "_Unwind_GetRegionStart");
    TAKE(get_text, "_Unwind_GetTextRelBase");
    TAKE(get_data, "_Unwind_GetDataRelBase");
    TAKE(frame, "__register_frame");
    TAKE(frame_table, "__register_frame_table");
    TAKE(info, "__register_frame_info");
    TAKE(info_table, "__register_frame_info_table");
    TAKE(bases, "__register_frame_info_bases");
    TAKE(table_bases, "__register_frame_info_table_bases");
    *(void **)&real_backtrace = dlsym(h, "_Unwind_Backtrace");
    real = h; /* other threads, of another library's constructor, take all the rest for done */
}

static int nothing(void) { return 0; }

/*
 * ehx_resolve_ is where a stub goes that has no function yet: the constructor has not run, since that of another
 * library or a resolver of indirect functions came first, or the real libgcc has no such function. While that one is
 * opened, its own constructor calls __cpu_indicator_init, which is to have no effect until it has been resolved.
 */
void *ehx_resolve_(int i)
{
    if (opening == gettid())
        return (void *)(uintptr_t)nothing;
    if (!real)
        open_real();
    if (!ehx_forward_[i])
        ehx_no_real_();
    return ehx_forward_[i];
}

/* ehx_first_ returns to a stub of entry.S the function to jump to. */
void *ehx_first_(unsigned i)
{
    if (!real)
        open_real();
    if (!real)
        ehx_no_real_();
    void *function;
    memcpy(&function, (const char *)&ehx_real_ + 8 * i, sizeof function);
    return function;
}

/* A shadow stack would have to be popped, too. */
static bool has_shadow_stack(void)
{
    uint64_t ssp = 0;
    __asm__("rdsspq %0" : "+r"(ssp));
    return ssp != 0;
}

static int stop_at_once(void *context, void *arg)
{
    (void)context;
    (void)arg;
    return END_OF_STACK;
}

void ehx_learn_sizes_(void)
{
    static _Atomic bool learnt;
    if (atomic_load_explicit(&learnt, memory_order_acquire))
        return;
    if (!real)
        open_real();
    if (!real)
        ehx_no_real_();
    real_backtrace(stop_at_once, NULL);
    atomic_store_explicit(&learnt, true, memory_order_release);
}

static bool has_sites(void)
{
    struct ehu_reading r = ehu_enter_(0);
    bool found = false;
    for (size_t i = 0; r.table && i < r.table->n && !found; i++)
        found = r.table->object[i].exceptions;
    ehu_leave_(r);
    return found;
}

/* turn_on reports whether throws are taken over. */
static bool turn_on(bool secure)
{
    ehx_loads_before_();
    if (!real)
        open_real();
    if (!real)
        ehx_no_real_();
    ehx_loads_after_();
    dlerror(); /* what failed here is not the program's */
    const char *off = ehu_getenv_(secure, "EHASM_EXCEPTIONS");
    if ((off && strcmp(off, "0") == 0) || has_shadow_stack() || ehu_init() != 0)
        return false;
    void *find = dlsym(RTLD_DEFAULT, "_Unwind_Find_FDE");
    struct dl_find_object a, b;
    if (!find || _dl_find_object(find, &a) != 0 || _dl_find_object((void *)(uintptr_t)&itself, &b) != 0 ||
        a.dlfo_map_start != b.dlfo_map_start)
        return false; /* the program has its own way to find tables */
    if (!has_sites())
        return false;
    ehx_types_init_();
    ehx_begin_();
    /* Pages that are there when they are needed. Where the kernel does not know the request, throws find them one by one. */
    uintptr_t from = (uintptr_t)ehx_known_ & ~(uintptr_t)(PAGE - 1);
    madvise((void *)from, (uintptr_t)(ehx_known_ + KNOWN_FEW) - from, MADV_POPULATE_WRITE);
    return true;
}

__attribute__((constructor(101))) static void start(void)
{
    bool secure = ehu_secure_();
    ehx_stats_init_(secure);
    ehx_active_ = turn_on(secure);
    if (ehx_active_)
        return;
    ehx_learn_sizes_();
    ehx_loads_ = NULL; /* what is in entry.S need not look further */
    memcpy(ehx_accessors_, &ehx_real_.get_gr, sizeof ehx_accessors_);
}
