/*
 * What the dynamic loader has in its memory: how many objects it has loaded, and a lock that dl_iterate_phdr takes. A
 * child of fork inherits that lock as it was: if another thread had it, it is never free again there. So before the
 * loader is asked, the lock is looked at. It is found as the mutex that this thread has in a callback of
 * dl_iterate_phdr, and not behind it.
 *
 * dl_iterate_phdr gives how many objects the loader has loaded (dlpi_adds) and unloaded (dlpi_subs), but takes the
 * lock, which all threads share. The loader's data has two such words: the number of objects ever loaded, behind its
 * locks, and the number of those in the first namespace, beside the pointer to the first of them.
 */
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "internal.h"

struct ehu_loader ehu_loader_;
static _Atomic(const pthread_mutex_t *) loader_lock;
static _Atomic pid_t home; /* the process that has asked; 0: none */

enum { MAX_HELD = 4 };
struct question {
    struct ehu_counts counts;
    uint32_t thread;
    const struct r_debug *debug; /* null: unknown, or not needed */
    bool begun;
    struct ehu_loader memory;
    const pthread_mutex_t *held[MAX_HELD]; /* locks that this thread has */
    int num_held;
};

/* debug_of is what the loader tells debuggers, by the program's dynamic section: where it is, and its list of objects. */
static const struct r_debug *debug_of(const struct dl_phdr_info *program)
{
    for (int i = 0; i < program->dlpi_phnum; i++) {
        if (program->dlpi_phdr[i].p_type != PT_DYNAMIC)
            continue;
        const ElfW(Dyn) *d = (const void *)(uintptr_t)(program->dlpi_addr + program->dlpi_phdr[i].p_vaddr);
        for (; d->d_tag != DT_NULL; d++)
            if (d->d_tag == DT_DEBUG)
                return (const struct r_debug *)(uintptr_t)d->d_un.d_ptr;
    }
    return NULL;
}

/* mine reports whether a mutex looks like a recursive one that this thread holds once, by glibc's struct
 * (bits/struct_mutex.h). */
static int mine(const pthread_mutex_t *m, uint32_t thread)
{
    return m->__data.__lock != 0 && m->__data.__count == 1 && (uint32_t)m->__data.__owner == thread &&
        m->__data.__nusers == 1 &&
           m->__data.__kind == PTHREAD_MUTEX_RECURSIVE_NP;
}

/* look is called with the loader's lock held, for each object: the program comes first, and tells where the
 * loader's data lie. In these it notes each word that looks like a mutex of this thread. It returns 1 to end
 * the search. */
static int look(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct question *q = arg;
    (void)size;
    if (!q->begun) {
        q->begun = true;
        q->counts = (struct ehu_counts){info->dlpi_adds, info->dlpi_subs};
        q->debug = atomic_load(&loader_lock) ? NULL : debug_of(info);
    }
    if (!q->debug)
        return 1;
    if (info->dlpi_addr != q->debug->r_ldbase)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || !(p->p_flags & PF_W))
            continue;
        q->memory.words = (const uint64_t *)(uintptr_t)((info->dlpi_addr + p->p_vaddr + 7) & ~(uint64_t)7);
        q->memory.n = (p->p_memsz - 7) / sizeof *q->memory.words;
        for (size_t w = 0; w + sizeof(pthread_mutex_t) / sizeof *q->memory.words <= q->memory.n; w++) {
            const pthread_mutex_t *m = (const void *)&q->memory.words[w];
            if (mine(m, q->thread) && q->num_held < MAX_HELD)
                q->held[q->num_held++] = m;
        }
    }
    return 1;
}

/*
 * answers reports whether the loader's lock may be waited for: it is free, or a thread of this process has it. Where
 * the lock was not found, only the process that has asked before does not wait for ever.
 */
static bool answers(uint32_t thread)
{
    enum { TURNS = 1000 }; /* of a thread that has taken the lock and not yet said so, or is about to release it */
    const pthread_mutex_t *m = atomic_load(&loader_lock);
    pid_t known = atomic_load(&home);
    for (int i = 0; m && i < TURNS; i++) {
        if (__atomic_load_n(&m->__data.__lock, __ATOMIC_ACQUIRE) == 0)
            return true;
        uint32_t owner = (uint32_t)__atomic_load_n(&m->__data.__owner, __ATOMIC_RELAXED);
        if (owner != 0)
            return owner == thread || !ehu_gone_(owner);
        sched_yield();
    }
    return known == 0 || known == getpid();
}

/* note_lock keeps the one mutex that this thread had inside the callback and has no longer. With two there
 * is no telling. */
static void note_lock(const struct question *q)
{
    const pthread_mutex_t *lock = NULL;
    for (int i = 0; i < q->num_held; i++) {
        if (mine(q->held[i], q->thread))
            continue;
        if (lock)
            return;
        lock = q->held[i];
    }
    if (!lock)
        return;
    ehu_loader_.words = q->memory.words;
    ehu_loader_.n = q->memory.n;
    ehu_loader_.first = (uint64_t)(uintptr_t)q->debug->r_map;
    ehu_loader_.lock = lock;
    atomic_store(&loader_lock, lock);
}

/* adds_word follows the lock that was found, or another one behind it: glibc 2.35 has three. */
static const uint64_t *adds_word(uint64_t adds)
{
    const pthread_mutex_t *lock = ehu_loader_.lock;
    for (int i = 1; lock && i <= 2; i++) {
        const uint64_t *word = (const void *)(lock + i);
        if (__atomic_load_n(word, __ATOMIC_RELAXED) == adds)
            return word;
    }
    return NULL;
}

/* loaded_word begins with the number of loaded objects; it follows a pointer to the first of them. */
static const uint32_t *loaded_word(uint64_t loaded)
{
    const uint64_t *word = NULL;
    for (size_t i = 1; i < ehu_loader_.n; i++) {
        const uint64_t *w = &ehu_loader_.words[i];
        if (w[-1] != ehu_loader_.first || (uint32_t)__atomic_load_n(w, __ATOMIC_RELAXED) != loaded)
            continue;
        if (word)
            return NULL;
        word = w;
    }
    return (const void *)word;
}

/* ehu_find_counts_ looks for both words by their values, once: later they are read without the lock, at
 * every throw. If they can't be found, ehu_loader_.adds stays null, and the loader is asked each time. */
void ehu_find_counts_(void)
{
    struct ehu_counts c;
    if (!ehu_ask_loader_(&c))
        return;
    const uint64_t *adds = adds_word(c.adds);
    const uint32_t *loaded = loaded_word(c.adds - c.subs);
    if (!adds || !loaded)
        return;
    ehu_loader_.adds = adds;
    ehu_loader_.loaded = loaded;
}

/* Its lock is recursive, so a trylock in a handler succeeds if the handler's own thread holds it: then the
 * count tells. */
void ehu_iterate_(int (*f)(struct dl_phdr_info *, size_t, void *), void *arg)
{
    pthread_mutex_t *m = (pthread_mutex_t *)(uintptr_t)ehu_loader_.lock;
    if (!ehu_loader_.hurry) {
        dl_iterate_phdr(f, arg);
    } else if (!m || pthread_mutex_trylock(m) != 0) {
        ehu_loader_.refused = true;
    } else {
        if (m->__data.__count > 1) /* the interrupted code is changing the list */
            ehu_loader_.refused = true;
        else
            dl_iterate_phdr(f, arg);
        pthread_mutex_unlock(m);
    }
}

/* q.thread is 0 where system calls are not allowed (ehu_quiet_): no mutex looks held by thread 0, and the
 * lock stays unknown. */
bool ehu_ask_loader_(struct ehu_counts *counts)
{
    struct question q = {.thread = ehu_quiet_ ? 0 : (uint32_t)syscall(SYS_gettid)};
    if (!ehu_loader_.hurry && !answers(q.thread))
        return false;
    ehu_iterate_(look, &q);
    if (ehu_loader_.refused)
        return false;
    note_lock(&q);
    if (!ehu_quiet_)
        atomic_store(&home, getpid());
    *counts = q.counts;
    return true;
}
