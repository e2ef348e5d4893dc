/* The objects of the process: the table that walks see, made again when objects come and go. */
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

enum { MAX_RANGES = 4 /* executable segments of an object; the rest is ignored */ };

/* An object of the process and its eh_elf, if it has one. */
struct ehu_loaded {
    const char *path;
    uint64_t bias;
    const void *headers;
    uint64_t low[MAX_RANGES], high[MAX_RANGES];
    int num_ranges;
    uint8_t build_id[MAX_BUILD_ID];
    size_t build_id_size;
    struct ehu_elf *elf;
};

_Atomic uintptr_t ehu_current_;
_Atomic uint64_t ehu_generation_;

/* The variables below belong to the refresher, under the lock. */
static bool changing;           /* the lock was held: if one gets it now, its holder has vanished */
static bool ready, secure;      /* secure: see ehu_secure_ */
static uid_t self;              /* whose files are trusted, besides root's */
static struct ehu_elf *elfs;       /* the mapped ones */
static struct ehu_table *retired;  /* replaced, and perhaps still read */
static struct ehu_table *spare;    /* freed, to be used again: dlopen does not unmap */

/*
 * A child of fork may get the lock that a thread had which it does not have. It does not
 * touch what that thread was changing: it starts new lists, and what was in the old ones
 * stays mapped, as does the current table, since the child may still return from the handler
 * into that refresh. The table that walks use is complete at any time.
 */
static bool forsaken; /* do not retire the current table */

static void abandon(void)
{
    forsaken = true;
    elfs = NULL;
    retired = spare = NULL;
    ehu_abandon_elfs_();
}

/* lock_it returns false as ehu_lock_ does. */
static bool lock_it(bool wait)
{
    if (!ehu_quiet_ && !ehu_lock_(LOCK_TABLE, wait))
        return false;
    if (changing)
        abandon();
    changing = true;
    return true;
}

static void unlock_it(void)
{
    changing = false;
    if (!ehu_quiet_)
        ehu_unlock_(LOCK_TABLE);
}

/* ---------------------------------------------------------------------- what is loaded */

/* The loaded objects: counted first, so that a table and all it points to are one piece
   of memory. */
struct listing {
    size_t num, chars; /* objects, bytes of their paths */
    unsigned long long adds, subs;
    struct ehu_table *table; /* to be filled; it has room for num and chars */
    char *path;              /* where the next path goes, of what is left of chars */
    bool more; /* there are more than counted: an object was loaded since */
};

/* own_name reports whether the object is the program, which has no name in the list. */
static bool own_name(const struct dl_phdr_info *info, size_t index) { return index == 0 && info->dlpi_name[0] == 0; }

/* count_object and list_object run with the loader's lock held; they may not call what takes locks or opens
 * files. */
static int count_object(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct listing *l = arg;
    (void)size;
    l->chars += own_name(info, l->num) ? PATH_MAX : strlen(info->dlpi_name) + 1;
    l->num++;
    return 0;
}

/* take_path copies the path of an object; it returns null if there is no room. */
static const char *take_path(struct listing *l, const struct dl_phdr_info *info)
{
    char *path = l->path;
    size_t need = strlen(info->dlpi_name) + 1;
    if (own_name(info, l->table->num_loaded)) {
        ssize_t n = l->chars < PATH_MAX || ehu_quiet_ ? 0 : readlink("/proc/self/exe", path, PATH_MAX - 1);
        need = n > 0 ? (size_t)n + 1 : 1; /* including the terminating zero */
    }
    if (need > l->chars)
        return NULL;
    if (info->dlpi_name[0] != 0)
        memcpy(path, info->dlpi_name, need);
    l->path += need;
    l->chars -= need;
    return path;
}

/* mapped reports whether a segment lies in one that is loaded, as a PT_NOTE need not. */
static bool mapped(const struct dl_phdr_info *info, const ElfW(Phdr) *p)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *l = &info->dlpi_phdr[i];
        if (l->p_type == PT_LOAD && l->p_flags & PF_R && p->p_vaddr >= l->p_vaddr &&
            p->p_vaddr - l->p_vaddr <= l->p_filesz && p->p_memsz <= l->p_filesz - (p->p_vaddr - l->p_vaddr))
            return true;
    }
    return false;
}

/* list_object adds an object to the table. An object whose headers can't be read any more (its file was cut)
 * has no ranges. */
static int list_object(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct listing *l = arg;
    struct ehu_table *t = l->table;
    (void)size;
    l->adds = info->dlpi_adds;
    l->subs = info->dlpi_subs;
    if (!ehu_readable_((uint64_t)(uintptr_t)info->dlpi_phdr))
        return 0;
    const char *path = t->num_loaded < l->num ? take_path(l, info) : NULL;
    if (!path) {
        l->more = true;
        return 1;
    }
    const uint64_t where[] = {t->hash, info->dlpi_addr, (uintptr_t)info->dlpi_phdr, ehu_xxh64_(path, strlen(path))};
    t->hash = ehu_xxh64_(where, sizeof where);
    struct ehu_loaded *o = &t->loaded[t->num_loaded++];
    o->path = path;
    o->bias = info->dlpi_addr;
    o->headers = info->dlpi_phdr;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uint64_t start = info->dlpi_addr + p->p_vaddr;
        if (p->p_type == PT_LOAD && p->p_flags & PF_X && o->num_ranges < MAX_RANGES) {
            uint64_t end = start + p->p_memsz, code = (uint64_t)(uintptr_t)(info->dlpi_phdr + info->dlpi_phnum);
            o->low[o->num_ranges] = code > start && code < end ? code : start; /* headers are no code */
            o->high[o->num_ranges++] = end;
        } else if (p->p_type == PT_NOTE && o->build_id_size == 0 && mapped(info, p)) {
            o->build_id_size = ehu_build_id_((const void *)(uintptr_t)start, p->p_memsz, p->p_align, o->build_id);
            t->hash ^= ehu_xxh64_(o->build_id, o->build_id_size);
        }
    }
    return 0;
}

/* place takes n elements of a size out of the memory at *next; all sizes are multiples of 8. */
static void *place(char **next, size_t n, size_t size)
{
    void *p = *next;
    *next += n * size;
    return p;
}

/* room returns memory for a table, and perhaps a larger size. */
static void *room(size_t *size)
{
    for (struct ehu_table **link = &spare; *link; link = &(*link)->next) {
        struct ehu_table *t = *link;
        if (t->size < *size)
            continue;
        *link = t->next;
        *size = t->size;
        return memset(t, 0, *size);
    }
    /* The power of two above: spare tables then fit one another's contents. */
    *size = (size_t)1 << (64 - __builtin_clzl(*size)); /* for larger tables, too */
    return ehu_map_(*size);
}

static void free_table(struct ehu_table *t);

/* list makes a table of the objects that are loaded, without their ranges. It returns null if there is no memory. */
static struct ehu_table *list(void)
{
    for (;;) {
        struct listing l = {0};
        ehu_iterate_(count_object, &l);
        size_t ranges = l.num * (MAX_RANGES + 1);
        size_t size = sizeof *l.table + l.num * sizeof *l.table->loaded +
                      ranges * (sizeof *l.table->object + sizeof *l.table->file) + l.chars;
        char *next = room(&size);
        if (!next)
            return NULL;
        l.table = place(&next, 1, sizeof *l.table);
        l.table->size = size;
        l.table->loaded = place(&next, l.num, sizeof *l.table->loaded);
        l.table->object = place(&next, ranges, sizeof *l.table->object);
        l.table->file = place(&next, ranges, sizeof *l.table->file);
        l.path = next;
        ehu_iterate_(list_object, &l); /* files are opened later: this holds the loader's lock */
        l.table->adds = l.adds;
        l.table->subs = l.subs;
        if (!l.more)
            return l.table;
        free_table(l.table);
    }
}

/* ---------------------------------------------------------------------- their eh_elfs */

struct search {
    struct ehu_wanted wanted;
    struct ehu_elf *found;
};

/* try_path is called with each possible path of the eh_elf. */
static bool try_path(const char *path, void *arg)
{
    struct search *s = arg;
    struct stat st;
    int fd = ehu_open_trusted_(path, self, &st);
    if (fd < 0)
        return false;
    struct ehu_elf *elf = elfs;
    while (elf && !(elf->dev == st.st_dev && elf->ino == st.st_ino))
        elf = elf->next;
    bool known = elf != NULL; /* mapped, so the inode is in use and cannot be another file's */
    if (!known)
        elf = ehu_load_(fd, &st);
    close(fd);
    if (!elf)
        return false;
    bool fits = ehu_fits_(elf, &s->wanted);
    if (!known && !fits && !ehu_quiet_) {
        ehu_unload_(elf);
    } else if (!known) {
        elf->next = elfs;
        elfs = elf;
    }
    s->found = fits ? elf : NULL;
    return fits;
}

/* search looks for the eh_elf of an object: on disk, in the order of search.c. Files are opened here, so no
 * lock of the loader is held. */
static struct ehu_elf *search(const struct ehu_loaded *o)
{
    struct search s;
    memset(&s, 0, sizeof s);
    const char *slash = strrchr(o->path, '/');
    s.wanted.path = o->path;
    s.wanted.bias = o->bias;
    s.wanted.headers = o->headers;
    s.wanted.name = slash ? slash + 1 : o->path;
    memcpy(s.wanted.build_id, o->build_id, o->build_id_size);
    s.wanted.build_id_size = o->build_id_size;
    if (s.wanted.name[0] != 0)
        ehu_search_(&s.wanted, secure, try_path, &s);
    return s.found;
}

/* find_eh_elf finds the eh_elf of an object; stayed: it has not been loaded since old was made, and has the eh_elf that it had then. */
static void find_eh_elf(struct ehu_loaded *o, const struct ehu_table *old, bool stayed)
{
    for (size_t i = 0; stayed && i < old->num_loaded && !o->elf; i++)
        if (o->bias == old->loaded[i].bias && o->headers == old->loaded[i].headers)
            o->elf = old->loaded[i].elf;
    if (!o->elf)
        o->elf = search(o);
    if (o->elf)
        o->elf->refs++;
}

/* ------------------------------------------------------------------------------ tables */

static void free_table(struct ehu_table *t)
{
    for (size_t i = 0; i < t->num_loaded; i++) {
        struct ehu_elf *elf = t->loaded[i].elf;
        if (!elf || --elf->refs > 0 || ehu_quiet_)
            continue;
        struct ehu_elf **link = &elfs;
        while (*link && *link != elf)
            link = &(*link)->next;
        if (*link) /* else it is from before a fork: see abandon */
            *link = elf->next;
        ehu_unload_(elf);
    }
    t->next = spare;
    spare = t;
}

/* sort orders ranges by address, a shell sort with Gonnet's gaps (5/11 of the one before): glibc's qsort
 * allocates for more than a few. */
static void sort(struct ehu_object *o, size_t n)
{
    for (size_t gap = n / 2; gap > 0; gap = gap > 2 ? gap * 5 / 11 : gap - 1)
        for (size_t i = gap; i < n; i++) {
            struct ehu_object moved = o[i];
            size_t to = i;
            for (; to >= gap && o[to - gap].low > moved.low; to -= gap)
                o[to] = o[to - gap];
            o[to] = moved;
        }
}

static void add_range(struct ehu_table *t, struct ehu_object o)
{
    if (o.low < o.high)
        t->object[t->n++] = o;
}

/* fill makes the sorted ranges of the objects, and of the code of their eh_elfs. */
static void fill(struct ehu_table *t)
{
    for (size_t i = 0; i < t->num_loaded; i++) {
        const struct ehu_loaded *l = &t->loaded[i];
        for (int r = 0; r < l->num_ranges; r++)
            add_range(t, (struct ehu_object){.low = l->low[r], .high = l->high[r], .bias = l->bias,
                                             .walk = l->elf ? l->elf->walk : NULL,
                                             .chain = l->elf ? l->elf->chain : NULL,
                                             .exceptions = l->elf && l->elf->exceptions,
                                             .sites = l->elf ? l->elf->sites : NULL,
                                             .sites_size = l->elf ? l->elf->sites_size : 0});
    }
    for (size_t i = 0; i < t->num_loaded; i++) {
        const struct ehu_elf *elf = t->loaded[i].elf;
        bool again = false; /* an object may be loaded twice, with dlmopen */
        for (size_t j = 0; j < i && !again; j++)
            again = t->loaded[j].elf == elf;
        if (elf && !again)
            add_range(t, (struct ehu_object){.low = elf->low, .high = elf->high, .bias = (uint64_t)(uintptr_t)elf->base,
                .eh_elf = true});
    }
    sort(t->object, t->n);
}

/* new_table makes a table of what is loaded, with eh_elfs. Those of objects that stayed are taken over from
 * old; to find one anew costs a few system calls an object and a hash of its tables. */
static struct ehu_table *new_table(const struct ehu_table *old)
{
    struct ehu_table *t = list();
    if (!t)
        return NULL;
    ehu_keep_folder_();
    /* Another object may have the place, the headers and the build-id of one that was unloaded. But the loader appends those that it loads
       to its list, whose first is the program. */
    for (size_t i = 0; i < t->num_loaded; i++)
        find_eh_elf(&t->loaded[i], old, old && (i == 0 || t->num_loaded - i > t->adds - old->adds));
    ehu_forget_folder_();
    fill(t);
    if (!ehu_quiet_)
        ehu_note_files_(t);
    return t;
}

/* idle_slots returns a bit for each slot without a reader in a column. */
static uint64_t idle_slots(unsigned column)
{
    uint64_t idle = 0;
    for (int i = 0; i < NUM_SLOTS; i++)
        if (atomic_load(&ehu_slots_[i].count[column]) % ONE_WALK == 0 &&
            ehu_own_(&ehu_slots_[i], column) % ONE_WALK == 0)
            idle |= (uint64_t)1 << i;
    return idle;
}

/*
 * reclaim frees the retired tables without readers. A walk that began before a
 * table was replaced is counted in the table's column until it ends; so once the
 * count was seen at 0 in each slot, no walk can have the old table.
 */
static void reclaim(void)
{
    struct ehu_table **link = &retired;
    while (*link) {
        struct ehu_table *t = *link;
        t->idle |= idle_slots(t->column);
        if (t->idle != UINT64_MAX) {
            link = &t->next;
            continue;
        }
        *link = t->next;
        free_table(t);
    }
}

/* choose_column returns a column that neither a reader nor another table uses, or else
   one without a reader now. */
static unsigned choose_column(const struct ehu_table *old)
{
    unsigned used = old ? 1u << old->column : 0, quiet = 0;
    for (const struct ehu_table *t = retired; t; t = t->next)
        used |= 1u << t->column;
    for (unsigned c = 0; c < NUM_COLUMNS; c++)
        if (idle_slots(c) == UINT64_MAX)
            quiet |= 1u << c;
    unsigned best = quiet & ~used ? quiet & ~used : quiet;
    return best ? (unsigned)__builtin_ctz(best) : 0;
}

/* The sum of a table's adds and subs, published after it. */
static _Atomic uint64_t table_loads;

/* refresh makes and publishes a table if there is none or objects came or went. It returns NOT_ASKED and does nothing if the loader cannot be asked. */
enum { NOT_ASKED = -2 };
static int refresh(void)
{
    struct ehu_counts now;
    struct ehu_table *old = (struct ehu_table *)(uintptr_t)ehu_table_of_(atomic_load(&ehu_current_));
    reclaim();
    if (!ehu_ask_loader_(&now))
        return NOT_ASKED;
    if (old && now.adds == old->adds && now.subs == old->subs)
        return 0;
    struct ehu_table *t = new_table(old);
    if (!t)
        return -1;
    if (ehu_loader_.refused) {
        free_table(t);
        return NOT_ASKED;
    }
    t->generation = atomic_load(&ehu_generation_) + 1;
    t->column = choose_column(old);
    atomic_store(&ehu_current_, (uintptr_t)t + t->column);
    atomic_store(&ehu_generation_, t->generation);
    atomic_store(&table_loads, t->adds + t->subs);
    if (old && !forsaken) {
        old->next = retired;
        retired = old;
        reclaim();
    }
    forsaken = false;
    ehu_count_(COUNT_REFRESHES);
    return 1;
}

/* get_ready runs before any refresh, since what is trusted depends on secure. */
static void get_ready(void)
{
    if (ready && ehu_quiet_)
        return;
    secure = ehu_secure_();
    self = ehu_self_(secure);
    if (ready)
        return;
    ehu_search_init_(secure);
    ehu_stack_init_();
    ehu_maps_init_();
    ready = true;
    ehu_stats_init_(secure);
}

/*
 * A thread that is cancelled in here would leave the lock held, and the program what it
 * was loading: dlopen is not a cancellation point, and files are opened here.
 */
static int locked_refresh(bool wait, bool hurry)
{
    int state, changed = NOT_ASKED, saved = errno;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    if (lock_it(wait)) {
        get_ready();
        ehu_loader_.hurry = hurry;
        changed = refresh();
        ehu_loader_.hurry = ehu_loader_.refused = false;
        unlock_it();
    }
    pthread_setcancelstate(state, NULL);
    errno = saved;
    return changed;
}

/* ehu_refresh is for the program's threads, not for handlers: it waits for locks and opens files
 * (ehunwind.h). */
int ehu_refresh(void)
{
    int changed = locked_refresh(true, false);
    return changed == NOT_ASKED ? 0 : changed;
}

/* The loader keeps how many objects it has ever added, and how many are loaded: adds - subs. So adds + subs
 * is twice the one less the other. */
bool ehu_up_to_date_(void)
{
    const uint64_t *adds = ehu_loader_.adds;
    if (adds && atomic_load(&table_loads) == 2 * __atomic_load_n(adds,
        __ATOMIC_ACQUIRE) - __atomic_load_n(ehu_loader_.loaded, __ATOMIC_ACQUIRE))
        return true;
    return locked_refresh(false, true) >= 0;
}

bool ehu_catch_up_(uint64_t loads)
{
    locked_refresh(false, false);
    struct ehu_reading r = ehu_enter_(0);
    bool up = r.table && r.table->adds + r.table->subs >= loads;
    ehu_leave_(r);
    return up;
}

/* ehu_init returns 0, or -1 if there is no memory for the first table. */
int ehu_init(void)
{
    int changed = ehu_refresh();
    ehu_thread_init();
    return changed < 0 ? -1 : 0;
}

/* The caller is counted as a reader of t. */
void ehu_count_objects_(const struct ehu_table *t, uint64_t *objects, uint64_t *eh_elfs)
{
    *objects = t->num_loaded;
    *eh_elfs = 0;
    for (size_t i = 0; i < t->num_loaded; i++)
        *eh_elfs += t->loaded[i].elf != NULL;
}

/* For figures at exit: the caller does not count as a reader. Tables are not unmapped, so if a thread
 * refreshes meanwhile, the path is at worst a wrong one. */
const char *ehu_object_path_(uint64_t pc, bool *eh_elf)
{
    const struct ehu_table *t = ehu_table_of_(atomic_load(&ehu_current_));
    for (size_t i = 0; t && i < t->num_loaded; i++)
        for (int r = 0; r < t->loaded[i].num_ranges; r++)
            if (pc >= t->loaded[i].low[r] && pc < t->loaded[i].high[r]) {
                *eh_elf = t->loaded[i].elf != NULL;
                return t->loaded[i].path;
            }
    return NULL;
}
