/* Cleanups of C, and nested functions, which are called by way of a chain of frames. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
static void note(const int *n) { printf("cleanup %d\n", *n); }
static volatile int sink;
static void apply(void (*f)(int), int n)
{
    int mine __attribute__((cleanup(note))) = n;
    f(n);
    sink = mine;
}
static void *thread(void *arg)
{
    int local __attribute__((cleanup(note))) = 100;
    void inner(int n)
    {
        int mine __attribute__((cleanup(note))) = local + n;
        if (n == 0)
            pthread_exit(arg);
        apply(inner, n - 1);
        sink = mine;
    }
    inner(3);
    return NULL;
}
int main(void)
{
    pthread_t t;
    pthread_create(&t, NULL, thread, NULL);
    pthread_join(t, NULL);
    return 0;
}
