/* A program with two busy threads that can be sampled and one that has all signals blocked. */
#include <pthread.h>
#include <signal.h>
#include <time.h>

#define APART __attribute__((noinline, noclone))

static volatile unsigned long sink;

/* spin takes 0.4 s of the thread's processor time. */
static inline __attribute__((always_inline)) void spin(void)
{
    struct timespec t;
    do {
        for (int i = 0; i < 100000; i++)
            sink += (unsigned long)i;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    } while (t.tv_sec == 0 && t.tv_nsec < 400000000);
}

APART static void *busy_in_thread(void *arg)
{
    spin();
    __asm__ volatile("");
    return arg;
}

APART static void *busy_blocked(void *arg)
{
    spin();
    __asm__ volatile("");
    return arg;
}

APART static void busy_in_main(void)
{
    spin();
    __asm__ volatile("");
}

int main(void)
{
    pthread_t seen, blocked;
    sigset_t all;
    sigfillset(&all);
    pthread_create(&seen, NULL, busy_in_thread, NULL);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    pthread_create(&blocked, NULL, busy_blocked, NULL);
    pthread_sigmask(SIG_UNBLOCK, &all, NULL);
    busy_in_main();
    pthread_join(seen, NULL);
    pthread_join(blocked, NULL);
    return 0;
}
