/* A program with two busy threads that can be sampled and one that has all signals blocked. */
#include <pthread.h>
#include <signal.h>
#include <time.h>

#define APART __attribute__((noinline, noclone))

static volatile unsigned long sink;

static inline __attribute__((always_inline)) long used(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000 + t.tv_nsec;
}

/* spin takes 0.4 s of the thread's processor time. */
static inline __attribute__((always_inline)) void spin(void)
{
    long begin = used(); /* in main, what starting the program took */
    while (used() - begin < 400000000)
        for (int i = 0; i < 100000; i++)
            sink += (unsigned long)i;
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
