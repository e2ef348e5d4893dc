/*
 * Locks whose holders may vanish: no lock is taken at fork, since a handler that interrupted a holder may fork. So they
 * are in a page that the kernel empties in a child of fork, where they are free again; not in one that shares its
 * parent's memory (vfork, CLONE_VM), whose threads hold them still. A holder is a process id and, in the lower half, a
 * thread id.
 */
#include <errno.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

static union {
    _Alignas(PAGE) char page[PAGE];
    _Atomic uint64_t holder[NUM_LOCKS];
} locks;

/* wiped reports whether the page is emptied in children: not before Linux 4.14. */
static bool wiped(void)
{
    static _Atomic int said; /* 1: yes; -1: no */
    int is = atomic_load(&said);
    if (is == 0) {
        is = madvise(&locks, sizeof locks, MADV_WIPEONFORK) == 0 ? 1 : -1;
        atomic_store(&said, is);
    }
    return is > 0;
}

/* gone reports whether a thread does not exist: tgkill with signal 0 only checks (kill(2)). It keeps errno,
 * as handlers must. */
static bool gone(uint32_t process, uint32_t thread)
{
    int saved = errno;
    bool none = syscall(SYS_tgkill, (long)process, (long)thread, 0L) != 0 && errno == ESRCH;
    errno = saved;
    return none;
}

bool ehu_gone_(uint32_t thread) { return gone((uint32_t)getpid(), thread); }

/* A holder that is this very thread means a handler that interrupted it: waiting would never end. A holder
 * of another process shares this memory (vfork); whether that has ended is a guess, so it is waited for 100
 * times 10 ms, a second. */
bool ehu_lock_(enum ehu_lock which, bool wait)
{
    enum { ROUNDS = 100 }; /* for another process, of which less is known */
    enum { FIRST = 1 }; /* of a pid namespace: it does not see the threads of a parent whose memory it shares */
    static const struct timespec look_again = {.tv_nsec = 10000000}; /* the holder may vanish while this waits */
    _Atomic uint64_t *holder = &locks.holder[which];
    uint32_t process = (uint32_t)getpid();
    uint64_t me = (uint64_t)process << 32 | (uint32_t)syscall(SYS_gettid);
    bool sure = wiped();
    for (int round = 0;; round++) {
        uint64_t by = 0;
        if (atomic_compare_exchange_strong(holder, &by, me))
            return true;
        if (by == me)
            return false;
        bool ours = by >> 32 == process;
        bool unseen = !ours && process == FIRST;
        if ((!ours && !sure) || (!unseen && gone((uint32_t)(by >> 32), (uint32_t)by))) {
            if (atomic_compare_exchange_strong(holder, &by, me))
                return true;
            continue;
        }
        if (!wait || (!ours && round >= ROUNDS))
            return false;
        syscall(SYS_futex, holder, FUTEX_WAIT_PRIVATE, (uint32_t)by, &look_again, NULL, 0);
    }
}

/* If the thread ends between the two lines, no waiter is woken but by FUTEX_WAIT's deadline. */
void ehu_unlock_(enum ehu_lock which)
{
    atomic_store(&locks.holder[which], 0);
    syscall(SYS_futex, &locks.holder[which], FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
